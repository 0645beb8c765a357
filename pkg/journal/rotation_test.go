package journal

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/startupd/startupd/pkg/event"
)

// untilMarks waits for further watermarks: each is of a fresh look.
func (w *waiter) untilMarks(t *testing.T, n int) {
	t.Helper()
	marks := func() (n int) {
		w.mu.Lock()
		defer w.mu.Unlock()
		for _, e := range w.events {
			if _, ok := e.Data.(*event.Watermark); ok {
				n++
			}
		}
		return n
	}
	late := time.After(30 * time.Second)
	for want := marks() + n; marks() < want; {
		select {
		case <-w.grown:
		case <-late:
			t.Fatalf("no more watermarks; state %+v", w.state())
		}
	}
}

// TestRotation renames a file under its reader and puts a new one in its place,
// as journald does: the same reader goes on.
func TestRotation(t *testing.T) {
	if Available() != nil {
		t.Log("this build has journalctl only, which looks after its files itself")
		return
	}
	j := newLiveJournal(t)
	r := testReader(t, ReaderSDJournal, j.dir)
	j.append(t, line(1000, unitA, invA, "one"))
	waitForJournal(t, r)
	w := newWaiter()
	_, stop := startSource(t, Options{Reader: r, Targets: unitTargets(unitA)}, w)
	w.untilUp(t)
	j.append(t, line(2000, unitA, invA, "two"))
	w.until(t, "llm.service two")
	if err := os.Rename(filepath.Join(j.dir, "system.journal"), filepath.Join(j.dir, "system@archived.journal")); err != nil {
		t.Fatal(err)
	}
	w.untilMarks(t, 2)
	writeJournal(t, j.dir, "system.journal", line(3000, unitA, invA, "three"))
	w.until(t, "llm.service three")
	w.untilMarks(t, 3)
	stop()
	want := []string{"replayed llm.service one", "llm.service two", "llm.service three"}
	if d := cmp.Diff(want, w.lines()); d != "" {
		t.Errorf("(-want +got):\n%s", d)
	}
	if st := w.state(); !st.Up || st.Restarts != 0 {
		t.Errorf("%+v", st)
	}
}
