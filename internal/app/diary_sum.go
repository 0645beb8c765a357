package app

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"go.uber.org/zap"

	"github.com/startupd/startupd/pkg/phases"
	"github.com/startupd/startupd/pkg/triage"
)

// maxCauses bounds the classes that one sum tells apart.
const maxCauses = 8

// leftOut sums up the starts of a unit that have no lines of their own.
type leftOut struct {
	// since is when the oldest of them was left out; zero when there is none.
	since time.Time
	// accounted is how many starts were told or summed up, as the core counts
	// them: snapshots may pass over one, its counters don't.
	accounted map[phases.Outcome]uint64
	// last is the newest failed start in the sum, failed how many were seen.
	last   attempt
	failed uint64
	ended  time.Time
	// causes counts their classes; cause is the newest, nil when there is none.
	causes map[string]int
	cause  *triage.RootCause
	// news says that a cause among them was not told yet.
	news bool
}

// newLeftOut takes what has been before for told, except the end of the present
// start, which is still to be written.
func newLeftOut(t *phases.Target) leftOut {
	l := leftOut{accounted: maps.Clone(t.Counters.Startups)}
	if l.accounted == nil {
		l.accounted = map[phases.Outcome]uint64{}
	}
	if s := t.Startup; s != nil && l.accounted[s.Outcome] > 0 {
		l.accounted[s.Outcome]--
	}
	return l
}

// told notes that a start's end was written.
func (l *leftOut) told(o phases.Outcome) { l.accounted[o]++ }

// count takes a failed start into the sum, once.
func (l *leftOut) count(which attempt, s *phases.Startup, c *triage.RootCause, known bool) {
	l.cause = c
	l.news = l.news || !known
	if l.last == which {
		return
	}
	l.last = which
	l.failed++
	if s != nil {
		l.ended = s.Ended.Real
	}
	if l.causes == nil {
		l.causes = map[string]int{}
	}
	class := c.Class
	if l.causes[class] == 0 && len(l.causes) >= maxCauses {
		class = "others"
	}
	l.causes[class]++
}

// take takes a start out of the sum that is told after all.
func (l *leftOut) take(which attempt) {
	if l.last == which && l.failed > 0 {
		l.failed--
	}
	l.last = attempt{}
}

// missing is how many starts of an outcome were neither told nor summed up.
// waits are the outcomes of those that may still be told.
func (l *leftOut) missing(t *phases.Target, o phases.Outcome, waits []phases.Outcome) uint64 {
	n := t.Counters.Startups[o]
	done := l.accounted[o]
	if slices.Contains(waits, o) {
		done++
	}
	n -= min(n, done)
	if o == phases.OutcomeFailed {
		n = max(n, l.failed)
	}
	return n
}

func (l *leftOut) none(t *phases.Target, waits []phases.Outcome) bool {
	for _, o := range phases.Outcomes() {
		if l.missing(t, o, waits) > 0 {
			return false
		}
	}
	return true
}

// write sums up, in one line, and begins anew.
func (l *leftOut) write(log *zap.Logger, t *phases.Target, waits []phases.Outcome) {
	if l.none(t, waits) {
		return
	}
	message := "More starts, too fast for lines of their own"
	var fields []zap.Field
	for _, o := range phases.Outcomes() {
		n := l.missing(t, o, waits)
		l.accounted[o] += n
		switch {
		case n == 0:
		case o == phases.OutcomeFailed:
			fields = append(fields, zap.Uint64("failed", n))
			if !l.ended.IsZero() {
				fields = append(fields, zap.Time("last", l.ended))
			}
		default:
			fields = append(fields, zap.Uint64(string(o), n))
		}
	}
	if l.cause != nil {
		if message = "More starts have failed of the same cause"; l.news || len(l.causes) > 1 {
			message = "More starts have failed; the newest cause is here"
			fields = append(fields, zap.String("classes", l.classes()))
			fields = append(fields, causeFields(l.cause)...)
		} else {
			fields = append(fields, zap.String("class", l.cause.Class))
		}
	}
	log.Info(message, fields...)
	*l = leftOut{accounted: l.accounted, last: l.last}
}

// classes is how often each class was the cause, the most frequent first.
func (l *leftOut) classes() string {
	names := slices.SortedFunc(maps.Keys(l.causes), func(a, b string) int {
		if d := l.causes[b] - l.causes[a]; d != 0 {
			return d
		}
		return strings.Compare(a, b)
	})
	for i, name := range names {
		names[i] = fmt.Sprintf("%s %d", name, l.causes[name])
	}
	return strings.Join(names, ", ")
}
