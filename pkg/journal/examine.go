package journal

import (
	"context"
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/startupd/startupd/pkg/event"
)

// Examiner asks single questions of a journal, for a check of the host. It
// follows nothing. Its methods start a reader each and end it.
type Examiner struct {
	reader   Reader
	launcher launcher
}

// NewExaminer chooses the reader as a Source does; its error says why there is
// none.
func NewExaminer(r Reader) (*Examiner, error) {
	l, err := newLauncher(r)
	if err != nil {
		return nil, err
	}
	return &Examiner{reader: r, launcher: l}, nil
}

// Kind is the reader in use, never ReaderAuto.
func (e *Examiner) Kind() ReaderKind {
	if _, ok := e.launcher.(*journalctlLauncher); ok {
		return ReaderJournalctl
	}
	return ReaderSDJournal
}

// Files are the journal's files, as far as this process sees them.
type Files struct {
	// Readable can be opened, Denied can't for lack of a right, Broken are no whole
	// journal files.
	Readable, Denied int
	Broken           []string
	// Bytes is the size of all that are there.
	Bytes uint64
	// Persistent says that there are files in /var/log/journal, Volatile in
	// /run/log/journal; both are false with Reader.Dir.
	Persistent, Volatile bool
}

// LookAtFiles looks at the journal's files. Its error says, with what to do, why
// no entry of a system's unit can be read; Files is filled in all the same.
func LookAtFiles(dir string) (Files, error) {
	dirs := systemDirs()
	if dir != "" {
		dirs = []string{dir}
	}
	var f Files
	for _, path := range journalFiles(dirs) {
		info, err := os.Stat(path)
		if err != nil {
			continue // vacuumed just now
		}
		f.Bytes += uint64(info.Size())
		f.Persistent = f.Persistent || dir == "" && strings.HasPrefix(path, dirs[0])
		f.Volatile = f.Volatile || dir == "" && !strings.HasPrefix(path, dirs[0])
		if dir == "" && !strings.HasPrefix(filepath.Base(path), "system") {
			continue
		}
		switch ok, err := checkFile(path); {
		case errors.Is(err, fs.ErrPermission):
			f.Denied++
		case err == nil && ok:
			f.Readable++
		}
	}
	var err error
	f.Broken, err = checkAccess(dir)
	return f, err
}

// Span is from when to when there are entries; zero stamps where there is none.
type Span struct{ First, Last event.Stamp }

// Span is that of a target's entries, or of the whole journal's where spec is
// the zero value.
func (e *Examiner) Span(ctx context.Context, spec TargetSpec) (Span, error) {
	var matches [][]string
	if spec != (TargetSpec{}) {
		matches = unitMatches(spec)
	}
	return e.span(ctx, matches)
}

// Kernel is the span of the kernel's lines.
func (e *Examiner) Kernel(ctx context.Context) (Span, error) {
	return e.span(ctx, [][]string{{"_TRANSPORT=kernel"}})
}

// Manager is the span of what process 1 has written: an unprivileged user sees
// nothing of it.
func (e *Examiner) Manager(ctx context.Context) (Span, error) {
	return e.span(ctx, [][]string{{"_PID=1"}})
}

func (e *Examiner) span(ctx context.Context, matches [][]string) (Span, error) {
	head, err := first(ctx, e.launcher, request{Matches: matches})
	if err != nil || head.cursor == "" {
		return Span{}, err
	}
	tail, err := first(ctx, e.launcher, request{Matches: matches, Reverse: true})
	if err != nil || tail.cursor == "" {
		return Span{}, err
	}
	from, err := parsePlace(head.cursor)
	if err != nil {
		return Span{}, err
	}
	to, err := parsePlace(tail.cursor)
	return Span{First: from.stamp(), Last: to.stamp()}, err
}

// Suppressed is what journald's rate limit kept out of a unit's log.
type Suppressed struct {
	// Times is how often the limit was hit, Lines how many lines were lost.
	Times, Lines int
	// Last is when; zero when it never was.
	Last event.Stamp
}

// suppressedLimit bounds how many reports of journald are counted.
const suppressedLimit = 1000

// Suppressed counts what was suppressed of a unit since a moment.
func (e *Examiner) Suppressed(ctx context.Context, unit string, since time.Time) (Suppressed, error) {
	q := request{Matches: [][]string{{"_UID=0", "OBJECT_SYSTEMD_UNIT=" + unit, "MESSAGE_ID=" + idSuppressed}}, Reverse: true, Limit: suppressedLimit}
	var sum Suppressed
	s, err := openStream(ctx, e.launcher, &q)
	if err != nil {
		return sum, err
	}
	defer s.child.kill()
	for range q.Limit {
		entry, err := s.next(patience)
		if err == io.EOF {
			break
		}
		if err != nil {
			return sum, err
		}
		at := entry.At()
		if at.Real.Before(since) {
			break
		}
		if sum.Last.IsZero() {
			sum.Last = at
		}
		sum.Times++
		sum.Lines += entry.Int(NDropped)
	}
	return sum, nil
}
