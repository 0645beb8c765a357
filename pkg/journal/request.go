package journal

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/startupd/startupd/pkg/event"
)

// request is what a reader child is asked for. It travels as one line of JSON
// on the sdjournal child's standard input, and as arguments to journalctl.
type request struct {
	// Dir holds the journal files; "" is the system's own journal.
	Dir string `json:"dir,omitempty"`
	// Matches is a disjunction of conjunctions of FIELD=value; empty reads
	// everything.
	Matches [][]string `json:"matches,omitempty"`
	// From is the cursor of the first entry; "" is the journal's head, or with
	// Reverse its tail.
	From    string `json:"from,omitempty"`
	Reverse bool   `json:"reverse,omitempty"`
	// Limit ends the reading after that many entries; 0 has no limit.
	Limit int `json:"limit,omitempty"`
	// Until is the cursor of the last entry; "" is the journal's tail.
	Until string `json:"until,omitempty"`
	// Follow goes on at the tail until standard input ends.
	Follow bool `json:"follow,omitempty"`
	// Cursors gives every entry its cursor, at a cost; else the last one of each
	// batch has one.
	Cursors bool `json:"cursors,omitempty"`
	// Fast polls every 20 ms while following.
	Fast bool `json:"fast,omitempty"`
}

// place is a cursor taken apart. Its text form is
// s=SEQNUM_ID;i=SEQNUM;b=BOOT;m=MONOTONIC;t=REALTIME;x=HASH, numbers in hex.
type place struct {
	seqnumID string
	seqnum   uint64
	boot     string
	mono     uint64 // µs
	real     uint64 // µs
	hash     string
}

var errCursor = errors.New("no journal cursor (s=...;i=...;b=...;m=...;t=...;x=...)")

func parsePlace(cursor string) (place, error) {
	var p place
	for part := range strings.SplitSeq(cursor, ";") {
		key, value, ok := strings.Cut(part, "=")
		if !ok {
			return place{}, fmt.Errorf("%q: %w", cursor, errCursor)
		}
		var err error
		switch key {
		case "s":
			p.seqnumID = value
		case "i":
			p.seqnum, err = strconv.ParseUint(value, 16, 64)
		case "b":
			p.boot = value
		case "m":
			p.mono, err = strconv.ParseUint(value, 16, 64)
		case "t":
			p.real, err = strconv.ParseUint(value, 16, 64)
		case "x":
			p.hash = value
		}
		if err != nil {
			return place{}, fmt.Errorf("%q: %w", cursor, errCursor)
		}
	}
	if p.boot == "" || p.real == 0 {
		return place{}, fmt.Errorf("%q: %w", cursor, errCursor)
	}
	return p, nil
}

// placeOf is where an entry lies. Without a cursor of its own it has no
// sequence number.
func placeOf(e *Entry) (place, error) {
	if e.Has(Cursor) {
		return parsePlace(e.String(Cursor))
	}
	var p place
	p.boot = e.String(BootID)
	p.mono, _ = e.Uint(Monotonic)
	p.real, _ = e.Uint(Realtime)
	if p.boot == "" || p.real == 0 {
		return place{}, fmt.Errorf("an entry of the reader has no clocks: %w", errCursor)
	}
	return p, nil
}

// same says that both are one entry. journald gives an entry a new sequence
// when it moves the journal from /run to /var, so the clocks and the content's
// hash decide where the sequences differ.
func (p place) same(o place) bool {
	if p.seqnumID != "" && p.seqnumID == o.seqnumID {
		return p.seqnum == o.seqnum
	}
	return p.boot == o.boot && p.mono == o.mono && p.real == o.real && p.hash == o.hash
}

// after says that p lies behind o.
func (p place) after(o place) bool {
	switch {
	case p.seqnumID != "" && p.seqnumID == o.seqnumID:
		return p.seqnum > o.seqnum
	case p.boot == o.boot:
		return p.mono > o.mono
	}
	return p.real > o.real
}

func (p place) stamp() event.Stamp {
	return event.Stamp{
		Real: time.UnixMicro(int64(p.real)).UTC(),
		Boot: p.boot, Mono: time.Duration(p.mono) * time.Microsecond,
	}
}

// matchesOf returns the disjunction that selects the targets' entries; nil for
// everything, which globs and control groups need: the journal can't search
// for those, so the Mapper does. Of a quiet target only the manager's messages
// are selected.
func matchesOf(specs []TargetSpec, quiet map[string]bool) [][]string {
	var m [][]string
	for _, s := range specs {
		switch {
		case s.isGlob() || s.Cgroup != "":
			return nil
		case s.Container != "":
			m = append(m, []string{"CONTAINER_NAME=" + s.Container})
			continue
		case !quiet[s.target()]:
			m = append(m, []string{"_SYSTEMD_UNIT=" + s.Unit})
		}
		m = append(m,
			[]string{"_PID=1", "UNIT=" + s.Unit},
			[]string{"_UID=0", "COREDUMP_UNIT=" + s.Unit},
			[]string{"_UID=0", "OBJECT_SYSTEMD_UNIT=" + s.Unit})
	}
	return append(m,
		[]string{"_TRANSPORT=kernel"},
		[]string{"_TRANSPORT=driver", "MESSAGE_ID=" + idMissed})
}

// unitMatches selects what the unit itself and the manager wrote, to look for
// its invocations.
func unitMatches(s TargetSpec) [][]string {
	if s.Container != "" {
		return [][]string{{"CONTAINER_NAME=" + s.Container}}
	}
	return [][]string{{"_SYSTEMD_UNIT=" + s.Unit}, {"_PID=1", "UNIT=" + s.Unit}}
}

// invocationMatches selects the entries of one invocation of a unit, or of one
// container.
func invocationMatches(s TargetSpec, id string) [][]string {
	if s.Container != "" {
		return [][]string{{"CONTAINER_ID_FULL=" + id}, {"CONTAINER_ID=" + id}}
	}
	return [][]string{{"_SYSTEMD_UNIT=" + s.Unit, "_SYSTEMD_INVOCATION_ID=" + id}, {"_PID=1", "UNIT=" + s.Unit, "INVOCATION_ID=" + id}}
}
