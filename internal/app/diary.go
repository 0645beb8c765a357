package app

import (
	"slices"
	"strings"
	"time"
	"unicode"

	"go.uber.org/zap"

	"github.com/startupd/startupd/pkg/phases"
	"github.com/startupd/startupd/pkg/triage"
)

// maxLogged bounds a log's text in startupd's own log, in runes.
const maxLogged = 400

// diary writes into startupd's own log what happens to the units: a line for
// each phase, and one for each root cause. What a snapshot repeats is not
// written again. A nil diary writes nothing. Text of an engine's log stands in
// fields only, which the encoder escapes.
type diary struct {
	log   *zap.Logger
	pages map[string]*page
}

// page is what was written of one unit.
type page struct {
	// startup is the one that the rest is about; attempt{} is none.
	startup attempt
	outcome phases.Outcome
	// entered are the phases written.
	entered       []phases.State
	stalled, gone bool
	loop          bool
	// failed is the last failed startup seen, cause the last root cause written.
	failed attempt
	cause  told
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
}

func newDiary(log *zap.Logger) *diary { return &diary{log: log, pages: map[string]*page{}} }

// write writes what is new in a snapshot.
func (d *diary) write(snap *phases.Snapshot) {
	if d == nil {
		return
	}
	seen := make(map[string]*page, len(snap.Targets))
	for i := range snap.Targets {
		t := &snap.Targets[i]
		p := d.pages[t.Name]
		if p == nil {
			p = &page{}
		}
		seen[t.Name] = p
		log := d.log.With(zap.String("unit", t.Name))
		p.startups(log, t)
		p.failure(log, t)
		p.loops(log, t)
	}
	// A unit that is no longer watched begins anew when it comes back.
	d.pages = seen
}

// startups writes how the present startup goes on, and before that how the one
// before ended: the next may have begun with the same event.
func (p *page) startups(log *zap.Logger, t *phases.Target) {
	s := t.Startup
	if s == nil {
		return
	}
	if is := attemptOf(s); is != p.startup {
		if t.Last != nil && attemptOf(t.Last) == p.startup {
			p.end(log, t.Last)
		}
		p.begin(log, s, is)
	} else {
		p.phases(log, s)
	}
	p.end(log, s)
	p.stall(log, s)
}

// begin opens a startup with one line, or with none where it was over before
// anybody looked: then its end says all.
func (p *page) begin(log *zap.Logger, s *phases.Startup, is attempt) {
	p.startup, p.outcome, p.entered, p.stalled, p.gone = is, phases.OutcomeNone, entered(s), false, false
	if s.Outcome != phases.OutcomeNone {
		return
	}
	message := "A start begins"
	if ph := reached(s); ph != phases.Spawn {
		message = "A start is under way, in phase " + string(ph)
	}
	fields := beganAt(s)
	if s.Invocation != "" {
		fields = append(fields, zap.String("invocation", s.Invocation))
	}
	if s.Generation > 0 {
		fields = append(fields, zap.Int("generation", s.Generation))
	}
	if s.AttachedLate {
		fields = append(fields, zap.Bool("beginning_not_seen", true))
	}
	log.Info(message, fields...)
}

// phases writes the phases that were entered since, and those taken back.
func (p *page) phases(log *zap.Logger, s *phases.Startup) {
	now := entered(s)
	for _, ph := range now {
		// Serving has a line of its own.
		if ph != phases.Serving && !slices.Contains(p.entered, ph) {
			log.Info("Phase "+string(ph), sinceBegan(s, ph)...)
		}
	}
	for _, ph := range p.entered {
		if !slices.Contains(now, ph) {
			log.Info("Phase "+string(ph)+" is taken back: later evidence is against it", zap.String("phase", string(reached(s))))
		}
	}
	p.entered = now
}

func sinceBegan(s *phases.Startup, of phases.State) []zap.Field {
	for _, ph := range s.Phases {
		if ph.Phase == of && !ph.Entered.IsZero() && !s.Began.IsZero() {
			return []zap.Field{zap.Duration("after", round(ph.Entered.Sub(s.Began)))}
		}
	}
	return nil
}

// end writes how the startup ended, and the end of serving.
func (p *page) end(log *zap.Logger, s *phases.Startup) {
	if s.Outcome == phases.OutcomeFailed {
		p.failed = attemptOf(s)
	}
	if s.Outcome != p.outcome {
		p.outcome = s.Outcome
		why := append(durations(s), zap.String("phase", string(reached(s))), zap.String("reason", plain(s.Reason)))
		switch s.Outcome {
		case phases.OutcomeServing:
			log.Info("The engine serves", append(durations(s), newErrors(s)...)...)
		case phases.OutcomeFailed:
			log.Warn("The start has failed", why...)
		case phases.OutcomeStopped:
			log.Info("The start was stopped", why...)
		case phases.OutcomeNone:
			log.Info("The start goes on: what ended it is taken back", zap.String("phase", string(reached(s))))
		}
	}
	if s.ServingEndReason == "" || p.gone {
		return
	}
	p.gone = true
	write := log.Warn
	if s.ServingEndReason == "stopped" {
		write = log.Info
	}
	write("The engine has served and is gone", zap.String("how", s.ServingEndReason))
}

// stall writes when a startup begins or ceases to hang.
func (p *page) stall(log *zap.Logger, s *phases.Startup) {
	if s.Stalled == p.stalled {
		return
	}
	p.stalled = s.Stalled
	switch {
	case s.Stalled:
		fields := []zap.Field{zap.String("phase", string(reached(s))), zap.String("reason", plain(s.StalledReason))}
		if s.RootCause != nil {
			fields = append(fields, causeFields(s.RootCause)...)
		}
		log.Warn("The start stalls", fields...)
	case s.Outcome == phases.OutcomeNone:
		log.Info("The start goes on", zap.String("phase", string(reached(s))))
	}
}

// failure writes a root cause once the evidence is complete or the next start
// has begun, and again when late evidence amends it.
func (p *page) failure(log *zap.Logger, t *phases.Target) {
	c := t.Failure
	if c == nil {
		return
	}
	next := t.Startup == nil || t.Startup.Outcome != phases.OutcomeFailed
	is := told{p.failed, c.Class, c.Exception, c.Message, c.At.Real}
	if is == p.cause || c.Provisional && !next {
		return
	}
	message := "Root cause of the failed start"
	if p.cause.of == is.of && p.cause != (told{}) {
		message = "Late evidence amends the root cause of the failed start"
	}
	p.cause = is
	log.Warn(message, causeFields(c)...)
}

func causeFields(c *triage.RootCause) []zap.Field {
	fields := []zap.Field{zap.String("class", c.Class)}
	for _, f := range []struct{ key, text string }{
		{"exception", c.Exception},
		{"process", c.Process},
		{"message", c.Message},
		{"remediation", c.Remediation},
		{"died_in", c.DiedIn},
		{"exit_status", c.ExitStatus},
		{"not_arrived", strings.Join(c.NotArrived, ", ")},
		{"cursor", c.Cursor},
	} {
		if f.text != "" {
			fields = append(fields, zap.String(f.key, plain(f.text)))
		}
	}
	if c.Retry != nil {
		fields = append(fields, zap.Bool("retry_can_help", *c.Retry))
	}
	return fields
}

// loops writes when a restart loop begins and ends.
func (p *page) loops(log *zap.Logger, t *phases.Target) {
	if t.RestartLoop == p.loop {
		return
	}
	p.loop = t.RestartLoop
	if !p.loop {
		log.Info("The restart loop is over")
		return
	}
	var fields []zap.Field
	if t.Restarts != nil {
		fields = append(fields, zap.Int("restarts", *t.Restarts))
	}
	log.Warn("The unit restarts in a loop: its last starts have all failed", fields...)
}

// entered are the phases that a startup has entered, in order.
func entered(s *phases.Startup) []phases.State {
	var out []phases.State
	for _, ph := range s.Phases {
		if !ph.Skipped {
			out = append(out, ph.Phase)
		}
	}
	return out
}

// reached is the last phase entered.
func reached(s *phases.Startup) phases.State {
	if all := entered(s); len(all) > 0 {
		return all[len(all)-1]
	}
	return phases.Unknown
}

// durations are when the startup began, and how long the startup and its phases took.
func durations(s *phases.Startup) []zap.Field {
	fields := beganAt(s)
	if s.Began.IsZero() || s.Ended.IsZero() {
		return fields
	}
	fields = append(fields, zap.Duration("took", round(s.Ended.Sub(s.Began))))
	for _, ph := range s.Phases {
		if ph.Phase != phases.Serving && !ph.Skipped {
			fields = append(fields, zap.Duration(string(ph.Phase), round(time.Duration(ph.Seconds*float64(time.Second)))))
		}
	}
	return fields
}

func newErrors(s *phases.Startup) []zap.Field {
	if n := s.NewErrors; n != nil && *n > 0 {
		return []zap.Field{zap.Int("new_errors", *n)}
	}
	return nil
}

func beganAt(s *phases.Startup) []zap.Field {
	if s.Began.Real.IsZero() {
		return nil
	}
	return []zap.Field{zap.Time("began", s.Began.Real)}
}

func round(d time.Duration) time.Duration { return d.Round(100 * time.Millisecond) }

// plain puts a text on one line, without control characters, of bounded length.
func plain(text string) string {
	text = strings.Map(func(r rune) rune {
		if unicode.IsControl(r) {
			return ' '
		}
		return r
	}, text)
	text = strings.Join(strings.Fields(text), " ")
	if r := []rune(text); len(r) > maxLogged {
		return string(r[:maxLogged-3]) + "..."
	}
	return text
}
