// Package event owns the vocabulary that everything in startupd speaks: an
// Event says what was seen, where and when. Sources make events, the core
// consumes them, recordings store them.
//
// The package holds data only. It must not read a clock, do I/O or know an
// engine; it imports nothing but the standard library.
package event

import "time"

// Event is one observed fact.
type Event struct {
	// At is when the fact happened by its source's clock, not when it was read.
	At Stamp
	// Target names the watched unit that the fact belongs to; "" for a fact
	// about the whole host (a GPU sample, the journal's watermark).
	Target string
	// Replayed marks a fact that an earlier run of the daemon had already
	// applied. It rebuilds state and counts nothing.
	Replayed bool
	// Data is never nil.
	Data Data
}

// Data is the payload of an Event: one of the pointer types of this package.
type Data interface{ Kind() Kind }

// Kind is a payload's name in a recording.
type Kind string

// The kinds of payload.
const (
	KindLine        Kind = "line"
	KindUnitMessage Kind = "unit_message"
	KindUnitState   Kind = "unit_state"
	KindGap         Kind = "gap"
	KindEarlier     Kind = "earlier"
	KindGPU         Kind = "gpu"
	KindHealth      Kind = "health"
	KindHost        Kind = "host"
	KindSource      Kind = "source"
	KindWatermark   Kind = "watermark"
	KindTick        Kind = "tick"
)

// Stamp is a moment on both of a host's clocks.
type Stamp struct {
	// Real is the wall clock. The zero time means that it is not known.
	Real time.Time `json:"real"`
	// Boot is the boot ID (32 hex digits) that Mono counts in; "" means that
	// Mono is not known, as in plain text.
	Boot string `json:"boot,omitempty"`
	// Mono is CLOCK_MONOTONIC: the time since that boot.
	Mono time.Duration `json:"mono,omitempty"`
}

// IsZero says that neither clock is known.
func (s Stamp) IsZero() bool { return s.Boot == "" && s.Real.IsZero() }

// Sub returns s - o: by the monotonic clock within one boot, else by the wall
// clock. It is negative if s is earlier, and 0 if one of them is not known.
func (s Stamp) Sub(o Stamp) time.Duration {
	if s.Boot != "" && s.Boot == o.Boot {
		return s.Mono - o.Mono
	}
	if s.Real.IsZero() || o.Real.IsZero() {
		return 0
	}
	return s.Real.Sub(o.Real)
}

// Before says that s lies before o.
func (s Stamp) Before(o Stamp) bool { return s.Sub(o) < 0 }

// After says that s lies after o.
func (s Stamp) After(o Stamp) bool { return s.Sub(o) > 0 }

// Add returns the stamp d later on both clocks.
func (s Stamp) Add(d time.Duration) Stamp {
	if !s.Real.IsZero() {
		s.Real = s.Real.Add(d)
	}
	if s.Boot != "" {
		s.Mono += d
	}
	return s
}

// Clock tells the present moment on both clocks. Whoever needs the time is
// given one, so that tests and replays own it.
type Clock func() Stamp
