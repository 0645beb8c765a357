package watch

import (
	"fmt"
	"strings"

	"github.com/charmbracelet/x/ansi"

	"github.com/startupd/startupd/pkg/web/api"
)

const (
	// A list has its bars from barFrom columns on, times from timesFrom on.
	barFrom   = 110
	timesFrom = 56
	listBar   = 16
	// stateColumns are those of a state with its step.
	wideState, stateColumns, shortState = 30, 22, 10
)

// list writes units in a line each. chosen is marked; -1 marks none.
func (p *page) list(s *api.Status, units []subject, chosen int) {
	names := p.names(units)
	for i, u := range units {
		mark := "  "
		if i == chosen {
			mark = "> "
		}
		text := mark + p.row(u, names)
		if i == chosen {
			// One tone for the whole line: others would end it.
			text = p.paint(chosenTone(p), p.pad(ansi.Strip(text), p.width))
		}
		p.line(strings.TrimRight(text, " "))
	}
}

func chosenTone(p *page) tone {
	if p.styles == nil {
		return plain
	}
	return chosen
}

// names is how many columns the units' names take.
func (p *page) names(units []subject) int {
	n := 8
	for _, u := range units {
		n = max(n, ansi.StringWidth(p.short(u)))
	}
	return min(n, max(p.width*2/5, 8))
}

// short is a unit's name without what nearly all units end with.
func (p *page) short(u subject) string { return p.clean(strings.TrimSuffix(u.Unit.Unit, ".service")) }

// row is a unit in a line: state, how far, how long, what is wrong.
func (p *page) row(u subject, names int) string {
	word, t := u.verdict()
	columns := stateColumns
	switch {
	case p.width < timesFrom:
		columns = shortState
	case p.width >= barFrom:
		columns = wideState
	}
	text := p.pad(p.short(u), names) + "  "
	state := p.paint(t, p.cut(word, columns))
	if s := u.Startup; s != nil && s.Step != "" && u.runs() && columns > shortState {
		if word == api.Stalled {
			state += p.paint(dim, " "+p.where(s))
		} else {
			state += p.paint(dim, "/"+p.clean(s.Step))
		}
	}
	text += p.pad(state, columns) + " "
	if p.width >= timesFrom {
		text += p.far(u, t)
	}
	return text + fmt.Sprintf("%7s", p.long(u)) + "  " + p.remark(u)
}

// far is how far the start is.
func (p *page) far(u subject, t tone) string {
	share, bar := "    ", strings.Repeat(" ", listBar)
	if u.runs() && u.Startup.Progress != nil {
		share = fmt.Sprintf("%3.0f%%", 100**u.Startup.Progress)
		bar = p.ratio(*u.Startup.Progress, listBar, t)
	}
	if p.width >= barFrom {
		return bar + " " + share + " "
	}
	return share + " "
}

// long is how long the start has taken so far, else for how long the unit has
// been in its state.
func (p *page) long(u subject) string {
	if took := u.took(); took != nil && u.runs() {
		return brief(*took)
	}
	if u.Since.IsZero() {
		return "-"
	}
	return brief(u.now.Sub(u.Since).Seconds())
}

// remark is what is worth knowing of a unit in a list.
func (p *page) remark(u subject) string {
	s := u.Startup
	word, _ := u.verdict()
	var parts []string
	switch {
	case word == api.Stalled || word == api.Failed:
		if s != nil && s.RootCause != nil {
			parts = append(parts, p.paint(bad, p.clean(s.RootCause.Class))+" "+p.clean(s.RootCause.Message))
		} else if s != nil {
			parts = append(parts, p.clean(s.Reason))
		}
	case u.runs():
		parts = append(parts, p.eta(u))
		if s.Slow {
			parts = append(parts, p.paint(warn, "slow"))
		}
		if u.Failure != nil {
			parts = append(parts, "last start failed: "+p.paint(bad, p.clean(u.Failure.Class)))
		}
	case word == api.Serving:
		if took := u.took(); took != nil && !s.AttachedLate {
			parts = append(parts, "took "+brief(*took))
		}
	}
	if u.RestartLoop {
		parts = append(parts, p.paint(bad, "restart loop"))
	}
	return join(", ", parts...)
}
