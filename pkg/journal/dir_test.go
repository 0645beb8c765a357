package journal

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/startupd/startupd/pkg/event"
)

// sampleEntries holds one of everything that a reader must pass on.
func sampleEntries() []rec {
	return []rec{
		manager(1000, unitA, invA, idStarted, "Started llm.service - LLM server."),
		line(1000, unitA, invA, "first line"),
		line(1000, unitA, invA, "(Worker pid=7) \rshards:  10% | 1/10\rshards:  20% | 2/10"),
		line(1000, "other.service", invB, "not ours"),
		{2000, []string{"_TRANSPORT=kernel", "SYSLOG_IDENTIFIER=kernel", "MESSAGE=NVRM: Xid (PCI:0000:01:00): 79"}},
		{2500, []string{"_TRANSPORT=driver", "MESSAGE_ID=" + idMissed, "MESSAGE=Missed 12 kernel messages"}},
		{2600, []string{"_TRANSPORT=driver", "_UID=0", "_PID=300", "MESSAGE_ID=" + idSuppressed, "OBJECT_SYSTEMD_UNIT=" + unitA, "N_DROPPED=42", "MESSAGE=Suppressed 42 messages"}},
		{2700, []string{"_TRANSPORT=journal", "_UID=0", "_PID=301", "MESSAGE_ID=" + idCoredump, "COREDUMP_UNIT=" + unitA, "COREDUMP_PID=4711", "COREDUMP_SIGNAL_NAME=SIGSEGV", "MESSAGE=Process 4711 (serve) dumped core.\n\nStack:"}},
		{2800, []string{"_TRANSPORT=stdout", "_PID=4711", "_SYSTEMD_UNIT=" + unitA, "_SYSTEMD_INVOCATION_ID=" + invA, "_LINE_BREAK=line-max", "MESSAGE=cut"}},
		{2900, []string{"_TRANSPORT=stdout", "_PID=99", "_EXE=/usr/bin/startupd", "_SYSTEMD_UNIT=" + unitA, "_SYSTEMD_INVOCATION_ID=" + invA, "MESSAGE=waiting"}},
		line(3000, unitA, invA, strings.Repeat("x", 70<<10)),
		line(3100, unitA, invA, "\x1b[31mred\x1b[0m caf\xe9"),
		manager(4000, unitA, invA, idExit, "exited", "COMMAND=ExecStart", "EXIT_CODE=exited", "EXIT_STATUS=1"),
		configWarning(4500),
		manager(5000, unitA, invB, idStarted, "Started llm.service - LLM server."),
		line(5000, unitA, invB, "second start"),
		configWarning(6000),
	}
}

// TestReadersAgree is the parity of the readers: on the same files they give
// the same events.
func TestReadersAgree(t *testing.T) {
	dir := t.TempDir()
	writeJournal(t, dir, "system.journal", sampleEntries()...)
	want := []string{
		"llm.service <started>",
		"llm.service first line",
		"llm.service (Worker pid=7) shards:  20% | 2/10",
		" NVRM: Xid (PCI:0000:01:00): 79",
		" gap lost 12",
		"llm.service gap suppressed 42",
		"llm.service <coredump>",
		"llm.service cut",
		"llm.service gap line_max 1",
		"llm.service " + strings.Repeat("x", LineLimit),
		"llm.service gap oversize 1",
		"llm.service red caf\ufffd",
		"llm.service <process_exit>",
		"llm.service <started>",
		"llm.service second start",
	}
	all := map[ReaderKind][]event.Event{}
	for _, kind := range kinds() {
		t.Run(string(kind), func(t *testing.T) {
			got := readDir(t, DirOptions{Reader: testReader(t, kind, dir), Target: TargetSpec{Unit: unitA}})
			if d := cmp.Diff(want, texts(got)); d != "" {
				t.Errorf("events (-want +got):\n%s", d)
			}
			all[kind] = normal(got)
		})
	}
	for kind, got := range all {
		if d := cmp.Diff(all[ReaderJournalctl], got); d != "" {
			t.Errorf("%s against journalctl:\n%s", kind, d)
		}
	}
}

// normal leaves the cursors out: sdjournal's lines have shorter ones.
func normal(events []event.Event) []event.Event {
	for _, ev := range events {
		switch d := ev.Data.(type) {
		case *event.Line:
			d.Cursor = ""
		case *event.UnitMessage:
			d.Cursor = ""
		case *event.Gap:
			d.Cursor = ""
		}
	}
	return events
}

func readDir(t *testing.T, o DirOptions) []event.Event {
	t.Helper()
	var got []event.Event
	err := ReadDir(context.Background(), o, func(_ context.Context, ev []event.Event) error {
		got = append(got, ev...)
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return got
}

func TestReadDirInvocation(t *testing.T) {
	dir := t.TempDir()
	writeJournal(t, dir, "system.journal", sampleEntries()...)
	for _, kind := range kinds() {
		for _, tc := range []struct{ invocation, first, last string }{
			{"0", "llm.service <started>", "llm.service second start"},
			{"-1", "llm.service <started>", "llm.service <process_exit>"},
			{invA, "llm.service <started>", "llm.service <process_exit>"},
		} {
			t.Run(fmt.Sprintf("%s/%s", kind, tc.invocation), func(t *testing.T) {
				got := texts(readDir(t, DirOptions{
					Reader: testReader(t, kind, dir), Target: TargetSpec{Unit: unitA}, Invocation: tc.invocation}))
				if got[0] != tc.first || got[len(got)-1] != tc.last {
					t.Errorf("from %q to %q, want %q to %q", got[0], got[len(got)-1], tc.first, tc.last)
				}
			})
		}
	}
}

func TestReadDirErrors(t *testing.T) {
	good, empty, broken := t.TempDir(), t.TempDir(), t.TempDir()
	writeJournal(t, good, "system.journal", sampleEntries()...)
	if err := os.WriteFile(filepath.Join(broken, "system.journal"), []byte("no journal"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, tc := range []struct {
		name string
		o    DirOptions
		want string
	}{
		{"no directory", DirOptions{Reader: Reader{Dir: "/nonexistent/journal"}}, "no directory /nonexistent/journal: name one"},
		{"empty directory", DirOptions{Reader: Reader{Dir: empty}}, "no journal files (*.journal) in"},
		{"broken file", DirOptions{Reader: Reader{Dir: broken}}, "journalctl --verify"},
		{"no such unit", DirOptions{Reader: Reader{Dir: good}, Target: TargetSpec{Unit: "no.service"}}, "no entries of no.service in the journal: compare the name with journalctl"},
		{"no such invocation", DirOptions{Reader: Reader{Dir: good}, Invocation: "-7"}, "has no invocation -7"},
		{"bad target", DirOptions{Reader: Reader{Dir: good}, Target: TargetSpec{Unit: "llm"}}, "write llm.service"},
	} {
		for _, kind := range kinds() {
			t.Run(tc.name+"/"+string(kind), func(t *testing.T) {
				o := tc.o
				o.Reader = testReader(t, kind, tc.o.Reader.Dir)
				if o.Target == (TargetSpec{}) {
					o.Target.Unit = unitA
				}
				err := ReadDir(context.Background(), o, func(context.Context, []event.Event) error { return nil })
				if err == nil || !strings.Contains(err.Error(), tc.want) {
					t.Errorf("error %v, want one with %q", err, tc.want)
				}
			})
		}
	}
}

func TestReadDirBrokenBesideGood(t *testing.T) {
	dir := t.TempDir()
	writeJournal(t, dir, "system.journal", sampleEntries()...)
	if err := os.WriteFile(filepath.Join(dir, "system@old.journal"), []byte("LPKSHHRH and no more"), 0o600); err != nil {
		t.Fatal(err)
	}
	got := texts(readDir(t, DirOptions{Reader: testReader(t, kinds()[0], dir), Target: TargetSpec{Unit: unitA}}))
	if len(got) != 16 || got[0] != " gap corrupt 0" {
		t.Errorf("%d events, the first %q; want the 15 of the good file behind a gap", len(got), got[0])
	}
}
