// Package corpus explains every recorded start of testdata with the
// real program and scores the answers. It must not know how they come about:
// it sees what a user sees, the JSON of `startupd explain`.
package corpus

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"go.yaml.in/yaml/v3"
)

// least is what must be right in the corpus, as a share of the cases that a
// question fits; leastHeldout the same of the cases that rules are not written
// after.
func least() map[string]float64 {
	return map[string]float64{"cause": 0.95, "place": 0.97, "symptom": 1, "phase": 0.97, "outcome": 0.97, "quiet": 1}
}

func leastHeldout() map[string]float64 {
	return map[string]float64{"cause": 0.85, "place": 0.9, "symptom": 0.95, "phase": 0.93, "outcome": 0.93, "quiet": 1}
}

const (
	corpusDir  = "../../testdata/corpus"
	heldoutDir = "../../testdata/heldout"
)

// expect is the part of expect.yaml that is scored.
type expect struct {
	Outcome       string   `yaml:"outcome"`
	OutcomeAccept []string `yaml:"outcome_accept"`
	Phase         string   `yaml:"reached_phase"`
	PhaseAccept   []string `yaml:"phase_accept"`
	// ObservedAfter is in seconds; 0 leaves "now" at the last line.
	ObservedAfter int        `yaml:"observed_after_s"`
	Root          *rootLabel `yaml:"root_cause"`
	ClassAccept   []string   `yaml:"class_accept"`
	Symptoms      []int      `yaml:"symptoms"`
	Benign        []int      `yaml:"benign"`
}

type rootLabel struct {
	Class   string `yaml:"class"`
	Line    int    `yaml:"line"`
	Repeats []int  `yaml:"repeats"`
	Message string `yaml:"message_contains"`
}

// answer is the part of schema startupd.explain/v1 that is scored.
type answer struct {
	Schema   string    `json:"schema"`
	Startups []startup `json:"startups"`
}

type startup struct {
	Outcome string  `json:"outcome"`
	Phase   string  `json:"phase"`
	Phases  []phase `json:"phases"`
	Root    *root   `json:"root_cause"`
}

type root struct {
	Class   string `json:"class"`
	Message string `json:"message"`
	Line    int    `json:"line"`
}

type phase struct {
	Phase   string   `json:"phase"`
	Seconds *float64 `json:"seconds"`
}

// score counts right answers to one question.
type score struct{ right, all int }

func (s *score) share() float64 { return float64(s.right) / float64(s.all) }

func (s *score) String() string {
	return fmt.Sprintf("%d/%d (%.1f %%)", s.right, s.all, 100*s.share())
}

// scores are the questions' scores by name.
type scores map[string]*score

func (s scores) mark(question string, ok bool) {
	if s[question] == nil {
		s[question] = new(score)
	}
	s[question].all++
	if ok {
		s[question].right++
	}
}

func (s scores) String() string {
	var parts []string
	for _, q := range slices.Sorted(maps.Keys(s)) {
		parts = append(parts, q+" "+s[q].String())
	}
	return strings.Join(parts, ", ")
}

// judge compares one answer with its label, and names the questions that it gets
// wrong.
func (s scores) judge(e expect, got startup) (wrong []string) {
	mark := func(question string, ok bool) {
		s.mark(question, ok)
		if !ok {
			wrong = append(wrong, question)
		}
	}
	mark("outcome", got.Outcome == e.Outcome || slices.Contains(e.OutcomeAccept, got.Outcome))
	mark("phase", got.Phase == e.Phase || slices.Contains(e.PhaseAccept, got.Phase))
	if e.Outcome == "serving" {
		mark("quiet", got.Root == nil)
	}
	if e.Root == nil || e.Outcome != "failed" && e.Outcome != "stalled" {
		return wrong
	}
	claim := root{}
	if got.Root != nil {
		claim = *got.Root
	}
	if e.Root.Class == "unknown" {
		mark("cause", claim.Class == "" || claim.Class == "unknown")
		return wrong
	}
	place := e.Root.at(claim)
	mark("place", place)
	mark("cause", place && (claim.Class == e.Root.Class || slices.Contains(e.ClassAccept, claim.Class)))
	if e.Outcome == "failed" {
		mark("symptom", !slices.Contains(e.Symptoms, claim.Line) && !slices.Contains(e.Benign, claim.Line))
	}
	return wrong
}

// at says whether a claim is at the labelled place: at most two lines off one
// that says the cause, or with the words of it.
func (l *rootLabel) at(claim root) bool {
	for _, n := range append([]int{l.Line}, l.Repeats...) {
		if n > 0 && claim.Line > 0 && max(n-claim.Line, claim.Line-n) <= 2 {
			return true
		}
	}
	words := []rune(strings.Join(strings.Fields(l.Message), " "))
	text := string(words[:min(60, len(words))])
	return len(words) > 8 && strings.Contains(strings.Join(strings.Fields(claim.Message), " "), text)
}

func TestCorpus(t *testing.T) { measure(t, corpusDir, least()) }

func TestHeldout(t *testing.T) { measure(t, heldoutDir, leastHeldout()) }

// measure scores the program on the cases of a directory.
func measure(t *testing.T, root string, least map[string]float64) {
	t.Helper()
	bin := filepath.Join(t.TempDir(), "startupd")
	build(t, bin)
	all := scores{}
	for _, name := range cases(t, root) {
		dir := filepath.Join(root, name)
		want := readExpect(t, dir)
		got, err := explain(bin, filepath.Join(dir, "log.txt"), want.ObservedAfter)
		if err != nil {
			t.Errorf("%s: %v", name, err)
		}
		if wrong := all.judge(want, got); len(wrong) > 0 {
			t.Logf("%s: wrong in %v: outcome %s, phase %s, root cause %+v", name, wrong, got.Outcome, got.Phase, got.Root)
		}
	}
	t.Logf("%v", all)
	for question, min := range least {
		if s := all[question]; s == nil || s.share() < min {
			t.Errorf("%s is right in %v, want %.0f %%", question, s, 100*min)
		}
	}
}

// TestGrep scores what a grep for errors answers, for comparison: the first or
// the last line that looks like an error, or the first exception. It has no
// class and no phase.
func TestGrep(t *testing.T) {
	anyError := regexp.MustCompile(`\bERROR\b|[A-Za-z]Error\b`)
	exception := regexp.MustCompile(`[A-Za-z](Error|Exception): `)
	for _, b := range []struct {
		name  string
		re    *regexp.Regexp
		last  bool
		place float64
	}{{"first ERROR", anyError, false, 0.34}, {"last ERROR", anyError, true, 0.37}, {"first exception", exception, false, 0.65}} {
		all := scores{}
		for _, name := range cases(t, corpusDir) {
			dir := filepath.Join(corpusDir, name)
			all.judge(readExpect(t, dir), grep(t, filepath.Join(dir, "log.txt"), b.re, b.last))
		}
		t.Logf("%s: place %v, symptom %v, quiet %v", b.name, all["place"], all["symptom"], all["quiet"])
		if got := all["place"].share(); got < b.place-0.01 || got > b.place+0.01 {
			t.Errorf("%s: place is right in %v, docs/accuracy.md says %.0f %%", b.name, all["place"], 100*b.place)
		}
	}
}

func grep(t *testing.T, log string, re *regexp.Regexp, last bool) startup {
	t.Helper()
	text, err := os.ReadFile(log)
	if err != nil {
		t.Fatal(err)
	}
	var s startup
	for i, line := range strings.Split(string(text), "\n") {
		if re.MatchString(line) && (last || s.Root == nil) {
			s.Root = &root{Line: i + 1, Message: line}
		}
	}
	return s
}

// build compiles the program under test.
func build(t *testing.T, bin string) {
	t.Helper()
	cmd := exec.Command("go", "build", "-o", bin, "github.com/startupd/startupd/cmd/startupd")
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v: %v\n%s", cmd.Args, err, out)
	}
}

// cases lists a directory's cases, and proves that the list is complete.
func cases(t *testing.T, root string) []string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(root, "CASES.txt"))
	if err != nil {
		t.Fatal(err)
	}
	listed := strings.Fields(string(text))
	found, err := filepath.Glob(filepath.Join(root, "*", "expect.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	if len(found) != len(listed) || len(listed) == 0 {
		t.Fatalf("CASES.txt lists %d cases, %d have an expect.yaml", len(listed), len(found))
	}
	return listed
}

func readExpect(t *testing.T, dir string) expect {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(dir, "expect.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	var e expect
	if err := yaml.Unmarshal(text, &e); err != nil {
		t.Fatalf("%s: %v", dir, err)
	}
	if e.Outcome == "" || e.Phase == "" {
		t.Fatalf("%s: expect.yaml lacks outcome or reached_phase", dir)
	}
	return e
}

// explain returns the program's answer for the last startup of a log, and an
// error if the answer breaks its own contract.
func explain(bin, log string, elapsed int) (startup, error) {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	args := []string{"explain", "--format", "json"}
	if elapsed > 0 {
		args = append(args, fmt.Sprintf("--elapsed=%ds", elapsed))
	}
	cmd := exec.CommandContext(ctx, bin, append(args, log)...)
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	err := cmd.Run()
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		return startup{}, err
	}
	var a answer
	if err := json.Unmarshal(stdout.Bytes(), &a); err != nil {
		return startup{}, fmt.Errorf("broken JSON: %w\nstdout: %.200s\nstderr: %.300s", err, &stdout, &stderr)
	}
	if len(a.Startups) == 0 {
		return startup{}, fmt.Errorf("no startup found; stderr: %.300s", &stderr)
	}
	last := a.Startups[len(a.Startups)-1]
	return last, errors.Join(checkAnswer(a, last), checkExit(last, cmd.ProcessState.ExitCode()))
}

// checkAnswer holds an answer to the schema's own promises.
func checkAnswer(a answer, last startup) error {
	if a.Schema != "startupd.explain/v1" {
		return fmt.Errorf("schema is %q", a.Schema)
	}
	if len(last.Phases) == 0 || last.Phases[len(last.Phases)-1].Phase != last.Phase {
		return fmt.Errorf("phase is %q, but the last of phases is another: %+v", last.Phase, last.Phases)
	}
	order := []string{"spawn", "load", "compile", "cudagraph", "serving"}
	at := -1
	for _, p := range last.Phases {
		i := slices.Index(order, p.Phase)
		if i <= at {
			return fmt.Errorf("phase %q is unknown or out of order: %+v", p.Phase, last.Phases)
		}
		if p.Seconds != nil && *p.Seconds < 0 {
			return fmt.Errorf("phase %q lasted %v s", p.Phase, *p.Seconds)
		}
		at = i
	}
	return nil
}

// checkExit compares the exit code with the outcome that was printed.
func checkExit(last startup, code int) error {
	want, ok := map[string]int{"serving": 0, "failed": 1, "stopped": 1, "stalled": 4, "starting": 5}[last.Outcome]
	if !ok {
		return fmt.Errorf("outcome %q is none of the schema's", last.Outcome)
	}
	if code != want {
		return fmt.Errorf("outcome %s, but exit code %d, want %d", last.Outcome, code, want)
	}
	return nil
}
