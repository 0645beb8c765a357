package phases

import (
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/startupd/startupd/pkg/event"
)

// live makes the script's host one whose journal is followed, as the daemon's.
func (s *script) live() *script {
	s.host = NewHost(HostOptions{Journal: true}, s.host.order[0].cfg)
	return s
}

func (s *script) watermark(sec float64) { s.hostWide(sec, &event.Watermark{}) }

// A failure of a line can be taken back for 10 s of the journal's time, however
// far the other sources are ahead of it.
func TestTheEarliestEntryIsTheBeginning(t *testing.T) {
	s := newScript(t)
	s.line(1.0027, lineVersion)
	s.message(1, event.UnitMessage{Message: event.Started})
	s.line(30, lineLoad)
	s.line(2, lineBanner)
	if st := s.startup(); st.Began != at(1) || st.Phases[0].Entered != at(1) {
		t.Errorf("began %v, want the earliest entry's time", st.Began)
	}
}

func TestVerdictsGoByTheJournalsTime(t *testing.T) {
	for _, c := range []struct {
		name  string
		ahead func(s *script)
	}{
		{"systemd was asked before the back-fill", func(s *script) {
			s.apply(2000, &event.UnitState{Loaded: true, ActiveState: "active", Invocation: first, InactiveExit: at(0)})
		}},
		{"the reader is behind", func(s *script) {
			s.watermark(0)
			s.memory(60, 1, 1)
		}},
		{"the reader was down", func(s *script) {
			s.watermark(0)
			s.hostWide(1, &event.SourceState{Source: event.SourceJournal, State: "reader_failed"})
			s.tick(2000)
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := newScript(t).live()
			c.ahead(s)
			s.line(0, lineVersion)
			s.line(10, lineWrapper)
			s.line(15, lineLoad)
			s.wantState(Load)
			s.line(16, lineReady)
			s.line(16.1, "(APIServer pid=100) ERROR:    [Errno 98] error while attempting to bind on address ('0.0.0.0', 8000): address already in use")
			s.wantState(Failed)
			s.wantCounts(0, 1, 0)
		})
	}
}

func TestATargetThatComesLaterIsReadFromThePast(t *testing.T) {
	s := newScript(t).live()
	cfg := s.host.order[0].cfg
	s.host.SetTargets(nil)
	s.watermark(5000)
	s.host.SetTargets([]Config{cfg})
	s.watermark(5001) // the reader has not heard of the target yet
	replay := func(sec float64, text string) {
		s.host.Apply(event.Event{At: at(sec), Target: unit, Replayed: true, Data: &event.Line{Text: text, Invocation: first}})
	}
	replay(0, lineVersion)
	replay(10, lineWrapper)
	s.memory(5002, 8, 80)
	s.apply(5002, &event.HealthSample{Status: event.HealthClosed})
	s.tick(5002)
	replay(15, lineLoad)
	s.tick(5003)
	if st := s.startup(); st.Outcome != OutcomeNone || st.Stalled {
		t.Errorf("judged in the middle of its past: %+v", st)
	}
	if got := phasesOf(s.startup()); !slices.Equal(got, []State{Spawn, Load}) {
		t.Errorf("phases %v", got)
	}
	s.watermark(5004)
	if !s.startup().Stalled {
		t.Error("not stalled once the past is read")
	}
}

// A verdict rests on what the journal's reader has seen, not on a sample that
// is newer.
func TestStallWaitsForTheWatermark(t *testing.T) {
	s := newScript(t).live()
	s.line(0, lineLoad)
	s.watermark(1)
	quiet, _ := s.host.machines[unit].budget()
	limit := quiet.Seconds()
	s.watermark(limit - 0.5)
	s.hostWide(limit+0.5, &event.GPUSample{})
	if s.startup().Stalled {
		t.Error("stalled before the journal was read so far")
	}
	s.watermark(limit + 0.5)
	if !s.startup().Stalled {
		t.Error("not stalled")
	}
}

func TestNoDeadlineWhileBlind(t *testing.T) {
	s := newScript(t)
	s.hostWide(0, &event.SourceState{Source: event.SourceJournal, State: "not_permitted"})
	s.apply(1, &event.UnitState{Loaded: true, ActiveState: "active", Invocation: first, InactiveExit: at(0), ExecStart: "vllm serve acme/m"})
	s.tick(90000)
	if d := s.host.Deadline(); !d.IsZero() {
		t.Errorf("deadline %v, though nothing can be told then", d)
	}
}

// After a boot the wall clock may lie behind that of the boot before.
func TestBootWithAWallClockThatWentBack(t *testing.T) {
	s := newScript(t)
	s.goodStart(0)
	s.tick(900)
	rebooted := func(sec float64) event.Stamp {
		a := at(sec)
		a.Boot, a.Real = "b1000000000000000000000000000000", a.Real.AddDate(0, 0, -1)
		return a
	}
	s.host.Apply(event.Event{At: rebooted(1000), Target: unit, Data: &event.Line{Text: lineVersion, Invocation: other}})
	s.wantState(Spawn)
	s.host.Apply(event.Event{At: rebooted(1010), Target: unit, Data: &event.Line{Text: lineLoad, Invocation: other}})
	s.wantState(Load)
	if got := s.startup().Phases[0].Seconds; got != 10 {
		t.Errorf("spawn took %v s, want 10", got)
	}
}

// What is read of an earlier boot does not take the host back to it.
func TestThePastDoesNotMoveTheHostsTime(t *testing.T) {
	s := newScript(t).live()
	s.watermark(5000)
	old := at(0)
	old.Boot, old.Real = "a0000000000000000000000000000000", old.Real.AddDate(0, 0, 3)
	s.host.Apply(event.Event{At: old, Target: unit, Replayed: true, Data: &event.Line{Text: lineVersion, Invocation: first}})
	if got := s.host.Snapshot().At; got != at(5000) {
		t.Errorf("the snapshot is of %v, want %v", got, at(5000))
	}
}

func TestUnitStateWaitsForAJournalThatIsBehind(t *testing.T) {
	s := newScript(t).live()
	s.goodStart(0)
	s.watermark(900)
	s.apply(1000, &event.UnitState{Loaded: true, ActiveState: "active", Invocation: other, InactiveExit: at(1000)})
	s.memory(1003, 1, 1)
	s.wantState(Serving)
	s.message(999, event.UnitMessage{Message: event.Stopping})
	s.exit(999.5, "exited", "0")
	s.watermark(1001)
	s.wantState(Spawn)
	if got := s.target().Counters.ServingEnded; got["stopped"] != 1 || len(got) != 1 {
		t.Errorf("ended %v, want one stopped", got)
	}
}

func TestNewestRestartsCount(t *testing.T) {
	s := newScript(t).live()
	s.apply(2000, &event.UnitState{Loaded: true, ActiveState: "active", Invocation: other, Restarts: 5})
	n := 3
	s.message(10, event.UnitMessage{Message: event.RestartScheduled, Restarts: &n})
	if got := s.target().Restarts; got == nil || *got != 5 {
		t.Errorf("restarts %v, want systemd's present 5", got)
	}
}

func TestSecondGenerationSurvivesADaemonRestart(t *testing.T) {
	play := func(s *script) {
		s.line(0, lineVersion)
		s.line(10, lineLoad)
		s.line(20, lineWrapper)
		s.line(21, "(APIServer pid=101)  ▄▄ ▄█ █     █     █ ▀▄▀ █  version 0.16.0rc2.dev344")
		s.apply(22, &event.Gap{Gap: event.GapLost, Invocation: first})
	}
	s := newScript(t)
	play(s)
	if got := len(s.startup().Gaps); got != 1 {
		t.Errorf("the second generation has %d gaps, want 1", got)
	}
	again := newScript(t)
	again.host.Restore(s.host.Save())
	play(again)
	again.wantState(Spawn)
	again.wantCounts(0, 1, 0)
	if again.target().Counters.Stale != 0 {
		t.Error("the present invocation is taken for an old one")
	}
}

func TestSecondGenerationBeginsWithItsBanner(t *testing.T) {
	s := newScript(t)
	s.apply(0, &event.UnitState{Loaded: true, ActiveState: "active", Invocation: first, InactiveExit: at(0)})
	s.line(1, lineVersion)
	s.line(20, lineWrapper)
	s.line(60, "(APIServer pid=101)  ▄▄ ▄█ █     █     █ ▀▄▀ █  version 0.16.0rc2.dev344")
	if st := s.startup(); st.Began != at(60) || st.AttachedLate {
		t.Errorf("began %v, late %v", st.Began, st.AttachedLate)
	}
}

// systemd 254 and later keep InactiveExit of the moment when the restart was
// scheduled, a RestartSec before the start.
func TestRestartSecIsNoLateAttach(t *testing.T) {
	for _, journal := range []bool{true, false} {
		s := newScript(t)
		s.hostWide(0, &event.SourceState{Source: event.SourceJournal, Up: journal, State: "s"})
		s.line(0, lineVersion)
		s.watermark(1)
		s.apply(10, &event.UnitState{Loaded: true, ActiveState: "activating", SubState: "auto-restart", Invocation: first, InactiveExit: at(10)})
		s.watermark(12)
		s.apply(40, &event.UnitState{Loaded: true, ActiveState: "active", SubState: "running", Invocation: other, InactiveExit: at(10)})
		if journal {
			s.inv = other
			s.message(40, event.UnitMessage{Message: event.Started})
		}
		if st := s.startup(); st.Invocation != other || st.Began != at(40) || st.AttachedLate {
			t.Errorf("journal %v: %s began %v, late %v", journal, st.Invocation, st.Began, st.AttachedLate)
		}
	}
}

// Time that other sources move on counts for every target's phases.
func TestPhasesLastUntilTheSnapshot(t *testing.T) {
	s := newScript(t)
	s.line(0, lineVersion)
	s.hostWide(50, &event.SourceState{Source: event.SourceGPU, Up: true, State: "up"})
	if got := s.startup().Phases[0].Seconds; got != 50 {
		t.Errorf("spawn has lasted %v s, want 50", got)
	}
}

// Whatever the journal tells: a daemon that reads the present invocation again
// counts nothing of it again, wherever it was ended.
func TestAnyOrderIsCountedOnce(t *testing.T) {
	lines := []string{lineVersion, lineLoad, lineBar50, lineLoaded, lineKV, lineCapture, lineReady, lineWrapper, lineBind, "noise",
		"(APIServer pid=101)  ▄▄ ▄█ █     █     █ ▀▄▀ █  version 0.16.0rc2.dev344", "(APIServer pid=100) INFO:     Shutting down"}
	messages := []event.MessageKind{event.Started, event.Stopping, event.Stopped, event.ProcessExit, event.FailureResult}
	for seed := range uint64(300) {
		rng := rand.New(rand.NewPCG(seed, 2))
		s := newScript(t).live()
		var log []event.Event
		sec := 0.0
		for i := range 60 {
			sec += rng.Float64() * 10
			if rng.IntN(20) == 0 {
				s.inv, log = string('A'+rune(i))+first[1:], nil
			}
			var d event.Data = &event.Line{Text: lines[rng.IntN(len(lines))], Invocation: s.inv, PID: 100}
			if rng.IntN(6) == 0 {
				d = &event.UnitMessage{Message: messages[rng.IntN(len(messages))], Invocation: s.inv, Command: "ExecStart", ExitCode: "exited"}
			}
			s.apply(sec, d)
			log = append(log, event.Event{At: at(sec), Target: unit, Data: d, Replayed: true})
			if rng.IntN(4) == 0 {
				s.memory(sec+5, 2, rng.Float64()*80)
				s.watermark(sec)
			}
		}
		again := newScript(t).live()
		again.host.Restore(s.host.Save())
		want := again.target().Counters
		for _, ev := range log {
			again.host.Apply(ev)
		}
		got := again.target().Counters
		if diff := cmp.Diff(want, got); diff != "" {
			t.Fatalf("seed %d: after a restart: %s", seed, diff)
		}
	}
}
