package journal

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// suppressed is journald's report that it dropped lines of a unit.
func suppressed(at int64, unit, n string) rec {
	return rec{at, []string{"_TRANSPORT=driver", "_PID=30", "_UID=0", "_SYSTEMD_UNIT=systemd-journald.service", "MESSAGE_ID=" + idSuppressed,
		"OBJECT_SYSTEMD_UNIT=" + unit, "N_DROPPED=" + n, "MESSAGE=Suppressed " + n + " messages from " + unit}}
}

func TestExaminer(t *testing.T) {
	dir := t.TempDir()
	writeJournal(t, dir, "system.journal",
		manager(1_000_000, unitA, invA, idStarted, "Started."),
		line(2_000_000, unitA, invA, "hello"),
		suppressed(3_000_000, unitA, "12"),
		suppressed(4_000_000, "other.service", "99"),
		suppressed(5_000_000, unitA, "30"),
		line(6_000_000, "other.service", invB, "bye"),
		line(7_000_000, unitA, invA, "the end"),
	)
	for _, kind := range kinds() {
		t.Run(string(kind), func(t *testing.T) {
			e, err := NewExaminer(Reader{Kind: kind, Dir: dir, Child: []string{os.Args[0], "journal-reader"}})
			if err != nil {
				t.Fatal(err)
			}
			if e.Kind() != kind {
				t.Errorf("it reads by %s", e.Kind())
			}
			ctx := t.Context()
			want := func(what string, s Span, err error, from, to time.Duration) {
				t.Helper()
				if err != nil || s.First.Mono != from || s.Last.Mono != to {
					t.Errorf("%s: %v to %v, %v; want %v to %v", what, s.First.Mono, s.Last.Mono, err, from, to)
				}
			}
			s, err := e.Span(ctx, TargetSpec{Unit: unitA})
			want("the unit", s, err, time.Second, 7*time.Second)
			s, err = e.Span(ctx, TargetSpec{})
			want("all", s, err, time.Second, 7*time.Second)
			s, err = e.Manager(ctx)
			want("the manager", s, err, time.Second, time.Second)
			s, err = e.Kernel(ctx)
			want("the kernel", s, err, 0, 0)
			s, err = e.Span(ctx, TargetSpec{Unit: "none.service"})
			want("no such unit", s, err, 0, 0)

			base := time.UnixMicro(baseReal)
			sum, err := e.Suppressed(ctx, unitA, base)
			if err != nil || sum.Times != 2 || sum.Lines != 42 || sum.Last.Mono != 5*time.Second {
				t.Errorf("suppressed: %+v, %v", sum, err)
			}
			if sum, err = e.Suppressed(ctx, unitA, base.Add(4*time.Second)); err != nil || sum.Times != 1 || sum.Lines != 30 {
				t.Errorf("suppressed since then: %+v, %v", sum, err)
			}
		})
	}
}

func TestLookAtFiles(t *testing.T) {
	dir := t.TempDir()
	if _, err := LookAtFiles(dir); err == nil || !strings.Contains(err.Error(), "no journal files") {
		t.Errorf("an empty directory: %v", err)
	}
	if _, err := LookAtFiles(filepath.Join(dir, "none")); err == nil {
		t.Error("no directory is no error")
	}
	writeJournal(t, dir, "system.journal", line(1, unitA, invA, "x"))
	if err := os.WriteFile(filepath.Join(dir, "bad.journal"), []byte("no journal"), 0o600); err != nil {
		t.Fatal(err)
	}
	f, err := LookAtFiles(dir)
	if err != nil || f.Readable != 1 || len(f.Broken) != 1 || f.Bytes < 1000 || f.Persistent || f.Volatile {
		t.Errorf("%+v, %v", f, err)
	}
}
