package triage

import (
	"bytes"
	"fmt"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/startupd/startupd/pkg/profile"
)

// FuzzTracker reads arbitrary lines by the small profile or a real one: what is
// kept and published is bounded, and looking changes nothing.
func FuzzTracker(f *testing.F) {
	for _, seed := range []string{
		"Traceback (most recent call last):\n  File \"/x/loader.py\", line 7, in load\nKeyError: 'w13'\n\n" + directCause + "\n\nTraceback (most recent call last):\nRuntimeError: Core failed",
		"(Core pid=20) ERROR 12:00:00 [core.py:10] Tuner skips one\n(Core pid=20) ERROR 12:00:00 [core.py:10] Tuner has nothing left",
		"  + Exception Group Traceback (most recent call last):\n  | ExceptionGroup: x\n  +-+---------------- 1 ----------------\n    | KeyError: 'w13'\n    +-----",
		"(EngineCore_DP0 pid=200) ERROR 03-01 23:30:30 [core.py:708] EngineCore failed to start.\nterminate called after throwing an instance of 'c10::Error'\n  what():  boom",
		"NCCL failure\x00\xff\n(Worker_TP0 pid=9) torch.OutOfMemoryError: Tried to allocate hf_" + strings.Repeat("aB3", 12),
	} {
		f.Add([]byte(seed), uint8(3), true)
		f.Add([]byte(seed), uint8(0), false)
	}
	set, err := profile.Builtin()
	if err != nil {
		f.Fatal(err)
	}
	f.Fuzz(func(t *testing.T, data []byte, writers uint8, small bool) {
		watched, unseen := newLog(t), newLog(t)
		if !small {
			for _, l := range []*logged{watched, unseen} {
				l.profile = set.Profile("vllm")
				l.scanner = l.profile.NewScanner()
			}
		}
		i := 0
		for line := range bytes.SplitSeq(data, []byte("\n")) {
			text := strings.ToValidUTF8(string(line), "\ufffd")
			for _, l := range []*logged{watched, unseen} {
				if writers > 0 {
					l.pid = 1 + i%int(writers)
				}
				l.line(text)
			}
			wantBounded(t, watched.failed())
			watched.stalled()
			i++
		}
		if n := len(watched.tracker.open); n > maxOpen || n != len(watched.tracker.order) {
			t.Errorf("%d open records, %d in order", n, len(watched.tracker.order))
		}
		if n := len(watched.tracker.names); n > maxNames {
			t.Errorf("%d processes", n)
		}
		for _, ask := range []func(*logged) *Judgement{(*logged).failed, (*logged).stalled} {
			if a, b := render(ask(watched)), render(ask(unseen)); a != b {
				t.Errorf("watched: %s\nnever looked at: %s", a, b)
			}
		}
	})
}

func render(j *Judgement) string {
	return fmt.Sprintf("%+v\n%+v\n%v", *j.Root, j.Findings, j.Errors)
}

// wantBounded checks that what is published is short and valid.
func wantBounded(t *testing.T, j *Judgement) {
	t.Helper()
	if len(j.Findings) > maxFindings {
		t.Errorf("%d findings", len(j.Findings))
	}
	texts := []string{j.Root.Class, j.Root.Exception, j.Root.Message, j.Root.Process, j.Root.Remediation}
	texts = append(texts, j.Root.NotArrived...)
	for _, f := range j.Findings {
		texts = append(append(texts, f.Class, f.Exception, f.Message, f.Process), f.Processes...)
		if len(f.Lines) > maxLines || len(f.Processes) > maxName || f.Count < 1 || f.Fingerprint == "" {
			t.Errorf("finding %+v", f)
		}
	}
	for _, text := range texts {
		if len(text) > maxMessage || !utf8.ValidString(text) {
			t.Errorf("%d bytes, valid %v: %q", len(text), utf8.ValidString(text), text)
		}
	}
	for k, n := range j.Errors {
		if n < 1 || k.Class == "" || k.Verdict == "" {
			t.Errorf("error count %+v is %d", k, n)
		}
	}
}
