package wait

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"github.com/startupd/startupd/internal/app/observe"
	"github.com/startupd/startupd/pkg/phases"
	"github.com/startupd/startupd/pkg/triage"
	"github.com/startupd/startupd/pkg/web/api"
)

const (
	// betterCause is how long after a failed start's end a better root cause is
	// waited for, and knownCause the same where one is known.
	betterCause = 500 * time.Millisecond
	knownCause  = 200 * time.Millisecond
	// takenBack is how long a failure that rests on a line of the log alone is waited
	// for to be taken back.
	takenBack = 10 * time.Second
	// stopGrace is how long after SIGTERM the verdict is still waited for: systemd
	// ends ExecStartPost= when the main process has died.
	stopGrace = 2 * time.Second
	// lookBack is how long an invocation may be missing from the view until the
	// journal is asked for it, and lookAgain the pause before the next time.
	lookBack  = 2 * time.Second
	lookAgain = 10 * time.Second
	// failedLog is how long the log of a unit that has failed is looked for.
	failedLog = 5 * time.Second
)

// judge decides from what it is told when the wait is over. It has no clock.
type judge struct {
	unit         string
	want         phases.State
	began        time.Time
	timeout      time.Duration
	startTimeout time.Duration

	// pinned is the invocation waited for; "" until it is known. exclude is one that
	// it is not. newest takes what comes, where nobody can tell.
	pinned, exclude string
	newest          bool
	systemd         Unit
	// idleSince is since when nothing runs and nothing is about to.
	idleSince time.Time

	view *observe.Update
	// startup is the pinned one as it was last seen; nil before.
	startup *api.Startup
	// failedAt and goneAt are when it was first seen to have failed, and to have no
	// process any more.
	failedAt, goneAt time.Time
	// missingSince is since when the view does not hold it, askedAt when the journal
	// was last asked.
	missingSince, askedAt time.Time
	// stopAt is when the wait must end, as somebody asked for it; stopWhy says who.
	stopAt  time.Time
	stopWhy string
}

// manager takes what systemd tells.
func (j *judge) manager(u Unit, now time.Time) {
	j.systemd = u
	if j.pinned != "" {
		return
	}
	answer := u.which()
	if answer == present || answer == over {
		if u.Invocation != j.exclude {
			j.pinned = u.Invocation
		}
	}
	if answer == next && j.exclude == "" {
		j.exclude = u.Invocation
	}
	j.newest = answer == unsure
	waiting := answer == next && !u.pending() || answer == idle || answer == unsure || answer == over
	switch {
	case j.pinned != "" && answer != over || !waiting:
		j.idleSince = time.Time{}
	case j.idleSince.IsZero():
		j.idleSince = now
	}
}

// see takes a view.
func (j *judge) see(u observe.Update, now time.Time) {
	j.view = &u
	if !u.Settled {
		return
	}
	unit := u.Status.Find(j.unit)
	if unit == nil {
		return
	}
	if j.newest && j.pinned == "" && unit.Startup != nil && !putAway(unit.Startup) {
		j.pinned = cmp.Or(unit.Startup.UnitInvocation, unit.Startup.Invocation)
	}
	if j.pinned == "" {
		return
	}
	if s := find(unit, j.pinned); s != nil {
		j.missingSince = time.Time{}
		j.take(s, now)
	} else if j.missingSince.IsZero() {
		j.missingSince = now
	}
}

// putAway says that a startup was stopped on purpose: what is waited for is the
// one after it.
func putAway(s *api.Startup) bool { return s.Outcome == api.Stopped || s.ServingEndReason == "stopped" }

// find is the newest startup of an invocation; nil when it is not there.
func find(u *api.Unit, invocation string) *api.Startup {
	for _, s := range []*api.Startup{u.Startup, u.Last} {
		if s != nil && (s.Invocation == invocation || s.UnitInvocation == invocation) {
			return s
		}
	}
	// A container's start of which its unit is not known.
	if s := u.Startup; s != nil && len(s.Invocation) != invocationLen && s.UnitInvocation == "" && s.Invocation != "" {
		return s
	}
	return nil
}

// invocationLen is the length of systemd's invocation IDs; a container's differs.
const invocationLen = 32

// take takes the startup that is waited for.
func (j *judge) take(s *api.Startup, now time.Time) {
	j.startup = s
	if s.Outcome != api.Failed {
		j.failedAt, j.goneAt = time.Time{}, time.Time{}
		return
	}
	if j.failedAt.IsZero() {
		j.failedAt = now
	}
	if s.Exited && j.goneAt.IsZero() {
		j.goneAt = now
	}
}

// ask says that the journal should be asked for the pinned invocation, which the
// view does not hold: a later one has taken its place.
func (j *judge) ask(now time.Time) bool {
	due := !j.missingSince.IsZero() && now.Sub(j.missingSince) >= lookBack && (j.askedAt.IsZero() || now.Sub(j.askedAt) >= lookAgain)
	if due {
		j.askedAt = now
	}
	return due
}

// stop makes the wait end within grace.
func (j *judge) stop(why string, grace time.Duration, now time.Time) {
	if j.stopAt.IsZero() {
		j.stopAt, j.stopWhy = now.Add(grace), why
	}
}

// decide returns the result once it is known; nil to wait on.
func (j *judge) decide(now time.Time) *Result {
	if v, reason := j.verdict(now); v != "" {
		return j.result(v, reason, now)
	}
	switch {
	case !j.stopAt.IsZero() && (j.systemd.Job == "stop" || j.systemd.Job == "restart"):
		return j.result(Stopped, "a stop was asked for", now)
	case j.systemd.Known && !j.systemd.Loaded && j.startup == nil:
		return j.result(NoUnit, "systemd knows no unit "+j.unit, now)
	case !j.stopAt.IsZero() && !now.Before(j.stopAt):
		return j.result(Unknown, j.stopWhy, now)
	case j.timeout > 0 && now.Sub(j.began) >= j.timeout:
		return j.result(TimedOut, j.late(), now)
	case !j.idleSince.IsZero() && j.startup == nil && now.Sub(j.idleSince) >= j.patience():
		return j.notStarted(now)
	}
	return nil
}

// patience is how long a unit that does not run is waited for. Of one that has
// failed only its log is.
func (j *judge) patience() time.Duration {
	if j.systemd.which() == over {
		return min(j.startTimeout, failedLog)
	}
	return j.startTimeout
}

// verdict judges the startup; "" while it goes on.
func (j *judge) verdict(now time.Time) (Verdict, string) {
	s := j.startup
	if s == nil {
		return "", ""
	}
	switch s.Outcome {
	case api.Serving:
		if !s.ServingEnded.IsZero() {
			return ended(s)
		}
		return Reached, ""
	case api.Failed:
		if j.systemd.Job == "stop" && !s.Final && vague(s.RootCause) {
			// Its log tells of the end of its processes before that of the unit.
			return Stopped, "a stop was asked for"
		}
		if j.sure(now) {
			return Failed, j.limited()
		}
		return "", ""
	case api.Stopped:
		return Stopped, s.Reason
	}
	switch {
	case j.want != phases.Serving && rank(s.Phase) >= rank(string(j.want)):
		return Reached, ""
	case s.Outcome == api.Stalled:
		return Stalled, ""
	}
	return "", ""
}

// ended is the verdict on a server that is gone.
func ended(s *api.Startup) (Verdict, string) {
	reason := fmt.Sprintf("it served, and has %s since", map[string]string{"stopped": "been stopped", "killed": "been killed"}[s.ServingEndReason])
	if s.ServingEndReason == "stopped" {
		return Stopped, reason
	}
	if s.ServingEndReason == "exited" {
		reason = "it served, and has exited since"
	}
	return Failed, reason
}

// sure says that a failure will not be taken back, nor its cause become clearer
// soon.
func (j *judge) sure(now time.Time) bool {
	switch {
	case j.startup.Final, !j.stopAt.IsZero() && !now.Before(j.stopAt):
		return true
	case !j.goneAt.IsZero() && vague(j.startup.RootCause):
		return now.Sub(j.goneAt) >= betterCause
	case !j.goneAt.IsZero():
		return now.Sub(j.goneAt) >= knownCause
	}
	return now.Sub(j.failedAt) >= takenBack
}

// vague says that a root cause tells no more than the end itself does: what the
// kernel says of it comes a little later.
func vague(c *api.RootCause) bool {
	return c == nil || c.Class == triage.ClassUnknown || c.Process == "systemd"
}

// limited says that systemd starts the unit no more, for its limit on starts.
func (j *judge) limited() string {
	if j.systemd.Result != "start-limit-hit" {
		return ""
	}
	return "systemd refuses to start it again (start-limit-hit): mend the cause, then `systemctl reset-failed " + j.unit + "`"
}

// late says what is known where the time is over.
func (j *judge) late() string {
	reason := fmt.Sprintf("the %s to wait are over", brief(j.timeout))
	switch {
	case j.startup != nil:
	case j.view == nil:
		reason += ", and nothing was told of the unit"
	case !j.view.Settled:
		reason += ", and the journal's past is still being read"
	case j.pinned == "":
		reason += ", and its next start has not begun"
	default:
		reason += ", and no entry of the start was seen"
	}
	return reason
}

// notStarted is the result where there is nothing to wait for. The last start is
// shown with it.
func (j *judge) notStarted(now time.Time) *Result {
	v, reason := Stopped, fmt.Sprintf("it does not run, and was not started within %s", brief(j.startTimeout))
	if j.systemd.which() == over {
		v, reason = Failed, "systemd has failed to start it: "+cmp.Or(j.systemd.Result, "for a reason that it does not tell")
	}
	if j.systemd.which() == unsure {
		reason = fmt.Sprintf("no start of it was seen within %s", brief(j.startTimeout))
	}
	return j.result(v, reason, now)
}

func (j *judge) result(v Verdict, reason string, now time.Time) *Result {
	r := &Result{
		Schema: Schema, Unit: j.unit, Invocation: j.pinned, Verdict: v, For: string(j.want), Reason: reason,
		Waited: now.Sub(j.began).Seconds(), Startup: j.startup,
	}
	if j.view != nil {
		r.Through = "journal"
		if j.view.Daemon {
			r.Through = "daemon"
		}
	}
	return r
}

func rank(phase string) int { return slices.Index(phases.Phases(), phases.State(phase)) }

// brief prints a duration for a sentence.
func brief(d time.Duration) string {
	if d < 10*time.Second {
		return fmt.Sprintf("%.3g s", d.Seconds())
	}
	return d.Round(time.Second).String()
}
