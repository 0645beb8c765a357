package parity

import (
	"bytes"
	"fmt"
	"io"
	"reflect"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/startupd/startupd/internal/app/explain"
	"github.com/startupd/startupd/pkg/event"
	"github.com/startupd/startupd/pkg/phases"
)

// TestCutInput reads every start in two reads, cut after every line.
func TestCutInput(t *testing.T) {
	each(t, func(t *testing.T, c recorded) {
		want, err := explain.Run(t.Context(), explainOptions(t, c, bytes.NewReader(c.text)))
		if err != nil {
			t.Fatal(err)
		}
		for i, b := range c.text {
			if b != '\n' {
				continue
			}
			r := io.MultiReader(bytes.NewReader(c.text[:i+1]), bytes.NewReader(c.text[i+1:]))
			got, err := explain.Run(t.Context(), explainOptions(t, c, r))
			if err != nil {
				t.Fatal(err)
			}
			if !reflect.DeepEqual(want, got) {
				t.Fatalf("cut at byte %d: in one piece (-), in two (+):\n%s", i+1, cmp.Diff(want, got, cmp.AllowUnexported(explain.Startup{})))
			}
		}
	})
}

// TestCutEvents applies every start in two batches, and looks at the state in
// between: to judge must not change what is judged later.
func TestCutEvents(t *testing.T) {
	each(t, func(t *testing.T, c recorded) {
		want := whole(t, c)
		for i := range c.events {
			p := newPlayer(t, true)
			p.apply(c.events[:i]...)
			p.host.Snapshot()
			p.apply(c.events[i:]...)
			same(t, fmt.Sprintf("looked at before event %d", i), want, p.end(t, c))
		}
	})
}

// TestWatched looks at the state after every event, as the daemon does, and at
// each of those moments it must say what a start that ends there is.
func TestWatched(t *testing.T) {
	each(t, func(t *testing.T, c recorded) {
		watched := newPlayer(t, true)
		for i, ev := range c.events {
			watched.apply(ev)
			seen := watched.host.Snapshot()
			unseen := newPlayer(t, true)
			unseen.apply(c.events[:i+1]...)
			if want := unseen.host.Snapshot(); !reflect.DeepEqual(want, seen) {
				t.Fatalf("after event %d: never looked at (-), watched (+):\n%s", i, cmp.Diff(want, seen))
			}
		}
		same(t, "watched all along", whole(t, c), watched.end(t, c))
	})
}

// TestCutWithBaseline does the same where history knows some of the errors.
func TestCutWithBaseline(t *testing.T) {
	each(t, func(t *testing.T, c recorded) {
		known := event.Event{Target: c.name, Data: baseline(whole(t, c))}
		play := func(cut int) []*phases.Startup {
			p := newPlayer(t, true)
			p.apply(known)
			p.apply(c.events[:cut]...)
			if cut > 0 {
				p.host.Snapshot()
			}
			p.apply(c.events[cut:]...)
			return p.end(t, c)
		}
		want := play(0)
		for i := range c.events {
			same(t, fmt.Sprintf("looked at before event %d", i), want, play(i))
		}
	})
}

// baseline is a history of good starts that had every second error of these.
func baseline(list []*phases.Startup) *event.Baseline {
	b := &event.Baseline{Good: 5, Bad: 1, Errors: map[string]event.Seen{}}
	for _, s := range list {
		for i, f := range s.Findings {
			if i%2 == 0 {
				b.Errors[f.Fingerprint] = event.Seen{Good: 5, Bad: 1}
			}
		}
	}
	return b
}
