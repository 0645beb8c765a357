package journal

import (
	"context"
	"errors"
	"fmt"
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
// that is shorter than its own header says. libsystemd tells nobody, and what
// was not read yet is gone without a trace.
//
// journald puts such a file aside with its next write, and makes it whole again
// as it does so: the look must come first, and so it comes with the kernel's
// word of the cut.
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
}

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
	for {
		select {
		case <-ctx.Done():
			return
		case _, ok := <-n.Events:
			if !ok {
				return
			}
			w.mu.Lock()
			w.look()
			w.mu.Unlock()
		case <-n.Errors: // an overflow: the next event looks at everything
		}
	}
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

// look notes the files that were sound at an earlier look and are not now.
func (w *cutWatch) look() {
	w.looked = time.Now()
	seen := map[inode]fileState{}
	for _, path := range everyFile(w.dirs) {
		info, err := os.Stat(path)
		if err != nil {
			continue // vacuumed just now
		}
		st, ok := info.Sys().(*syscall.Stat_t)
		if !ok {
			continue
		}
		id := inode{st.Dev, st.Ino}
		old, known := w.known[id]
		now := fileState{size: info.Size(), mtime: info.ModTime(), sound: old.sound}
		if !known || old.size != now.size || !old.mtime.Equal(now.mtime) {
			now.sound = sound(path)
		}
		if old.sound && !now.sound {
			w.cut = append(w.cut, path)
		}
		seen[id] = now
	}
	w.known = seen
}

// sound says that a file is whole. It looks twice: journald may change header
// and size between our reading of the one and of the other.
func sound(path string) bool {
	for range 2 {
		if ok, err := checkFile(path); ok && err == nil {
			return true
		}
	}
	return false
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
