//go:build e2e

package scrape

import (
	"os"
	"strings"
	"testing"
)

// documented is a family as docs/METRICS.md has it. Labels is sorted as there.
type documented struct{ kind, labels, unit, help string }

// baseUnit is the unit that OpenMetrics names; "" for none.
func (d documented) baseUnit() string {
	return strings.TrimPrefix(strings.TrimSuffix(d.unit, " since 1970"), "-")
}

// page reads every family of docs/METRICS.md: those of startupd, and those of its
// process.
func page(t *testing.T) map[string]documented {
	t.Helper()
	b, err := os.ReadFile("../../docs/METRICS.md")
	if err != nil {
		t.Fatal(err)
	}
	out := make(map[string]documented)
	for line := range strings.Lines(string(b)) {
		cells := strings.Split(strings.Trim(strings.TrimSpace(line), "|"), "|")
		for i := range cells {
			cells[i] = strings.TrimSpace(cells[i])
		}
		name := strings.Trim(cells[0], "`")
		if !strings.HasPrefix(line, "| `") || len(cells) < 5 || !ours(name) {
			continue
		}
		if _, twice := out[name]; twice {
			t.Errorf("%s is documented twice", name)
		}
		out[name] = documented{cells[1], strings.TrimPrefix(cells[2], "-"), cells[3], cells[4]}
	}
	if len(out) < 50 {
		t.Fatalf("only %d families were found in docs/METRICS.md", len(out))
	}
	return out
}

// ours says that a name is one of a family, and not of a column or a flag.
func ours(name string) bool {
	for _, prefix := range []string{"startupd_", "go_", "process_"} {
		if strings.HasPrefix(name, prefix) {
			return true
		}
	}
	return false
}
