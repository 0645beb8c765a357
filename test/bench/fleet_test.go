//go:build bench

package bench

import (
	"bytes"
	"compress/gzip"
	"fmt"
	"io"
	"net/http"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/procfs"
	"golang.org/x/sys/unix"

	"github.com/startupd/startupd/test/nspawn"
)

// BenchmarkScrapeFleet measures /metrics of a daemon with twenty units on eight
// GPUs beside the node_exporter of the distribution, in turns: as Prometheus
// asks for it, and as curl does.
func BenchmarkScrapeFleet(b *testing.B) {
	own, node := startFleet(b), startNodeExporter(b)
	for _, as := range []struct {
		name   string
		header http.Header
	}{{"prometheus", prometheus()}, {"plain", nil}} {
		b.Run(as.name, func(b *testing.B) { compare(b, own, node, as.header) })
	}
}

// prometheus returns what Prometheus 2.42 sends with a scrape.
func prometheus() http.Header {
	return http.Header{
		"Accept":                              {"application/openmetrics-text;version=1.0.0,application/openmetrics-text;version=0.0.1;q=0.75,text/plain;version=0.0.4;q=0.5,*/*;q=0.1"},
		"Accept-Encoding":                     {"gzip"},
		"User-Agent":                          {"Prometheus/2.42.0"},
		"X-Prometheus-Scrape-Timeout-Seconds": {"10"},
	}
}

// exporter is a process that is scraped.
type exporter struct {
	url string
	pid int
}

// scrapes are the measurements of one exporter.
type scrapes struct {
	took          []time.Duration
	bytes, series int
	openMetrics   bool
	// cpu is the processor time of the whole process meanwhile, in seconds, memory
	// its anonymous memory at the end, in bytes.
	cpu, memory float64
}

func compare(b *testing.B, own, node exporter, header http.Header) {
	client := &http.Client{Transport: &http.Transport{DisableCompression: true}, Timeout: 10 * time.Second}
	defer client.CloseIdleConnections()
	all := map[exporter]*scrapes{}
	for _, e := range []exporter{own, node} {
		all[e] = firstScrape(b, client, e, header)
		all[e].cpu = -cpu(b, e)
	}
	if header != nil && !all[own].openMetrics {
		b.Fatal("startupd does not answer Prometheus in OpenMetrics")
	}
	for i := range sized(5000, 50) {
		pair := []exporter{own, node}
		if i%2 == 1 {
			pair[0], pair[1] = node, own
		}
		for _, e := range pair {
			at := time.Now()
			get(b, client, e, header)
			all[e].took = append(all[e].took, time.Since(at))
		}
	}
	for e, s := range all {
		s.cpu += cpu(b, e)
		var err error
		if s.memory, err = rssAnon(e.pid); err != nil {
			b.Fatal(err)
		}
	}
	report(b, all[own], all[node])
}

func report(b *testing.B, own, node *scrapes) {
	b.ReportMetric(0, "ns/op")
	for _, e := range []struct {
		name string
		*scrapes
	}{{"", own}, {"node-", node}} {
		b.ReportMetric(ms(quantile(e.took, 0.5)), e.name+"p50-ms")
		b.ReportMetric(ms(quantile(e.took, 0.99)), e.name+"p99-ms")
		b.ReportMetric(float64(e.bytes), e.name+"bytes")
		b.ReportMetric(float64(e.series), e.name+"series")
		b.ReportMetric(e.memory/mega, e.name+"MB")
		b.ReportMetric(1000*e.cpu/float64(len(e.took)), e.name+"cpu-ms")
	}
	for _, q := range []struct {
		name string
		of   float64
	}{{"p50", 0.5}, {"p99", 0.99}} {
		b.ReportMetric(ms(quantile(own.took, q.of))/ms(quantile(node.took, q.of)), q.name+"-ratio")
	}
}

// firstScrape is one that is not timed: its size and its series.
func firstScrape(b *testing.B, client *http.Client, e exporter, header http.Header) *scrapes {
	b.Helper()
	body := get(b, client, e, header)
	s := &scrapes{bytes: len(body)}
	if header.Get("Accept-Encoding") == "gzip" {
		z, err := gzip.NewReader(bytes.NewReader(body))
		if err != nil {
			b.Fatalf("%s is not compressed: %v", e.url, err)
		}
		if body, err = io.ReadAll(z); err != nil {
			b.Fatal(err)
		}
	}
	s.openMetrics = bytes.HasSuffix(body, []byte("# EOF\n"))
	for line := range bytes.Lines(body) {
		if line[0] != '#' {
			s.series++
		}
	}
	return s
}

// get returns the body as it came over the wire.
func get(b *testing.B, client *http.Client, e exporter, header http.Header) []byte {
	req, err := http.NewRequestWithContext(b.Context(), http.MethodGet, e.url, nil)
	if err != nil {
		b.Fatal(err)
	}
	if header != nil {
		req.Header = header
	}
	resp, err := client.Do(req)
	if err != nil {
		b.Fatal(err)
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		b.Fatal(err)
	}
	if resp.StatusCode != http.StatusOK {
		b.Fatalf("%s: %s\n%s", e.url, resp.Status, body)
	}
	return body
}

// cpu is the processor time that the exporter's own process has had, in seconds.
func cpu(b *testing.B, e exporter) float64 {
	b.Helper()
	p, err := procfs.NewProc(e.pid)
	if err != nil {
		b.Fatal(err)
	}
	st, err := p.Stat()
	if err != nil {
		b.Fatal(err)
	}
	return st.CPUTime()
}

// startNodeExporter starts Debian's node_exporter with its default collectors.
func startNodeExporter(b *testing.B) exporter {
	b.Helper()
	addr := freeAddress(b)
	pid := daemon(b, exec.Command("prometheus-node-exporter", "--web.listen-address="+addr, "--log.level=error"))
	e := exporter{url: "http://" + addr + "/metrics", pid: pid}
	nspawn.Eventually(b, 30*time.Second, func() error {
		body, err := scrape(e.url)
		if err == nil && !strings.Contains(body, `node_scrape_collector_success{collector="cpu"} 1`) {
			err = fmt.Errorf("node_exporter reads nothing:\n%.500s", body)
		}
		return err
	})
	return e
}

// daemon starts a process that ends with the benchmark.
func daemon(b *testing.B, cmd *exec.Cmd) (pid int) {
	b.Helper()
	var log logged
	cmd.Stderr = &log
	if err := cmd.Start(); err != nil {
		b.Fatalf("make deps installs %s: %v", cmd.Path, err)
	}
	b.Cleanup(func() {
		_ = cmd.Process.Signal(unix.SIGTERM) // SIGINT is ignored by what runs in the background
		_ = cmd.Wait()
		if b.Failed() {
			b.Logf("%v:\n%s", cmd.Args, log.String())
		}
	})
	return cmd.Process.Pid
}
