package journal

import (
	"strconv"
	"strings"

	"github.com/startupd/startupd/pkg/event"
)

// managerText reads what PID 1 writes about a unit, in a text that has no
// MESSAGE_ID (systemd's src/core/job.c, service.c and unit.c).
type managerText struct {
	unit string // the only unit that counts; "" adopts the first
	// description is the unit's, which systemd before 247 writes instead of the
	// name.
	description string
}

// parse returns the message; false for what tells nothing of a start, or of
// another unit.
func (m *managerText) parse(text string) (*event.UnitMessage, bool) {
	if unit, rest, ok := strings.Cut(text, ": "); ok && isUnitName(unit) {
		msg, ok := unitText(rest)
		if !ok || !m.is(unit) {
			return nil, false
		}
		msg.Text = text
		return msg, true
	}
	for _, j := range jobTexts() {
		rest, ok := strings.CutPrefix(text, j.prefix)
		if !ok {
			continue
		}
		if !m.names(strings.TrimSuffix(strings.TrimSuffix(rest, "..."), ".")) {
			return nil, false
		}
		return &event.UnitMessage{Message: j.kind, Text: text}, true
	}
	return nil, false
}

func (m *managerText) is(unit string) bool {
	if m.unit == "" {
		m.unit = unit
	}
	return m.unit == unit
}

// names says whether a job's text is about the unit: it has its name, its
// description, or both ("llm.service - LLM server").
func (m *managerText) names(what string) bool {
	name, description, both := strings.Cut(what, " - ")
	switch {
	case isUnitName(name):
		if m.is(name) && both {
			m.description = description
		}
		return m.unit == name
	case m.description == "":
		m.description = what
	}
	return m.description == what
}

func isUnitName(s string) bool {
	i := strings.LastIndexByte(s, '.')
	return i > 0 && !strings.ContainsAny(s, " /") && s[i+1:] == "service"
}

type jobText struct {
	prefix string
	kind   event.MessageKind
}

func jobTexts() []jobText {
	return []jobText{
		{"Starting ", event.Starting},
		{"Started ", event.Started},
		{"Failed to start ", event.StartFailed},
		{"Stopping ", event.Stopping},
		{"Stopped ", event.Stopped},
	}
}

// unitText reads what stands behind "UNIT: ".
func unitText(s string) (*event.UnitMessage, bool) {
	switch {
	case strings.HasPrefix(s, "Main process exited, "):
		return exitText(s, "ExecStart"), true
	case strings.HasPrefix(s, "Control process exited, "):
		return exitText(s, event.ControlProcess), true
	case strings.HasPrefix(s, "Failed with result '"):
		result, _, _ := strings.Cut(strings.TrimPrefix(s, "Failed with result '"), "'")
		return &event.UnitMessage{Message: event.FailureResult, Result: result}, true
	case strings.HasPrefix(s, "Scheduled restart job"):
		return restartText(s), true
	case strings.HasPrefix(s, "Deactivated successfully"), strings.HasPrefix(s, "Succeeded"):
		return &event.UnitMessage{Message: event.Succeeded}, true
	case timedOut(s):
		return &event.UnitMessage{Message: event.TimedOut}, true
	case strings.Contains(s, "killed by the OOM killer"):
		return &event.UnitMessage{Message: event.OutOfMemory}, true
	case strings.HasPrefix(s, "systemd-oomd killed"):
		return &event.UnitMessage{Message: event.OOMDKill}, true
	}
	return nil, false
}

// timedOut says whether systemd ends the unit for a limit of its start, or for
// its watchdog.
func timedOut(s string) bool {
	for _, prefix := range []string{"start operation timed out", "start-pre operation timed out", "start-post operation timed out", "Watchdog timeout"} {
		if strings.HasPrefix(s, prefix) {
			return true
		}
	}
	return false
}

// exitText reads "..., code=exited, status=1/FAILURE". A signal is given by its
// name, an exit status by its number, as in the journal's EXIT_STATUS.
func exitText(s, command string) *event.UnitMessage {
	msg := &event.UnitMessage{Message: event.ProcessExit, Command: command}
	_, code, _ := strings.Cut(s, "code=")
	msg.ExitCode, _, _ = strings.Cut(code, ",")
	_, status, _ := strings.Cut(s, "status=")
	number, name, _ := strings.Cut(strings.TrimSpace(status), "/")
	msg.ExitStatus = number
	if msg.ExitCode != "exited" && name != "" {
		msg.ExitStatus = name
	}
	return msg
}

// restartText reads "Scheduled restart job, restart counter is at 7."
func restartText(s string) *event.UnitMessage {
	msg := &event.UnitMessage{Message: event.RestartScheduled}
	_, n, _ := strings.Cut(s, "counter is at ")
	if r, err := strconv.Atoi(strings.TrimSuffix(n, ".")); err == nil && r >= 0 {
		msg.Restarts = &r
	}
	return msg
}
