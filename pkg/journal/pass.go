package journal

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/startupd/startupd/pkg/event"
)

const (
	// emitAt is how many events are given on at once at most, about.
	emitAt = 1000
	// idleAfter is how long journalctl must be silent before its silence tells
	// that there was nothing: it hears of an entry after 427 ms at most
	// (journald tells its readers every 250 ms).
	idleAfter = 500 * time.Millisecond
	// idleDelay is how far back that promise then reaches.
	idleDelay = time.Second
	// patience is for a reader that looks for its first entry on a slow disk.
	patience = time.Minute
	// muteAfter is when a reader that should have sent watermarks is given up.
	muteAfter = 10 * time.Second
)

// errAgain asks for a new reader that goes on at the pass's position.
var errAgain = errors.New("read on with other matches")

// pass is one stretch of the journal, read by one reader after another.
type pass struct {
	specs []TargetSpec
	// matches select the entries; nil takes those of specs.
	matches [][]string
	// target is given to what concerns the whole host, so that several
	// back-fills don't count it several times; "" leaves it.
	target string
	// earlier are invocations of target that were over when the pass begins.
	earlier []string
	from    string // cursor; "" is the head
	after   bool   // the entry at from is applied
	until   string // cursor of the last entry; "" is the tail
	// follow goes on at the tail. replayed marks the events. position moves the
	// applied position.
	follow, replayed, position bool
	// quiet targets serve: until their manager says something, their own lines
	// are left out.
	quiet map[string]bool
}

// runPass reads a pass to its end; a following one ends when the targets
// change.
func (s *Source) runPass(ctx context.Context, p *pass, emit Emit) error {
	if p.position && p.from != "" && s.lostAt != p.from {
		if err := s.checkLoss(ctx, p, emit); err != nil {
			return err
		}
	}
	for _, id := range p.earlier {
		if err := emit(ctx, []event.Event{{Target: p.target, Replayed: true, Data: &event.Earlier{Invocation: id}}}); err != nil {
			return &emitError{err}
		}
	}
	if p.follow && s.launcher.followsBoot() {
		// Entries of earlier boots come before the reader follows.
		if err := s.readOn(ctx, p, emit, false); err != nil {
			return err
		}
	}
	return s.readOn(ctx, p, emit, p.follow)
}

func (s *Source) checkLoss(ctx context.Context, p *pass, emit Emit) error {
	g, err := s.lost(ctx, Position{Cursor: p.from, At: s.Applied().At})
	if err != nil {
		return err
	}
	// A reader may have died of the cut: that is one gap, not two, and no vacuum.
	if cut := s.newCut(0); cut != nil {
		g = cut
	}
	if g == nil {
		return nil
	}
	if err := emit(ctx, []event.Event{{At: s.opts.Clock(), Data: g}}); err != nil {
		return &emitError{err}
	}
	s.lostAt = p.from
	return nil
}

// readOn starts readers until the pass is done.
func (s *Source) readOn(ctx context.Context, p *pass, emit Emit, follow bool) error {
	for {
		r := &passReader{source: s, pass: p, emit: emit, follow: follow}
		err := r.run(ctx)
		if !errors.Is(err, errAgain) {
			return err
		}
	}
}

// passReader drives one reader child through a pass.
type passReader struct {
	source *Source
	pass   *pass
	emit   Emit
	follow bool // the reader does

	stream *stream
	mapper *Mapper
	from   *place // where the pass was resumed, until the first entry came
	until  *place
	batch  []event.Event
	cursor string      // of the last entry in batch; "" when it has none
	at     event.Stamp // its time
	live   bool        // reached was called
	marked event.Stamp // the last watermark of our own
}

func (r *passReader) run(ctx context.Context) error {
	if err := r.open(ctx); err != nil {
		return err
	}
	defer r.stream.child.kill()
	if r.follow {
		r.source.setReader(r.stream.child)
		defer r.source.setReader(nil)
	}
	heard := time.Now()
	for {
		wait := patience
		if r.follow {
			wait = idleAfter
		}
		e, err := r.stream.next(wait)
		switch {
		case errors.Is(err, errIdle):
			err = r.idle(ctx, time.Since(heard))
		case err == io.EOF:
			err = r.end(ctx)
		case err == nil:
			heard = time.Now()
			err = r.take(ctx, e)
		}
		if err == io.EOF {
			return nil
		}
		if err != nil {
			return err
		}
		if r.follow && r.source.targetsChanged() && len(r.batch) == 0 {
			return nil
		}
		if r.follow {
			if err := r.source.checkCut(ctx, r.emit); err != nil {
				return err
			}
		}
	}
}

func (r *passReader) open(ctx context.Context) error {
	p := r.pass
	m, err := NewMapper(p.specs)
	if err != nil {
		return err
	}
	r.mapper = m
	if p.from != "" && p.after {
		if r.from, err = optionalPlace(p.from); err != nil {
			return err
		}
	}
	if r.until, err = optionalPlace(p.until); err != nil {
		return err
	}
	matches := p.matches
	if matches == nil {
		matches = matchesOf(p.specs, p.quiet)
	}
	r.stream, err = openStream(ctx, r.source.launcher, &request{
		Matches: matches, From: p.from, Until: p.until,
		Follow: r.follow, Cursors: len(p.quiet) > 0,
	})
	return err
}

func optionalPlace(cursor string) (*place, error) {
	if cursor == "" {
		return nil, nil
	}
	p, err := parsePlace(cursor)
	return &p, err
}

// take handles one entry. It returns io.EOF when the pass is done.
func (r *passReader) take(ctx context.Context, e *Entry) error {
	if !e.Has(Watermark) && !e.Has(Unreadable) {
		skip, err := r.outside(e)
		if err == io.EOF {
			return r.end(ctx)
		}
		if err != nil || skip {
			return err
		}
		r.cursor, r.at = e.String(Cursor), e.at(r.at.Boot)
	}
	if e.Has(Watermark) && r.mapper.lull() {
		return nil // the next one promises what is held back now
	}
	before := len(r.batch)
	r.batch = r.mapper.Map(r.batch, e)
	switch {
	case e.Has(Watermark):
		return r.tail(ctx, r.batch[len(r.batch)-1].At)
	case r.cursor != "" && (r.wakes(r.batch[before:]) || r.due()):
		return r.flush(ctx)
	}
	return nil
}

// due says that the batch should be given on. The parts of a long line go
// together, so that a reader begun anew behind them misses none.
func (r *passReader) due() bool {
	if r.mapper.waits(r.at) {
		return len(r.batch) >= 4*emitAt
	}
	return len(r.batch) >= emitAt || r.stream.dec.Buffered() == 0
}

// outside says whether the entry was applied before; io.EOF when it lies
// behind the pass's end.
func (r *passReader) outside(e *Entry) (skip bool, err error) {
	if r.from == nil && r.until == nil {
		return false, nil
	}
	at, err := placeOf(e)
	if err != nil {
		return false, err
	}
	if r.until != nil && at.after(*r.until) {
		return false, io.EOF
	}
	if r.from != nil {
		skip = at.same(*r.from)
		r.from = nil
	}
	return skip, nil
}

// wakes says that the manager of a quiet target has said something.
func (r *passReader) wakes(events []event.Event) bool {
	for _, ev := range events {
		if _, ok := ev.Data.(*event.UnitMessage); ok && r.pass.quiet[ev.Target] {
			return true
		}
	}
	return false
}

// tail is reached with each watermark of the reader.
func (r *passReader) tail(ctx context.Context, at event.Stamp) error {
	if r.cursor == "" && r.at.Boot != "" {
		return errors.New("the journal reader has left out a cursor")
	}
	if err := r.flush(ctx); err != nil {
		return err
	}
	r.source.setSeen(at)
	return r.reached(ctx)
}

// reached tells once that the live reader works.
func (r *passReader) reached(ctx context.Context) error {
	if r.live {
		return nil
	}
	r.live = true
	if err := r.source.up(ctx, r.emit); err != nil {
		return &emitError{err}
	}
	return nil
}

// idle makes a watermark for a reader that makes none, and gives up one that
// should have said something.
func (r *passReader) idle(ctx context.Context, silent time.Duration) error {
	switch {
	case !r.follow, r.source.launcher.watermarks() && silent > muteAfter:
		return fmt.Errorf("the journal reader was mute for %v", silent.Round(time.Second))
	case r.source.launcher.watermarks():
		return nil
	}
	if err := r.flush(ctx); err != nil {
		return err
	}
	if err := r.mark(ctx, r.source.opts.Clock().Add(-idleDelay)); err != nil {
		return err
	}
	return r.reached(ctx)
}

func (r *passReader) mark(ctx context.Context, at event.Stamp) error {
	r.marked = at
	if err := r.emit(ctx, []event.Event{{At: at, Data: &event.Watermark{}}}); err != nil {
		return &emitError{err}
	}
	r.source.setSeen(at)
	return nil
}

// end flushes a pass whose reader has told everything.
func (r *passReader) end(ctx context.Context) error {
	if r.follow {
		return errors.New("the journal reader has ended by itself")
	}
	if r.pass.position && r.source.launcher.watermarks() && r.mapper.waits(r.at) {
		return io.EOF // the live reader begins before the parts that came
	}
	if r.cursor == "" && r.pass.until != "" {
		r.cursor = r.pass.until
	}
	if err := r.flush(ctx); err != nil && !errors.Is(err, errAgain) {
		return err
	}
	if r.pass.until != "" && r.pass.position {
		r.source.setApplied(Position{Cursor: r.pass.until, At: r.until.stamp()})
	}
	return io.EOF
}

// flush gives the batch on, and moves the position once it was applied.
func (r *passReader) flush(ctx context.Context) error {
	p, s := r.pass, r.source
	batch := r.mapper.giveOut(r.batch)
	r.batch = nil
	for i := range batch {
		ev := &batch[i]
		ev.Replayed = p.replayed
		if ev.Target == "" {
			ev.Target = p.target
		}
	}
	if len(batch) > 0 {
		if err := r.emit(ctx, batch); err != nil {
			return &emitError{err}
		}
	}
	if r.cursor == "" {
		return nil
	}
	p.from, p.after = r.cursor, true
	if p.position {
		s.setApplied(Position{Cursor: r.cursor, At: r.at})
	}
	if !p.follow {
		return r.retarget(batch)
	}
	if err := r.reached(ctx); err != nil {
		return err
	}
	if r.follow && !s.launcher.watermarks() && (r.marked.IsZero() || r.at.Sub(r.marked) >= idleDelay) {
		return r.mark(ctx, r.at)
	}
	return nil
}

// retarget leaves out the own lines of targets that serve, and takes them in
// again when their manager has said something.
func (r *passReader) retarget(batch []event.Event) error {
	quiet := map[string]bool{}
	woken := map[string]bool{}
	for _, ev := range batch {
		if _, ok := ev.Data.(*event.UnitMessage); ok {
			woken[ev.Target] = true
		}
	}
	same := true
	for _, spec := range r.pass.specs {
		t := spec.target()
		if spec.Unit != "" && !spec.isGlob() && !woken[t] && r.source.opts.Served(t) {
			quiet[t] = true
		}
		same = same && quiet[t] == r.pass.quiet[t]
	}
	if same {
		return nil
	}
	r.pass.quiet = quiet
	return errAgain
}
