package phases

import (
	"slices"
	"time"

	"github.com/startupd/startupd/pkg/event"
)

// learn keeps what a good start tells of the next one.
func (m *Machine) learn(s *startup) {
	if s.pub.Outcome != OutcomeServing || s.pub.AttachedLate {
		return
	}
	m.typical = map[State]float64{}
	s.completed(func(phase State, seconds float64) { m.typical[phase] = seconds })
}

// expect estimates when a running startup will serve: what is left of its phase
// and of those to come, by the last good start. A phase that takes longer than
// then may end at any moment.
func (m *Machine) expect(s *Startup, now event.Stamp) event.Stamp {
	if m.typical == nil || s.Outcome != OutcomeNone || s.Stalled {
		return event.Stamp{}
	}
	last := s.Phases[len(s.Phases)-1]
	rest := max(0, m.typical[last.Phase]-last.Seconds)
	for _, p := range Phases() {
		if rank(p) > rank(last.Phase) && !slices.Contains(s.Skipped, p) {
			rest += m.typical[p]
		}
	}
	return now.Add(time.Duration(rest * float64(time.Second)))
}
