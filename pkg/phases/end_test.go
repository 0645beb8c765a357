package phases

import (
	"slices"
	"strings"
	"testing"

	"github.com/startupd/startupd/pkg/event"
)

const lineBind = "(APIServer pid=100) ERROR:    [Errno 98] error while attempting to bind on address ('0.0.0.0', 8000): address already in use"

// A server that could not bind did not serve: the partition holds, and nothing
// goes on counting.
func TestRevokedReadyKeepsThePartition(t *testing.T) {
	s := newScript(t)
	s.goodStart(0)
	s.line(793, lineBind)
	s.tick(900)
	s.wantState(Failed)
	last := s.startup().Phases[4]
	if last.Phase != Serving || last.Seconds != 0 {
		t.Errorf("the last phase is %+v, want serving for no time", last)
	}
}

func TestAStopIsNoFailureWhateverTheEngineSaysToIt(t *testing.T) {
	s := newScript(t)
	s.line(0, lineVersion)
	s.message(20, event.UnitMessage{Message: event.Stopping})
	s.line(21, lineWrapper)
	s.exit(22, "exited", "1")
	s.wantState(Stopped)
	s.wantCounts(0, 0, 1)
}

func TestAStopWhoseEndWasNotSeen(t *testing.T) {
	s := newScript(t)
	s.line(0, lineVersion)
	s.message(20, event.UnitMessage{Message: event.Stopping})
	s.inv = other
	s.goodStart(30)
	s.message(1000, event.UnitMessage{Message: event.Stopping})
	s.inv = "33333333333333333333333333333333"
	s.line(1010, lineVersion)
	s.wantCounts(1, 0, 1)
	if got := s.target().Counters.ServingEnded; got["stopped"] != 1 || len(got) != 1 {
		t.Errorf("ended %v, want one stopped", got)
	}
}

// systemd calls a unit inactive whose engine died with status 0.
func TestInactiveDoesNotWhitewashAFailure(t *testing.T) {
	s := newScript(t)
	s.goodStart(0)
	s.exit(2000, "exited", "0")
	s.wantState(Failed)
	s.apply(2001, &event.UnitState{Loaded: true, ActiveState: "inactive", Invocation: first, Result: "success"})
	s.wantState(Failed)
}

func TestStopSeenOverDBusAlone(t *testing.T) {
	for _, c := range []struct {
		name string
		sub  string
		want Outcome
	}{{"asked for", "stop-sigterm", OutcomeStopped}, {"ended by itself", "final-sigterm", OutcomeFailed}} {
		s := newScript(t)
		s.hostWide(0, &event.SourceState{Source: event.SourceJournal, State: "not_permitted"})
		for i, st := range []event.UnitState{
			{ActiveState: "active", SubState: "running"}, {ActiveState: "deactivating", SubState: c.sub, MainPID: 100, Result: "success"}, {ActiveState: "inactive", SubState: "dead", Result: "success"},
		} {
			st.Loaded, st.Invocation, st.InactiveExit = true, first, at(0)
			s.apply(float64(1+i), &st)
		}
		if got := s.startup().Outcome; got != c.want {
			t.Errorf("%s: outcome %q, want %q", c.name, got, c.want)
		}
	}
}

// A daemon that begins beside an engine that has served for long has seen no
// start: it counts none, and observes no spawn of a month.
func TestAServerFoundServingIsNoStart(t *testing.T) {
	s := newScript(t)
	month := 30 * 86400.0
	s.apply(month, &event.UnitState{Loaded: true, ActiveState: "active", SubState: "running", Invocation: first, InactiveExit: at(0)})
	s.apply(month+1, &event.HealthSample{Status: event.HealthReady})
	s.tick(month + 10)
	s.wantState(Serving)
	s.wantCounts(0, 0, 0)
	s.exit(month+60, "exited", "1")
	if got := s.target().Counters.ServingEnded["exited"]; got != 1 {
		t.Errorf("its end was counted %d times, want 1", got)
	}
}

func TestALateAttachObservesNoPhases(t *testing.T) {
	s := newScript(t)
	s.apply(300, &event.UnitState{Loaded: true, ActiveState: "active", SubState: "running", Invocation: first, InactiveExit: at(0)})
	s.line(301, lineBar50)
	s.line(400, lineDynamo)
	s.line(500, lineReady)
	s.tick(600)
	s.wantCounts(1, 0, 0)
	if got := s.target().Counters.PhaseSeconds; len(got) != 0 {
		t.Errorf("observed %v, though the beginnings were not seen", got)
	}
}

// The port was closed before the start began, and the probe tells changes only.
func TestHealthOfAPortThatWasClosedBefore(t *testing.T) {
	s := newScript(t)
	s.apply(0, &event.HealthSample{Status: event.HealthClosed})
	s.line(1, lineVersion)
	s.apply(14, &event.HealthSample{Status: event.HealthReady})
	s.wantState(Serving)
}

func TestTextWhoseFirstLinesTellNoTime(t *testing.T) {
	s := newScript(t, func(c *Config) { c.Text = true })
	say := func(text string) {
		s.host.Apply(event.Event{Target: unit, Data: &event.Line{Text: text, Origin: event.OriginText}})
	}
	say("Loading safetensors checkpoint shards:  25% Completed | 1/4 [00:01<00:03,  1.10s/it]")
	say("INFO 03-01 23:39:00 [default_loader.py:280] Loading weights took 520.00 seconds")
	say("INFO 03-01 23:39:10 [backends.py:430] Dynamo bytecode transform time: 9.73 s")
	st := s.startup()
	if got := phasesOf(st); !slices.Equal(got, []State{Spawn, Load, Compile}) || st.Phases[1].Seconds != 10 {
		t.Errorf("%v, load %v s; want 10 s since the first time that is told", got, st.Phases[1].Seconds)
	}
}

func TestTextWithoutTimeTakesAFailureBack(t *testing.T) {
	s := newScript(t, func(c *Config) { c.Text = true })
	for _, text := range []string{"Worker pid=1 noise", "(EngineCore_DP0 pid=200) ERROR [core.py:708] EngineCore failed to start.",
		"Loading safetensors checkpoint shards:  25% Completed | 1/4 [00:01<00:03,  1.10s/it]"} {
		s.host.Apply(event.Event{Target: unit, Data: &event.Line{Text: text, Origin: event.OriginText}})
	}
	s.wantState(Load)
}

// A line may be 10 MB long; what is kept of it is not.
func TestEvidenceIsBounded(t *testing.T) {
	s := newScript(t)
	s.line(0, lineVersion)
	s.line(1, strings.Replace(lineLoad, "acme", strings.Repeat("a", 1<<20), 1))
	if got := len(s.startup().Phases[1].Evidence.Text); got > maxText {
		t.Errorf("%d bytes are kept", got)
	}
}

func TestTheHostRebooted(t *testing.T) {
	s := newScript(t).live()
	s.goodStart(0)
	rebooted := at(5000)
	rebooted.Boot, rebooted.Mono = "b1000000000000000000000000000000", 0
	s.host.Apply(event.Event{At: rebooted, Data: &event.Watermark{}})
	s.wantState(Failed)
	if got := s.startup().Phases[4].Seconds; got != 0 {
		t.Errorf("served %v s, want none that anybody saw", got)
	}
	if got := s.startup().ServingEndReason; got != "killed" {
		t.Errorf("it ended %q", got)
	}
}
