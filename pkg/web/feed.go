package web

import (
	"encoding/json"
	"hash/fnv"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/startupd/startupd/pkg/web/api"
)

// feed is the updates of a set of units. All streams of the same set share it.
type feed struct {
	units   []string
	streams int
	// seq counts the updates, text is the newest one's data.
	seq  uint64
	text []byte
	// sum is the newest update's digest, without what changes all the time; at is
	// when it was made. Only Run uses them.
	sum uint64
	at  time.Time
}

func feedKey(units []string) string { return strings.Join(units, "\x00") }

// update makes the updates that are wanted by somebody, where something has
// changed.
func (h *Hub) update(now time.Time) {
	h.mu.Lock()
	var feeds []*feed
	for _, f := range h.feeds {
		feeds = append(feeds, f)
	}
	h.mu.Unlock()
	for _, f := range feeds {
		text, sum, err := h.newUpdate(f.units)
		if err != nil || sum == f.sum && now.Sub(f.at) < quietEvery {
			continue
		}
		f.sum, f.at = sum, now
		h.mu.Lock()
		f.text = text
		f.seq++
		h.wake()
		h.mu.Unlock()
	}
}

// newUpdate returns a status without findings, and its digest.
func (h *Hub) newUpdate(units []string) (text []byte, sum uint64, err error) {
	h.encoding.Lock()
	defer h.encoding.Unlock()
	s, _ := h.status(units...)
	for i := range s.Units {
		for _, st := range []*api.Startup{s.Units[i].Startup, s.Units[i].Last} {
			if st != nil {
				st.Findings = nil
			}
		}
	}
	if text, err = json.Marshal(s); err != nil {
		return nil, 0, err
	}
	sum, err = digest(s)
	return text, sum, err
}

// digest sums up a status without what changes all the time: ages, counters and
// the last lines of a server that serves. It changes s.
func digest(s *api.Status) (uint64, error) {
	s.At, s.LastEventID = time.Time{}, ""
	for i := range s.Units {
		u := &s.Units[i]
		u.JournalLines, u.JournalStale, u.JournalUnmatched, u.JournalLagSeconds = 0, 0, 0, nil
		for _, st := range []*api.Startup{u.Startup, u.Last} {
			if st != nil {
				calm(st)
			}
		}
	}
	h := fnv.New64a()
	err := json.NewEncoder(io.Writer(h)).Encode(s)
	return h.Sum64(), err
}

// calm drops what changes all the time of a startup.
func calm(s *api.Startup) {
	running := s.Ended.IsZero()
	if !running {
		s.LastLines = nil
	} else {
		s.Seconds = nil
	}
	for i := range s.Phases {
		if !s.Phases[i].Done {
			s.Phases[i].Seconds = nil
		}
	}
	if n := len(s.Steps); n > 0 && running {
		s.Steps[n-1].Seconds = nil
	}
}

// join finds the feed of a set of units, or makes it. h.mu is held.
func (h *Hub) join(units []string) *feed {
	units = slices.Compact(slices.Sorted(slices.Values(units)))
	f := h.feeds[feedKey(units)]
	if f == nil {
		f = &feed{units: units}
		h.feeds[feedKey(units)] = f
	}
	f.streams++
	return f
}

// leave lets go of a feed. h.mu is held.
func (h *Hub) leave(f *feed) {
	f.streams--
	if f.streams == 0 {
		delete(h.feeds, feedKey(f.units))
	}
}
