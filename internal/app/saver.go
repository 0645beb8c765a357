package app

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"time"

	"go.uber.org/zap"

	"github.com/startupd/startupd/pkg/event"
	"github.com/startupd/startupd/pkg/journal"
	"github.com/startupd/startupd/pkg/monitor"
	"github.com/startupd/startupd/pkg/phases"
)

// How often the state is written. A crash loses nothing in between: the journal
// is read again from the written position. While a unit starts there is less to
// read again; while all serve the disk is left alone.
const (
	saveWhileStarting = time.Second
	saveWhileQuiet    = 10 * time.Second
)

// saver keeps the state file.
type saver struct {
	file  stateFile
	clock event.Clock
	log   *zap.Logger
	// state is what was loaded, or that of a first installation. Its Installed
	// never changes.
	state state
	// off is true where nothing is written.
	off bool
	// applied is the position that the journal's source has had applied; nil
	// when there is no such source.
	applied func() journal.Position
	// due is when the next save is wanted. Only the journal's emit uses it.
	due event.Stamp
	// pending holds the newest state that is not yet written.
	pending chan state
	// written is the file's content; failing says that the last write failed.
	written []byte
	failing bool
}

// newSaver loads the state. Whatever is wrong with it is logged and does not
// keep the daemon from its work.
func newSaver(dir string, clock event.Clock, log *zap.Logger) *saver {
	s := &saver{
		file: stateFile{dir: dir}, clock: clock, log: log, off: dir == "", pending: make(chan state, 1),
		state: state{Format: stateFormat, Installed: clock()},
	}
	if s.off {
		return s
	}
	loaded, err := s.file.load()
	switch {
	case errors.Is(err, errNewerState):
		s.off = true
		log.Error("The state file is left as it is and counters start at 0; install the newer version again, or remove the file", zap.Error(err))
	case err != nil:
		s.abandon(err)
	case loaded != nil:
		s.state = *loaded
	}
	return s
}

// abandon goes on without a file that can't be used.
func (s *saver) abandon(why error) {
	bad, err := s.file.setAside()
	if err != nil {
		s.off = true
		s.log.Error("The state can't be read, counters start at 0 and nothing is saved; give startupd the right to read and write its state directory (--state.dir)",
			zap.Error(errors.Join(why, err)))
		return
	}
	s.log.Error("The state file is corrupt: it was set aside, and counters start at 0", zap.Error(why), zap.String("kept", bad))
}

// wrap returns the journal's emit. A save is taken before a batch: only then is
// nothing on its way, and counters and position tell of the same entries.
func (s *saver) wrap(emit Emit, loop *monitor.Loop) Emit {
	return func(ctx context.Context, events []event.Event) error {
		if now := s.clock(); !s.off && !now.Before(s.due) {
			s.due = now.Add(s.every(loop.Snapshot()))
			if err := s.take(ctx, loop); err != nil {
				return err
			}
		}
		return emit(ctx, events)
	}
}

func (s *saver) every(snap *phases.Snapshot) time.Duration {
	if starting(snap) {
		return saveWhileStarting
	}
	return saveWhileQuiet
}

// take copies the state in the main loop and leaves the writing to run.
func (s *saver) take(ctx context.Context, loop *monitor.Loop) error {
	next := state{Format: stateFormat, Installed: s.state.Installed}
	err := loop.Do(ctx, func(h *phases.Host) {
		next.Saved = h.Save()
		next.Position = s.position()
	})
	if err != nil {
		return err
	}
	select {
	case <-s.pending: // never written, and out of date now
	default:
	}
	s.pending <- next
	return nil
}

func (s *saver) position() journal.Position {
	if s.applied == nil {
		return journal.Position{}
	}
	return s.applied()
}

// run writes what take has left, so that a slow disk holds up nobody.
func (s *saver) run(ctx context.Context) error {
	for {
		select {
		case next := <-s.pending:
			s.write(next)
		case <-ctx.Done():
			select {
			case next := <-s.pending:
				s.write(next)
			default:
			}
			return nil
		}
	}
}

// last saves once more; the sources have stopped by then.
func (s *saver) last(ctx context.Context, loop *monitor.Loop) error {
	if s.off {
		return nil
	}
	return s.take(ctx, loop)
}

func (s *saver) write(next state) {
	b, err := json.Marshal(next)
	if err == nil && bytes.Equal(b, s.written) {
		return
	}
	if err == nil {
		err = s.file.write(b)
	}
	switch {
	case err == nil && s.failing:
		s.log.Info("The state is saved again", zap.String("file", s.file.path()))
	case err != nil && !s.failing:
		s.log.Error("The state can't be saved: after a restart, starts may be counted anew; make --state.dir writable for startupd", zap.Error(err))
	}
	s.failing = err != nil
	if err == nil {
		s.written = b
	}
}
