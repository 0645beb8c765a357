package exporter_test

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"

	"github.com/startupd/startupd/pkg/event"
	"github.com/startupd/startupd/pkg/exporter"
	"github.com/startupd/startupd/pkg/phases"
	"github.com/startupd/startupd/pkg/triage"
)

var update = flag.Bool("update", false, "rewrite the golden files")

const boot = "00000000000000000000000000000001"

// at is a moment s seconds after the first startup of the test began.
func at(s float64) event.Stamp {
	d := time.Duration(s * float64(time.Second))
	return event.Stamp{
		Real: time.Date(2026, 3, 1, 23, 37, 31, 0, time.UTC).Add(d),
		Boot: boot,
		Mono: 1000*time.Second + d,
	}
}

func ptr[T any](v T) *T { return &v }

func collector(snap *phases.Snapshot, now event.Stamp) *exporter.Collector {
	return exporter.New(exporter.Options{
		Snapshot:   func() *phases.Snapshot { return snap },
		Clock:      func() event.Stamp { return now },
		KnowsClass: func(class string) bool { return slices.Contains(classes(), class) },
		Build:      exporter.Build{Version: "1.2.3", Revision: "abcdef0", GoVersion: "go1.26.0"},
	})
}

// classes are those of the test's catalogue.
func classes() []string { return []string{"package_mismatch", "import_failed", "gpu_oom_weights"} }

func histogramOf(seconds ...float64) phases.Histogram {
	h := phases.Histogram{Buckets: make([]uint64, len(phases.PhaseBuckets())), Native: map[int]uint64{}}
	for _, s := range seconds {
		h.Count++
		h.Sum += s
		for i, bound := range phases.PhaseBuckets() {
			if s <= bound {
				h.Buckets[i]++
			}
		}
		if s == 0 {
			h.Zero++
			continue
		}
		h.Native[nativeIndex(s)]++
	}
	return h
}

// nativeIndex finds the bucket by its definition: the first one that ends at or
// after s.
func nativeIndex(s float64) int {
	i := -80
	for ; bucketEnd(i) < s; i++ {
	}
	return i
}

// fullSnapshot fills every family: one unit that loads, one that serves, one
// of which nothing is known.
func fullSnapshot() *phases.Snapshot {
	return &phases.Snapshot{
		At:      at(300),
		Targets: []phases.Target{loading(), serving(), {Name: "unseen.service", State: phases.Unknown, GPUMemory: map[int]uint64{0: 1 << 20}}},
		GPUs: []phases.GPU{
			{
				Index: 0, UUID: "GPU-00000000-0000-0000-0000-000000000000", UsedBytes: ptr(uint64(40 << 30)), TotalBytes: ptr(uint64(96 << 30)),
				ForeignBytes: ptr(uint64(1 << 30)), UnattributedBytes: ptr(uint64(0)),
			},
			{Index: 1, UUID: "GPU-00000000-0000-0000-0000-000000000001", TotalBytes: ptr(uint64(96 << 30))},
			{Index: 2, UUID: "GPU-00000000-0000-0000-0000-000000000002", Lost: "GPU is lost"},
		},
		Xids: []phases.Xid{
			{GPU: "0", Xid: 31, Count: 2, Last: at(40)}, {GPU: "0", Xid: 79, Count: 1, Last: at(30)}, {GPU: "0000:af:00", Xid: 13, Count: 1, Last: at(20)},
		},
		Sources: []phases.Source{
			{Source: event.SourceJournal, Up: true, State: "up", Restarts: 2},
			{Source: event.SourceGPU, Up: false, State: "no_driver", Reason: "no NVML"},
			{Source: event.SourceHealth, Target: "loading.service", Up: true, State: "up"},
		},
	}
}

func loading() phases.Target {
	spawned := histogramOf(21, 19.5, 0)
	spawned.Exemplars = map[int]phases.Exemplar{0: exemplar(older, 0, at(-60)), 4: exemplar(newer, 21, at(-5))}
	st := &phases.Startup{
		Invocation: "11111111111111111111111111111111",
		Began:      at(0),
		Phases: []phases.Phase{
			{Phase: phases.Spawn, Entered: at(0), Seconds: 21, Done: true},
			{Phase: phases.Load, Entered: at(21), Seconds: 279},
		},
		Progress:        ptr(0.4375),
		ExpectedServing: at(792),
		Slow:            true,
		Engine:          phases.Engine{Name: "testengine", Version: "0.16.0rc2", Model: "example/model"},
		PlateauGPUs:     []int{1},
		Errors:          map[phases.ErrorKey]int{{Class: "import_failed", Verdict: "benign"}: 9},
		NewErrors:       ptr(2),
	}
	return phases.Target{
		Name: "loading.service", State: phases.Load, Since: at(21), Startup: st,
		LastOutcome: phases.OutcomeFailed,
		RestartLoop: true,
		Failure: &triage.RootCause{
			Class: "package_mismatch", Exception: "RuntimeError", Process: "APIServer", At: at(-60),
			Message: "flashinfer-cubin version (0.6.3) does not match flashinfer version (0.6.4)",
		},
		FailureMessage: "flashinfer-cubin version (0.6.3) does not match flashinfer version (0.6.4)",
		Restarts:       ptr(1),
		Ready:          phases.Ready{Log: ptr(false), Health: ptr(false)},
		GPUMemory:      map[int]uint64{0: 39 << 30, 1: 73 << 30},
		JournalLag:     ptr(20 * time.Millisecond),
		Counters: phases.Counters{
			Since:        at(-5000).Real,
			Startups:     map[phases.Outcome]uint64{phases.OutcomeFailed: 1},
			Ended:        map[phases.Outcome]phases.Exemplar{phases.OutcomeFailed: exemplar(older, 1, at(-60))},
			PhaseSeconds: map[phases.State]phases.Histogram{phases.Spawn: spawned},
			Lines:        4321, Stale: 12, Unmatched: 99,
			Gaps:   map[event.GapKind]uint64{event.GapSuppressed: 3},
			Errors: map[phases.ErrorKey]uint64{{Class: "package_mismatch", Verdict: "cause"}: 1},
		},
	}
}

func serving() phases.Target {
	st := &phases.Startup{
		Began: at(-900), Ended: at(-200), Outcome: phases.OutcomeServing, AttachedLate: true,
		Phases: []phases.Phase{
			{Phase: phases.Load, Entered: at(-900), Seconds: 600, Done: true},
			{Phase: phases.Compile, Entered: at(-300), Seconds: 100, Done: true},
			{Phase: phases.CUDAGraph, Entered: at(-200), Done: true, Skipped: true},
			{Phase: phases.Serving, Entered: at(-200), Seconds: 500},
		},
		PlateauGPUs: []int{3},
	}
	return phases.Target{
		Name: "serving.service", State: phases.Serving, Since: at(-200), Startup: st, Last: st,
		LastOutcome: phases.OutcomeServing,
		Ready:       phases.Ready{Log: ptr(true), Port: ptr(true), Health: ptr(false)},
		GPUMemory:   map[int]uint64{3: 73 << 30},
		Counters: phases.Counters{
			Startups:     map[phases.Outcome]uint64{phases.OutcomeServing: 2},
			ServingEnded: map[string]uint64{"killed": 1},
		},
	}
}

func TestFullMetrics(t *testing.T) {
	compareGolden(t, "metrics.prom", collector(fullSnapshot(), at(310)))
}

// TestFullOpenMetrics is the same page as Prometheus asks for it.
func TestFullOpenMetrics(t *testing.T) {
	const path = "testdata/metrics.openmetrics"
	got := encoded(t, collector(fullSnapshot(), at(310)), expfmt.NewFormat(expfmt.TypeOpenMetrics))
	if *update {
		if err := os.WriteFile(path, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(want), got); diff != "" {
		t.Errorf("differs from %s (-); run with -update and review:\n%s", path, diff)
	}
}

func TestNothingKnownYet(t *testing.T) {
	compareGolden(t, "empty.prom", collector(nil, at(0)))
}

func compareGolden(t *testing.T, name string, c prometheus.Collector) {
	t.Helper()
	got := text(t, c)
	path := filepath.Join("testdata", name)
	if *update {
		if err := os.WriteFile(path, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if got == string(want) {
		return
	}
	// CollectAndCompare shows the difference by family.
	if err := testutil.CollectAndCompare(c, strings.NewReader(string(want))); err != nil {
		t.Fatal(err)
	}
	t.Fatalf("text differs from %s in help, type or order; run with -update and review", path)
}

// gather collects from c alone, and fails where it breaks a rule.
func gather(t testing.TB, c prometheus.Collector) []*dto.MetricFamily {
	t.Helper()
	reg := prometheus.NewPedanticRegistry()
	reg.MustRegister(c)
	families, err := reg.Gather()
	if err != nil {
		t.Fatal(err)
	}
	return families
}

func text(t testing.TB, c prometheus.Collector) string {
	t.Helper()
	var b strings.Builder
	for _, f := range gather(t, c) {
		if _, err := expfmt.MetricFamilyToText(&b, f); err != nil {
			t.Fatal(err)
		}
	}
	return b.String()
}

func TestLintClean(t *testing.T) {
	problems, err := testutil.CollectAndLint(collector(fullSnapshot(), at(310)))
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range problems {
		t.Errorf("%s: %s", p.Metric, p.Text)
	}
}

// TestDurationsPartition checks that the phases of a running startup add up to
// its duration at the moment of the scrape, not of the snapshot.
func TestDurationsPartition(t *testing.T) {
	snap := &phases.Snapshot{At: at(300), Targets: []phases.Target{loading()}}
	c := collector(snap, at(333.5))
	var sum float64
	for _, p := range phases.Phases() {
		sum += value(t, c, fmt.Sprintf(`startupd_phase_duration_seconds{phase="%s",unit="loading.service"}`, p))
	}
	if total := value(t, c, `startupd_startup_duration_seconds{unit="loading.service"}`); total != 333.5 || sum != total {
		t.Errorf("phases add up to %v, startup lasts %v, want 333.5", sum, total)
	}
}

// TestClockBehindSnapshot: a scrape's clock that went back shrinks nothing.
func TestClockBehindSnapshot(t *testing.T) {
	snap := &phases.Snapshot{At: at(300), Targets: []phases.Target{loading()}}
	c := collector(snap, at(100))
	if got := value(t, c, `startupd_phase_duration_seconds{phase="load",unit="loading.service"}`); got != 279 {
		t.Errorf("load lasts %v, want the snapshot's 279", got)
	}
}

func TestEndedStartupStandsStill(t *testing.T) {
	target := loading()
	target.State = phases.Failed
	target.Startup.Ended, target.Startup.Outcome = at(290), phases.OutcomeFailed
	target.Startup.Phases[1].Seconds = 269
	c := collector(&phases.Snapshot{At: at(300), Targets: []phases.Target{target}}, at(5000))
	got := text(t, c)
	for series, want := range map[string]float64{
		`startupd_phase_duration_seconds{phase="load",unit="loading.service"}`: 269,
		`startupd_startup_duration_seconds{unit="loading.service"}`:            290,
		`startupd_phase{phase="failed",unit="loading.service"}`:                1,
		`startupd_slow{unit="loading.service"}`:                                0,
		`startupd_gpu_plateau{gpu="1",unit="loading.service"}`:                 0,
	} {
		if v := value(t, c, series); v != want {
			t.Errorf("%s = %v, want %v", series, v, want)
		}
	}
	for _, family := range []string{"startupd_progress_ratio", "startupd_expected_serving_timestamp_seconds"} {
		if strings.Contains(got, family) {
			t.Errorf("%s is there although nothing runs", family)
		}
	}
}

// TestHostileLabels: text out of a log can't break the scrape.
func TestHostileLabels(t *testing.T) {
	target := loading()
	target.State = "no such state"
	target.Startup.Engine = phases.Engine{Name: "e", Version: "1\xff2", Model: strings.Repeat("ä", 400) + "\n\"}"}
	snap := &phases.Snapshot{At: at(300), Targets: []phases.Target{target}}
	got := text(t, collector(snap, at(300)))
	want := fmt.Sprintf(`startupd_engine_info{engine="e",model="%s",unit="loading.service",version="1%c2"} 1`, strings.Repeat("ä", 128), '\uFFFD')
	if !strings.Contains(got, want) {
		t.Errorf("no %s in\n%s", want, got)
	}
	if !strings.Contains(got, `startupd_phase{phase="unknown",unit="loading.service"} 1`) {
		t.Error("a state that is none of the eight is not unknown")
	}
}

// value finds a series by its text.
func value(t testing.TB, c prometheus.Collector, series string) float64 {
	t.Helper()
	for line := range strings.Lines(text(t, c)) {
		if rest, ok := strings.CutPrefix(line, series+" "); ok {
			var v float64
			if _, err := fmt.Sscan(rest, &v); err != nil {
				t.Fatal(err)
			}
			return v
		}
	}
	t.Fatalf("no series %s", series)
	return 0
}
