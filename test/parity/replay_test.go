package parity

import (
	"bytes"
	"errors"
	"io"
	"testing"

	"github.com/startupd/startupd/pkg/event"
)

// TestReplay records every start's events and plays the recording.
func TestReplay(t *testing.T) {
	each(t, func(t *testing.T, c recorded) {
		var file bytes.Buffer
		enc := event.NewEncoder(&file)
		for _, ev := range c.events {
			if err := enc.Encode(ev); err != nil {
				t.Fatal(err)
			}
		}
		p := newPlayer(t, true)
		n := 0
		for dec := event.NewDecoder(&file); ; n++ {
			ev, err := dec.Decode()
			if errors.Is(err, io.EOF) {
				break
			}
			if err != nil {
				t.Fatal(err)
			}
			p.apply(ev)
		}
		if n != len(c.events) {
			t.Fatalf("%d events were recorded, %d came back", len(c.events), n)
		}
		same(t, "replayed", whole(t, c), p.end(t, c))
	})
}
