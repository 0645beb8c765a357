package api

import (
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/startupd/startupd/pkg/event"
	"github.com/startupd/startupd/pkg/history"
	"github.com/startupd/startupd/pkg/phases"
	"github.com/startupd/startupd/pkg/triage"
)

func at(seconds float64) event.Stamp {
	d := time.Duration(seconds * float64(time.Second))
	return event.Stamp{Real: time.Date(2026, 3, 1, 11, 0, 0, 0, time.FixedZone("x", 3600)).Add(d), Boot: "b", Mono: time.Hour + d}
}

func running() *phases.Startup {
	return &phases.Startup{
		Invocation: "01", Generation: 2, Began: at(0),
		Phases: []phases.Phase{
			{Phase: phases.Spawn, Entered: at(0), Seconds: 20, Done: true},
			{Phase: phases.Load, Entered: at(20), Seconds: 5},
		},
		Steps: []phases.Step{{Phase: phases.Spawn, Step: "import", Entered: at(1), Seconds: 19}, {Phase: phases.Load, Step: "weights", Entered: at(20), Seconds: 5}},
		Step:  "weights",
	}
}

// TestWhatRunsLastsUntilNow has a document that is made later than its snapshot.
func TestWhatRunsLastsUntilNow(t *testing.T) {
	s := NewStartup("a.service", running(), at(30))
	if *s.Seconds != 30 || *s.Phases[0].Seconds != 20 || *s.Phases[1].Seconds != 10 || *s.Steps[0].Seconds != 19 || *s.Steps[1].Seconds != 10 {
		t.Errorf("%s", text(t, s))
	}
	if s.Outcome != Starting || s.Phase != "load" || s.Began.Location() != time.UTC || !s.Began.Equal(at(0).Real) {
		t.Errorf("%s", text(t, s))
	}
}

func TestWhatIsOverLastsNoLonger(t *testing.T) {
	over := running()
	over.Outcome, over.Ended = phases.OutcomeFailed, at(25)
	if s := NewStartup("a.service", over, at(99)); *s.Seconds != 25 || *s.Phases[1].Seconds != 5 || *s.Steps[1].Seconds != 5 {
		t.Errorf("failed: %s", text(t, s))
	}
	served := running()
	served.Outcome, served.Ended = phases.OutcomeServing, at(25)
	served.Phases[1].Done = true
	served.Phases = append(served.Phases, phases.Phase{Phase: phases.Serving, Entered: at(25), Seconds: 1})
	if s := NewStartup("a.service", served, at(99)); *s.Seconds != 25 || *s.Phases[2].Seconds != 74 || s.Outcome != Serving {
		t.Errorf("serving: %s", text(t, s))
	}
	served.ServingEnded, served.Phases[2].Seconds = at(50), 25
	if s := NewStartup("a.service", served, at(99)); *s.Phases[2].Seconds != 25 {
		t.Errorf("served: %s", text(t, s))
	}
}

func TestUnknownIsAbsent(t *testing.T) {
	got := text(t, NewStatus(&phases.Snapshot{Targets: []phases.Target{{Name: "a.service", State: phases.Unknown}}}, at(0)))
	want := `{"schema":"startupd.status/v1","at":"2026-03-01T10:00:00Z","units":[{"unit":"a.service","state":"unknown","restart_loop":false,"ready":{},` +
		`"journal_lines":0,"journal_stale_lines":0,"journal_unmatched_lines":0}],"gpus":null,"sources":[]}`
	if got != want {
		t.Errorf("%s\nwant %s", got, want)
	}
	got = text(t, NewStartup("a.service", &phases.Startup{}, event.Stamp{}))
	if want := `{"unit":"a.service","generation":0,"outcome":"starting","slow":false,"phases":[],"gap_count":0,"final":false}`; got != want {
		t.Errorf("%s\nwant %s", got, want)
	}
}

func TestStatusOfSomeUnits(t *testing.T) {
	last := running()
	last.Invocation, last.Outcome = "00", phases.OutcomeServing
	s := running()
	snap := &phases.Snapshot{
		Targets: []phases.Target{
			{Name: "a.service", Startup: s, Last: last},
			{Name: "b.service", Startup: s, Last: s},
		},
		GPUs:    []phases.GPU{{Index: 0}, {Index: 1}},
		Xids:    []phases.Xid{{GPU: "1", Xid: 79, Count: 2}, {GPU: "0000:01:00.0", Xid: 13, Count: 1}},
		Sources: []phases.Source{{Source: "journal"}, {Source: "unit", Target: "a.service"}, {Source: "unit", Target: "b.service"}},
	}
	all := NewStatus(snap, at(30))
	if len(all.Units) != 2 || len(all.Sources) != 3 || all.Units[0].Last == nil || all.Units[1].Last != nil {
		t.Errorf("%s", text(t, all))
	}
	if all.GPUs[0].Xids != nil || len(all.GPUs[1].Xids) != 1 || all.GPUs[1].Xids[0].Count != 2 {
		t.Errorf("%s", text(t, all.GPUs))
	}
	one := NewStatus(snap, at(30), "b.service")
	if len(one.Units) != 1 || len(one.Sources) != 2 || one.Find("b.service") == nil || one.Find("a.service") != nil || len(one.GPUs) != 2 {
		t.Errorf("%s", text(t, one))
	}
}

func TestOutcomes(t *testing.T) {
	for want, change := range map[string]func(*phases.Startup){
		Starting: func(*phases.Startup) {},
		Stalled:  func(s *phases.Startup) { s.Stalled, s.StalledReason = true, "because" },
		Failed:   func(s *phases.Startup) { s.Outcome, s.Reason = phases.OutcomeFailed, "because" },
		Stopped:  func(s *phases.Startup) { s.Outcome, s.Reason = phases.OutcomeStopped, "because" },
		Serving:  func(s *phases.Startup) { s.Outcome, s.Reason = phases.OutcomeServing, "because" },
	} {
		s := running()
		change(s)
		if got := NewStartup("a", s, at(30)); got.Outcome != want || want != Starting && got.Reason != "because" {
			t.Errorf("%s: %s", want, text(t, got))
		}
	}
}

// TestRecordsAndSnapshotsAgree compares what a startup tells from memory with
// what it tells from the history.
func TestRecordsAndSnapshotsAgree(t *testing.T) {
	s := running()
	s.Outcome, s.Ended, s.Reason, s.Final = phases.OutcomeFailed, at(25), "exit-code", true
	s.Phases[1].Done = true
	retry := false
	s.RootCause = &triage.RootCause{Class: "oom", Exception: "E", Message: "m", Process: "p", At: at(24), Retry: &retry, NotArrived: []string{"x"}}
	s.Findings = []triage.Finding{{Verdict: triage.Cause, Class: "oom", Message: "m", Process: "p", Count: 2, Fingerprint: "v1:1"}}
	s.Arguments = map[string]string{"a": "b"}
	live := NewStartup("a.service", s, at(99))
	r := history.FromStartup("a.service", s)
	kept := FromRecord(&r)
	// Not kept: why a phase was entered, and how many records each verdict has.
	for i := range live.Phases {
		live.Phases[i].Evidence = nil
	}
	live.StepBegan, kept.StepBegan = time.Time{}, time.Time{}
	if diff := cmp.Diff(live, kept); diff != "" {
		t.Errorf("- from memory, + from the history: %s", diff)
	}
}

func TestNewTransition(t *testing.T) {
	got := text(t, NewTransition(&phases.Transition{
		Target: "a.service", Invocation: "01", Generation: 1, Began: at(0), From: phases.Spawn, To: phases.Load, At: at(21.5), Replayed: true,
	}))
	if want := `{"unit":"a.service","invocation":"01","generation":1,"from":"spawn","to":"load","at":"2026-03-01T10:00:21.5Z","seconds":21.5,"replayed":true}`; got != want {
		t.Errorf("%s", got)
	}
	if got := text(t, NewTransition(&phases.Transition{Target: "a.service", From: phases.Unknown, To: phases.Stopped})); strings.Contains(got, "seconds") || strings.Contains(got, `"at"`) {
		t.Errorf("what is not known is told: %s", got)
	}
}

func TestNewOnes(t *testing.T) {
	if NewRootCause(nil) != nil {
		t.Error("no root cause is one")
	}
	if c := NewRootCause(&triage.RootCause{Class: "oom", Provisional: true}); c.Class != "oom" || !c.Provisional {
		t.Errorf("%+v", c)
	}
	if f := NewFinding(&triage.Finding{Verdict: triage.Benign, Count: 3, At: at(0)}); f.Verdict != "benign" || f.Count != 3 || !f.At.Equal(at(0).Real) {
		t.Errorf("%+v", f)
	}
}

func text(t *testing.T, doc any) string {
	t.Helper()
	b, err := json.Marshal(doc)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}
