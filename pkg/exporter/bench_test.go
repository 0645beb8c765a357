package exporter_test

import (
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/startupd/startupd/pkg/phases"
)

// hostOf is a host with eight GPUs and n units that use all of them.
func hostOf(n int) *phases.Snapshot {
	snap := &phases.Snapshot{At: at(300)}
	full := fullSnapshot()
	for i := range n {
		target := loading()
		target.Name = fmt.Sprintf("engine-%d.service", i)
		target.GPUMemory = map[int]uint64{}
		target.Startup.PlateauGPUs = nil
		for gpu := range 8 {
			target.GPUMemory[gpu] = 73 << 30
			target.Startup.PlateauGPUs = append(target.Startup.PlateauGPUs, gpu)
		}
		snap.Targets = append(snap.Targets, target)
	}
	for i := range 8 {
		gpu := full.GPUs[0]
		gpu.Index = i
		gpu.UUID = fmt.Sprintf("GPU-00000000-0000-0000-0000-%012d", i)
		snap.GPUs = append(snap.GPUs, gpu)
	}
	snap.Sources = full.Sources[:2]
	return snap
}

// TestSeriesBudget keeps one unit on eight GPUs within 150 series of its own.
func TestSeriesBudget(t *testing.T) {
	one, two := count(t, hostOf(1)), count(t, hostOf(2))
	if perUnit := two - one; perUnit > 150 {
		t.Errorf("%d series a unit, want at most 150", perUnit)
	}
}

func count(t *testing.T, snap *phases.Snapshot) int {
	t.Helper()
	n := 0
	for _, f := range gather(t, collector(snap, at(310))) {
		for _, m := range f.GetMetric() {
			n++
			if h := m.GetHistogram(); h != nil {
				n += len(h.GetBucket()) + 2 // +Inf, _sum and _count, for the one counted
			}
		}
	}
	return n
}

// BenchmarkScrape serves /metrics of one unit on eight GPUs over loopback, as
// Prometheus asks for it, and reports the median.
func BenchmarkScrape(b *testing.B) {
	reg := prometheus.NewRegistry()
	reg.MustRegister(collector(hostOf(1), at(310)))
	srv := httptest.NewServer(promhttp.HandlerFor(reg, promhttp.HandlerOpts{}))
	defer srv.Close()
	took := make([]time.Duration, 0, 1<<16)
	for b.Loop() {
		began := time.Now()
		resp, err := http.Get(srv.URL)
		if err != nil {
			b.Fatal(err)
		}
		if _, err := io.Copy(io.Discard, resp.Body); err != nil {
			b.Fatal(err)
		}
		resp.Body.Close()
		took = append(took, time.Since(began))
	}
	slices.Sort(took)
	b.ReportMetric(float64(took[len(took)/2].Microseconds())/1000, "p50-ms")
}
