// Package gpu samples the host's GPUs over NVML: memory, utilisation and the
// processes that hold memory, each with its systemd unit and container.
//
// RunReader talks to the driver, in a process of its own; Source supervises
// that process and turns its reports into events. The package must not decide
// which target a process belongs to, nor what memory says about a start-up:
// that is the core's.
package gpu

import (
	"context"
	"sync"
	"time"

	"github.com/cenkalti/backoff/v5"

	"github.com/startupd/startupd/pkg/event"
)

// Options set up a Source.
type Options struct {
	// Command is the reader process's argv, a program that calls RunReader.
	Command []string
	// Clock stamps the events; it must be set.
	Clock event.Clock
	// Interval lies between samples until SetInterval says otherwise; 0 is 10 s.
	Interval time.Duration
	// Timeout is how long an answer may take before the driver counts as hung;
	// 0 is 5 s.
	Timeout time.Duration
	// InitTimeout replaces Timeout while the driver is not yet initialised,
	// which takes seconds for each GPU without nvidia-persistenced; 0 is 30 s.
	InitTimeout time.Duration
	// Log is told of the reader's ends; nil logs nothing.
	Log func(msg string, kv ...any)
}

// Emit hands events on. An error ends the source.
type Emit = func(context.Context, []event.Event) error

// Source is the GPU source. Its events have no target.
type Source struct {
	o     Options
	start func() (*child, error)
	// wake is told of a new interval.
	wake chan struct{}

	mu       sync.Mutex
	interval time.Duration
}

// New returns a Source; nothing runs before Run.
func New(o Options) *Source {
	setDefault(&o.Interval, 10*time.Second)
	setDefault(&o.Timeout, 5*time.Second)
	setDefault(&o.InitTimeout, 30*time.Second)
	if o.Log == nil {
		o.Log = func(string, ...any) {}
	}
	return &Source{
		o:        o,
		start:    func() (*child, error) { return startProcess(o.Command) },
		wake:     make(chan struct{}, 1),
		interval: o.Interval,
	}
}

func setDefault(d *time.Duration, v time.Duration) {
	if *d <= 0 {
		*d = v
	}
}

// SetInterval changes the time between samples; a change is followed by a
// sample at once. It may be called from every goroutine, at any time.
func (s *Source) SetInterval(d time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if d <= 0 || d == s.interval {
		return
	}
	s.interval = d
	select {
	case s.wake <- struct{}{}:
	default:
	}
}

// pause returns the interval of now; nothing is left to wake up for.
func (s *Source) pause() time.Duration {
	s.mu.Lock()
	defer s.mu.Unlock()
	select {
	case <-s.wake:
	default:
	}
	return s.interval
}

// Run samples until the context is done or emit fails, and returns that error.
// It may be called once. A failed sample brings a state and no numbers.
//
// One reader process lives at a time. One that can't be killed, because it
// hangs inside the kernel, is waited for: another would hang beside it. Such a
// process is all that Run can leave behind, with the goroutine that waits for it.
func (s *Source) Run(ctx context.Context, emit Emit) error {
	r := &run{Source: s, emit: emit, restart: newBackOff(), retry: newBackOff()}
	for {
		if err := r.life(ctx); err != nil {
			return err
		}
		if !r.sleep(ctx, r.restart.NextBackOff()) {
			return ctx.Err()
		}
		r.restarts++
	}
}

// newBackOff returns waits of half a second to half a minute, with jitter.
func newBackOff() *backoff.ExponentialBackOff {
	b := backoff.NewExponentialBackOff()
	b.MaxInterval = 30 * time.Second
	return b
}
