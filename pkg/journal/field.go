package journal

// Field is a journal field that startupd uses; all others are skipped.
type Field uint8

// The fields, as in systemd.journal-fields(7) and systemd's catalog. Names
// with two underscores are addresses that only the reader sets, with one are
// set by journald; a program of the unit can forge neither.
const (
	Cursor Field = iota
	Realtime
	Monotonic
	Watermark
	Unreadable
	BootID
	Transport
	PID
	UID
	Exe
	SystemdUnit
	SystemdInvocation
	SystemdCgroup
	LineBreak
	Message
	MessageID
	SyslogIdentifier
	Unit
	Invocation
	ExitCode
	ExitStatus
	Command
	UnitResult
	NRestarts
	NDropped
	ObjectUnit
	ContainerName
	ContainerID
	ContainerIDFull
	ContainerPartial
	ContainerPartialID
	ContainerPartialOrdinal
	ContainerPartialLast
	Priority
	CoredumpUnit
	CoredumpPID
	CoredumpSignal
	CoredumpSignalName
	numFields
)

// noField stands for every field that is not used.
const noField = numFields

// lookupField returns the field of a name. The compiler turns the switch into
// a search by length and value, which is faster than a map.
func lookupField(name []byte) Field {
	switch string(name) {
	case "__CURSOR":
		return Cursor
	case "__REALTIME_TIMESTAMP":
		return Realtime
	case "__MONOTONIC_TIMESTAMP":
		return Monotonic
	case "__STARTUPD_WATERMARK":
		return Watermark
	case "__STARTUPD_UNREADABLE":
		return Unreadable
	case "_BOOT_ID":
		return BootID
	case "_TRANSPORT":
		return Transport
	case "_PID":
		return PID
	case "_UID":
		return UID
	case "_EXE":
		return Exe
	case "_SYSTEMD_UNIT":
		return SystemdUnit
	case "_SYSTEMD_INVOCATION_ID":
		return SystemdInvocation
	case "_SYSTEMD_CGROUP":
		return SystemdCgroup
	case "_LINE_BREAK":
		return LineBreak
	case "MESSAGE":
		return Message
	case "MESSAGE_ID":
		return MessageID
	case "SYSLOG_IDENTIFIER":
		return SyslogIdentifier
	case "UNIT":
		return Unit
	case "INVOCATION_ID":
		return Invocation
	case "EXIT_CODE":
		return ExitCode
	case "EXIT_STATUS":
		return ExitStatus
	case "COMMAND":
		return Command
	case "UNIT_RESULT":
		return UnitResult
	case "N_RESTARTS":
		return NRestarts
	case "N_DROPPED":
		return NDropped
	case "OBJECT_SYSTEMD_UNIT":
		return ObjectUnit
	case "CONTAINER_NAME":
		return ContainerName
	case "CONTAINER_ID":
		return ContainerID
	case "CONTAINER_ID_FULL":
		return ContainerIDFull
	case "CONTAINER_PARTIAL_MESSAGE":
		return ContainerPartial
	case "CONTAINER_PARTIAL_ID":
		return ContainerPartialID
	case "CONTAINER_PARTIAL_ORDINAL":
		return ContainerPartialOrdinal
	case "CONTAINER_PARTIAL_LAST":
		return ContainerPartialLast
	case "PRIORITY":
		return Priority
	case "COREDUMP_UNIT":
		return CoredumpUnit
	case "COREDUMP_PID":
		return CoredumpPID
	case "COREDUMP_SIGNAL":
		return CoredumpSignal
	case "COREDUMP_SIGNAL_NAME":
		return CoredumpSignalName
	}
	return noField
}

// fieldNames returns the names by Field.
func fieldNames() [numFields]string {
	return [numFields]string{
		Cursor: "__CURSOR", Realtime: "__REALTIME_TIMESTAMP", Monotonic: "__MONOTONIC_TIMESTAMP",
		Watermark:  "__STARTUPD_WATERMARK",
		Unreadable: "__STARTUPD_UNREADABLE",
		BootID:     "_BOOT_ID", Transport: "_TRANSPORT", PID: "_PID", UID: "_UID", Exe: "_EXE",
		SystemdUnit: "_SYSTEMD_UNIT", SystemdInvocation: "_SYSTEMD_INVOCATION_ID",
		SystemdCgroup: "_SYSTEMD_CGROUP", LineBreak: "_LINE_BREAK",
		Message: "MESSAGE", MessageID: "MESSAGE_ID", SyslogIdentifier: "SYSLOG_IDENTIFIER",
		Unit: "UNIT", Invocation: "INVOCATION_ID", ExitCode: "EXIT_CODE", ExitStatus: "EXIT_STATUS",
		Command: "COMMAND", UnitResult: "UNIT_RESULT", NRestarts: "N_RESTARTS", NDropped: "N_DROPPED",
		ObjectUnit: "OBJECT_SYSTEMD_UNIT", ContainerName: "CONTAINER_NAME", ContainerID: "CONTAINER_ID",
		ContainerIDFull: "CONTAINER_ID_FULL", ContainerPartial: "CONTAINER_PARTIAL_MESSAGE",
		ContainerPartialID: "CONTAINER_PARTIAL_ID", ContainerPartialOrdinal: "CONTAINER_PARTIAL_ORDINAL",
		ContainerPartialLast: "CONTAINER_PARTIAL_LAST", Priority: "PRIORITY",
		CoredumpUnit: "COREDUMP_UNIT", CoredumpPID: "COREDUMP_PID", CoredumpSignal: "COREDUMP_SIGNAL",
		CoredumpSignalName: "COREDUMP_SIGNAL_NAME",
	}
}

// String returns the field's name in the journal.
func (f Field) String() string {
	if f >= numFields {
		return "(unused field)"
	}
	return fieldNames()[f]
}
