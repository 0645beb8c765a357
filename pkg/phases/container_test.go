package phases

import (
	"strings"
	"testing"

	"github.com/startupd/startupd/pkg/event"
)

// containerScript drives a target whose engine runs in a container.
func containerScript(t *testing.T) *script {
	return newScript(t, func(c *Config) { c.Container = "llm" })
}

func containerID(digit string) string { return strings.Repeat(digit, 64) }

// run plays what the unit of a container target says, then the container.
func (s *script) unitThenContainer(id string, end ...event.UnitMessage) {
	s.inv = first
	s.message(0, event.UnitMessage{Message: event.Started})
	for i, m := range end {
		s.message(2000+float64(i), m)
	}
	s.inv = id
	s.goodStart(5)
}

func TestContainerJoinsItsUnit(t *testing.T) {
	s := containerScript(t)
	s.unitThenContainer(containerID("a"))
	s.wantState(Serving)
	s.inv = first
	s.message(2000, event.UnitMessage{Message: event.Stopping})
	s.exit(2001, "exited", "0")
	s.wantState(Stopped)
	s.wantCounts(1, 0, 0)
}

// A back-fill reads the unit's entries before the container's.
func TestContainerIsCountedOnceOverARestart(t *testing.T) {
	stop := []event.UnitMessage{{Message: event.Stopping}, {Message: event.Stopped}}
	s := containerScript(t)
	s.unitThenContainer(containerID("a"))
	s.inv = first
	s.message(2000, stop[0])
	s.message(2001, stop[1])
	s.wantCounts(1, 0, 0)

	again := containerScript(t)
	again.host.Restore(s.host.Save())
	again.unitThenContainer(containerID("a"), stop...)
	again.wantState(Stopped)
	again.wantCounts(1, 0, 0)
	if got := again.target().Counters.ServingEnded; got["stopped"] != 1 || len(got) != 1 {
		t.Errorf("ended %v, want the one stop", got)
	}
}

func TestContainerThatRestartsInItsUnit(t *testing.T) {
	s := containerScript(t)
	s.unitThenContainer(containerID("a"))
	s.inv = containerID("b")
	s.goodStart(1000)
	s.tick(1900)
	s.wantCounts(2, 0, 0)
	s.inv = first
	s.message(2000, event.UnitMessage{Message: event.Stopping})
	s.exit(2001, "exited", "0")
	s.wantState(Stopped)

	s.inv = other
	s.message(2100, event.UnitMessage{Message: event.Started})
	s.inv = containerID("c")
	s.goodStart(2105)
	s.wantCounts(2, 0, 0)
	if st := s.startup(); st.Began != at(2100) || st.Invocation != containerID("c") {
		t.Errorf("%s began %v, want with the unit", st.Invocation, st.Began)
	}
}

func TestUnitOfAServingContainerBeginsNothing(t *testing.T) {
	s := containerScript(t)
	s.inv = containerID("a")
	s.goodStart(5)
	s.apply(1000, &event.UnitState{Loaded: true, ActiveState: "active", SubState: "running", Invocation: first, InactiveExit: at(0)})
	s.wantState(Serving)
	s.apply(1001, &event.UnitState{Loaded: true, ActiveState: "failed", Invocation: first, Result: "signal"})
	s.wantState(Failed)
	s.wantCounts(1, 0, 0)
}

func TestShortContainerID(t *testing.T) {
	s := containerScript(t)
	s.unitThenContainer(containerID("a")[:12])
	s.wantState(Serving)
	s.tick(900)
	s.wantCounts(1, 0, 0)
}
