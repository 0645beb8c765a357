package parity

import (
	"context"
	"io"
	"reflect"
	"slices"
	"strconv"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/startupd/startupd/internal/app/explain"
	"github.com/startupd/startupd/pkg/event"
	"github.com/startupd/startupd/pkg/journal"
	"github.com/startupd/startupd/pkg/phases"
)

// source reads a recorded start as explain does.
func (c recorded) source(r io.Reader) explain.Source {
	return func(ctx context.Context, emit func(context.Context, []event.Event) error) error {
		return journal.ReadFile(ctx, journal.FileOptions{Path: c.name, R: r, Now: written}, emit)
	}
}

func explainOptions(t testing.TB, c recorded, r io.Reader) explain.Options {
	t.Helper()
	set, err := builtin()
	if err != nil {
		t.Fatal(err)
	}
	return explain.Options{
		Input: c.name, Source: c.source(r), Profiles: set.Profiles(), Year: written.Year(), Elapsed: c.elapsed,
	}
}

// player applies events to a host of its own.
type player struct {
	host *phases.Host
	// over are each target's final startups, in order.
	over map[string][]*phases.Startup
}

// newPlayer returns a player that takes every target. text says that the events
// are of texts, which have no invocations.
func newPlayer(t testing.TB, text bool) *player {
	t.Helper()
	set, err := builtin()
	if err != nil {
		t.Fatal(err)
	}
	p := &player{over: map[string][]*phases.Startup{}}
	p.host = phases.NewHost(phases.HostOptions{
		Resolve: func(target string) (phases.Config, bool) {
			return phases.Config{Name: target, Profiles: set.Profiles(), Text: text, Year: written.Year()}, true
		},
		Finished: func(target string, s *phases.Startup) { p.over[target] = keep(p.over[target], s) },
	})
	return p
}

func (p *player) apply(events ...event.Event) {
	for _, ev := range events {
		p.host.Apply(ev)
	}
}

// end lets the time pass after which a start is judged, and ends the input.
func (p *player) end(t testing.TB, c recorded) []*phases.Startup {
	t.Helper()
	if now := p.target(c.name); c.elapsed > 0 && now != nil && now.Startup != nil {
		at := now.Startup.Began.Add(c.elapsed)
		p.apply(event.Event{At: at, Target: c.name, Data: &event.Watermark{}}, event.Event{At: at, Target: c.name, Data: &event.Tick{}})
	}
	p.host.Drain()
	return p.startups(c.name)
}

func (p *player) target(name string) *phases.Target {
	targets := p.host.Snapshot().Targets
	i := slices.IndexFunc(targets, func(t phases.Target) bool { return t.Name == name })
	if i < 0 {
		return nil
	}
	return &targets[i]
}

// startups are all of a target, in order.
func (p *player) startups(name string) []*phases.Startup {
	out := slices.Clone(p.over[name])
	if t := p.target(name); t != nil && t.Startup != nil {
		out = keep(out, t.Startup)
	}
	slices.SortStableFunc(out, func(a, b *phases.Startup) int {
		switch {
		case a.Invocation == b.Invocation:
			return a.Generation - b.Generation
		case a.Began.Before(b.Began):
			return -1
		case b.Began.Before(a.Began):
			return 1
		}
		return 0
	})
	return out
}

// keep adds a startup to a list, or puts it in the place of what was known of it
// before.
func keep(list []*phases.Startup, s *phases.Startup) []*phases.Startup {
	key := func(s *phases.Startup) string { return s.Invocation + "/" + strconv.Itoa(s.Generation) }
	for i := range list {
		if key(list[i]) == key(s) {
			list[i] = s
			return list
		}
	}
	return append(list, s)
}

// whole judges a recorded start in one piece.
func whole(t testing.TB, c recorded) []*phases.Startup {
	t.Helper()
	p := newPlayer(t, true)
	p.apply(c.events...)
	return p.end(t, c)
}

// same fails unless two judgements are equal to the last position and stamp.
func same(t testing.TB, how string, want, got []*phases.Startup) {
	t.Helper()
	if !reflect.DeepEqual(want, got) {
		t.Fatalf("%s: in one piece (-), so (+):\n%s", how, cmp.Diff(want, got))
	}
}
