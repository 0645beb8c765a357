//go:build e2e

package scrape

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"

	"github.com/startupd/startupd/test/nspawn"
)

// notPlayed are the families that the demo's recording can't have, as it begins
// without a past and on a healthy host. The collector's own test has all of them
// in its snapshot, and holds them against the same page.
func notPlayed() map[string]string {
	return map[string]string{
		"startupd_expected_serving_timestamp_seconds": "a good start before",
		"startupd_new_errors":                         "a good start before",
		"startupd_gpu_xid_errors_total":               "a report of the driver",
		"startupd_gpu_last_xid_timestamp_seconds":     "a report of the driver",
	}
}

// TestPageTellsWhatIsServed scrapes the running program all through its recording
// and compares every family with docs/METRICS.md, both ways.
func TestPageTellsWhatIsServed(t *testing.T) {
	base, docs := demo(t, 150), page(t)
	seen, wrong := map[string]bool{}, map[string]error{}
	nspawn.Poll(t, 20*time.Millisecond, time.Minute, func() error {
		body, err := fetch(base + "/metrics")
		if err != nil {
			return err
		}
		parser := expfmt.NewTextParser(model.LegacyValidation)
		families, err := parser.TextToMetricFamilies(strings.NewReader(body))
		if err != nil {
			t.Fatalf("%v in\n%s", err, body)
		}
		for name, f := range families {
			seen[name] = true
			if err := compare(f, docs); err != nil {
				wrong[name] = err
			}
		}
		_, err = startups(base)
		return err
	})
	for _, name := range slices.Sorted(maps.Keys(wrong)) {
		t.Errorf("%s %v", name, wrong[name])
	}
	for _, name := range slices.Sorted(maps.Keys(docs)) {
		missing, unplayed := notPlayed()[name]
		switch {
		case seen[name] && unplayed:
			t.Errorf("%s is served after all, and is not to be listed as one that lacks %s", name, missing)
		case !seen[name] && !unplayed:
			t.Errorf("%s is documented and never served", name)
		}
	}
}

// compare holds one family of a scrape against the page.
func compare(f *dto.MetricFamily, docs map[string]documented) error {
	d, ok := docs[f.GetName()]
	if !ok {
		return errors.New("is served and not documented")
	}
	if got := strings.ToLower(f.GetType().String()); got != d.kind {
		return fmt.Errorf("is a %s, documented as a %s", got, d.kind)
	}
	if f.GetHelp() != d.help {
		return fmt.Errorf("has the help %q, documented is %q", f.GetHelp(), d.help)
	}
	want := strings.FieldsFunc(d.labels, func(r rune) bool { return r == ',' || r == ' ' })
	slices.Sort(want)
	for _, m := range f.GetMetric() {
		var got []string
		for _, l := range m.GetLabel() {
			got = append(got, l.GetName())
		}
		if m.Summary != nil {
			got = append(got, model.QuantileLabel)
		}
		slices.Sort(got)
		if !slices.Equal(got, want) {
			return fmt.Errorf("has the labels %q, documented are %q", got, want)
		}
	}
	return nil
}
