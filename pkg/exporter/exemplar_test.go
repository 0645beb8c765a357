package exporter_test

import (
	"bytes"
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"

	"github.com/startupd/startupd/pkg/event"
	"github.com/startupd/startupd/pkg/exporter"
	"github.com/startupd/startupd/pkg/phases"
	"github.com/startupd/startupd/pkg/triage"
)

const (
	older = "0123456789abcdef0123456789abcdef"
	newer = "fedcba9876543210fedcba9876543210"
	// container is the ID of a container.
	container = "aaaabbbbccccddddaaaabbbbccccddddaaaabbbbccccddddaaaabbbbccccdddd"
)

func exemplar(id string, value float64, at event.Stamp) phases.Exemplar {
	return phases.Exemplar{Invocation: id, Value: value, At: at.Real}
}

// exemplary has loaded twice, once longer than all buckets, and failed once.
func exemplary() *phases.Snapshot {
	load := histogramOf(4000, 3)
	load.Exemplars = map[int]phases.Exemplar{2: exemplar(newer, 3, at(200)), len(phases.PhaseBuckets()): exemplar(older, 4000, at(100))}
	return &phases.Snapshot{At: at(300), Targets: []phases.Target{{Name: "a.service", State: phases.Serving, Counters: phases.Counters{
		Startups:     map[phases.Outcome]uint64{phases.OutcomeServing: 2},
		Ended:        map[phases.Outcome]phases.Exemplar{phases.OutcomeServing: exemplar(newer, 1, at(200))},
		PhaseSeconds: map[phases.State]phases.Histogram{phases.Load: load},
		Lines:        5,
	}}}}
}

// encoded is what a scraper gets of c in a format.
func encoded(t *testing.T, c prometheus.Collector, f expfmt.Format) string {
	t.Helper()
	var b bytes.Buffer
	enc := expfmt.NewEncoder(&b, f)
	for _, family := range gather(t, c) {
		if err := enc.Encode(family); err != nil {
			t.Fatal(err)
		}
	}
	if err := enc.(expfmt.Closer).Close(); err != nil {
		t.Fatal(err)
	}
	return b.String()
}

func TestExemplarsInOpenMetrics(t *testing.T) {
	got := encoded(t, collector(exemplary(), at(300)), expfmt.NewFormat(expfmt.TypeOpenMetrics))
	seconds := func(s float64) string { return fmt.Sprintf("%g\n", float64(at(s).Real.Unix())) }
	for _, want := range []string{
		`startupd_startup_phase_seconds_bucket{phase="load",unit="a.service",le="5.0"} 1 # {invocation="` + newer + `"} 3.0 ` + seconds(200),
		`startupd_startup_phase_seconds_bucket{phase="load",unit="a.service",le="+Inf"} 2 # {invocation="` + older + `"} 4000.0 ` + seconds(100),
		`startupd_startup_phase_seconds_bucket{phase="load",unit="a.service",le="10.0"} 1` + "\n",
		`startupd_startups_total{outcome="serving",unit="a.service"} 2.0 # {invocation="` + newer + `"} 1.0 ` + seconds(200),
		`startupd_startups_total{outcome="failed",unit="a.service"} 0.0` + "\n",
		"# UNIT startupd_startup_phase_seconds seconds\n",
	} {
		if !strings.Contains(got, want) {
			t.Errorf("lacks %s\n%s", want, got)
		}
	}
}

// TestExemplarsInProtobuf: the native histogram has them as well, the oldest
// first, as Prometheus drops one that is older than the one before.
func TestExemplarsInProtobuf(t *testing.T) {
	h := histogramFor(t, collector(exemplary(), at(300)), "load")
	var got []string
	for _, e := range h.GetExemplars() {
		got = append(got, fmt.Sprintf("%s %g %d", labelOf(e), e.GetValue(), e.GetTimestamp().AsTime().Unix()-at(0).Real.Unix()))
	}
	if want := []string{older + " 4000 100", newer + " 3 200"}; !slices.Equal(got, want) {
		t.Errorf("native exemplars %q, want %q", got, want)
	}
	for _, b := range h.GetBucket() {
		want := map[float64]string{5: newer, math.Inf(1): older}[b.GetUpperBound()]
		if id := labelOf(b.GetExemplar()); id != want {
			t.Errorf("bucket %v has exemplar %q, want %q", b.GetUpperBound(), id, want)
		}
	}
}

// labelOf is the invocation of an exemplar; "" where there is none.
func labelOf(e *dto.Exemplar) string {
	if e == nil || len(e.GetLabel()) != 1 || e.GetLabel()[0].GetName() != "invocation" {
		return ""
	}
	return e.GetLabel()[0].GetValue()
}

// TestPlainTextIsAsWithout: a scraper that knows no exemplars, units and times of
// creation sees not one byte of them.
func TestPlainTextIsAsWithout(t *testing.T) {
	bare := exemplary()
	bare.Targets[0].Counters.Ended = nil
	load := bare.Targets[0].Counters.PhaseSeconds[phases.Load]
	load.Exemplars = nil
	bare.Targets[0].Counters.PhaseSeconds[phases.Load] = load
	plain := expfmt.NewFormat(expfmt.TypeTextPlain)
	with := encoded(t, since(exemplary(), at(0).Real), plain)
	if without := encoded(t, since(bare, time.Time{}), plain); with != without {
		t.Errorf("with them:\n%s\nwithout:\n%s", with, without)
	}
	if om := encoded(t, since(exemplary(), at(0).Real), expfmt.NewFormat(expfmt.TypeOpenMetrics)); strings.Contains(om, "_created") {
		t.Errorf("a series for each time of creation:\n%s", om)
	}
}

func since(snap *phases.Snapshot, created time.Time) *exporter.Collector {
	for i := range snap.Targets {
		snap.Targets[i].Counters.Since = created
	}
	return exporter.New(exporter.Options{
		Snapshot: func() *phases.Snapshot { return snap }, Clock: func() event.Stamp { return at(300) },
	})
}

// TestCreated: a unit's counters say when they were 0. Of the others that is not
// known.
func TestCreated(t *testing.T) {
	full := fullSnapshot()
	for _, created := range []time.Time{{}, at(-1000).Real} {
		counters := 0
		for _, f := range gather(t, since(full, created)) {
			for _, m := range f.GetMetric() {
				var got *time.Time
				switch {
				case m.GetCounter().GetCreatedTimestamp() != nil:
					got = ptr(m.GetCounter().GetCreatedTimestamp().AsTime())
				case m.GetHistogram().GetCreatedTimestamp() != nil:
					got = ptr(m.GetHistogram().GetCreatedTimestamp().AsTime())
				}
				known := !created.IsZero() && (m.Counter != nil || m.Histogram != nil) && !slices.Contains([]string{"startupd_journal_reader_restarts_total", "startupd_gpu_xid_errors_total"}, f.GetName())
				if known != (got != nil) || known && !got.Equal(created) {
					t.Errorf("%s was created %v, want %v: %v", f.GetName(), got, created, known)
				}
				if known {
					counters++
				}
			}
		}
		if !created.IsZero() && counters < 50 {
			t.Errorf("%d counters with their beginning", counters)
		}
	}
}

func TestExemplarIDs(t *testing.T) {
	for id, want := range map[string]string{
		newer:                              newer,
		container:                          container[:32],
		container[:12]:                     container[:12],
		"":                                 "",
		"01":                               "",
		container[:11]:                     "",
		strings.Repeat("A", 32):            "",
		"llm-container":                    "",
		"0123456789abcdef\n":               "",
		"0123456789ab\xff\xfe":             "",
		strings.Repeat("é", 16):            "",
		strings.Repeat("0123", 16) + "\"}": strings.Repeat("0123", 8),
	} {
		snap := exemplary()
		snap.Targets[0].Counters.Ended[phases.OutcomeServing] = exemplar(id, 1, at(1))
		h := snap.Targets[0].Counters.PhaseSeconds[phases.Load]
		h.Exemplars = map[int]phases.Exemplar{2: exemplar(id, 3, at(1))}
		snap.Targets[0].Counters.PhaseSeconds[phases.Load] = h
		c := collector(snap, at(300))
		if got := labelOf(histogramFor(t, c, "load").GetBucket()[2].GetExemplar()); got != want {
			t.Errorf("of %q: %q, want %q", id, got, want)
		}
		if om := encoded(t, c, expfmt.NewFormat(expfmt.TypeOpenMetrics)); want == "" && strings.Contains(om, " # {") {
			t.Errorf("%q gives an exemplar:\n%s", id, om)
		}
	}
}

// TestExemplarWithoutATime: one that Prometheus could not order is left out, and
// the numbers stand.
func TestExemplarWithoutATime(t *testing.T) {
	for _, when := range []time.Time{{}, time.Date(20000, 1, 1, 0, 0, 0, 0, time.UTC)} {
		snap := exemplary()
		snap.Targets[0].Counters.Ended[phases.OutcomeServing] = phases.Exemplar{Invocation: newer, Value: 1, At: when}
		if v := value(t, collector(snap, at(300)), `startupd_startups_total{outcome="serving",unit="a.service"}`); v != 2 {
			t.Errorf("counted %v", v)
		}
	}
}

// TestMessage: it is there with the cause and only then, whatever the log holds.
func TestMessage(t *testing.T) {
	const family = "startupd_root_cause_message_info"
	hostile := "a \"quote\" \\ and\nmore \xff" + strings.Repeat("ä", 300)
	for _, tt := range []struct {
		name, message string
		cause         *triage.RootCause
		off           bool
		want          string
	}{
		{name: "no cause", message: "left over"},
		{name: "no message", cause: &triage.RootCause{}},
		{name: "off", cause: &triage.RootCause{}, message: "secret", off: true},
		{name: "told", cause: &triage.RootCause{Message: "another one's"}, message: "port 8000 is in use", want: `message="port 8000 is in use"`},
		{name: "hostile", cause: &triage.RootCause{}, message: hostile, want: `message="a \"quote\" \\ and\nmore ` + "\uFFFD" + strings.Repeat("ä", 110)},
	} {
		t.Run(tt.name, func(t *testing.T) {
			snap := crashed(tt.cause)
			snap.Targets[0].FailureMessage = tt.message
			c := exporter.New(exporter.Options{
				Snapshot: func() *phases.Snapshot { return snap }, Clock: func() event.Stamp { return at(5) }, NoRootCauseMessage: tt.off,
			})
			got := seriesOf(text(t, c), family)
			if tt.want == "" && len(got) != 0 || tt.want != "" && (len(got) != 1 || !strings.Contains(got[0], tt.want)) {
				t.Errorf("got %q, want %q", got, tt.want)
			}
			if len(got) == 1 && len(got[0]) > len(family)+300 {
				t.Errorf("%d bytes", len(got[0]))
			}
		})
	}
}
