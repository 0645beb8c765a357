package app

import (
	"bytes"
	"compress/gzip"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/startupd/startupd/pkg/event"
	"github.com/startupd/startupd/pkg/exporter"
	"github.com/startupd/startupd/pkg/phases"
	"github.com/startupd/startupd/pkg/triage"
)

// cost is what docs/METRICS.md says that series cost, and at most cost.
type cost struct{ host, unit, class, unitGPU, gpu, xids int }

// most is the largest number of series of a host.
func (c cost) most(units, gpus, classes int) int {
	return c.host + units*(c.unit+classes*c.class) + units*gpus*c.unitGPU + gpus*c.gpu + c.xids
}

// scrapeCost is a row of measured figures in the docs.
type scrapeCost struct{ series, bytes, zipped int }

func cardinality(t *testing.T) string {
	t.Helper()
	b, err := os.ReadFile("../../docs/METRICS.md")
	if err != nil {
		t.Fatal(err)
	}
	_, rest, ok := strings.Cut(string(b), "\n## Cardinality\n")
	section, _, _ := strings.Cut(rest, "\n## ")
	if !ok || strings.TrimSpace(section) == "" {
		t.Fatal("docs/METRICS.md has no section Cardinality")
	}
	return section
}

// row returns the numbers in the cells of a table's row, the first cell apart.
func row(t *testing.T, section, first string) []int {
	t.Helper()
	for line := range strings.Lines(section) {
		cells := strings.Split(strings.Trim(strings.TrimSpace(line), "|"), "|")
		if strings.TrimSpace(cells[0]) != first {
			continue
		}
		var out []int
		for _, c := range cells[1:] {
			n, err := strconv.Atoi(strings.ReplaceAll(strings.TrimSpace(c), ",", ""))
			if err == nil {
				out = append(out, n)
			}
		}
		return out
	}
	t.Fatalf("no row %q", first)
	return nil
}

func costs(t *testing.T) cost {
	t.Helper()
	s := cardinality(t)
	one := func(first string) int { return row(t, s, first)[0] }
	return cost{
		host: one("the host"), unit: one("each unit"), class: one("each unit, for each class of error"), unitGPU: one("each unit, for each GPU that it uses"),
		gpu: one("each GPU"), xids: one("Xid errors, all together"),
	}
}

// scrapeOf is what a Prometheus gets that asks for plain text.
func scrapeOf(t *testing.T, snap *phases.Snapshot, s *settings) string {
	t.Helper()
	reg := prometheus.NewRegistry()
	reg.MustRegister(exporter.New(exporter.Options{
		Snapshot: func() *phases.Snapshot { return snap }, Clock: func() event.Stamp { return snap.At }, KnowsClass: s.knowsClass,
	}))
	w := httptest.NewRecorder()
	promhttp.HandlerFor(reg, promhttp.HandlerOpts{}).ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/metrics", nil))
	if w.Code != http.StatusOK {
		t.Fatalf("%d %.400s", w.Code, w.Body)
	}
	return w.Body.String()
}

func lines(text, prefix string) int {
	n := 0
	for l := range strings.Lines(text) {
		if strings.HasPrefix(l, prefix) && l[0] != '#' {
			n++
		}
	}
	return n
}

func builtinSettings(t *testing.T) (*settings, []string) {
	t.Helper()
	set, err := LoadProfiles("")
	if err != nil {
		t.Fatal(err)
	}
	s := &settings{profiles: set, targets: []Target{{Unit: "llm.service"}, {Unit: "run-*"}}}
	classes := []string{triage.ClassUnknown}
	for _, p := range set.Profiles() {
		for c := range p.Classes {
			if !slices.Contains(classes, c) {
				classes = append(classes, c)
			}
		}
	}
	return s, classes
}

// TestMostSeries shows that the documented formula is neither too small nor too
// large: a host of which everything is known at once has that many series.
func TestMostSeries(t *testing.T) {
	s, classes := builtinSettings(t)
	const gpus = 8
	snap := &phases.Snapshot{At: at(0), Sources: []phases.Source{{Source: event.SourceJournal}, {Source: event.SourceUnit}, {Source: event.SourceGPU}}}
	units := []string{"a.service", "b.service"}
	for _, name := range units {
		snap.Targets = append(snap.Targets, everything(name, gpus, classes))
		for _, source := range []string{event.SourceHealth, event.SourceHost} {
			snap.Sources = append(snap.Sources, phases.Source{Source: source, Target: name})
		}
	}
	n := uint64(1)
	for i := range gpus {
		snap.GPUs = append(snap.GPUs, phases.GPU{Index: i, UUID: fmt.Sprint(i), UsedBytes: &n, TotalBytes: &n, ForeignBytes: &n, UnattributedBytes: &n})
	}
	for i := range 32 {
		for xid := range 17 { // 0 stands for the others
			snap.Xids = append(snap.Xids, phases.Xid{GPU: strconv.Itoa(i), Xid: xid, Count: 1, Last: at(0)})
		}
	}
	if got, want := lines(scrapeOf(t, snap, s), "startupd_"), costs(t).most(len(units), gpus, len(classes)); got != want {
		t.Errorf("%d series, the docs say %d (%d classes)", got, want, len(classes))
	}
}

// everything is a unit of which all is known at once, as no unit ever is.
func everything(name string, gpus int, classes []string) phases.Target {
	yes, one, half, lag := true, 1, 0.5, time.Second
	st := &phases.Startup{
		Invocation: "01", Began: at(0), Progress: &half, ExpectedServing: at(0), NewErrors: &one, Stalled: true, Slow: true,
		Engine: phases.Engine{Name: "e", Version: "1", Model: "m"}, Errors: map[phases.ErrorKey]int{},
	}
	for _, p := range phases.Phases() {
		st.Phases = append(st.Phases, phases.Phase{Phase: p, Entered: at(0)})
	}
	out := phases.Target{
		Name: name, State: phases.Load, Startup: st, LastOutcome: phases.OutcomeFailed, RestartLoop: true, Restarts: &one, JournalLag: &lag,
		Failure: &triage.RootCause{Class: "oom"}, FailureMessage: "m", Ready: phases.Ready{Log: &yes, Port: &yes, Health: &yes}, GPUMemory: map[int]uint64{},
		Counters: phases.Counters{Errors: map[phases.ErrorKey]uint64{}},
	}
	for i := range gpus {
		out.GPUMemory[i] = 1
	}
	for _, c := range classes {
		for _, v := range []triage.Verdict{triage.Cause, triage.Symptom, triage.Suspect, triage.Benign} {
			st.Errors[phases.ErrorKey{Class: c, Verdict: v}] = 1
			out.Counters.Errors[phases.ErrorKey{Class: c, Verdict: v}] = 1
		}
	}
	return out
}

// TestScrapeCost holds the documented figures against a daemon whose units have
// started well.
func TestScrapeCost(t *testing.T) {
	for _, tt := range []struct {
		first string
		units int
	}{{"1 unit, 8 GPUs", 1}, {"20 units, 8 GPUs", 20}} {
		t.Run(tt.first, func(t *testing.T) {
			cells := row(t, cardinality(t), tt.first)
			if len(cells) != 4 {
				t.Fatalf("the row has %d numbers, want series, bytes, bytes zipped and most series", len(cells))
			}
			c := costs(t)
			if most := c.most(tt.units, 8, 0) - c.xids; cells[3] != most {
				t.Errorf("the docs say that there are at most %d series, it is %d", cells[3], most)
			}
			d := begin(t, func(o *Options) {
				recent(o)
				o.Units = []string{"vllm-*.service"}
			})
			for i := range tt.units {
				d.script.play(t, goodUnit(fmt.Sprintf("vllm-model-%d.service", i), i)...)
			}
			d.script.play(t, eightGPUs(tt.units), event.Event{At: at(time.Hour), Data: &event.Watermark{}})
			_, body := get(t, d.base+"/metrics")
			got := scrapeCost{lines(body, "startupd_"), len(body), zipped(t, body)}
			t.Logf("%+v, of the process %d", got, lines(body, "")-got.series)
			want := scrapeCost{cells[0], cells[1], cells[2]}
			if got.series != want.series || !near(got.bytes, want.bytes) || !near(got.zipped, want.zipped) {
				t.Errorf("a scrape has %+v, the docs say %+v", got, want)
			}
		})
	}
}

// near says that a figure is within a tenth: numbers are of different length.
func near(got, want int) bool { return 10*got >= 9*want && 10*got <= 11*want }

func zipped(t *testing.T, text string) int {
	t.Helper()
	var b bytes.Buffer
	w := gzip.NewWriter(&b)
	if _, err := w.Write([]byte(text)); err != nil {
		t.Fatal(err)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return b.Len()
}

// goodUnit is what the sources tell of a unit that has started and serves.
func goodUnit(name string, i int) []event.Event {
	inv := fmt.Sprintf("%032x", i+1)
	var out []event.Event
	say := func(after time.Duration, d event.Data) {
		out = append(out, event.Event{At: at(after), Target: name, Data: d})
	}
	line := func(after time.Duration, text string) {
		say(after, &event.Line{Text: text, Invocation: inv, Origin: event.OriginUnit, PID: 1000 + i})
	}
	out = append(out, up(),
		event.Event{At: at(0), Data: &event.SourceState{Source: event.SourceUnit, Up: true, State: "up"}},
		event.Event{At: at(0), Data: &event.SourceState{Source: event.SourceGPU, Up: true, State: "up"}})
	say(0, &event.UnitMessage{Message: event.Started, Invocation: inv})
	say(0, &event.UnitState{Loaded: true, ActiveState: "active", SubState: "running", Invocation: inv, MainPID: 1000 + i})
	say(0, &event.SourceState{Source: event.SourceHost, Up: true, State: "up"})
	say(0, &event.HealthSample{Status: event.HealthClosed})
	line(time.Second, "(APIServer pid=100)  ▄▄ ▄█ █     █     █ ▀▄▀ █  version 0.16.0rc2.dev344")
	line(time.Second, "(APIServer pid=100)   █▄█▀ █     █     █     █  model   acme/moe-nvfp4")
	line(15*time.Second, "(Worker_TP0 pid=300) ERROR 03-01 23:30:15 [gpt_oss_triton_kernels_moe.py:61] Failed to import Triton kernels. Please make sure your triton version is compatible. Error: cannot import name 'SparseMatrix' from 'triton_kernels.tensor'")
	line(21*time.Second, "(Worker_TP0 pid=300) INFO 03-01 23:30:21 [gpu_model_runner.py:4124] Starting to load model acme/moe-nvfp4...")
	line(9*time.Minute, "(Worker_TP0 pid=300) INFO 03-01 23:39:00 [gpu_model_runner.py:4221] Model loading took 73.7 GiB memory and 520.0 seconds")
	line(10*time.Minute, "(Worker_TP0 pid=300) INFO 03-01 23:39:10 [backends.py:430] Dynamo bytecode transform time: 9.73 s")
	line(12*time.Minute, "(Worker_TP0 pid=300) Capturing CUDA graphs (mixed prefill-decode, PIECEWISE):  50%|█████     | 25/51 [00:04<00:04,  6.20it/s]")
	line(13*time.Minute, "(APIServer pid=100) INFO:     Application startup complete.")
	say(13*time.Minute, &event.SourceState{Source: event.SourceHealth, Up: true, State: "up"})
	say(14*time.Minute, &event.HealthSample{Status: event.HealthReady, URL: "http://127.0.0.1:8000/health", Code: 200})
	return out
}

// eightGPUs samples GPUs on each of which all units hold memory.
func eightGPUs(units int) event.Event {
	total, held := uint64(96<<30), uint64(73<<30)/uint64(units)
	sample := &event.GPUSample{}
	for i := range 8 {
		g := event.GPU{Index: i, UUID: fmt.Sprintf("GPU-00000000-0000-0000-0000-%012d", i), UsedBytes: &total, TotalBytes: &total}
		for u := range units {
			g.Processes = append(g.Processes, event.GPUProcess{PID: 100*u + i, UsedBytes: &held, Unit: fmt.Sprintf("vllm-model-%d.service", u)})
		}
		sample.GPUs = append(sample.GPUs, g)
	}
	return event.Event{At: at(20 * time.Minute), Data: sample}
}
