package arch

import (
	"strings"
	"testing"
)

// check is a rule over source files; it returns what is wrong.
type check func([]*source) []string

// run applies a check to one file of the given text.
func run(t *testing.T, c check, path, text string) []string {
	t.Helper()
	s, err := parse(path, []byte(text))
	if err != nil {
		t.Fatalf("%s: %v", text, err)
	}
	return c([]*source{s})
}

// wantProblem proves that a check finds what it is for.
func wantProblem(t *testing.T, c check, path, text, want string) {
	t.Helper()
	got := run(t, c, path, text)
	if len(got) == 0 || !strings.Contains(strings.Join(got, "\n"), want) {
		t.Errorf("%s: got problems %q, want one with %q", text, got, want)
	}
}

// wantNone proves that a check lets good code pass.
func wantNone(t *testing.T, c check, path, text string) {
	t.Helper()
	if got := run(t, c, path, text); len(got) > 0 {
		t.Errorf("%s: got problems %q, want none", text, got)
	}
}
