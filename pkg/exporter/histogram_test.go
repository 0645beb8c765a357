package exporter_test

import (
	"math"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"

	"github.com/startupd/startupd/pkg/phases"
)

func bucketEnd(index int) float64 { return math.Exp2(float64(index) / 8) }

// TestNativeBuckets decodes the native histogram as Prometheus does and
// compares it with the one that client_golang makes of the same observations.
func TestNativeBuckets(t *testing.T) {
	observations := []float64{0, 0, 0.004, 0.9, 1, 1.05, 21, 22, 21.5, 600, 700, 599}
	target := phases.Target{Name: "u.service", Counters: phases.Counters{
		PhaseSeconds: map[phases.State]phases.Histogram{phases.Load: histogramOf(observations...)},
	}}
	got := histogramFor(t, collector(&phases.Snapshot{Targets: []phases.Target{target}}, at(0)), "load")

	// A bucket factor of 1.1 makes client_golang choose schema 3.
	reference := prometheus.NewHistogram(prometheus.HistogramOpts{Name: "reference", NativeHistogramBucketFactor: 1.1, Buckets: phases.PhaseBuckets()})
	for _, o := range observations {
		reference.Observe(o)
	}
	var m dto.Metric
	if err := reference.Write(&m); err != nil {
		t.Fatal(err)
	}
	want := m.GetHistogram()
	if got.GetSchema() != want.GetSchema() || got.GetZeroThreshold() != want.GetZeroThreshold() || got.GetZeroCount() != want.GetZeroCount() {
		t.Errorf("schema %d, zero threshold %g, zero count %d; want %d, %g, %d", got.GetSchema(), got.GetZeroThreshold(), got.GetZeroCount(),
			want.GetSchema(), want.GetZeroThreshold(), want.GetZeroCount())
	}
	g, w := decodeNative(got), decodeNative(want)
	if len(g) != len(w) {
		t.Errorf("buckets %v, want %v", g, w)
	}
	for i, n := range w {
		if g[i] != n {
			t.Errorf("bucket %d holds %d, want %d", i, g[i], n)
		}
	}
	for i, b := range want.GetBucket() {
		if c := got.GetBucket()[i]; c.GetUpperBound() != b.GetUpperBound() || c.GetCumulativeCount() != b.GetCumulativeCount() {
			t.Errorf("classic bucket %v, want %v", c, b)
		}
	}
}

// TestNativeThatDoesNotAddUp leaves only the classic histogram.
func TestNativeThatDoesNotAddUp(t *testing.T) {
	h := histogramOf(3, 4)
	h.Native = nil
	target := phases.Target{Name: "u.service", Counters: phases.Counters{PhaseSeconds: map[phases.State]phases.Histogram{phases.Load: h}}}
	got := histogramFor(t, collector(&phases.Snapshot{Targets: []phases.Target{target}}, at(0)), "load")
	if got.Schema != nil || len(got.GetPositiveSpan()) != 0 || got.GetSampleCount() != 2 {
		t.Errorf("got %v, want a classic histogram of 2", got)
	}
}

func histogramFor(t *testing.T, c prometheus.Collector, phase string) *dto.Histogram {
	t.Helper()
	for _, f := range gather(t, c) {
		if f.GetName() != "startupd_startup_phase_seconds" {
			continue
		}
		for _, m := range f.GetMetric() {
			for _, l := range m.GetLabel() {
				if l.GetName() == "phase" && l.GetValue() == phase {
					return m.GetHistogram()
				}
			}
		}
	}
	t.Fatalf("no histogram of phase %s", phase)
	return nil
}

// decodeNative returns counts by bucket index, without empty buckets.
func decodeNative(h *dto.Histogram) map[int]int64 {
	out := make(map[int]int64)
	var index, delta int
	var count int64
	for _, span := range h.GetPositiveSpan() {
		index += int(span.GetOffset())
		for range span.GetLength() {
			count += h.GetPositiveDelta()[delta]
			if count != 0 {
				out[index] = count
			}
			delta++
			index++
		}
	}
	return out
}
