package phases

import (
	"slices"
	"strings"
	"time"

	"github.com/startupd/startupd/pkg/event"
)

// Limits bound what a host keeps of units that come and go. A field that is 0 sets
// no limit; the zero value keeps everything, as the reader of a recording wants it.
type Limits struct {
	// Units is how many units that Resolve brought there are at once. For one more,
	// the one that has been silent for longest makes way; while all of them run,
	// the new one is not watched.
	Units int
	// Keep is how long such a unit stays that neither runs nor is loaded by systemd.
	// It ends with the next thing that is heard of the unit.
	Keep time.Duration
	// Saved is how many units keep their counters while they are not watched, and
	// SavedFor for how long. One that comes back in time goes on counting, a later
	// one begins at 0.
	Saved    int
	SavedFor time.Duration
}

// LiveLimits are those of a daemon. The hour of Keep is for alerts: they must see
// the failure of a unit that is gone right after it.
func LiveLimits() Limits {
	return Limits{Units: 200, Keep: time.Hour, Saved: 200, SavedFor: 7 * 24 * time.Hour}
}

// maxUnknown bounds the names that Resolve has refused.
const maxUnknown = 1024

// found is what a host notes of a unit that Resolve brought.
type found struct {
	// touched is when the unit was last heard of; zero when no time was told.
	touched event.Stamp
	// idle is since when the unit may go; zero while it may not.
	idle event.Stamp
	// last is what is published of a unit that may go; nil while it can change.
	last *Target
}

// touch notes that something is heard of the unit; zero when its time is not told.
func (f *found) touch(at event.Stamp) {
	f.idle = event.Stamp{}
	if f.touched.IsZero() || at.After(f.touched) {
		f.touched = at
	}
}

// brings says that an event tells of a unit that nobody has named. What other
// sources see of a unit that was watched until just now, or what history knows of
// it, brings no unit back.
func brings(data event.Data) bool {
	switch d := data.(type) {
	case *event.UnitState:
		return d.Loaded
	case *event.HealthSample, *event.HostSample, *event.Baseline:
		return false
	}
	return true
}

// loaded says that systemd has the unit in memory: it runs, has failed, or other
// units need it.
func (m *Machine) loaded() bool { return m.unit != nil && m.unit.Loaded }

// runs says that the unit starts or serves, as far as is known.
func (m *Machine) runs() bool { return m.cur != nil && m.cur.alive() }

// over says that the unit is gone. Where systemd has unloaded it, its end may have
// been missed; but a start that came after is not told of where the bus is lost
// meanwhile.
func (m *Machine) over() bool {
	if m.unit == nil || m.runs() && m.cur.pub.Began.After(m.unitAt) {
		return !m.runs()
	}
	return !m.unit.Loaded
}

// ended are the IDs of the present startup if it can't go on. A script may start the
// engine again in a unit whose main process is there still.
func (m *Machine) ended() []string {
	if m.cur == nil || !m.cur.exited && (m.unit == nil || !m.over()) {
		return nil
	}
	return []string{m.cur.pub.Invocation, m.cur.unitInvocation}
}

// settled says that nothing but an event of its own can change what is published
// of the unit, its GPU memory apart.
func (m *Machine) settled() bool {
	return !m.held && !m.runs() && (m.cur == nil || m.cur.final) && (m.before == nil || m.before.final)
}

// publish is what the snapshot tells of a target. Units that are gone may be many,
// and the same is told of them each time.
func (h *Host) publish(m *Machine) Target {
	f := h.found[m.cfg.Name]
	if f == nil || f.idle.IsZero() || !m.settled() {
		return m.target(h.now)
	}
	if f.last == nil {
		t := m.target(h.now)
		f.last = &t
	}
	t := *f.last
	t.GPUMemory = m.own
	return t
}

// changes says that an event of the target may change what is published of it.
func (h *Host) changes(target string) {
	if f := h.found[target]; f != nil {
		f.last = nil
	}
}

// sweep lets go of units that have been gone for long enough. While the past is
// being read it waits: what comes of it may tell of them.
func (h *Host) sweep() {
	if h.journal.catchingUp() || h.now.IsZero() {
		return
	}
	for _, m := range slices.Clone(h.order) {
		f := h.found[m.cfg.Name]
		switch {
		case f == nil:
		case !m.over():
			f.idle = event.Stamp{}
		case f.idle.IsZero():
			f.idle = h.now
		case h.opts.Limits.Keep > 0 && h.now.Sub(f.idle) >= h.opts.Limits.Keep:
			h.drop(m)
		}
	}
	if len(h.found) < h.opts.Limits.Units {
		h.refused = ""
	}
	h.forget()
}

// nextSweep is when the next unit goes; zero when none is to go.
func (h *Host) nextSweep() event.Stamp {
	var first event.Stamp
	if h.opts.Limits.Keep <= 0 || h.journal.catchingUp() {
		return first
	}
	for _, f := range h.found {
		if at := f.idle.Add(h.opts.Limits.Keep); !f.idle.IsZero() && (first.IsZero() || at.Before(first)) {
			first = at
		}
	}
	return first
}

// room makes room for one more unit, and says whether there is any. What does not
// run makes way: first what systemd has not loaded, and of that the longest silent.
func (h *Host) room() bool {
	if h.opts.Limits.Units <= 0 || len(h.found) < h.opts.Limits.Units {
		return true
	}
	var out *Machine
	for _, m := range h.order {
		if h.found[m.cfg.Name] == nil || m.runs() && !m.over() {
			continue
		}
		if out == nil || h.sooner(m, out) {
			out = m
		}
	}
	if out == nil {
		return false
	}
	h.drop(out)
	return true
}

// sooner says that a makes way before b.
func (h *Host) sooner(a, b *Machine) bool {
	if a.loaded() != b.loaded() {
		return b.loaded()
	}
	return h.found[a.cfg.Name].touched.Before(h.found[b.cfg.Name].touched)
}

// drop stops watching a unit. Its counters are kept for a return, and not how it
// ended: an old failure would look like one of the next start.
func (h *Host) drop(m *Machine) {
	name := m.cfg.Name
	t := m.save()
	t.LastOutcome, t.Failure, t.Messages, t.FailedInRow = OutcomeNone, nil, nil, 0
	for _, id := range m.ended() { // a late entry of it begins no startup
		m.past.add(id)
	}
	t.Past, t.Seen = slices.Clone(m.past.order), h.now
	h.saved[name] = t
	delete(h.machines, name)
	delete(h.found, name)
	h.order = slices.DeleteFunc(h.order, func(o *Machine) bool { return o == m })
	h.sources = slices.DeleteFunc(h.sources, func(s Source) bool { return s.Target == name })
	h.forget()
}

// forget drops the counters of units that have been away for too long, or that are
// too many. From a time that is not known, the unit is away since now.
func (h *Host) forget() {
	l := h.opts.Limits
	for name, t := range h.saved {
		if t.Seen.IsZero() && !h.now.IsZero() {
			t.Seen = h.now
			h.saved[name] = t
		}
		if l.SavedFor > 0 && h.now.Sub(t.Seen) >= l.SavedFor {
			delete(h.saved, name)
		}
	}
	n := len(h.saved) - l.Saved
	if l.Saved <= 0 || n <= 0 {
		return
	}
	names := make([]string, 0, len(h.saved))
	for name := range h.saved {
		names = append(names, name)
	}
	slices.SortFunc(names, func(a, b string) int {
		sa, sb := h.saved[a].Seen, h.saved[b].Seen
		switch {
		case sa.Before(sb):
			return -1
		case sb.Before(sa):
			return 1
		}
		return strings.Compare(a, b)
	})
	for _, name := range names[:n] {
		delete(h.saved, name)
	}
}
