package watch

import (
	"time"

	"charm.land/lipgloss/v2"
)

// Options are how a view is drawn.
type Options struct {
	// Width is how many columns a line may take; 0 means 100.
	Width int
	// Color asks for SGR sequences, which only a terminal understands.
	Color bool
	// ASCII draws with ASCII characters only, for a locale that is not UTF-8.
	ASCII bool
	// Zone is the time zone of clock times; nil means the host's.
	Zone *time.Location
	// Benign shows harmless findings one by one instead of as a count.
	Benign bool
}

const (
	defaultWidth = 100
	// minWidth is the narrowest view: below it, lines are wider than the terminal.
	minWidth = 20
)

func (o Options) width() int {
	if o.Width <= 0 {
		return defaultWidth
	}
	return max(o.Width, minWidth)
}

func (o Options) zone() *time.Location {
	if o.Zone == nil {
		return time.Local
	}
	return o.Zone
}

// tone is what a piece of text means.
type tone int

const (
	plain tone = iota
	bold
	dim
	good
	bad
	warn
	busy
	chosen
)

// glyphs are what bars and marks are drawn with.
type glyphs struct {
	// full is done or the unit's own, part runs, other belongs to others, free is
	// empty, ahead is still to come.
	full, part, other, free, ahead string
	// mark is the goal in a bar, rule a line between parts, more what was cut.
	mark, rule, more string
}

// ink knows the colours and characters of a terminal.
type ink struct {
	glyphs
	ascii bool
	// styles is nil without colour.
	styles map[tone]lipgloss.Style
}

// newInk uses the terminal's own sixteen colours, which fit its background. The
// characters are those that the Linux console has, too.
func newInk(o Options) ink {
	k := ink{ascii: o.ASCII, glyphs: glyphs{
		full: "█", part: "▓", other: "▒", free: "░", ahead: "·", mark: "│", rule: "─", more: "…",
	}}
	if o.ASCII {
		k.glyphs = glyphs{full: "#", part: "=", other: "x", free: ".", ahead: ".", mark: "|", rule: "-", more: "..."}
	}
	if o.Color {
		s := lipgloss.NewStyle
		k.styles = map[tone]lipgloss.Style{
			bold: s().Bold(true), dim: s().Faint(true), good: s().Bold(true).Foreground(lipgloss.Green),
			bad: s().Bold(true).Foreground(lipgloss.Red), warn: s().Bold(true).Foreground(lipgloss.Yellow),
			busy: s().Bold(true).Foreground(lipgloss.Cyan), chosen: s().Reverse(true),
		}
	}
	return k
}

// paint colours text that is otherwise ready: the sequences have no width.
func (k ink) paint(t tone, text string) string {
	if k.styles == nil || t == plain || text == "" {
		return text
	}
	return k.styles[t].Render(text)
}
