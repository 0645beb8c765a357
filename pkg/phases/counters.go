package phases

import (
	"maps"
	"math"
	"slices"

	"github.com/startupd/startupd/pkg/event"
)

func newCounters() Counters {
	return Counters{
		Startups:     map[Outcome]uint64{},
		Ended:        map[Outcome]Exemplar{},
		ServingEnded: map[string]uint64{},
		PhaseSeconds: map[State]Histogram{},
		Gaps:         map[event.GapKind]uint64{},
		Errors:       map[ErrorKey]uint64{},
	}
}

func (c *Counters) clone() Counters {
	out := *c
	out.Startups = maps.Clone(c.Startups)
	out.ServingEnded = maps.Clone(c.ServingEnded)
	out.Gaps = maps.Clone(c.Gaps)
	out.Errors = maps.Clone(c.Errors)
	// A histogram is replaced when it grows, never changed in place; so is Ended.
	out.PhaseSeconds = maps.Clone(c.PhaseSeconds)
	return out
}

// begin notes when the counters were 0: before the target's first event, and not
// before from, when nothing was counted yet. What history knows comes without a time.
func (c *Counters) begin(at, from event.Stamp) {
	if !c.Since.IsZero() || at.Real.IsZero() {
		return
	}
	c.Since = at.Real
	if from.Real.After(at.Real) {
		c.Since = from.Real
	}
}

// end counts a startup that has ended.
func (c *Counters) end(outcome Outcome, invocation string, at event.Stamp) {
	c.Startups[outcome]++
	if e := (Exemplar{Invocation: invocation, Value: 1, At: at.Real}); e.tells() {
		c.Ended = maps.Clone(c.Ended)
		c.Ended[outcome] = e
	}
}

// tells says that the exemplar leads to a startup: a text has no invocation, and
// perhaps no clock.
func (e Exemplar) tells() bool { return e.Invocation != "" && !e.At.IsZero() }

// observe adds one completed phase.
func (c *Counters) observe(phase State, e Exemplar) {
	old, seconds := c.PhaseSeconds[phase], e.Value
	h := Histogram{
		Count: old.Count + 1, Sum: old.Sum + seconds, Zero: old.Zero,
		Buckets: make([]uint64, len(PhaseBuckets())), Native: map[int]uint64{},
	}
	maps.Copy(h.Native, old.Native)
	copy(h.Buckets, old.Buckets)
	bucket := len(PhaseBuckets())
	for i, le := range slices.Backward(PhaseBuckets()) {
		if seconds <= le {
			h.Buckets[i]++
			bucket = i
		}
	}
	h.Exemplars = maps.Clone(old.Exemplars)
	if e.tells() {
		if h.Exemplars == nil {
			h.Exemplars = map[int]Exemplar{}
		}
		h.Exemplars[bucket] = e
	}
	if seconds > 0 {
		h.Native[int(math.Ceil(math.Log2(seconds)*(1<<NativeSchema)))]++
	} else {
		h.Zero++
	}
	c.PhaseSeconds[phase] = h
}

// onGap counts a hole in the evidence.
func (m *Machine) onGap(d *event.Gap, at event.Stamp) {
	if !m.replayed {
		m.counters.Gaps[d.Gap] += uint64(max(1, d.Lines))
	}
	s := m.cur
	if s == nil || m.past.has(d.Invocation) || len(s.pub.Gaps) >= maxGaps {
		return
	}
	s.pub.Gaps = append(s.pub.Gaps, Gap{Kind: d.Gap, Lines: d.Lines, Detail: d.Detail, At: at})
}

// ring is a set of the newest n strings.
type ring struct {
	max   int
	order []string
	set   map[string]bool
}

func newRing(max int) ring { return ring{max: max, set: map[string]bool{}} }

func (r *ring) has(s string) bool { return r.set[s] }

func (r *ring) add(s string) {
	if s == "" || r.set[s] {
		return
	}
	if len(r.order) == r.max {
		delete(r.set, r.order[0])
		r.order = r.order[1:]
	}
	r.order = append(r.order, s)
	r.set[s] = true
}
