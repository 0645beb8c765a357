package phases

import (
	"fmt"
	"strings"
	"testing"

	"github.com/startupd/startupd/pkg/event"
)

// control is the end of one of the unit's other commands.
func control(command, code, status string) event.UnitMessage {
	return event.UnitMessage{Message: event.ProcessExit, Command: command, ExitCode: code, ExitStatus: status, Text: "llm.service: Control process exited, code=" + code + ", status=" + status}
}

// hangs plays a start up to its capture, and returns when its budget is over.
func (s *script) hangs() float64 {
	for i, l := range []string{lineVersion, lineLoad, lineLoaded, lineKV, lineCapture} {
		s.line(float64(i), l)
	}
	_, limit := s.host.order[0].budget()
	return 4 + limit.Seconds()
}

// A start that its ExecStartPost= has given up has failed of what made it do so,
// and not of the signal that systemd then sends.
func TestGivenUp(t *testing.T) {
	const gaveUp, ended = "its ExecStartPost= gave it up (exited, status ", "its ExecStartPost= was ended ("
	const sigterm = "(APIServer pid=100) INFO 03-01 23:50:00 [launcher.py:110] Shutting down FastAPI HTTP server."
	for _, c := range []struct {
		name    string
		play    func(s *script) float64
		command event.UnitMessage
		want    string
		reason  string
	}{
		{"while it hangs", (*script).hangs, control("ExecStartPost", "exited", "4"), "cudagraph_hang", gaveUp},
		{"while it hangs, of a script", (*script).hangs, control("ExecStartPost", "exited", "1"), "cudagraph_hang", gaveUp},
		{"by a text", (*script).hangs, control(event.ControlProcess, "exited", "4"), "cudagraph_hang", gaveUp},
		{"when its time was over", func(s *script) float64 { return s.hangs() - 30 }, control("ExecStartPost", "exited", "3"), "startup_timeout", gaveUp},
		{"of an error", func(s *script) float64 {
			s.line(0, lineLoad)
			s.line(1, lineOOM)
			return 2
		}, control("ExecStartPost", "exited", "1"), "gpu_oom_weights", gaveUp},
		{"for no reason that is known", func(s *script) float64 {
			s.line(0, lineLoad)
			return 2
		}, control("ExecStartPost", "exited", "1"), "unknown", gaveUp},
		{"by a signal, as the kernel killed a worker", func(s *script) float64 {
			s.line(0, lineLoad)
			s.kernel(1, fmt.Sprintf(kernelOOM, workerPID))
			s.message(1.1, event.UnitMessage{Message: event.OutOfMemory, Text: "llm.service: A process of this unit has been killed by the OOM killer."})
			return 1.2
		}, control("ExecStartPost", "killed", "15/TERM"), "host_oom", ended},
		{"by systemd's own limit", func(s *script) float64 {
			s.line(0, lineLoad)
			s.message(90, event.UnitMessage{Message: event.TimedOut, Text: "llm.service: start-post operation timed out. Terminating."})
			return 90.1
		}, control("ExecStartPost", "exited", "5"), "startup_timeout", ended},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := newScript(t)
			sec := c.play(s)
			s.message(sec, c.command)
			if st := s.startup(); st.Outcome != OutcomeNone || st.Exited {
				t.Fatalf("the end of a control process made it %q, exited %v", st.Outcome, st.Exited)
			}
			s.line(sec+0.5, sigterm)
			s.exit(sec+1, "killed", "15/TERM")
			s.message(sec+1, event.UnitMessage{Message: event.FailureResult, Result: "exit-code"})
			s.tick(sec + 5)
			st := s.startup()
			if st.Outcome != OutcomeFailed || !st.Exited || !st.Final || st.RootCause.Class != c.want {
				t.Errorf("%q, exited %v, final %v, of %+v; want %s", st.Outcome, st.Exited, st.Final, st.RootCause, c.want)
			}
			if !strings.Contains(st.Reason, c.reason) {
				t.Errorf("reason %q", st.Reason)
			}
		})
	}
}

// What is no giving up leaves the start, and its judgement, as they are.
func TestNotGivenUp(t *testing.T) {
	for _, c := range []struct {
		name    string
		command event.UnitMessage
		after   bool // the main process has ended first
	}{
		{"another command", control("ExecStartPre", "exited", "1"), false},
		{"a success", control("ExecStartPost", "exited", "0"), false},
		{"after the main process", control("ExecStartPost", "exited", "1"), true},
		{"a text's, before the engine", control(event.ControlProcess, "exited", "1"), false},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := newScript(t)
			s.message(0, event.UnitMessage{Message: event.Starting})
			if c.command.Command != event.ControlProcess {
				s.line(1, lineLoad)
			}
			if !c.after {
				s.message(2, c.command)
			}
			s.exit(3, "killed", "9/KILL")
			if c.after {
				s.message(3, c.command)
			}
			s.message(3, event.UnitMessage{Message: event.FailureResult, Result: "signal"})
			if st := s.startup(); st.RootCause == nil || st.RootCause.Class != "killed_externally" || strings.Contains(st.Reason, "ExecStartPost") {
				t.Errorf("%q: %+v", st.Reason, st.RootCause)
			}
		})
	}
}

// A stop that was asked for ends ExecStartPost= too, and stays a stop.
func TestStopEndsControl(t *testing.T) {
	s := newScript(t)
	s.line(0, lineLoad)
	s.message(1, event.UnitMessage{Message: event.Stopping})
	s.message(2, control("ExecStartPost", "killed", "15/TERM"))
	s.exit(2, "killed", "15/TERM")
	if st := s.startup(); st.Outcome != OutcomeStopped {
		t.Errorf("%q: %s", st.Outcome, st.Reason)
	}
}

// The daemon that was restarted after it judges the same from the journal.
func TestGivenUpReplayed(t *testing.T) {
	s := newScript(t)
	s.host = NewHost(HostOptions{Journal: true}, s.host.order[0].cfg)
	sec := s.hangs()
	s.message(sec, control("ExecStartPost", "exited", "4"))
	s.exit(sec+1, "killed", "15/TERM")
	if st := s.startup(); st.RootCause == nil || st.RootCause.Class != "cudagraph_hang" {
		t.Errorf("%q: %+v", st.Reason, st.RootCause)
	}
}

// Of a unit that is being started systemd does not say that it stops it.
func TestStoppedWhileActivating(t *testing.T) {
	begin := func(t *testing.T) *script {
		s := newScript(t)
		s.message(0, event.UnitMessage{Message: event.Starting})
		s.line(1, lineLoad)
		return s
	}
	ends := func(s *script) {
		s.exit(5, "killed", "15/TERM")
		s.message(5.1, control("ExecStartPost", "exited", "5"))
		s.message(5.2, event.UnitMessage{Message: event.FailureResult, Result: "exit-code"})
	}
	for _, c := range []struct {
		name string
		play func(s *script)
		want Outcome
		// settled is when it is counted.
		settled float64
	}{
		{"stopped", func(s *script) { ends(s); s.message(5.3, event.UnitMessage{Message: event.Stopped}) }, OutcomeStopped, 5.3},
		{"failed", func(s *script) { ends(s); s.message(5.3, event.UnitMessage{Message: event.StartFailed}) }, OutcomeFailed, 5.3},
		{"failed, and restarted", func(s *script) {
			ends(s)
			s.message(5.3, event.UnitMessage{Message: event.StartFailed})
			s.message(5.4, event.UnitMessage{Message: event.RestartScheduled})
			s.message(5.4, event.UnitMessage{Message: event.Stopped})
		}, OutcomeFailed, 5.4},
		{"nothing more is told", func(s *script) { ends(s); s.tick(6.3) }, OutcomeFailed, 6.3},
		{"no end of the unit is told", func(s *script) { s.exit(5, "killed", "15/TERM"); s.tick(306) }, OutcomeFailed, 306},
		{"stopped, after a long ExecStopPost=", func(s *script) {
			s.message(4, control("ExecStartPost", "killed", "15/TERM"))
			s.exit(5, "exited", "1")
			s.tick(60)
			s.message(61, event.UnitMessage{Message: event.FailureResult, Result: "signal"})
			s.message(61.1, event.UnitMessage{Message: event.Stopped})
		}, OutcomeStopped, 61.1},
		{"D-Bus alone tells of the unit's end", func(s *script) {
			s.exit(5, "exited", "1")
			s.apply(61, &event.UnitState{Loaded: true, ActiveState: "failed", SubState: "failed", Invocation: first, Result: "exit-code"})
			s.tick(62)
			s.tick(63)
		}, OutcomeFailed, 63},
		{"failed, after a long ExecStopPost=", func(s *script) {
			s.exit(5, "exited", "1")
			s.tick(60)
			s.message(61, event.UnitMessage{Message: event.FailureResult, Result: "exit-code"})
			s.message(61.1, event.UnitMessage{Message: event.StartFailed})
		}, OutcomeFailed, 61.1},
		{"stopped too late", func(s *script) { ends(s); s.tick(6.3); s.message(6.4, event.UnitMessage{Message: event.Stopped}) }, OutcomeFailed, 6.4},
		{"stopped by itself", func(s *script) {
			s.message(5, control("ExecStartPost", "killed", "15/TERM"))
			s.exit(5, "exited", "0")
			s.message(5.2, event.UnitMessage{Message: event.Succeeded})
			s.message(5.3, event.UnitMessage{Message: event.Stopped})
		}, OutcomeStopped, 5.3},
		{"a fatal line came first", func(s *script) {
			s.line(2, lineWrapper)
			ends(s)
			s.message(5.3, event.UnitMessage{Message: event.Stopped})
		}, OutcomeFailed, 5.3},
		{"it has started", func(s *script) {
			s.message(3, event.UnitMessage{Message: event.Started})
			ends(s)
			s.message(5.3, event.UnitMessage{Message: event.Stopped})
		}, OutcomeFailed, 5.3},
		{"D-Bus tells", func(s *script) {
			s.apply(4, &event.UnitState{Loaded: true, ActiveState: "deactivating", SubState: "stop-sigterm", Invocation: first, MainPID: 100, Result: "success"})
			s.exit(5, "killed", "15/TERM")
		}, OutcomeStopped, 5},
		{"D-Bus tells of a failure", func(s *script) {
			s.apply(4, &event.UnitState{Loaded: true, ActiveState: "deactivating", SubState: "stop-sigterm", Invocation: first, MainPID: 100, Result: "exit-code"})
			ends(s)
			s.message(5.3, event.UnitMessage{Message: event.StartFailed})
		}, OutcomeFailed, 5.3},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := begin(t)
			c.play(s)
			st, n := s.startup(), s.target().Counters.Startups
			if st.Outcome != c.want || s.now != c.settled || n[c.want] != 1 || n[OutcomeFailed]+n[OutcomeStopped] != 1 {
				t.Errorf("%q (%s) at %v s, counted %v; want %s at %v s", st.Outcome, st.Reason, s.now, n, c.want, c.settled)
			}
			if (st.RootCause != nil) != (c.want == OutcomeFailed) {
				t.Errorf("root cause %+v of a start that was %s", st.RootCause, st.Outcome)
			}
		})
	}
}
