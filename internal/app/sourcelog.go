package app

import (
	"time"

	"go.uber.org/zap"
	"golang.org/x/time/rate"

	"github.com/startupd/startupd/pkg/event"
	"github.com/startupd/startupd/pkg/phases"
)

const (
	// fullChanges is how many changes of a source are logged however fast they
	// come; beyond them it is one in each changeEvery.
	fullChanges = 6
	changeEvery = time.Minute
	// refusedEvery bounds the lines about units of globs that are too many.
	refusedEvery = time.Hour
)

// sourceLog logs when a source begins or ceases to see. One that goes up and
// down all the time is logged once a minute, with the number of changes that
// were left out; what it is in the end is always logged.
type sourceLog struct {
	log     *zap.Logger
	now     func() time.Time
	sources map[sourceKey]*sourceLine
	refusal *rate.Limiter
}

type sourceKey struct{ source, target string }

type sourceLine struct {
	// seen is the last state, told the last one logged.
	seen, told string
	// leftOut counts the changes since told.
	leftOut int
	// up says that it was told to be up, limits are the states told with a reason.
	up     bool
	limits map[string]bool
	budget *rate.Limiter
}

func newSourceLog(log *zap.Logger) *sourceLog {
	return &sourceLog{
		log: log, now: time.Now, sources: map[sourceKey]*sourceLine{}, refusal: rate.NewLimiter(rate.Every(refusedEvery), 1),
	}
}

// write logs what has changed. The unit's and the health source log their
// states themselves.
func (l *sourceLog) write(snap *phases.Snapshot) {
	seen := make(map[sourceKey]*sourceLine, len(snap.Sources))
	for i := range snap.Sources {
		s := &snap.Sources[i]
		if s.Source == event.SourceUnit || s.Source == event.SourceHealth {
			continue
		}
		key := sourceKey{s.Source, s.Target}
		line := l.sources[key]
		if line == nil {
			line = &sourceLine{limits: map[string]bool{}, budget: rate.NewLimiter(rate.Every(changeEvery), fullChanges)}
		}
		seen[key] = line
		if line.dull(s) {
			continue
		}
		if s.State != line.seen {
			line.seen = s.State
			line.leftOut++
		}
		if line.seen != line.told && line.budget.AllowN(l.now(), 1) {
			line.write(l.log, s)
		}
	}
	// A source of a unit that is no longer watched is forgotten.
	l.sources = seen
	if snap.Refused != "" && l.refusal.AllowN(l.now(), 1) {
		l.log.Warn("Globs match more running units than are watched at once, and the rest is not watched: make the globs narrower",
			zap.Int("watched_at_most", phases.LiveLimits().Units), zap.String("unit", snap.Refused))
	}
}

// dull says that a state is no news. A unit's own source is up whether the unit
// has processes or not, and the same limits come back with each start.
func (l *sourceLine) dull(s *phases.Source) bool {
	if s.Target == "" || !s.Up || l.told != "" && !l.up {
		return false
	}
	return s.Reason == "" || l.limits[s.State]
}

func (l *sourceLine) write(log *zap.Logger, s *phases.Source) {
	fields := []zap.Field{zap.String("source", s.Source), zap.String("state", s.State)}
	if s.Target != "" {
		fields = append(fields, zap.String("unit", s.Target))
	}
	if l.leftOut > 1 {
		fields = append(fields, zap.Int("changes_left_out", l.leftOut-1))
	}
	l.told, l.leftOut, l.up = s.State, 0, s.Up
	l.limits[s.State] = s.Up && s.Reason != ""
	switch {
	case s.Up && s.Reason != "":
		log.Info("A source is up, with limits: "+plain(s.Reason), fields...)
	case s.Up:
		log.Info("A source is up", fields...)
	default:
		log.Warn("A source is down: "+plain(s.Reason), fields...)
	}
}
