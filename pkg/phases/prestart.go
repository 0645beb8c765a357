package phases

import (
	"strings"

	"github.com/startupd/startupd/pkg/event"
	"github.com/startupd/startupd/pkg/profile"
	"github.com/startupd/startupd/pkg/triage"
)

// preStart is the command of an ExecStartPre=, as PID 1 names it.
const preStart = "ExecStartPre"

// precedes says that a message comes before the engine's own process is there:
// it may be the first that is heard of a start.
func precedes(d *event.UnitMessage) bool {
	return d.Invocation != "" && (d.Message == event.Precheck || d.Message == event.ProcessExit && d.Command == preStart)
}

// onPrecheck keeps what our own check before the start has found. Only if it ends
// the start, which systemd tells, it is a cause.
func (m *Machine) onPrecheck(d *event.UnitMessage) { m.cur.precheck = d }

// onPreStart takes the end of an ExecStartPre= command. systemd tells only of
// those that failed and whose failure counts, so the engine will not be started.
func (m *Machine) onPreStart(d *event.UnitMessage, at event.Stamp) {
	s := m.cur
	if d.ExitCode == "exited" && strings.HasPrefix(d.ExitStatus, "0") || !s.running() || s.phase() != Spawn {
		return
	}
	how := exitOf(d)
	s.exit = how
	w := triage.Witness{
		Process: preStart, Class: triage.ClassUnknown, Weight: triage.Late, Place: triage.Place{Line: d.No, Cursor: d.Cursor, At: at},
		Message: "the check before the start (ExecStartPre=) failed (" + how + "), and the engine was not started",
	}
	if c := s.precheck; c != nil {
		w.Message = "the check before the start failed: " + clip(c.Text)
		w.Place = triage.Place{Line: c.No, Cursor: c.Cursor, At: at}
		if m.knowsClass(c.Result) {
			w.Class = c.Result
		}
	}
	if !s.final && !s.stopAsked {
		s.triage.Witness(m.adviser(), w)
	}
	m.gone("its ExecStartPre= failed ("+how+")", at)
}

// exitOf is how a process ended, as root causes tell it.
func exitOf(d *event.UnitMessage) string {
	return clip(strings.TrimSpace(d.ExitCode + ", status " + d.ExitStatus))
}

// adviser is the profile whose catalogue knows what to do; before the engine has
// said a word any of them does. nil where there is none.
func (m *Machine) adviser() *profile.Profile {
	if m.profile == nil && len(m.scans) > 0 {
		return m.scans[0].profile
	}
	return m.profile
}

// knowsClass says that a class is one of the catalogue's: the set of classes is
// closed, as they become labels.
func (m *Machine) knowsClass(class string) bool {
	p := m.adviser()
	if p == nil {
		return false
	}
	_, ok := p.Classes[class]
	return ok
}
