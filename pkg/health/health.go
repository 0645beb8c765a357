// Package health asks the served endpoint of each target whether it is ready,
// as a client would: it is a source of *event.HealthSample.
//
// It judges by the HTTP status alone. It must not trust or keep a body, follow
// a redirect, use a proxy, or conclude anything about a startup.
package health

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"go.uber.org/zap"

	"github.com/startupd/startupd/pkg/event"
)

// Target is one endpoint to probe.
type Target struct {
	// Name is the watched unit's.
	Name string
	// URL is http, https, or unix:/path/to/socket:/path (see CheckURL). Empty
	// means that this target is not probed.
	URL string
	// ReadyCodes are the HTTP statuses that mean ready; 200 when empty.
	ReadyCodes []int
	// NotReadyCodes are those that mean not ready, and any other status tells
	// nothing. When empty, every other status means not ready.
	NotReadyCodes []int
	// Insecure accepts any TLS certificate.
	Insecure bool
	// OnlyLocal refuses an address that is not this host's: for a URL that was
	// read out of a log.
	OnlyLocal bool
}

// Options are what a Source needs.
type Options struct {
	// Clock stamps the samples. Required.
	Clock event.Clock
	// Logger gets what a person should know; nil is silent.
	Logger *zap.Logger
	// Interval is the pause between two probes of a target for which
	// SetInterval was not called; 1 s when 0.
	Interval time.Duration
	// Timeout bounds one probe; 2 s when 0.
	Timeout time.Duration
	// Repeat is after how long an unchanged answer is told again; 15 s when 0.
	Repeat time.Duration
}

// Source probes targets, each on its own schedule, so that a slow one delays
// no other. Its methods may be called from any goroutine.
type Source struct {
	opts    Options
	changed chan struct{}

	mu        sync.Mutex
	targets   map[string]Target
	intervals map[string]time.Duration
	// wake tells a running prober that its interval changed.
	wake map[string]chan struct{}
}

// New returns a Source without targets. Nothing happens before Run.
func New(opts Options) *Source {
	opts.Logger = cmp.Or(opts.Logger, zap.NewNop())
	opts.Interval = cmp.Or(opts.Interval, time.Second)
	opts.Timeout = cmp.Or(opts.Timeout, 2*time.Second)
	opts.Repeat = cmp.Or(opts.Repeat, 15*time.Second)
	return &Source{
		opts: opts, changed: make(chan struct{}, 1),
		targets: make(map[string]Target), intervals: make(map[string]time.Duration), wake: make(map[string]chan struct{}),
	}
}

// SetTargets replaces what is probed; a target that is the same as before is
// left in its schedule. Targets with a bad URL are left out and named in the
// error.
func (s *Source) SetTargets(targets []Target) error {
	next := make(map[string]Target, len(targets))
	var errs []error
	for _, t := range targets {
		if t.URL == "" {
			continue
		}
		if err := CheckURL(t.URL); err != nil {
			errs = append(errs, fmt.Errorf("health URL of %s: %w", t.Name, err))
			continue
		}
		next[t.Name] = t
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.targets = next
	maps.DeleteFunc(s.intervals, func(name string, _ time.Duration) bool { _, ok := next[name]; return !ok })
	signal(s.changed)
	return errors.Join(errs...)
}

// SetInterval sets the pause between two probes of a target, from the present
// pause on. It does nothing for a target without a URL, and is forgotten when
// the target is removed.
func (s *Source) SetInterval(target string, d time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if _, ok := s.targets[target]; !ok || d <= 0 || s.intervals[target] == d {
		return
	}
	s.intervals[target] = d
	if wake := s.wake[target]; wake != nil {
		signal(wake)
	}
}

func (s *Source) interval(target string) time.Duration {
	s.mu.Lock()
	defer s.mu.Unlock()
	return cmp.Or(s.intervals[target], s.opts.Interval)
}

// Run probes until ctx is done or emit fails, and returns ctx's error or
// emit's. emit is called from one goroutine at a time. A Source may be run
// again after it returned, not twice at once.
func (s *Source) Run(ctx context.Context, emit func(context.Context, []event.Event) error) error {
	ctx, cancel := context.WithCancel(ctx)
	r := run{Source: s, answers: make(chan answer), probers: make(map[string]*prober)}
	defer r.wg.Wait()
	defer cancel()
	for {
		r.reconcile(ctx)
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-s.changed:
		case a := <-r.answers:
			if r.probers[a.from.target.Name] != a.from {
				continue // its target was replaced meanwhile
			}
			if err := emit(ctx, a.events); err != nil {
				return err
			}
		}
	}
}

// run is one Run's set of probers.
type run struct {
	*Source
	answers chan answer
	probers map[string]*prober
	wg      sync.WaitGroup
}

type answer struct {
	from   *prober
	events []event.Event
}

// reconcile starts and stops probers so that each target has one.
func (r *run) reconcile(ctx context.Context) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for name, p := range r.probers {
		if t, ok := r.targets[name]; !ok || !same(t, p.target) {
			p.stop()
			delete(r.probers, name)
			delete(r.wake, name)
		}
	}
	for name, t := range r.targets {
		if r.probers[name] != nil {
			continue
		}
		ctx, stop := context.WithCancel(ctx)
		p := &prober{target: t, source: r.Source, answers: r.answers, wake: make(chan struct{}, 1), stop: stop}
		r.probers[name] = p
		r.wake[name] = p.wake
		r.wg.Go(func() { p.run(ctx) })
	}
}

func same(a, b Target) bool {
	return a.Name == b.Name && a.URL == b.URL && a.Insecure == b.Insecure && a.OnlyLocal == b.OnlyLocal &&
		slices.Equal(a.ReadyCodes, b.ReadyCodes) && slices.Equal(a.NotReadyCodes, b.NotReadyCodes)
}

// signal fills a channel of one without waiting.
func signal(ch chan struct{}) {
	select {
	case ch <- struct{}{}:
	default: // it is already due
	}
}
