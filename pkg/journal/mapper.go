package journal

import (
	"bytes"
	"strconv"
	"strings"

	"github.com/startupd/startupd/pkg/event"
)

// ownName is our program's: what it writes into a watched unit's journal (as
// ExecStartPost=) is no evidence. Each line that it writes there begins with
// OwnPrefix: a unit may set the identifier, and of a process that is gone
// journald knows no executable.
const (
	ownName   = "startupd"
	OwnPrefix = ownName + ": "
)

// Mapper turns entries into the events of a set of targets. It keeps small
// caches, so one goroutine may use it at a time.
type Mapper struct {
	units      map[string]string // unit -> target
	globs      []string
	containers map[string]string
	cgroups    []TargetSpec
	// sole is the target of an export file whose unit is not known before: all
	// entries of the first unit belong to it.
	sole *soleUnit

	parts   joiner
	clean   Cleaner
	last    event.Stamp // of the entry before
	invoc   string
	unit    string // the last own line's unit, and its target
	target  string
	watched bool
}

// NewMapper returns a Mapper for the targets.
func NewMapper(specs []TargetSpec) (*Mapper, error) {
	m := &Mapper{units: map[string]string{}, containers: map[string]string{}}
	for _, s := range specs {
		if err := s.Validate(); err != nil {
			return nil, err
		}
		switch {
		case s.isGlob():
			m.globs = append(m.globs, s.Unit)
		case s.Unit != "":
			m.units[s.Unit] = s.target()
		case s.Container != "":
			m.containers[s.Container] = s.target()
		default:
			m.cgroups = append(m.cgroups, s)
		}
	}
	return m, nil
}

// Map appends the entry's events to dst: none for an entry of no target and
// for our own, several for a message of several lines.
func (m *Mapper) Map(dst []event.Event, e *Entry) []event.Event {
	at := e.at(m.last.Boot)
	if at.IsZero() {
		at = m.last
	}
	m.last = at
	switch {
	case e.Has(Watermark):
		return append(m.giveOut(dst), event.Event{At: at, Data: &event.Watermark{}})
	case e.Has(Unreadable):
		return append(dst, gap(lineHead{at: at}, "", event.GapCorrupt, e.Int(Unreadable)))
	case isOwn(e):
		return m.precheck(dst, e, at)
	case e.Is(PID, "1") && e.Has(Unit):
		return m.manager(dst, e, at)
	case e.Is(Transport, "kernel"):
		return m.message(dst, e, lineHead{at: at, origin: event.OriginKernel})
	case e.Has(MessageID):
		if out, done := m.special(dst, e, at); done {
			return out
		}
	}
	return m.own(dst, e, at)
}

func isOwn(e *Entry) bool {
	if e.Is(SyslogIdentifier, ownName) || bytes.HasPrefix(e.Bytes(Message), []byte(OwnPrefix)) {
		return true
	}
	exe := bytes.TrimSuffix(e.Bytes(Exe), []byte(" (deleted)"))
	return string(exe[bytes.LastIndexByte(exe, '/')+1:]) == ownName
}

// unitTarget returns the target of a unit.
func (m *Mapper) unitTarget(unit []byte) (string, bool) {
	if len(unit) == 0 {
		return "", false
	}
	if string(unit) != m.unit {
		m.unit = string(unit)
		m.target, m.watched = m.findUnit(m.unit)
	}
	return m.target, m.watched
}

func (m *Mapper) findUnit(unit string) (string, bool) {
	if t, ok := m.units[unit]; ok {
		return t, true
	}
	for _, g := range m.globs {
		if matchUnit(g, unit) {
			return unit, true
		}
	}
	return "", false
}

// own maps a line of a target's process.
func (m *Mapper) own(dst []event.Event, e *Entry, at event.Stamp) []event.Event {
	h := lineHead{at: at, origin: event.OriginUnit}
	if e.Has(ContainerName) {
		if t, ok := m.containers[string(e.Bytes(ContainerName))]; ok {
			h.target, h.invocation = t, containerID(e)
			return m.ownMessage(dst, e, h)
		}
	}
	var ok bool
	if m.sole != nil {
		h.target, ok = m.sole.own(e)
	} else {
		h.target, ok = m.unitTarget(e.Bytes(SystemdUnit))
	}
	if !ok {
		h.target, ok = m.cgroupTarget(e.Bytes(SystemdCgroup))
	}
	if !ok {
		return dst
	}
	h.invocation = m.invocation(e.Bytes(SystemdInvocation))
	return m.ownMessage(dst, e, h)
}

func (m *Mapper) cgroupTarget(cgroup []byte) (string, bool) {
	for _, s := range m.cgroups {
		dir := strings.TrimSuffix(s.Cgroup, "/")
		rest, ok := bytes.CutPrefix(cgroup, []byte(dir))
		if ok && (len(rest) == 0 || rest[0] == '/') {
			return s.target(), true
		}
	}
	return "", false
}

func containerID(e *Entry) string {
	if e.Has(ContainerIDFull) {
		return e.String(ContainerIDFull)
	}
	return e.String(ContainerID)
}

// invocation copies an ID only when it is not the one before.
func (m *Mapper) invocation(b []byte) string {
	if string(b) != m.invoc {
		m.invoc = string(b)
	}
	return m.invoc
}

// lineHead is what the lines of one message have in common.
type lineHead struct {
	at         event.Stamp
	target     string
	invocation string
	origin     event.Origin
	cursor     string
	pid        int
}

// writer is the process that wrote an entry; 0 for a container's, which its
// engine has written for all of its processes.
func writer(e *Entry) int {
	if e.Has(ContainerName) || e.Has(ContainerID) {
		return 0
	}
	return e.Int(PID)
}

// message maps an entry's lines.
func (m *Mapper) message(dst []event.Event, e *Entry, h lineHead) []event.Event {
	h.cursor, h.pid = entryCursor(e, h.at), writer(e)
	dst = m.lines(dst, h, e.Bytes(Message), e.Cut)
	switch {
	case e.Is(LineBreak, "line-max"):
		dst = append(dst, gap(h, h.cursor, event.GapLineMax, 1))
	case e.Is(LineBreak, "pid-change"):
		dst = append(dst, gap(h, h.cursor, event.GapPIDChange, 1))
	}
	return dst
}

// lines appends a message's lines, and a gap if some of it was cut here or
// before.
func (m *Mapper) lines(dst []event.Event, h lineHead, msg []byte, cutBefore int) []event.Event {
	cut := 0
	for _, l := range m.clean.Lines(msg) {
		if l.Cut {
			cut++
		}
		dst = append(dst, event.Event{At: h.at, Target: h.target, Data: &event.Line{
			Text: l.Text, Cursor: h.cursor, Invocation: h.invocation, PID: h.pid, Origin: h.origin, Bar: l.Bar,
		}})
	}
	if cut+cutBefore > 0 {
		dst = append(dst, gap(h, h.cursor, event.GapOversize, max(cut, cutBefore)))
	}
	return dst
}

func gap(h lineHead, cursor string, kind event.GapKind, lines int) event.Event {
	return event.Event{At: h.at, Target: h.target, Data: &event.Gap{
		Gap: kind, Lines: lines, Invocation: h.invocation, Cursor: cursor,
	}}
}

// entryCursor is the entry's cursor, or one made of its clocks, which names
// the same place for journalctl --cursor: sd_journal_get_cursor costs more
// than all the rest of an entry.
func entryCursor(e *Entry, at event.Stamp) string {
	if e.Has(Cursor) {
		return e.String(Cursor)
	}
	if at.Boot == "" || at.Real.IsZero() {
		return ""
	}
	b := make([]byte, 0, 80)
	b = append(append(b, "b="...), at.Boot...)
	b = strconv.AppendInt(append(b, ";m="...), at.Mono.Microseconds(), 16)
	b = strconv.AppendInt(append(b, ";t="...), at.Real.UnixMicro(), 16)
	return string(b)
}
