// Package corpus explains every recorded start of testdata/corpus with the
// real program and scores the answers. It must not know how they come about:
// it sees what a user sees, the JSON of `startupd explain`.
package corpus

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"go.yaml.in/yaml/v3"
)

// What must be right, as a share of all cases.
const (
	minPhase   = 0.96
	minOutcome = 0.95
)

const corpusDir = "../../testdata/corpus"

// expect is the part of expect.yaml that is scored.
type expect struct {
	Outcome       string   `yaml:"outcome"`
	OutcomeAccept []string `yaml:"outcome_accept"`
	Phase         string   `yaml:"reached_phase"`
	PhaseAccept   []string `yaml:"phase_accept"`
	// ObservedAfter is in seconds; 0 leaves "now" at the last line.
	ObservedAfter int `yaml:"observed_after_s"`
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
}

type phase struct {
	Phase   string   `json:"phase"`
	Seconds *float64 `json:"seconds"`
}

// score counts right answers to one question.
type score struct{ right, all int }

func (s *score) add(ok bool) {
	s.all++
	if ok {
		s.right++
	}
}

func (s *score) share() float64 { return float64(s.right) / float64(s.all) }

func (s *score) String() string {
	return fmt.Sprintf("%d/%d (%.1f %%)", s.right, s.all, 100*s.share())
}

func TestCorpus(t *testing.T) {
	bin := filepath.Join(t.TempDir(), "startupd")
	build(t, bin)
	var phases, outcomes score
	for _, name := range cases(t) {
		dir := filepath.Join(corpusDir, name)
		want := readExpect(t, dir)
		got, err := explain(bin, filepath.Join(dir, "log.txt"), want.ObservedAfter)
		if err != nil {
			t.Errorf("%s: %v", name, err)
		}
		phaseOK := got.Phase == want.Phase || slices.Contains(want.PhaseAccept, got.Phase)
		outcomeOK := got.Outcome == want.Outcome || slices.Contains(want.OutcomeAccept, got.Outcome)
		phases.add(phaseOK)
		outcomes.add(outcomeOK)
		if !phaseOK {
			t.Logf("%s: phase is %q, want %q", name, got.Phase, want.Phase)
		}
		if !outcomeOK {
			t.Logf("%s: outcome is %q, want %q", name, got.Outcome, want.Outcome)
		}
	}
	t.Logf("phase %v, outcome %v", &phases, &outcomes)
	if phases.share() < minPhase {
		t.Errorf("phase is right in %v, want %.0f %%", &phases, 100*minPhase)
	}
	if outcomes.share() < minOutcome {
		t.Errorf("outcome is right in %v, want %.0f %%", &outcomes, 100*minOutcome)
	}
}

// build compiles the program under test.
func build(t *testing.T, bin string) {
	t.Helper()
	cmd := exec.Command("go", "build", "-o", bin, "github.com/startupd/startupd/cmd/startupd")
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v: %v\n%s", cmd.Args, err, out)
	}
}

// cases lists the corpus, and proves that the list is complete.
func cases(t *testing.T) []string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(corpusDir, "CASES.txt"))
	if err != nil {
		t.Fatal(err)
	}
	listed := strings.Fields(string(text))
	found, err := filepath.Glob(filepath.Join(corpusDir, "*", "expect.yaml"))
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
