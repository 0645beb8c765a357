package wait

import (
	"bytes"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/startupd/startupd/internal/app/explain"
	"github.com/startupd/startupd/pkg/web/api"
)

func ptr[T any](v T) *T { return &v }

var noon = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)

// oom is a start that failed while it loaded.
func oom() *api.Startup {
	return &api.Startup{
		Unit: unit, Invocation: first, Outcome: api.Failed, Phase: "load", Step: "weights", Seconds: ptr(72.4), Began: noon, Exited: true,
		Phases: []api.Phase{
			{Phase: "spawn", Entered: noon, Seconds: ptr(21.0), Done: true},
			{Phase: "load", Entered: noon.Add(21 * time.Second), Seconds: ptr(51.4)},
		},
		RootCause: &api.RootCause{
			Class: "gpu_oom", Exception: "OutOfMemoryError", Message: "out of memory\x1b[2J\nand more", Process: "Worker_TP0", Remediation: "Use more GPUs.", Provisional: true,
		},
	}
}

func TestWriteLines(t *testing.T) {
	hang := oom()
	hang.Outcome, hang.RootCause = api.Stalled, &api.RootCause{Class: "nccl_hang", Message: "nccl==2.27.5", NotArrived: []string{"Worker_TP1", "Worker_TP3"}}
	unknown := oom()
	unknown.RootCause = &api.RootCause{Class: "unknown", Message: "no line of the log names a cause", ExitStatus: "exited, status 1"}
	good := oom()
	good.Outcome, good.Phase, good.RootCause, good.Seconds = api.Serving, api.Serving, nil, ptr(72.4)
	for _, tt := range []struct {
		name string
		r    Result
		want string
	}{
		{"failed", Result{Unit: unit, Verdict: Failed, Startup: oom()}, `llm.service took spawn 21 s, load 51 s
more: startupd explain --unit llm.service --invocation 11111111111111111111111111111111
llm.service FAILED in load/weights after 1m12s: gpu_oom (so far)
  Worker_TP0: OutOfMemoryError: out of memory\x1b[2J and more
  do: Use more GPUs.
`},
		{"stalled", Result{Unit: unit, Verdict: Stalled, Startup: hang}, `llm.service took spawn 21 s, load 51 s
more: startupd explain --unit llm.service --invocation 11111111111111111111111111111111
llm.service STALLED in load/weights after 1m12s: nccl_hang
  nccl==2.27.5
  not arrived: Worker_TP1 Worker_TP3
`},
		{"failed of nothing known", Result{Unit: unit, Verdict: Failed, Startup: unknown}, `llm.service took spawn 21 s, load 51 s
more: startupd explain --unit llm.service --invocation 11111111111111111111111111111111
llm.service FAILED in load/weights after 1m12s: cause unknown
  no line of the log names a cause (main process exited, status 1)
`},
		{"serving", Result{Unit: unit, Verdict: Reached, Startup: good}, `llm.service took spawn 21 s, load 51 s
llm.service SERVING after 1m12s
`},
		{"out of time", Result{Unit: unit, Verdict: TimedOut, Reason: "the 3 s to wait are over"}, "llm.service NOT READY: the 3 s to wait are over\n"},
	} {
		var b bytes.Buffer
		if err := tt.r.WriteLines(&b); err != nil {
			t.Fatal(err)
		}
		want := "startupd: " + strings.ReplaceAll(strings.TrimSuffix(tt.want, "\n"), "\n", "\nstartupd: ") + "\n"
		if diff := cmp.Diff(want, b.String()); diff != "" {
			t.Errorf("%s:\n%s", tt.name, diff)
		}
	}
	r := Result{Unit: unit, Verdict: Failed, Startup: oom()}
	if got, want := r.Status(), `llm.service FAILED in load/weights after 1m12s: gpu_oom (so far): OutOfMemoryError: out of memory\x1b[2J and more`; got != want {
		t.Errorf("status %q", got)
	}
}

func TestWriteText(t *testing.T) {
	var b bytes.Buffer
	r := Result{Unit: unit, Verdict: Failed, Startup: oom()}
	if err := r.WriteText(&b, explain.TextOptions{Width: 80}); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"startup, began 2026-03-01 12:00:00 UTC", "FAILED in load/weights after 1m12s", "CAUSE SO FAR  gpu_oom, OutOfMemoryError", "Worker_TP0", "do       Use more GPUs.", "load   12:00:21  51.4s"} {
		if !strings.Contains(b.String(), want) {
			t.Errorf("no %q in\n%s", want, b.String())
		}
	}
	if strings.Contains(b.String(), "\x1b") {
		t.Errorf("the log moves the cursor: %q", b.String())
	}
	b.Reset()
	r = Result{Unit: unit, Verdict: Stopped, Reason: "it does not run"}
	if err := r.WriteText(&b, explain.TextOptions{}); err != nil || b.String() != "llm.service STOPPED: it does not run\n" {
		t.Errorf("%v: %q", err, b.String())
	}
}

func TestProgressLines(t *testing.T) {
	var b bytes.Buffer
	l := &Lines{Out: &b, Unit: unit}
	l.Note("no daemon runs here; the journal is followed here instead")
	l.Show(nil, noon)
	s := oom()
	s.Phases = s.Phases[:1]
	l.Show(s, noon)
	l.Show(oom(), noon)
	slow := oom()
	slow.Slow = true
	l.Show(slow, noon)
	l.Show(slow, noon)
	again := oom()
	again.Generation = 1
	again.Phases = append(again.Phases, api.Phase{Phase: "compile", Skipped: true}, api.Phase{Phase: "cudagraph", Entered: noon.Add(90 * time.Second)})
	l.Show(again, noon)
	want := `startupd: llm.service: no daemon runs here; the journal is followed here instead
startupd: llm.service: spawn
startupd: llm.service: load after 21 s
startupd: llm.service: slow in load/weights: no progress for longer than usual, and its processes are busy
startupd: llm.service: the engine was started again inside the same run of the unit
startupd: llm.service: spawn
startupd: llm.service: load after 21 s
startupd: llm.service: cudagraph after 1m30s
`
	if diff := cmp.Diff(want, b.String()); diff != "" {
		t.Error(diff)
	}
}

func TestBar(t *testing.T) {
	s := oom()
	s.Outcome, s.Progress, s.ProgressNote, s.ExpectedServing = api.Starting, ptr(0.5), "14/28 shards", noon.Add(2*time.Minute)
	for _, tt := range []struct {
		width int
		want  string
	}{
		{120, "llm.service  load/weights  [############------------]  50 %  14/28 shards  50 s, about 1m10s to go"},
		{90, "llm.service  load/weights  [############------------]  50 %  50 s, about 1m10s to go"},
		{70, "llm.service  load/weights  50 %  50 s, about 1m10s to go"},
		{45, "llm.service  load/weights  50 %  50 s"},
		{20, "llm.service  loa..."},
	} {
		var b bytes.Buffer
		bar := &Bar{Out: &b, Unit: unit, Width: func() int { return tt.width }}
		bar.Show(s, noon.Add(50*time.Second))
		once := b.String()
		bar.Show(s, noon.Add(50*time.Second))
		if b.String() != once || once != "\r\x1b[K"+tt.want {
			t.Errorf("%d columns: %q", tt.width, b.String())
		}
		bar.Clear()
		if !strings.HasSuffix(b.String(), "\r\x1b[K") {
			t.Errorf("not cleared: %q", b.String())
		}
	}
	var b bytes.Buffer
	bar := &Bar{Out: &b, Unit: unit, Color: true, Width: func() int { return 60 }}
	bar.Show(nil, noon)
	bar.Note("gone\x07")
	bar.Show(s, noon)
	want := "\r\x1b[K\x1b[1mllm.service  waiting for its start\x1b[0m\r\x1b[Kgone\\a\n\r\x1b[K\x1b[1mllm.service  load/weights\x1b[0m  50 %  0.0 s, about 2m0s to go"
	if diff := cmp.Diff(want, b.String()); diff != "" {
		t.Error(diff)
	}
}
