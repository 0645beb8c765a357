package app

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
	"go.uber.org/zap/zaptest/observer"

	"github.com/startupd/startupd/pkg/phases"
	"github.com/startupd/startupd/pkg/triage"
)

// read writes snapshots of one unit and returns each line as level, message and
// some of its fields.
func read(targets ...phases.Target) []string {
	core, seen := observer.New(zapcore.InfoLevel)
	d := newDiary(zap.New(core))
	for _, t := range targets {
		t.Name = "a.service"
		d.write(&phases.Snapshot{Targets: []phases.Target{t}})
	}
	var out []string
	for _, e := range seen.All() {
		fields := e.ContextMap()
		line := e.Level.CapitalString() + " " + e.Message
		for _, key := range []string{"after", "took", "spawn", "phase", "reason", "how", "class", "exception", "process", "message", "remediation", "died_in", "new_errors", "restarts"} {
			if v, ok := fields[key]; ok {
				line += fmt.Sprintf(" %s=%v", key, v)
			}
		}
		if fields["unit"] != "a.service" {
			line += " without its unit"
		}
		out = append(out, line)
	}
	return out
}

// try is a startup that began at a moment and has entered the first n phases,
// ten seconds apart.
func try(invocation string, began time.Duration, n int) *phases.Startup {
	s := &phases.Startup{Invocation: invocation, Began: at(began)}
	for i, p := range phases.Phases()[:n] {
		s.Phases = append(s.Phases, phases.Phase{Phase: p, Entered: at(began + time.Duration(i)*10*time.Second), Seconds: 10, Done: i < n-1})
	}
	return s
}

func ended(s *phases.Startup, after time.Duration, o phases.Outcome, reason string) *phases.Startup {
	s.Ended, s.Outcome, s.Reason = at(s.Began.Sub(at(0))+after), o, reason
	return s
}

func running(s *phases.Startup) phases.Target {
	return phases.Target{State: s.Phases[len(s.Phases)-1].Phase, Startup: s}
}

func mismatch(provisional bool) *triage.RootCause {
	return &triage.RootCause{
		Class: "package_mismatch", Exception: "RuntimeError", Process: "APIServer", At: at(3 * time.Second), Provisional: provisional,
		Message: "flashinfer-cubin version (0.6.3) does not match", Remediation: "Install flashinfer-cubin 0.6.4.",
	}
}

const mismatchLine = " class=package_mismatch exception=RuntimeError process=APIServer message=flashinfer-cubin version (0.6.3) does not match remediation=Install flashinfer-cubin 0.6.4."

func TestDiaryOfAGoodStart(t *testing.T) {
	two := 2
	served := ended(try("01", 0, 5), 40*time.Second, phases.OutcomeServing, "ready")
	served.NewErrors = &two
	gone := *served
	gone.ServingEnded, gone.ServingEndReason = at(time.Hour), "killed"
	got := read(
		phases.Target{State: phases.Unknown},
		running(try("01", 0, 1)), running(try("01", 0, 1)),
		running(try("01", 0, 2)),
		running(try("01", 0, 4)), // two at once: snapshots coalesce
		running(served), running(served),
		phases.Target{State: phases.Failed, Startup: &gone},
	)
	want := []string{
		"INFO A start begins",
		"INFO Phase load after=10s",
		"INFO Phase compile after=20s",
		"INFO Phase cudagraph after=30s",
		"INFO The engine serves took=40s spawn=10s new_errors=2",
		"WARN The engine has served and is gone how=killed",
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}

func TestDiaryOfACrash(t *testing.T) {
	crashed := func() *phases.Startup {
		return ended(try("01", 0, 1), 4*time.Second, phases.OutcomeFailed, "exit-code")
	}
	failed := phases.Target{State: phases.Failed, Startup: crashed(), Last: crashed()}
	early, final, amended := failed, failed, failed
	early.Failure, final.Failure = mismatch(true), mismatch(false)
	amended.Failure = &triage.RootCause{Class: "host_oom", Process: "kernel", Message: "Out of memory: Killed process", At: at(2 * time.Second)}
	next := running(try("02", time.Minute, 1))
	next.Last, next.Failure = crashed(), amended.Failure
	got := read(running(try("01", 0, 1)), early, early, final, final, amended, next, next)
	want := []string{
		"INFO A start begins",
		"WARN The start has failed took=4s spawn=10s phase=spawn reason=exit-code",
		"WARN Root cause of the failed start" + mismatchLine,
		"WARN Late evidence amends the root cause of the failed start class=host_oom process=kernel message=Out of memory: Killed process",
		"INFO A start begins",
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}

// TestDiaryOfARestartLoop: restarts come so fast that no cause is ever final
// while its start is the present one, and that a start may end and the next begin
// between two snapshots. Every start gets its three lines all the same.
func TestDiaryOfARestartLoop(t *testing.T) {
	var ts []phases.Target
	const starts = 50
	for i := range starts {
		began := time.Duration(i) * time.Second
		s := running(try(fmt.Sprint(i), began, 1))
		if i > 0 {
			s.Last = ended(try(fmt.Sprint(i-1), began-time.Second, 1), 900*time.Millisecond, phases.OutcomeFailed, "exit-code")
			s.Failure = &triage.RootCause{Class: triage.ClassUnknown, Message: "no line of the log names a cause", DiedIn: "spawn", Provisional: true}
		}
		s.RestartLoop = i >= 3
		ts = append(ts, s, s)
		if i%2 == 0 {
			s.State, s.Startup = phases.Failed, ended(try(fmt.Sprint(i), began, 1), 900*time.Millisecond, phases.OutcomeFailed, "exit-code")
			s.Failure = &triage.RootCause{Class: triage.ClassUnknown, Message: "no line of the log names a cause", DiedIn: "spawn", Provisional: true}
			ts = append(ts, s)
		}
	}
	counts := map[string]int{}
	for _, line := range read(ts...) {
		for _, kind := range []string{"A start begins", "The start has failed", "Root cause", "restarts in a loop"} {
			if strings.Contains(line, kind) {
				counts[kind]++
				line = ""
			}
		}
		if line != "" {
			t.Errorf("one line too many: %s", line)
		}
	}
	want := map[string]int{"A start begins": starts, "The start has failed": starts - 1, "Root cause": starts - 1, "restarts in a loop": 1}
	if diff := cmp.Diff(want, counts); diff != "" {
		t.Error(diff)
	}
}

func TestDiaryOfAStall(t *testing.T) {
	stalled := running(try("01", 0, 2))
	stalled.Startup.Stalled, stalled.Startup.StalledReason = true, "weights: quiet for 5m0s"
	stalled.Startup.RootCause = &triage.RootCause{Class: "nccl_hang", Provisional: true, NotArrived: []string{"Worker_TP3"}}
	stopped := phases.Target{State: phases.Stopped, Startup: ended(try("01", 0, 2), time.Minute, phases.OutcomeStopped, "systemctl stop")}
	got := read(running(try("01", 0, 2)), stalled, stalled, running(try("01", 0, 2)), stalled, stopped)
	want := []string{
		"INFO A start is under way, in phase load",
		"WARN The start stalls phase=load reason=weights: quiet for 5m0s class=nccl_hang",
		"INFO The start goes on phase=load",
		"WARN The start stalls phase=load reason=weights: quiet for 5m0s class=nccl_hang",
		"INFO The start was stopped took=1m0s spawn=10s phase=load reason=systemctl stop",
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}

func TestDiaryOfWhatIsTakenBack(t *testing.T) {
	failed := phases.Target{State: phases.Failed, Startup: ended(try("01", 0, 2), 15*time.Second, phases.OutcomeFailed, "a line")}
	got := read(running(try("01", 0, 1)), running(try("01", 0, 2)), running(try("01", 0, 1)), running(try("01", 0, 2)), failed, running(try("01", 0, 2)))
	want := []string{
		"INFO A start begins",
		"INFO Phase load after=10s",
		"INFO Phase load is taken back: later evidence is against it phase=spawn",
		"INFO Phase load after=10s",
		"WARN The start has failed took=15s spawn=10s phase=load reason=a line",
		"INFO The start goes on: what ended it is taken back phase=load",
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}

// TestDiaryOfTheDaemonsOwnRestart: what was over before is one line, not a story.
func TestDiaryOfTheDaemonsOwnRestart(t *testing.T) {
	got := read(running(ended(try("01", 0, 5), 40*time.Second, phases.OutcomeServing, "ready")))
	if want := []string{"INFO The engine serves took=40s spawn=10s"}; !cmp.Equal(want, got) {
		t.Error(cmp.Diff(want, got))
	}
}

// TestDiaryForgetsUnits: a unit that a reload drops and brings back begins anew.
func TestDiaryForgetsUnits(t *testing.T) {
	core, seen := observer.New(zapcore.InfoLevel)
	d := newDiary(zap.New(core))
	with := running(try("01", 0, 1))
	with.Name = "a.service"
	for _, targets := range [][]phases.Target{{with}, nil, {with}} {
		d.write(&phases.Snapshot{Targets: targets})
	}
	if n := seen.FilterMessage("A start begins").Len(); n != 2 || len(d.pages) != 1 {
		t.Errorf("%d lines, want 2; %d pages", n, len(d.pages))
	}
}

// TestDiaryIsSafeToPrint: a log's text can neither break startupd's log nor
// steer a terminal that shows it.
func TestDiaryIsSafeToPrint(t *testing.T) {
	evil := "a\x1b[2J\u009b31m\nstartupd: all is well\x00" + strings.Repeat("x", 2000)
	for _, format := range []string{"console", "json"} {
		var b bytes.Buffer
		log, err := NewLogger(&b, "info", format)
		if err != nil {
			t.Fatal(err)
		}
		newDiary(log).write(&phases.Snapshot{Targets: []phases.Target{{
			Name: "a.service", State: phases.Failed, Failure: &triage.RootCause{Class: "unknown", Exception: evil, Process: evil, Message: evil, Remediation: evil},
			Startup: ended(try("01", 0, 1), time.Second, phases.OutcomeStopped, evil),
		}}})
		text := b.String()
		if n := strings.Count(text, "\n"); n != 2 {
			t.Errorf("%s: %d lines, want 2:\n%s", format, n, text)
		}
		if strings.ContainsAny(text, "\x1b\u009b\x00") {
			t.Errorf("%s: control characters in %q", format, text)
		}
		for line := range strings.Lines(text) {
			if len(line) > 5*maxLogged {
				t.Errorf("%s: a line of %d bytes", format, len(line))
			}
			if format == "json" && !json.Valid([]byte(line)) {
				t.Errorf("no JSON: %s", line)
			}
		}
	}
}

func TestNoDiaryInAReplay(t *testing.T) {
	var d *diary
	d.write(&phases.Snapshot{Targets: []phases.Target{running(try("01", 0, 1))}})
	if a := begin(t, nil); a.diary != nil {
		t.Error("a replay's player and the log would both tell")
	}
}
