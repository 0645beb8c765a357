package app

import (
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/startupd/startupd/pkg/event"
	"github.com/startupd/startupd/pkg/phases"
	"github.com/startupd/startupd/pkg/triage"
)

// pageOf is the page of one unit at a minute after the start of the test.
func pageOf(t *testing.T, target phases.Target) string {
	t.Helper()
	target.Name = "a.service"
	h := testAPI(t, func(a *api) {
		a.snapshot = func() *phases.Snapshot { return &phases.Snapshot{Targets: []phases.Target{target}} }
		a.clock = func() event.Stamp { return at(time.Minute) }
	})
	w := ask(h, http.MethodGet, "/")
	if w.Code != http.StatusOK {
		t.Fatalf("%d %s", w.Code, w.Body)
	}
	if body := w.Body.String(); strings.HasSuffix(strings.TrimSpace(body), "</html>") {
		return body
	}
	t.Fatalf("the page breaks off:\n%s", w.Body)
	return ""
}

func wants(t *testing.T, body string, all ...string) {
	t.Helper()
	for _, want := range all {
		if !strings.Contains(body, want) {
			t.Errorf("the page lacks %q", want)
		}
	}
	if t.Failed() {
		t.Log(body)
	}
}

func lacks(t *testing.T, body string, all ...string) {
	t.Helper()
	for _, bad := range all {
		if strings.Contains(body, bad) {
			t.Errorf("the page has %q:\n%s", bad, body)
		}
	}
}

func TestPageOfARunningStart(t *testing.T) {
	part := 0.4375
	s := try("01", 0, 2)
	s.Progress, s.ProgressNote, s.ExpectedServing, s.Step = &part, "28/64 shards", at(10*time.Minute), "weights"
	s.Engine = phases.Engine{Name: "testengine", Version: "1.2", Model: "example/model"}
	body := pageOf(t, running(s))
	wants(t, body,
		`value="0.4375"`, "44 %", "(28/64 shards)", "in 9m0s", moment(at(10*time.Minute)), "starting for 1m0s",
		"testengine 1.2, example/model", `class="running"`, `load <span class="n">50s</span>`, `spawn <span class="n">10s</span>`,
	)
	lacks(t, body, "no estimate", "progress is not known", `class="card"`, "<details")

	s.ExpectedServing = at(50 * time.Second)
	wants(t, pageOf(t, running(s)), "10s overdue")
}

func TestPageSaysWhatIsNotKnown(t *testing.T) {
	wants(t, pageOf(t, running(try("01", 0, 1))), "progress is not known", "no estimate of when it will serve")
	body := pageOf(t, phases.Target{State: phases.Unknown})
	wants(t, body, `<span class="badge unknown">unknown</span>`)
	lacks(t, body, "<progress", "no estimate", "took")
}

func failedTarget() phases.Target {
	no := false
	c := mismatch(false)
	c.Cursor, c.Retry = "s=1;i=2f", &no
	s := ended(try("01", 0, 1), 4*time.Second, phases.OutcomeFailed, "exit-code")
	s.RootCause = c
	s.Errors = map[phases.ErrorKey]int{
		{Class: "package_mismatch", Verdict: "cause"}: 1, {Class: "import_failed", Verdict: "benign"}: 9,
		{Class: "unknown", Verdict: "symptom"}: 2, {Class: "unknown", Verdict: "suspect"}: 700,
	}
	good, bad := 14, 0
	s.Findings = []triage.Finding{
		{Verdict: triage.Benign, Class: "import_failed", Exception: "ImportError", Message: "cannot import SparseMatrix", Count: 9, Processes: []string{"APIServer", "Worker_TP0"}, Process: "APIServer", Good: &good, Bad: &bad},
		{Verdict: triage.Cause, Class: "package_mismatch", Exception: "RuntimeError", Message: c.Message, Count: 1, Process: "APIServer", At: at(3 * time.Second)},
		{Verdict: triage.Symptom, Class: "unknown", Message: "WorkerProc initialization failed", Count: 2},
	}
	for range 60 {
		s.Findings = append(s.Findings, triage.Finding{Verdict: triage.Suspect, Class: "unknown", Message: "an old one", Count: 1})
	}
	s.Findings = append(s.Findings, triage.Finding{Verdict: triage.Suspect, Class: "unknown", Message: "the only one that is new", Count: 1, New: true})
	s.Gaps = []phases.Gap{{Kind: event.GapSuppressed, Lines: 300}, {Kind: event.GapSuppressed, Lines: 12}, {Kind: event.GapLineMax}}
	return phases.Target{State: phases.Failed, Startup: s, Last: s, Failure: c, LastOutcome: phases.OutcomeFailed}
}

func TestPageOfAFailedStart(t *testing.T) {
	body := pageOf(t, failedTarget())
	wants(t, body,
		`Why the start failed: <span class="class">package_mismatch</span>`,
		"RuntimeError: flashinfer-cubin version (0.6.3) does not match", "told by <b>APIServer</b>", moment(at(3*time.Second))+", 57s ago",
		"To do: Install flashinfer-cubin 0.6.4.", "Starting again does not help.", "journalctl --cursor=&#39;s=1;i=2f&#39;",
		"<b>cause</b>: 1 record of 1 kind", "<b>benign</b>: 9 records of 1 kind", "<b>symptom</b>: 2 records of 1 kind", "<b>suspect</b>: 700 records of 61 kinds",
		"ImportError: cannot import SparseMatrix", "2 processes, first APIServer", "seen before in 14 good starts and 0 failed ones",
		"the only one that is new", "11 more kinds are not listed.",
		"line_max, 1 time;", "suppressed, 2 times, 312 lines;",
	)
	if n := strings.Count(body, `class="card"`); n != 1 {
		t.Errorf("%d cards, want 1", n)
	}
	if strings.Index(body, "<b>suspect</b>") > strings.Index(body, "<b>benign</b>") {
		t.Error("harmless errors stand before those that matter")
	}
	lacks(t, body, "<details open", "provisional", "<script")
}

// TestPageOfTheNextStart: the failure stays in sight, and is not taken for the
// present start's.
func TestPageOfTheNextStart(t *testing.T) {
	target := failedTarget()
	target.State, target.Startup = phases.Spawn, try("02", 30*time.Second, 1)
	target.RestartLoop = true
	body := pageOf(t, target)
	wants(t, body, "Why the last failed start failed", "package_mismatch", "Errors of the last failed start", "It restarts in a loop")
	lacks(t, body, "Errors of this start", "Why the start failed")

	target.State, target.Startup, target.Failure = phases.Serving, ended(try("02", 30*time.Second, 5), 20*time.Second, phases.OutcomeServing, "ready"), nil
	target.Last = target.Startup
	body = pageOf(t, target)
	wants(t, body, "start-up took 20s")
	lacks(t, body, "package_mismatch", `class="card"`)
}

func TestPageOfAnUnknownCause(t *testing.T) {
	target := failedTarget()
	c := &triage.RootCause{
		Class: triage.ClassUnknown, Message: "no line of the log names a cause", DiedIn: "load", ExitStatus: "exited, status 1",
		LastLines: map[string]string{"Worker_TP1": "Loading <weights>", "APIServer": "waiting"}, Provisional: true,
	}
	target.Startup.RootCause, target.Failure = c, c
	wants(t, pageOf(t, target), `class="class">unknown<`, "no line of the log names a cause", "process not told", "provisional",
		"It ended in phase load, exited, status 1.", "Loading &lt;weights&gt;", "Worker_TP1")
}

func TestPageOfAHang(t *testing.T) {
	s := try("01", 0, 2)
	s.Stalled, s.StalledReason = true, "distributed_init: quiet for 5m0s"
	s.RootCause = &triage.RootCause{Class: "nccl_hang", NotArrived: []string{"Worker_TP3", "Worker_TP5"}}
	body := pageOf(t, running(s))
	wants(t, body, "Why the start hangs", "nccl_hang", "Waited for: Worker_TP3, Worker_TP5", "distributed_init: quiet for 5m0s", `class="badge stalled"`)
}

// TestPageEscapesTheLog: no text of a log becomes markup, in any place.
func TestPageEscapesTheLog(t *testing.T) {
	const evil = `</td><script>alert(1)</script>"'&`
	c := &triage.RootCause{
		Class: evil, Exception: evil, Message: "m" + evil, Process: evil, Remediation: evil, DiedIn: evil, ExitStatus: evil,
		LastLines: map[string]string{evil: evil}, NotArrived: []string{evil}, Cursor: evil, At: at(0),
	}
	s := try("01", 0, 1)
	s.RootCause, s.Step, s.ProgressNote, s.Reason, s.Stalled, s.StalledReason = c, evil, evil, evil, true, evil
	s.Engine = phases.Engine{Name: evil, Version: evil, Model: evil}
	s.Findings = []triage.Finding{{Verdict: triage.Benign, Class: evil, Exception: evil, Message: evil, Process: evil, Processes: []string{evil, evil}, Count: 1}}
	s.Gaps = []phases.Gap{{Kind: evil}}
	lacks(t, pageOf(t, phases.Target{State: phases.Spawn, Startup: s, Failure: c, Disagreement: evil}), "<script", `'s=`)
}

func TestPageCanBeHeld(t *testing.T) {
	h := testAPI(t, nil)
	const refresh = `http-equiv="refresh"`
	wants(t, ask(h, http.MethodGet, "/").Body.String(), refresh, `href="/?refresh=off"`)
	lacks(t, ask(h, http.MethodGet, "/?refresh=off").Body.String(), refresh)
}

func TestKnowsClass(t *testing.T) {
	set, err := LoadProfiles("")
	if err != nil {
		t.Fatal(err)
	}
	s := &settings{profiles: set}
	if !s.knowsClass("package_mismatch") || s.knowsClass("made_up") || s.knowsClass("") {
		t.Error("the classes are not the catalogue's")
	}
}
