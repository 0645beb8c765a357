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
			ours := []string{bin, "explain", "--format=json", "--journal.dir=" + dir, "--unit=" + unit}
			theirs := []string{"bash", "-c", grep, dir, unit}
			wall(b, ours...) // fills the page cache
			wall(b, theirs...)
			o, t := inTurns(b, ours, theirs)
			b.ReportMetric(t, "grep-s")
			atMost(b, "ratio", o/t, 1.5)
		})
	}
}

// BenchmarkExplainText compares with mtail and forty patterns on a plain log.
func BenchmarkExplainText(b *testing.B) {
	log, err := textOf(sized(300_000, 10_000), served)
	if err != nil {
		b.Fatal(err)
	}
	file := filepath.Join(b.TempDir(), "server.log")
	if err := os.WriteFile(file, log, 0o644); err != nil {
		b.Fatal(err)
	}
	ours := []string{program(b), "explain", "--format=json", file}
	theirs := []string{"mtail", "--one_shot", "--progs=testdata/forty.mtail", "--logs=" + file, "--log_dir=" + b.TempDir()}
	o, t := inTurns(b, ours, theirs)
	b.ReportMetric(t, "mtail-s")
	atLeast(b, "times-faster", t/o, 5)
	if err := os.Remove(file); err != nil {
		b.Log(fmt.Errorf("the log is left: %w", err))
	}
}

// inTurns runs startupd and what it is compared with, one after the other, and
// returns the median time of each in seconds. It reports startupd's.
func inTurns(b *testing.B, ours, theirs []string) (o, t float64) {
	b.Helper()
	var us, them []time.Duration
	for range sized(5, 1) {
		us = append(us, wall(b, ours...))
		them = append(them, wall(b, theirs...))
	}
	o, t = median(us).Seconds(), median(them).Seconds()
	b.ReportMetric(0, "ns/op")
	b.ReportMetric(o, "startupd-s")
	return o, t
}
