package watch

import (
	"fmt"
	"strconv"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/charmbracelet/x/ansi"

	"github.com/startupd/startupd/internal/app/explain"
)

const (
	// maxText bounds, in bytes, what is looked at of a text: a view is drawn four
	// times a second.
	maxText = 2000
	// maxMarks bounds the combining marks on one character, which would grow into
	// the lines above.
	maxMarks = 2
)

// clean makes text of unknown origin fit for one line of the terminal.
func (k ink) clean(text string) string {
	if len(text) > maxText {
		n := maxText
		for n > 0 && !utf8.RuneStart(text[n]) {
			n--
		}
		text = text[:n] + k.more
	}
	text = explain.Visible(text)
	if isASCII(text) {
		return text
	}
	var b strings.Builder
	marks := 0
	for _, r := range text {
		if !unicode.In(r, unicode.Mn, unicode.Me) {
			marks = 0
		} else if marks++; marks > maxMarks || unicode.Is(unicode.Variation_Selector, r) {
			continue
		}
		if k.ascii && r > '~' {
			b.WriteString(strings.Trim(strconv.QuoteRuneToASCII(r), "'"))
			continue
		}
		b.WriteRune(r)
	}
	return b.String()
}

func isASCII(text string) bool {
	for i := range len(text) {
		if text[i] >= utf8.RuneSelf {
			return false
		}
	}
	return true
}

// cut shortens a line, coloured or not, to at most n columns and marks that it
// did.
func (k ink) cut(text string, n int) string { return ansi.Truncate(text, max(n, 0), k.more) }

// pad fills a line, coloured or not, up to n columns; a longer one is cut.
func (k ink) pad(text string, n int) string {
	text = k.cut(text, n)
	return text + strings.Repeat(" ", max(0, n-ansi.StringWidth(text)))
}

// wrap breaks text at spaces into lines of at most n columns; a longer word is
// broken where the line ends. At most so many lines are kept; 0 means all.
func (k ink) wrap(text string, n, most int) []string {
	n = max(n, 8)
	var lines []string
	line := ""
	for word := range strings.FieldsSeq(text) {
		if line != "" && ansi.StringWidth(line)+1+ansi.StringWidth(word) <= n {
			line += " " + word
			continue
		}
		if line != "" {
			lines = append(lines, line)
		}
		// Names with hyphens stay whole: they are copied.
		parts := strings.Split(ansi.Hardwrap(word, n, false), "\n")
		lines = append(lines, parts[:len(parts)-1]...)
		line = parts[len(parts)-1]
	}
	lines = append(lines, line)
	if most > 0 && len(lines) > most {
		lines = lines[:most]
		lines[most-1] = ansi.Truncate(lines[most-1], n-ansi.StringWidth(k.more), "") + k.more
	}
	return lines
}

// page collects lines that keep to a width.
type page struct {
	ink
	width int
	zone  *time.Location
	lines []string
}

func newPage(o Options) *page { return &page{ink: newInk(o), width: o.width(), zone: o.zone()} }

// line adds a line, cut to the width.
func (p *page) line(text string) { p.lines = append(p.lines, p.cut(text, p.width)) }

// space adds an empty line, but not a second one, and none at the top.
func (p *page) space() {
	if n := len(p.lines); n > 0 && p.lines[n-1] != "" {
		p.lines = append(p.lines, "")
	}
}

// para adds clean text behind a lead (an indent, a label), which further lines
// are indented by; at most so many lines, 0 means all.
func (p *page) para(lead string, t tone, text string, most int) {
	indent := ansi.StringWidth(lead)
	label := strings.TrimLeft(lead, " ")
	head := lead[:len(lead)-len(label)] + p.paint(t, label)
	for i, l := range p.wrap(text, p.width-indent, most) {
		if i > 0 {
			head = strings.Repeat(" ", indent)
		}
		p.line(head + l)
	}
}

// sentence adds clean text that begins with a word in colour.
func (p *page) sentence(t tone, word, rest string, most int) {
	const indent = 2
	for i, l := range p.wrap(word+rest, p.width-indent, most) {
		if after, whole := strings.CutPrefix(l, word); i == 0 && whole {
			l = p.paint(t, word) + after
		}
		if i > 0 {
			l = strings.Repeat(" ", indent) + l
		}
		p.line(l)
	}
}

// title begins a section.
func (p *page) title(name, rest string) { p.heading(name, p.paint(dim, rest)) }

// heading is title with a text that has its colours.
func (p *page) heading(name, rest string) {
	p.space()
	p.line(join("  ", p.paint(bold, name), rest))
}

func (p *page) clock(t time.Time) string { return t.In(p.zone).Format(time.TimeOnly) }

// moment is a clock time, with its date where it could be taken for another
// day's.
func (p *page) moment(t, now time.Time) string {
	if now.Sub(t).Abs() < 12*time.Hour {
		return p.clock(t)
	}
	return t.In(p.zone).Format(time.DateTime)
}

// brief prints seconds in two units at most: 4.2s, 51s, 3m51s, 1h02m, 3d04h.
func brief(seconds float64) string {
	if seconds < 9.95 {
		return fmt.Sprintf("%.1fs", max(seconds, 0))
	}
	s := int64(seconds + 0.5)
	switch {
	case s < 60:
		return fmt.Sprintf("%ds", s)
	case s < 3600:
		return fmt.Sprintf("%dm%02ds", s/60, s%60)
	case s < 86400:
		return fmt.Sprintf("%dh%02dm", s/3600, s/60%60)
	}
	return fmt.Sprintf("%dd%02dh", s/86400, s/3600%24)
}

func gib(b uint64) string { return fmt.Sprintf("%.1f", float64(b)/(1<<30)) }

// plural counts things.
func plural(n int, thing string) string {
	if n == 1 {
		return "1 " + thing
	}
	return fmt.Sprintf("%d %ss", n, thing)
}

// join joins the parts that are not empty.
func join(sep string, parts ...string) string {
	var kept []string
	for _, p := range parts {
		if p != "" {
			kept = append(kept, p)
		}
	}
	return strings.Join(kept, sep)
}

// bar draws the cells of a bar in their tones, joining those that are alike.
func (k ink) bar(cells []cell) string {
	var b strings.Builder
	for i := 0; i < len(cells); {
		j := i
		for j < len(cells) && cells[j] == cells[i] {
			j++
		}
		b.WriteString(k.paint(cells[i].tone, strings.Repeat(cells[i].glyph, j-i)))
		i = j
	}
	return b.String()
}

// cell is one column of a bar.
type cell struct {
	glyph string
	tone  tone
}

// fill sets the cells from..to, as far as they are there.
func fill(cells []cell, from, to int, c cell) {
	for i := max(from, 0); i < min(to, len(cells)); i++ {
		cells[i] = c
	}
}

// column is where a share of a bar of n columns ends.
func column(share float64, n int) int { return int(share*float64(n) + 0.5) }

// ratio draws a bar of n columns that is full up to a share of 0 to 1.
func (k ink) ratio(share float64, n int, t tone) string {
	cells := make([]cell, max(n, 0))
	fill(cells, 0, n, cell{k.free, dim})
	fill(cells, 0, column(min(max(share, 0), 1), n), cell{k.full, t})
	return k.bar(cells)
}

func splitLines(text string) []string {
	lines := strings.Split(text, "\n")
	for i := range lines {
		lines[i] = strings.TrimRight(lines[i], " ")
	}
	return lines
}
