// Package monitor owns the loop between the sources and the core: one goroutine
// applies events in the order in which they come, lets time pass with Ticks at
// the core's deadlines, and publishes immutable snapshots.
//
// It must not decide anything about phases, and no source may be known to it.
package monitor

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"time"

	"github.com/startupd/startupd/pkg/event"
	"github.com/startupd/startupd/pkg/phases"
)

// Source delivers events until its context ends or its input does. Run starts
// nothing that outlives it. Emit returns once the events are applied, so that a
// source knows what it need not deliver again.
type Source interface {
	Run(ctx context.Context, emit func(context.Context, []event.Event) error) error
}

// ErrStopped is what Emit and Do return when the loop has ended.
var ErrStopped = errors.New("the monitor has stopped")

// Options are what a Loop needs.
type Options struct {
	Host  *phases.Host
	Clock event.Clock
	// Every is how often time is let pass where nothing happens; 0 means 1 s.
	Every time.Duration
	// OnTurn is called by the loop's goroutine at least every Every; nil is
	// allowed. A watchdog hangs on it.
	OnTurn func()
}

// Loop applies events to a host.
type Loop struct {
	opts     Options
	requests chan request
	stopped  chan struct{}
	snapshot atomic.Pointer[phases.Snapshot]

	mu          sync.Mutex
	subscribers map[chan *phases.Snapshot]struct{}
}

type request struct {
	events []event.Event
	do     func(*phases.Host)
	done   chan struct{}
}

// New returns a loop that Run starts. Until then the snapshot is the host's
// first one.
func New(opts Options) *Loop {
	if opts.Every == 0 {
		opts.Every = time.Second
	}
	l := &Loop{
		opts: opts, requests: make(chan request), stopped: make(chan struct{}),
		subscribers: map[chan *phases.Snapshot]struct{}{},
	}
	l.snapshot.Store(opts.Host.Snapshot())
	return l
}

// Run applies events until ctx ends. It must be called once.
func (l *Loop) Run(ctx context.Context) error {
	defer close(l.stopped)
	timer := time.NewTimer(l.wait())
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			l.publish()
			return nil
		case r := <-l.requests:
			l.handle(r)
		case <-timer.C:
			l.tick()
			l.publish()
		}
		timer.Reset(l.wait())
		if l.opts.OnTurn != nil {
			l.opts.OnTurn()
		}
	}
}

// handle applies one request, and publishes before it answers: who emitted a
// line may look for its effect at once.
func (l *Loop) handle(r request) {
	for _, ev := range r.events {
		l.opts.Host.Apply(ev)
	}
	if r.do != nil {
		r.do(l.opts.Host)
	}
	l.publish()
	close(r.done)
}

// tick lets time pass, but never past what the journal's reader has delivered:
// a line that is on its way must not come after a verdict about its absence.
func (l *Loop) tick() {
	now := l.opts.Clock()
	if mark, ok := l.opts.Host.Watermark(); ok {
		if mark.IsZero() {
			return
		}
		if mark.Before(now) {
			now = mark
		}
	}
	l.opts.Host.Apply(event.Event{At: now, Data: &event.Tick{}})
}

func (l *Loop) wait() time.Duration {
	d := l.opts.Host.Deadline()
	if d.IsZero() {
		return l.opts.Every
	}
	// No Tick may overtake the journal; its own watermark brings the deadline.
	if mark, ok := l.opts.Host.Watermark(); ok && (mark.IsZero() || mark.Before(d)) {
		return l.opts.Every
	}
	return min(l.opts.Every, max(d.Sub(l.opts.Clock()), 10*time.Millisecond))
}

func (l *Loop) publish() {
	s := l.opts.Host.Snapshot()
	l.snapshot.Store(s)
	l.mu.Lock()
	defer l.mu.Unlock()
	for ch := range l.subscribers {
		select {
		case <-ch:
		default:
		}
		ch <- s
	}
}

// Emit applies events and returns once their effect is published. It fails with
// the context's error, or with ErrStopped.
func (l *Loop) Emit(ctx context.Context, events []event.Event) error {
	return l.ask(ctx, request{events: events, done: make(chan struct{})})
}

// Do runs f in the loop's goroutine, where it may use the host.
func (l *Loop) Do(ctx context.Context, f func(*phases.Host)) error {
	return l.ask(ctx, request{do: f, done: make(chan struct{})})
}

func (l *Loop) ask(ctx context.Context, r request) error {
	select {
	case l.requests <- r:
	case <-ctx.Done():
		return ctx.Err()
	case <-l.stopped:
		return ErrStopped
	}
	// A request that was taken is applied whatever becomes of ctx: its sender
	// must know that, or it would deliver the events again.
	<-r.done
	return nil
}

// Snapshot is the newest published state; never nil.
func (l *Loop) Snapshot() *phases.Snapshot { return l.snapshot.Load() }

// Subscribe returns a channel that always holds the newest snapshot that its
// reader has not seen, until ctx ends.
func (l *Loop) Subscribe(ctx context.Context) <-chan *phases.Snapshot {
	ch := make(chan *phases.Snapshot, 1)
	l.mu.Lock()
	// Under the lock: a snapshot that is published meanwhile comes after it.
	ch <- l.Snapshot()
	l.subscribers[ch] = struct{}{}
	l.mu.Unlock()
	context.AfterFunc(ctx, func() {
		l.mu.Lock()
		defer l.mu.Unlock()
		delete(l.subscribers, ch)
	})
	return ch
}
