package preflight

import (
	"os"
	"strings"
	"testing"
)

// The page that people read, and the drop-in that they copy, say the same.
func TestDocs(t *testing.T) {
	page, err := os.ReadFile("../../docs/preflight.md")
	if err != nil {
		t.Fatal(err)
	}
	dropIn, err := os.ReadFile("../../deploy/systemd/preflight.conf")
	if err != nil {
		t.Fatal(err)
	}
	found := false
	for line := range strings.Lines(string(dropIn)) {
		if strings.HasPrefix(line, "ExecStartPre=") {
			found = true
			if !strings.Contains(string(page), line) {
				t.Errorf("docs/preflight.md does not have the drop-in's %s", line)
			}
		}
	}
	if !found {
		t.Error("the drop-in has no ExecStartPre=")
	}
	for _, word := range []string{Schema, string(OK), string(Warning), "not known", "`FAIL`"} {
		if !strings.Contains(string(page), word) {
			t.Errorf("docs/preflight.md does not say %q", word)
		}
	}
}
