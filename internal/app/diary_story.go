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

// story is what was written of one startup.
type story struct {
	// startup is the one that the rest is about; attempt{} is none.
	startup attempt
	outcome phases.Outcome
	// entered are the phases written.
	entered       []phases.State
	stalled, gone bool
}

// tell writes what is new in a startup.
func (p *story) tell(log *zap.Logger, s *phases.Startup, left *leftOut) {
	if is := attemptOf(s); is != p.startup {
		p.begin(log, s, is)
	} else {
		p.phases(log, s)
	}
	p.ending(log, s, left)
	p.stall(log, s)
}

// begin opens a startup with one line, or with none where it was over before
// anybody looked: then its end says all.
func (p *story) begin(log *zap.Logger, s *phases.Startup, is attempt) {
	*p = story{startup: is, entered: entered(s)}
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
func (p *story) phases(log *zap.Logger, s *phases.Startup) {
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

// ending writes how the startup ended, and the end of serving. What is written
// is not left out.
func (p *story) ending(log *zap.Logger, s *phases.Startup, left *leftOut) {
	if s.Outcome != p.outcome {
		p.outcome = s.Outcome
		switch s.Outcome {
		case phases.OutcomeServing:
			log.Info("The engine serves", append(durations(s), newErrors(s)...)...)
			left.told(s.Outcome)
		case phases.OutcomeFailed:
			tellFailed(log, s, left)
		case phases.OutcomeStopped:
			log.Info("The start was stopped", why(s)...)
			left.told(s.Outcome)
		case phases.OutcomeNone:
			log.Info("The start goes on: what ended it is taken back", zap.String("phase", string(reached(s))))
		}
	}
	if s.ServingEndReason == "" || p.gone {
		return
	}
	p.gone = true
	log.Info("The engine has served and is gone", zap.String("how", s.ServingEndReason))
}

func tellFailed(log *zap.Logger, s *phases.Startup, left *leftOut) {
	log.Info("The start has failed", why(s)...)
	left.told(phases.OutcomeFailed)
}

func why(s *phases.Startup) []zap.Field {
	return append(durations(s), zap.String("phase", string(reached(s))), zap.String("reason", plain(s.Reason)))
}

// stall writes when a startup begins or ceases to hang.
func (p *story) stall(log *zap.Logger, s *phases.Startup) {
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
		log.Info("The start stalls", fields...)
	case s.Outcome == phases.OutcomeNone:
		log.Info("The start goes on", zap.String("phase", string(reached(s))))
	}
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
