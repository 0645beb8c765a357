package profile

import (
	"slices"
	"testing"
)

// failureCase is one line of testdata/failures.yaml.
type failureCase struct {
	Line   string
	Frames []string
	// Want is role/class, with nothing behind the slash where the role has no class.
	Want string
}

// choice is the rule that a line selects in a traceback with these frames: the
// first of the conditional ones that holds, else the unconditional one.
func (r *Record) choice(frames []string) *Rule {
	for _, c := range r.Conditional {
		if slices.ContainsFunc(frames, c.TakesFrame) {
			return c
		}
	}
	return r.Rule
}

// TestFailures proves that lines of failed starts, as they are met in the wild,
// select a rule of the right role and class.
func TestFailures(t *testing.T) {
	var cases []failureCase
	readYAML(t, "failures.yaml", &cases)
	if len(cases) < 100 {
		t.Errorf("only %d cases", len(cases))
	}
	s := builtinSet(t).Profile("vllm").NewScanner()
	for _, c := range cases {
		got, id := "none", ""
		s.Scan(c.Line, func(r *Record) {
			rule := r.choice(c.Frames)
			if rule == nil {
				return
			}
			got, id = string(rule.Role)+"/", rule.ID
			if rule.Role == RoleCause || rule.Role == RoleBenign || rule.Role == RoleStop {
				got += rule.Class
			}
		})
		if got != c.Want {
			t.Errorf("%s\n\twant %s, got %s (rule %q)", c.Line, c.Want, got, id)
		}
	}
}

// TestFallbacksAreWeak proves that the file of last resort never wins over
// evidence that names its cause, and that it comes last.
func TestFallbacksAreWeak(t *testing.T) {
	rules := builtinSet(t).Profile("vllm").Rules
	first := slices.IndexFunc(rules, func(r *Rule) bool { return r.ID == "zz_compile" })
	if first < 0 {
		t.Fatal("no fallback rules")
	}
	for _, r := range rules[first:] {
		if !r.Weak || r.Role != RoleCause {
			t.Errorf("%s: role %s, weak %v; a last resort must be a weak cause", r.ID, r.Role, r.Weak)
		}
	}
}

// TestCauseHasRemedy proves that whatever names a cause also says what to do: by
// itself, or by its class.
func TestCauseHasRemedy(t *testing.T) {
	p := builtinSet(t).Profile("vllm")
	for _, r := range p.Rules {
		if r.Role != RoleCause || r.Class == "unknown" || r.Remedy != "" || p.Classes[r.Class].Remedy != "" {
			continue
		}
		t.Errorf("%s: neither it nor class %s says what to do", r.ID, r.Class)
	}
}
