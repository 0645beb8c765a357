package journal

import (
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// cut takes the end of a journal file away; whole gives it its length again, as
// journald does with its next write.
func cut(t *testing.T, path string, size int64, whole bool) {
	t.Helper()
	info, err := os.Stat(path)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Truncate(path, size); err != nil {
		t.Fatal(err)
	}
	if !whole {
		return
	}
	if err := os.Truncate(path, info.Size()); err != nil {
		t.Fatal(err)
	}
}

// TestCutWatch: a look that comes late finds the cut too, and finds it once.
func TestCutWatch(t *testing.T) {
	for _, c := range []struct {
		name   string
		damage func(t *testing.T, dir, path string)
		want   []string
	}{
		{"cut", func(t *testing.T, _, path string) { cut(t, path, 64<<10, false) }, []string{"system.journal"}},
		{"cut within the header", func(t *testing.T, _, path string) { cut(t, path, 100, false) }, []string{"system.journal"}},
		{"cut and made whole before the look", func(t *testing.T, _, path string) { cut(t, path, 64<<10, true) }, []string{"system.journal"}},
		{"cut, made whole and archived before the look", func(t *testing.T, dir, path string) {
			cut(t, path, 64<<10, true)
			if err := os.Rename(path, filepath.Join(dir, "system@1.journal")); err != nil {
				t.Fatal(err)
			}
			writeJournal(t, dir, "system.journal", line(3000, unitA, invA, "three"))
		}, []string{"system@1.journal"}},
		{"emptied and put aside", func(t *testing.T, dir, path string) {
			cut(t, path, 0, true)
			if err := os.Rename(path, path+"~"); err != nil {
				t.Fatal(err)
			}
		}, []string{"system.journal~"}},
		{"rotated", func(t *testing.T, dir, path string) {
			if err := os.Rename(path, filepath.Join(dir, "system@1.journal")); err != nil {
				t.Fatal(err)
			}
			writeJournal(t, dir, "system.journal", line(3000, unitA, invA, "three"))
		}, nil},
		{"vacuumed", func(t *testing.T, _, path string) {
			if err := os.Remove(path); err != nil {
				t.Fatal(err)
			}
		}, nil},
		{"written to", func(t *testing.T, dir, _ string) {
			writeJournal(t, dir, "system.journal", line(3000, unitA, invA, "three"))
		}, nil},
	} {
		t.Run(c.name, func(t *testing.T) {
			dir := t.TempDir()
			path := filepath.Join(dir, "system.journal")
			writeJournal(t, dir, "system.journal", line(1000, unitA, invA, "one"), line(2000, unitA, invA, "two"))
			w := &cutWatch{dirs: []string{dir}}
			if found := w.take(0); found != nil {
				t.Fatalf("%q was found cut before it was", found)
			}
			c.damage(t, dir, path)
			var got []string
			for _, path := range slices.Concat(w.take(0), w.take(0)) {
				got = append(got, filepath.Base(path))
			}
			if d := cmp.Diff(c.want, got); d != "" {
				t.Errorf("(-want +got):\n%s", d)
			}
		})
	}
}

// TestACutThatNobodySawIsAGap: the file has its length again before the source
// looks, and its reader lives.
func TestACutThatNobodySawIsAGap(t *testing.T) {
	for _, kind := range kinds() {
		t.Run(string(kind), func(t *testing.T) {
			j := newLiveJournal(t)
			j.append(t, line(1000, unitA, invA, "one"))
			w := newWaiter()
			o := Options{Reader: testReader(t, kind, j.dir), Targets: unitTargets(unitA)}
			waitForJournal(t, o.Reader)
			_, stop := startSource(t, o, w)
			w.untilUp(t)
			j.append(t, line(1200, unitA, invA, "two"))
			w.until(t, "llm.service two")
			j.close()
			file := filepath.Join(j.dir, "system.journal")
			cut(t, file, 64<<10, true)
			if err := os.Rename(file, filepath.Join(j.dir, "system@1.journal")); err != nil {
				t.Fatal(err)
			}
			w.until(t, " gap truncated 0")
			writeJournal(t, j.dir, "system.journal", line(9000, unitA, invB, "three"))
			w.until(t, "llm.service three")
			stop()
			want := []string{"replayed llm.service one", "llm.service two", " gap truncated 0", "llm.service three"}
			if d := cmp.Diff(want, w.lines()); d != "" {
				t.Errorf("(-want +got):\n%s", d)
			}
		})
	}
}

// TestCutWatchBetweenNames: a look in the middle of a rename meets the file under
// neither name, and forgets nothing of it.
func TestCutWatchBetweenNames(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "system.journal")
	writeJournal(t, dir, "system.journal", line(1000, unitA, invA, "one"))
	w := &cutWatch{dirs: []string{dir}}
	w.note()
	rename := func(to string) {
		t.Helper()
		if err := os.Rename(path, to); err != nil {
			t.Fatal(err)
		}
		path = to
	}
	rename(filepath.Join(dir, "under-no-name"))
	w.note()
	cut(t, path, 64<<10, true)
	rename(filepath.Join(dir, "system@1.journal"))
	w.note()
	if d := cmp.Diff([]string{path}, w.take(0)); d != "" {
		t.Errorf("(-want +got):\n%s", d)
	}
}
