package parity

import (
	"strconv"
	"strings"
	"testing"

	"github.com/startupd/startupd/pkg/event"
	"github.com/startupd/startupd/pkg/phases"
	"github.com/startupd/startupd/pkg/profile"
)

// failing are the recorded starts that failed, and did so in one attempt.
func failing(t testing.TB) []recorded {
	t.Helper()
	var out []recorded
	for _, c := range corpus(t) {
		if list := whole(t, c); len(list) == 1 && list[0].Outcome == phases.OutcomeFailed {
			out = append(out, c)
		}
	}
	return out
}

// spoken is an event with who told it.
type spoken struct {
	event  event.Event
	writer string
	// fixed says that its order among the other fixed ones tells something: the way
	// that the start went, what ended it, and who erred first.
	fixed bool
}

// interleave judges a start whose processes' lines come in another order. Each
// process's own order stays, and that of the fixed events.
func interleave(t testing.TB, c recorded, next func() int, order string) {
	t.Helper()
	p := newPlayer(t, true)
	var told strings.Builder
	shuffle(speakers(t, c), next, func(ev event.Event) {
		if l, ok := ev.Data.(*event.Line); ok {
			told.WriteString("\n" + strconv.Itoa(l.No) + " " + l.Text)
		}
		p.apply(ev)
	})
	want, got := whole(t, c)[0].RootCause.Class, p.end(t, c)
	if len(got) != 1 || got[0].RootCause == nil {
		t.Fatalf("%s, %s: %d startups, the first with %+v; want one that failed%s", c.name, order, len(got), got[0], &told)
	}
	if class := got[0].RootCause.Class; class != want {
		t.Fatalf("%s, %s: class %s by %q, want %s; read in the order%s", c.name, order, class, got[0].RootCause.Message, want, &told)
	}
}

// shuffle emits events in an order that next chooses.
func shuffle(events []spoken, next func() int, emit func(event.Event)) {
	queues := map[string][]spoken{}
	var writers []string
	var fixed []event.Data
	for _, e := range events {
		if queues[e.writer] == nil {
			writers = append(writers, e.writer)
		}
		queues[e.writer] = append(queues[e.writer], e)
		if e.fixed {
			fixed = append(fixed, e.event.Data)
		}
	}
	for range events {
		var free []string
		for _, w := range writers {
			if q := queues[w]; len(q) > 0 && (!q[0].fixed || q[0].event.Data == fixed[0]) {
				free = append(free, w)
			}
		}
		w := free[next()%len(free)]
		e := queues[w][0]
		queues[w] = queues[w][1:]
		if e.fixed {
			fixed = fixed[1:]
		}
		emit(e.event)
	}
}

// speakers says who told each of a start's events.
func speakers(t testing.TB, c recorded) []spoken {
	t.Helper()
	set, err := builtin()
	if err != nil {
		t.Fatal(err)
	}
	scanner := set.Profile("vllm").NewScanner()
	var out []spoken
	erred := map[string]bool{}
	for _, ev := range c.events {
		e := spoken{event: ev, fixed: true}
		if l, ok := ev.Data.(*event.Line); ok {
			e.writer = strconv.Itoa(l.PID) + " " + l.Proc
			e.fixed = false
			records := 0
			scanner.Scan(l.Text, func(r *profile.Record) {
				if records++; records == 1 {
					e.writer += " " + r.Process + " " + strconv.Itoa(r.PID)
				}
				if trouble(r) && !erred[e.writer] {
					erred[e.writer], e.fixed = true, true
				}
				e.fixed = e.fixed || tells(r)
			})
			e.fixed = e.fixed || records > 1
		}
		out = append(out, e)
	}
	return out
}

// trouble says that a line looks like an error.
func trouble(r *profile.Record) bool {
	return r.Level >= profile.LevelError || r.Exception != "" || strings.HasPrefix(r.Message, "Traceback ") ||
		r.Rule != nil && (r.Rule.Role == profile.RoleCause || r.Rule.Role == profile.RoleWrapper || r.Rule.Role == profile.RoleCascade)
}

// tells says that a line tells of the start's way or end.
func tells(r *profile.Record) bool {
	if r.Rule == nil {
		return false
	}
	switch r.Rule.Role {
	case profile.RoleCause, profile.RoleWrapper, profile.RoleCascade:
		return r.Rule.Fatal || r.Rule.RevokesReady
	case profile.RoleTeardown, profile.RoleBenign:
		return false
	}
	return true
}
