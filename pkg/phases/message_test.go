package phases

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"

	"github.com/startupd/startupd/pkg/event"
	"github.com/startupd/startupd/pkg/triage"
)

// crash plays a start that begins at from and dies of a record within a second.
// It returns each message that a scrape could have seen meanwhile.
func (s *script) crash(n int, from float64, record string) map[string]bool {
	s.t.Helper()
	seen := map[string]bool{}
	look := func() {
		if m := s.target().FailureMessage; m != "" {
			seen[m] = true
		}
	}
	s.inv = fmt.Sprintf("%032x", n+1)
	s.line(from, lineVersion)
	look()
	for _, line := range strings.Split(record, "\n") {
		s.line(from+0.2, "(EngineCore_DP0 pid=200) ERROR 03-01 23:30:30 [core.py:708] "+line)
		look()
	}
	s.message(from+0.4, event.UnitMessage{Message: event.ProcessExit, Command: "ExecStart", ExitCode: "exited", ExitStatus: "1"})
	look()
	s.message(from+0.5, event.UnitMessage{Message: event.FailureResult, Result: "exit-code"})
	look()
	return seen
}

func traceback(message string) string {
	return "EngineCore failed to start.\nTraceback (most recent call last):\n" +
		"  File \"/opt/vllm/vllm/v1/engine/core.py\", line 994, in run_engine_core\n    engine_core = EngineCoreProc(*args)\n" + message
}

// TestMessageOfOneErrorStays crashes 5,000 times of one error, each time with
// other numbers: what was said first is shown the whole time, also while the
// evidence is not complete, and after restarts of the daemon.
func TestMessageOfOneErrorStays(t *testing.T) {
	const starts = 5000
	s := newScript(t)
	seen := map[string]bool{}
	var after10 int
	for i := range starts {
		record := traceback(fmt.Sprintf("RuntimeError: NCCL port %d is taken by pid %d, 0x%x", 20000+i, i, i*4096))
		for m := range s.crash(i, float64(i)*3, record) {
			seen[m] = true
		}
		s.tick(float64(i)*3 + 2.9)
		seen[s.target().FailureMessage] = true
		if i == 10 {
			after10 = len(seen)
		}
		if i%500 == 499 {
			s = s.restarted()
		}
	}
	if got := s.target().FailureMessage; got != "RuntimeError: NCCL port 20000 is taken by pid 0, 0x0" {
		t.Errorf("shown at the end: %q", got)
	}
	// One that is not whole yet is another error for a moment.
	if len(seen) != after10 || len(seen) > 3 {
		t.Errorf("%d messages were shown, %d in the first ten starts", len(seen), after10)
	}

	s.crash(starts, starts*3, traceback("ValueError: the model has no weights"))
	if got := s.target().FailureMessage; got != "ValueError: the model has no weights" {
		t.Errorf("of another error: %q", got)
	}
	s.inv = other
	s.goodStart(starts*3 + 10)
	s.tick(starts*3 + 1000)
	if got := s.target(); got.State != Serving || got.FailureMessage != "" {
		t.Errorf("%s shows %q", got.State, got.FailureMessage)
	}
	s.crash(starts+1, starts*3+2000, traceback("RuntimeError: NCCL port 5 is taken by pid 6, 0x7"))
	if got := s.target().FailureMessage; got != "RuntimeError: NCCL port 5 is taken by pid 6, 0x7" {
		t.Errorf("after a start that served: %q", got)
	}
}

// TestMessageOfAnAmendedCauseStays: what looks like the cause for a moment comes
// back each time, too.
func TestMessageOfAnAmendedCauseStays(t *testing.T) {
	s := newScript(t)
	seen := map[string]bool{}
	for i := range 50 {
		from := float64(i) * 10
		for m := range s.crash(i, from, traceback(fmt.Sprintf("RuntimeError: worker %d is gone", i))) {
			seen[m] = true
		}
		// systemd tells of it after the unit's end.
		s.message(from+1, event.UnitMessage{Message: event.OutOfMemory, Text: fmt.Sprintf("llm.service: process %d was killed by the OOM killer", i)})
		seen[s.target().FailureMessage] = true
		s.tick(from + 5)
		seen[s.target().FailureMessage] = true
	}
	got := s.target()
	if got.Failure.Class != "host_oom" || got.FailureMessage != "llm.service: process 0 was killed by the OOM killer" {
		t.Errorf("%s: %q", got.Failure.Class, got.FailureMessage)
	}
	if len(seen) > 4 || !seen["RuntimeError: worker 0 is gone"] {
		t.Errorf("shown: %q", slices.Collect(maps.Keys(seen)))
	}
}

// restarted is the script with a host that an earlier one's state was given to.
func (s *script) restarted() *script {
	s.t.Helper()
	b, err := json.Marshal(s.host.Save())
	if err != nil {
		s.t.Fatal(err)
	}
	var saved Saved
	if err := json.Unmarshal(b, &saved); err != nil {
		s.t.Fatal(err)
	}
	next := newScript(s.t)
	next.host.Restore(saved)
	if diff := cmp.Diff(s.host.Save(), next.host.Save()); diff != "" {
		s.t.Errorf("a restart changes the state: %s", diff)
	}
	return next
}

// TestMessageHidesSecrets: whoever may scrape reads it.
func TestMessageHidesSecrets(t *testing.T) {
	s := newScript(t)
	const token = "hf_AbCdEfGhIjKlMnOpQrStUvWxYz012345"
	s.crash(0, 0, traceback("OSError: 401 for https://user:pa55word@models.example/kimi with token "+token+" and more"))
	got := s.target().FailureMessage
	if !strings.HasPrefix(got, "OSError: 401") || strings.Contains(got, token) || strings.Contains(got, "pa55word") {
		t.Errorf("shown: %q", got)
	}
}

// TestMessageWithoutACause: what is known is said, and is no line of the log.
func TestMessageWithoutACause(t *testing.T) {
	s := newScript(t)
	s.line(0, lineVersion)
	if got := s.target(); got.Failure != nil || got.FailureMessage != "" {
		t.Errorf("while it starts: %v %q", got.Failure, got.FailureMessage)
	}
	s.message(1, event.UnitMessage{Message: event.ProcessExit, Command: "ExecStart", ExitCode: "exited", ExitStatus: "1"})
	s.message(1, event.UnitMessage{Message: event.FailureResult, Result: "exit-code"})
	got := s.target()
	if got.Failure == nil || got.Failure.Class != triage.ClassUnknown || got.FailureMessage != got.Failure.Message {
		t.Errorf("%+v %q", got.Failure, got.FailureMessage)
	}
}

// TestMessagesAreBounded fails of ever other errors.
func TestMessagesAreBounded(t *testing.T) {
	m := NewMachine(Config{Name: unit})
	for i := range 1000 {
		c := &triage.RootCause{Fingerprint: fmt.Sprint("v1:", i), Message: fmt.Sprint("number ", i)}
		again := &triage.RootCause{Fingerprint: c.Fingerprint, Message: "again"}
		if got, want := m.failureMessage(c), fmt.Sprint("number ", i); got != want || m.failureMessage(again) != want {
			t.Fatalf("%q, then %q, want %q", got, m.failureMessage(again), want)
		}
		// One that comes again and again is not forgotten for all the others.
		if got := m.failureMessage(&triage.RootCause{Fingerprint: "v1:often", Message: fmt.Sprint("often ", i)}); got != "often 0" {
			t.Fatalf("%q, want the first one", got)
		}
	}
	if len(m.messages) != maxMessages {
		t.Errorf("%d are kept", len(m.messages))
	}
	// A state file that somebody has made longer.
	if got := restoreMessages(make([]SavedMessage, 1000)); len(got) != maxMessages {
		t.Errorf("%d are restored", len(got))
	}
}

// TestMessageIsCheap: each line of any unit makes a snapshot of all.
func TestMessageIsCheap(t *testing.T) {
	m := NewMachine(Config{Name: unit})
	c := &triage.RootCause{Class: triage.ClassUnknown, Message: "no line of the log names a cause"}
	m.failureMessage(c)
	if n := testing.AllocsPerRun(100, func() { m.failureMessage(c) }); n > 0 {
		t.Errorf("%v allocations for a cause that is told again", n)
	}
}

func TestOneLine(t *testing.T) {
	long := strings.Repeat("ä", 300)
	for text, want := range map[string]string{
		"":                                     "",
		" \r\n\t ":                             "",
		"a\nb\r\n  c\td":                       "a b c d",
		"\x1b[31mred\x1b[0m\x00":               "[31mred [0m",
		"a\u2028b\u202ec\u200bd\u00a0e\ufefff": "a b c d e f",
		"bad \xff\xfe utf-8":                   "bad \uFFFD utf-8",
		long:                                   long[:256],
		"x" + long:                             "x" + long[:254],
		strings.Repeat("a", 256):               strings.Repeat("a", 256),
		`quote " back \ slash } brace`:         `quote " back \ slash } brace`,
		strings.Repeat("\n", 70000) + "last words": "last words",
	} {
		got := oneLine(text)
		if got != want || len(got) > maxMessage || !utf8.ValidString(got) {
			t.Errorf("oneLine(%.40q) = %q, want %q", text, got, want)
		}
	}
}
