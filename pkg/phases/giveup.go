package phases

import (
	"strings"
	"time"

	"github.com/startupd/startupd/pkg/event"
	"github.com/startupd/startupd/pkg/triage"
)

// The exit statuses by which startupd wait says that its own time was over, and
// that it was ended itself.
const (
	statusTimeout = "3"
	statusEnded   = "5"
)

// giveUp takes the failure of an ExecStartPost= command: systemd stops the main
// process for it, which is no kill from outside.
func (m *Machine) giveUp(d *event.UnitMessage, at event.Stamp) {
	s := m.cur
	status, _, _ := strings.Cut(d.ExitStatus, "/")
	if s.exited || d.ExitCode == "exited" && status == "0" {
		return
	}
	how := strings.TrimSpace(d.ExitCode + ", status " + d.ExitStatus)
	s.givenUp = "its ExecStartPost= gave it up (" + how + "), and systemd stopped it"
	if d.ExitCode != "exited" || status == statusEnded {
		// By systemd's own limit, or by somebody.
		s.givenUp = "its ExecStartPost= was ended (" + how + "), and systemd stopped it"
	}
	s.triage.GivenUp(at)
	switch {
	case !s.running():
	case d.ExitCode == "exited" && status == statusTimeout:
		s.triage.Witness(m.profile, triage.Witness{
			Process: "systemd", Class: "startup_timeout", Message: d.Text, Weight: triage.Late,
			Place: triage.Place{Line: d.No, Cursor: d.Cursor, At: at},
		})
	default:
		// Not Stalled alone: one that is read again has no watermarks.
		_, limit := m.budget()
		s.hung = s.pub.Stalled || limit > 0 && at.Sub(s.lastSign) >= limit
	}
}

// systemd tells of a stop that was asked for by "Stopping", except of a unit that
// it is still starting, as one is whose ExecStartPost= waits for the server: there
// the end of the processes comes first, and then "Stopped", where a start that
// failed has "Failed to start".

// settleEnd is how long the end of a running startup may still prove to be a stop.
func (s *startup) settleEnd() time.Duration {
	if s.activating {
		return settleStop
	}
	return 0
}

// awaitUnit holds the verdict on a start whose main process has ended until
// systemd tells of the unit's end, which says whether it was stopped: in between
// come its ExecStopPost= commands, and they take their time.
func (m *Machine) awaitUnit(at event.Stamp) {
	s := m.cur
	if !s.activating || s.fatal || s.settled || s.final || s.pub.Outcome != OutcomeFailed {
		return
	}
	s.awaited = true
	s.settleAt, s.finalAt = at.Add(settleUnit), at.Add(settleUnit)
}

// unitEnded counts from the unit's end what awaitUnit has held.
func (m *Machine) unitEnded(at event.Stamp) {
	if s := m.cur; s.awaited && !s.settled {
		s.awaited, s.closed = false, false
		s.settleAt = at.Add(settleStop)
		m.closeEvidence(s, at)
	}
}

// stopsOnRequest says that systemd is stopping the unit and nothing of it has
// failed, as far as it has told over D-Bus.
func (m *Machine) stopsOnRequest() bool {
	u, s := m.unit, m.cur
	return u != nil && s.owns(u.Invocation) && s.givenUp == "" && u.ActiveState == "deactivating" && u.SubState == "stop-sigterm" &&
		u.MainPID != 0 && u.Result == "success"
}

// stoppedAfterAll takes back that a startup has failed, as systemd says that the
// unit was stopped while it was being started.
func (m *Machine) stoppedAfterAll(s *startup) {
	if !s.activating || s.fatal || s.settled || s.pub.Outcome != OutcomeFailed {
		return
	}
	s.stopAsked, s.activating = true, false
	s.triage.Stopped()
	m.finish(OutcomeStopped, "a stop was asked for", s.pub.Ended, 0)
}
