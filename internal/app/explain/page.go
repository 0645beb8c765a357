package explain

import (
	"fmt"
	"strings"
)

// TextOptions are how a report is written for people.
type TextOptions struct {
	// Width is how many columns a line may take; 0 means 100. Commands to copy are
	// not broken and can be longer.
	Width int
	// Color asks for SGR sequences, which only a terminal understands.
	Color bool
	// All shows every startup of the report in full, instead of only the last.
	All bool
	// JournalDir is the directory that journalctl must be given to find a cursor;
	// "" is the system's own journal.
	JournalDir string
}

const (
	defaultWidth = 100
	// minWidth is the narrowest page: below it, a table is wider than the terminal.
	minWidth = 40
)

func (o TextOptions) width() int {
	if o.Width <= 0 {
		return defaultWidth
	}
	return max(o.Width, minWidth)
}

// The colours of a page, as SGR parameters.
const (
	bold   = "1"
	dim    = "2"
	red    = "1;31"
	green  = "1;32"
	yellow = "1;33"
)

// page collects lines that keep to a width.
type page struct {
	strings.Builder
	opts TextOptions
}

// paint colours text that is otherwise ready: the sequences have no width.
func (p *page) paint(color, text string) string {
	if !p.opts.Color || text == "" || color == "" {
		return text
	}
	return "\x1b[" + color + "m" + text + "\x1b[0m"
}

// line writes one line as it is.
func (p *page) line(format string, args ...any) { fmt.Fprintf(p, format+"\n", args...) }

// para writes visible text behind a lead (an indent, a label), which is as wide
// as the indent of the further lines. A lead's text is coloured.
func (p *page) para(lead, color, text string) { p.capped(lead, color, text, 0) }

// capped is para with at most so many lines; 0 means all.
func (p *page) capped(lead, color, text string, most int) {
	indent := columns(lead)
	lines := wrap(text, p.opts.width()-indent)
	if most > 0 && len(lines) > most {
		lines = lines[:most]
		lines[most-1] = cut(lines[most-1]+" ....", p.opts.width()-indent)
	}
	label := strings.TrimLeft(lead, " ")
	space := lead[:len(lead)-len(label)]
	for i, l := range lines {
		if i == 0 {
			p.line("%s%s%s", space, p.paint(color, label), l)
			continue
		}
		p.line("%*s%s", indent, "", l)
	}
}

// sentence writes visible text that begins with a word in colour.
func (p *page) sentence(color, word, rest string) {
	const indent = 4
	for i, l := range wrap(word+rest, p.opts.width()-indent) {
		after, whole := strings.CutPrefix(l, word)
		switch {
		case i == 0 && whole:
			p.line("  %s%s", p.paint(color, word), after)
		case i == 0:
			p.line("  %s", p.paint(color, l))
		default:
			p.line("%*s%s", indent, "", l)
		}
	}
}
