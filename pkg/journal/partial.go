package journal

import (
	"bytes"
	"slices"
	"time"

	"github.com/startupd/startupd/pkg/event"
)

const (
	// partWait is how long the next part of a long line is awaited: whoever
	// splits a line writes its parts at once, unless the line itself stops.
	partWait = time.Second
	// lullsAWait is about as long, in watermarks.
	lullsAWait = int(partWait / watermarkEvery)
	// maxParts is how many long lines may be under way at a time.
	maxParts = 16
)

// joiner puts long lines together again that a container's log driver has split
// (Docker at 16 KiB, with CONTAINER_PARTIAL_ID and _ORDINAL; conmon, for
// Podman, without). Parts of different lines may alternate.
type joiner struct {
	open  []*longLine
	lulls int // watermarks since the last part
}

// longLine is a line of which the last part has not come.
type longLine struct {
	key  string
	head lineHead // of the last part seen
	buf  []byte   // what was not given out yet; at most textLimit bytes
	cut  int      // 1 when there was more
	next int      // ordinal of the next part; 0 when parts have none
	// prefix names the writing process, which only the line's beginning tells.
	prefix []byte
}

// ownMessage maps a message of a target's process, which may be a part of one.
func (m *Mapper) ownMessage(dst []event.Event, e *Entry, h lineHead) []event.Event {
	if !e.Has(ContainerName) || !e.Has(ContainerPartial) && !e.Has(ContainerPartialID) && len(m.parts.open) == 0 {
		return m.message(dst, e, h)
	}
	l, more := m.parts.find(e)
	if l == nil && !more {
		return m.message(dst, e, h)
	}
	if l == nil {
		dst, l = m.begin(dst, e)
	}
	h.cursor, h.pid = entryCursor(e, h.at), writer(e)
	n := e.Int(ContainerPartialOrdinal)
	if lost := n - l.next; l.next > 0 && lost > 0 {
		dst = append(m.give(dst, l), gap(h, h.cursor, event.GapLost, lost))
	}
	l.head = h
	if n > 0 {
		l.next = n + 1
	}
	m.parts.lulls = 0
	dst = m.extend(dst, l, e.Bytes(Message))
	if !more {
		dst = m.give(dst, l)
		m.parts.open = slices.DeleteFunc(m.parts.open, func(o *longLine) bool { return o == l })
	}
	return dst
}

// find returns the line that an entry is a part of, if it is under way, and
// whether more parts follow.
func (j *joiner) find(e *Entry) (l *longLine, more bool) {
	more = e.Is(ContainerPartial, "true") && !e.Is(ContainerPartialLast, "true")
	key := partKey(e)
	for _, l := range j.open {
		if l.key == key {
			return l, more
		}
	}
	return nil, more
}

// partKey names the line that a part belongs to. Without an ID it is the next
// one of the same container and, by the priority, of the same stream.
func partKey(e *Entry) string {
	if e.Has(ContainerPartialID) {
		return e.String(ContainerPartialID)
	}
	return containerID(e) + " " + e.String(Priority)
}

// begin adds a line; of too many the oldest is given up.
func (m *Mapper) begin(dst []event.Event, e *Entry) ([]event.Event, *longLine) {
	if len(m.parts.open) == maxParts {
		dst = m.give(dst, m.parts.open[0])
		m.parts.open = slices.Delete(m.parts.open, 0, 1)
	}
	l := &longLine{key: partKey(e)}
	m.parts.open = append(m.parts.open, l)
	return dst, l
}

// extend adds a part. A bar that redraws itself without a newline has no end:
// when the limit is reached, its states so far are given out.
func (m *Mapper) extend(dst []event.Event, l *longLine, part []byte) []event.Event {
	if len(l.buf) == 0 && len(l.prefix) > 0 {
		l.buf = append(append(l.buf, l.prefix...), '\r')
	}
	l.buf = append(l.buf, part...)
	if len(l.buf) <= textLimit {
		return dst
	}
	if i := bytes.LastIndexByte(l.buf, '\r'); i > len(l.prefix) {
		rest := slices.Clone(l.buf[i+1:])
		l.buf = l.buf[:i]
		dst = m.give(dst, l)
		return m.extend(dst, l, rest)
	}
	l.buf, l.cut = l.buf[:textLimit], 1
	return dst
}

// give appends what there is of a line.
func (m *Mapper) give(dst []event.Event, l *longLine) []event.Event {
	if len(l.buf) == 0 {
		return dst
	}
	if l.prefix == nil {
		head := appendClean(nil, l.buf[:min(len(l.buf), 1024)])
		l.prefix = head[:procPrefix(head)]
	}
	dst = m.lines(dst, l.head, l.buf, l.cut)
	l.buf, l.cut = l.buf[:0], 0
	return dst
}

// giveOut appends what there is of all lines that are under way. Their further
// parts then make lines of their own.
func (m *Mapper) giveOut(dst []event.Event) []event.Event {
	for _, l := range m.parts.open {
		dst = m.give(dst, l)
	}
	return dst
}

// waits says that the next part of a line should come soon.
func (m *Mapper) waits(now event.Stamp) bool {
	for _, l := range m.parts.open {
		if len(l.buf) > 0 && m.parts.lulls < lullsAWait && now.Sub(l.head.at) < partWait {
			return true
		}
	}
	return false
}

// lull notes that the journal's reader is idle, and says whether parts of a
// line are awaited still.
func (m *Mapper) lull() bool {
	m.parts.lulls++
	for _, l := range m.parts.open {
		if len(l.buf) > 0 && m.parts.lulls < lullsAWait {
			return true
		}
	}
	return false
}
