package phases

import (
	"cmp"
	"slices"
	"strings"

	"github.com/startupd/startupd/pkg/event"
)

// HostOptions are what a Host needs beside its targets.
type HostOptions struct {
	// Journal says that a journal source will come. Until it has read the past,
	// or has said that it can't, what other sources see of the present waits.
	Journal bool
	// Foreign says that the journal may be of another host: its boots say nothing of
	// this host's, by which watermarks are stamped.
	Foreign bool
	// Resolve configures a target that turns up later (a unit that matches a
	// glob); nil, or false, means that its events are dropped.
	Resolve func(target string) (Config, bool)
	// Limits bound the targets that Resolve configures.
	Limits Limits
	// Finished is given each startup once it is final, and again when the service
	// of one that served has ended; nil when nobody keeps them.
	Finished func(target string, s *Startup)
	// Transition is given each change of a target's state as it is applied, also
	// of those that no snapshot shows because the next follows at once; nil when
	// nobody listens. It must not block.
	Transition func(Transition)
}

// Transition is a target's change of state.
type Transition struct {
	Target string
	// Invocation and Generation are the startup's, Began when it began; zero when
	// there is none.
	Invocation string
	Generation int
	Began      event.Stamp
	From, To   State
	At         event.Stamp
	// Replayed says that an earlier run of the daemon had applied it already.
	Replayed bool
}

// Host holds the machines of a host's targets, and what they share. It is not
// safe for concurrent use.
type Host struct {
	opts     HostOptions
	machines map[string]*Machine
	order    []*Machine
	// found are the machines that Resolve brought. saved is what is kept of targets
	// that have no machine.
	found   map[string]*found
	saved   map[string]SavedTarget
	now     event.Stamp
	gpus    []GPU
	xids    xids
	sources []Source
	journal journalState
	// unknown are targets that Resolve refused. refused is Snapshot.Refused.
	unknown map[string]bool
	refused string
}

// NewHost returns a host with one machine for each target.
func NewHost(opts HostOptions, targets ...Config) *Host {
	h := &Host{opts: opts, saved: map[string]SavedTarget{}, xids: newXids(), unknown: map[string]bool{}}
	h.journal.known, h.journal.up = opts.Journal, opts.Journal
	h.SetTargets(targets)
	return h
}

// SetTargets takes over a new list of targets. Targets that remain keep their
// state; those that a glob brought are resolved again.
func (h *Host) SetTargets(targets []Config) {
	old, before, brought := h.machines, h.order, h.found
	h.machines, h.order, h.found = map[string]*Machine{}, nil, map[string]*found{}
	clear(h.unknown)
	h.refused = ""
	for _, cfg := range targets {
		h.put(old[cfg.Name], cfg)
	}
	for _, m := range before {
		name := m.cfg.Name
		if h.machines[name] != nil {
			continue
		}
		if cfg, ok := h.resolve(name); ok {
			h.put(m, cfg)
			h.found[name] = cmp.Or(brought[name], &found{touched: h.now})
			h.changes(name)
			continue
		}
		// One that comes back later goes on counting from here.
		t := m.save()
		t.Seen = h.now
		h.saved[name] = t
	}
	h.sources = slices.DeleteFunc(h.sources, func(s Source) bool { return s.Target != "" && h.machines[s.Target] == nil })
	h.forget()
}

func (h *Host) resolve(target string) (Config, bool) {
	if h.opts.Resolve == nil {
		return Config{}, false
	}
	cfg, ok := h.opts.Resolve(target)
	cfg.Name = target
	return cfg, ok
}

func (h *Host) put(m *Machine, cfg Config) {
	if m == nil {
		m = NewMachine(cfg)
		m.finished, m.transition, m.foreign = h.opts.Finished, h.opts.Transition, h.opts.Foreign
		if s, ok := h.saved[cfg.Name]; ok {
			m.restore(s)
		}
	} else {
		m.configure(cfg)
	}
	delete(h.saved, cfg.Name)
	m.journal.known, m.journal.up, m.journal.boot = h.journal.known, h.journal.up, h.journal.boot
	h.machines[cfg.Name] = m
	h.order = append(h.order, m)
	slices.SortFunc(h.order, func(a, b *Machine) int { return strings.Compare(a.cfg.Name, b.cfg.Name) })
}

// machine finds the machine of an event's target, and makes one for a unit of a
// glob; nil when the target is not watched.
func (h *Host) machine(ev event.Event) *Machine {
	if brings(ev.Data) {
		if h.machines[ev.Target] == nil {
			h.bring(ev.Target)
		}
		if f := h.found[ev.Target]; f != nil {
			f.touch(ev.At)
		}
	}
	h.changes(ev.Target)
	return h.machines[ev.Target]
}

// bring makes a machine for a unit of a glob, if there is room for one.
func (h *Host) bring(target string) {
	if h.unknown[target] {
		return
	}
	cfg, ok := h.resolve(target)
	switch {
	case !ok:
		if len(h.unknown) >= maxUnknown {
			clear(h.unknown)
		}
		h.unknown[target] = true
	case !h.room():
		h.refused = target
	default:
		h.put(nil, cfg)
		h.found[target] = &found{}
	}
}

// Apply takes one event.
func (h *Host) Apply(ev event.Event) {
	h.now = h.journal.forward(h.now, ev.At)
	switch d := ev.Data.(type) {
	case *event.SourceState:
		h.onSource(d, ev)
		return
	case *event.GPUSample:
		h.onGPUs(d, ev.At)
		return
	case *event.Watermark:
		h.journal.mark(ev.At)
		defer h.sweep()
	case *event.Tick:
		defer h.sweep()
	case *event.Line:
		if d.Origin == event.OriginKernel && !ev.Replayed {
			h.xids.take(d.Text, ev.At)
		}
	}
	if ev.Target != "" {
		if m := h.machine(ev); m != nil {
			m.Apply(ev)
			if ev.At.IsZero() {
				h.now = h.journal.forward(h.now, m.now) // the text's own time
			}
		}
		return
	}
	for _, m := range h.order {
		m.Apply(ev)
	}
}

// onSource notes whether a source can see.
func (h *Host) onSource(d *event.SourceState, ev event.Event) {
	if ev.Target != "" && h.machines[ev.Target] == nil {
		return
	}
	h.changes(ev.Target)
	src := Source{Source: d.Source, Target: ev.Target, Up: d.Up, State: d.State, Reason: d.Reason, Restarts: d.Restarts, Since: ev.At}
	i := slices.IndexFunc(h.sources, func(s Source) bool { return s.Source == d.Source && s.Target == ev.Target })
	if i < 0 {
		h.sources = append(h.sources, src)
		slices.SortStableFunc(h.sources, func(a, b Source) int { return strings.Compare(a.Target, b.Target) })
	} else {
		if h.sources[i].State == src.State {
			src.Since = h.sources[i].Since
		}
		h.sources[i] = src
	}
	switch {
	case d.Source == event.SourceJournal && ev.Target == "":
		h.journal.known, h.journal.up = true, d.Up
		for _, m := range h.order {
			m.journal.known, m.journal.up = true, d.Up
		}
	case d.Source == event.SourceGPU && !d.Up:
		// The last numbers are no longer true, and none is known instead.
		h.gpus = nil
		for _, m := range h.order {
			m.own = nil
		}
	case d.Source == event.SourceHealth && !d.Up:
		if m := h.machines[ev.Target]; m != nil {
			m.health, m.disagree = nil, ""
		}
	}
}

// Drain ends the input of every target.
func (h *Host) Drain() {
	for _, m := range h.order {
		m.Drain()
	}
}

// Deadline is when the host next wants a Tick; zero when it doesn't.
func (h *Host) Deadline() event.Stamp {
	first := h.nextSweep()
	for _, m := range h.order {
		if d := m.Deadline(); !d.IsZero() && (first.IsZero() || d.Before(first)) {
			first = d
		}
	}
	return first
}

// Watermark is the time up to which the journal is known; ok is false where no
// journal source limits the passing of time.
func (h *Host) Watermark() (at event.Stamp, ok bool) {
	return h.journal.watermark, h.journal.known && h.journal.up
}

// Snapshot publishes everything that is known now.
func (h *Host) Snapshot() *Snapshot {
	s := &Snapshot{At: h.now, GPUs: slices.Clone(h.gpus), Sources: slices.Clone(h.sources), Xids: h.xids.publish(), Refused: h.refused}
	s.Targets = slices.Grow(s.Targets, len(h.order))
	for _, m := range h.order {
		t := h.publish(m)
		if h.journal.known && h.journal.up && !h.journal.watermark.IsZero() {
			lag := max(0, h.now.Sub(h.journal.watermark))
			t.JournalLag = &lag
		}
		s.Targets = append(s.Targets, t)
	}
	return s
}
