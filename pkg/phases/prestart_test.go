package phases

import (
	"strings"
	"testing"

	"github.com/startupd/startupd/pkg/event"
	"github.com/startupd/startupd/pkg/triage"
)

// failPreStart plays what systemd writes when an ExecStartPre= command fails.
func (s *script) failPreStart(sec float64) {
	s.message(sec, event.UnitMessage{Message: event.ProcessExit, Command: "ExecStartPre", ExitCode: "exited", ExitStatus: "1", Text: unit + ": Control process exited, code=exited, status=1/FAILURE"})
	s.message(sec+0.01, event.UnitMessage{Message: event.FailureResult, Result: "exit-code", Text: unit + ": Failed with result 'exit-code'."})
	s.message(sec+0.02, event.UnitMessage{Message: event.StartFailed, Text: "Failed to start " + unit})
}

func precheck(class, text string) event.UnitMessage {
	return event.UnitMessage{Message: event.Precheck, Result: class, Text: text}
}

func TestPreStartFails(t *testing.T) {
	const held = "GPU 3 needs 0.90 x 95.0 GiB = 85.5 GiB, 61.2 GiB free"
	for _, c := range []struct {
		name    string
		before  func(s *script)
		class   string
		message string
	}{
		{"nobody says why", func(*script) {}, triage.ClassUnknown, "the check before the start (ExecStartPre=) failed (exited, status 1)"},
		{"our own check says why", func(s *script) { s.message(1, precheck("gpu_memory_occupied", held)) }, "gpu_memory_occupied", "the check before the start failed: " + held},
		{"and knows no class", func(s *script) { s.message(1, precheck("", held)) }, triage.ClassUnknown, "failed: " + held},
		{"a class that nobody knows", func(s *script) { s.message(1, precheck("made_up", held)) }, triage.ClassUnknown, "failed: " + held},
		{"another command's own line says why", func(s *script) { s.line(1, "cp: error: No space left on device") }, "disk_full", "No space left"},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := newScript(t)
			s.message(0, event.UnitMessage{Message: event.Starting})
			c.before(s)
			s.failPreStart(2)
			s.tick(10)
			s.wantState(Failed)
			s.wantCounts(0, 1, 0)
			st := s.startup()
			if !strings.HasPrefix(st.Reason, "it ended before it was ready: its ExecStartPre= failed (exited, status 1)") {
				t.Errorf("reason %q", st.Reason)
			}
			r := st.RootCause
			if r == nil || r.Class != c.class || !strings.Contains(r.Message, c.message) || r.Provisional {
				t.Fatalf("root cause %+v, want class %s and %q", r, c.class, c.message)
			}
			if r.Class == triage.ClassUnknown && (r.ExitStatus != "exited, status 1" || r.DiedIn != "spawn") {
				t.Errorf("exit status %q, died in %q", r.ExitStatus, r.DiedIn)
			}
			if c.class == "gpu_memory_occupied" && (r.Remediation == "" || r.Process != "ExecStartPre") {
				t.Errorf("remediation %q, process %q", r.Remediation, r.Process)
			}
		})
	}
}

// A check that finds fault does not fail a start that systemd goes on with
// (ExecStartPre=-...).
func TestPrecheckAloneFailsNothing(t *testing.T) {
	s := newScript(t)
	s.message(0, event.UnitMessage{Message: event.Starting})
	s.message(0.5, precheck("gpu_memory_occupied", "no room"))
	s.goodStart(1)
	s.wantState(Serving)
	if st := s.startup(); len(st.Findings) != 0 && st.Findings[0].Class == "gpu_memory_occupied" {
		t.Errorf("findings %+v", st.Findings)
	}
}

// Of a start without "Starting ..." the check's line, or the command's end, is the
// first that is heard; each attempt is a start of its own.
func TestPreStartOpensAStart(t *testing.T) {
	s := newScript(t)
	s.message(0, precheck("port_in_use", "0.0.0.0:8000 is taken"))
	s.wantState(Spawn)
	s.failPreStart(1)
	s.wantState(Failed)
	s.inv = other
	s.failPreStart(40)
	s.tick(50)
	s.wantState(Failed)
	s.wantCounts(0, 2, 0)
	if r := s.startup().RootCause; r.Class != triage.ClassUnknown {
		t.Errorf("the second attempt has the first one's cause: %+v", r)
	}
	// A line of the first attempt that comes late opens nothing.
	s.inv = first
	s.message(51, precheck("port_in_use", "0.0.0.0:8000 is taken"))
	s.wantCounts(0, 2, 0)
}

// A stop that comes while the check waits is a stop.
func TestStopDuringPreStart(t *testing.T) {
	s := newScript(t)
	s.message(0, event.UnitMessage{Message: event.Starting})
	s.message(5, event.UnitMessage{Message: event.Stopping})
	s.message(6, event.UnitMessage{Message: event.ProcessExit, Command: "ExecStartPre", ExitCode: "killed", ExitStatus: "15/TERM"})
	s.tick(10)
	s.wantState(Stopped)
	s.wantCounts(0, 0, 1)
}
