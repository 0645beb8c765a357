package watch

import (
	"time"

	"charm.land/lipgloss/v2"

	"github.com/startupd/startupd/pkg/web/api"
)

const (
	// asideFrom is the width from which a unit is drawn in two columns.
	asideFrom = 150
	gutter    = 3
)

// detail draws a unit in full, as lines.
func detail(u subject, o Options) []string {
	p := newPage(o)
	p.head(u)
	p.card(u)
	if p.width < asideFrom {
		p.timeline(u)
		p.memory(u)
		p.findings(u, o.Benign)
		p.vitals(u)
		return p.lines
	}
	p.space()
	o.Width = (p.width - gutter) / 2
	left, right := newPage(o), newPage(o)
	left.timeline(u)
	left.vitals(u)
	right.memory(u)
	right.findings(u, o.Benign)
	return append(p.lines, beside(left.lines, right.lines, o.Width)...)
}

// beside puts two blocks of lines next to each other.
func beside(left, right []string, width int) []string {
	block := func(lines []string, n int) string {
		return lipgloss.NewStyle().Width(n).Render(lipgloss.JoinVertical(lipgloss.Left, lines...))
	}
	return splitLines(lipgloss.JoinHorizontal(lipgloss.Top, block(left, width+gutter), block(right, width)))
}

// subjects are the units of a status as seen at now.
func subjects(s *api.Status, now time.Time) []subject {
	var us []subject
	for i := range s.Units {
		us = append(us, subject{Unit: &s.Units[i], status: s, now: now})
	}
	return us
}
