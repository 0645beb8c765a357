package watch

import (
	"fmt"
	"slices"
	"strings"
	"time"

	tea "charm.land/bubbletea/v2"
	"github.com/charmbracelet/x/ansi"

	"github.com/startupd/startupd/internal/app/observe"
	"github.com/startupd/startupd/pkg/web/api"
)

// noteFor is how long the observer's word stays when it tells of no loss.
const noteFor = 30 * time.Second

// View implements tea.Model.
func (m *model) View() tea.View {
	v := tea.NewView(m.frame())
	v.AltScreen = true
	return v
}

// options are those of what is as wide as the screen.
func (m *model) options() Options {
	o := m.opts
	o.Width = m.size.width
	return o
}

// layout fits the parts into the screen, and fills the one that scrolls.
func (m *model) layout() {
	o := m.options()
	used := len(m.top(o)) + 1
	m.body.SetWidth(m.size.width)
	m.body.SetHeight(max(m.size.height-used, 1))
	m.body.SetContentLines(m.content(o))
	// What has become shorter must not leave the screen empty.
	m.body.SetYOffset(m.body.YOffset())
}

// frame is the whole screen.
func (m *model) frame() string {
	o := m.options()
	lines := slices.Concat(m.top(o), splitLines(m.body.View()))
	room := max(m.size.height-1, 0)
	for len(lines) < room {
		lines = append(lines, "")
	}
	lines = append(lines[:min(len(lines), room)], m.footer(o))
	return strings.Join(lines[max(0, len(lines)-m.size.height):], "\n")
}

// top is what stays: where the view comes from, and the list.
func (m *model) top(o Options) []string {
	p := newPage(o)
	p.lines = append(p.lines, m.header(p))
	if note := m.word(); note != "" {
		p.para("! ", warn, p.clean(note), 2)
	}
	if m.listed() {
		m.window(p)
		p.line(p.paint(dim, strings.Repeat(p.rule, p.width)))
	}
	return p.lines
}

// word is what the observer has to say.
func (m *model) word() string {
	switch {
	case m.ended != nil:
		return strings.TrimPrefix(m.ended.Error(), observe.ErrBlind.Error()+": ") + "; trying again"
	case !m.lost.IsZero(), m.now().Sub(m.noted) < noteFor:
		return m.note
	}
	return ""
}

func (m *model) header(p *page) string {
	left := p.paint(bold, "startupd")
	if m.last.Status != nil && m.several() {
		left += "  " + m.census(p)
	}
	state := ""
	switch {
	case m.last.Status == nil:
	case m.paused():
		state = p.paint(warn, "PAUSED")
	case !m.lost.IsZero():
		state = p.paint(bad, "STALE since "+p.clock(m.lost))
	case !m.last.Settled:
		state = p.paint(warn, "reading the past")
	}
	from := "no daemon"
	if m.last.Daemon {
		from = "daemon"
	}
	if m.last.Status == nil {
		from = ""
	}
	right := join("  ", state, p.paint(dim, from), p.clock(m.moment()))
	room := p.width - ansi.StringWidth(right)
	if room < ansi.StringWidth(left)+2 {
		left = p.cut(left, max(room-2, 0))
	}
	return p.cut(p.pad(left, max(room, 0))+right, p.width)
}

// census counts the units by their condition.
func (m *model) census(p *page) string {
	number, order := map[string]int{}, []string{}
	tones := map[string]tone{}
	for _, u := range subjects(m.last.Status, m.moment()) {
		word, t := u.verdict()
		if number[word]++; number[word] == 1 {
			order = append(order, word)
		}
		tones[word] = t
	}
	// What is bad must not be cut.
	slices.SortStableFunc(order, func(a, b string) int { return severity(tones[a]) - severity(tones[b]) })
	parts := []string{fmt.Sprintf("%d units:", len(m.last.Status.Units))}
	for _, word := range order {
		parts = append(parts, p.paint(tones[word], fmt.Sprintf("%d %s", number[word], word)))
	}
	return strings.Join(parts, " ")
}

func severity(t tone) int { return slices.Index([]tone{bad, warn, busy, good}, t) }

// window is the part of the list around the chosen unit: a third of the screen,
// or all units where that leaves room for the chosen one.
func (m *model) window(p *page) {
	us := subjects(m.last.Status, m.moment())
	const detailRows = 16
	n := min(len(us), max(m.size.height/3, m.size.height-detailRows-3, 2))
	chosen := m.index()
	from := min(max(chosen-n/2, 0), len(us)-n)
	rows := newPage(m.options())
	// All rows at once, so that their columns stay where they are.
	rows.list(m.last.Status, us, chosen)
	p.lines = append(p.lines, rows.lines[from:from+n]...)
}

// content is what scrolls.
func (m *model) content(o Options) []string {
	p := newPage(o)
	switch {
	case m.help.ShowAll:
		return m.guide(p)
	case m.last.Status == nil:
		return []string{"waiting for the first view"}
	case len(m.last.Status.Units) == 0 && !m.last.Settled:
		return []string{"reading the journal"}
	case len(m.last.Status.Units) == 0:
		p.para("", plain, "No unit is watched. Name one: startupd watch UNIT, or give the daemon --unit UNIT.", 0)
		return p.lines
	}
	u := subject{Unit: m.last.Status.Find(m.chosen), status: m.last.Status, now: m.moment()}
	return detail(u, o)
}

// guide explains keys and characters.
func (m *model) guide(p *page) []string {
	p.line(p.paint(bold, "KEYS"))
	for _, group := range m.keys.all() {
		for _, b := range group {
			p.para(fmt.Sprintf("  %-11s ", b.Help().Key), bold, b.Help().Desc, 0)
		}
	}
	p.title("SIGNS", "")
	for _, s := range [][2]string{
		{p.full, "a phase that is over; in a memory bar, what the unit holds"},
		{p.part, "the phase that runs, up to now"},
		{p.ahead, "what is expected to be left, by the last good start"},
		{p.other, "memory that others hold"},
		{p.mark, "the memory that the unit held, or will hold, once its weights are resident"},
		{"*", "an error that has just come"},
		{"new", "an error that no good start has had"},
	} {
		p.para(fmt.Sprintf("  %-11s ", s[0]), bold, s[1], 0)
	}
	return p.lines
}

// footer is the last line: keys, and how much lies above and below.
func (m *model) footer(o Options) string {
	p := newPage(o)
	below := m.body.TotalLineCount() - m.body.YOffset() - m.body.Height()
	var parts []string
	if n := m.body.YOffset(); n > 0 {
		parts = append(parts, fmt.Sprintf("%d above", n))
	}
	if below > 0 {
		parts = append(parts, fmt.Sprintf("%d below", below))
	}
	right := strings.Join(parts, ", ")
	m.help.SetWidth(max(p.width-len(right)-2, 0))
	left := m.help.ShortHelpView(m.keys.brief(m.several(), m.whole))
	room := p.width - len(right)
	left = p.cut(left, room-min(len(right), 1))
	return strings.TrimRight(p.cut(p.pad(left, room)+p.paint(warn, right), p.width), " ")
}

// parting is what stays on the screen when the view is over.
func parting(s *api.Status, now time.Time, o Options) string {
	if s == nil {
		return ""
	}
	return Text(s, now, false, o)
}
