package phases

import (
	"testing"

	"github.com/startupd/startupd/pkg/event"
)

// TestARestartThatTheBusDoesNotTell: the unit runs by its journal, and the last word
// over D-Bus is of before.
func TestARestartThatTheBusDoesNotTell(t *testing.T) {
	s := comers(t, func(o *HostOptions) { o.Limits.Units = 2 })
	s.fails("run-1.service", 0, first)
	s.tell("run-1.service", 5, unloaded())
	s.tell("run-1.service", 10, &event.UnitMessage{Message: event.Started, Invocation: other})
	s.tell("run-1.service", 11, &event.Line{Text: lineReady, Invocation: other, Origin: event.OriginUnit, PID: 100})
	s.tick(20)
	s.tick(20 + 2*hour)
	s.watches(true, "run-1.service")
	s.tell("run-2.service", 3*hour, &event.UnitMessage{Message: event.Started, Invocation: "3333"})
	s.tell("run-3.service", 3*hour, &event.UnitMessage{Message: event.Started, Invocation: "4444"})
	s.watches(true, "run-1.service")
	s.watches(false, "run-3.service")

	s.tell("run-1.service", 4*hour, &event.UnitMessage{Message: event.Stopped, Invocation: other})
	s.tick(4 * hour)
	s.tick(5 * hour)
	s.watches(false, "run-1.service")
}

// TestALateEntryOfAUnitThatMadeWay begins no startup that nobody runs.
func TestALateEntryOfAUnitThatMadeWay(t *testing.T) {
	const gone, next = "run-1.service", "run-2.service"
	late := func(s *script) *Target {
		s.tell(next, 3, &event.UnitMessage{Message: event.Started, Invocation: "4444"})
		s.watches(false, gone)
		s.tell(next, 4, &event.UnitMessage{Message: event.Stopped, Invocation: "4444"})
		s.tell(gone, 2.5, &event.Line{Text: lineInit, Invocation: first, Origin: event.OriginUnit, PID: 100})
		got := s.find(gone)
		if got == nil || got.Counters.Lines != 2 {
			t.Fatalf("it does not go on counting: %+v", got)
		}
		return got
	}
	one := func(o *HostOptions) { o.Limits.Units = 1 }

	s := comers(t, one)
	s.tell(gone, 0, &event.Line{Text: lineVersion, Invocation: first, Origin: event.OriginUnit, PID: 100})
	s.fails(gone, 1, first)
	if got := late(s); got.State != Unknown || got.Startup != nil || got.Counters.Stale != 1 {
		t.Errorf("it is in %s: %+v", got.State, got.Startup)
	}
	s.tell(gone, 5, &event.Line{Text: lineInit, Invocation: other, Origin: event.OriginUnit, PID: 100})
	if got := s.find(gone); got.State != Spawn {
		t.Errorf("its next start is not seen: %s", got.State)
	}

	// A script that has seen its engine die may start another one.
	s = comers(t, one)
	s.tell(gone, 0, &event.Line{Text: lineVersion, Invocation: first, Origin: event.OriginUnit, PID: 100})
	s.tell(gone, 1, &event.Line{Text: lineWrapper, Invocation: first, Origin: event.OriginUnit, PID: 100})
	if got := s.find(gone); got.State != Failed {
		t.Fatalf("it is in %s, want failed", got.State)
	}
	s.host.drop(s.host.machines[gone])
	s.tell(gone, 60, &event.Line{Text: lineVersion, Invocation: first, Origin: event.OriginUnit, PID: 101})
	if got := s.find(gone); got.State != Spawn {
		t.Errorf("its next engine is not seen: %s", got.State)
	}
}

// TestHistoryDatesNoCounters: what it knows comes before a unit's first event and
// has no time.
func TestHistoryDatesNoCounters(t *testing.T) {
	s := newScript(t, func(c *Config) { c.CountFrom = at(-30 * 24 * hour) })
	s.host.Apply(event.Event{Target: unit, Data: &event.Baseline{Good: 1}})
	if got := s.target().Counters.Since; !got.IsZero() {
		t.Errorf("counted since %v before anything has come", got)
	}
	s.line(5, lineVersion)
	if got := s.target().Counters.Since; !got.Equal(at(5).Real) {
		t.Errorf("counted since %v, want %v", got, at(5).Real)
	}
}

// TestAnEndThatOnlyTheUnloadingTells: a transient unit may be gone before its state
// is read. Where the journal is not readable, nothing else tells of its end.
func TestAnEndThatOnlyTheUnloadingTells(t *testing.T) {
	const name = "run-1.service"
	blind := func(o *HostOptions) { o.Journal = true }
	s := comers(t, blind)
	s.hostWide(0, &event.SourceState{Source: event.SourceJournal, State: "not_permitted"})
	s.tell(name, 1, inMemory("active", first))
	s.tell(name, 2, unloaded())
	if got := s.find(name); got.State != Failed || got.LastOutcome != OutcomeFailed || got.Startup.Reason != "it ended before it was ready: systemd has unloaded the unit" {
		t.Errorf("%s: %+v", got.State, got.Startup)
	}

	// The journal tells more, and comes a little later.
	s = comers(t, blind)
	s.hostWide(0, &event.SourceState{Source: event.SourceJournal, Up: true, State: "up"})
	s.hostWide(0, &event.Watermark{})
	s.tell(name, 1, &event.UnitMessage{Message: event.Started, Invocation: first})
	s.tell(name, 1, inMemory("active", first))
	s.tell(name, 3, unloaded())
	s.tell(name, 3.1, &event.UnitMessage{Message: event.Stopping, Invocation: first})
	s.tell(name, 3.2, &event.UnitMessage{Message: event.Stopped, Invocation: first})
	s.hostWide(10, &event.Watermark{})
	if got := s.find(name); got.State != Stopped || got.LastOutcome != OutcomeStopped {
		t.Errorf("%s, %s", got.State, got.LastOutcome)
	}

	// A unit that stands for a container was never loaded.
	s = comers(t, blind)
	s.hostWide(0, &event.SourceState{Source: event.SourceJournal, State: "not_permitted"})
	s.tell(name, 0.5, unloaded())
	s.tell(name, 1, &event.Line{Text: lineVersion, Invocation: other, Origin: event.OriginUnit})
	s.tell(name, 2, unloaded())
	if got := s.find(name); got.State != Spawn {
		t.Errorf("%s, want spawn", got.State)
	}
}
