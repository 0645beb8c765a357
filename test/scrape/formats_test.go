//go:build e2e

package scrape

import (
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/startupd/startupd/test/nspawn"
)

// TestPrometheus lets two of Debian's Prometheus scrape one program all through
// its recording: one reads OpenMetrics, the other protobuf with native histograms.
func TestPrometheus(t *testing.T) {
	docs := page(t)
	base := demo(t, 150)
	text := scraper(t, base, "exemplar-storage")
	native := scraper(t, base, "exemplar-storage,native-histograms")

	var ids map[string]string
	nspawn.Eventually(t, 90*time.Second, func() (err error) { ids, err = startups(base); return err })
	for _, p := range []*prometheus{text, native} {
		nspawn.Eventually(t, 10*time.Second, func() error { return served(p) })
	}
	text.wantFormat(t, "application/openmetrics-text; version=1.0.0; charset=utf-8; escaping=underscores")
	native.wantFormat(t, "application/vnd.google.protobuf; proto=io.prometheus.client.MetricFamily; encoding=delimited; escaping=underscores")

	t.Run("series", func(t *testing.T) { wantSeries(t, base, text) })
	t.Run("quantiles", func(t *testing.T) { wantQuantiles(t, text, native) })
	t.Run("exemplars in OpenMetrics", func(t *testing.T) { wantExemplars(t, base, text, "startupd_startup_phase_seconds_bucket", ids) })
	t.Run("exemplars in protobuf", func(t *testing.T) { wantExemplars(t, base, native, "startupd_startup_phase_seconds", ids) })
	t.Run("metadata of OpenMetrics", func(t *testing.T) { wantMetadata(t, text, docs, true) })
	t.Run("metadata of protobuf", func(t *testing.T) { wantMetadata(t, native, docs, false) })
}

// served says that Prometheus has seen both starts' ends.
func served(p *prometheus) error {
	got, err := p.query("startupd_startups_total", "outcome")
	if err == nil && (got["serving"] != 1 || got["failed"] != 1 || len(got) != 3) {
		err = fmt.Errorf("counted %v", got)
	}
	return err
}

// wantSeries compares what Prometheus holds with a scrape of the same moment, by
// families: nothing was left out by its parser.
func wantSeries(t *testing.T, base string, p *prometheus) {
	body, err := fetch(base + "/metrics")
	if err != nil {
		t.Fatal(err)
	}
	want := map[string]float64{}
	for line := range strings.Lines(body) {
		if end := strings.IndexAny(line, "{ "); line[0] != '#' && end > 0 {
			want[line[:end]]++
		}
	}
	nspawn.Eventually(t, 10*time.Second, func() error {
		got, err := p.query(`count by (__name__) ({__name__=~"(startupd|go|process)_.+"})`, "__name__")
		if err == nil && !maps.Equal(got, want) {
			err = fmt.Errorf("series by family: %v, want %v", got, want)
		}
		return err
	})
	if want["startupd_phase"] != 8 || want["startupd_gpu_memory_used_bytes"] != 8 || len(want) < 50 {
		t.Errorf("served: %v", want)
	}
}

// wantQuantiles asks for the same of both kinds of buckets. A bucket of the native
// ones is 9 % wide.
func wantQuantiles(t *testing.T, text, native *prometheus) {
	seconds, err := text.query(`startupd_startup_phase_seconds_sum{phase!="spawn"}`, "phase")
	if err != nil || len(seconds) != 3 {
		t.Fatalf("sums %v, %v", seconds, err)
	}
	classic, err := text.query(`histogram_quantile(0.5, startupd_startup_phase_seconds_bucket)`, "phase")
	if err != nil {
		t.Fatal(err)
	}
	fine, err := native.query(`histogram_quantile(0.5, startupd_startup_phase_seconds)`, "phase")
	if err != nil {
		t.Fatal(err)
	}
	for phase, took := range seconds {
		if math.Abs(fine[phase]/took-1) > 0.1 {
			t.Errorf("%s took %g s, by native buckets %g", phase, took, fine[phase])
		}
		if classic[phase] <= 0 || classic[phase] > 10 {
			t.Errorf("%s took %g s, by classic buckets %g", phase, took, classic[phase])
		}
	}
	if got, err := native.query(`count(startupd_startup_phase_seconds_bucket)`, ""); err != nil || len(got) != 0 {
		t.Errorf("classic buckets beside the native ones: %v, %v", got, err)
	}
}

// wantExemplars: each leads to the startup that it was made by.
func wantExemplars(t *testing.T, base string, p *prometheus, histogram string, ids map[string]string) {
	all, err := p.exemplars("startupd_startups_total")
	if err != nil {
		t.Fatal(err)
	}
	got := map[string]string{}
	for _, e := range all {
		got[e.series["outcome"]] = e.invocation
		var one struct{ Invocation, Outcome string }
		if err := read(base+"/api/v1/startups/"+e.invocation, &one); err != nil || one.Outcome != e.series["outcome"] || one.Invocation != e.invocation {
			t.Errorf("%s leads to %+v, %v", e.invocation, one, err)
		}
		if e.value != 1 || time.Since(e.at) > 5*time.Minute || e.at.After(time.Now()) {
			t.Errorf("%+v", e)
		}
	}
	if !maps.Equal(got, ids) {
		t.Errorf("exemplars of outcomes %v, want %v", got, ids)
	}

	all, err = p.exemplars(histogram)
	if err != nil {
		t.Fatal(err)
	}
	phases := map[string]bool{}
	for _, e := range all {
		phases[e.series["phase"]] = true
		// The crash completes no phase.
		if e.invocation != ids["serving"] || e.value <= 0 {
			t.Errorf("%+v is not of %s", e, ids["serving"])
		}
	}
	if want := []string{"compile", "cudagraph", "load", "spawn"}; !slices.Equal(slices.Sorted(maps.Keys(phases)), want) {
		t.Errorf("exemplars of the phases %v, want %v", phases, want)
	}
}

// wantMetadata: type, help and unit of each family are the page's. Prometheus 2
// takes no units from protobuf, and names a counter of OpenMetrics by its family.
func wantMetadata(t *testing.T, p *prometheus, docs map[string]documented, openMetrics bool) {
	got, err := p.metadata()
	if err != nil {
		t.Fatal(err)
	}
	if len(got) < 50 {
		t.Errorf("only %d families", len(got))
	}
	for name, m := range got {
		d, ok := docs[name]
		if !ok && openMetrics {
			d, ok = docs[name+"_total"]
		}
		want := metadata{Type: d.kind, Help: d.help, Unit: d.baseUnit()}
		if !openMetrics || m.Unit == "" && !strings.HasPrefix(name, "startupd_") {
			want.Unit = "" // client_golang gives some of its own families a unit
		}
		if !ok || m != want {
			t.Errorf("%s: %+v, documented is %+v", name, m, want)
		}
	}
}
