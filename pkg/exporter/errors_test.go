package exporter_test

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/startupd/startupd/pkg/event"
	"github.com/startupd/startupd/pkg/exporter"
	"github.com/startupd/startupd/pkg/phases"
	"github.com/startupd/startupd/pkg/triage"
)

// crashed is a unit whose last start failed of the cause.
func crashed(c *triage.RootCause) *phases.Snapshot {
	st := &phases.Startup{Began: at(0), Ended: at(4), Outcome: phases.OutcomeFailed, RootCause: c}
	return &phases.Snapshot{At: at(5), Targets: []phases.Target{{
		Name: "a.service", State: phases.Failed, Startup: st, Last: st, Failure: c, LastOutcome: phases.OutcomeFailed,
	}}}
}

// TestRootCauseComesAndGoes scrapes one collector over HTTP, as Prometheus
// does, from a crash to the start that serves.
func TestRootCauseComesAndGoes(t *testing.T) {
	snap := crashed(&triage.RootCause{
		Class: "package_mismatch", Exception: "RuntimeError", Process: "APIServer",
		Message: "flashinfer-cubin version (0.6.3) does not match flashinfer version (0.6.4)",
	})
	reg := prometheus.NewPedanticRegistry()
	reg.MustRegister(exporter.New(exporter.Options{
		Snapshot:   func() *phases.Snapshot { return snap },
		Clock:      func() event.Stamp { return at(5) },
		KnowsClass: func(class string) bool { return class == "package_mismatch" },
	}))
	h := promhttp.HandlerFor(reg, promhttp.HandlerOpts{})
	scrape := func() string {
		w := httptest.NewRecorder()
		h.ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/metrics", nil))
		if w.Code != http.StatusOK {
			t.Fatalf("/metrics: %d %s", w.Code, w.Body)
		}
		return w.Body.String()
	}
	const series = `startupd_root_cause_info{class="package_mismatch",exception="RuntimeError",process="APIServer",unit="a.service"} 1`
	if body := scrape(); !strings.Contains(body, series+"\n") {
		t.Errorf("after the crash there is no %s in\n%s", series, body)
	}

	// The next start runs: its phase is its own, the cause is still the last one's.
	next := *snap
	next.Targets = []phases.Target{snap.Targets[0]}
	next.Targets[0].State, next.Targets[0].Startup = phases.Load, &phases.Startup{Began: at(6)}
	snap = &next
	if body := scrape(); !strings.Contains(body, series+"\n") {
		t.Error("the cause is gone before a start serves")
	}

	served := next
	served.Targets = []phases.Target{next.Targets[0]}
	served.Targets[0].State, served.Targets[0].Failure = phases.Serving, nil
	snap = &served
	if body := scrape(); strings.Contains(body, "startupd_root_cause_info") {
		t.Errorf("the cause outlives the start that serves:\n%s", body)
	}
}

func TestRootCauseLabels(t *testing.T) {
	long := strings.Repeat("m", 60)
	for _, tt := range []struct {
		name                      string
		cause                     triage.RootCause
		class, exception, process string
	}{
		{name: "nothing told", class: "unknown"},
		{name: "unknown", cause: triage.RootCause{Class: triage.ClassUnknown, DiedIn: "load"}, class: "unknown"},
		{name: "a class of no catalogue", cause: triage.RootCause{Class: "made_up"}, class: "unknown"},
		{name: "kernel", cause: triage.RootCause{Class: "gpu_oom_weights", Process: "kernel"}, class: "gpu_oom_weights", process: "kernel"},
		{name: "with modules", cause: triage.RootCause{Exception: "torch.OutOfMemoryError"}, class: "unknown", exception: "torch.OutOfMemoryError"},
		{name: "with long modules", cause: triage.RootCause{Exception: long + "." + long + ".Error"}, class: "unknown", exception: "Error"},
		{name: "64 bytes", cause: triage.RootCause{Exception: long + "." + "abc"}, class: "unknown", exception: long + ".abc"},
		{name: "one long name", cause: triage.RootCause{Exception: "a." + long + long}, class: "unknown", exception: (long + long)[:64]},
		{name: "no type", cause: triage.RootCause{Exception: "Worker failed: see above"}, class: "unknown"},
		{name: "a number", cause: triage.RootCause{Exception: "0x7f00"}, class: "unknown"},
		{name: "an empty part", cause: triage.RootCause{Exception: "torch..Error"}, class: "unknown"},
		{name: "a line more", cause: triage.RootCause{Exception: "Error\n"}, class: "unknown"},
		{name: "invalid UTF-8", cause: triage.RootCause{Exception: "Err\xff", Process: "Work\xffer"}, class: "unknown", process: "Work er"},
		{name: "pid in brackets", cause: triage.RootCause{Process: "(Worker_TP3 pid=4711)"}, class: "unknown", process: "Worker_TP3"},
		{name: "pid with an address", cause: triage.RootCause{Process: "RayWorkerWrapper pid=99, ip=192.0.2.7"}, class: "unknown", process: "RayWorkerWrapper ip 192.0.2.7"},
		{name: "no pid", cause: triage.RootCause{Process: "rapid"}, class: "unknown", process: "rapid"},
		{name: "rank", cause: triage.RootCause{Process: "[rank3]"}, class: "unknown", process: "rank3"},
		{name: "controls", cause: triage.RootCause{Process: "\x1b[31mEngine\r\nCore\x00\u202e"}, class: "unknown", process: "31mEngine Core"},
		{name: "a long process", cause: triage.RootCause{Process: strings.Repeat("ä", 100)}, class: "unknown", process: strings.Repeat("ä", 32)},
	} {
		t.Run(tt.name, func(t *testing.T) {
			want := fmt.Sprintf(`startupd_root_cause_info{class=%q,exception=%q,process="%s",unit="a.service"} 1`, tt.class, tt.exception, tt.process)
			if got := seriesOf(text(t, collector(crashed(&tt.cause), at(5))), "startupd_root_cause_info"); len(got) != 1 || got[0] != want {
				t.Errorf("got %q\nwant %q", got, want)
			}
		})
	}
}

// TestHostileLogMakesNoSeries: a unit that crashes again and again, each time
// with other words, has one root cause at any time, and counts of no more
// classes than the catalogue has.
func TestHostileLogMakesNoSeries(t *testing.T) {
	const starts = 5000
	snap := crashed(&triage.RootCause{})
	target := &snap.Targets[0]
	target.Startup.Errors = map[phases.ErrorKey]int{}
	target.Counters.Errors = map[phases.ErrorKey]uint64{}
	c := collector(snap, at(5))
	most := len(classes()) + 1 // and unknown
	for i := range starts {
		evil := fmt.Sprintf("evil_%d", i)
		target.Failure = &triage.RootCause{Class: evil, Exception: "a.b.Evil" + evil, Process: evil + " pid=1", Message: evil}
		for _, verdict := range []triage.Verdict{"cause", "symptom", "suspect", "benign", triage.Verdict("verdict " + evil)} {
			k := phases.ErrorKey{Class: evil, Verdict: verdict}
			target.Startup.Errors[k]++
			target.Counters.Errors[k]++
		}
		if i%250 != 0 && i != starts-1 {
			continue
		}
		got := text(t, c)
		if n := len(seriesOf(got, "startupd_root_cause_info")); n != 1 {
			t.Fatalf("start %d: %d root causes of one unit", i, n)
		}
		for _, family := range []string{"startupd_startup_errors", "startupd_errors_total"} {
			if n := len(seriesOf(got, family)); n > 4*most {
				t.Fatalf("start %d: %d series of %s, want at most %d", i, n, family, 4*most)
			}
		}
	}
	for series, want := range map[string]float64{
		`startupd_errors_total{class="unknown",unit="a.service",verdict="cause"}`:    starts,
		`startupd_errors_total{class="unknown",unit="a.service",verdict="suspect"}`:  2 * starts,
		`startupd_startup_errors{class="unknown",unit="a.service",verdict="benign"}`: starts,
	} {
		if got := value(t, c, series); got != want {
			t.Errorf("%s = %v, want %v: a record is lost", series, got, want)
		}
	}
}

// TestOneRootCauseAUnit scrapes after every one of many failures.
func TestOneRootCauseAUnit(t *testing.T) {
	snap := &phases.Snapshot{At: at(0)}
	c := collector(snap, at(5))
	for i := range 2000 {
		snap.Targets = nil
		for _, unit := range []string{"a.service", "b.service"} {
			snap.Targets = append(snap.Targets, phases.Target{Name: unit, State: phases.Failed, Failure: &triage.RootCause{
				Class: "package_mismatch", Exception: fmt.Sprintf("Error%d", i), Process: fmt.Sprintf("Worker_%d", i),
			}})
		}
		if got := collect(c, "startupd_root_cause_info"); got != 2 {
			t.Fatalf("%d root causes of two units", got)
		}
	}
}

// collect counts the samples of a family without the cost of a registry.
func collect(c prometheus.Collector, family string) int {
	ch := make(chan prometheus.Metric)
	go func() { defer close(ch); c.Collect(ch) }()
	n := 0
	for m := range ch {
		if strings.Contains(m.Desc().String(), `fqName: "`+family+`"`) {
			n++
		}
	}
	return n
}

func TestNewErrors(t *testing.T) {
	snap := crashed(&triage.RootCause{})
	const family = "startupd_new_errors"
	if got := seriesOf(text(t, collector(snap, at(5))), family); len(got) != 0 {
		t.Errorf("history knows no good start, and yet %q", got)
	}
	for _, n := range []int{0, 3} {
		snap.Targets[0].Startup.NewErrors = &n
		want := fmt.Sprintf(`%s{unit="a.service"} %d`, family, n)
		if got := seriesOf(text(t, collector(snap, at(5))), family); len(got) != 1 || got[0] != want {
			t.Errorf("got %q, want %q", got, want)
		}
	}
}

// TestNoCatalogue: without one there is no class that could be trusted.
func TestNoCatalogue(t *testing.T) {
	c := exporter.New(exporter.Options{
		Snapshot: func() *phases.Snapshot { return crashed(&triage.RootCause{Class: "package_mismatch"}) },
		Clock:    func() event.Stamp { return at(5) },
	})
	want := `startupd_root_cause_info{class="unknown",exception="",process="",unit="a.service"} 1`
	if got := seriesOf(text(t, c), "startupd_root_cause_info"); len(got) != 1 || got[0] != want {
		t.Errorf("got %q, want %q", got, want)
	}
}

// seriesOf returns the lines of a family's samples.
func seriesOf(text, family string) []string {
	var out []string
	for line := range strings.Lines(text) {
		if strings.HasPrefix(line, family+"{") {
			out = append(out, strings.TrimSuffix(line, "\n"))
		}
	}
	return out
}
