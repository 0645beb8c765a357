//go:build e2e

package e2e

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/startupd/startupd/test/nspawn"
)

// testUpgrade plays the reference run once more, after a good start of the
// version before it: what is told of the crash, and what is new.
func testUpgrade(t *testing.T, d *daemon, before engineUnit) {
	d.reaches(t, 30*time.Second, kimi, "serving")
	d.until(t, 20*time.Second, func(m metrics) error { return counted(m, 0, 1, 0) })
	d.Run(t, "systemctl", "stop", kimi)
	d.reaches(t, 10*time.Second, kimi, "stopped")
	after := before
	after.scenario, after.speed = "reference", 60
	after.add(t, d.Container)

	w := d.watch(t, kimi)
	d.Run(t, "systemctl", "start", "--no-block", kimi)
	d.reaches(t, 60*time.Second, kimi, "serving")
	d.until(t, 10*time.Second, func(m metrics) error { return counted(m, 1, 2, 0) })
	w.stop()
	t.Run("crash", func(t *testing.T) { checkCrash(t, w) })
	t.Run("good start", func(t *testing.T) { checkGood(t, d) })
	t.Run("explain", func(t *testing.T) { checkUpgradeExplained(t, d) })
	t.Run("history", func(t *testing.T) { checkUpgradeHistory(t, d) })
}

// checkCrash looks at what was shown between the crash and the good start.
func checkCrash(t *testing.T, w *watcher) {
	shown, causes := 0, 0.0
	for _, m := range w.scrapes {
		if n, _ := m.sum("startupd_startup_errors", "unit", kimi, "class", "package_mismatch", "verdict", "cause"); n > causes {
			causes = n
		}
		if _, n := m.sum("startupd_root_cause_info", "unit", kimi); n == 0 {
			continue
		}
		got, err := m.cause(kimi)
		if err != nil || got.class != "package_mismatch" || got.exception != "RuntimeError" {
			t.Fatalf("the crash's cause is told as %+v, %v", got, err)
		}
		shown++
	}
	// It is shown until the next start serves, 13 s later.
	if shown < 20 {
		t.Errorf("the cause was shown in %d scrapes of %d", shown, len(w.scrapes))
	}
	if causes != 8 {
		t.Errorf("%v records tell of the cause, want one of each of 8 workers", causes)
	}
}

// checkGood sees to it that the good start has nothing of the crash.
func checkGood(t *testing.T, d *daemon) {
	m := d.metrics(t)
	if _, n := m.sum("startupd_root_cause_info", "unit", kimi); n != 0 {
		t.Errorf("it serves, and a cause is shown:\n%s", m.dump("root_cause", kimi))
	}
	for verdict, want := range map[string]float64{"benign": 10, "cause": 0, "symptom": 0, "suspect": 0} {
		got, _ := m.sum("startupd_startup_errors", "unit", kimi, "verdict", verdict)
		if verdict == "benign" && got >= want || got == want {
			continue
		}
		t.Errorf("%v errors are %s, want %v:\n%s", got, verdict, want, m.dump("startupd_startup_errors", kimi))
	}
	if err := check(m, metrics{
		key("startupd_last_startup_outcome", "unit", kimi, "outcome", "serving"): 1,
		key("startupd_restart_loop", "unit", kimi):                               0,
		// The start before, of the older version, had the same errors.
		key("startupd_new_errors", "unit", kimi): 0,
	}); err != nil {
		t.Error(err)
	}
}

// checkUpgradeExplained reads the three starts from the journal.
func checkUpgradeExplained(t *testing.T, d *daemon) {
	ex := d.explain(t, kimi)
	if len(ex.Startups) != 3 {
		t.Fatalf("explain tells of %d starts", len(ex.Startups))
	}
	for i, want := range []string{"serving", "failed", "serving"} {
		s := &ex.Startups[i]
		if s.Outcome != want || (s.RootCause != nil) != (want == "failed") {
			t.Errorf("start %d: want %s, and a cause if it failed: %v", i, want, s)
		}
		if err := noise(s); err != nil {
			t.Errorf("start %d: %v", i, err)
		}
	}
	if c := ex.Startups[1].RootCause; c == nil || c.Class != "package_mismatch" || text(c.Exception) != "RuntimeError" ||
		!strings.Contains(text(c.Message), "flashinfer-cubin version (0.6.3)") {
		t.Errorf("the crash is explained as %v", &ex.Startups[1])
	}
}

// noise wants the import errors of a start that served to be benign, and nothing
// else to be worse.
func noise(s *explainedStart) error {
	sparse := 0
	for _, f := range s.Findings {
		if f.Verdict != "benign" && s.Outcome == "serving" {
			return fmt.Errorf("a start that serves has %v", f)
		}
		if strings.Contains(text(f.Message), "SparseMatrix") {
			sparse += f.Count
		}
	}
	if want := map[string]int{"serving": 10}[s.Outcome]; sparse != want {
		return fmt.Errorf("the import error is told %d times, want %d: %v", sparse, want, s)
	}
	return nil
}

// diff is what these tests read of "new since the last good start".
type diff struct {
	Good   *struct{ Invocation string }
	Engine []struct{ Name, From, To string }
	Errors []newError
}

type newError struct{ Verdict, Class, Message string }

// sparse says that it is the import error that every good start has.
func (e newError) sparse() bool { return strings.Contains(e.Message, "SparseMatrix") }

func (e newError) harmful() bool { return e.Verdict != "benign" }

// upgraded says whether a diff tells of the new version, and of nothing else
// that the engine is.
func (f *diff) upgraded(good string) error {
	if f == nil || f.Good == nil || f.Good.Invocation != good {
		return fmt.Errorf("it is not compared with invocation %s: %+v", good, f)
	}
	if len(f.Engine) != 1 || f.Engine[0] != (struct{ Name, From, To string }{"version", "0.16.0rc2.dev313", "0.16.0rc2.dev344"}) {
		return fmt.Errorf("the new version is not told: %+v", f)
	}
	return nil
}

// kept is a start as the daemon's history has it.
type kept struct {
	Invocation, Outcome, Version string
	New                          *diff
}

// history waits until the daemon has kept n starts of a unit.
func (d *daemon) history(t *testing.T, unit string, n int) []kept {
	t.Helper()
	var starts []kept
	nspawn.Eventually(t, 10*time.Second, func() error {
		out, err := d.Command(t.Context(), "startupd", "history", "--unit", unit, "--format", "json").Output()
		if err != nil {
			return fmt.Errorf("startupd history: %w: %s", err, out)
		}
		var got struct{ Targets []struct{ Startups []kept } }
		if err := json.Unmarshal(out, &got); err != nil {
			return fmt.Errorf("%w in %s", err, out)
		}
		if len(got.Targets) != 1 || len(got.Targets[0].Startups) != n {
			return fmt.Errorf("want %d starts of one unit: %s", n, out)
		}
		starts = got.Targets[0].Startups
		return nil
	})
	return starts
}

// checkUpgradeHistory reads what the daemon has kept of the three starts.
func checkUpgradeHistory(t *testing.T, d *daemon) {
	starts := d.history(t, kimi, 3)
	for i, want := range []kept{
		{Outcome: "serving", Version: "0.16.0rc2.dev313"},
		{Outcome: "failed", Version: "0.16.0rc2.dev344"},
		{Outcome: "serving", Version: "0.16.0rc2.dev344"},
	} {
		if got := starts[i]; got.Outcome != want.Outcome || got.Version != want.Version {
			t.Errorf("start %d is kept as %+v, want %+v", i, got, want)
		}
	}
	crash, good := starts[1].New, d.explain(t, kimi, "--diff").Startups[2].Diff
	if err := crash.upgraded(starts[0].Invocation); err != nil {
		t.Errorf("new in the crash: %v", err)
	} else if e := crash.Errors; len(e) == 0 || e[0].Class != "package_mismatch" || slices.ContainsFunc(e, newError.sparse) {
		t.Errorf("the crash's errors are new, its cause first, and no other: %+v", e)
	}
	if err := good.upgraded(starts[0].Invocation); err != nil {
		t.Errorf("new in the good start: %v", err)
	} else if slices.ContainsFunc(good.Errors, newError.harmful) {
		t.Errorf("the good start has no new errors: %+v", good.Errors)
	}
}
