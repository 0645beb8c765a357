package app

import (
	"fmt"
	"math/rand/v2"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/startupd/startupd/pkg/event"
	"github.com/startupd/startupd/pkg/phases"
)

// TestSeriesAreBounded lets sources tell whatever they like: ten thousand units,
// long names, any Xid, GPUs that come and go, errors of every kind. At no time may
// there be more series than the docs allow, or a scrape that fails.
func TestSeriesAreBounded(t *testing.T) {
	s, classes := builtinSettings(t)
	most := costs(t).most(phases.LiveLimits().Units+1, 8, len(classes))
	h := &hostile{Rand: rand.New(rand.NewPCG(1, 2))}
	host := phases.NewHost(phases.HostOptions{
		Limits: phases.LiveLimits(),
		Resolve: func(unit string) (phases.Config, bool) {
			if !validUnit(unit) {
				return phases.Config{}, false
			}
			return s.config(unit, event.Stamp{})
		},
	}, s.configs(event.Stamp{})...)
	largest := 0
	for i := range 4000 {
		host.Apply(h.event())
		if i%500 == 499 {
			largest = max(largest, lines(scrapeOf(t, host.Snapshot(), s), "startupd_"))
		}
	}
	if n := len(host.Snapshot().Targets); n != phases.LiveLimits().Units+1 {
		t.Errorf("%d units: the test does not reach the limit", n)
	}
	if largest > most {
		t.Errorf("%d series, at most %d are allowed", largest, most)
	}
	t.Logf("%d series of %d allowed", largest, most)
}

// hostile makes events of every kind.
type hostile struct {
	*rand.Rand
	now time.Duration
}

func (h *hostile) event() event.Event {
	h.now += time.Duration(h.IntN(1000)) * time.Millisecond
	unit := fmt.Sprintf("run-%s-%d.service", strings.Repeat("x", h.IntN(240)), h.IntN(10000))
	switch h.IntN(20) {
	case 0:
		unit = "run-" + string(h.bytes(h.IntN(300)))
	case 1:
		unit = "llm.service"
	}
	data, target := h.data(), unit
	switch data.(type) {
	case *event.GPUSample, *event.Watermark, *event.Tick:
		target = ""
	}
	if l, ok := data.(*event.Line); ok && l.Origin == event.OriginKernel {
		target = ""
	}
	return event.Event{At: at(h.now), Target: target, Data: data}
}

func (h *hostile) bytes(n int) []byte {
	b := make([]byte, n)
	for i := range b {
		b[i] = byte(h.IntN(256))
	}
	return b
}

func (h *hostile) data() event.Data {
	inv := fmt.Sprintf("%032x", h.IntN(1e6))
	switch h.IntN(16) {
	case 0:
		return h.gpus()
	case 1, 2:
		return &event.Line{Origin: event.OriginKernel, Text: fmt.Sprintf("NVRM: Xid (PCI:%04x:%02x:%02x): %d, pid=1", h.IntN(4), h.IntN(256), h.IntN(32), h.IntN(1e6)/(1+h.IntN(1e5)))}
	case 3:
		return &event.SourceState{Source: []string{event.SourceHealth, event.SourceHost}[h.IntN(2)], Up: h.IntN(2) == 0, State: "s"}
	case 4:
		return &event.UnitState{Loaded: h.IntN(3) > 0, ActiveState: []string{"active", "failed", "inactive"}[h.IntN(3)], Invocation: inv}
	case 5:
		return &event.HealthSample{Status: event.HealthReady}
	case 6:
		return &event.Gap{Gap: event.GapLost, Lines: h.IntN(9)}
	case 7:
		return &event.UnitMessage{Message: event.Started, Invocation: inv}
	case 8:
		return &event.UnitMessage{Message: event.FailureResult, Result: string(h.bytes(20))}
	case 9:
		return &event.Tick{}
	case 10:
		return &event.UnitMessage{Message: event.OutOfMemory, Text: string(h.bytes(200))}
	}
	texts := []string{
		"(APIServer pid=100)  ▄▄ ▄█ █     █     █ ▀▄▀ █  version " + string(h.bytes(30)),
		"(Worker_TP0 pid=300) INFO 03-01 23:30:21 [gpu_model_runner.py:4124] Starting to load model " + string(h.bytes(400)),
		"(Worker_TP0 pid=300) ERROR 03-01 23:30:30 [core.py:708] " + string(h.bytes(10)) + "Error: " + string(h.bytes(600)),
		"(EngineCore_DP0 pid=200) ERROR 03-01 23:30:30 [core.py:708] EngineCore failed to start.",
		"(APIServer pid=100) INFO:     Application startup complete.",
		"torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 9 GiB",
		string(h.bytes(h.IntN(300))),
	}
	return &event.Line{Text: strings.ToValidUTF8(texts[h.IntN(len(texts))], "?"), Invocation: []string{"", inv}[h.IntN(2)], Origin: event.OriginUnit, PID: h.IntN(1e6)}
}

// gpus are up to eight, numbered from 0, with other identities each time.
func (h *hostile) gpus() *event.GPUSample {
	n := uint64(h.IntN(1 << 40))
	s := &event.GPUSample{}
	for i := range h.IntN(9) {
		g := event.GPU{Index: i, UUID: string(h.bytes(20)), PCI: fmt.Sprintf("%04x:%02x:00", h.IntN(4), h.IntN(256)), UsedBytes: &n, TotalBytes: &n}
		for range h.IntN(5) {
			g.Processes = append(g.Processes, event.GPUProcess{PID: h.IntN(1e6), UsedBytes: &n, Unit: fmt.Sprintf("run-%d.service", h.IntN(10000))})
		}
		s.GPUs = append(s.GPUs, g)
	}
	return s
}

// TestGPUsThatAreGone takes their series with them.
func TestGPUsThatAreGone(t *testing.T) {
	s, _ := builtinSettings(t)
	host := phases.NewHost(phases.HostOptions{}, s.configs(event.Stamp{})...)
	host.Apply(event.Event{At: at(0), Target: "llm.service", Data: &event.UnitMessage{Message: event.Started, Invocation: "01"}})
	gpu := regexp.MustCompile(`(?m)^startupd_(?:gpu|unit_gpu)\w+{(?:gpu|unit)=.*`)
	used := uint64(73 << 30)
	sample := func(after time.Duration, gpus ...event.GPU) []string {
		for i := range gpus {
			if g := &gpus[i]; g.Lost == "" {
				g.UsedBytes, g.TotalBytes = &used, &used
				g.Processes = []event.GPUProcess{{PID: 1, UsedBytes: &used, Unit: "llm.service"}}
			}
		}
		host.Apply(event.Event{At: at(after), Data: &event.GPUSample{GPUs: gpus}})
		var out []string
		for _, l := range gpu.FindAllString(scrapeOf(t, host.Snapshot(), s), -1) {
			name, labels, _ := strings.Cut(l, "{")
			labels, _, _ = strings.Cut(labels, "}")
			out = append(out, strings.TrimPrefix(name, "startupd_")+"{"+labels+"}")
		}
		return out
	}
	has := func(all []string, want map[string]bool) {
		t.Helper()
		for series, is := range want {
			if slices.Contains(all, series) != is {
				t.Errorf("%s: %v, want %v in %q", series, !is, is, all)
			}
		}
	}
	a, b := event.GPU{Index: 0, UUID: "GPU-a", PCI: "0000:3a:00"}, event.GPU{Index: 1, UUID: "GPU-b", PCI: "0000:3b:00"}
	all := sample(time.Second, a, b)
	if len(all) != 2*(4+2) {
		t.Errorf("%d series of two GPUs: %q", len(all), all)
	}
	host.Apply(event.Event{At: at(2 * time.Second), Data: &event.Line{Text: "NVRM: Xid (PCI:0000:3b:00): 79, pid=1", Origin: event.OriginKernel}})
	all = sample(3*time.Second, a, event.GPU{Index: 1, UUID: "GPU-b", PCI: "0000:3b:00", Lost: "GPU is lost"})
	has(all, map[string]bool{
		`unit_gpu_memory_bytes{gpu="0",unit="llm.service"}`: true, `unit_gpu_memory_bytes{gpu="1",unit="llm.service"}`: false, `gpu_plateau{gpu="1",unit="llm.service"}`: false,
		`gpu_memory_used_bytes{gpu="1",uuid="GPU-b"}`: false, `gpu_foreign_memory_bytes{gpu="1"}`: false, `gpu_xid_errors_total{gpu="1",xid="79"}`: true,
	})
	all = sample(4*time.Second, a) // removed
	has(all, map[string]bool{`gpu_memory_total_bytes{gpu="0",uuid="GPU-a"}`: true, `gpu_xid_errors_total{gpu="1",xid="79"}`: true, `gpu_last_xid_timestamp_seconds{gpu="1"}`: true})
	if len(all) != 4+2+2 {
		t.Errorf("%d series of one GPU and an Xid of the other: %q", len(all), all)
	}
	b.Index = 0
	all = sample(5*time.Second, b) // numbered anew
	has(all, map[string]bool{`gpu_memory_used_bytes{gpu="0",uuid="GPU-b"}`: true, `gpu_memory_used_bytes{gpu="0",uuid="GPU-a"}`: false, `gpu_xid_errors_total{gpu="0",xid="79"}`: true, `gpu_xid_errors_total{gpu="1",xid="79"}`: false})
	b.UUID = "GPU-c"
	all = sample(6*time.Second, b)
	has(all, map[string]bool{`gpu_memory_used_bytes{gpu="0",uuid="GPU-c"}`: true, `gpu_memory_used_bytes{gpu="0",uuid="GPU-b"}`: false})
	host.Apply(event.Event{At: at(7 * time.Second), Data: &event.SourceState{Source: event.SourceGPU, State: "no_driver", Reason: "it was unloaded"}})
	if got := lines(scrapeOf(t, host.Snapshot(), s), "startupd_unit_gpu"); got != 0 {
		t.Errorf("%d series of a unit's memory without a driver", got)
	}
}
