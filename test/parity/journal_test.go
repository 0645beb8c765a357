package parity

import (
	"bytes"
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/startupd/startupd/internal/app/explain"
	"github.com/startupd/startupd/pkg/event"
	"github.com/startupd/startupd/pkg/journal"
	"github.com/startupd/startupd/pkg/phases"
)

// apart is how far apart the starts lie in a journal that holds all.
const apart = 400 * 24 * time.Hour

// TestJournal plays every start through real journal files, and reads them as
// explain --journal.dir does.
func TestJournal(t *testing.T) {
	starts := corpus(t)
	shared := t.TempDir()
	var all []byte
	dirs := make([]string, len(starts))
	for i, c := range starts {
		// The kernel speaks to all units of a journal, and systemd names the same one
		// in several starts.
		out := export(t, c, journalled(t, c, time.Duration(i)*apart))
		if slices.ContainsFunc(c.events, ofHost) {
			dirs[i] = t.TempDir()
			makeJournal(t, dirs[i], out)
			continue
		}
		dirs[i], all = shared, append(all, out...)
	}
	makeJournal(t, shared, all)
	for i, c := range starts {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			for _, kind := range readers() {
				got := readJournal(t, c, dirs[i], kind)
				if diff := cmp.Diff(verdicts(nameless(c, whole(t, c))), got); diff != "" {
					t.Errorf("%s: text (-), journal (+):\n%s", kind, diff)
				}
			}
		})
	}
}

// ofHost says that an event is the kernel's or systemd's word.
func ofHost(ev event.Event) bool {
	l, ok := ev.Data.(*event.Line)
	return !ok || l.Origin == event.OriginKernel
}

// readers are the ways to read a journal that this build has.
func readers() []journal.ReaderKind {
	if journal.Available() == nil {
		return []journal.ReaderKind{journal.ReaderSDJournal, journal.ReaderJournalctl}
	}
	return []journal.ReaderKind{journal.ReaderJournalctl}
}

// makeJournal makes a journal file of entries in export format.
func makeJournal(t testing.TB, dir string, entries []byte) {
	t.Helper()
	cmd := exec.Command("/lib/systemd/systemd-journal-remote", "--output="+filepath.Join(dir, "starts.journal"), "-")
	cmd.Stdin = bytes.NewReader(entries)
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("systemd-journal-remote (make deps installs it): %v\n%s", err, out)
	}
}

// readJournal explains a start by its unit's entries in a directory.
func readJournal(t testing.TB, c recorded, dir string, kind journal.ReaderKind) []verdict {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	opts := explainOptions(t, c, nil)
	opts.Source = func(ctx context.Context, emit func(context.Context, []event.Event) error) error {
		return journal.ReadDir(ctx, journal.DirOptions{
			Reader: journal.Reader{Kind: kind, Dir: dir, Child: []string{self, "journal-reader"}},
			Target: journal.TargetSpec{Unit: unitOf(c)},
		}, emit)
	}
	report, err := explain.Run(t.Context(), opts)
	if err != nil {
		t.Fatal(err)
	}
	var out []verdict
	for _, s := range report.Startups {
		out = append(out, ofReport(s))
	}
	return out
}

// nameless takes out the names of processes that only a wrapper around a pasted
// log tells (a compose service): no journal has them.
func nameless(c recorded, list []*phases.Startup) []*phases.Startup {
	wrapped := map[string]bool{}
	for _, ev := range c.events {
		if l, ok := ev.Data.(*event.Line); ok && l.Proc != "" {
			wrapped[l.Proc] = true
		}
	}
	for _, s := range list {
		if s.RootCause != nil && wrapped[s.RootCause.Process] {
			s.RootCause.Process = ""
		}
		for i := range s.Findings {
			f := &s.Findings[i]
			if wrapped[f.Process] {
				f.Process = ""
			}
			if f.Processes = slices.DeleteFunc(f.Processes, func(name string) bool { return wrapped[name] }); len(f.Processes) == 0 {
				f.Processes = nil
			}
		}
	}
	return list
}
