package main

import (
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/startupd/startupd/pkg/event"
	"github.com/startupd/startupd/pkg/history"
	"github.com/startupd/startupd/pkg/phases"
	"github.com/startupd/startupd/pkg/preflight"
)

// The weights are those of the newest start that served.
func TestLastWeights(t *testing.T) {
	dir := t.TempDir()
	store := history.In(dir, history.Limits{MaxStartups: 10})
	began := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	for i, outcome := range []phases.Outcome{phases.OutcomeServing, phases.OutcomeServing, phases.OutcomeFailed} {
		bytes := uint64(i+1) << 30
		at := event.Stamp{Real: began.AddDate(0, 0, i)}
		s := &phases.Startup{Invocation: strings.Repeat(string(rune('1'+i)), 32), Began: at, Ended: at, Outcome: outcome, WeightBytes: &bytes, Engine: phases.Engine{Model: "acme/one"}}
		if _, err := store.Put(t.Context(), at.Real, history.FromStartup("llm.service", s)); err != nil {
			t.Fatal(err)
		}
	}
	got := lastWeights(t.Context(), dir, "llm.service")
	if got == nil || *got != (preflight.Weights{Bytes: 2 << 30, Model: "acme/one", From: "the start of 2026-03-02"}) {
		t.Errorf("%+v", got)
	}
	for _, c := range []struct{ dir, unit string }{{dir, "other.service"}, {t.TempDir(), "llm.service"}} {
		if got := lastWeights(t.Context(), c.dir, c.unit); got != nil {
			t.Errorf("%s of %s: %+v", c.unit, c.dir, *got)
		}
	}
}

// A look that never returns is given up, with a word on what hangs.
func TestPreflightGivesUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := &preflightFlags{wait: time.Minute, timeout: 10 * time.Second}
		never := make(chan struct{})
		began := time.Now()
		_, err := f.bounded(func() *preflight.Report { <-never; return nil })
		if err == nil || !strings.Contains(err.Error(), "no answer within 1m30s: a file system") || time.Since(began) != 90*time.Second {
			t.Errorf("%v after %v", err, time.Since(began))
		}
		// Before a start this must not keep it back.
		f.blindly = true
		_, err = f.bounded(func() *preflight.Report { <-never; return nil })
		if exit := (*exitError)(nil); !errors.As(err, &exit) || exit.code != 0 {
			t.Errorf("with --allow-unknown: %v", err)
		}
		close(never)
	})
}

func TestPreflightText(t *testing.T) {
	held := uint64(33 << 30)
	r := &preflight.Report{Unit: "llm.service", Verdict: preflight.NotFit, Checks: []preflight.Result{
		{Check: preflight.CheckGPUs, Status: preflight.OK, What: "needs 1 GPU"},
		{Check: preflight.CheckGPUMemory, Status: preflight.Fail, Class: "gpu_memory_occupied", What: "GPU 0 needs 72.0 GiB, \x1b[31m47.0 GiB free", Do: "Stop who holds it.", Holders: []preflight.Holder{
			{PID: 42, Bytes: &held, Unit: "old.service", Container: strings.Repeat("c", 64), User: "llm", State: "D", StateMeaning: "it can't be killed",
				Since: time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC), Role: preflight.RoleOrphan, Command: "python \u202e\x07 -m x"},
			{StateMeaning: "no process is listed for it"},
		}},
	}}
	for _, c := range []struct {
		name  string
		style textStyle
		want  string
	}{
		{"plain", textStyle{}, `ok         GPUs        needs 1 GPU
FAIL       GPU memory  GPU 0 needs 72.0 GiB, \x1b[31m47.0 GiB free
                       - 33.0 GiB, PID 42, orphan, old.service, container cccccccccccc, user llm, state D, since 2026-03-01 12:00:00 UTC: python \u202e\a -m x (it can't be killed)
                       - no process is listed for it
                       Stop who holds it.
preflight of llm.service: not fit [gpu_memory_occupied]: GPU 0 needs 72.0 GiB, \x1b[31m47.0 GiB free, held by PID 42 of old.service
`},
		{"narrow", textStyle{width: 50}, `ok         GPUs        needs 1 GPU
FAIL       GPU memory  GPU 0 needs 72.0 GiB,
                       \x1b[31m47.0 GiB free
`},
		{"in colour", textStyle{color: true}, "\x1b[1;31mFAIL\x1b[0m       GPU memory  GPU 0 needs"},
		{"in a unit's journal", textStyle{own: true}, "startupd: ok         GPUs        needs 1 GPU\nstartupd: FAIL "},
	} {
		var b strings.Builder
		if err := writePreflight(&b, r, c.style); err != nil {
			t.Fatal(err)
		}
		if got := b.String(); !strings.Contains(got, c.want) {
			t.Errorf("%s:\n%s\nwant\n%s", c.name, got, c.want)
		}
		if strings.ContainsAny(b.String(), "\x07") || strings.Contains(b.String(), "\x1b[31m") {
			t.Errorf("%s: hostile text reaches the terminal: %q", c.name, b.String())
		}
	}
}
