//go:build bench

package bench

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/startupd/startupd/test/nspawn"
)

// BenchmarkLatency measures, during a start, the time from a unit's write to
// the metric that shows it.
func BenchmarkLatency(b *testing.B) {
	for _, reader := range []struct {
		name  string
		bound float64
	}{{"sdjournal", 100}, {"journalctl", 500}} {
		b.Run(reader.name, func(b *testing.B) {
			n := sized(500, 20)
			h := boot(b, reader.name, fmt.Sprintf("/usr/bin/lineprobe latency %d %s /e2e/result", n, metricsURL))
			h.Run(b, "systemctl", "start", unit)
			var text []byte
			nspawn.Eventually(b, 5*time.Minute, func() error {
				if _, err := h.Try("systemctl", "is-failed", "--quiet", unit); err == nil {
					log, _ := h.Try("journalctl", "--no-pager", "-n", "20")
					metrics, _ := h.Try("curl", "-s", metricsURL)
					b.Fatalf("the probe failed\n%s\n%s", log, metrics)
				}
				var err error
				text, err = os.ReadFile(filepath.Join(h.share, "result"))
				return err
			})
			var took []time.Duration
			for f := range strings.FieldsSeq(string(text)) {
				ns, err := strconv.ParseInt(f, 10, 64)
				if err != nil {
					b.Fatal(err)
				}
				took = append(took, time.Duration(ns))
			}
			b.ReportMetric(0, "ns/op")
			b.ReportMetric(ms(quantile(took, 0.5)), "p50-ms")
			atMost(b, "p99-ms", ms(quantile(took, 0.99)), reader.bound)
		})
	}
}

// BenchmarkMemoryDaemon follows the memory of the daemon and its children while
// the unit floods the journal.
func BenchmarkMemoryDaemon(b *testing.B) {
	n := sized(3_000_000, 50_000)
	h := boot(b, "auto", fmt.Sprintf("/usr/bin/lineprobe flood %d /e2e/first /e2e/loop", n))
	text, err := textOf(20_000, served)
	if err != nil {
		b.Fatal(err)
	}
	nspawn.Put(b, filepath.Join(h.share, "first"), string(text))
	half := len(text)/2 + bytes.IndexByte(text[len(text)/2:], '\n') + 1
	nspawn.Put(b, filepath.Join(h.share, "loop"), string(text[half:]))
	pid := h.daemon(b)
	h.Run(b, "systemctl", "start", unit)
	var p peaks
	lines, began, changed := 0.0, time.Now(), time.Now()
	nspawn.Poll(b, 50*time.Millisecond, time.Hour, func() error {
		body, err := h.Try("curl", "-s", metricsURL)
		if err != nil {
			b.Fatal(err)
		}
		if now := value(body, "startupd_journal_lines_total"); now != lines {
			lines, changed = now, time.Now()
		}
		u, err := anonymous(pid)
		if err != nil {
			b.Fatal(err)
		}
		p.add(u, lines/float64(n))
		if lines < float64(n) && time.Since(changed) < 20*time.Second {
			return fmt.Errorf("%.0f lines so far", lines)
		}
		return nil
	})
	b.ReportMetric(lines/changed.Sub(began).Seconds(), "lines/s")
	atMost(b, "lost-lines", max(0, float64(n)-lines), 0)
	p.report(b, 20)
}

// value adds up the samples of a family.
func value(body, family string) float64 {
	var sum float64
	for line := range strings.Lines(body) {
		if rest, ok := strings.CutPrefix(line, family+"{"); ok {
			f, _ := strconv.ParseFloat(strings.TrimSpace(rest[strings.LastIndexByte(rest, ' ')+1:]), 64)
			sum += f
		}
	}
	return sum
}
