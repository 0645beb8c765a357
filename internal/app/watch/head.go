package watch

import (
	"fmt"
	"strings"
	"time"

	"github.com/charmbracelet/x/ansi"

	"github.com/startupd/startupd/pkg/phases"
	"github.com/startupd/startupd/pkg/web/api"
)

// subject is one unit at a moment.
type subject struct {
	*api.Unit
	status *api.Status
	// now is the moment that the view is of; at or after status.At.
	now time.Time
}

// since is how much longer than the status says what runs has lasted.
func (u subject) since() float64 {
	if u.status.At.IsZero() {
		return 0
	}
	return max(0, u.now.Sub(u.status.At).Seconds())
}

// runs says that a startup is under way.
func (u subject) runs() bool {
	return u.Startup != nil && (u.Startup.Outcome == api.Starting || u.Startup.Outcome == api.Stalled)
}

// verdict is the unit's condition in a word.
func (u subject) verdict() (word string, t tone) {
	switch {
	case u.runs() && u.Startup.Outcome == api.Stalled:
		return api.Stalled, bad
	case u.State == string(phases.Serving):
		return u.State, good
	case u.State == string(phases.Failed):
		return u.State, bad
	case u.State == string(phases.Stopped):
		return u.State, warn
	case phases.State(u.State).Starting():
		return u.State, busy
	}
	return string(phases.Unknown), warn
}

// took is how long the startup took, or has taken so far; nil when not known.
func (u subject) took() *float64 {
	if u.Startup == nil || u.Startup.Seconds == nil {
		return nil
	}
	s := *u.Startup.Seconds
	if u.runs() {
		s += u.since()
	}
	return &s
}

// where is the last phase, with its step.
func (k ink) where(s *api.Startup) string { return k.clean(join("/", s.Phase, s.Step)) }

// head says in a few lines where the unit is.
func (p *page) head(u subject) {
	name := p.paint(bold, p.clean(u.Unit.Unit))
	if s := u.Startup; s != nil {
		name = join("  ", name, p.paint(dim, p.clean(join(" ", s.Engine, s.Version))), p.paint(dim, p.clean(s.Model)))
	}
	p.line(name)
	word, t := u.verdict()
	p.sentence(t, strings.ToUpper(word), p.condition(u), 4)
	if u.runs() {
		p.progress(u, t)
	}
	if u.Disagreement != "" {
		p.sentence(warn, "disagreement", ": "+p.clean(u.Disagreement), 3)
	}
	if u.RestartLoop {
		p.sentence(bad, "restart loop", ": several starts have failed in a row"+p.restarts(u), 2)
	}
}

// condition is what follows the verdict in a sentence.
func (p *page) condition(u subject) string {
	s := u.Startup
	switch word, _ := u.verdict(); {
	case word == string(phases.Unknown):
		return p.blind(u)
	case word == string(phases.Stopped):
		return p.stopped(u)
	case s == nil:
		return p.entered(u)
	case word == string(phases.Failed):
		return p.failed(u)
	case word == api.Stalled:
		return p.stalled(u)
	case word == string(phases.Serving):
		return p.serving(u)
	}
	t := ""
	if s.Step != "" {
		t = "/" + p.clean(s.Step)
	}
	if s.Slow {
		t += ", SLOW: its usual time is over, its processes are busy"
	}
	return t + p.after(u, ", %s since the start began") + late(s)
}

// entered says since when the unit is in its state.
func (p *page) entered(u subject) string {
	if u.Since.IsZero() {
		return ""
	}
	return " since " + p.moment(u.Since, u.now)
}

func (p *page) after(u subject, format string) string {
	took := u.took()
	if took == nil {
		return ""
	}
	return fmt.Sprintf(format, brief(*took))
}

func late(s *api.Startup) string {
	if s.AttachedLate {
		return " (its beginning was not seen)"
	}
	return ""
}

func (p *page) stalled(u subject) string {
	t := " in " + p.where(u.Startup) + p.after(u, " after %s")
	// The reason names the step, too.
	if reason := strings.TrimPrefix(p.clean(u.Startup.Reason), p.where(u.Startup)+": "); reason != "" {
		t += ": " + reason
	}
	return t
}

func (p *page) serving(u subject) string {
	s, t := u.Startup, p.entered(u)
	if !u.Since.IsZero() {
		t += " (" + brief(u.now.Sub(u.Since).Seconds()) + ")"
	}
	if s.AttachedLate {
		return t + late(s)
	}
	return t + p.after(u, "; the start took %s")
}

func (p *page) failed(u subject) string {
	s := u.Startup
	if s.ServingEndReason != "" {
		return p.entered(u) + ": it served, then " + p.clean(api.EndOfServing(s.ServingEndReason))
	}
	t := ""
	if s.Phase != "" {
		t = " in " + p.where(s)
	}
	t += p.after(u, " after %s")
	if !u.Since.IsZero() {
		t += ", at " + p.moment(u.Since, u.now)
	}
	// The line that ended a failed start is as a rule not why it failed.
	if s.Reason != "" && s.RootCause == nil {
		t += ": " + p.clean(s.Reason)
	}
	return t
}

func (p *page) stopped(u subject) string {
	t := p.entered(u)
	switch s := u.Startup; {
	case s == nil:
		return t + ": no start of it has been seen"
	case s.ServingEndReason != "":
		return t + ": it served, then " + p.clean(api.EndOfServing(s.ServingEndReason))
	case s.Outcome == api.Stopped && s.Phase != "":
		return t + " in " + p.where(s) + p.after(u, " after %s")
	}
	return t
}

// blind says why nothing is known of a unit.
func (p *page) blind(u subject) string {
	for _, s := range u.status.Sources {
		if !s.Up && (s.Unit == "" || s.Unit == u.Unit.Unit) && s.Source == "journal" {
			return ": the journal can't be read: " + p.clean(or(s.Reason, s.State))
		}
	}
	return ": nothing of this unit has been seen; `systemctl status " + p.clean(u.Unit.Unit) + "` tells whether it is there"
}

func or(a, b string) string {
	if a != "" {
		return a
	}
	return b
}

func (p *page) restarts(u subject) string {
	if u.Restarts == nil {
		return ""
	}
	return fmt.Sprintf(" (systemd has restarted it %s)", plural(*u.Restarts, "time"))
}

// progress draws the present step's bar, and says when the start will serve.
func (p *page) progress(u subject, t tone) {
	s := u.Startup
	note, eta := p.clean(s.ProgressNote), p.eta(u)
	if s.Progress == nil {
		p.line(join("  ", note, eta))
		if note == "" && eta == "" {
			p.lines = p.lines[:len(p.lines)-1]
		}
		return
	}
	text := fmt.Sprintf("%3.0f%%", 100**s.Progress)
	const leastBar = 12
	rest := join("  ", text, note, eta)
	if p.width-ansi.StringWidth(rest)-2 < leastBar {
		p.line(p.ratio(*s.Progress, p.width-len(text)-2, t) + "  " + text)
		if both := join("  ", note, eta); both != "" {
			p.line(both)
		}
		return
	}
	// As wide as the texts beside it allow while they change.
	n := min(max(p.width-ansi.StringWidth(rest)-2, leastBar)/4*4, p.width/2)
	p.line(p.ratio(*s.Progress, n, t) + "  " + rest)
}

// eta says when the start will serve; "" when that is not known.
func (p *page) eta(u subject) string {
	at := u.Startup.ExpectedServing
	if at.IsZero() || !u.runs() || u.Startup.Outcome == api.Stalled {
		return ""
	}
	left := at.Sub(u.now).Seconds()
	if left < 1 {
		return "ETA any moment"
	}
	return fmt.Sprintf("ETA %s (%s)", p.moment(at, u.now), brief(left))
}
