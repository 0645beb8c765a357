package phases

import (
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/startupd/startupd/pkg/event"
	"github.com/startupd/startupd/pkg/triage"
)

// Saved is what survives a restart of the daemon: counters, and which startups
// they have counted. Everything else is read again from the journal.
type Saved struct {
	Targets map[string]SavedTarget `json:"targets"`
	Xids    []SavedXid             `json:"xids,omitempty"`
	// GPUs are the GPUs' indices by PCI address.
	GPUs map[string]int `json:"gpus,omitempty"`
}

// SavedXid is one series of the Xid counter.
type SavedXid struct {
	// Address is the GPU's PCI address.
	Address string      `json:"address"`
	Xid     int         `json:"xid"`
	Count   uint64      `json:"count"`
	Last    event.Stamp `json:"last"`
}

// SavedTarget is one target's part of Saved.
type SavedTarget struct {
	// Since is when the counters were 0; zero in a file of a version that forgot no
	// target.
	Since        time.Time                `json:"since,omitzero"`
	Startups     map[Outcome]uint64       `json:"startups"`
	Ended        map[Outcome]Exemplar     `json:"ended,omitempty"`
	ServingEnded map[string]uint64        `json:"serving_ended"`
	PhaseSeconds map[State]Histogram      `json:"phase_seconds"`
	Gaps         map[event.GapKind]uint64 `json:"gaps"`
	Errors       []SavedErrors            `json:"errors"`
	Lines        uint64                   `json:"lines"`
	Stale        uint64                   `json:"stale"`
	Unmatched    uint64                   `json:"unmatched"`
	// Counted are the identities of the newest counted startups, oldest first.
	Counted []string `json:"counted"`
	// Past are the newest invocations that are over, oldest first.
	Past        []string `json:"past"`
	LastOutcome Outcome  `json:"last_outcome,omitempty"`
	// FailedInRow is how many starts have failed since one served or was stopped.
	FailedInRow int `json:"failed_in_row,omitempty"`
	// Failure is the last failed startup's root cause, until one serves.
	Failure *triage.RootCause `json:"failure,omitempty"`
	// Messages are the first texts of the errors that starts have failed of since one
	// served, the one told last at the end.
	Messages []SavedMessage `json:"messages,omitempty"`
	// Typical is how long each phase of the last good start took, in seconds.
	Typical map[State]float64 `json:"typical,omitempty"`
	// Watched says that it was a target when it was saved. Seen is when a unit of a
	// glob was last heard of, or when it ceased to be a target; zero when not known.
	// Idle is since when a unit of a glob may go; zero while it may not.
	Watched bool        `json:"watched,omitempty"`
	Seen    event.Stamp `json:"seen,omitzero"`
	Idle    event.Stamp `json:"idle,omitzero"`
}

// SavedMessage is what the first start said that failed of an error.
type SavedMessage struct {
	Fingerprint string `json:"fingerprint"`
	Text        string `json:"text"`
}

// SavedErrors is one series of the error counter.
type SavedErrors struct {
	Class   string `json:"class"`
	Verdict string `json:"verdict"`
	Count   uint64 `json:"count"`
}

// Save returns what a later run needs. It shares nothing with the host.
func (h *Host) Save() Saved {
	out := Saved{Targets: maps.Clone(h.saved), Xids: h.xids.save(), GPUs: maps.Clone(h.xids.index)}
	for _, m := range h.order {
		t := m.save()
		t.Watched = true
		if f := h.found[m.cfg.Name]; f != nil {
			t.Seen, t.Idle = f.touched, f.idle
		}
		out.Targets[m.cfg.Name] = t
	}
	return out
}

// Restore takes over what an earlier run saved. It is called before the first
// event. Units of globs are there again at once, so that their metrics have no hole.
func (h *Host) Restore(s Saved) {
	h.xids.restore(s.Xids, s.GPUs)
	for _, name := range slices.Sorted(maps.Keys(s.Targets)) {
		t := s.Targets[name]
		if m := h.machines[name]; m != nil {
			m.restore(t)
			continue
		}
		h.saved[name] = t
		if !t.Watched {
			continue
		}
		t.Watched = false
		h.saved[name] = t
		h.bring(name)
		if f := h.found[name]; f != nil {
			f.touched, f.idle = t.Seen, t.Idle
		}
	}
}

func (m *Machine) save() SavedTarget {
	c := m.counters.clone()
	counted := slices.Clone(m.counted.order)
	if s := m.before; s != nil && !s.final {
		// A later run does not read it again.
		if key := s.key(s.pub.Invocation) + "/errors"; !m.counted.has(key) {
			for k, n := range m.judgement(s).Errors {
				c.Errors[k] += uint64(n)
			}
			counted = append(counted, key)
		}
	}
	t := SavedTarget{
		Since: c.Since, Startups: c.Startups, Ended: c.Ended, ServingEnded: c.ServingEnded, PhaseSeconds: c.PhaseSeconds, Gaps: c.Gaps,
		Lines: c.Lines, Stale: c.Stale, Unmatched: c.Unmatched,
		Counted: counted, Past: slices.Clone(m.past.order), LastOutcome: m.lastOutcome,
		FailedInRow: m.failedInRow, Typical: maps.Clone(m.typical), Failure: m.failed(),
		Messages: saveMessages(m.messages),
	}
	for k, n := range c.Errors {
		t.Errors = append(t.Errors, SavedErrors{Class: k.Class, Verdict: string(k.Verdict), Count: n})
	}
	slices.SortFunc(t.Errors, func(a, b SavedErrors) int {
		return strings.Compare(a.Class+"/"+a.Verdict, b.Class+"/"+b.Verdict)
	})
	return t
}

func (m *Machine) restore(t SavedTarget) {
	c := newCounters()
	c.Since = t.Since
	if c.Since.IsZero() {
		c.Since = m.cfg.CountFrom.Real
	}
	maps.Copy(c.Startups, t.Startups)
	maps.Copy(c.Ended, t.Ended)
	maps.Copy(c.ServingEnded, t.ServingEnded)
	maps.Copy(c.PhaseSeconds, t.PhaseSeconds)
	maps.Copy(c.Gaps, t.Gaps)
	for _, e := range t.Errors {
		c.Errors[ErrorKey{Class: e.Class, Verdict: triage.Verdict(e.Verdict)}] = e.Count
	}
	c.Lines, c.Stale, c.Unmatched = t.Lines, t.Stale, t.Unmatched
	m.counters = c
	for _, k := range t.Counted {
		m.counted.add(k)
	}
	for _, k := range t.Past {
		m.past.add(k)
	}
	m.failure, m.messages = t.Failure, restoreMessages(t.Messages)
	m.lastOutcome, m.failedInRow, m.typical = t.LastOutcome, t.FailedInRow, maps.Clone(t.Typical)
}
