package phases

import (
	"testing"
	"testing/fstest"

	"github.com/google/go-cmp/cmp"

	"github.com/startupd/startupd/pkg/event"
	"github.com/startupd/startupd/pkg/profile"
)

// acme is a second engine, which neither compiles nor captures.
const acme = `schema: startupd-profile/v1
engine: acme
detect: ['\bacme serve\b']
phases: [spawn, load, serving]
line:
  prefix: ['<{process}:{pid}> ']
  headers: [{kind: log, shape: '{level} {msg}'}]
  levels: {I: info}
processes: {main: [acmed]}
quiet: 100s
rules:
  - {id: begin, role: enter, kind: log, phase: load, step: weights, regex: '^Reading ', example: Reading m1}
  - {id: up, role: ready, kind: log, phase: serving, regex: '^Up$', example: Up}
`

// twoEngines makes the host choose between two profiles.
func twoEngines(t *testing.T) func(*Config) {
	t.Helper()
	return func(c *Config) {
		set, err := builtin()
		if err != nil {
			t.Fatal(err)
		}
		set, err = set.Extend(fstest.MapFS{"acme.yaml": {Data: []byte(acme)}})
		if err != nil {
			t.Fatal(err)
		}
		c.Profiles = append([]*profile.Profile{}, set.Profiles()...)
	}
}

func TestPhasesThatTheEngineLacksAreSkipped(t *testing.T) {
	s := newScript(t, twoEngines(t))
	s.line(0, "<acmed:1> I hello")
	s.line(10, "<acmed:1> I Reading m1")
	s.line(30, "<acmed:1> I Up")
	st := s.startup()
	if diff := cmp.Diff([]State{Compile, CUDAGraph}, st.Skipped); diff != "" {
		t.Errorf("skipped: %s", diff)
	}
	if diff := cmp.Diff(Phases(), phasesOf(st)); diff != "" {
		t.Errorf("phases: %s", diff)
	}
}

func TestLinesAreUnmatchedOnce(t *testing.T) {
	s := newScript(t, twoEngines(t))
	s.line(0, "<acmed:1> I hello")
	s.line(1, "(APIServer pid=100) INFO 03-01 23:30:00 [x.py:1] hello")
	if got := s.target().Counters.Unmatched; got != 2 {
		t.Errorf("%d lines are unmatched, want 2", got)
	}
}

func TestKernelLinesAreNoLinesOfTheUnit(t *testing.T) {
	s := newScript(t)
	s.line(0, lineVersion)
	s.hostWide(1, &event.Line{Text: "NVRM: Xid (PCI:0000:01:00): 79", Origin: event.OriginKernel})
	if c := s.target().Counters; c.Lines != 1 || c.Unmatched != 0 {
		t.Errorf("%d lines, of them %d unmatched; want the unit's one", c.Lines, c.Unmatched)
	}
}

func TestReloadKeepsTheEngine(t *testing.T) {
	s := newScript(t, twoEngines(t))
	s.line(0, lineLoad)
	s.tick(7200)
	if !s.startup().Stalled {
		t.Fatal("not stalled")
	}
	s.host.SetTargets([]Config{s.host.order[0].cfg})
	s.tick(7201)
	if !s.startup().Stalled {
		t.Error("a reload forgets the engine, and so its budgets")
	}
}

func TestATargetThatComesBackGoesOnCounting(t *testing.T) {
	s := newScript(t)
	cfg := s.host.order[0].cfg
	s.host.Restore(s.host.Save())
	s.apply(0, &event.SourceState{Source: event.SourceHealth, Up: true, State: "up"})
	s.line(0, lineVersion)
	s.exit(2, "exited", "1")
	s.wantCounts(0, 1, 0)
	s.host.SetTargets(nil)
	if got := s.host.Snapshot().Sources; len(got) != 0 {
		t.Errorf("a source of a target that is gone: %+v", got)
	}
	if got := s.host.Save().Targets[unit].Startups[OutcomeFailed]; got != 1 {
		t.Errorf("saved %d failed starts of the target that is gone, want 1", got)
	}
	s.host.SetTargets([]Config{cfg})
	s.wantCounts(0, 1, 0)
	s.line(0, lineVersion) // its back-fill
	s.exit(2, "exited", "1")
	s.wantCounts(0, 1, 0)
}

func TestExpectedServingComesFromTheLastGoodStart(t *testing.T) {
	s := newScript(t)
	s.line(0, lineVersion)
	s.line(1, lineLoad)
	if got := s.startup().ExpectedServing; !got.IsZero() {
		t.Fatalf("a first start is expected to serve at %v", got)
	}
	s.inv = other
	s.goodStart(100) // spawn 21 s, load 529 s until Dynamo, 792 s in all
	s.tick(900)
	saved := s.host.Save()

	s = newScript(t)
	s.host.Restore(saved)
	s.inv = "33333333333333333333333333333333"
	s.line(2000, lineVersion)
	if got := s.startup().ExpectedServing.Sub(at(2000)).Seconds(); got != 792 {
		t.Errorf("at its beginning it is %v s away, want the last start's 792", got)
	}
	s.line(2031, lineLoad)
	s.tick(2041)
	if got := s.startup().ExpectedServing.Sub(at(2041)).Seconds(); got != 792-21-10 {
		t.Errorf("ten seconds into the load it is %v s away, want %v", got, 792-21-10)
	}
}
