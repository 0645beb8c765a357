package journal

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/startupd/startupd/pkg/event"
)

// liveJournal is a journal file to which systemd-journal-remote appends.
type liveJournal struct {
	dir   string
	in    *os.File
	cmd   *exec.Cmd
	count int
}

func newLiveJournal(t *testing.T) *liveJournal {
	t.Helper()
	j := &liveJournal{dir: t.TempDir()}
	j.open(t)
	return j
}

func (j *liveJournal) open(t *testing.T) {
	t.Helper()
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	j.in = w
	j.cmd = exec.Command("/lib/systemd/systemd-journal-remote", "-o", filepath.Join(j.dir, "system.journal"), "-")
	j.cmd.Stdin = r
	var out bytes.Buffer
	j.cmd.Stdout, j.cmd.Stderr = &out, &out
	if err := j.cmd.Start(); err != nil {
		t.Fatalf("systemd-journal-remote (package systemd-journal-remote): %v", err)
	}
	_ = r.Close()
	t.Cleanup(func() { j.close() })
}

func (j *liveJournal) close() {
	_ = j.in.Close()
	_ = j.cmd.Wait()
}

func (j *liveJournal) append(t *testing.T, recs ...rec) {
	t.Helper()
	var b bytes.Buffer
	enc := NewEncoder(&b)
	for _, r := range recs {
		r.encode(enc, cursorOf(j.count, r))
		j.count++
		if err := enc.End(); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := j.in.Write(b.Bytes()); err != nil {
		t.Fatal(err)
	}
}

// waiter is a receiver on which a test can wait for a line.
type waiter struct {
	mu     sync.Mutex
	events []event.Event
	grown  chan struct{}
}

func newWaiter() *waiter { return &waiter{grown: make(chan struct{}, 1)} }

func (w *waiter) emit(_ context.Context, ev []event.Event) error {
	w.mu.Lock()
	w.events = append(w.events, ev...)
	w.mu.Unlock()
	select {
	case w.grown <- struct{}{}:
	default:
	}
	return nil
}

func (w *waiter) lines() []string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return texts(w.events)
}

// until waits until the last of the lines is want.
func (w *waiter) until(t *testing.T, want string) {
	t.Helper()
	late := time.After(30 * time.Second)
	for {
		if l := w.lines(); len(l) > 0 && l[len(l)-1] == want {
			return
		}
		select {
		case <-w.grown:
		case <-late:
			l := w.lines()
			t.Fatalf("%q did not come; %d lines: %q", want, len(l), l)
		}
	}
}

// untilUp waits until the source follows.
func (w *waiter) untilUp(t *testing.T) {
	t.Helper()
	late := time.After(30 * time.Second)
	for !w.state().Up {
		select {
		case <-w.grown:
		case <-late:
			t.Fatalf("the source did not come up; state %+v", w.state())
		}
	}
}

func startSource(t *testing.T, o Options, w *waiter) (*Source, func()) {
	t.Helper()
	if o.UnitsDir == "" {
		o.UnitsDir = t.TempDir()
	}
	s, err := New(o)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- s.Run(ctx, w.emit) }()
	var once sync.Once
	stop := func() {
		once.Do(func() {
			cancel()
			if err := <-done; err != nil {
				t.Errorf("Run: %v", err)
			}
		})
	}
	t.Cleanup(stop)
	return s, stop
}

// TestLiveJournal follows a real journal file, kills the reader in the middle,
// and restarts the source: each line comes once, in order.
func TestLiveJournal(t *testing.T) {
	for _, kind := range kinds() {
		t.Run(string(kind), func(t *testing.T) {
			j := newLiveJournal(t)
			j.append(t, line(1000, unitA, invA, "first"))
			w := newWaiter()
			o := Options{Reader: testReader(t, kind, j.dir), Targets: unitTargets(unitA)}
			waitForJournal(t, o.Reader)
			s, stop := startSource(t, o, w)
			w.untilUp(t)
			s.SetFast(true)
			want := []string{"replayed llm.service first"}
			next := func(n int) string {
				var recs []rec
				for range n {
					text := fmt.Sprint("line ", len(want))
					// Ten lines share each stamp.
					recs = append(recs, line(int64(2000+len(want)/10), unitA, invA, text), line(int64(2000+len(want)/10), "web.service", invB, "other"))
					want = append(want, "llm.service "+text)
				}
				j.append(t, recs...)
				return want[len(want)-1]
			}
			w.until(t, next(25))
			for range 3 {
				next(13)
				killReader(s)
				w.until(t, next(9))
			}
			stop()
			next(25)
			_, stop = startSource(t, Options{Reader: o.Reader, Targets: o.Targets, Resume: s.Applied()}, w)
			w.until(t, next(3))
			stop()
			got := w.lines()
			// The second source replays what the first had applied.
			var fresh []string
			for _, l := range got {
				if !strings.HasPrefix(l, "replayed") {
					fresh = append(fresh, l)
				}
			}
			if d := cmp.Diff(want[1:], fresh); d != "" {
				t.Errorf("(-want +got):\n%s", d)
			}
			if n := len(got) - len(fresh); n != 1+92 {
				t.Errorf("%d lines were replayed, want 1 by the first source and 92 by the second", n)
			}
			if st := w.state(); !st.Up {
				t.Errorf("last state %+v", st)
			}
		})
	}
}

func (w *waiter) state() event.SourceState {
	w.mu.Lock()
	defer w.mu.Unlock()
	var st event.SourceState
	for _, ev := range w.events {
		if s, ok := ev.Data.(*event.SourceState); ok {
			st = *s
		}
	}
	return st
}

// waitForJournal waits until the journal's file has an entry.
func waitForJournal(t *testing.T, r Reader) {
	t.Helper()
	l, err := newLauncher(r)
	if err != nil {
		t.Fatal(err)
	}
	late := time.After(30 * time.Second)
	for {
		if _, err := checkAccess(r.Dir); err == nil {
			if f, err := first(context.Background(), l, request{}); err == nil && f.cursor != "" {
				return
			}
		}
		select {
		case <-late:
			t.Fatal("systemd-journal-remote wrote nothing")
		case <-time.After(10 * time.Millisecond):
		}
	}
}

func killReader(s *Source) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if p, ok := s.reader.(*process); ok {
		_ = p.cmd.Process.Kill()
	}
}

// TestVacuumedJournal: the file with the applied entry is removed while nobody
// reads, as journald does when it vacuums.
func TestVacuumedJournal(t *testing.T) {
	for _, kind := range kinds() {
		t.Run(string(kind), func(t *testing.T) {
			dir := t.TempDir()
			writeJournal(t, dir, "old.journal", line(1000, unitA, invA, "one"), line(1100, unitA, invA, "two"))
			w := newWaiter()
			o := Options{Reader: testReader(t, kind, dir), Targets: unitTargets(unitA)}
			s, stop := startSource(t, o, w)
			w.until(t, "replayed llm.service two")
			stop()
			if err := os.Remove(filepath.Join(dir, "old.journal")); err != nil {
				t.Fatal(err)
			}
			writeJournal(t, dir, "system.journal", line(5000, unitA, invB, "three"), line(5100, unitA, invB, "four"))
			w = newWaiter()
			_, stop = startSource(t, Options{Reader: o.Reader, Targets: o.Targets, Resume: s.Applied()}, w)
			w.until(t, "llm.service four")
			stop()
			if d := cmp.Diff([]string{" gap vacuumed 0", "llm.service three", "llm.service four"}, w.lines()); d != "" {
				t.Errorf("(-want +got):\n%s", d)
			}
		})
	}
}

// TestTruncatedJournal cuts the file under a following reader: libsystemd may
// die of it, the source does not, and tells of the gap once the journal goes
// on in a new file.
func TestTruncatedJournal(t *testing.T) {
	for _, kind := range kinds() {
		t.Run(string(kind), func(t *testing.T) {
			j := newLiveJournal(t)
			j.append(t, line(1000, unitA, invA, "one"), line(1100, unitA, invA, "two"))
			w := newWaiter()
			o := Options{Reader: testReader(t, kind, j.dir), Targets: unitTargets(unitA)}
			waitForJournal(t, o.Reader)
			s, stop := startSource(t, o, w)
			w.untilUp(t)
			s.SetFast(true)
			j.append(t, line(1200, unitA, invA, "three"))
			w.until(t, "llm.service three")
			j.close()
			file := filepath.Join(j.dir, "system.journal")
			if err := os.Truncate(file, 4096); err != nil {
				t.Fatal(err)
			}
			killReader(s) // where it did not die of it
			if err := os.Rename(file, file+"~"); err != nil {
				t.Fatal(err)
			}
			writeJournal(t, j.dir, "new.journal", line(9000, unitA, invB, "four"))
			w.until(t, "llm.service four")
			stop()
			got := w.lines()
			gaps := 0
			for _, l := range got {
				if strings.Contains(l, " gap ") {
					gaps++
				}
			}
			if gaps != 1 {
				t.Errorf("%d gaps in %q, want one", gaps, got)
			}
		})
	}
}

// TestACutFileIsAGap: a reader that survives the cut says nothing of it, and the
// lines that it had not read are gone.
func TestACutFileIsAGap(t *testing.T) {
	for _, kind := range kinds() {
		t.Run(string(kind), func(t *testing.T) {
			j := newLiveJournal(t)
			j.append(t, line(1000, unitA, invA, "one"))
			w := newWaiter()
			o := Options{Reader: testReader(t, kind, j.dir), Targets: unitTargets(unitA)}
			waitForJournal(t, o.Reader)
			s, stop := startSource(t, o, w)
			w.untilUp(t)
			s.SetFast(true)
			j.append(t, line(1200, unitA, invA, "two"))
			w.until(t, "llm.service two")
			j.close()
			file := filepath.Join(j.dir, "system.journal")
			if err := os.Truncate(file, 4096); err != nil {
				t.Fatal(err)
			}
			w.until(t, " gap truncated 0")
			// journald puts the file aside and goes on in a new one.
			if err := os.Rename(file, file+"~"); err != nil {
				t.Fatal(err)
			}
			writeJournal(t, j.dir, "new.journal", line(9000, unitA, invB, "three"))
			w.until(t, "llm.service three")
			stop()
			want := []string{"replayed llm.service one", "llm.service two", " gap truncated 0", "llm.service three"}
			if d := cmp.Diff(want, w.lines()); d != "" {
				t.Errorf("(-want +got):\n%s", d)
			}
		})
	}
}

// TestFollowsANewFile: journald rotates, and the next entry is in a file that
// was not there when the reader began.
func TestFollowsANewFile(t *testing.T) {
	for _, kind := range kinds() {
		t.Run(string(kind), func(t *testing.T) {
			dir := t.TempDir()
			writeJournal(t, dir, "system.journal", line(1000, unitA, invA, "one"))
			w := newWaiter()
			_, stop := startSource(t, Options{Reader: testReader(t, kind, dir), Targets: unitTargets(unitA)}, w)
			w.untilUp(t)
			writeJournal(t, dir, "system2.journal", line(2000, unitA, invA, "two"))
			w.until(t, "llm.service two")
			stop()
			if d := cmp.Diff([]string{"replayed llm.service one", "llm.service two"}, w.lines()); d != "" {
				t.Errorf("(-want +got):\n%s", d)
			}
		})
	}
}

func TestAccess(t *testing.T) {
	dir := t.TempDir()
	if _, err := checkAccess(dir); err == nil || !strings.Contains(err.Error(), "no journal files") {
		t.Errorf("empty directory: %v", err)
	}
	if _, err := checkAccess(filepath.Join(dir, "no")); err == nil || !strings.Contains(err.Error(), "no directory") {
		t.Errorf("no directory: %v", err)
	}
	writeJournal(t, dir, "system.journal", line(1, unitA, invA, "one"))
	if broken, err := checkAccess(dir); err != nil || len(broken) != 0 {
		t.Errorf("good file: %v, %v", broken, err)
	}
	whole, err := os.ReadFile(filepath.Join(dir, "system.journal"))
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "cut.journal"), whole[:len(whole)/2], 0o600); err != nil {
		t.Fatal(err)
	}
	broken, err := checkAccess(dir)
	if err != nil || len(broken) != 1 || filepath.Base(broken[0]) != "cut.journal" {
		t.Errorf("cut file: %v, %v", broken, err)
	}
}

// TestReaderSaysWhy: a child that fails tells its parent.
func TestReaderSaysWhy(t *testing.T) {
	p, err := startProcess(context.Background(), []string{"/bin/sh", "-c", "echo 'unexpected fault' >&2; echo stack >&2; exit 3"}, false)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := io.ReadAll(p.out); err != nil {
		t.Fatal(err)
	}
	if err := p.wait(); err == nil || err.Error() != "journal reader: exit status 3: unexpected fault" {
		t.Errorf("error %v", err)
	}
	if _, err := startProcess(context.Background(), []string{"/nonexistent/reader"}, true); err == nil {
		t.Error("a reader that is not there was started")
	}
}
