package event

// Origin says who wrote a line.
type Origin string

// The origins of a line.
const (
	// OriginUnit is a process of the unit, or of its container.
	OriginUnit Origin = "unit"
	// OriginKernel is the kernel's own log (OOM kill, Xid, segfault).
	OriginKernel Origin = "kernel"
	// OriginText is a plain text that tells nothing of its writer.
	OriginText Origin = "text"
)

// Line is one line of log, cleaned: valid UTF-8, without ANSI sequences, split
// at carriage returns and newlines. What the engine itself puts before its
// text (process prefix, level, time) is still there.
type Line struct {
	Text string `json:"text"`
	// Cursor is the journal's cursor of the entry; "" in a plain text.
	Cursor string `json:"cursor,omitempty"`
	// No is the 1-based number of the line in a text input; 0 in a journal.
	No int `json:"no,omitempty"`
	// Invocation is the unit's invocation ID, or the container's ID; "" when
	// the line tells neither.
	Invocation string `json:"invocation,omitempty"`
	// PID wrote the line, as the host counts processes (the journal's _PID);
	// 0 when not known.
	PID int `json:"pid,omitempty"`
	// Proc is the process that a wrapper around the log names (a compose
	// service, a pod's container); "" when there is none.
	Proc   string `json:"proc,omitempty"`
	Origin Origin `json:"origin,omitempty"`
	// Bar is true for the last state of a progress bar that redraws itself
	// with carriage returns.
	Bar bool `json:"bar,omitempty"`
}

// MessageKind names what systemd (or a core dump's collector) says of a unit.
type MessageKind string

// The messages of PID 1 that have a stable MESSAGE_ID (systemd's catalog,
// src/systemd/sd-messages.h), and TimedOut, which is told by its text alone
// (src/core/service.c).
const (
	Starting         MessageKind = "starting"
	Started          MessageKind = "started"
	StartFailed      MessageKind = "start_failed"
	Stopping         MessageKind = "stopping"
	Stopped          MessageKind = "stopped"
	Succeeded        MessageKind = "succeeded"
	ProcessExit      MessageKind = "process_exit"
	FailureResult    MessageKind = "failure_result"
	RestartScheduled MessageKind = "restart_scheduled"
	OutOfMemory      MessageKind = "out_of_memory"
	OOMDKill         MessageKind = "oomd_kill"
	// TimedOut: a limit of the unit's start, or its watchdog, made systemd end it.
	TimedOut MessageKind = "timed_out"
	Coredump MessageKind = "coredump"
	// Precheck: our own check before the start found the host not fit. Result is
	// the class of failure that it foresees, "" for none, and Text what it found.
	Precheck MessageKind = "precheck"
)

// ControlProcess stands for the command of an ExecStartPre=, ExecStartPost= and
// the like, which a text does not name.
const ControlProcess = "control"

// UnitMessage is an entry of systemd's own about a unit.
type UnitMessage struct {
	Message MessageKind `json:"message"`
	// Invocation is the INVOCATION_ID field; "" when absent.
	Invocation string `json:"invocation,omitempty"`
	// Command is the process that exited: ExecStart is the main one, and
	// ControlProcess one of the others that a text does not name.
	Command string `json:"command,omitempty"`
	// ExitCode is exited, killed or dumped; "" when not told.
	ExitCode string `json:"exit_code,omitempty"`
	// ExitStatus is an exit status, or a signal's name or number.
	ExitStatus string `json:"exit_status,omitempty"`
	// Result is UNIT_RESULT: exit-code, signal, timeout, oom-kill, ...
	Result string `json:"result,omitempty"`
	// Restarts is N_RESTARTS; nil when not told.
	Restarts *int   `json:"restarts,omitempty"`
	PID      int    `json:"pid,omitempty"`
	Cursor   string `json:"cursor,omitempty"`
	// No is the 1-based number of the line in a text input; 0 in a journal.
	No   int    `json:"no,omitempty"`
	Text string `json:"text,omitempty"`
}

// GapKind names a way in which evidence got lost.
type GapKind string

// The kinds of gap.
const (
	// GapSuppressed: journald dropped lines of the unit (its rate limit).
	GapSuppressed GapKind = "suppressed"
	// GapLost: journald missed messages (full socket, kernel ring).
	GapLost GapKind = "lost"
	// GapLineMax: a line was cut at LineMax (_LINE_BREAK=line-max).
	GapLineMax GapKind = "line_max"
	// GapPIDChange: a line was cut as another process wrote
	// (_LINE_BREAK=pid-change).
	GapPIDChange GapKind = "pid_change"
	// GapVacuumed: entries after the last applied one are gone.
	GapVacuumed GapKind = "vacuumed"
	// GapTruncated: a journal file was cut short, or a stream of entries ended in
	// the middle of one.
	GapTruncated GapKind = "truncated"
	// GapOversize: a line longer than the reader's limit was cut.
	GapOversize GapKind = "oversize"
	// GapCorrupt: an entry or a journal file could not be decoded.
	GapCorrupt GapKind = "corrupt"
)

// Gap is a hole in the evidence.
type Gap struct {
	Gap GapKind `json:"gap"`
	// Lines is how many lines were lost; 0 when that is not known.
	Lines      int    `json:"lines,omitempty"`
	Invocation string `json:"invocation,omitempty"`
	Cursor     string `json:"cursor,omitempty"`
	Detail     string `json:"detail,omitempty"`
}

// Earlier says that a unit's invocation was over before the present one began,
// so that a late line of it is nothing new. It comes before a back-fill that
// begins with the present one.
type Earlier struct {
	Invocation string `json:"invocation"`
}

// Watermark promises that the journal's reader has delivered every entry up to
// the event's At. It also comes when nothing is written.
type Watermark struct{}

// Tick lets time pass where nothing else happens. Only the monitor makes it.
type Tick struct{}

// Kind implements Data.
func (*Line) Kind() Kind { return KindLine }

// Kind implements Data.
func (*UnitMessage) Kind() Kind { return KindUnitMessage }

// Kind implements Data.
func (*Gap) Kind() Kind { return KindGap }

// Kind implements Data.
func (*Earlier) Kind() Kind { return KindEarlier }

// Kind implements Data.
func (*Watermark) Kind() Kind { return KindWatermark }

// Kind implements Data.
func (*Tick) Kind() Kind { return KindTick }
