package exporter_test

import (
	"os"
	"regexp"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"
)

// documented is a family as docs/METRICS.md has it.
type documented struct{ Type, Labels, Unit, Meaning string }

// TestDocumented holds docs/METRICS.md against what is exported, and the full
// golden against what is described: no family may be missing in either.
func TestDocumented(t *testing.T) {
	if diff := cmp.Diff(exported(t), readDocs(t)); diff != "" {
		t.Errorf("docs/METRICS.md (+) differs from what is exported (-):\n%s", diff)
	}
}

func exported(t *testing.T) map[string]documented {
	t.Helper()
	c := collector(fullSnapshot(), at(310))
	out := make(map[string]documented)
	types := make(map[string]string)
	for _, f := range gather(t, c) {
		types[f.GetName()] = strings.ToLower(f.GetType().String())
	}
	descs := make(chan *prometheus.Desc, 100)
	c.Describe(descs)
	close(descs)
	// A Desc tells its parts only as text.
	parts := regexp.MustCompile(`fqName: "(\w+)", help: "([^"]*)", (?:unit: "[^"]*", )?constLabels: {}, variableLabels: {([\w,]*)}`)
	for d := range descs {
		m := parts.FindStringSubmatch(d.String())
		if m == nil {
			t.Fatalf("can't read %s", d)
		}
		if types[m[1]] == "" {
			t.Errorf("%s is described, but not in the full snapshot", m[1])
		}
		out[m[1]] = documented{types[m[1]], strings.ReplaceAll(m[3], ",", ", "), unitOf(m[1]), m[2]}
	}
	return out
}

// unitOf is the unit that a name promises.
func unitOf(name string) string {
	for _, u := range []struct{ suffix, unit string }{
		{"_timestamp_seconds", "seconds since 1970"}, {"_seconds", "seconds"}, {"_bytes", "bytes"}, {"_ratio", "ratio"},
	} {
		if strings.HasSuffix(name, u.suffix) {
			return u.unit
		}
	}
	return "-"
}

func readDocs(t *testing.T) map[string]documented {
	t.Helper()
	b, err := os.ReadFile("../../docs/METRICS.md")
	if err != nil {
		t.Fatal(err)
	}
	out := make(map[string]documented)
	for line := range strings.Lines(string(b)) {
		if !strings.HasPrefix(line, "| `startupd_") {
			continue
		}
		cells := strings.Split(strings.Trim(strings.TrimSpace(line), "|"), "|")
		if len(cells) != 6 {
			t.Fatalf("a row of %d cells, want 6: %s", len(cells), line)
		}
		for i := range cells {
			cells[i] = strings.TrimSpace(cells[i])
		}
		name := strings.Trim(cells[0], "`")
		if _, twice := out[name]; twice {
			t.Errorf("%s is documented twice", name)
		}
		if cells[5] == "" {
			t.Errorf("%s does not say when it is absent", name)
		}
		out[name] = documented{cells[1], cells[2], cells[3], cells[4]}
	}
	return out
}
