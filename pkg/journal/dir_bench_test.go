package journal

import (
	"context"
	"fmt"
	"testing"

	"github.com/startupd/startupd/pkg/event"
)

// BenchmarkReadDir is the whole way from journal files to events, the child
// process included, for entries with the fields that journald gives a line.
func BenchmarkReadDir(b *testing.B) {
	const entries = 30_000
	recs := make([]rec, entries)
	for i := range recs {
		recs[i] = rec{int64(1000 + 20*i), []string{
			"_TRANSPORT=stdout", "_STREAM_ID=" + invB, "PRIORITY=6", "SYSLOG_FACILITY=3", "SYSLOG_IDENTIFIER=serve",
			fmt.Sprint("_PID=", 4000+i%9), "_UID=990", "_GID=990", "_COMM=python3", "_EXE=/opt/venv/bin/python3.12",
			"_CMDLINE=python3 -m server --model big", "_CAP_EFFECTIVE=0", "_SYSTEMD_CGROUP=/system.slice/" + unitA,
			"_SYSTEMD_UNIT=" + unitA, "_SYSTEMD_SLICE=system.slice", "_SYSTEMD_INVOCATION_ID=" + invA,
			"_MACHINE_ID=" + testSeq, "_HOSTNAME=gpu-1",
			fmt.Sprintf("MESSAGE=(Server pid=%d) INFO 11-26 01:34:%02d [loggers.py:123] Throughput: %d.%d tokens/s, running: %d requests", 4000+i%9, i%60, i*7%9000, i%10, i%200),
		}}
	}
	dir := b.TempDir()
	writeJournal(b, dir, "system.journal", recs...)
	for _, kind := range kinds() {
		b.Run(string(kind), func(b *testing.B) {
			for b.Loop() {
				n := 0
				err := ReadDir(context.Background(), DirOptions{Reader: testReader(b, kind, dir), Target: TargetSpec{Unit: unitA}},
					func(_ context.Context, ev []event.Event) error { n += len(ev); return nil })
				if err != nil || n != entries {
					b.Fatalf("%d events, %v", n, err)
				}
			}
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N*entries), "ns/entry")
		})
	}
}
