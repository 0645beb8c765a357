package journal

import (
	"strconv"
	"strings"

	"github.com/startupd/startupd/pkg/event"
)

// IDs of journald's and systemd-coredump's messages (systemd's
// sd-messages.h), which are not the manager's.
const (
	idCoredump   = "fc2e22bc6ee647b6b90729ab34a250b1"
	idSuppressed = "a596d6fe7bfa4994828e72309e95d61e"
	idMissed     = "e9bf28e6e834481bb6f48f548ad13606"
)

// managerMessage returns what a MESSAGE_ID of PID 1 says (systemd's
// sd-messages.h); false for those that tell nothing of a start.
func managerMessage(id []byte) (event.MessageKind, bool) {
	switch string(id) {
	case "7d4958e842da4a758f6c1cdc7b36dcc5":
		return event.Starting, true
	case "39f53479d3a045ac8e11786248231fbf":
		return event.Started, true
	case "be02cf6855d2428ba40df7e9d022f03d":
		return event.StartFailed, true
	case "de5b426a63be47a7b6ac3eaac82e2f6f":
		return event.Stopping, true
	case "9d1aaa27d60140bd96365438aad20286":
		return event.Stopped, true
	case "7ad2d189f7e94e70a38c781354912448":
		return event.Succeeded, true
	case "98e322203f7a4ed290d09fe03c09fe15":
		return event.ProcessExit, true
	case "d9b373ed55a64feb8242e02dbe79a49c":
		return event.FailureResult, true
	case "5eb03494b6584870a536b337290809b3":
		return event.RestartScheduled, true
	case "fe6faa94e7774663a0da52717891d8ef":
		return event.OutOfMemory, true
	case "d989611b15e44c9dbf31e3c81256e4ed":
		return event.OOMDKill, true
	}
	return "", false
}

// manager maps a message of PID 1 about a unit. The caller has checked _PID,
// which a unit can't forge.
func (m *Mapper) manager(dst []event.Event, e *Entry, at event.Stamp) []event.Event {
	target, ok := m.named(e.Bytes(Unit))
	if !ok {
		return dst
	}
	kind, ok := managerMessage(e.Bytes(MessageID))
	if !ok {
		rest, found := strings.CutPrefix(e.String(Message), e.String(Unit)+": ")
		if !found || !timedOut(rest) {
			return dst
		}
		kind = event.TimedOut
	}
	msg := &event.UnitMessage{
		Message: kind, Invocation: m.invocation(e.Bytes(Invocation)),
		Command: e.String(Command), ExitCode: e.String(ExitCode), ExitStatus: e.String(ExitStatus),
		Result: e.String(UnitResult), Cursor: entryCursor(e, at), Text: m.firstLine(e),
	}
	if n, ok := e.Uint(NRestarts); ok && n < 1<<31 {
		r := int(n)
		msg.Restarts = &r
	}
	return append(dst, event.Event{At: at, Target: target, Data: msg})
}

// named is unitTarget for a unit that another process names.
func (m *Mapper) named(unit []byte) (string, bool) {
	if m.sole != nil {
		return m.sole.named(string(unit))
	}
	return m.unitTarget(unit)
}

// special maps what journald and systemd-coredump tell. Both run as root,
// which journald itself attests; done is false for any other entry.
func (m *Mapper) special(dst []event.Event, e *Entry, at event.Stamp) (out []event.Event, done bool) {
	root := e.Is(UID, "0")
	switch {
	case root && e.Is(MessageID, idCoredump):
		if target, ok := m.named(e.Bytes(CoredumpUnit)); ok {
			dst = append(dst, event.Event{At: at, Target: target, Data: m.coredump(e, at)})
		}
		return dst, true
	case root && e.Is(MessageID, idSuppressed):
		if target, ok := m.named(e.Bytes(ObjectUnit)); ok {
			h := lineHead{at: at, target: target}
			dst = append(dst, gap(h, entryCursor(e, at), event.GapSuppressed, e.Int(NDropped)))
		}
		return dst, true
	case e.Is(Transport, "driver") && e.Is(MessageID, idMissed):
		return append(dst, gap(lineHead{at: at}, entryCursor(e, at), event.GapLost, missed(e.String(Message)))), true
	}
	return dst, false
}

func (m *Mapper) coredump(e *Entry, at event.Stamp) *event.UnitMessage {
	status := e.String(CoredumpSignalName)
	if status == "" {
		status = e.String(CoredumpSignal)
	}
	return &event.UnitMessage{
		Message: event.Coredump, ExitCode: "dumped", ExitStatus: status,
		PID: e.Int(CoredumpPID), Cursor: entryCursor(e, at), Text: m.firstLine(e),
	}
}

func (m *Mapper) firstLine(e *Entry) string {
	if l := m.clean.Lines(e.Bytes(Message)); len(l) > 0 {
		return l[0].Text
	}
	return ""
}

// missed reads the number in "Missed 12 kernel messages"; 0 when there is none.
func missed(text string) int {
	f := strings.Fields(text)
	if len(f) < 2 {
		return 0
	}
	n, err := strconv.Atoi(f[1])
	if err != nil || n < 0 {
		return 0
	}
	return n
}
