package phases

import (
	"fmt"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/startupd/startupd/pkg/event"
)

// transitions makes a host tell its changes of state in words.
func (s *script) transitions() *[]string {
	var told []string
	o := s.host.opts
	o.Transition = func(t Transition) {
		text := fmt.Sprintf("%s %s>%s at %g of %.1s/%d", t.Target, t.From, t.To, t.At.Sub(at(0)).Seconds(), t.Invocation, t.Generation)
		if !t.Began.IsZero() {
			text += fmt.Sprintf(" since %g", t.Began.Sub(at(0)).Seconds())
		}
		if t.Replayed {
			text += " replayed"
		}
		told = append(told, text)
	}
	s.host = NewHost(o, s.host.machines[unit].cfg)
	return &told
}

func TestTransitions(t *testing.T) {
	s := newScript(t)
	told := s.transitions()
	s.goodStart(5)
	s.message(700, event.UnitMessage{Message: event.Stopping})
	s.message(701, event.UnitMessage{Message: event.ProcessExit, Command: "ExecStart", ExitCode: "exited", ExitStatus: "0"})
	var states []string
	for i, text := range *told {
		var name, change, inv string
		var when, since float64
		if _, err := fmt.Sscanf(text, "%s %s at %g of %s since %g", &name, &change, &when, &inv, &since); err != nil || name != unit || inv != "1/0" || since != 5 {
			t.Errorf("transition %d: %s (%v)", i, text, err)
		}
		states = append(states, change)
	}
	want := []string{"unknown>spawn", "spawn>load", "load>compile", "compile>cudagraph", "cudagraph>serving", "serving>stopped"}
	if diff := cmp.Diff(want, states); diff != "" {
		t.Error(diff)
	}
}

// TestTransitionsBetweenSnapshots has a start that begins and fails within one
// batch: no snapshot shows it, and each of its changes is told.
func TestTransitionsBetweenSnapshots(t *testing.T) {
	s := newScript(t)
	told := s.transitions()
	for i, inv := range []string{first, other, first} {
		began := float64(10 * i)
		s.message(began, event.UnitMessage{Message: event.Starting, Invocation: inv})
		s.message(began+1, event.UnitMessage{Message: event.FailureResult, Invocation: inv, Result: "exit-code"})
	}
	want := []string{
		unit + " unknown>spawn at 0 of 1/0 since 0",
		unit + " spawn>failed at 1 of 1/0 since 0",
		unit + " failed>spawn at 10 of 2/0 since 10",
		unit + " spawn>failed at 11 of 2/0 since 10",
	}
	if diff := cmp.Diff(want, (*told)[:min(4, len(*told))]); diff != "" {
		t.Error(diff)
	}
}

func TestReplayedTransitions(t *testing.T) {
	s := newScript(t)
	told := s.transitions()
	s.host.Apply(event.Event{At: at(0), Target: unit, Replayed: true, Data: &event.UnitMessage{Message: event.Starting, Invocation: first}})
	s.message(1, event.UnitMessage{Message: event.FailureResult, Result: "exit-code"})
	want := []string{unit + " unknown>spawn at 0 of 1/0 since 0 replayed", unit + " spawn>failed at 1 of 1/0 since 0"}
	if diff := cmp.Diff(want, *told); diff != "" {
		t.Error(diff)
	}
}
