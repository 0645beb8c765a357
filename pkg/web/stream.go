package web

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"time"

	"github.com/startupd/startupd/pkg/web/api"
)

const (
	// keepAlive is how often a stream with nothing to tell says that it lives.
	keepAlive = 15 * time.Second
	// writeWithin is how long a client may take for one piece of at most pieceBytes,
	// unless HubOptions say otherwise.
	writeWithin = 10 * time.Second
	pieceBytes  = 32 << 10
	// readAtOnce bounds the events that a stream takes out of the ring at once.
	readAtOnce = 64
	// reconnectAfter is how long a browser waits before it connects again.
	reconnectAfter = 2 * time.Second
)

var (
	errTooMany = errors.New("too many streams are open")
	// errSlow ends the stream of a client that was overtaken.
	errSlow = errors.New("it reads too slowly")
)

// stream is one client's place in the ring.
type stream struct {
	hub  *Hub
	feed *feed
	// pos is the last event that the client has, seq the last update.
	pos uint64
	seq uint64
	out *pieces
}

// open begins a stream of the units' events; none is all.
func (h *Hub) open(units []string, out *pieces) (*stream, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.streams >= h.opts.MaxStreams {
		return nil, errTooMany
	}
	h.streams++
	return &stream{hub: h, feed: h.join(units), out: out}, nil
}

func (s *stream) close() {
	s.hub.mu.Lock()
	defer s.hub.mu.Unlock()
	s.hub.leave(s.feed)
	s.hub.streams--
}

// run writes until ctx or the hub ends, or the client is too slow. last is the
// client's Last-Event-ID; "" is none.
func (s *stream) run(ctx context.Context, last string) error {
	if err := s.begin(last); err != nil {
		return err
	}
	quiet := time.NewTimer(keepAlive)
	defer quiet.Stop()
	for {
		wrote, changed, err := s.news()
		switch {
		case err != nil:
			return err
		case wrote:
			quiet.Reset(keepAlive)
			if ctx.Err() != nil {
				return nil
			}
			continue
		}
		select {
		case <-ctx.Done():
			return nil
		case <-s.hub.ended:
			return nil
		case <-changed:
		case <-quiet.C:
			quiet.Reset(keepAlive)
			// With the position: the events of other units are behind it.
			if err := s.out.write([]byte(": keep-alive\nid: " + s.hub.id(s.pos) + "\n\n")); err != nil {
				return err
			}
		}
	}
}

// begin brings the client to a known place: after its last event, where what
// followed it is still there, else to now, with everything that is known.
func (s *stream) begin(last string) error {
	if err := s.out.write(fmt.Appendf(nil, "retry: %d\n\n", reconnectAfter.Milliseconds())); err != nil {
		return err
	}
	if last != "" {
		reset := s.resume(last)
		if reset == nil {
			return nil
		}
		if err := s.tell("", api.EventReset, reset); err != nil {
			return err
		}
	}
	s.hub.mu.Lock()
	s.seq = s.feed.seq // first: the status is newer than the update
	s.hub.mu.Unlock()
	text, pos, err := s.hub.encode(s.feed.units)
	if err != nil {
		return err
	}
	s.pos = pos
	return s.out.write(encodeFrame(s.hub.id(pos), api.EventSnapshot, text))
}

// resume goes on after the client's last event, or says why it can't.
func (s *stream) resume(last string) *api.Reset {
	h := s.hub
	n, err := h.parse(last)
	if err != nil {
		return &api.Reset{Reason: err.Error()}
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	if n > h.shown {
		return &api.Reset{Reason: "the Last-Event-ID is of an event that has not happened"}
	}
	if n+1 < h.ring.oldest {
		return s.gap(n, "the events after Last-Event-ID are no longer kept")
	}
	s.pos = n
	return nil
}

// gap says that the events after n are gone. h.mu is held.
func (s *stream) gap(n uint64, why string) *api.Reset {
	r := &api.Reset{Reason: why}
	// Of one unit's events among them nobody knows.
	if len(s.feed.units) == 0 {
		missed := s.hub.ring.oldest - n - 1
		r.Missed = &missed
	}
	return r
}

// news writes what is new for the client: events, and once it has all of them
// the newest update. If there was nothing, changed is closed when there is.
func (s *stream) news() (wrote bool, changed <-chan struct{}, err error) {
	h := s.hub
	h.mu.Lock()
	if s.pos+1 < h.ring.oldest {
		missed := s.gap(s.pos, "this client reads too slowly: newer events have taken the place of those that it has not read")
		h.mu.Unlock()
		return false, nil, errors.Join(errSlow, s.tell("", api.EventDropped, missed))
	}
	var frames [][]byte
	for s.pos < h.shown && len(frames) < readAtOnce {
		s.pos++
		if f := h.ring.at(s.pos); s.wants(f.unit) {
			frames = append(frames, f.text)
		}
	}
	if s.pos == h.shown && s.seq != s.feed.seq {
		s.seq = s.feed.seq
		frames = append(frames, encodeFrame(h.id(s.pos), api.EventUpdate, s.feed.text))
	}
	behind := s.pos < h.shown
	changed = h.changed
	h.mu.Unlock()
	if len(frames) == 0 {
		return behind, changed, nil
	}
	// Together: each write is a packet.
	return true, changed, s.out.write(slices.Concat(frames...))
}

func (s *stream) wants(unit string) bool {
	return len(s.feed.units) == 0 || slices.Contains(s.feed.units, unit)
}

func (s *stream) tell(id, kind string, data any) error {
	b, err := json.Marshal(data)
	if err != nil {
		return err
	}
	return s.out.write(encodeFrame(id, kind, b))
}

// pieces writes to a client that gets a deadline for each piece.
type pieces struct {
	w  http.ResponseWriter
	rc *http.ResponseController
	// within is the time for each piece.
	within time.Duration
}

// write returns once the kernel has everything. Between writes there is no
// deadline: HTTP/2 would end an idle stream by it.
func (p *pieces) write(b []byte) error {
	for piece := range slices.Chunk(b, pieceBytes) {
		if err := p.rc.SetWriteDeadline(time.Now().Add(p.within)); err != nil {
			return err
		}
		if _, err := p.w.Write(piece); err != nil {
			return err
		}
		if err := p.rc.Flush(); err != nil {
			return err
		}
	}
	return p.rc.SetWriteDeadline(time.Time{})
}
