package explain

import (
	"errors"
	"flag"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"
	"unicode"

	"github.com/google/go-cmp/cmp"

	"github.com/startupd/startupd/pkg/event"
	"github.com/startupd/startupd/pkg/phases"
	"github.com/startupd/startupd/pkg/triage"
)

var update = flag.Bool("update", false, "rewrite the golden files")

const target = "llm.service"

func ptr[T any](v T) *T { return &v }

// started returns a startup that entered so many phases, a minute each.
func started(n int, outcome phases.Outcome) *phases.Startup {
	s := &phases.Startup{
		Invocation: "0123456789abcdef0123456789abcdef", Began: at(0), Outcome: outcome, Step: "weights",
		Engine: phases.Engine{Name: "vllm", Version: "0.16.0rc2.dev344", Model: "/models/acme"},
	}
	for i, p := range phases.Phases()[:n] {
		ph := phases.Phase{Phase: p, Entered: at(time.Duration(i) * time.Minute), Seconds: 60, Done: true}
		if i > 0 {
			ph.Evidence = phases.Evidence{Source: "log", Rule: "r", Text: "Starting to " + string(p), LineNo: i}
		}
		s.Phases = append(s.Phases, ph)
	}
	return s
}

// crashed is a failed start with a cause, what followed, noise and a gap.
func crashed() *phases.Startup {
	s := started(2, phases.OutcomeFailed)
	s.Reason = "RuntimeError: Engine core initialization failed. See root cause above."
	s.RootCause = &triage.RootCause{
		Class: "package_mismatch", Exception: "RuntimeError", Process: "EngineCore", Line: 26, Cursor: "s=ab;i=1f;b=00", At: at(70 * time.Second),
		Message:     "RuntimeError: flashinfer-cubin version (0.6.3) does not match flashinfer version (0.6.4). Please install the same version of both packages.",
		Remediation: "Install flashinfer-cubin 0.6.4, or flashinfer 0.6.3.", Retry: ptr(false), Fingerprint: "v1:aa", Rule: "rc_flashinfer_cubin",
	}
	s.Findings = []triage.Finding{
		{Verdict: triage.Benign, Class: "unknown", Message: "Failed to import Triton kernels", Count: 5, Lines: []int{3}, At: at(0), Fingerprint: "v1:bb", Good: ptr(14), Bad: ptr(0)},
		{Verdict: triage.Benign, Class: "unknown", Message: "FA2 is not available", Count: 1, Lines: []int{4}, At: at(0), Fingerprint: "v1:cc"},
		{Verdict: triage.Cause, Class: "package_mismatch", Exception: "RuntimeError", Message: s.RootCause.Message, Process: "EngineCore", Processes: []string{"EngineCore"}, Count: 1, Lines: []int{26}, At: at(70 * time.Second), Fingerprint: "v1:aa", Good: ptr(0), Bad: ptr(2), New: true},
		{Verdict: triage.Symptom, Class: "unknown", Message: "WorkerProc failed to start.", Process: "Worker_TP0", Count: 8, Lines: []int{30}, At: at(71 * time.Second), Fingerprint: "v1:dd"},
		{Verdict: triage.Symptom, Class: "unknown", Message: "RuntimeError: Engine core initialization failed. See root cause above. Failed core proc(s): {}", Process: "APIServer", Count: 1, Lines: []int{40}, At: at(72 * time.Second), Fingerprint: "v1:ee"},
		{Verdict: triage.Suspect, Class: "unknown", Exception: "KeyError", Message: "KeyError: 'x'", Process: "Worker_TP3", Count: 2, Lines: []int{12}, At: at(20 * time.Second), Fingerprint: "v1:ff", Good: ptr(0), Bad: ptr(0), New: true},
	}
	s.NewErrors = ptr(2)
	s.Versions = map[string]string{"torch": "2.9.1", "flashinfer": "0.6.4"}
	s.Arguments = map[string]string{"tensor_parallel_size": "8", "api_key": "***"}
	s.Gaps = []phases.Gap{{Kind: event.GapSuppressed, Lines: 12, At: at(time.Second)}}
	return s
}

// unknown is a failed start whose log holds no cause.
func unknown() *phases.Startup {
	s := started(2, phases.OutcomeFailed)
	s.Reason = "main process exited, status 1"
	s.RootCause = &triage.RootCause{
		Class: triage.ClassUnknown, Message: "no line of the log names a cause", DiedIn: "load", ExitStatus: "exited, status 1",
		LastLines: map[string]string{
			"APIServer":  "RuntimeError: Engine core initialization failed. See root cause above. Failed core proc(s): {}",
			"Worker_TP0": "Loading safetensors checkpoint shards:  10% Completed | 2/20",
			"":           "Fatal Python error: Aborted",
		},
	}
	return s
}

// unnamed is a failed start whose last error no rule names.
func unnamed() *phases.Startup {
	s := unknown()
	s.RootCause.Exception, s.RootCause.Message = "OSError", "OSError: the flux capacitor is empty"
	s.RootCause.Process, s.RootCause.Line, s.RootCause.At = "Worker_TP0", 17, at(80*time.Second)
	return s
}

// stalled is a start that hangs in the initialisation of NCCL.
func stalled() *phases.Startup {
	s := started(1, phases.OutcomeNone)
	s.Step, s.Stalled, s.StalledReason = "distributed_init", true, "spawn/distributed_init: no sign of progress for longer than its budget of 3m0s"
	var missing []string
	for rank := range 10 {
		missing = append(missing, fmt.Sprintf("Worker_TP%d", rank))
	}
	s.RootCause = &triage.RootCause{
		Class: "nccl_hang", Message: "vLLM is using nccl==2.27.5", Process: "Worker_TP1", Line: 9, At: at(5 * time.Second),
		Remediation: "Look at the ranks that have not arrived; NCCL_DEBUG=INFO tells more.", Retry: ptr(true), NotArrived: missing, Provisional: true,
	}
	return s
}

// served is a good start whose engine was killed later.
func served() *phases.Startup {
	s := started(5, phases.OutcomeServing)
	s.Phases[3].Skipped, s.Phases[3].Seconds = true, 0
	s.Reason, s.ServingEndReason, s.ServingEnded = "Application startup complete.", "killed", at(time.Hour)
	s.Findings = []triage.Finding{{Verdict: triage.Benign, Class: "unknown", Message: "cannot import name 'SparseMatrix'", Count: 9, Fingerprint: "v1:aa", Good: ptr(14), Bad: ptr(1)}}
	s.NewErrors = ptr(0)
	return s
}

// nasty is text that a log can hold, and that must do nothing.
const nasty = "\x1b[2J\x1b]0;owned\x07red\x9b31m \u202eoverride\u2066 | `tick` ``` <script>alert(1)</script> ![x](http://h.example/x) @someone #1 \xff\x00 &lt; *b* _i_ \\| **\n# heading\n\n- item\n```\n</details>\r\ngone"

// hostile is a failed start with such text wherever a log's text can stand.
func hostile() *phases.Startup {
	s := crashed()
	s.Invocation, s.Reason, s.Step = nasty, nasty, nasty
	s.Engine = phases.Engine{Name: nasty, Version: nasty, Model: nasty}
	s.Phases[1].Evidence.Text = nasty
	c := s.RootCause
	c.Exception, c.Message, c.Process, c.Cursor = nasty, nasty, nasty, "s=1;$(reboot)'"
	c.Remediation, c.NotArrived, c.LastLines, c.ExitStatus = nasty, []string{nasty}, map[string]string{nasty: nasty}, nasty
	s.Findings = nil
	for _, v := range []triage.Verdict{triage.Cause, triage.Symptom, triage.Suspect, triage.Benign} {
		s.Findings = append(s.Findings, triage.Finding{Verdict: v, Class: "unknown", Exception: nasty, Message: nasty, Process: nasty, Processes: []string{nasty}, Count: 2, Lines: []int{1}})
	}
	s.Gaps = []phases.Gap{{Kind: event.GapCorrupt, Detail: nasty}}
	s.Versions, s.Arguments = map[string]string{nasty: nasty}, map[string]string{nasty: nasty}
	return s
}

// many is a failed start with 500 findings.
func many() *phases.Startup {
	s := started(1, phases.OutcomeFailed)
	s.RootCause = &triage.RootCause{Class: "host_oom", Message: "Out of memory: Killed process 4242 (VLLM::Worker_TP)", Process: "kernel", At: at(time.Second)}
	for i := range 500 {
		v := []triage.Verdict{triage.Suspect, triage.Symptom, triage.Benign}[i%3]
		s.Findings = append(s.Findings, triage.Finding{
			Verdict: v, Class: "unknown", Message: fmt.Sprintf("error number %d of a long list", i), Process: "Worker_TP0", Count: i + 1, At: at(time.Second), Cursor: "s=1",
			Good: ptr(0), New: i == 300,
		})
	}
	for range 30 {
		s.Gaps = append(s.Gaps, phases.Gap{Kind: event.GapLineMax, Lines: 1})
	}
	return s
}

// loop is a restart loop behind a good start, with a startup of its own before
// the last one.
func loop() []*phases.Startup {
	all := []*phases.Startup{served()}
	for i := range 5 {
		s := crashed()
		s.Phases[1].Seconds = float64(10 + i)
		all = append(all, s)
	}
	stopped := started(1, phases.OutcomeStopped)
	stopped.Reason = "a stop was asked for"
	return append(all, stopped, unknown())
}

func renderCases() map[string][]*phases.Startup {
	starting := started(2, phases.OutcomeNone)
	untimed := unknown()
	untimed.Began, untimed.Invocation = event.Stamp{}, ""
	for i := range untimed.Phases {
		untimed.Phases[i].Entered, untimed.Phases[i].Seconds = event.Stamp{}, 0
	}
	return map[string][]*phases.Startup{
		"crashed": {crashed()}, "unknown": {unknown()}, "unnamed": {unnamed()}, "stalled": {stalled()}, "served": {served()}, "starting": {starting},
		"hostile": {hostile(), hostile()}, "many": {many()}, "loop": loop(), "untimed": {untimed},
	}
}

func reportOf(all []*phases.Startup) *Report {
	return newReport(target, all, span{0, len(all)})
}

func text(t *testing.T, r *Report, o TextOptions) string {
	t.Helper()
	var b strings.Builder
	if err := r.WriteText(&b, o); err != nil {
		t.Fatal(err)
	}
	return b.String()
}

func markdownText(t *testing.T, r *Report, all bool) string {
	t.Helper()
	var b strings.Builder
	if err := r.WriteMarkdown(&b, all); err != nil {
		t.Fatal(err)
	}
	return b.String()
}

func TestGolden(t *testing.T) {
	for name, all := range renderCases() {
		r := reportOf(all)
		golden(t, name+".txt", text(t, r, TextOptions{Width: 80}))
		golden(t, name+".md", markdownText(t, r, false))
	}
	r := reportOf(loop())
	golden(t, "loop-all.txt", text(t, r, TextOptions{Width: 80, All: true, JournalDir: "/mnt/it's here"}))
}

func golden(t *testing.T, name, got string) {
	t.Helper()
	path := filepath.Join("testdata", name)
	if *update {
		if err := os.WriteFile(path, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(want), got); diff != "" {
		t.Errorf("%s (-want +got):\n%s", name, diff)
	}
}

// TestTextFits holds every page to its width, and to what a terminal may be
// sent.
func TestTextFits(t *testing.T) {
	for name, all := range renderCases() {
		for _, width := range []int{1, 40, 80, 200} {
			o := TextOptions{Width: width, All: true}
			got := text(t, reportOf(all), o)
			for line := range strings.Lines(got) {
				line = strings.TrimSuffix(line, "\n")
				if columns(line) > max(width, minWidth) && !strings.Contains(line, "journalctl --cursor=") {
					t.Errorf("%s at %d: %d columns: %q", name, width, columns(line), line)
				}
				if strings.TrimRight(line, " ") != line {
					t.Errorf("%s at %d: a line ends in spaces: %q", name, width, line)
				}
				if i := strings.IndexFunc(line, func(r rune) bool { return !unicode.IsPrint(r) }); i >= 0 {
					t.Errorf("%s at %d: %q stands in %q", name, width, line[i:], line)
				}
			}
		}
	}
}

func TestColorChangesNoText(t *testing.T) {
	sgr := regexp.MustCompile(`\x1b\[[0-9;]*m`)
	for name, all := range renderCases() {
		r := reportOf(all)
		plain, colored := text(t, r, TextOptions{All: true}), text(t, r, TextOptions{All: true, Color: true})
		if !sgr.MatchString(colored) {
			t.Errorf("%s has no colour", name)
		}
		if diff := cmp.Diff(plain, sgr.ReplaceAllString(colored, "")); diff != "" {
			t.Errorf("%s: %s", name, diff)
		}
	}
}

// TestNoWrapperAsCause: where no cause is known, nothing stands where a cause
// would.
func TestNoWrapperAsCause(t *testing.T) {
	got := text(t, reportOf([]*phases.Startup{unknown()}), TextOptions{})
	head, _, ok := strings.Cut(got, "last line of each process")
	if !ok || strings.Contains(head, "See root cause above") {
		t.Errorf("the wrapper stands before the last lines:\n%s", got)
	}
}

func TestTextIsShort(t *testing.T) {
	for name, all := range renderCases() {
		got := text(t, reportOf(all), TextOptions{Width: 80})
		if n := strings.Count(got, "\n"); n > 60 {
			t.Errorf("%s takes %d lines:\n%s", name, n, got)
		}
	}
}

func TestJump(t *testing.T) {
	for _, tt := range []struct{ cursor, dir, want string }{
		{"s=ab;i=1", "", "journalctl --cursor='s=ab;i=1' -n 20"},
		{"s=ab;i=1", "/var/log/j", "journalctl --directory=/var/log/j --cursor='s=ab;i=1' -n 20"},
		{"s=ab;i=1", "a b'c", `journalctl --directory='a b'\''c' --cursor='s=ab;i=1' -n 20`},
		{"s=1;$(reboot)", "", "cursor s=1;$(reboot)"},
		{"'; reboot '\x1b", "", `cursor '; reboot '\x1b`},
	} {
		if got := jump(tt.cursor, tt.dir); got != tt.want {
			t.Errorf("jump(%q, %q) = %s, want %s", tt.cursor, tt.dir, got, tt.want)
		}
	}
}

func TestBrief(t *testing.T) {
	for s, want := range map[float64]string{0: "0.0 s", 0.44: "0.4 s", 9.94: "9.9 s", 9.96: "10 s", 12.4: "12 s", 59.4: "59 s", 59.6: "1m0s", 221: "3m41s", 3600: "1h0m0s"} {
		if got := brief(s); got != want {
			t.Errorf("brief(%v) = %q, want %q", s, got, want)
		}
	}
}

func TestEarlierIsBounded(t *testing.T) {
	var all []*phases.Startup
	for i := range 101 {
		s := started(1+i%2, phases.OutcomeFailed)
		s.Reason = "it ended"
		all = append(all, s)
	}
	got := text(t, reportOf(all), TextOptions{})
	if !strings.Contains(got, "\n90 startups before these: --all shows them\n91 of 101: failed in spawn after 1m0s: it ended\n") {
		t.Errorf("the text is\n%s", got)
	}
}

type brokenWriter struct{ err error }

func (w brokenWriter) Write([]byte) (int, error) { return 0, w.err }

func TestWriteFails(t *testing.T) {
	w := brokenWriter{errors.New("no space")}
	r := reportOf(loop())
	if err := r.WriteText(w, TextOptions{}); !errors.Is(err, w.err) {
		t.Errorf("text: %v", err)
	}
	if err := r.WriteMarkdown(w, true); !errors.Is(err, w.err) {
		t.Errorf("markdown: %v", err)
	}
}

// TestGoldenFiles: no file is left of a case that is gone.
func TestGoldenFiles(t *testing.T) {
	want := []string{"loop-all.txt"}
	for name := range maps.Keys(renderCases()) {
		want = append(want, name+".txt", name+".md")
	}
	slices.Sort(want)
	entries, err := os.ReadDir("testdata")
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, e := range entries {
		if !e.IsDir() {
			got = append(got, e.Name())
		}
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}
