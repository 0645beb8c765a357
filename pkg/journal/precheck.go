package journal

import (
	"bytes"
	"strings"

	"github.com/startupd/startupd/pkg/event"
)

// precheckName begins the verdict line of our own check before a start, and
// notFit the verdict that ends it:
//
//	startupd: preflight of llm.service: not fit [gpu_memory_occupied]: GPU 3 needs ...
const (
	precheckName = OwnPrefix + "preflight of "
	notFit       = ": not fit"
)

// precheck maps one of our own lines in a unit's journal: only a bad verdict of
// the check before a start is an event.
func (m *Mapper) precheck(dst []event.Event, e *Entry, at event.Stamp) []event.Event {
	if !bytes.HasPrefix(e.Bytes(Message), []byte(precheckName)) {
		return dst
	}
	msg, ok := parsePrecheck(m.firstLine(e))
	if !ok {
		return dst
	}
	target, ok := m.named(e.Bytes(SystemdUnit))
	if !ok {
		return dst
	}
	msg.Invocation, msg.Cursor = m.invocation(e.Bytes(SystemdInvocation)), entryCursor(e, at)
	return append(dst, event.Event{At: at, Target: target, Data: msg})
}

// parsePrecheck reads the verdict line; false for a host that is fit, and for
// any other line.
func parsePrecheck(line string) (*event.UnitMessage, bool) {
	rest, ok := strings.CutPrefix(line, precheckName)
	if !ok {
		return nil, false
	}
	_, rest, ok = strings.Cut(rest, notFit)
	if !ok {
		return nil, false
	}
	msg := &event.UnitMessage{Message: event.Precheck}
	if after, ok := strings.CutPrefix(rest, " ["); ok {
		class, text, ok := strings.Cut(after, "]")
		if ok && strings.Trim(class, "abcdefghijklmnopqrstuvwxyz_0123456789") == "" {
			msg.Result, rest = class, text
		}
	}
	msg.Text = strings.TrimSpace(strings.TrimPrefix(rest, ":"))
	return msg, true
}
