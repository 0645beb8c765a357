package profile

import (
	"fmt"
	"maps"
	"math/bits"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"testing/fstest"
)

func BenchmarkBuiltin(b *testing.B) {
	b.ReportAllocs()
	for b.Loop() {
		if _, err := Builtin(); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkLine(b *testing.B) {
	var lines map[string]string
	readYAML(b, "bench.yaml", &lines)
	p := builtinSet(b).Profile("vllm")
	for _, name := range slices.Sorted(maps.Keys(lines)) {
		b.Run(name, func(b *testing.B) {
			s := p.NewScanner()
			s.memo.entries = nil // each line is new
			b.ReportAllocs()
			for b.Loop() {
				s.Scan(lines[name], func(*Record) {})
			}
		})
	}
}

// BenchmarkScan shows that the cost of a line does not grow with the number of
// rules.
func BenchmarkScan(b *testing.B) {
	lines := benchLines(b)
	p := builtinSet(b).Profile("vllm")
	for _, p := range []*Profile{p, doubled(b, p)} {
		b.Run(fmt.Sprintf("rules=%d", len(p.Rules)), func(b *testing.B) {
			s := p.NewScanner()
			s.memo.entries = nil // each line is new
			for b.Loop() {
				for _, line := range lines {
					s.Scan(line, func(*Record) {})
				}
			}
		})
	}
}

func benchLines(t testing.TB) []string {
	var lines map[string]string
	readYAML(t, "bench.yaml", &lines)
	return slices.Collect(maps.Values(lines))
}

// doubled returns a profile with as many made-up rules again, of the same kinds
// and forms.
func doubled(t testing.TB, p *Profile) *Profile {
	t.Helper()
	rnd := rand.New(rand.NewPCG(1, 2))
	var doc strings.Builder
	fmt.Fprintf(&doc, "schema: startupd-profile/v1\nextends: %s\nrules:\n", p.Engine)
	for i, r := range p.Rules {
		text := words(rnd, 12)
		regex := text
		if r.literals.anchored {
			regex = "^" + text
		}
		fmt.Fprintf(&doc, "  - {id: x%d, role: fact, kind: %s, regex: '%s', example: %s}\n", i, r.Kind, regex, text)
	}
	set, err := builtinSet(t).Extend(fstest.MapFS{"x.yaml": {Data: []byte(doc.String())}})
	if err != nil {
		t.Fatal(err)
	}
	return set.Profile(p.Engine)
}

// words returns a text with the letters of a log line.
func words(rnd *rand.Rand, n int) string {
	const letters = "etaoinsrhldcumfpgwyb"
	var w strings.Builder
	w.WriteByte('A' + byte(rnd.IntN(26)))
	for range n {
		w.WriteByte(letters[rnd.IntN(len(letters))])
	}
	return w.String()
}

// TestCandidatesDoNotGrow proves what BenchmarkScan shows: twice the rules make
// no line try more expressions.
func TestCandidatesDoNotGrow(t *testing.T) {
	p := builtinSet(t).Profile("vllm")
	twice := doubled(t, p)
	if len(twice.Rules) != 2*len(p.Rules) {
		t.Fatalf("%d rules, then %d", len(p.Rules), len(twice.Rules))
	}
	for _, line := range benchLines(t) {
		one, two := candidates(p, line), candidates(twice, line)
		if one != two || one > 4 {
			t.Errorf("%q: %d expressions to try, with twice the rules %d", line, one, two)
		}
	}
}

func candidates(p *Profile, line string) (n int) {
	for _, r := range p.Match(line) {
		marks := make([]uint64, (len(p.Rules)+63)/64)
		indexes := p.grammar.raw
		for i := range p.grammar.headers {
			if h := &p.grammar.headers[i]; h.kind == r.Kind {
				indexes = h.indexes(r.Level)
				break
			}
		}
		for _, x := range indexes {
			x.mark(r.Message, marks)
		}
		for _, set := range marks {
			n += bits.OnesCount64(set)
		}
	}
	return n
}
