package parity

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/startupd/startupd/pkg/event"
	"github.com/startupd/startupd/pkg/phases"
)

// TestLive plays every start as the daemon sees it: the journal's reader says
// how far it has read, time passes at each deadline, and everything is looked
// at all the time.
func TestLive(t *testing.T) {
	each(t, func(t *testing.T, c recorded) {
		events := onClock(journalled(t, c, 0))
		read := newPlayer(t, false)
		read.apply(events...)
		want := verdicts(read.end(t, c))

		live := newPlayer(t, false)
		live.apply(event.Event{At: events[0].At, Data: &event.SourceState{Source: event.SourceJournal, Up: true, State: "up"}})
		live.pass(events[0].At)
		for _, ev := range events {
			live.wait(ev.At)
			live.apply(ev)
			live.pass(ev.At)
		}
		if diff := cmp.Diff(want, verdicts(live.endLive(t, c))); diff != "" {
			t.Errorf("read (-), live (+):\n%s", diff)
		}
	})
}

// onClock gives events the monotonic clock that a journal has.
func onClock(events []event.Event) []event.Event {
	for i := range events {
		at := &events[i].At
		at.Boot, at.Mono = bootID, at.Real.Sub(booted)
	}
	return events
}

// pass lets the time until at pass, up to which the journal was read.
func (p *player) pass(at event.Stamp) {
	p.apply(event.Event{At: at, Data: &event.Watermark{}}, event.Event{At: at, Data: &event.Tick{}})
	p.host.Snapshot()
}

// endLive is end where time passes step by step.
func (p *player) endLive(t testing.TB, c recorded) []*phases.Startup {
	t.Helper()
	if now := p.target(c.name); c.elapsed > 0 && now != nil && now.Startup != nil {
		end := now.Startup.Began.Add(c.elapsed)
		p.wait(end)
		// A reader never takes back how far it has read.
		if end.After(p.host.Snapshot().At) {
			p.pass(end)
		}
	}
	p.host.Drain()
	return p.startups(c.name)
}

// wait lets the time until at pass, deadline by deadline.
func (p *player) wait(at event.Stamp) {
	last := event.Stamp{}
	for due := p.host.Deadline(); !due.IsZero() && due.Before(at) && due != last; due = p.host.Deadline() {
		last = due
		p.pass(due)
	}
}
