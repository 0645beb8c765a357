package watch

import (
	"fmt"
	"strings"

	"github.com/startupd/startupd/pkg/phases"
	"github.com/startupd/startupd/pkg/web/api"
)

const (
	// phaseColumns are those before a phase's bar: mark, name, duration.
	phaseColumns = 2 + 9 + 1 + 8 + 2
	// evidenceFrom is the width from which a phase's evidence has room beside it.
	evidenceFrom = 96
)

// timeline draws a startup's phases one below the other, each where and as long
// as it was. The line ends now, or when the start is expected to serve.
func (p *page) timeline(u subject) {
	s := u.Startup
	if s == nil || len(s.Phases) == 0 {
		return
	}
	p.title("PHASES", p.began(u))
	at, axis := 0.0, u.axis()
	for _, name := range phases.Phases() {
		ph := find(s.Phases, string(name))
		if ph == nil {
			p.pending(u, string(name))
			continue
		}
		lasts := u.lasts(ph)
		p.phase(u, ph, at, axis)
		if lasts != nil && name != phases.Serving {
			at += *lasts
		}
	}
	p.steps(u)
}

func (p *page) began(u subject) string {
	s := u.Startup
	switch {
	case s.Began.IsZero():
		return ""
	case s.AttachedLate:
		return "first seen " + p.moment(s.Began, u.now)
	}
	return "began " + p.moment(s.Began, u.now)
}

func find(list []api.Phase, name string) *api.Phase {
	for i := range list {
		if list[i].Phase == name {
			return &list[i]
		}
	}
	return nil
}

// running says that the phase is the one under way.
func (u subject) running(ph *api.Phase) bool { return u.runs() && !ph.Done && !ph.Skipped }

// endedIn says that the start, or its serving, came to its end in this phase.
func (u subject) endedIn(ph *api.Phase) bool {
	switch s := u.Startup; {
	case ph.Skipped || ph.Phase != s.Phase:
		return false
	case ph.Phase == string(phases.Serving):
		return !s.ServingEnded.IsZero()
	default:
		return s.Outcome == api.Failed || s.Outcome == api.Stopped
	}
}

// lasts is how long a phase lasted, or has lasted so far; nil when not known.
func (u subject) lasts(ph *api.Phase) *float64 {
	if ph.Seconds == nil {
		return nil
	}
	s := *ph.Seconds
	if u.running(ph) || ph.Phase == string(phases.Serving) && u.State == ph.Phase {
		s += u.since()
	}
	return &s
}

// axis is how many seconds the timeline spans; 0 when nothing is known.
func (u subject) axis() float64 {
	sum := 0.0
	for i := range u.Startup.Phases {
		ph := &u.Startup.Phases[i]
		if s := u.lasts(ph); s != nil && ph.Phase != string(phases.Serving) {
			sum += *s
		}
	}
	if at := u.Startup.ExpectedServing; u.runs() && !at.IsZero() {
		sum += max(0, at.Sub(u.now).Seconds())
	}
	return sum
}

// phase writes a phase that was entered.
func (p *page) phase(u subject, ph *api.Phase, at, axis float64) {
	mark, t := " ", good
	switch {
	case u.running(ph):
		_, t = u.verdict()
		mark = ">"
	case u.endedIn(ph):
		mark, t = "x", warn
		if u.State == api.Failed || u.Startup.Outcome == api.Failed {
			t = bad
		}
	}
	took := "-"
	if s := u.lasts(ph); s != nil {
		took = brief(*s)
	}
	lead := p.paint(t, mark) + " " + p.name(ph.Phase, t, mark != " ") + fmt.Sprintf(" %8s  ", took)
	if ph.Skipped {
		p.line("  " + fmt.Sprintf("%-9s %8s", ph.Phase, "-") + "  " + p.paint(dim, "not in this start"))
		return
	}
	room := max(p.width-phaseColumns-1, 0)
	if p.width >= evidenceFrom {
		room = (p.width - phaseColumns) / 2
	}
	bar := p.pad(p.span(u, ph, at, axis, room, t), room)
	if p.width >= evidenceFrom {
		bar += "  " + p.paint(dim, p.cut(p.evidence(u, ph), p.width-phaseColumns-room-2))
	}
	p.line(strings.TrimRight(lead+bar, " "))
}

func (p *page) name(name string, t tone, marked bool) string {
	text := fmt.Sprintf("%-9s", p.clean(name))
	if !marked {
		t = plain
	}
	return p.paint(t, text)
}

// span is a phase's bar; "" where there is no room. Serving has none: it is no part
// of the start.
func (p *page) span(u subject, ph *api.Phase, at, axis float64, room int, t tone) string {
	s := u.lasts(ph)
	if ph.Phase == string(phases.Serving) || s == nil || axis <= 0 || room < 2 {
		return ""
	}
	cells := make([]cell, room)
	fill(cells, 0, room, cell{" ", plain})
	from := min(column(at/axis, room), room-1)
	to := max(column((at+*s)/axis, room), from+1)
	full := p.full
	if u.running(ph) {
		full = p.part
		fill(cells, to, room, cell{p.ahead, dim})
	}
	fill(cells, from, to, cell{full, t})
	return p.bar(cells)
}

// evidence says when and by what the phase was entered.
func (p *page) evidence(u subject, ph *api.Phase) string {
	text := ""
	if e := ph.Evidence; e != nil {
		text = e.Text
		if e.Source != "" && e.Source != "log" {
			text = join(": ", e.Source, text)
		}
		if e.Provisional {
			text = "(not certain) " + text
		}
	}
	at := ""
	if !ph.Entered.IsZero() {
		at = p.moment(ph.Entered, u.now)
	}
	return join("  ", at, p.clean(text))
}

// pending writes a phase that is still to come, with what it took last time.
func (p *page) pending(u subject, name string) {
	last := ""
	if s := u.usual(name); s != nil && u.runs() {
		last = p.paint(dim, "last time "+brief(*s))
	}
	p.line(strings.TrimRight("  "+p.paint(dim, fmt.Sprintf("%-9s %8s", name, "-"))+"  "+last, " "))
}

// usual is how long the last good start was in a phase; nil when not known.
func (u subject) usual(name string) *float64 {
	if u.Last == nil || u.Last.Outcome != api.Serving || name == string(phases.Serving) {
		return nil
	}
	ph := find(u.Last.Phases, name)
	if ph == nil || ph.Skipped {
		return nil
	}
	return ph.Seconds
}

// steps tells the steps of the last phase, with how long each took.
func (p *page) steps(u subject) {
	s := u.Startup
	if s.Outcome == api.Serving {
		return
	}
	var parts []string
	for i, st := range s.Steps {
		if st.Phase != s.Phase {
			continue
		}
		text := st.Step
		if st.Seconds != nil {
			took := *st.Seconds
			if i == len(s.Steps)-1 && u.runs() {
				took += u.since()
			}
			text += " " + brief(took)
		}
		parts = append(parts, text)
	}
	if len(parts) > 0 {
		p.para(fmt.Sprintf("  %-9s ", "steps"), dim, p.clean(strings.Join(parts, ", ")), 2)
	}
}
