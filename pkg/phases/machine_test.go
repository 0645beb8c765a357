package phases

import (
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/startupd/startupd/pkg/event"
)

func (s *script) exit(sec float64, code, status string) {
	s.message(sec, event.UnitMessage{Message: event.ProcessExit, Command: "ExecStart", ExitCode: code, ExitStatus: status})
}

// The reference run: a crash at import, then a good start two minutes later
// inside the same time window.
func TestReferenceRun(t *testing.T) {
	s := newScript(t)
	s.message(0, event.UnitMessage{Message: event.Started})
	s.line(0.5, lineVersion)
	s.wantState(Spawn)
	s.line(20, "(Worker_TP3 pid=303) ERROR 03-01 23:30:20 [multiproc_executor.py:743] WorkerProc failed to start.")
	s.line(21, lineWrapper)
	s.wantState(Failed)
	s.exit(22, "exited", "1")
	s.message(22, event.UnitMessage{Message: event.FailureResult, Result: "exit-code"})
	s.wantCounts(0, 1, 0)
	restarts := 1
	s.message(22.1, event.UnitMessage{Message: event.RestartScheduled, Restarts: &restarts})

	s.inv = other
	s.message(22.2, event.UnitMessage{Message: event.Started})
	s.wantState(Spawn)
	s.inv = first
	s.line(23, "(Worker_TP3 pid=303) INFO 03-01 23:30:23 [gpu_model_runner.py:1] Starting to load model acme/moe-nvfp4...")
	s.wantState(Spawn)
	s.inv = other
	s.goodStart(30)
	s.wantState(Serving)
	s.tick(830)
	s.wantCounts(1, 1, 0)

	target := s.target()
	if target.Counters.Stale != 1 {
		t.Errorf("stale lines %d, want 1", target.Counters.Stale)
	}
	if target.Restarts == nil || *target.Restarts != 1 {
		t.Errorf("restarts %v, want 1", target.Restarts)
	}
	st := s.startup()
	if diff := cmp.Diff(Phases(), phasesOf(st)); diff != "" {
		t.Errorf("phases: %s", diff)
	}
	if got := st.Ended.Sub(st.Began).Seconds(); got < 799 || got > 801 {
		t.Errorf("the start took %v s, want about 800", got)
	}
	want := Engine{Name: "vllm", Version: "0.16.0rc2.dev344", Model: "acme/moe-nvfp4", Host: "0.0.0.0", Port: 8000}
	if diff := cmp.Diff(want, st.Engine); diff != "" {
		t.Errorf("engine: %s", diff)
	}
	for _, p := range st.Phases[1:] {
		if p.Evidence.Source != "log" || p.Evidence.Rule == "" || p.Evidence.Text == "" {
			t.Errorf("%s has no evidence: %+v", p.Phase, p.Evidence)
		}
	}
	for k := range st.Errors {
		if k.Verdict != "benign" {
			t.Errorf("a good start has %v", k)
		}
	}
}

func TestCaptureBeforeKVCacheIsCompile(t *testing.T) {
	s := newScript(t)
	s.line(0, lineVersion)
	s.line(10, lineLoad)
	s.line(20, lineLoaded)
	s.line(30, lineCapture)
	s.wantState(Compile)
	s.line(31, lineCaptured)
	s.wantState(Compile)
	s.line(40, lineKV)
	s.line(50, lineCapture)
	s.wantState(CUDAGraph)
}

func TestQuietLogCaptureNeedsNoKVCache(t *testing.T) {
	s := newScript(t)
	s.line(0, lineVersion)
	s.line(10, lineBar25)
	s.line(30, lineCapture)
	s.wantState(CUDAGraph)
}

func TestDraftModelDoesNotGoBack(t *testing.T) {
	s := newScript(t)
	s.line(0, lineVersion)
	s.line(10, lineLoad)
	s.line(20, lineBar50)
	s.line(30, "(Worker_TP0 pid=300) INFO 03-01 23:30:30 [gpu_model_runner.py:1] Loading drafter model...")
	s.wantState(Load)
	s.line(31, lineBar25)
	if p := s.startup().Progress; p == nil || *p != 0.25 {
		t.Errorf("progress %v, want the draft model's 0.25", p)
	}
	s.line(40, lineLoaded)
	s.line(41, lineDynamo)
	s.wantState(Compile)
	s.line(50, lineLoad)
	s.line(51, lineBar50)
	s.wantState(Compile)
	if got := phasesOf(s.startup()); !slices.Equal(got, []State{Spawn, Load, Compile}) {
		t.Errorf("phases %v", got)
	}
	if s.startup().Progress != nil {
		t.Error("a late load's bar is the progress of compile")
	}
}

func TestEnforceEagerSkipsCapture(t *testing.T) {
	s := newScript(t)
	s.line(0, lineVersion)
	s.line(5, "(APIServer pid=100) WARNING 03-01 23:30:05 [vllm.py:1] Enforce eager set, disabling torch.compile and CUDAGraphs. This is equivalent to setting -cc.mode=none -cc.cudagraph_mode=none")
	s.line(10, lineLoad)
	s.line(20, lineLoaded)
	s.line(30, lineKV)
	s.line(35, lineEngine)
	s.wantState(Compile)
	s.line(40, lineReady)
	s.wantState(Serving)
	st := s.startup()
	if diff := cmp.Diff(Phases(), phasesOf(st)); diff != "" {
		t.Fatalf("phases: %s", diff)
	}
	if p := st.Phases[3]; !p.Skipped || p.Seconds != 0 {
		t.Errorf("cudagraph %+v, want skipped with no duration", p)
	}
}

func TestHeadlessNodeServesWithItsEngine(t *testing.T) {
	s := newScript(t)
	s.line(0, "INFO 03-01 23:30:00 [serve.py:98] Launching 4 data parallel engine(s) in headless mode, with head node address tcp://10.0.0.1:29550.")
	s.line(10, lineLoad)
	s.line(20, lineLoaded)
	s.line(30, lineKV)
	s.line(40, lineCaptured)
	s.line(50, lineEngine)
	s.wantState(Serving)
	if p := s.startup().Engine.Port; p != 0 {
		t.Errorf("the head node's port %d is taken for the engine's", p)
	}
}

func TestAttachInTheMiddle(t *testing.T) {
	s := newScript(t)
	s.apply(300, &event.UnitState{Loaded: true, ActiveState: "active", SubState: "running", Invocation: first, InactiveExit: at(0)})
	s.line(301, lineBar50)
	s.wantState(Load)
	st := s.startup()
	if !st.AttachedLate || st.Began != at(0) {
		t.Errorf("late %v, began %v; want late, at systemd's time", st.AttachedLate, st.Began)
	}
}

func TestUvicornRunningIsNotNeeded(t *testing.T) {
	s := newScript(t)
	s.line(0, "(APIServer pid=100) INFO 03-01 23:30:00 [api_utils.py:286] non-default args: {'model_tag': 'acme/m', 'port': 8123}")
	s.line(60, "(APIServer pid=100) INFO:     Waiting for application startup.")
	if s.target().State == Serving {
		t.Fatal("serving before it is ready")
	}
	s.line(61, lineReady)
	s.wantState(Serving)
	if p := s.startup().Engine.Port; p != 8123 {
		t.Errorf("port %d, want 8123", p)
	}
}

func TestEndDuringStart(t *testing.T) {
	for _, c := range []struct {
		name   string
		asked  bool
		code   string
		status string
		want   Outcome
	}{
		{"clean exit nobody asked for", false, "exited", "0", OutcomeFailed},
		{"SIGTERM from elsewhere", false, "killed", "INT", OutcomeFailed},
		{"systemctl stop", true, "killed", "INT", OutcomeStopped},
		{"systemctl stop, clean", true, "exited", "0", OutcomeStopped},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := newScript(t)
			s.line(0, lineVersion)
			s.line(10, lineLoad)
			if c.asked {
				s.message(20, event.UnitMessage{Message: event.Stopping})
			}
			s.line(21, "(APIServer pid=100) KeyboardInterrupt: terminated")
			s.exit(22, c.code, c.status)
			s.message(22.1, event.UnitMessage{Message: event.Succeeded})
			if got := s.startup().Outcome; got != c.want {
				t.Errorf("outcome %q, want %q", got, c.want)
			}
		})
	}
}

func TestEndOfService(t *testing.T) {
	for _, c := range []struct {
		name, code, status string
		asked              bool
		reason             string
		state              State
	}{
		{"engine death exits 0", "exited", "0", false, "exited", Failed},
		{"killed", "killed", "KILL", false, "killed", Failed},
		{"stopped", "exited", "0", true, "stopped", Stopped},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := newScript(t)
			s.goodStart(0)
			if c.asked {
				s.message(2000, event.UnitMessage{Message: event.Stopping})
			}
			s.line(2000.5, "(APIServer pid=100) INFO:     Shutting down")
			s.exit(2001, c.code, c.status)
			s.message(2001.1, event.UnitMessage{Message: event.Succeeded})
			s.wantCounts(1, 0, 0)
			s.wantState(c.state)
			if got := s.target().Counters.ServingEnded; got[c.reason] != 1 || len(got) != 1 {
				t.Errorf("ended %v, want one %s", got, c.reason)
			}
			serving := s.startup().Phases[4]
			if serving.Seconds != 2001-792 {
				t.Errorf("served %v s, want %v", serving.Seconds, 2001-792)
			}
		})
	}
}

func TestBindErrorRevokesReady(t *testing.T) {
	s := newScript(t)
	s.goodStart(0)
	s.line(792.1, "(APIServer pid=100) ERROR:    [Errno 98] error while attempting to bind on address ('0.0.0.0', 8000): address already in use")
	s.exit(793, "exited", "1")
	s.tick(900)
	s.wantState(Failed)
	s.wantCounts(0, 1, 0)
}

func TestProgressRevokesAFailureOfALine(t *testing.T) {
	s := newScript(t)
	s.line(0, lineVersion)
	s.line(10, lineWrapper)
	s.wantState(Failed)
	s.line(15, lineLoad)
	s.wantState(Load)
	s.tick(60)
	s.wantCounts(0, 0, 0)
}

func TestSecondMainProcessInOneInvocation(t *testing.T) {
	s := newScript(t)
	s.line(0, lineVersion)
	s.line(10, lineLoad)
	s.line(20, lineWrapper)
	s.line(21, "(APIServer pid=101)  ▄▄ ▄█ █     █     █ ▀▄▀ █  version 0.16.0rc2.dev344")
	s.wantState(Spawn)
	st := s.startup()
	if st.Generation != 1 || st.Invocation != first || st.Began != at(21) {
		t.Errorf("generation %d of %s began %v", st.Generation, st.Invocation, st.Began)
	}
	s.wantCounts(0, 1, 0)
}

func TestHealthCountsOnlyForThisStart(t *testing.T) {
	s := newScript(t)
	ready := &event.HealthSample{Status: event.HealthReady, URL: "http://127.0.0.1:8000/health", Code: 200}
	s.line(0, lineVersion)
	s.apply(1, ready) // another server, or the one before that still answers
	s.wantState(Spawn)
	s.apply(5, &event.HealthSample{Status: event.HealthClosed, URL: ready.URL})
	s.line(10, lineLoad)
	s.apply(100, ready)
	s.wantState(Serving)
	s.wantCounts(1, 0, 0)
	if ev := s.startup().Phases[2].Evidence; ev.Source != event.SourceHealth {
		t.Errorf("evidence %+v, want health", ev)
	}
}

// TestProbeBeforeReadyLine: where the probe is first, the log's word is taken all
// the same, and the two agree.
func TestProbeBeforeReadyLine(t *testing.T) {
	s := newScript(t)
	s.line(0, lineVersion)
	s.apply(5, &event.HealthSample{Status: event.HealthClosed, URL: "http://127.0.0.1:8000/health"})
	s.line(10, lineLoad)
	s.apply(100, &event.HealthSample{Status: event.HealthReady, URL: "http://127.0.0.1:8000/health", Code: 200})
	s.wantState(Serving)
	if r := s.target().Ready; r.Log == nil || *r.Log {
		t.Errorf("ready %+v, although the log has not said so", r)
	}
	s.line(100.1, lineReady)
	if r := s.target().Ready; r.Log == nil || !*r.Log {
		t.Errorf("ready %+v, although the log says so", r)
	}
	s.wantCounts(1, 0, 0)
}

func TestReadyLineAgainstRefusingHealthIsShown(t *testing.T) {
	s := newScript(t)
	s.goodStart(0)
	s.apply(800, &event.HealthSample{Status: event.HealthClosed, URL: "http://127.0.0.1:8000/health"})
	target := s.target()
	if target.Disagreement == "" || target.State != Serving {
		t.Errorf("state %s, disagreement %q", target.State, target.Disagreement)
	}
	if r := target.Ready; r.Log == nil || !*r.Log || r.Port == nil || *r.Port || r.Health == nil || *r.Health {
		t.Errorf("ready %+v", r)
	}
}

func TestUnitStateAloneWithoutJournal(t *testing.T) {
	s := newScript(t)
	s.hostWide(0, &event.SourceState{Source: event.SourceJournal, Up: false, State: "not_permitted", Reason: "no right"})
	s.apply(1, &event.UnitState{Loaded: true, ActiveState: "active", Invocation: first, InactiveExit: at(0)})
	s.wantState(Spawn)
	s.apply(30, &event.UnitState{Loaded: true, ActiveState: "failed", Invocation: first, Result: "exit-code"})
	s.wantState(Failed)
	s.wantCounts(0, 1, 0)
}

func TestNothingIsCountedTwice(t *testing.T) {
	s := newScript(t)
	s.line(0, lineVersion)
	s.line(1, lineWrapper)
	s.exit(2, "exited", "1")
	s.inv = other
	s.goodStart(10)
	s.tick(830)
	saved := s.host.Save()

	again := newScript(t)
	again.host.Restore(saved)
	again.inv = other
	again.goodStart(10)
	again.tick(830)
	again.wantState(Serving)
	again.wantCounts(1, 1, 0)
	again.inv = first
	again.line(831, lineLoad)
	again.wantState(Serving)
	if got := again.target().Counters.PhaseSeconds[Load].Count; got != 1 {
		t.Errorf("load observed %d times, want 1", got)
	}
}

func TestStartsBeforeInstallationAreNotCounted(t *testing.T) {
	s := newScript(t, func(c *Config) { c.CountFrom = at(5000) })
	s.goodStart(0)
	s.tick(5000)
	s.wantState(Serving)
	s.wantCounts(0, 0, 0)
	if got := s.target().LastOutcome; got != OutcomeServing {
		t.Errorf("last outcome %q", got)
	}
}

func TestReplayedLinesCountNothing(t *testing.T) {
	s := newScript(t)
	s.host.Apply(event.Event{At: at(0), Target: unit, Replayed: true, Data: &event.Line{Text: lineLoad, Invocation: first}})
	s.wantState(Load)
	if c := s.target().Counters; c.Lines != 0 {
		t.Errorf("counted %d lines", c.Lines)
	}
}

func TestClockJumps(t *testing.T) {
	s := newScript(t)
	s.line(100, lineVersion)
	jump := at(110)
	jump.Real = jump.Real.AddDate(-1, 0, 0)
	s.host.Apply(event.Event{At: jump, Target: unit, Data: &event.Line{Text: lineLoad, Invocation: first}})
	s.wantState(Load)
	if got := s.startup().Phases[0].Seconds; got != 10 {
		t.Errorf("spawn took %v s, want 10 by the monotonic clock", got)
	}
}

func TestThePresentWaitsForThePast(t *testing.T) {
	s := newScript(t)
	cfg := s.host.order[0].cfg
	s.host = NewHost(HostOptions{Journal: true}, cfg)
	s.inv = other
	// The daemon begins at second 2000; the other sources are quicker than the
	// journal's, which reads what happened since second 0.
	s.apply(2000, &event.UnitState{Loaded: true, ActiveState: "active", Invocation: other, InactiveExit: at(100)})
	s.apply(2000, &event.HealthSample{Status: event.HealthReady})
	s.memory(2001, 8, 80)
	s.tick(2003)
	s.inv = first
	s.line(0, lineVersion)
	s.line(1, lineWrapper)
	s.exit(2, "exited", "1")
	s.inv = other
	s.goodStart(100)
	s.hostWide(2004, &event.Watermark{})
	s.wantState(Serving)
	s.wantCounts(1, 1, 0)
	if got := s.startup().Ended.Sub(s.startup().Began).Seconds(); got != 792 {
		t.Errorf("the start took %v s, want the log's 792", got)
	}
}

func TestUnitStateWaitsForTheJournal(t *testing.T) {
	s := newScript(t)
	s.hostWide(0, &event.SourceState{Source: event.SourceJournal, Up: true, State: "up"})
	s.line(1, lineVersion)
	s.hostWide(1, &event.Watermark{})
	s.message(10, event.UnitMessage{Message: event.Stopping})
	s.apply(11, &event.UnitState{Loaded: true, ActiveState: "inactive", Invocation: first, Result: "success"})
	s.wantState(Spawn)
	s.hostWide(11.5, &event.Watermark{})
	s.wantState(Spawn)
	s.hostWide(12.5, &event.Watermark{})
	s.wantState(Stopped)
	s.wantCounts(0, 0, 1)
}

func TestAUserUnitOfTheSameNameIsNotIt(t *testing.T) {
	s := newScript(t)
	s.line(0, lineVersion)
	s.apply(1, &event.UnitState{Loaded: true, ActiveState: "active", Invocation: first, ControlGroup: "/system.slice/" + unit})
	used := uint64(1 << 30)
	s.hostWide(2, &event.GPUSample{GPUs: []event.GPU{{Index: 0, Processes: []event.GPUProcess{
		{PID: 1, UsedBytes: &used, Unit: unit, Cgroup: "/user.slice/user-1000.slice/user@1000.service/app.slice/" + unit},
		{PID: 2, UsedBytes: &used, Unit: unit, Cgroup: "/machine.slice/system.slice/" + unit},
	}}}})
	if got := s.target().GPUMemory[0]; got != used {
		t.Errorf("own memory %d, want only that of the system's unit, %d", got, used)
	}
}
