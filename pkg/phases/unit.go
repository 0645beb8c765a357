package phases

import (
	"strings"
	"time"

	"github.com/startupd/startupd/pkg/event"
)

// onMessage takes an entry of systemd's own about the unit.
func (m *Machine) onMessage(d *event.UnitMessage, at event.Stamp) {
	if d.Message == event.Starting || d.Message == event.Started {
		m.onStart(d, at)
		return
	}
	if precedes(d) {
		m.onStart(d, at)
	}
	if d.Message == event.RestartScheduled && d.Restarts != nil && (m.unit == nil || at.After(m.unitAt)) {
		m.restarts = d.Restarts
	}
	s := m.cur
	if s == nil || !m.concerns(d) {
		if b := m.before; b != nil && b.owns(d.Invocation) {
			m.testify(b, d, at)
		}
		return
	}
	m.testify(s, d, at)
	switch d.Message {
	case event.FailureResult, event.StartFailed, event.Succeeded, event.Stopped, event.RestartScheduled:
		m.unitEnded(at)
	}
	switch d.Message {
	case event.Stopping:
		s.stopAsked = true
	case event.ProcessExit:
		m.onExit(d, at)
	case event.Precheck:
		m.onPrecheck(d)
	case event.FailureResult, event.StartFailed:
		m.gone(reasonOf(d), at)
		if d.Message == event.StartFailed {
			s.activating = false
			m.settle(s)
		}
	case event.Succeeded, event.Stopped:
		m.gone("it ended", at)
		if d.Message == event.Stopped {
			m.stoppedAfterAll(s)
		}
	case event.OutOfMemory, event.OOMDKill, event.Coredump:
		s.complain(d.Text)
	case event.RestartScheduled:
		m.gone("systemd restarts it", at)
	}
}

// onStart takes a start of the unit: a new invocation, or in a text, which has
// none, a start after an end.
func (m *Machine) onStart(d *event.UnitMessage, at event.Stamp) {
	m.starts(d, at)
	if s := m.cur; d.Invocation == "" || s.owns(d.Invocation) {
		s.activating = d.Message == event.Starting && s.running()
	}
}

func (m *Machine) starts(d *event.UnitMessage, at event.Stamp) {
	s := m.cur
	switch {
	case s == nil:
		m.begin(at, d.Invocation, 0)
	case d.Invocation == "":
		if !s.running() && !s.serving() {
			m.begin(at, "", s.pub.Generation+1)
		}
	case d.Invocation == s.pub.Invocation || d.Invocation == s.unitInvocation:
		m.earlier(at)
	case m.past.has(d.Invocation) || m.older(at):
	case m.lacksUnit() && s.running():
		s.unitInvocation = d.Invocation
	default:
		m.begin(at, d.Invocation, 0)
	}
}

// concerns says whether a message is about the present startup.
func (m *Machine) concerns(d *event.UnitMessage) bool {
	s := m.cur
	return d.Invocation == "" || s.pub.Invocation == "" ||
		d.Invocation == s.pub.Invocation || d.Invocation == s.unitInvocation ||
		m.lacksUnit() && !m.past.has(d.Invocation)
}

// onExit takes the exit of one of the unit's processes; only that of the main
// one (ExecStart) ends the start.
func (m *Machine) onExit(d *event.UnitMessage, at event.Stamp) {
	switch d.Command {
	case "", "ExecStart":
		m.gone(reasonOf(d), at)
		m.awaitUnit(at)
	case preStart:
		m.onPreStart(d, at)
	case "ExecStartPost":
		m.giveUp(d, at)
	case event.ControlProcess:
		// A text does not tell which: one that comes after the engine's lines.
		if s := m.cur; s.running() && len(s.pub.LastLine) > 0 {
			m.giveUp(d, at)
		} else if s.running() {
			s.exit = exitOf(d)
		}
	}
}

func reasonOf(d *event.UnitMessage) string {
	switch {
	case d.ExitCode != "":
		return strings.TrimSpace("main process " + d.ExitCode + ", status " + d.ExitStatus)
	case d.Result != "":
		return "systemd result " + d.Result
	}
	return clip(d.Text)
}

// gone takes the end of the main process or of the unit.
func (m *Machine) gone(reason string, at event.Stamp) {
	s := m.cur
	first := !s.exited
	s.exited = true
	m.closeEvidence(s, at)
	if s.running() && m.stopsOnRequest() {
		s.stopAsked = true
		s.triage.Stopped()
	}
	switch {
	case s.running() && s.stopAsked:
		m.finish(OutcomeStopped, "a stop was asked for", at, 0)
	case s.running() && s.givenUp != "":
		m.finish(OutcomeFailed, s.givenUp, at, s.settleEnd())
	case s.running():
		m.finish(OutcomeFailed, "it ended before it was ready: "+reason, at, s.settleEnd())
	case s.pub.Outcome == OutcomeFailed && !s.settled:
		if first && s.fatal {
			s.pub.Reason += " (" + reason + ")"
		}
		if !s.activating || s.fatal {
			m.settle(s)
		}
	case s.serving():
		m.endServing(m.endReason(), at)
	case s.stopAsked && m.state == Failed && s.pub.ServingEndReason == "":
		m.setState(Stopped, at)
	}
}

// endReason names the end of a service: stopped, killed or exited.
func (m *Machine) endReason() string {
	switch {
	case m.cur.stopAsked:
		return "stopped"
	case m.cur.killed:
		return "killed"
	}
	return "exited"
}

// holdUnitState is how long systemd's word over D-Bus waits for the journal's,
// which tells more and comes a little later.
const holdUnitState = time.Second

// onUnitState takes systemd's view over D-Bus. While the journal can be read it
// leads, and D-Bus only confirms.
func (m *Machine) onUnitState(d *event.UnitState, at event.Stamp) {
	if m.unit == nil || m.unit.Invocation != d.Invocation {
		m.unitBegan = d.InactiveExit
		if m.unit != nil && autoRestarts(m.unit) {
			// InactiveExit may be of the moment when the pause before it began.
			m.unitBegan = at
		}
	}
	was := m.unit
	m.unit, m.unitAt = d, at
	if !d.Loaded {
		m.restarts, m.mainPID, m.controlGroup = nil, 0, ""
		// systemd unloads no unit that runs. One that it never had tells nothing: the
		// engine may run in a container.
		if was == nil || !was.Loaded || m.cur == nil || !m.cur.owns(was.Invocation) {
			return
		}
	} else {
		restarts := d.Restarts
		m.restarts, m.mainPID, m.controlGroup = &restarts, d.MainPID, d.ControlGroup
		m.choose(d.ExecStart)
	}
	if m.journal.known && m.journal.up {
		m.held, m.heldUntil = true, at.Add(holdUnitState)
		return
	}
	m.applyUnitState(d, at)
}

// autoRestarts says that the unit waits for its next start (auto-restart,
// auto-restart-queued).
func autoRestarts(d *event.UnitState) bool { return strings.HasPrefix(d.SubState, "auto-restart") }

// choose picks the profile by the unit's command line.
func (m *Machine) choose(command string) {
	if m.profile != nil || command == "" {
		return
	}
	for _, s := range m.scans {
		if s.profile.DetectCommand(command) {
			m.pin(s.profile)
			return
		}
	}
}

// applyUnitState acts on systemd's view where the journal has not done so.
func (m *Machine) applyUnitState(d *event.UnitState, at event.Stamp) {
	s := m.cur
	if s != nil && !otherBoot(at, s.pub.Began) && at.Before(s.pub.Began) {
		return // the journal has told of a later start meanwhile
	}
	same := s != nil && (d.Invocation == "" || s.pub.Invocation == d.Invocation || s.unitInvocation == d.Invocation)
	if same && (d.ActiveState == "failed" || d.ActiveState == "inactive") {
		m.unitEnded(at)
	}
	switch d.ActiveState {
	case "active", "activating", "reloading":
		if d.Invocation != "" && !same && !m.past.has(d.Invocation) && !autoRestarts(d) {
			m.beginByUnit(d, at)
		}
	case "deactivating":
		// An end by itself leaves no main process to be sent SIGTERM.
		if same && s.alive() && d.SubState == "stop-sigterm" && d.MainPID != 0 && d.Result == "success" {
			s.stopAsked = true
		}
	case "failed":
		if same && (s.alive() || !s.settled) {
			m.testify(s, &event.UnitMessage{Message: event.FailureResult, Result: d.Result, Text: "systemd result " + d.Result}, at)
			m.gone("systemd result "+d.Result, at)
		}
		if s == nil {
			m.setState(Failed, at)
		}
	case "inactive":
		// An engine that died with status 0 leaves it inactive too: what is known of
		// a startup's end stands.
		if same && s.alive() {
			m.gone(resultOf(d), at)
		}
		if s == nil {
			m.setState(Stopped, at)
		}
	}
}

func resultOf(d *event.UnitState) string {
	if !d.Loaded {
		return "systemd has unloaded the unit"
	}
	return "systemd result " + d.Result
}

// beginByUnit opens a startup on systemd's word alone.
func (m *Machine) beginByUnit(d *event.UnitState, at event.Stamp) {
	began := at
	if !m.unitBegan.IsZero() {
		began = m.unitBegan
	}
	if s := m.cur; s != nil && m.lacksUnit() && (s.running() || s.serving() && !began.After(s.pub.Began)) {
		s.unitInvocation = d.Invocation
		return
	}
	m.begin(began, d.Invocation, 0)
	m.cur.pub.AttachedLate = at.Sub(began) > lateAfter
	m.cur.pub.Phases[0].Evidence = Evidence{Source: event.SourceUnit, Text: "systemd: " + d.ActiveState, At: at}
}

// onHealth takes a probe of the served endpoint.
func (m *Machine) onHealth(d *event.HealthSample, at event.Stamp) {
	m.health = d
	s := m.cur
	if s == nil {
		return
	}
	switch d.Status {
	case event.HealthClosed, event.HealthNotReady:
		s.closedSeen = true
	case event.HealthReady:
		if !s.closedSeen && !s.readyLog {
			if !s.pub.AttachedLate {
				return
			}
			// It was ready when it was first looked at: no start that was seen.
			m.counted.add(s.key(s.pub.Invocation))
		}
		s.readyOK = true
		m.serve(Evidence{Source: event.SourceHealth, Text: d.URL + " answers that it is ready", At: at}, 0)
	case event.HealthUnknown:
	}
	m.disagree = ""
	if s.serving() && s.readyLog && d.Status != event.HealthReady && d.Status != event.HealthUnknown && at.Sub(s.pub.Ended) > settleReady {
		m.disagree = "the log says that it serves, the probe of " + d.URL + " finds it " + string(d.Status)
	}
}

// serve ends a start well. A later confirmation makes it final.
func (m *Machine) serve(ev Evidence, settle time.Duration) {
	s := m.cur
	if s.pub.Outcome == OutcomeServing {
		if settle == 0 {
			m.settle(s)
		}
		return
	}
	if !s.running() {
		if !s.fatal || s.exited || s.settled {
			return
		}
		m.revive()
	}
	s.enter(Serving, ev)
	s.trouble = ""
	m.finish(OutcomeServing, clip(ev.Text), ev.At, settle)
}
