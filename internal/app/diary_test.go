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
		"INFO The engine has served and is gone how=killed",
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
		"INFO The start has failed took=4s spawn=10s phase=spawn reason=exit-code",
		"INFO Root cause of the failed start" + mismatchLine,
		"INFO Late evidence amends the root cause of the failed start class=host_oom process=kernel message=Out of memory: Killed process",
		"INFO A start begins",
	}
	if diff := cmp.Diff(want, got); diff != "" {
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
		"INFO The start stalls phase=load reason=weights: quiet for 5m0s class=nccl_hang",
		"INFO The start goes on phase=load",
		"INFO The start stalls phase=load reason=weights: quiet for 5m0s class=nccl_hang",
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
		"INFO The start has failed took=15s spawn=10s phase=load reason=a line",
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
	for _, format := range []string{"console", "json", "journal"} {
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
