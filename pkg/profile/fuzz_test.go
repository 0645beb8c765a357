package profile

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/fstest"
)

// FuzzLoad proves that no file makes the loader panic, and that a refusal
// names the file.
func FuzzLoad(f *testing.F) {
	files, err := filepath.Glob("testdata/refused/*.yaml")
	if err != nil {
		f.Fatal(err)
	}
	for _, file := range append(files, "testdata/base.yaml") {
		data, err := os.ReadFile(file)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(data)
	}
	set := acme(f)
	f.Fuzz(func(t *testing.T, data []byte) {
		out, err := set.Extend(fstest.MapFS{"x.yaml": {Data: data}})
		if (out == nil) == (err == nil) {
			t.Fatalf("set %v, error %v", out, err)
		}
		if err != nil && !strings.Contains(err.Error(), "x.yaml") {
			t.Fatalf("the error names no file: %v", err)
		}
	})
}

// FuzzScan proves that records cover the line, and that the index finds the
// same rule as trying every expression in order.
func FuzzScan(f *testing.F) {
	var bench map[string]string
	readYAML(f, "bench.yaml", &bench)
	for _, line := range bench {
		f.Add(line)
	}
	var cases []lineCase
	readYAML(f, "lines.yaml", &cases)
	for _, c := range cases {
		f.Add(c.Line)
	}
	p := builtinSet(f).Profile("vllm")
	for _, r := range p.Rules {
		f.Add(r.Example)
	}
	s := p.NewScanner()
	f.Fuzz(func(t *testing.T, line string) {
		var texts strings.Builder
		s.Scan(line, func(r *Record) {
			texts.WriteString(r.Text)
			if !strings.Contains(r.Text, r.Message) {
				t.Errorf("message %q is not in %q", r.Message, r.Text)
			}
			if want := p.slowPick(r); r.Rule != want {
				t.Errorf("%q: index finds %s, the rules say %s", r.Message, selected(r.Rule), selected(want))
			}
			if r.HasProgress && !(r.Done >= 0 && r.Done <= r.Total) {
				t.Errorf("%q: progress %v of %v", r.Message, r.Done, r.Total)
			}
		})
		if texts.String() != line {
			t.Errorf("records %q of line %q", texts.String(), line)
		}
	})
}

// slowPick is what Scanner.pick must find: a rule with a frame is only a
// candidate, and one with exceptions takes those alone.
func (p *Profile) slowPick(rec *Record) *Rule {
	kinds := []string{rec.Kind, kindAny}
	if rec.Kind == KindRaw || rec.Level == LevelNone || rec.Level >= LevelError {
		kinds = append(kinds, kindTraceback)
	}
	for _, r := range p.Rules {
		if r.Frame != "" || r.Exception != nil && !names(r.Exception, rec.Exception) {
			continue
		}
		if slices.Contains(kinds, r.Kind) && p.from(r, rec.Process) && r.re().MatchString(rec.Message) {
			return r
		}
	}
	return nil
}
