package journal

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/cenkalti/backoff/v5"

	"github.com/startupd/startupd/pkg/event"
)

// Emit takes events in order and returns once they were applied; it may block,
// which slows the reader down. The slice is the receiver's to keep.
type Emit func(context.Context, []event.Event) error

// ReaderKind chooses the child process that reads the journal.
type ReaderKind string

// The readers.
const (
	// ReaderAuto is sdjournal where it can be used, else journalctl.
	ReaderAuto       ReaderKind = "auto"
	ReaderSDJournal  ReaderKind = "sdjournal"
	ReaderJournalctl ReaderKind = "journalctl"
)

// Reader says how journal files are read. The zero value reads the system's
// journal with the best reader that there is.
type Reader struct {
	Kind ReaderKind
	// Dir holds the journal files; "" is the system's own journal.
	Dir string
	// Child is the command line of the sdjournal reader, a process that calls
	// RunReader; nil is this program with the argument "journal-reader".
	Child []string
	// Journalctl is the program's path; "" looks for it in /usr/bin, /bin and PATH.
	Journalctl string
}

// Options is what a Source needs.
type Options struct {
	Reader  Reader
	Targets []TargetSpec
	// UnitsDir holds systemd's invocation links; "" is /run/systemd/units.
	UnitsDir string
	// Resume is the position that an earlier run of the daemon had applied; the
	// zero value is a first run: all that is there before it counts as replayed.
	Resume Position
	// Served says whether the target serves by now, so that its back-fill can
	// leave out what it writes while serving; nil reads everything. It is called
	// from Run's goroutine.
	Served func(target string) bool
	// Clock tells the time of watermarks and states; nil is the host's clock.
	Clock event.Clock
}

// Position is how far the journal was applied. The zero value is nowhere.
type Position struct {
	// Cursor is the journal's cursor of the last applied entry.
	Cursor string `json:"cursor,omitempty"`
	// At is the time up to which all entries were applied: that entry's, or a
	// later one up to which there was none.
	At event.Stamp `json:"at"`
}

// Source follows the journal for all targets. Make it with New, run it once.
type Source struct {
	opts     Options
	launcher launcher
	access   func() error
	watch    func(context.Context) // returns when its context ends

	// Run's goroutine owns what follows.
	planned  bool
	specs    []TargetSpec        // what is read now
	queue    []*pass             // back-fill that is still to do
	catchUp  *pass               // what came since Resume; nil when it was read
	filled   map[TargetSpec]bool // specs whose back-fill is done or queued
	lostAt   string              // cursor behind which a loss was told of
	cut      *cutWatch
	lastUp   *bool // the last SourceState; nil before the first
	state    string
	restarts int
	told     int // the restarts that it told

	mu      sync.Mutex // guards what follows
	applied Position
	targets []TargetSpec
	changed bool // targets differ from what the present pass reads
	fast    bool
	reader  child // the live one; nil when there is none
}

// New returns a Source that has not begun. It fails on a bad target, and when
// the wanted reader can't be used on this host.
func New(o Options) (*Source, error) {
	if _, err := NewMapper(o.Targets); err != nil {
		return nil, err
	}
	l, err := newLauncher(o.Reader)
	if err != nil {
		return nil, err
	}
	if o.UnitsDir == "" {
		o.UnitsDir = "/run/systemd/units"
	}
	if o.Clock == nil {
		o.Clock = HostClock()
	}
	if o.Served == nil {
		o.Served = func(string) bool { return false }
	}
	dirs := systemDirs()
	if o.Reader.Dir != "" {
		dirs = []string{o.Reader.Dir}
	}
	cut := &cutWatch{dirs: dirs}
	return &Source{
		opts: o, launcher: l, applied: o.Resume, targets: o.Targets, filled: map[TargetSpec]bool{},
		access: func() error { _, err := checkAccess(o.Reader.Dir); return err },
		cut:    cut, watch: cut.run,
	}, nil
}

// Applied is the position up to which emit has returned, of entries that came
// after Options.Resume. It is safe for use by any goroutine.
func (s *Source) Applied() Position {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.applied
}

// SetFast asks for entries within 20 ms of their writing, while a unit starts;
// else they may take 250 ms. The journalctl reader can't be hurried. It is safe
// for use by any goroutine.
func (s *Source) SetFast(fast bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.fast == fast {
		return
	}
	s.fast = fast
	if s.reader != nil {
		s.reader.command(speed(fast))
	}
}

func speed(fast bool) string {
	if fast {
		return "fast"
	}
	return "slow"
}

// SetTargets changes the targets: new ones are back-filled up to the applied
// position, then followed. It is safe for use by any goroutine.
func (s *Source) SetTargets(specs []TargetSpec) error {
	if _, err := NewMapper(specs); err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.targets, s.changed = specs, true
	return nil
}

// Run reads until ctx ends (it then returns nil) or emit fails. A reader that
// fails is restarted, after a growing pause, behind the last applied entry.
func (s *Source) Run(ctx context.Context, emit Emit) error {
	watching, stop := context.WithCancel(ctx)
	watched := make(chan struct{})
	go func() {
		defer close(watched)
		s.watch(watching)
	}()
	defer func() { stop(); <-watched }()
	pause := backoff.NewExponentialBackOff()
	pause.InitialInterval, pause.MaxInterval = 100*time.Millisecond, 10*time.Second
	for {
		began := time.Now()
		err := s.session(ctx, emit)
		var refused *emitError
		switch {
		case ctx.Err() != nil:
			return nil
		case errors.As(err, &refused):
			return refused.err
		}
		var access *accessError
		if !errors.As(err, &access) {
			s.restarts++
		}
		if err := s.down(ctx, emit, err); err != nil {
			return err
		}
		// A reader that dies soon after it came up gets no fresh start.
		if time.Since(began) > pause.MaxInterval {
			pause.Reset()
		}
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(pause.NextBackOff()):
		}
	}
}

// emitError is an error of the receiver, which no restart can mend.
type emitError struct{ err error }

func (e *emitError) Error() string { return e.err.Error() }

// session reads until something fails.
func (s *Source) session(ctx context.Context, emit Emit) error {
	if err := s.access(); err != nil {
		return err
	}
	for {
		if err := s.plan(ctx); err != nil {
			return err
		}
		switch {
		case len(s.queue) > 0:
			if err := s.runPass(ctx, s.queue[0], emit); err != nil {
				return err
			}
			s.queue = s.queue[1:]
		case s.catchUp != nil:
			s.catchUp.specs = s.specs
			if err := s.runPass(ctx, s.catchUp, emit); err != nil {
				return err
			}
			s.catchUp = nil
		default:
			live := &pass{specs: s.specs, from: s.Applied().Cursor, after: true, follow: true, position: true}
			if err := s.runPass(ctx, live, emit); err != nil {
				return err
			}
		}
	}
}

// down tells why the journal can't be read, and up that it can; both only on a
// change, of which one more restart is one.
func (s *Source) down(ctx context.Context, emit Emit, cause error) error {
	state, reason := stateReaderFailed, fmt.Sprintf("%v; it is restarted behind the last applied entry", cause)
	var access *accessError
	if errors.As(cause, &access) {
		state, reason = access.state, access.reason
	}
	return s.tell(ctx, emit, event.SourceState{State: state, Reason: reason})
}

func (s *Source) up(ctx context.Context, emit Emit) error {
	return s.tell(ctx, emit, event.SourceState{Up: true, State: stateUp})
}

func (s *Source) tell(ctx context.Context, emit Emit, st event.SourceState) error {
	if s.lastUp != nil && *s.lastUp == st.Up && s.state == st.State && s.told == s.restarts {
		return nil
	}
	s.lastUp, s.state, s.told = &st.Up, st.State, s.restarts
	st.Source, st.Restarts = event.SourceJournal, s.restarts
	return emit(ctx, []event.Event{{At: s.opts.Clock(), Data: &st}})
}

// setReader makes c the one that SetFast reaches.
func (s *Source) setReader(c child) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.reader = c
	if c != nil {
		c.command(speed(s.fast))
	}
}

func (s *Source) setApplied(p Position) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.applied = p
}

// setSeen notes that there was nothing more up to at.
func (s *Source) setSeen(at event.Stamp) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.applied.Cursor != "" {
		s.applied.At = at
	}
}

func (s *Source) targetsChanged() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.changed
}

// takeTargets returns the targets to read from now on.
func (s *Source) takeTargets() []TargetSpec {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.changed = false
	return s.targets
}
