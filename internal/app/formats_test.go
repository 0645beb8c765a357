package app

import (
	"compress/gzip"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"

	"github.com/startupd/startupd/pkg/event"
)

const servedInvocation = "0123456789abcdef0123456789abcdef"

// recent lets the app be installed before the script's time.
func recent(o *Options) { o.Clock = func() event.Stamp { return at(-time.Hour) } }

// serve plays a start that serves after 20 s.
func (d *daemon) serve(t *testing.T) {
	t.Helper()
	line := func(after time.Duration, text string) event.Event {
		return event.Event{At: at(after), Target: "a.service", Data: &event.Line{Text: text, Invocation: servedInvocation, Origin: event.OriginUnit, PID: 100}}
	}
	d.script.play(t, up(), started("a.service", servedInvocation, 0),
		line(3*time.Second, "(Worker_TP0 pid=300) INFO 03-01 23:30:21 [gpu_model_runner.py:4124] Starting to load model example/model..."),
		line(20*time.Second, "(APIServer pid=100) INFO:     Application startup complete."),
		event.Event{At: at(30 * time.Second), Data: &event.Watermark{}})
}

// fetch asks as a scraper does. The transport must not undo the compression.
func (d *daemon) fetch(t *testing.T, accept, encoding string) (header http.Header, body []byte) {
	t.Helper()
	req, err := http.NewRequest(http.MethodGet, d.base+"/metrics", nil)
	if err != nil {
		t.Fatal(err)
	}
	for name, value := range map[string]string{"Accept": accept, "Accept-Encoding": encoding} {
		if value != "" {
			req.Header.Set(name, value)
		}
	}
	client := http.Client{Transport: &http.Transport{DisableCompression: true}}
	defer client.CloseIdleConnections()
	resp, err := client.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	reader := io.Reader(resp.Body)
	if resp.Header.Get("Content-Encoding") == "gzip" {
		if reader, err = gzip.NewReader(resp.Body); err != nil {
			t.Fatal(err)
		}
	}
	if body, err = io.ReadAll(reader); err != nil || resp.StatusCode != http.StatusOK {
		t.Fatalf("%s: %v", resp.Status, err)
	}
	return resp.Header, body
}

const (
	askPlain       = "text/plain;version=0.0.4"
	askOpenMetrics = "application/openmetrics-text;version=1.0.0"
	askProtobuf    = "application/vnd.google.protobuf;proto=io.prometheus.client.MetricFamily;encoding=delimited"
)

// TestFormats asks for /metrics in each format, as Prometheus of several ages does.
func TestFormats(t *testing.T) {
	d := begin(t, recent)
	d.serve(t)
	for _, tt := range []struct {
		name, accept, encoding string
		content                string
		zipped, exemplars      bool
	}{
		{name: "nothing asked", content: "text/plain; version=0.0.4"},
		{name: "anything", accept: "*/*", encoding: "gzip", content: "text/plain; version=0.0.4", zipped: true},
		{name: "plain", accept: askPlain, content: "text/plain; version=0.0.4"},
		{name: "OpenMetrics", accept: askOpenMetrics, content: "application/openmetrics-text; version=1.0.0", exemplars: true},
		{name: "Prometheus 2.42", accept: "application/openmetrics-text;version=1.0.0,application/openmetrics-text;version=0.0.1;q=0.75,text/plain;version=0.0.4;q=0.5,*/*;q=0.1", encoding: "gzip",
			content: "application/openmetrics-text; version=1.0.0", zipped: true, exemplars: true},
		{name: "Prometheus 3", accept: "application/openmetrics-text;version=1.0.0;escaping=allow-utf-8;q=0.5,application/openmetrics-text;version=0.0.1;q=0.4,text/plain;version=1.0.0;escaping=allow-utf-8;q=0.3,text/plain;version=0.0.4;q=0.2,*/*;q=0.1",
			encoding: "gzip", content: "application/openmetrics-text; version=1.0.0", zipped: true, exemplars: true},
		{name: "an encoding that is not offered", accept: askOpenMetrics, encoding: "br", content: "application/openmetrics-text; version=1.0.0", exemplars: true},
	} {
		t.Run(tt.name, func(t *testing.T) {
			header, body := d.fetch(t, tt.accept, tt.encoding)
			if got := header.Get("Content-Type"); !strings.HasPrefix(got, tt.content) {
				t.Errorf("content type %q, want %q", got, tt.content)
			}
			if got := header.Get("Content-Encoding") == "gzip"; got != tt.zipped {
				t.Errorf("content encoding %q", header.Get("Content-Encoding"))
			}
			text := string(body)
			if got := strings.Contains(text, ` # {invocation="`+servedInvocation+`"} 17.0 `); got != tt.exemplars {
				t.Errorf("exemplars: %v\n%s", got, text)
			}
			if got := strings.HasSuffix(text, "\n# EOF\n") && strings.Contains(text, "# UNIT startupd_startup_phase_seconds seconds\n"); got != tt.exemplars {
				t.Errorf("an end and units: %v\n%s", got, text)
			}
			if strings.Contains(text, "startupd_startups_created") || strings.Contains(text, "startupd_startup_phase_seconds_created") {
				t.Error("times of creation make series")
			}
			if want := `startupd_startups_total{outcome="serving",unit="a.service"} 1`; !strings.Contains(text, want) {
				t.Errorf("lacks %s", want)
			}
		})
	}
}

// TestProtobuf: what Prometheus with native histograms asks for.
func TestProtobuf(t *testing.T) {
	d := begin(t, recent)
	d.serve(t)
	header, body := d.fetch(t, askProtobuf+","+askOpenMetrics+";q=0.8,*/*;q=0.1", "gzip")
	format := expfmt.ResponseFormat(header)
	if format.FormatType() != expfmt.TypeProtoDelim {
		t.Fatalf("content type %q", header.Get("Content-Type"))
	}
	families := map[string]*dto.MetricFamily{}
	decoder := expfmt.NewDecoder(strings.NewReader(string(body)), format)
	for {
		var f dto.MetricFamily
		err := decoder.Decode(&f)
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		families[f.GetName()] = &f
	}
	for _, m := range families["startupd_startups_total"].GetMetric() {
		c, outcome := m.GetCounter(), m.GetLabel()[0].GetValue()
		if served := outcome == "serving"; served != (c.GetExemplar().GetLabel() != nil) || c.GetCreatedTimestamp() == nil {
			t.Errorf("%s: %v", outcome, c)
		}
	}
	hist := families["startupd_startup_phase_seconds"]
	if hist.GetUnit() != "seconds" {
		t.Errorf("unit %q", hist.GetUnit())
	}
	for _, m := range hist.GetMetric() {
		phase, h := m.GetLabel()[0].GetValue(), m.GetHistogram()
		switch {
		case phase != "load":
		case h.GetSchema() != 3 || len(h.GetPositiveDelta()) != 1 || len(h.GetExemplars()) != 1 || h.GetExemplars()[0].GetValue() != 17 || len(h.GetBucket()) < 12:
			t.Errorf("load: %v", h)
		default:
			return
		}
	}
	t.Errorf("no good histogram of the load: %v", hist)
}

// TestSeriesThatComesTwice: whatever a driver says, the rest is told.
func TestSeriesThatComesTwice(t *testing.T) {
	d := begin(t, recent)
	d.serve(t)
	used := uint64(1 << 30)
	twice := []event.GPU{{Index: 0, UUID: "GPU-a", UsedBytes: &used}, {Index: 0, UUID: "GPU-a", UsedBytes: &used}}
	d.script.play(t, event.Event{At: at(40 * time.Second), Data: &event.GPUSample{GPUs: twice}})
	for _, accept := range []string{askPlain, askOpenMetrics} {
		_, body := d.fetch(t, accept, "")
		for _, want := range []string{`startupd_startups_total{outcome="serving",unit="a.service"} 1`, `startupd_gpu_memory_used_bytes{gpu="0",uuid="GPU-a"} 1`} {
			if strings.Count(string(body), want) != 1 {
				t.Errorf("%d times %s", strings.Count(string(body), want), want)
			}
		}
	}
}

// TestScrapesAtOnce reads snapshots while the next ones are made; the race detector
// watches.
func TestScrapesAtOnce(t *testing.T) {
	d := begin(t, recent)
	d.serve(t)
	var scrapers sync.WaitGroup
	for _, accept := range []string{askPlain, askOpenMetrics, askProtobuf} {
		scrapers.Go(func() {
			for range 50 {
				req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, d.base+"/metrics", nil)
				if err != nil {
					t.Error(err)
					return
				}
				req.Header.Set("Accept", accept)
				resp, err := http.DefaultClient.Do(req)
				if err != nil {
					t.Error(err)
					return
				}
				_, err = io.Copy(io.Discard, resp.Body)
				if err = errors.Join(err, resp.Body.Close()); err != nil || resp.StatusCode != http.StatusOK {
					t.Error(resp.Status, err)
				}
			}
		})
	}
	for i := range 200 {
		after, id := time.Duration(60+10*i)*time.Second, fmt.Sprintf("%032d", i)
		d.script.play(t, started("a.service", id, after), failed("a.service", id, after+time.Second),
			event.Event{At: at(after + 5*time.Second), Data: &event.Watermark{}})
	}
	scrapers.Wait()
	if _, body := d.fetch(t, askPlain, ""); !strings.Contains(string(body), `startupd_startups_total{outcome="failed",unit="a.service"} 200`) {
		t.Error("200 starts have failed, and are not counted so")
	}
}

// TestNoRootCauseMessage leaves the text out where it is not wanted.
func TestNoRootCauseMessage(t *testing.T) {
	for _, off := range []bool{false, true} {
		d := begin(t, func(o *Options) { o.NoRootCauseMessage = off })
		d.script.play(t, up(), started("a.service", servedInvocation, 0), failed("a.service", servedInvocation, time.Second))
		_, body := get(t, d.base+"/metrics")
		if !strings.Contains(body, "startupd_root_cause_info{") || strings.Contains(body, "startupd_root_cause_message_info") == off {
			t.Errorf("off %v:\n%s", off, body)
		}
		if err := d.stop(); err != nil {
			t.Error(err)
		}
	}
}
