package web

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"hash/maphash"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/startupd/startupd/pkg/event"
	"github.com/startupd/startupd/pkg/phases"
	"github.com/startupd/startupd/pkg/web/api"
)

const (
	// DefaultStreams is how many streams are served at once.
	DefaultStreams = 64
	// lookEvery is the least time between two comparisons: snapshots come faster
	// than anybody can read while the log floods.
	lookEvery = 20 * time.Millisecond
	// updateEvery is the least time between two updates, quietEvery that between
	// two of which only counters and ages differ.
	updateEvery = 250 * time.Millisecond
	quietEvery  = 5 * time.Second
)

// HubOptions are what a Hub needs.
type HubOptions struct {
	// Snapshot is the newest published state.
	Snapshot func() *phases.Snapshot
	Clock    event.Clock
	// Version is startupd's own.
	Version string
	// MaxStreams is how many streams are served at once; 0 means DefaultStreams.
	MaxStreams int
	// WriteWithin is how long a client may take for one piece of a stream; 0 means
	// 10 s.
	WriteWithin time.Duration
	// Dropped is called when a stream is given up because its client reads too
	// slowly; nil is allowed.
	Dropped func(client, why string)
}

// Hub keeps the newest events of all units and tells them to streams. Each
// stream reads the same ring at its own position, so that a slow one costs
// nothing and holds up nobody. A new Hub has another epoch: its events are not
// those of an earlier run.
type Hub struct {
	opts   HubOptions
	epoch  string
	memory *recorder
	// encoding is held while a large document is made, so that many clients that
	// come at once do not have as many copies made at once.
	encoding sync.Mutex

	mu   sync.Mutex
	ring ring
	// shown is the newest event that may be read: those after it belong to a
	// snapshot that is not published yet.
	shown uint64
	// staged says that there are such events.
	staged bool
	// changed is closed, and replaced, when there is something new to read.
	changed chan struct{}
	ledgers map[string]*ledger
	feeds   map[string]*feed
	streams int
	ended   chan struct{}
	end     func()
}

// NewHub returns a hub with no events.
func NewHub(o HubOptions) *Hub {
	if o.MaxStreams == 0 {
		o.MaxStreams = DefaultStreams
	}
	if o.WriteWithin == 0 {
		o.WriteWithin = writeWithin
	}
	epoch := make([]byte, 6)
	_, _ = rand.Read(epoch) // it never fails
	h := &Hub{
		opts: o, epoch: hex.EncodeToString(epoch), memory: newRecorder(),
		ring: newRing(), changed: make(chan struct{}), ledgers: map[string]*ledger{}, feeds: map[string]*feed{},
		ended: make(chan struct{}),
	}
	h.end = sync.OnceFunc(func() { close(h.ended) })
	return h
}

// Transition takes a change of state. It is phases.HostOptions.Transition: the
// core calls it, and it never waits for a client.
func (h *Hub) Transition(t phases.Transition) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.put(api.EventTransition, t.Target, api.NewTransition(&t))
	h.staged = true
}

// Turned says that everything taken so far is in the published snapshot. The
// core's goroutine calls it after each publication.
func (h *Hub) Turned() {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.staged {
		h.staged = false
		h.show()
	}
}

// Finished takes a startup once it is final: one that no snapshot shows any
// more, because the next began at once, is told nevertheless. It is meant for
// phases.HostOptions.Finished.
func (h *Hub) Finished(target string, s *phases.Startup) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.compare(target, s, s.Ended) {
		h.staged = true
	}
}

// Run compares snapshots with what was told, records memory and makes updates,
// until ctx ends. Then all streams end.
func (h *Hub) Run(ctx context.Context, snaps <-chan *phases.Snapshot) error {
	defer h.End()
	in := snaps
	var again, due <-chan time.Time
	var last time.Time
	for {
		select {
		case <-ctx.Done():
			return nil
		case snap := <-in:
			h.look(snap)
			in, again = nil, time.After(lookEvery)
			if due == nil {
				due = time.After(time.Until(last.Add(updateEvery)))
			}
		case <-again:
			in, again = snaps, nil
		case <-due:
			last, due = time.Now(), nil
			h.update(last)
		}
	}
}

// End ends all streams; none can begin any more. It may be called twice.
func (h *Hub) End() { h.end() }

// look tells what is new in a snapshot.
func (h *Hub) look(snap *phases.Snapshot) {
	h.memory.record(snap)
	h.mu.Lock()
	defer h.mu.Unlock()
	some := false
	for i := range snap.Targets {
		t := &snap.Targets[i]
		// The one before first: the next may have begun with the same event.
		if t.Last != nil && (t.Startup == nil || attemptOf(t.Last) != attemptOf(t.Startup)) {
			some = h.compare(t.Name, t.Last, snap.At) || some
		}
		if t.Startup != nil {
			some = h.compare(t.Name, t.Startup, snap.At) || some
		}
	}
	for unit := range h.ledgers {
		if !slices.ContainsFunc(snap.Targets, func(t phases.Target) bool { return t.Name == unit }) {
			delete(h.ledgers, unit)
		}
	}
	if some && !h.staged {
		h.show()
	}
}

// compare puts what is new of a startup into the ring, and says whether there was
// anything. h.mu is held.
func (h *Hub) compare(unit string, s *phases.Startup, now event.Stamp) bool {
	l := h.ledgers[unit]
	if l == nil {
		l = &ledger{seed: maphash.MakeSeed()}
		h.ledgers[unit] = l
	}
	all := l.compare(unit, s, now)
	for _, n := range all {
		h.put(n.kind, unit, n.told)
	}
	return len(all) > 0
}

// put adds an event to the ring. h.mu is held.
func (h *Hub) put(kind, unit string, data any) {
	b, err := json.Marshal(data)
	if err != nil {
		// Documents of numbers and texts can be encoded; a reader is told if not.
		b, _ = json.Marshal(api.Reset{Reason: "an event can't be encoded: " + err.Error()})
	}
	h.ring.put(frame{unit: unit, text: encodeFrame(h.id(h.ring.next), kind, b)})
}

// show lets everything in the ring be read. h.mu is held.
func (h *Hub) show() {
	h.shown = h.ring.next - 1
	h.wake()
}

// wake tells the streams that there is something new. h.mu is held.
func (h *Hub) wake() {
	close(h.changed)
	h.changed = make(chan struct{})
}

// position is the newest event that may be read. A snapshot that is read later
// contains it.
func (h *Hub) position() uint64 {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.shown
}

// id is an event's ID; "" before the first.
func (h *Hub) id(n uint64) string { return h.epoch + "-" + strconv.FormatUint(n, 10) }

// parse returns the position that an ID names.
func (h *Hub) parse(id string) (uint64, error) {
	epoch, text, ok := strings.Cut(id, "-")
	n, err := strconv.ParseUint(text, 10, 64)
	switch {
	case !ok || err != nil:
		return 0, fmt.Errorf("Last-Event-ID %.80q is not one of this API's", id)
	case epoch != h.epoch:
		return 0, fmt.Errorf("startupd was restarted")
	}
	return n, nil
}

// status is everything that is known now, with the newest event in it.
func (h *Hub) status(units ...string) (*api.Status, uint64) {
	pos := h.position() // first: the snapshot may be newer, never older
	s := api.NewStatus(h.opts.Snapshot(), h.opts.Clock(), units...)
	s.Version, s.LastEventID = h.opts.Version, h.id(pos)
	return s, pos
}

// encode returns everything that is known now as JSON, with the newest event in
// it.
func (h *Hub) encode(units []string) ([]byte, uint64, error) {
	h.encoding.Lock()
	defer h.encoding.Unlock()
	s, pos := h.status(units...)
	b, err := json.Marshal(s)
	return b, pos, err
}

// encodeFrame is an event as it goes over the wire; id "" is left out. data has
// no line break.
func encodeFrame(id, kind string, data []byte) []byte {
	b := make([]byte, 0, len(id)+len(kind)+len(data)+32)
	if id != "" {
		b = append(append(append(b, "id: "...), id...), '\n')
	}
	b = append(append(append(b, "event: "...), kind...), "\ndata: "...)
	return append(append(b, data...), "\n\n"...)
}
