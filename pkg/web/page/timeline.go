package page

import (
	"cmp"
	"time"

	"github.com/startupd/startupd/pkg/phases"
	"github.com/startupd/startupd/pkg/web/api"
)

// barWidth is the width of a bar in the units of its drawing, leastPart that of
// a part that is there at all.
const (
	barWidth  = 1000.0
	leastPart = 6.0
)

// barView is a bar of phases beside each other. The rest up to barWidth is what
// is expected to come.
type barView struct {
	Parts []barPart
}

// barPart is a rectangle; X and Width are of barWidth.
type barPart struct {
	// Mark is the drawing's class, Title what a pointer shows.
	Mark, Title string
	X, Width    float64
	Running     bool
}

// phaseView is one of the five phases in the list below the bar.
type phaseView struct {
	Name string
	// Mark is done, running, failed, skipped or coming.
	Mark string
	Took duration
	// Why names the evidence for its beginning.
	Why string
}

// timeline returns a startup's phases as a bar and as a list of all five.
func timeline(s *api.Startup, at time.Time) (barView, []phaseView) {
	entered := map[string]*api.Phase{}
	for i := range s.Phases {
		entered[s.Phases[i].Phase] = &s.Phases[i]
	}
	ahead := 0.0
	if s.Outcome == api.Starting && !s.ExpectedServing.IsZero() && !at.IsZero() {
		ahead = max(s.ExpectedServing.Sub(at).Seconds(), 0)
	}
	var list []phaseView
	seen := false
	for _, name := range phases.Phases() {
		v := newPhaseView(s, string(name), entered[string(name)])
		seen = seen || entered[string(name)] != nil
		if !seen && s.AttachedLate {
			v.Took.Text = "not seen"
		}
		list = append(list, v)
	}
	return newBar(s, bar{ahead: ahead}), list
}

func newPhaseView(s *api.Startup, name string, p *api.Phase) phaseView {
	v := phaseView{Name: name, Mark: "coming", Took: duration{Text: "not reached"}}
	if p == nil {
		return v
	}
	v.Mark, v.Took = "done", over(p.Seconds)
	if e := p.Evidence; e != nil {
		v.Why = e.Source
		if e.Rule != "" {
			v.Why += " (" + e.Rule + ")"
		}
		if e.Provisional {
			v.Why += ", provisional"
		}
	}
	runs := !p.Done && (s.Ended.IsZero() || name == api.Serving && s.ServingEnded.IsZero())
	switch {
	case p.Skipped:
		v.Mark, v.Took = "skipped", duration{Text: "skipped"}
	case runs:
		v.Mark, v.Took = "running", upwards(p.Seconds)
	case name == s.Phase && s.Outcome == api.Failed:
		v.Mark = "failed"
	}
	return v
}

// bar is the scale of a bar, in seconds.
type bar struct {
	// ahead is what is still to come; longest is the whole of the longest of
	// several bars, 0 for a bar on its own.
	ahead, longest float64
}

// newBar draws the phases before serving.
func newBar(s *api.Startup, scale bar) barView {
	var v barView
	sum := 0.0
	for _, p := range s.Phases {
		if before(&p) {
			sum += *p.Seconds
		}
	}
	whole := cmp.Or(scale.longest, sum+scale.ahead)
	if whole <= 0 {
		return v
	}
	x := 0.0
	for _, p := range s.Phases {
		if !before(&p) {
			continue
		}
		width := min(max(*p.Seconds/whole*barWidth, leastPart), barWidth-x)
		if width <= 0 {
			break
		}
		v.Parts = append(v.Parts, barPart{
			Mark: "p-" + p.Phase, Title: p.Phase + " " + took(*p.Seconds), X: x, Width: width,
			Running: !p.Done && s.Ended.IsZero(),
		})
		x += width
	}
	return v
}

// before says that a phase is one that a bar shows.
func before(p *api.Phase) bool {
	return !p.Skipped && p.Seconds != nil && *p.Seconds > 0 && phases.State(p.Phase).Starting()
}

// stepView is one step of a phase.
type stepView struct {
	Phase, Step, At string
	Took            duration
}

func (b *builder) steps(s *api.Startup) []stepView {
	var vs []stepView
	for i, st := range s.Steps {
		v := stepView{Phase: st.Phase, Step: st.Step, At: clockTime(st.Entered, b.status.At, b.page.opt.Zone), Took: over(st.Seconds)}
		if i == len(s.Steps)-1 && s.Ended.IsZero() {
			v.Took = upwards(st.Seconds)
		}
		vs = append(vs, v)
	}
	return vs
}
