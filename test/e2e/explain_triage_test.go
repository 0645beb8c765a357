//go:build e2e

package e2e

import (
	"encoding/json"
	"errors"
	"fmt"
	"os/exec"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// explained is what these tests read of `startupd explain --format json`.
type explained struct {
	Schema   string
	Startups []explainedStart
}

type explainedStart struct {
	Outcome, Phase, Invocation string
	RootCause                  *explainedCause `json:"root_cause"`
	Findings                   []explainedFinding
	// Diff is nil unless asked for.
	Diff *diff
}

type explainedCause struct {
	Class                                            string
	Exception, Message, Process, Cursor, Remediation *string
	DiedIn                                           *string `json:"died_in"`
}

type explainedFinding struct {
	Verdict, Class     string
	Exception, Message *string
	Process            *string
	Count              int
}

// explain reads the unit's journal once more, with all that the daemon knows of
// engines. Without --invocation it tells of all starts.
func (d *daemon) explain(t *testing.T, unit string, args ...string) explained {
	t.Helper()
	args = append([]string{"startupd", "explain", "--unit", unit, "--format", "json", "--profile.dir", profileDir}, args...)
	out, err := d.Command(t.Context(), args...).Output()
	// The exit status tells the outcome.
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		t.Fatal(err)
	}
	var got explained
	if err := json.Unmarshal(out, &got); err != nil || got.Schema != "startupd.explain/v1" {
		t.Fatalf("explain --unit %s: %v in %s", unit, err, out)
	}
	return got
}

// ofVerdict is those of a start's findings.
func (s *explainedStart) ofVerdict(verdict string) []explainedFinding {
	return slices.DeleteFunc(slices.Clone(s.Findings), func(f explainedFinding) bool { return f.Verdict != verdict })
}

// String is the start as a failed test shows it: a line for each finding.
func (s *explainedStart) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s in %s\n", s.Outcome, s.Phase)
	if c := s.RootCause; c != nil {
		fmt.Fprintf(&b, "  root cause %s %s %q of %q, died in %q; do: %q\n",
			c.Class, text(c.Exception), clip(text(c.Message)), text(c.Process), text(c.DiedIn), text(c.Remediation))
	}
	for _, f := range s.Findings {
		fmt.Fprintf(&b, "  %s\n", f)
	}
	return b.String()
}

func (f explainedFinding) String() string {
	return fmt.Sprintf("%s %s, %d times, first of %q: %s", f.Verdict, f.Class, f.Count, text(f.Process), clip(text(f.Message)))
}

func clip(s string) string { return s[:min(len(s), 160)] }

// text is a field that may be null.
func text(s *string) string {
	if s == nil {
		return ""
	}
	return *s
}

// told is a root cause as /metrics tells it.
type told struct{ class, exception, process string }

// cause is the one root cause that a unit shows; an error if it shows none, or
// several.
func (m metrics) cause(unit string) (told, error) {
	var found []told
	for k, v := range m {
		if strings.HasPrefix(k, "startupd_root_cause_info{") && strings.Contains(k, fmt.Sprintf("unit=%q", unit)) && v == 1 {
			found = append(found, told{label(k, "class"), label(k, "exception"), label(k, "process")})
		}
	}
	if len(found) != 1 {
		return told{}, fmt.Errorf("%s has %d root causes: %v\n%s", unit, len(found), found, m.dump("startup", unit))
	}
	return found[0], nil
}

// label is the value of a label of a series; "" if it has none.
func label(series, name string) string {
	found := regexp.MustCompile(`[{,]` + name + `="([^"]*)"`).FindStringSubmatch(series)
	if found == nil {
		return ""
	}
	return found[1]
}
