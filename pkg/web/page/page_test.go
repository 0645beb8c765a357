package page

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/startupd/startupd/pkg/web/api"
)

// zero is when the tests' starts begin; the page is seen a minute later.
func at(d time.Duration) time.Time {
	return time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC).Add(d)
}

func p[T any](v T) *T { return &v }

func ask(t *testing.T, h http.Handler, url string) *httptest.ResponseRecorder {
	t.Helper()
	w := httptest.NewRecorder()
	h.ServeHTTP(w, httptest.NewRequest(http.MethodGet, url, nil))
	return w
}

func newPage(t *testing.T, o Options) http.Handler {
	t.Helper()
	o.Zone = time.UTC
	h, err := New(o)
	if err != nil {
		t.Fatal(err)
	}
	return h
}

// pageOf is the page of these units at a minute after the start.
func pageOf(t *testing.T, units ...api.Unit) string {
	t.Helper()
	return pageWith(t, Options{}, &api.Status{At: at(time.Minute), Units: units})
}

func pageWith(t *testing.T, o Options, s *api.Status) string {
	t.Helper()
	o.Status = func() *api.Status { return s }
	w := ask(t, newPage(t, o), "/")
	body := w.Body.String()
	if w.Code != http.StatusOK || !strings.HasSuffix(strings.TrimSpace(body), "</html>") {
		t.Fatalf("%d, the page breaks off:\n%s", w.Code, body)
	}
	return body
}

// words is the text of a page without its marks, with single spaces.
func words(body string) string {
	body = regexp.MustCompile(`(?s)<(title|style|script)[^>]*>.*?</(title|style|script)>`).ReplaceAllString(body, "")
	body = regexp.MustCompile(`</(dt|dd|li|p)>`).ReplaceAllString(body, " ")
	body = regexp.MustCompile(`<[^>]*>`).ReplaceAllString(body, "")
	return strings.Join(strings.Fields(body), " ")
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

// loading is a unit whose start is in its second phase.
func loading() api.Unit {
	return api.Unit{
		Unit: "a.service", State: "load", Since: at(10 * time.Second),
		Startup: &api.Startup{
			Unit: "a.service", Invocation: "01", Began: at(0), Seconds: p(60.0), Outcome: api.Starting, Phase: "load", Step: "weights",
			StepBegan: at(15 * time.Second), Progress: p(0.4375), ProgressNote: "28/64 shards", ExpectedServing: at(10 * time.Minute),
			Engine: "testengine", Version: "1.2", Model: "example/model",
			Phases: []api.Phase{
				{Phase: "spawn", Entered: at(0), Seconds: p(10.0), Done: true, Evidence: &api.Evidence{Source: "unit"}},
				{Phase: "load", Entered: at(10 * time.Second), Seconds: p(50.0), Evidence: &api.Evidence{Source: "gpu", Provisional: true}},
			},
			Steps: []api.Step{{Phase: "load", Step: "weights", Entered: at(15 * time.Second), Seconds: p(45.0)}},
		},
	}
}

func TestStarting(t *testing.T) {
	body := pageOf(t, loading())
	wants(t, words(body), "▶ load starting for 1m 00s", "testengine 1.2 · example/model", "weights for 45s · 44 % (28/64 shards)",
		"Expected to serve in 9m 00s at 12:10:00 UTC", "spawn 10s", "load ▶running for 50s", "compile not reached", "load gpu, provisional")
	wants(t, body, `<progress id="u-a_2eservice-progress" max="1" value="0.4375"`, `data-kind="left" data-base="540.0"`,
		`<title>load · a.service</title>`)
	lacks(t, words(body), "No estimate", "progress is not known", "Why the")

	u := loading()
	u.Startup.ExpectedServing = at(50 * time.Second)
	wants(t, words(pageOf(t, u)), "Expected to serve 10s overdue at 12:00:50 UTC")
}

// TestBar: the drawing of the phases is to scale, with what is still to come.
func TestBar(t *testing.T) {
	v, list := timeline(loading().Startup, at(time.Minute))
	if len(v.Parts) != 2 || len(list) != 5 {
		t.Fatalf("%d parts, %d phases", len(v.Parts), len(list))
	}
	// 10 s and 50 s of 600 s.
	if w := v.Parts[1].Width; w < 83 || w > 84 {
		t.Errorf("load is %.1f of 1000 wide, want 83.3", w)
	}
	if !v.Parts[1].Running || v.Parts[0].Running {
		t.Errorf("running parts: %+v", v.Parts)
	}
	long := &api.Startup{Outcome: api.Failed, Ended: at(time.Hour), Phases: []api.Phase{
		{Phase: "spawn", Seconds: p(1e6)}, {Phase: "load", Seconds: p(0.001)}, {Phase: "compile", Seconds: p(0.001)},
	}}
	bar, _ := timeline(long, at(time.Hour))
	for _, part := range bar.Parts {
		if part.X < 0 || part.X+part.Width > barWidth+1e-6 || part.Width <= 0 {
			t.Errorf("part outside the bar: %+v", part)
		}
	}
}

func TestUnknownIsSaid(t *testing.T) {
	body := words(pageOf(t, api.Unit{Unit: "a.service", State: "unknown"}))
	wants(t, body, "? unknown since when is not known", "engine not known · model not known", "log not looked at", "main process not known",
		"restarts by systemd not known", "GPUs: not known; no sample has come.", "Sources: not known yet.", "no history is kept")
	lacks(t, body, "0.0s", "0 B", "0 %", "Phases")
	wants(t, body, "Why: nothing of this unit has been seen; `systemctl status a.service` tells whether it is there.")
	blind := &api.Status{At: at(time.Minute), Units: []api.Unit{{Unit: "a.service", State: "unknown"}}, Sources: []api.Source{
		{Source: "journal", State: "not_permitted", Reason: "join group systemd-journal"},
	}}
	wants(t, words(pageWith(t, Options{}, blind)), "Why: the journal can&#39;t be read: join group systemd-journal")

	u := loading()
	u.Startup = &api.Startup{Outcome: api.Starting, Phases: []api.Phase{{Phase: "spawn"}, {Phase: "load"}}}
	wants(t, words(pageOf(t, u)), "starting; since when is not known", "step not told", "progress is not known", "No estimate of when it will serve.", "load ▶running for not known")
}

// TestNothing: no field of any document is needed.
func TestNothing(t *testing.T) {
	wants(t, words(pageWith(t, Options{}, nil)), "Nothing is known yet", "As of not known")
	wants(t, words(pageWith(t, Options{}, &api.Status{})), "No unit has been seen yet.")
	empty := api.Status{
		Units: []api.Unit{{}, {Startup: &api.Startup{}, Last: &api.Startup{}, Failure: &api.RootCause{}}, {State: "load", Startup: &api.Startup{
			Phases: []api.Phase{{}}, Steps: []api.Step{{}}, RootCause: &api.RootCause{}, Findings: []api.Finding{{}}, Gaps: []api.Gap{{}},
		}}},
		GPUs: []api.GPU{{}}, Sources: []api.Source{{}},
	}
	o := Options{
		Startups: func(context.Context, string, int) ([]api.Startup, error) { return []api.Startup{{}}, nil },
		Memory:   func(string) *api.Memory { return nil },
	}
	wants(t, words(pageWith(t, o, &empty)), "not known how much used of a total not known")
}

func failedUnit() api.Unit {
	cause := &api.RootCause{
		Class: "package_mismatch", Exception: "RuntimeError", Message: "RuntimeError: cubin version (0.6.3) does not match", Process: "APIServer", Rule: "rc_cubin",
		Cursor: "s=1;i=2f", At: at(3 * time.Second), Remediation: "Install the same version.", Retry: p(false), LastLines: map[string]string{"Worker_TP1": "Loading <weights>"},
	}
	s := &api.Startup{
		Unit: "a.service", Invocation: "01", Began: at(0), Ended: at(4 * time.Second), Seconds: p(4.0), Outcome: api.Failed, Reason: "exit-code", Phase: "spawn",
		Phases: []api.Phase{{Phase: "spawn", Entered: at(0), Seconds: p(4.0)}}, RootCause: cause, NewErrors: p(2),
		Errors: map[string]int{"cause": 1, "benign": 9, "symptom": 2, "suspect": 700},
		Gaps:   []api.Gap{{Kind: "suppressed", Lines: 300}, {Kind: "suppressed", Lines: 12}, {Kind: "line_max"}}, GapCount: 4,
		Findings: []api.Finding{
			{Verdict: "benign", Class: "import_failed", Exception: "ImportError", Message: "cannot import SparseMatrix", Count: 9, Processes: []string{"APIServer", "Worker_TP0"}, Process: "APIServer", Good: p(14), Bad: p(0)},
			{Verdict: "cause", Class: "package_mismatch", Exception: "RuntimeError", Message: cause.Message, Count: 1, Process: "APIServer", At: at(3 * time.Second)},
			{Verdict: "symptom", Class: "unknown", Message: "a worker did not come up", Count: 2},
		},
	}
	for range 60 {
		s.Findings = append(s.Findings, api.Finding{Verdict: "suspect", Class: "unknown", Message: "an old one", Count: 1})
	}
	s.Findings = append(s.Findings, api.Finding{Verdict: "suspect", Class: "unknown", Message: "the only one that is new", Count: 1, New: true})
	return api.Unit{Unit: "a.service", State: api.Failed, Since: at(4 * time.Second), Startup: s, Failure: cause, LastOutcome: api.Failed}
}

func TestFailed(t *testing.T) {
	body := pageOf(t, failedUnit())
	text := words(body)
	wants(t, text, "✖ failed 56s ago · after 4.0s", "Why the start failed: package_mismatch", "RuntimeError: cubin version (0.6.3) does not match",
		"Told by APIServer, 2026-03-01 12:00:03 UTC (57s ago), by rule rc_cubin.", "To do: Install the same version.", "Starting again does not help.",
		"journalctl --cursor=&#39;s=1;i=2f&#39;", "It failed: exit-code", "New errors: 2 kinds", "spawn ✖ failed after 4.0s",
		"cause: 1 record of 1 kind", "benign: 9 records of 1 kind", "symptom: 2 records of 1 kind", "suspect: 700 records of 61 kinds 1 new",
		"ImportError: cannot import SparseMatrix", "2 processes, first APIServer", "seen before in 14 good starts and 0 failed ones",
		"the only one that is new", "41 more kinds are not listed.", "line max, 1 time; suppressed, 2 times, 312 lines; 1 gap of a kind not told. A verdict may be wrong.",
		"Worker_TP1 Loading &lt;weights&gt;")
	if n := strings.Count(body, `class="cause"`); n != 1 {
		t.Errorf("%d cards, want 1", n)
	}
	for _, order := range [][2]string{{"Why the start failed", "Phases"}, {"suspect: 700", "symptom: 2"}, {"symptom: 2", "benign: 9"}, {"the only one that is new", "an old one"}} {
		if strings.Index(text, order[0]) > strings.Index(text, order[1]) {
			t.Errorf("%q stands after %q", order[0], order[1])
		}
	}
	lacks(t, text, "provisional", "Waited for")
}

// TestNextStart: the failure stays in sight, and is not taken for the present
// start's.
func TestNextStart(t *testing.T) {
	failed := failedUnit()
	u := loading()
	u.Last, u.Failure, u.RestartLoop, u.Restarts = failed.Startup, failed.Failure, true, p(3)
	u.Startup.Invocation = "02"
	text := words(pageOf(t, u))
	wants(t, text, "Why the last failed start failed: package_mismatch", "Errors of the last failed start",
		"It restarts in a loop: its last starts have all failed; systemd has restarted it 3 times.")
	lacks(t, text, "Errors of this start", "Why the start failed")
	if strings.Index(text, "Expected to serve") > strings.Index(text, "Why the last") {
		t.Error("an old failure stands before the present start")
	}
}

func TestUnknownCause(t *testing.T) {
	u := failedUnit()
	u.Startup.RootCause = &api.RootCause{
		Class: "unknown", Message: "no line of the log names a cause", DiedIn: "load", ExitStatus: "exited, status 1", Provisional: true,
		LastLines: map[string]string{"Worker_TP1": "Loading weights"}, NotArrived: []string{"Worker_TP2", "Worker_TP3"},
	}
	body := pageOf(t, u)
	wants(t, words(body), "Why the start failed: unknown provisional: evidence may still come", "Which process told it is not known", "It ended in phase load, exited, status 1.",
		"Waited for: Worker_TP2, Worker_TP3", "Whether starting again can help is not known.")
	wants(t, body, `id="u-a_2eservice-cause-01-0-lines" data-fold="open" open`)
}

func TestStalled(t *testing.T) {
	u := loading()
	u.Startup.Outcome, u.Startup.Reason, u.Startup.RootCause = api.Stalled, "no sign for 5 min in weights", &api.RootCause{Class: "nccl_hang"}
	text := words(pageOf(t, u))
	wants(t, text, "▲ load, stalled", "Why the start hangs: nccl_hang", "Stalled: no sign for 5 min in weights")
	u = loading()
	u.Startup.Slow = true
	u.Startup.AttachedLate = true
	u.Disagreement = "the log says ready, the port refuses"
	wants(t, words(pageOf(t, u)), "load, slow", "Slow, not stalled:", "Attached late:", "Sources disagree: the log says ready, the port refuses")
}

// TestAttachedLate: what was missed is told from what is still to come.
func TestAttachedLate(t *testing.T) {
	u := loading()
	u.Startup.AttachedLate, u.Startup.Phases = true, u.Startup.Phases[1:]
	wants(t, words(pageOf(t, u)), "spawn not seen", "load ▶running for 50s", "compile not reached", "serving not reached")
}

// TestServedThenDied: that it served once is no failed start.
func TestServedThenDied(t *testing.T) {
	u := loading()
	u.State, u.Since = api.Failed, at(50*time.Second)
	s := u.Startup
	s.Outcome, s.Phase, s.Ended, s.Seconds = api.Serving, api.Serving, at(20*time.Second), p(20.0)
	s.ServingEnded, s.ServingEndReason = at(50*time.Second), "killed"
	s.Phases = []api.Phase{{Phase: "spawn", Seconds: p(20.0), Done: true}, {Phase: api.Serving, Entered: at(20 * time.Second), Seconds: p(30.0), Done: true}}
	text := words(pageOf(t, u))
	wants(t, text, "✖ failed 10s ago · its last start served after 20s", "It no longer serves: it was killed at 12:00:50 UTC", "serving 30s")
	lacks(t, text, "Why the", "running", "Expected to serve")
}

// TestHostileText: whatever the log holds stays text, and what hides in it is
// seen.
func TestHostileText(t *testing.T) {
	evil := "<script>alert(1)</script>\"'><img src=x onerror=1> \u202ereversed \u2066 \x1b[31m \x00 \xff " + strings.Repeat("x", 5000)
	u := failedUnit()
	u.Unit = `a@<b>"x.service`
	c := &api.RootCause{Class: evil, Exception: evil, Message: evil, Process: evil, Rule: evil, Cursor: "s=1'; rm -rf /", Remediation: evil, DiedIn: evil, ExitStatus: evil, NotArrived: []string{evil}, LastLines: map[string]string{evil: evil}}
	s := u.Startup
	s.RootCause, s.Reason, s.Step, s.ProgressNote, s.Engine, s.Version, s.Model = c, evil, evil, evil, evil, evil, evil
	s.Arguments, s.Versions, s.LastLines = map[string]string{evil: evil}, map[string]string{evil: evil}, map[string]string{evil: evil}
	s.Steps, s.Gaps = []api.Step{{Phase: "load", Step: evil}}, []api.Gap{{Kind: evil, Detail: evil}}
	s.Findings = []api.Finding{{Verdict: "cause", Class: evil, Message: evil, Process: evil, Processes: []string{evil, evil}, Count: 1}}
	s.Phases[0].Evidence = &api.Evidence{Source: evil, Rule: evil, Text: evil}
	s.Seconds, u.Disagreement = nil, evil
	body := pageWith(t, Options{}, &api.Status{
		At: at(time.Minute), Units: []api.Unit{u}, Sources: []api.Source{{Source: evil, Unit: evil, State: evil, Reason: evil}},
		GPUs: []api.GPU{{GPU: 1, Name: evil, Lost: evil}},
	})
	lacks(t, body, "<script>alert", "<img", "\u202e", "\u2066", "\x1b", "\x00", "\xff", "rm -rf", strings.Repeat("x", maxText+1))
	wants(t, body, "&lt;script&gt;", `\u202ereversed`, `\x1b`, `\xff`, "bytes more)")
}

func TestOrderAndOverview(t *testing.T) {
	var units []api.Unit
	for i := range 20 {
		u := api.Unit{Unit: fmt.Sprintf("m%02d.service", i), State: api.Serving, Since: at(0)}
		switch i {
		case 3:
			u.State = "unknown"
		case 5:
			u.State = api.Stopped
		case 7:
			u = loading()
			u.Unit = "m07.service"
		case 11:
			u = failedUnit()
			u.Unit = "m11.service"
		case 13:
			u = loading()
			u.Unit, u.Startup.Outcome = "m13.service", api.Stalled
		case 17:
			u.Disagreement = "health refuses"
		}
		units = append(units, u)
	}
	body := pageOf(t, units...)
	var order []string
	for _, m := range regexp.MustCompile(`data-unit="(m\d\d)\.service"`).FindAllStringSubmatch(body, -1) {
		order = append(order, m[1])
	}
	if got := strings.Join(order[:7], " "); len(order) != 20 || got != "m11 m13 m07 m17 m03 m05 m00" {
		t.Errorf("%d units, first %s", len(order), got)
	}
	wants(t, body, `<nav id="overview"`, `href="#u-m00_2eservice"`, "<title>1 failed · 1 stalled · 1 starting · 1 in doubt · 1 unknown · 1 stopped · 14 serving · startupd</title>",
		`<details id="u-m00_2eservice-fold" class="fold" data-fold="closed">`, `<details id="u-m11_2eservice-fold" class="fold" data-fold="open" open>`)
	lacks(t, pageOf(t, units[:3]...), `<nav id="overview"`)
	ids := map[string]bool{}
	for _, m := range regexp.MustCompile(` id="([^"]*)"`).FindAllStringSubmatch(body, -1) {
		if ids[m[1]] {
			t.Errorf("the id %q is there twice", m[1])
		}
		ids[m[1]] = true
	}
}

func TestFragments(t *testing.T) {
	s := &api.Status{At: at(time.Minute), Units: []api.Unit{failedUnit(), {Unit: "b@1.service", State: "unknown"}}}
	h := newPage(t, Options{Status: func() *api.Status { return s }})
	whole := ask(t, h, "/").Body.String()
	// The script takes nothing that begins otherwise.
	if units := ask(t, h, "/page/units").Body.String(); !strings.HasPrefix(units, `<div id="data"`) || !strings.Contains(whole, units) || !strings.Contains(units, "b@1.service") {
		t.Error("the fragment of all units is not a part of the page")
	}
	one := ask(t, h, "/page/unit?unit=b@1.service").Body.String()
	if !strings.Contains(whole, strings.TrimSpace(one)) || !strings.HasPrefix(one, "<section") || strings.Contains(one, "a.service") {
		t.Errorf("the fragment of a unit is not its part of the page:\n%s", one)
	}
	if host := ask(t, h, "/page/host").Body.String(); !strings.Contains(whole, strings.TrimSpace(host)) || !strings.HasPrefix(host, `<section id="host"`) {
		t.Errorf("the fragment of the host is not its part of the page:\n%s", host)
	}
	for _, path := range []string{"/page/unit?unit=c", "/page/unit", "/page/memory?unit=c", "/page/assets/none.js", "/page/assets/README.md", "/page/", "/other"} {
		if w := ask(t, h, path); w.Code != http.StatusNotFound {
			t.Errorf("%s: %d", path, w.Code)
		}
	}
}

func TestRefreshWithoutScript(t *testing.T) {
	h := newPage(t, Options{Status: func() *api.Status { return nil }})
	wants(t, ask(t, h, "/").Body.String(), `<noscript><meta http-equiv="refresh" content="5"></noscript>`, "?refresh=off")
	lacks(t, ask(t, h, "/?refresh=off").Body.String(), "http-equiv")
}

func TestHeaders(t *testing.T) {
	h := newPage(t, Options{Status: func() *api.Status { return nil }})
	for _, path := range []string{"/", "/page/units", "/page/unit?unit=x"} {
		head := ask(t, h, path).Header()
		if head.Get("Cache-Control") != "no-store" || head.Get("X-Content-Type-Options") != "nosniff" || head.Get("Referrer-Policy") != "no-referrer" {
			t.Errorf("%s: %v", path, head)
		}
		csp := head.Get("Content-Security-Policy")
		wants(t, csp, "default-src 'none'", "script-src 'self'", "frame-ancestors 'none'", "base-uri 'none'", "form-action 'none'")
		lacks(t, csp, "unsafe", "http:", "*")
	}
}

func TestOptionsAreChecked(t *testing.T) {
	if _, err := New(Options{}); err == nil || !strings.Contains(err.Error(), "Options.Status is nil") {
		t.Errorf("error %v", err)
	}
}

func TestMemoryAnswer(t *testing.T) {
	u := loading()
	h := newPage(t, Options{
		Status: func() *api.Status { return &api.Status{Units: []api.Unit{u}} },
		Memory: func(unit string) *api.Memory {
			return &api.Memory{Unit: unit, At: []float64{100, 102}, GPUs: []api.MemorySeries{{GPU: 0, Unit: []*uint64{p(uint64(1 << 30)), nil}}}}
		},
	})
	var got plot
	if err := json.Unmarshal(ask(t, h, "/page/memory?unit=a.service").Body.Bytes(), &got); err != nil {
		t.Fatal(err)
	}
	if len(got.Lines) != 1 || *got.Lines[0].Y[0] != 1 || got.Lines[0].Y[1] != nil || got.X[1] != 2 {
		t.Errorf("%+v", got)
	}
	wants(t, ask(t, h, "/").Body.String(), `class="plot" data-unit="a.service"`)
}

func TestHistoryTrouble(t *testing.T) {
	u := loading()
	calls := 0
	o := Options{Startups: func(context.Context, string, int) ([]api.Startup, error) {
		calls++
		return []api.Startup{good(1, 20)}, errors.New("history.db: <locked>")
	}}
	wants(t, words(pageWith(t, o, &api.Status{At: at(time.Minute), Units: []api.Unit{u}})), "Not complete: history.db: &lt;locked&gt;", "▶ starting 1m 00s", "● serving 30s")
	if calls != 1 {
		t.Errorf("%d reads", calls)
	}
}
