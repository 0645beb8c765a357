package app

import (
	"slices"
	"time"

	"go.uber.org/zap"
	"golang.org/x/time/rate"

	"github.com/startupd/startupd/pkg/phases"
	"github.com/startupd/startupd/pkg/triage"
)

const (
	// fullStarts is how many starts of a unit are told in full however fast they
	// come; beyond them it is one in each summaryEvery.
	fullStarts = 10
	// summaryEvery bounds the lines about starts that are not told in full. One
	// that lives longer is worth its own.
	summaryEvery = time.Minute
)

// diary writes into startupd's own log what happens to the units: a line for
// each phase, and one for each root cause, all at info: warnings are for what
// startupd itself can't do. What a snapshot repeats is not written again. In a
// restart loop, starts that fail of the cause already told are summed up once a
// minute. A nil diary writes nothing. Text of an engine's log stands in fields
// only, which the encoder escapes.
type diary struct {
	log   *zap.Logger
	now   func() time.Time
	pages map[string]*page
	// last is the newest snapshot; nil before the first.
	last *phases.Snapshot
}

// page is what was written of one unit, and what was held back.
type page struct {
	story
	// present is the startup that the unit is in, seen since; held says that it
	// has not been written of.
	present attempt
	since   time.Time
	held    bool
	// failed is the last failed startup, end what is known of it, failedAt when
	// it was noticed. untold says that it was held.
	failed   attempt
	end      *phases.Startup
	failedAt time.Time
	untold   bool
	// cause is the last root cause written, known are those written since the unit
	// restarts in a loop, which may take turns.
	cause told
	known []told
	loop  bool
	// farthest is the last phase that a start has reached since one was told in
	// full, as an index; -1 is none.
	farthest int
	full     *rate.Limiter
	left     leftOut
}

// attempt tells the startups of a unit apart.
type attempt struct {
	invocation string
	generation int
	// began is only set where there is no invocation.
	began time.Time
}

func attemptOf(s *phases.Startup) attempt {
	a := attempt{invocation: s.Invocation, generation: s.Generation}
	if a.invocation == "" {
		a.began = s.Began.Real
	}
	return a
}

// told is a root cause without what may still be filled in.
type told struct {
	of                        attempt
	class, exception, message string
	at                        time.Time
	fingerprint               string
}

func (a told) same(b told) bool {
	if a.fingerprint != "" && a.fingerprint == b.fingerprint {
		return a.class == b.class
	}
	return a.class == b.class && a.exception == b.exception && a.message == b.message
}

func newDiary(log *zap.Logger) *diary {
	return &diary{log: log, now: time.Now, pages: map[string]*page{}}
}

// write writes what is new in a snapshot.
func (d *diary) write(snap *phases.Snapshot) {
	if d == nil {
		return
	}
	d.last = snap
	seen := make(map[string]*page, len(snap.Targets))
	for i := range snap.Targets {
		t := &snap.Targets[i]
		p := d.pages[t.Name]
		if p == nil {
			p = &page{farthest: -1, full: rate.NewLimiter(rate.Every(summaryEvery), fullStarts), left: newLeftOut(t)}
		}
		seen[t.Name] = p
		p.turn(d.log.With(zap.String("unit", t.Name)), t, d.now())
	}
	// A unit that is no longer watched begins anew when it comes back.
	d.pages = seen
}

// again writes what was held back and is due by now.
func (d *diary) again() {
	if d != nil && d.last != nil {
		d.write(d.last)
	}
}

// finish writes the sums that are not due yet.
func (d *diary) finish() {
	if d == nil || d.last == nil {
		return
	}
	for i := range d.last.Targets {
		t := &d.last.Targets[i]
		p := d.pages[t.Name]
		if c := t.Failure; c != nil && p.untold && p.left.last != p.failed {
			p.left.count(p.failed, p.end, c, p.knows(p.says(c)))
		}
		p.left.write(d.log.With(zap.String("unit", t.Name)), t, nil)
	}
}

func (p *page) turn(log *zap.Logger, t *phases.Target, now time.Time) {
	if t.Startup != nil {
		p.startups(log, t, now)
	}
	p.failure(log, t, now)
	p.loops(log, t)
	if p.due(t, now) {
		p.sumUp(log, t)
	}
}

// startups writes how the present startup goes on, and before that how the one
// before ended: the next may have begun with the same event.
func (p *page) startups(log *zap.Logger, t *phases.Target, now time.Time) {
	s := t.Startup
	if is := attemptOf(s); is != p.present {
		if t.Last != nil && attemptOf(t.Last) == p.present && !p.held {
			p.ending(log, t.Last, &p.left)
		}
		p.fails(t.Last, now)
		p.failure(log, t, now)
		p.present, p.since, p.held = is, now, p.holds(t, now)
		if !p.held {
			p.farthest = -1
		}
	}
	if p.held && p.worth(t, now) {
		p.sumUp(log, t)
		p.held = false
	}
	if !p.held {
		p.tell(log, s, &p.left)
	}
	p.fails(s, now)
}

// fails notes a startup that has failed.
func (p *page) fails(s *phases.Startup, now time.Time) {
	if s == nil || s.Outcome == phases.OutcomeNone {
		return
	}
	p.farthest = max(p.farthest, slices.Index(phases.Phases(), reached(s)))
	is := attemptOf(s)
	if s.Outcome != phases.OutcomeFailed || is == p.failed {
		return
	}
	p.failed, p.end, p.failedAt = is, s, now
	p.untold = is != p.startup && p.present != (attempt{})
}

// holds says that a startup which begins is not written of for the time being:
// the unit restarts in a loop whose cause is told, or too fast.
func (p *page) holds(t *phases.Target, now time.Time) bool {
	if t.RestartLoop && len(p.known) > 0 && now.Sub(p.failedAt) < summaryEvery {
		return true
	}
	return !p.full.AllowN(now, 1)
}

// worth says that a startup held so far is written of from now on. One that has
// failed is not: its cause decides.
func (p *page) worth(t *phases.Target, now time.Time) bool {
	s := t.Startup
	switch {
	case s.Outcome == phases.OutcomeFailed:
		return false
	case s.Stalled, now.Sub(p.since) >= summaryEvery, slices.Index(phases.Phases(), reached(s)) > p.farthest:
		return true
	}
	return s.Outcome != phases.OutcomeNone && p.full.AllowN(now, 1)
}

// failure writes a root cause once the evidence is complete or the next start
// has begun, and again when late evidence amends it.
func (p *page) failure(log *zap.Logger, t *phases.Target, now time.Time) {
	c := t.Failure
	if c == nil {
		return
	}
	next := t.Startup == nil || t.Startup.Outcome != phases.OutcomeFailed
	is := p.says(c)
	if is == p.cause || c.Provisional && !next {
		return
	}
	if p.untold {
		known := p.knows(is)
		if known || !p.full.AllowN(now, 1) {
			p.left.count(p.failed, p.end, c, known)
			return
		}
		p.left.take(p.failed)
		p.sumUp(log, t)
		p.untold = false
		tellFailed(log, p.end, &p.left)
	}
	message := "Root cause of the failed start"
	if p.cause.of == is.of && p.cause != (told{}) {
		message = "Late evidence amends the root cause of the failed start"
	}
	p.cause = is
	p.known = append(p.known, is)
	p.known = p.known[max(0, len(p.known)-maxKnown):]
	log.Info(message, causeFields(c)...)
}

// maxKnown bounds the causes that are told once in a restart loop.
const maxKnown = 32

func (p *page) knows(is told) bool { return slices.ContainsFunc(p.known, is.same) }

func (p *page) says(c *triage.RootCause) told {
	return told{p.failed, c.Class, c.Exception, c.Message, c.At.Real, c.Fingerprint}
}

// loops writes when a restart loop begins and ends.
func (p *page) loops(log *zap.Logger, t *phases.Target) {
	if s := t.Startup; s != nil && s.Outcome == phases.OutcomeServing {
		p.known = nil
	}
	if t.RestartLoop == p.loop {
		return
	}
	p.loop = t.RestartLoop
	if !p.loop {
		p.sumUp(log, t)
		log.Info("The restart loop is over")
		return
	}
	fields := []zap.Field{zap.Duration("summed_up_every", summaryEvery)}
	if t.Restarts != nil {
		fields = append(fields, zap.Int("restarts", *t.Restarts))
	}
	log.Info("The unit restarts in a loop: its last starts have all failed", fields...)
}

// due says that what was left out is summed up now.
func (p *page) due(t *phases.Target, now time.Time) bool {
	if p.left.none(t, p.waits(t)) {
		p.left.since = time.Time{}
		return false
	}
	if p.left.since.IsZero() {
		p.left.since = now
	}
	return now.Sub(p.left.since) >= summaryEvery
}

// waits are the outcomes of startups of which it is not decided yet whether they
// are told or left out.
func (p *page) waits(t *phases.Target) (open []phases.Outcome) {
	if p.held && t.Startup != nil && t.Startup.Outcome != phases.OutcomeFailed {
		open = append(open, t.Startup.Outcome)
	}
	if p.untold && p.left.last != p.failed {
		open = append(open, phases.OutcomeFailed)
	}
	return open
}

// sumUp writes what was left out, if anything was.
func (p *page) sumUp(log *zap.Logger, t *phases.Target) { p.left.write(log, t, p.waits(t)) }
