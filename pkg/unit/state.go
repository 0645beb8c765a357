package unit

import (
	"encoding/hex"
	"regexp"
	"strings"
	"time"

	"github.com/startupd/startupd/pkg/event"
)

// unitState reads the D-Bus properties of org.freedesktop.systemd1.Unit and
// .Service. A property that is absent, as with units that are no service, is
// the zero value.
func unitState(props map[string]any, boot string) event.UnitState {
	load := text(props, "LoadState")
	return event.UnitState{
		Loaded:       load != "" && load != "not-found",
		ActiveState:  text(props, "ActiveState"),
		SubState:     text(props, "SubState"),
		Invocation:   invocation(props),
		MainPID:      int(number(props, "MainPID")),
		Restarts:     int(number(props, "NRestarts")),
		ControlGroup: text(props, "ControlGroup"),
		Result:       text(props, "Result"),
		ExecStart:    execStart(props),
		ActiveEnter:  stamp(props, "ActiveEnterTimestamp", boot),
		InactiveExit: stamp(props, "InactiveExitTimestamp", boot),
	}
}

func text(props map[string]any, name string) string {
	s, _ := props[name].(string)
	return strings.ToValidUTF8(s, "\uFFFD")
}

func number(props map[string]any, name string) uint64 {
	switch n := props[name].(type) {
	case uint32:
		return uint64(n)
	case uint64:
		return n
	}
	return 0
}

// stamp reads a time that systemd gives on both clocks, in microseconds since
// 1970 and since the present boot; 0 means never.
func stamp(props map[string]any, name, boot string) event.Stamp {
	realtime := number(props, name)
	mono := number(props, name+"Monotonic")
	var s event.Stamp
	if realtime != 0 {
		s.Real = time.UnixMicro(int64(realtime))
	}
	if mono != 0 && boot != "" {
		s.Boot, s.Mono = boot, time.Duration(mono)*time.Microsecond
	}
	return s
}

func invocation(props map[string]any) string {
	id, _ := props["InvocationID"].([]byte)
	for _, b := range id {
		if b != 0 {
			return hex.EncodeToString(id)
		}
	}
	return ""
}

// execStart joins the arguments of the first ExecStart command. The property's
// type is a(sasbttttuii): path, argv, and how the last run went.
func execStart(props map[string]any) string {
	commands, _ := props["ExecStart"].([][]any)
	if len(commands) == 0 || len(commands[0]) < 2 {
		return ""
	}
	argv, _ := commands[0][1].([]string)
	return strings.ToValidUTF8(strings.Join(masked(argv), " "), "\uFFFD")
}

// masked hides the values of arguments whose name says that they are secret:
// a command line ends up in recordings.
func masked(argv []string) []string {
	secret := regexp.MustCompile(`(?i)(^|[-_])(api[-_]?key|token|secret|password|passwd)$`)
	out := make([]string, len(argv))
	hide := false
	for i, arg := range argv {
		name, _, isPair := strings.Cut(arg, "=")
		switch {
		case hide:
			arg, hide = "***", false
		case isPair && secret.MatchString(name):
			arg = name + "=***"
		case strings.HasPrefix(arg, "-") && !isPair:
			hide = secret.MatchString(arg)
		}
		out[i] = arg
	}
	return out
}
