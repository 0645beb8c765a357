package demo

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/startupd/startupd/pkg/event"
)

// watermarkEvery is how often, by the wall clock, the player promises that it
// has delivered everything. The journal's live reader does so at least each
// second; the core's verdicts wait for it.
const watermarkEvery = 250 * time.Millisecond

// Options say how a recording is played.
type Options struct {
	// Recording names one of the recordings; "" is the reference run.
	Recording string
	// Speed divides every duration: at 60 a minute takes a second. It must be
	// more than 0.
	Speed float64
	// Clock tells now. The recording's first stamp becomes its first reading.
	Clock event.Clock
	// Linger goes on with watermarks after the recording's end until the context
	// is done. Otherwise Run returns at the end.
	Linger bool
}

// Source plays a recording. Its events bear the stamps of the moments at which
// they are played, so that durations are those seen on the wall clock.
type Source struct {
	opt    Options
	events []event.Event
	info   Info
}

// New returns a Source. It fails for an unknown recording, a speed that is not
// positive and a missing clock.
func New(o Options) (*Source, error) {
	if o.Recording == "" {
		o.Recording = reference
	}
	if !(o.Speed > 0) {
		return nil, fmt.Errorf("speed %v: give a number above 0 (1 plays as recorded, 60 a minute in a second)", o.Speed)
	}
	if o.Clock == nil {
		return nil, errors.New("demo: Options.Clock is nil")
	}
	events, info, err := load(o.Recording)
	if err != nil {
		return nil, err
	}
	return &Source{opt: o, events: events, info: info}, nil
}

// Info describes the recording that is played.
func (s *Source) Info() Info {
	i := s.info
	i.Targets = slices.Clone(i.Targets)
	return i
}

// Duration is how long it takes at the source's speed.
func (s *Source) Duration() time.Duration { return s.scale(s.info.Duration) }

// Run plays the recording once and returns nil at its end, or the error of emit
// or of ctx. It may be called again: the run is then rebased anew.
func (s *Source) Run(ctx context.Context, emit func(context.Context, []event.Event) error) error {
	r := rebaser{from: s.events[0].At, to: s.opt.Clock(), scale: s.scale}
	rest := s.events
	for {
		now := s.opt.Clock()
		n := r.due(rest, now)
		batch := make([]event.Event, 0, n+1)
		for _, e := range rest[:n] {
			batch = append(batch, r.rebase(e))
		}
		rest = rest[n:]
		batch = append(batch, event.Event{At: now, Data: &event.Watermark{}})
		if err := emit(ctx, batch); err != nil {
			return err
		}
		wait := watermarkEvery
		if len(rest) > 0 {
			wait = min(wait, r.stamp(rest[0].At).Sub(s.opt.Clock()))
		} else if !s.opt.Linger {
			return nil
		}
		if err := sleep(ctx, wait); err != nil {
			return err
		}
	}
}

func (s *Source) scale(d time.Duration) time.Duration {
	return time.Duration(float64(d) / s.opt.Speed)
}

func sleep(ctx context.Context, d time.Duration) error {
	t := time.NewTimer(max(d, 0))
	defer t.Stop()
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-t.C:
		return nil
	}
}

// rebaser moves a recording's stamps to a new beginning on another clock.
type rebaser struct {
	from, to event.Stamp
	scale    func(time.Duration) time.Duration
}

func (r rebaser) stamp(s event.Stamp) event.Stamp {
	if s.IsZero() {
		return s
	}
	return r.to.Add(r.scale(s.Sub(r.from)))
}

// due counts the events at the head whose moment has come.
func (r rebaser) due(events []event.Event, now event.Stamp) int {
	for i, e := range events {
		if r.stamp(e.At).After(now) {
			return i
		}
	}
	return len(events)
}

// rebase returns e at its new moment. The recording's own payload is left as
// it is: a second run uses it again.
func (r rebaser) rebase(e event.Event) event.Event {
	e.At = r.stamp(e.At)
	if u, ok := e.Data.(*event.UnitState); ok {
		c := *u
		c.ActiveEnter, c.InactiveExit = r.stamp(u.ActiveEnter), r.stamp(u.InactiveExit)
		e.Data = &c
	}
	return e
}

func targets(events []event.Event) []string {
	var names []string
	for _, e := range events {
		if e.Target != "" && !slices.Contains(names, e.Target) {
			names = append(names, e.Target)
		}
	}
	slices.Sort(names)
	return names
}
