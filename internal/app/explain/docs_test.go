package explain

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

const docsFile = "../../../docs/explain.md"

// TestDocsNameEveryField: the page names what the schema has.
func TestDocsNameEveryField(t *testing.T) {
	page := readText(t, docsFile)
	var doc any
	if err := json.Unmarshal([]byte(readText(t, schemaFile)), &doc); err != nil {
		t.Fatal(err)
	}
	n := 0
	fields(doc, func(name string) {
		n++
		if !strings.Contains(page, "`"+name+"`") {
			t.Errorf("%s does not name the field %q", docsFile, name)
		}
	})
	if n < 70 {
		t.Errorf("the schema has %d fields only", n)
	}
}

// fields yields the names of all properties of a schema.
func fields(node any, yield func(string)) {
	switch n := node.(type) {
	case map[string]any:
		if props, ok := n["properties"].(map[string]any); ok {
			for name := range props {
				yield(name)
			}
		}
		for _, v := range n {
			fields(v, yield)
		}
	case []any:
		for _, v := range n {
			fields(v, yield)
		}
	}
}

// TestDocsShowTheText: the page's example is what the program prints.
func TestDocsShowTheText(t *testing.T) {
	var want strings.Builder
	for line := range strings.Lines(readText(t, filepath.Join("testdata", "crashed.txt"))) {
		if line != "\n" {
			line = "    " + line
		}
		want.WriteString(line)
	}
	if !strings.Contains(readText(t, docsFile), want.String()) {
		t.Errorf("%s does not show this text:\n%s", docsFile, want.String())
	}
}

func readText(t *testing.T, path string) string {
	t.Helper()
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}
