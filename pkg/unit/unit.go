// Package unit follows what systemd says about the watched units over D-Bus:
// active state, invocation, main process, restarts and control group. It is a
// source of *event.UnitState; without a bus it says so, and the journal's own
// messages are enough.
//
// It only reads: it must not start, stop or change a unit, know what the
// states mean for an engine, or be asked during a scrape.
package unit

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"path"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/cenkalti/backoff/v5"
	"go.uber.org/zap"

	"github.com/startupd/startupd/pkg/event"
)

// Conn is a connection to systemd. It ends with the context that it was dialled
// with.
type Conn interface {
	// List returns the names of the loaded units that match one of the globs, and
	// perhaps of others.
	List(ctx context.Context, globs []string) ([]string, error)
	// Properties returns all D-Bus properties of a unit; of one that does not
	// exist, its LoadState is not-found.
	Properties(ctx context.Context, unit string) (map[string]any, error)
	// Changes delivers the name of a unit about which something changed, or ""
	// when it can't be told which. It is closed when the connection is lost.
	Changes() <-chan string
}

// Dialer connects to systemd. Only changes of units that watch accepts are
// delivered; watch may be called from any goroutine.
type Dialer func(ctx context.Context, watch func(unit string) bool) (Conn, error)

// Target is one unit to watch.
type Target struct {
	// Name is what events are labelled with; the unit's name when empty.
	Name string
	// Unit is the unit's name; .service is implied, as with systemctl.
	Unit string
}

// Options are what a Source needs.
type Options struct {
	// Clock stamps events and tells the present boot. Required.
	Clock event.Clock
	// Logger gets what a person should know; nil is silent.
	Logger *zap.Logger
	// Dial connects to systemd; DialSystem when nil.
	Dial Dialer
	// Poll is how often everything is read again, as signals may be lost; 30 s
	// when 0.
	Poll time.Duration
	// MaxFound bounds the units that globs may add; 64 when 0. One that systemd
	// unloads makes room.
	MaxFound int
}

// Source watches units. Its methods may be called from any goroutine.
type Source struct {
	opts    Options
	changed chan struct{}

	mu      sync.Mutex
	targets []Target
	globs   []string
	// found holds what the globs match at present.
	found map[string]bool
	// ids maps a watched name that is an alias to the name under which systemd
	// sends the unit's signals.
	ids map[string]string
}

// New returns a Source without targets. Nothing happens before Run.
func New(opts Options) *Source {
	opts.Logger = cmp.Or(opts.Logger, zap.NewNop())
	opts.Poll = cmp.Or(opts.Poll, 30*time.Second)
	opts.MaxFound = cmp.Or(opts.MaxFound, 64)
	if opts.Dial == nil {
		opts.Dial = DialSystem
	}
	return &Source{
		opts: opts, changed: make(chan struct{}, 1),
		found: make(map[string]bool), ids: make(map[string]string),
	}
}

// SetTargets replaces what is watched: units by name, and globs (*, ?, [...])
// over the names of loaded units, whose targets are named like the units. A
// malformed glob is an error, and nothing is replaced.
func (s *Source) SetTargets(targets []Target, globs []string) error {
	for _, g := range globs {
		if _, err := path.Match(g, ""); err != nil {
			return fmt.Errorf("unit glob %q: %w: close every [ with a ]", g, err)
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.targets = make([]Target, len(targets))
	for i, t := range targets {
		t.Name = cmp.Or(t.Name, t.Unit)
		t.Unit = withType(t.Unit)
		s.targets[i] = t
	}
	s.globs = make([]string, len(globs))
	for i, g := range globs {
		s.globs[i] = withType(g)
	}
	maps.DeleteFunc(s.found, func(unit string, _ bool) bool { return !s.matchesGlob(unit) })
	clear(s.ids)
	select {
	case s.changed <- struct{}{}:
	default: // a refresh is already due
	}
	return nil
}

// Run watches until ctx is done or emit fails, and reconnects meanwhile. It
// returns ctx's error or emit's. A Source may be run again after it returned.
func (s *Source) Run(ctx context.Context, emit func(context.Context, []event.Event) error) error {
	wait := backoff.NewExponentialBackOff()
	wait.MaxInterval = 30 * time.Second
	r := run{Source: s, emit: emit, last: make(map[string]event.UnitState), warned: make(map[string]string)}
	for {
		began := time.Now()
		err := r.session(ctx)
		if ctx.Err() != nil {
			return ctx.Err()
		}
		var failed emitError
		if errors.As(err, &failed) {
			return failed.error
		}
		if err := r.report(ctx, sourceState(err)); err != nil {
			return err
		}
		if time.Since(began) > time.Minute {
			wait.Reset()
		}
		if err := sleep(ctx, wait.NextBackOff()); err != nil {
			return err
		}
	}
}

// watch says whether a unit, by the name in systemd's signals, is watched.
func (s *Source) watch(unit string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.found[unit] || s.matchesGlob(unit) ||
		slices.ContainsFunc(s.targets, func(t Target) bool { return t.Unit == unit || s.ids[t.Unit] == unit })
}

// matchesGlob is called with mu held.
func (s *Source) matchesGlob(unit string) bool {
	return slices.ContainsFunc(s.globs, func(g string) bool {
		ok, err := path.Match(g, unit)
		return ok && err == nil
	})
}

// names returns the targets that a unit's events go to.
func (s *Source) names(unit string) []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	var names []string
	for _, t := range s.targets {
		if t.Unit == unit {
			names = append(names, t.Name)
		}
	}
	if s.found[unit] && !slices.Contains(names, unit) {
		names = append(names, unit)
	}
	return names
}

// withType adds the .service that systemctl implies.
func withType(name string) string {
	for _, t := range []string{".service", ".scope", ".slice", ".socket", ".target", ".mount", ".swap", ".timer", ".path", ".device", ".automount"} {
		if strings.HasSuffix(name, t) {
			return name
		}
	}
	return name + ".service"
}

func sleep(ctx context.Context, d time.Duration) error {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-t.C:
		return nil
	}
}
