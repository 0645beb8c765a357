package journal

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/fsnotify/fsnotify"

	"github.com/startupd/startupd/pkg/event"
)

// cutEvery is how often journal files are looked at for a truncation, where the
// kernel tells of no change.
const cutEvery = time.Second

var errCut = errors.New("a journal file was cut short under its readers")

// cutWatch finds journal files that lose entries while they are read: a file
// that is shorter than its own header says, or ends in zeros. libsystemd tells
// nobody, and what was not read yet is gone.
//
// journald puts such a file aside with its next write, and gives it its length
// again, often within a millisecond: whether a look comes in between is chance,
// the zeros stay.
type cutWatch struct {
	dirs []string

	mu     sync.Mutex // guards what follows
	looked time.Time
	known  map[inode]fileState
	cut    []string // files found cut that nobody has asked for yet
}

type inode struct{ dev, ino uint64 }

type fileState struct {
	size  int64
	mtime time.Time
	sound bool
	// settled says that a later change has another mtime.
	settled bool
	// missed says that the last look did not meet the file.
	missed bool
}

// settledAfter is longer than the step in which the kernel counts mtime.
const settledAfter = 100 * time.Millisecond

// run looks at the files whenever one of them changes, until ctx ends. Without
// inotify only take looks.
func (w *cutWatch) run(ctx context.Context) {
	n, err := fsnotify.NewWatcher()
	if err != nil {
		return
	}
	defer n.Close()
	for _, dir := range w.dirs {
		sub, _ := filepath.Glob(filepath.Join(globQuote(dir), "*/"))
		for _, d := range append(sub, dir) {
			_ = n.Add(d) // no directory, or no right: take looks
		}
	}
	w.note() // a file that was never seen whole can't be found cut
	for {
		select {
		case <-ctx.Done():
			return
		case _, ok := <-n.Events:
			if !ok {
				return
			}
			w.note()
		case <-n.Errors: // an overflow: the next event looks at everything
		}
	}
}

// note looks now.
func (w *cutWatch) note() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.look()
}

// take returns the files that were found cut since it was last asked.
func (w *cutWatch) take(every time.Duration) []string {
	w.mu.Lock()
	defer w.mu.Unlock()
	if time.Since(w.looked) >= every {
		w.look()
	}
	cut := w.cut
	w.cut = nil
	return cut
}

// look notes the files that were sound at an earlier look and are not now. A file
// is known by its inode: journald renames it at any time, so that one look may
// meet it under neither name.
func (w *cutWatch) look() {
	w.looked = time.Now()
	seen := map[inode]fileState{}
	for _, path := range everyFile(w.dirs) {
		info, err := os.Stat(path)
		if err != nil {
			continue // renamed or vacuumed just now
		}
		st, ok := info.Sys().(*syscall.Stat_t)
		if !ok {
			continue
		}
		id := inode{st.Dev, st.Ino}
		if _, twice := seen[id]; twice {
			continue
		}
		old, known := w.known[id]
		now := fileState{size: info.Size(), mtime: info.ModTime(), sound: old.sound}
		now.settled = w.looked.Sub(now.mtime) > settledAfter
		if !known || !old.settled || old.size != now.size || !old.mtime.Equal(now.mtime) {
			if now.sound, err = sound(path, info); err != nil {
				continue
			}
		}
		if old.sound && !now.sound {
			w.cut = append(w.cut, path)
		}
		seen[id] = now
	}
	for id, old := range w.known {
		if _, met := seen[id]; !met && !old.missed {
			old.missed, old.settled = true, false
			seen[id] = old
		}
	}
	w.known = seen
}

// sound says that a file is whole. It looks twice: journald may change header
// and size between our reading of the one and of the other. The error says that
// the file can't be looked at, or is no longer that of info.
func sound(path string, info os.FileInfo) (bool, error) {
	f, err := os.Open(path)
	if err != nil {
		return false, err
	}
	defer f.Close()
	now, err := f.Stat()
	if err != nil {
		return false, err
	}
	if !os.SameFile(info, now) {
		return false, fmt.Errorf("%s is another file: %w", path, fs.ErrNotExist)
	}
	ok, err := checkOpen(f)
	if !ok && err == nil {
		ok, err = checkOpen(f)
	}
	return ok, err
}

// everyFile returns journal files in use and those that journald has put aside
// as broken (their names end with ~), which is the first thing that it does with
// one that was cut.
func everyFile(dirs []string) []string {
	files := journalFiles(dirs)
	for _, d := range dirs {
		for _, pattern := range []string{"*.journal~", "*/*.journal~"} {
			m, err := filepath.Glob(filepath.Join(globQuote(d), pattern))
			if err == nil { // the pattern is ours and valid
				files = append(files, m...)
			}
		}
	}
	return files
}

// checkCut tells of journal files that were cut short, and has the reader begun
// anew: its mapping of the file is no longer worth anything.
func (s *Source) checkCut(ctx context.Context, emit Emit) error {
	g := s.newCut(cutEvery)
	if g == nil {
		return nil
	}
	s.lostAt = g.Cursor
	if err := emit(ctx, []event.Event{{At: s.opts.Clock(), Data: g}}); err != nil {
		return &emitError{err}
	}
	return errCut
}

// newCut is the gap of the files that were found cut; nil when there are none.
// The files are looked at if that was not done for so long.
func (s *Source) newCut(every time.Duration) *event.Gap {
	files := s.cut.take(every)
	if len(files) == 0 {
		return nil
	}
	return &event.Gap{
		Gap: event.GapTruncated, Cursor: s.Applied().Cursor,
		Detail: fmt.Sprintf("%s was cut short: entries in it are lost", strings.Join(files, ", ")),
	}
}
