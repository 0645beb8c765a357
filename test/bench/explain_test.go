//go:build bench

package bench

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"
)

// grep is what an operator does instead: it prints a count.
const grep = `journalctl -D "$0" -u "$1" -o cat | grep -cE 'ERROR|error|failed|RuntimeError|Loading model weights'`

// BenchmarkExplainJournal compares with a grep over the same journal.
func BenchmarkExplainJournal(b *testing.B) {
	for _, log := range []struct {
		name string
		mix  mix
	}{{"served", served}, {"loop", loop}} {
		b.Run(log.name, func(b *testing.B) {
			bin := program(b)
			dir := journal(b, log.name, sized(300_000, 10_000), log.mix)
			ours := []string{"explain", "--format=json", "--journal.dir=" + dir, "--unit=" + unit}
			theirs := []string{"-c", grep, dir, unit}
			wall(b, bin, ours...) // fills the page cache
			wall(b, "bash", theirs...)
			var o, t []time.Duration
			for range sized(5, 1) {
				o = append(o, wall(b, bin, ours...))
				t = append(t, wall(b, "bash", theirs...))
			}
			b.ReportMetric(0, "ns/op")
			b.ReportMetric(median(o).Seconds(), "startupd-s")
			b.ReportMetric(median(t).Seconds(), "grep-s")
			atMost(b, "ratio", median(o).Seconds()/median(t).Seconds(), 1.5)
		})
	}
}

// BenchmarkExplainText compares with mtail and forty patterns on a plain log.
func BenchmarkExplainText(b *testing.B) {
	bin := program(b)
	log, err := textOf(sized(300_000, 10_000), served)
	if err != nil {
		b.Fatal(err)
	}
	file := filepath.Join(b.TempDir(), "server.log")
	if err := os.WriteFile(file, log, 0o644); err != nil {
		b.Fatal(err)
	}
	ours := []string{"explain", "--format=json", file}
	theirs := []string{"--one_shot", "--progs=testdata/forty.mtail", "--logs=" + file, "--log_dir=" + b.TempDir()}
	var o, t []time.Duration
	for range sized(5, 1) {
		o = append(o, wall(b, bin, ours...))
		t = append(t, wall(b, "mtail", theirs...))
	}
	b.ReportMetric(0, "ns/op")
	b.ReportMetric(median(o).Seconds(), "startupd-s")
	b.ReportMetric(median(t).Seconds(), "mtail-s")
	atLeast(b, "times-faster", median(t).Seconds()/median(o).Seconds(), 5)
	if err := os.Remove(file); err != nil {
		b.Log(fmt.Errorf("the log is left: %w", err))
	}
}
