package journal

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/startupd/startupd/pkg/event"
)

// cutEvery is how often journal files are looked at for a truncation.
const cutEvery = time.Second

var errCut = errors.New("a journal file was cut short under its readers")

// cutWatch finds journal files that lose entries while they are read: a file
// that is shorter than its own header says. libsystemd tells nobody, and what
// was not read yet is gone without a trace.
type cutWatch struct {
	looked time.Time
	known  map[inode]fileState
}

type inode struct{ dev, ino uint64 }

type fileState struct {
	size  int64
	mtime time.Time
	sound bool
}

// look returns the files that were sound at an earlier look and are not now.
func (w *cutWatch) look(dirs []string) []string {
	var cut []string
	seen := map[inode]fileState{}
	for _, path := range everyFile(dirs) {
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
			cut = append(cut, path)
		}
		seen[id] = now
	}
	w.known = seen
	return cut
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
	if time.Since(s.cut.looked) < cutEvery {
		return nil
	}
	g := s.newCut()
	if g == nil {
		return nil
	}
	s.lostAt = g.Cursor
	if err := emit(ctx, []event.Event{{At: s.opts.Clock(), Data: g}}); err != nil {
		return &emitError{err}
	}
	return errCut
}

// newCut is the gap of the files that were cut since the last look; nil when
// there are none.
func (s *Source) newCut() *event.Gap {
	s.cut.looked = time.Now()
	dirs := systemDirs()
	if d := s.opts.Reader.Dir; d != "" {
		dirs = []string{d}
	}
	files := s.cut.look(dirs)
	if len(files) == 0 {
		return nil
	}
	return &event.Gap{
		Gap: event.GapTruncated, Cursor: s.Applied().Cursor,
		Detail: fmt.Sprintf("%s was cut short: entries in it are lost", strings.Join(files, ", ")),
	}
}
