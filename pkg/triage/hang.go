package triage

import (
	"slices"
	"strings"

	"github.com/startupd/startupd/pkg/profile"
)

// ClassUnknownHang is the class of a hang that nothing explains.
const ClassUnknownHang = "unknown_hang"

// hang remembers how far each process came.
type hang struct {
	last mark
	// reached are the processes that told the last milestone's rule, known all that
	// told any; bounded.
	reached, known []string
	// beat is the last heartbeat since, beats how many there were, by as many
	// processes as beating holds.
	beat    mark
	beats   int
	beating []string
}

// mark is a line of the way.
type mark struct {
	rule             *profile.Rule
	message, process string
	place            Place
	// complete: it ended a bar.
	complete bool
}

// Milestone notes that a process made progress: what it had reported before did
// not kill it.
func (t *Tracker) Milestone(r *profile.Record, at Place) {
	key := t.key(r, at)
	for _, k := range slices.Clone(t.order) {
		rec := t.open[k]
		if rec.state != inFrames && (origin{stream: k, pid: rec.first.PID, uncaught: rec.uncaught}).is(key, at.PID) {
			t.close(k)
		}
	}
	for _, f := range t.findings {
		if n := len(f.origins); n > 0 {
			f.origins = slices.DeleteFunc(f.origins, func(o origin) bool { return o.is(key, at.PID) })
			f.cleared = f.cleared || len(f.origins) == 0 && n > 0 && !f.more
		}
	}
	t.cache = nil
	if !t.givenUp.IsZero() {
		return
	}
	h := &t.hang
	process := t.process(r, at)
	if h.last.rule != r.Rule {
		h.reached = nil
	}
	h.last = mark{
		rule: r.Rule, message: Clip(strings.TrimSpace(r.Message), maxMessage), process: process, place: at,
		complete: r.HasProgress && r.Done >= r.Total,
	}
	h.reached, h.known = note(h.reached, process), note(h.known, process)
	h.beats, h.beating = 0, nil
}

// is says whether a line's process is the origin, as far as can be told: a log
// without prefixes and pids mixes them, and there nobody outlives a traceback.
func (o origin) is(key streamKey, pid int) bool {
	if pid != 0 && o.pid == pid {
		return true
	}
	own := o.stream.prefix == key.prefix && o.stream.pid == key.pid && o.stream.proc == key.proc
	return own && (!o.uncaught || key.prefix != "" || key.pid != 0)
}

// Ready notes that the startup serves, or that it did not after all: errors
// from now on are its service's.
func (t *Tracker) Ready(serves bool) {
	t.seq++
	t.ready, t.cache = 0, nil
	if serves {
		t.ready = t.seq
	}
}

// Sign notes a line that is no progress, and yet a hang's last word may be.
func (t *Tracker) Sign(r *profile.Record, at Place) {
	if !t.givenUp.IsZero() {
		return // what hung is known, and this is its end
	}
	t.hang.last = mark{rule: r.Rule, message: Clip(strings.TrimSpace(r.Message), maxMessage), process: t.process(r, at), place: at}
	t.hang.reached, t.cache = nil, nil
}

func note(names []string, name string) []string {
	if name == "" || len(names) == maxName || slices.Contains(names, name) {
		return names
	}
	return append(names, name)
}

// Heartbeat notes that a process says that it waits.
func (t *Tracker) Heartbeat(r *profile.Record, at Place) {
	if !t.givenUp.IsZero() {
		return
	}
	h := &t.hang
	h.beat = mark{rule: r.Rule, message: Clip(strings.TrimSpace(r.Message), maxMessage), process: t.process(r, at), place: at}
	h.beats++
	h.beating, h.known = note(h.beating, h.beat.process), note(h.known, h.beat.process)
	t.cache = nil
}

// root says what hangs.
func (h *hang) root() *RootCause {
	m, class := h.last, ""
	if m.rule != nil && !m.complete {
		class = m.rule.Hang
	}
	// One process that waits once may wait for anything.
	if class == "" && h.beats > 1 && h.beat.rule.Hang != "" {
		class = h.beat.rule.Hang
	}
	if class == "" {
		class = ClassUnknownHang
	}
	if m.rule == nil {
		m = h.beat
	}
	rc := &RootCause{Class: class, Message: m.message, Process: m.process, Line: m.place.Line, Cursor: m.place.Cursor, At: m.place.At}
	if m.rule != nil {
		rc.Rule = m.rule.ID
	}
	rc.NotArrived = h.notArrived()
	return rc
}

// notArrived lists the processes that have not told what at least two of their
// kind have told.
func (h *hang) notArrived() []string {
	if len(h.reached) < 2 {
		return nil
	}
	kind := func(name string) string {
		return strings.Map(func(r rune) rune {
			if r >= '0' && r <= '9' {
				return -1
			}
			return r
		}, name)
	}
	var out []string
	for _, name := range h.known {
		if !slices.Contains(h.reached, name) && kind(name) == kind(h.reached[0]) {
			out = append(out, name)
		}
	}
	slices.Sort(out)
	return out
}
