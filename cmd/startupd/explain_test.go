package main

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/startupd/startupd/pkg/history"
)

// keepGood writes a history with one good start of llm.service.
func keepGood(t *testing.T, dir string) {
	t.Helper()
	seconds := 100.0
	good := history.Record{
		Target: "llm.service", Invocation: "99999999999999999999999999999999", Began: time.Date(2026, 1, 30, 8, 0, 0, 0, time.UTC),
		Outcome: "serving", Engine: "vllm", Version: "0.15.9", Model: "/models/m", Phases: []history.Phase{{Phase: "spawn", Seconds: &seconds}},
	}
	if _, err := history.In(dir, history.Limits{MaxStartups: 10}).Put(t.Context(), good.Began, good); err != nil {
		t.Fatal(err)
	}
}

const crashLog = `2026-01-31T10:00:00.000000000Z (APIServer pid=100) INFO 01-31 10:00:00 [utils.py:233] non-default args: {'model': '/models/m'}
2026-01-31T10:00:08.000000000Z (EngineCore_DP0 pid=110) INFO 01-31 10:00:08 [core.py:97] Initializing a V1 LLM engine (v0.16.0) with config: model='/models/m'
2026-01-31T10:00:09.000000000Z (EngineCore_DP0 pid=110) RuntimeError: flashinfer-cubin version (0.6.3) does not match flashinfer version (0.6.4). Please install the same version of both packages.
2026-01-31T10:00:10.000000000Z (APIServer pid=100) RuntimeError: Engine core initialization failed. See root cause above. Failed core proc(s): {}
`

// explainLog runs explain over crashLog and returns what it prints.
func explainLog(t *testing.T, args ...string) (code int, stdout, stderr string) {
	t.Helper()
	var out, err bytes.Buffer
	code = run(append([]string{"explain"}, args...), streams{in: strings.NewReader(crashLog), out: &out, err: &err})
	return code, out.String(), err.String()
}

func TestExplainDiff(t *testing.T) {
	dir := t.TempDir()
	code, out, stderr := explainLog(t, "--diff", "--unit=llm", "--state.dir="+dir, "-")
	if code != exitFailed || stderr != "" || !strings.Contains(out, "what is new can't be told: no earlier good start is known") {
		t.Errorf("without a history: %d\n%s\n%s", code, out, stderr)
	}
	keepGood(t, dir)
	for _, format := range []string{"text", "markdown", "json"} {
		code, out, stderr := explainLog(t, "--diff", "--unit=llm", "--state.dir="+dir, "--format="+format, "-")
		if code != exitFailed || stderr != "" || !strings.Contains(out, "0.15.9") || !strings.Contains(out, "package_mismatch") {
			t.Errorf("%s: %d\n%s\n%s", format, code, out, stderr)
		}
	}
	if _, out, _ := explainLog(t, "--unit=llm", "--state.dir="+dir, "-"); strings.Contains(out, "0.15.9") {
		t.Errorf("not asked for, but:\n%s", out)
	}
	// Of another unit nothing is kept, and a text names none.
	for _, args := range [][]string{{"--unit=other", "-"}, {"-"}} {
		if _, out, stderr := explainLog(t, append(args, "--diff", "--state.dir="+dir)...); !strings.Contains(out, "no earlier good start is known") || stderr != "" {
			t.Errorf("%v:\n%s\n%s", args, out, stderr)
		}
	}
}

// TestExplainDiffDamaged: a history that can't be read costs the comparison, not
// the answer.
func TestExplainDiffDamaged(t *testing.T) {
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, history.FileName), bytes.Repeat([]byte("garbage "), 4096), 0o600); err != nil {
		t.Fatal(err)
	}
	code, out, stderr := explainLog(t, "--diff", "--unit=llm", "--state.dir="+dir, "-")
	if code != exitFailed || !strings.Contains(out, "CAUSE  package_mismatch") {
		t.Errorf("%d\n%s", code, out)
	}
	if !strings.HasPrefix(stderr, "startupd: --diff: history ") || strings.Count(stderr, "\n") != 1 {
		t.Errorf("stderr %q", stderr)
	}
}
