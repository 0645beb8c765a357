package parity

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/startupd/startupd/pkg/event"
)

// FuzzSplit gives a start's text in reads of arbitrary length, and its events in
// arbitrary batches, with a look at the state after each.
func FuzzSplit(f *testing.F) {
	starts := corpus(f)
	f.Add(uint16(0), []byte{1, 7, 0, 200})
	f.Add(uint16(len(starts)-1), []byte("any other split"))
	f.Fuzz(func(t *testing.T, which uint16, cuts []byte) {
		c := starts[int(which)%len(starts)]
		p := newPlayer(t, true)
		left, next := cycle(cuts), 0
		err := c.source(&chunks{rest: c.text, size: cycle(cuts)})(t.Context(), func(_ context.Context, events []event.Event) error {
			for _, ev := range events {
				if next == 0 {
					p.host.Snapshot()
					next = left() + 1
				}
				p.apply(ev)
				next--
			}
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
		same(t, fmt.Sprintf("%s split by %v", c.name, cuts), whole(t, c), p.end(t, c))
	})
}

// FuzzTargets merges several starts' lines: each target is judged as if it were
// alone.
func FuzzTargets(f *testing.F) {
	starts := slices.DeleteFunc(corpus(f), func(c recorded) bool { return slices.ContainsFunc(c.events, ofKernel) })
	f.Add(uint16(0), uint16(1), uint16(2), []byte{0, 1, 2})
	f.Add(uint16(20), uint16(20), uint16(60), []byte{2, 2, 0, 1, 0})
	f.Fuzz(func(t *testing.T, one, two, three uint16, order []byte) {
		var list []recorded
		for i, which := range []uint16{one, two, three} {
			list = append(list, starts[int(which)%len(starts)].as(fmt.Sprintf("%d.service", i)))
		}
		p := newPlayer(t, true)
		merge(list, cycle(order), func(ev event.Event) { p.apply(ev) })
		for _, c := range list {
			if diff := cmp.Diff(verdicts(whole(t, c)), verdicts(p.end(t, c))); diff != "" {
				t.Fatalf("%s of %d, %d, %d by %v: alone (-), among others (+):\n%s", c.name, one, two, three, order, diff)
			}
		}
	})
}

// ofKernel says that an event is for all targets of the host.
func ofKernel(ev event.Event) bool { return ev.Target == "" }

// as returns the start as another target's.
func (c recorded) as(target string) recorded {
	c.name, c.events = target, slices.Clone(c.events)
	for i := range c.events {
		c.events[i].Target = target
	}
	return c
}

// merge emits the events of several starts, each in its own order.
func merge(list []recorded, next func() int, emit func(event.Event)) {
	rest := make([][]event.Event, len(list))
	for i, c := range list {
		rest[i] = c.events
	}
	for {
		rest = slices.DeleteFunc(rest, func(events []event.Event) bool { return len(events) == 0 })
		if len(rest) == 0 {
			return
		}
		i := next() % len(rest)
		emit(rest[i][0])
		rest[i] = rest[i][1:]
	}
}

// FuzzProcesses interleaves the lines of one start's processes anew: the class of
// the root cause stays.
func FuzzProcesses(f *testing.F) {
	starts := failing(f)
	f.Add(uint16(0), []byte{3, 1, 2})
	f.Add(uint16(40), []byte{0, 0, 5, 9, 1})
	f.Fuzz(func(t *testing.T, which uint16, order []byte) {
		interleave(t, starts[int(which)%len(starts)], cycle(order), fmt.Sprint(order))
	})
}

// TestInterleave does the same in a few random orders for every start.
func TestInterleave(t *testing.T) {
	const orders = 25
	for _, c := range failing(t) {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			for seed := range uint64(orders) {
				r := rand.New(rand.NewPCG(seed, 1))
				interleave(t, c, func() int { return r.IntN(1 << 16) }, fmt.Sprintf("seed %d", seed))
			}
		})
	}
}

// cycle returns the bytes one by one, over and over; 0 when there are none.
func cycle(b []byte) func() int {
	i := 0
	return func() int {
		if len(b) == 0 {
			return 0
		}
		i++
		return int(b[(i-1)%len(b)])
	}
}

// chunks reads a text in pieces of up to 256 bytes.
type chunks struct {
	rest []byte
	size func() int
}

func (r *chunks) Read(b []byte) (int, error) {
	if len(r.rest) == 0 {
		return 0, io.EOF
	}
	n, _ := bytes.NewReader(r.rest[:min(len(r.rest), r.size()+1)]).Read(b)
	r.rest = r.rest[n:]
	return n, nil
}
