package history

import (
	"bufio"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strconv"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/startupd/startupd/pkg/event"
	"github.com/startupd/startupd/pkg/phases"
	"github.com/startupd/startupd/pkg/triage"
)

// childEnv makes this test's own program a writer of the history that it names.
const childEnv = "HISTORY_WRITER"

// limitEnv bounds the size of the files that the child may write, in bytes.
const limitEnv = "HISTORY_FSIZE"

func TestMain(m *testing.M) {
	if path := os.Getenv(childEnv); path != "" {
		writer(path)
		return
	}
	os.Exit(m.Run())
}

// writer puts one startup for each line of its input, and answers each.
func writer(path string) {
	if text := os.Getenv(limitEnv); text != "" {
		n, err := strconv.ParseUint(text, 10, 64)
		if err == nil {
			// Without this the signal ends the process before the write fails.
			signal.Ignore(unix.SIGXFSZ)
			err = unix.Setrlimit(unix.RLIMIT_FSIZE, &unix.Rlimit{Cur: n, Max: n})
		}
		if err != nil {
			fmt.Println(err)
			return
		}
	}
	s := Store{Path: path, Limits: Limits{MaxStartups: 1000}}
	in := bufio.NewScanner(os.Stdin)
	for i := 0; in.Scan(); i++ {
		r := record("a.service", fmt.Sprintf("%s-%d", in.Text(), i), i)
		r.Reason = string(make([]byte, 3000))
		if _, err := s.Put(background(), day(0), r); err != nil {
			fmt.Println("error:", err)
			continue
		}
		fmt.Println("ok")
	}
}

// child is a writer in a process of its own.
type child struct {
	t   *testing.T
	cmd *exec.Cmd
	in  *os.File
	out *bufio.Scanner
}

func startChild(t *testing.T, path string, env ...string) *child {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), os.Args[0])
	cmd.Env = append(append(os.Environ(), childEnv+"="+path), env...)
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	cmd.Stdin = r
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { w.Close(); _ = cmd.Wait() })
	return &child{t: t, cmd: cmd, in: w, out: bufio.NewScanner(out)}
}

// ask lets the child put one startup.
func (c *child) ask(name string) { fmt.Fprintln(c.in, name) }

// answer is what it says of it.
func (c *child) answer() string {
	c.t.Helper()
	if !c.out.Scan() {
		c.t.Fatal("the writer has ended: ", c.out.Err())
	}
	return c.out.Text()
}

func day(n int) time.Time { return time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC).AddDate(0, 0, n) }

func ptr[T any](v T) *T { return &v }

// record is a good startup that began n minutes after the first.
func record(target, invocation string, n int) Record {
	began := day(0).Add(time.Duration(n) * time.Minute)
	return Record{
		Schema: Schema, Target: target, Invocation: invocation, Began: began, Ended: began.Add(30 * time.Second), Seconds: ptr(30.0),
		Outcome: "serving", Phases: []Phase{{Phase: "spawn", Entered: began, Seconds: ptr(30.0)}},
		Findings: []Finding{{Verdict: "benign", Class: "unknown", Count: 1, Fingerprint: "v1:noise"}},
	}
}

func bad(r Record) Record {
	r.Outcome, r.RootCause = "failed", &RootCause{Class: "package_mismatch"}
	r.Findings = append(r.Findings, Finding{Verdict: "cause", Class: "package_mismatch", Count: 8, Fingerprint: "v1:cause"})
	return r
}

func newStore(t *testing.T) Store {
	t.Helper()
	return In(t.TempDir(), Limits{MaxStartups: 200})
}

func put(t *testing.T, s Store, rs ...Record) {
	t.Helper()
	for _, r := range rs {
		if _, err := s.Put(t.Context(), day(0), r); err != nil {
			t.Fatal(err)
		}
	}
}

func list(t *testing.T, s Store, target string, limit int) []Record {
	t.Helper()
	rs, err := s.List(t.Context(), target, limit)
	if err != nil {
		t.Fatal(err)
	}
	return rs
}

func invocations(rs []Record) []string {
	var out []string
	for _, r := range rs {
		out = append(out, r.Invocation)
	}
	return out
}

// files are the names in a store's directory.
func files(t *testing.T, s Store) []string {
	t.Helper()
	entries, err := os.ReadDir(filepath.Dir(s.Path))
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, e := range entries {
		names = append(names, e.Name())
	}
	return names
}

// content is the bytes of a store's file.
func content(t *testing.T, s Store) []byte {
	t.Helper()
	b, err := os.ReadFile(s.Path)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func overwrite(t *testing.T, s Store, b []byte) {
	t.Helper()
	if err := os.WriteFile(s.Path, b, 0o600); err != nil {
		t.Fatal(err)
	}
}

func wantErr(t *testing.T, got, want error) {
	t.Helper()
	if !errors.Is(got, want) {
		t.Errorf("error %v, want %v", got, want)
	}
}

func stamp(d time.Duration) event.Stamp {
	return event.Stamp{Real: day(0).Add(d), Boot: "0123456789abcdef0123456789abcdef", Mono: time.Hour + d}
}

// startup is a failed one with everything that a record keeps.
func startup() *phases.Startup {
	return &phases.Startup{
		Invocation: "0123", Generation: 1, Began: stamp(0), Ended: stamp(90 * time.Second),
		Outcome: phases.OutcomeFailed, Reason: "exited, status 1",
		Phases: []phases.Phase{
			{Phase: phases.Spawn, Entered: stamp(0), Seconds: 30, Done: true},
			{Phase: phases.Load, Entered: stamp(30 * time.Second), Seconds: 60},
			{Phase: phases.CUDAGraph, Entered: stamp(90 * time.Second), Skipped: true},
		},
		Steps:  []phases.Step{{Phase: phases.Load, Step: "weights", Entered: stamp(30 * time.Second), Seconds: 60}},
		Engine: phases.Engine{Name: "eng", Version: "1.2", Model: "/models/m"},
		Gaps:   []phases.Gap{{Kind: event.GapSuppressed, Lines: 3}},
		RootCause: &triage.RootCause{
			Class: "package_mismatch", Exception: "RuntimeError", Message: "a 1 does not match b 2", Process: "APIServer",
			Rule: "pair", Cursor: "c", At: stamp(time.Minute), Fingerprint: "v1:x", Remediation: "Install them alike.", Retry: ptr(false),
		},
		Findings: []triage.Finding{{
			Verdict: triage.Cause, Class: "package_mismatch", Exception: "RuntimeError", Message: "a 1 does not match b 2",
			Process: "APIServer", Rule: "pair", At: stamp(time.Minute), Count: 8, Fingerprint: "v1:x",
		}},
		Arguments: map[string]string{"tensor_parallel_size": "8"}, Versions: map[string]string{"b": "2"},
		WeightBytes: ptr(uint64(1 << 36)), GPUPlateauBytes: map[int]uint64{0: 1 << 36, 1: 1 << 36},
	}
}
