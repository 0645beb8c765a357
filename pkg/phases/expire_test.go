package phases

import (
	"encoding/json"
	"fmt"
	"runtime"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/startupd/startupd/pkg/event"
)

// comers is a host that watches llm.service by its name, and every unit that
// begins with run- by a glob.
func comers(t *testing.T, change ...func(*HostOptions)) *script {
	t.Helper()
	set, err := builtin()
	if err != nil {
		t.Fatal(err)
	}
	cfg := Config{Name: unit, Profiles: set.Profiles()}
	o := HostOptions{Limits: LiveLimits(), Resolve: func(name string) (Config, bool) {
		c := cfg
		c.Name = name
		return c, strings.HasPrefix(name, "run-")
	}}
	for _, c := range change {
		c(&o)
	}
	return &script{t: t, host: NewHost(o, cfg), inv: first}
}

func (s *script) tell(name string, sec float64, d event.Data) {
	s.now = sec
	s.host.Apply(event.Event{At: at(sec), Target: name, Data: d})
}

// fails lets a unit start and fail within two seconds.
func (s *script) fails(name string, sec float64, invocation string) {
	s.tell(name, sec, &event.UnitMessage{Message: event.Started, Invocation: invocation})
	s.tell(name, sec+1, &event.UnitMessage{Message: event.ProcessExit, Invocation: invocation, Command: "ExecStart", ExitCode: "exited", ExitStatus: "1"})
	s.tell(name, sec+1, &event.UnitMessage{Message: event.FailureResult, Invocation: invocation, Result: "exit-code"})
}

func (s *script) names() []string {
	var out []string
	for _, t := range s.host.Snapshot().Targets {
		out = append(out, t.Name)
	}
	return out
}

func (s *script) find(name string) *Target {
	for _, t := range s.host.Snapshot().Targets {
		if t.Name == name {
			return &t
		}
	}
	return nil
}

func (s *script) watches(want bool, name string) {
	s.t.Helper()
	if got := s.find(name) != nil; got != want {
		s.t.Errorf("at %v s: %s is watched: %v, want %v", s.now, name, got, want)
	}
}

const hour = 3600

func unloaded() *event.UnitState {
	return &event.UnitState{ActiveState: "inactive", SubState: "dead"}
}

func inMemory(active, invocation string) *event.UnitState {
	return &event.UnitState{Loaded: true, ActiveState: active, Invocation: invocation}
}

// TestAGoneUnitOfAGlobExpires also shows that its failure stays for as long, and
// that a unit named in full stays for ever.
func TestAGoneUnitOfAGlobExpires(t *testing.T) {
	s := comers(t)
	s.fails(unit, 0, other)
	s.fails("run-1.service", 0, first)
	s.tell("run-1.service", 1, &event.SourceState{Source: event.SourceHost, Up: true, State: "up"})
	s.tell("run-1.service", 2, unloaded())
	s.tick(10)
	if d := s.host.nextSweep(); d != at(10+hour) {
		t.Errorf("it goes at %v, want an hour after it was seen to be gone", d.Sub(at(0)))
	}
	s.tick(10 + hour - 1)
	if got := s.find("run-1.service"); got == nil || got.LastOutcome != OutcomeFailed || got.Failure == nil {
		t.Fatalf("its failure is no longer told: %+v", got)
	}
	s.tick(10 + hour)
	if diff := cmp.Diff([]string{unit}, s.names()); diff != "" {
		t.Error(diff)
	}
	if got := s.host.Snapshot().Sources; len(got) != 0 {
		t.Errorf("a source of a unit that is gone: %+v", got)
	}
	s.tick(1000 * hour)
	s.watches(true, unit)
	if d := s.host.Deadline(); !d.IsZero() {
		t.Errorf("a deadline at %v with nothing to wait for", d)
	}
}

func TestAUnitThatComesBackInTimeGoesOnCounting(t *testing.T) {
	s := comers(t)
	s.fails("run-1.service", 0, first)
	s.tick(10)
	s.tick(10 + hour)
	s.watches(false, "run-1.service")

	s.tell("run-1.service", 7*24*hour, &event.UnitMessage{Message: event.Started, Invocation: other})
	got := s.find("run-1.service")
	if got == nil || got.Counters.Startups[OutcomeFailed] != 1 {
		t.Fatalf("it does not go on counting: %+v", got)
	}
	if n := len(s.host.saved); n != 0 {
		t.Errorf("%d units that are watched take the place of one that is not", n)
	}
	if got.LastOutcome != OutcomeNone || got.Failure != nil || got.RestartLoop {
		t.Errorf("an old failure is told of a new start: %s, %+v", got.LastOutcome, got.Failure)
	}
	s.tell("run-1.service", 7*24*hour+1, &event.UnitMessage{Message: event.Stopping, Invocation: other})
	s.tell("run-1.service", 7*24*hour+2, &event.UnitMessage{Message: event.Stopped, Invocation: other})
	s.tick(7*24*hour + 10)
	s.tick(8*24*hour + 10) // goes again, and this time does not come back in time
	s.tick(15*24*hour + 11)
	if got := s.host.Save().Targets; len(got) != 1 {
		t.Errorf("saved of %d targets, want the one that is watched", len(got))
	}
	s.tell("run-1.service", 15*24*hour+12, &event.UnitMessage{Message: event.Started, Invocation: "3333"})
	if got := s.find("run-1.service").Counters.Startups[OutcomeFailed]; got != 0 {
		t.Errorf("after more than a week it has %d failed starts, want none", got)
	}
}

func TestWhatIsThereStays(t *testing.T) {
	s := comers(t)
	s.tell("run-serving.service", 0, &event.UnitMessage{Message: event.Started, Invocation: first})
	s.fails("run-failed.service", 0, other) // and loaded until somebody resets it
	s.tell("run-failed.service", 2, inMemory("failed", other))
	s.tell("run-wanted.service", 3, inMemory("inactive", ""))
	for sec := 0.0; sec < 48*hour; sec += 1800 {
		s.fails("run-loop.service", sec, fmt.Sprintf("%032d", int(sec)+1))
		s.tick(sec + 10)
	}
	want := []string{unit, "run-failed.service", "run-loop.service", "run-serving.service", "run-wanted.service"}
	if diff := cmp.Diff(want, s.names()); diff != "" {
		t.Error(diff)
	}
	s.tell("run-failed.service", 48*hour, unloaded())
	s.tick(48 * hour)
	s.tick(49*hour + 1)
	s.watches(false, "run-failed.service")
	s.watches(false, "run-loop.service")
	s.watches(true, "run-serving.service")
}

// TestAMissedEnd is that of a unit whose end nobody told.
func TestAMissedEnd(t *testing.T) {
	s := comers(t)
	s.tell("run-1.service", 0, &event.UnitMessage{Message: event.Started, Invocation: first})
	s.tell("run-1.service", 1, inMemory("active", first))
	s.tell("run-1.service", 2, unloaded())
	s.tick(3)
	// Its probe goes on, and is no sign of the unit.
	for sec := 10.0; sec < hour; sec += 10 {
		s.tell("run-1.service", sec, &event.HealthSample{Status: event.HealthClosed})
		s.tick(sec)
	}
	s.watches(true, "run-1.service")
	s.tick(hour + 3)
	s.watches(false, "run-1.service")
}

func TestFeedbackBringsNoUnitBack(t *testing.T) {
	s := comers(t)
	for _, d := range []event.Data{
		&event.HealthSample{Status: event.HealthClosed}, &event.HostSample{}, &event.Baseline{}, unloaded(),
		&event.SourceState{Source: event.SourceHost, Up: true, State: "up"},
	} {
		s.tell("run-1.service", 1, d)
		s.watches(false, "run-1.service")
	}
	s.tell("run-1.service", 2, inMemory("inactive", ""))
	s.watches(true, "run-1.service")
}

// TestNothingExpiresUnread waits for what the journal still has to tell.
func TestNothingExpiresUnread(t *testing.T) {
	s := comers(t, func(o *HostOptions) { o.Journal = true })
	s.fails("run-1.service", 0, first)
	s.tick(10)
	s.tick(5 * hour)
	s.watches(true, "run-1.service")
	s.hostWide(5*hour, &event.Watermark{})
	s.hostWide(6*hour-1, &event.Watermark{})
	s.watches(true, "run-1.service")
	s.hostWide(6*hour, &event.Watermark{})
	s.watches(false, "run-1.service")
}

// TestARestartOfTheDaemon changes neither what is told of a gone unit nor for how
// long.
func TestARestartOfTheDaemon(t *testing.T) {
	s := comers(t)
	s.fails("run-1.service", 0, first)
	s.tick(10)
	s.tick(1800)
	before := *s.find("run-1.service")
	again := comers(t)
	again.host.Restore(throughJSON(t, s.host.Save()))
	got := again.find("run-1.service")
	if got == nil {
		t.Fatal("a unit of a glob is gone after a restart")
	}
	if got.LastOutcome != before.LastOutcome || !cmp.Equal(got.Failure, before.Failure) || got.FailureMessage != before.FailureMessage ||
		!cmp.Equal(got.Counters.Startups, before.Counters.Startups) {
		t.Errorf("after a restart:\n%+v\nbefore:\n%+v", got, before)
	}
	again.tick(10 + hour - 1)
	again.watches(true, "run-1.service")
	again.tick(10 + hour)
	again.watches(false, "run-1.service")

	// The next daemon has other globs.
	other := comers(t, func(o *HostOptions) { o.Resolve = nil })
	other.host.Restore(throughJSON(t, s.host.Save()))
	if diff := cmp.Diff([]string{unit}, other.names()); diff != "" {
		t.Error(diff)
	}
}

func TestRoom(t *testing.T) {
	s := comers(t, func(o *HostOptions) { o.Limits.Units = 3 })
	start := func(name string, sec float64) {
		s.tell(name, sec, &event.UnitMessage{Message: event.Started, Invocation: fmt.Sprintf("%032d", int(sec)+1)})
	}
	s.fails("run-1.service", 0, first)
	s.tell("run-1.service", 2, inMemory("failed", first))
	s.fails("run-2.service", 10, other)
	s.fails("run-3.service", 5, "3333")
	start("run-4.service", 20)
	want := func(refused string, names ...string) {
		t.Helper()
		if diff := cmp.Diff(append([]string{unit}, names...), s.names()); diff != "" {
			t.Error(diff)
		}
		if got := s.host.Snapshot().Refused; got != refused {
			t.Errorf("refused %q, want %q", got, refused)
		}
	}
	want("", "run-1.service", "run-2.service", "run-4.service") // the longest silent goes
	start("run-5.service", 30)
	want("", "run-1.service", "run-4.service", "run-5.service") // what is loaded goes last
	start("run-6.service", 40)
	want("", "run-4.service", "run-5.service", "run-6.service")
	start("run-7.service", 50)
	want("run-7.service", "run-4.service", "run-5.service", "run-6.service") // all run
	s.tell("run-5.service", 60, &event.UnitMessage{Message: event.Stopped, Invocation: fmt.Sprintf("%032d", 31)})
	s.tell("run-7.service", 70, &event.Line{Text: lineVersion, Invocation: fmt.Sprintf("%032d", 51), Origin: event.OriginUnit})
	s.tick(71)
	want("run-7.service", "run-4.service", "run-6.service", "run-7.service")
	s.tell("run-4.service", 80, &event.UnitMessage{Message: event.Stopped, Invocation: fmt.Sprintf("%032d", 21)})
	s.tick(81)
	s.tick(81 + hour)
	want("", "run-6.service", "run-7.service")
}

// TestTransientUnitsOfADay lets ten thousand units come and go: what is kept of
// them, in memory and in the state file, must not grow with their number.
func TestTransientUnitsOfADay(t *testing.T) {
	s := comers(t)
	const units = 10000
	l := LiveLimits()
	day := 24.0 * hour / units
	var half, halfFile uint64
	for i := range units {
		sec := day * float64(i)
		name := fmt.Sprintf("run-%s-%d.service", strings.Repeat("x", 200), i)
		inv := fmt.Sprintf("%032d", i)
		s.tell(name, sec, &event.UnitMessage{Message: event.Started, Invocation: inv})
		s.tell(name, sec+1, &event.Line{Text: lineVersion, Invocation: inv, Origin: event.OriginUnit, PID: i})
		s.tell(name, sec+1, &event.Line{Text: fmt.Sprintf("(EngineCore_DP0 pid=200) ERROR 03-01 23:30:30 [core.py:708] RuntimeError: no %d", i), Invocation: inv, Origin: event.OriginUnit, PID: i})
		s.fails(name, sec+1, inv)
		s.tick(sec + 3)
		if n := len(s.host.order) - 1; n > l.Units || len(s.host.found) > l.Units || len(s.host.saved) > l.Saved {
			t.Fatalf("after %d units: %d watched, %d saved", i+1, n, len(s.host.saved))
		}
		if i == units/2 {
			half, halfFile = heap(), fileSize(t, s.host)
		}
	}
	if file := fileSize(t, s.host); file > halfFile+halfFile/10 || file > 2<<20 {
		t.Errorf("the state file has %d bytes, and had %d after half of the units", file, halfFile)
	}
	if all := heap(); all > half+half/4 {
		t.Errorf("%d bytes of heap, and %d after half of the units", all, half)
	}
	runtime.KeepAlive(s)
	s.tick(26 * hour)
	if diff := cmp.Diff([]string{unit}, s.names()); diff != "" {
		t.Error(diff)
	}
	s.tick(9 * 24 * hour)
	if got := s.host.Save().Targets; len(got) != 1 {
		t.Errorf("a week later %d targets are saved, want 1", len(got))
	}
}

func heap() uint64 {
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.HeapAlloc
}

func fileSize(t *testing.T, h *Host) uint64 {
	t.Helper()
	b, err := json.Marshal(h.Save())
	if err != nil {
		t.Fatal(err)
	}
	return uint64(len(b))
}

// TestOldStateFile reads what a version wrote that kept every unit for ever.
func TestOldStateFile(t *testing.T) {
	old := Saved{Targets: map[string]SavedTarget{}}
	for i := range 10000 {
		old.Targets[fmt.Sprintf("run-%d.service", i)] = SavedTarget{Startups: map[Outcome]uint64{OutcomeFailed: 1}}
	}
	s := comers(t)
	s.host.Restore(old)
	if diff := cmp.Diff([]string{unit}, s.names()); diff != "" {
		t.Error(diff)
	}
	s.tick(1)
	if got, want := len(s.host.saved), LiveLimits().Saved; got != want {
		t.Errorf("%d units are saved, want %d", got, want)
	}
	s.tick(7 * 24 * hour)
	s.tick(7*24*hour + 1)
	if got := len(s.host.saved); got != 0 {
		t.Errorf("after a week %d units are saved, want none", got)
	}
}

// TestNoLimits is what the reader of a recording wants.
func TestNoLimits(t *testing.T) {
	s := comers(t, func(o *HostOptions) { o.Limits = Limits{} })
	for i := range 300 {
		s.fails(fmt.Sprintf("run-%d.service", i), float64(i), first)
	}
	s.tick(1000)
	s.tick(1e6)
	if got := len(s.names()); got != 301 {
		t.Errorf("%d targets, want 301", got)
	}
	s.host.SetTargets(nil)
	if got := s.names(); len(got) != 300 || slices.Contains(got, unit) {
		t.Errorf("after a reload %d targets, want 300", len(got))
	}
}

func TestUnknownNamesAreBounded(t *testing.T) {
	s := comers(t)
	for i := range 10 * maxUnknown {
		s.tell(fmt.Sprintf("elsewhere-%d.service", i), 1, &event.Line{Text: "hello"})
	}
	if got := len(s.host.unknown); got > maxUnknown {
		t.Errorf("%d names that nobody wants are kept, want at most %d", got, maxUnknown)
	}
}

// TestAGoneUnitIsToldAsItIs compares what is kept to be published with what would
// be published anew, after each event that could change it.
func TestAGoneUnitIsToldAsItIs(t *testing.T) {
	const name = "run-1.service"
	s := comers(t)
	s.tell(name, 0, &event.Line{Text: lineVersion, Invocation: first, Origin: event.OriginUnit, PID: 100})
	s.fails(name, 1, first)
	kept := 0
	check := func(what string) {
		t.Helper()
		got := s.find(name)
		if want := s.host.machines[name].target(s.host.now); !cmp.Equal(want, *got) {
			t.Errorf("after %s: %s", what, cmp.Diff(want, *got))
		}
		if s.host.found[name].last != nil {
			kept++
		}
	}
	used := uint64(1 << 30)
	for i, step := range []event.Event{
		{Data: &event.Tick{}},
		{Target: name, Data: &event.Line{Text: "late " + lineWrapper, Invocation: first, Origin: event.OriginUnit, PID: 100}},
		{Data: &event.Line{Text: "Out of memory: Killed process 100 (vllm) total-vm:1kB", Origin: event.OriginKernel}},
		{Target: name, Data: &event.UnitState{Loaded: true, ActiveState: "failed", Invocation: first, Result: "exit-code"}},
		{Data: &event.Tick{}},
		{Target: name, Data: unloaded()},
		{Data: &event.Tick{}},
		{Target: name, Data: &event.Baseline{Good: 1}},
		{Target: name, Data: &event.HealthSample{Status: event.HealthClosed}},
		{Target: name, Data: &event.SourceState{Source: event.SourceHealth, State: "down"}},
		{Data: &event.GPUSample{GPUs: []event.GPU{{Index: 0, UsedBytes: &used, Processes: []event.GPUProcess{{PID: 100, UsedBytes: &used, Unit: name}}}}}},
		{Data: &event.GPUSample{GPUs: []event.GPU{}}},
		{Target: name, Data: &event.Gap{Gap: event.GapLost}},
		{Data: &event.Tick{}},
		{Target: name, Data: &event.UnitMessage{Message: event.Started, Invocation: other}},
		{Data: &event.Tick{}},
	} {
		step.At = at(10 + 20*float64(i))
		s.host.Apply(step)
		check(fmt.Sprintf("event %d, %s", i, step.Data.Kind()))
		s.tick(12 + 20*float64(i))
		check(fmt.Sprintf("event %d and a tick", i))
	}
	if kept < 10 {
		t.Errorf("only %d of the snapshots take what is kept", kept)
	}
	cfg, _ := s.host.opts.Resolve(name)
	s.host.SetTargets([]Config{cfg})
	if got := s.find(name); got == nil || s.host.found[name] != nil {
		t.Errorf("a unit that is named now is still one of a glob: %+v", got)
	}
}
