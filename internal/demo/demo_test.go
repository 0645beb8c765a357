package demo

import (
	"context"
	"errors"
	"reflect"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/startupd/startupd/pkg/event"
)

// clock counts the bubble's time on both of a host's clocks.
func clock() event.Clock {
	began := time.Now()
	return func() event.Stamp {
		return event.Stamp{Real: time.Now(), Boot: "here", Mono: time.Hour + time.Since(began)}
	}
}

// played is a batch and when it came.
type played struct {
	at     event.Stamp
	events []event.Event
}

func play(t *testing.T, s *Source, now event.Clock) []played {
	t.Helper()
	var got []played
	err := s.Run(t.Context(), func(_ context.Context, events []event.Event) error {
		got = append(got, played{at: now(), events: events})
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return got
}

func TestRunPacesAndRebases(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		now := clock()
		first := now()
		const speed = 60
		s, err := New(Options{Speed: speed, Clock: now})
		if err != nil {
			t.Fatal(err)
		}
		batches := play(t, s, now)
		if took := now().Sub(first); took != s.Duration() || took != s.Info().Duration/speed {
			t.Errorf("took %v, Duration says %v", took, s.Duration())
		}
		var i int
		mark := first
		for _, b := range batches {
			for _, e := range b.events[:len(b.events)-1] {
				want := s.events[i].At.Sub(s.events[0].At) / speed
				if got := e.At.Sub(first); got != want || e.At.Real.Sub(first.Real) != want {
					t.Fatalf("event %d at %v (%v by the wall), want %v", i, got, e.At.Real.Sub(first.Real), want)
				}
				if b.at.Before(e.At) || e.At.Before(mark) {
					t.Fatalf("event %d of %v came at %v, after a watermark of %v", i, e.At, b.at, mark)
				}
				i++
			}
			last := b.events[len(b.events)-1]
			if _, ok := last.Data.(*event.Watermark); !ok || last.At.Sub(mark) > watermarkEvery {
				t.Fatalf("batch ends with %+v, %v after the last watermark", last, last.At.Sub(mark))
			}
			mark = last.At
		}
		if i != len(s.events) {
			t.Errorf("played %d of %d events", i, len(s.events))
		}
	})
}

func TestRunTwice(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		now := clock()
		s, err := New(Options{Speed: 1000, Clock: now})
		if err != nil {
			t.Fatal(err)
		}
		flat := func() (all []event.Event) {
			first := now()
			for _, b := range play(t, s, now) {
				for _, e := range b.events {
					e.At = event.Stamp{Mono: e.At.Mono - first.Mono}
					if u, ok := e.Data.(*event.UnitState); ok && !u.InactiveExit.IsZero() {
						e.Data = &event.UnitState{Invocation: u.Invocation, InactiveExit: event.Stamp{Mono: u.InactiveExit.Mono - first.Mono}}
					}
					all = append(all, e)
				}
			}
			return all
		}
		if a, b := flat(), flat(); !reflect.DeepEqual(a, b) {
			t.Error("the second run differs from the first")
		}
	})
}

func TestLingerAndCancel(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		now := clock()
		s, err := New(Options{Speed: 1000, Clock: now, Linger: true})
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithTimeout(t.Context(), s.Duration()+10*time.Second)
		defer cancel()
		var last event.Event
		err = s.Run(ctx, func(_ context.Context, events []event.Event) error {
			last = events[len(events)-1]
			return nil
		})
		if !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("Run ended with %v", err)
		}
		if now().Sub(last.At) > watermarkEvery {
			t.Errorf("last watermark %v before the end", now().Sub(last.At))
		}
	})
}

func TestEmitFails(t *testing.T) {
	full := errors.New("full")
	s, err := New(Options{Speed: 1, Clock: func() event.Stamp { return event.Stamp{Real: time.Unix(1, 0)} }})
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Run(t.Context(), func(context.Context, []event.Event) error { return full }); !errors.Is(err, full) {
		t.Errorf("Run returned %v", err)
	}
}

func TestRefused(t *testing.T) {
	now := func() event.Stamp { return event.Stamp{} }
	for want, o := range map[string]Options{
		`no recording "x": there are reference`: {Recording: "x", Speed: 1, Clock: now},
		"give a number above 0":                 {Speed: -2, Clock: now},
		"speed 0":                               {Clock: now},
		"Clock is nil":                          {Speed: 1},
	} {
		if _, err := New(o); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%+v: error %v, want %q", o, err, want)
		}
	}
}

// TestRecordings looks at what the recordings hold: what the demo promises.
func TestRecordings(t *testing.T) {
	for _, name := range names() {
		_, i, err := load(name)
		if err != nil {
			t.Fatal(err)
		}
		if i.Summary == "" || i.Duration <= 0 || len(i.Targets) == 0 {
			t.Errorf("%+v is not described", i)
		}
	}
	events, _, err := load(reference)
	if err != nil {
		t.Fatal(err)
	}
	kinds := map[event.Kind]int{}
	invocations := map[string]bool{}
	for i, e := range events {
		kinds[e.Data.Kind()]++
		if l, ok := e.Data.(*event.Line); ok {
			invocations[l.Invocation] = true
		}
		if i > 0 && e.At.Before(events[i-1].At) {
			t.Fatalf("event %d lies before the one before it", i)
		}
	}
	for _, k := range []event.Kind{
		event.KindLine, event.KindUnitMessage, event.KindUnitState, event.KindGPU, event.KindHealth, event.KindSource, event.KindWatermark,
	} {
		if kinds[k] == 0 {
			t.Errorf("no %s in the reference run", k)
		}
	}
	if len(invocations) != 2 {
		t.Errorf("lines of %d starts, want 2", len(invocations))
	}
}
