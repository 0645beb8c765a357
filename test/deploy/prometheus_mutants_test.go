package deploy

import (
	"cmp"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/common/model"
	"go.yaml.in/yaml/v3"
)

// mutator makes faults of one kind in an alert's expression: one at each place
// that the pattern finds, for each replacement.
type mutator struct {
	what    string
	pattern *regexp.Regexp
	replace func(found []string) []string
}

// always gives the same replacements, with $1 and so on for what was found.
func always(templates ...string) func([]string) []string {
	return func(found []string) []string {
		var out []string
		for _, template := range templates {
			for i, f := range found {
				template = strings.ReplaceAll(template, fmt.Sprintf("$%d", i), f)
			}
			out = append(out, template)
		}
		return out
	}
}

// mutators are the faults that people make in rules.
func mutators() []mutator {
	return []mutator{
		{"not bridged", regexp.MustCompile(`last_over_time\((\w+(?:\{[^}]*\})?)\[5m\]`), always(`last_over_time($1[15s]`)},
		{"bridged for longer", regexp.MustCompile(`(?s)^.*\[5m\].*$`), func(found []string) []string { return []string{strings.ReplaceAll(found[0], "[5m]", "[6m]")} }},
		{"opposite", regexp.MustCompile(`== ([01])\b`), func(found []string) []string { return []string{map[string]string{"0": "== 1", "1": "== 0"}[found[1]]} }},
		{"comparison", regexp.MustCompile(`([^=!<>])([<>])(=?)(\s)`), func(found []string) []string {
			turned, edge := map[string]string{"<": ">", ">": "<"}[found[2]], map[string]string{"": "=", "=": ""}[found[3]]
			return []string{found[1] + turned + found[3] + found[4], found[1] + found[2] + edge + found[4]}
		}},
		{"threshold", regexp.MustCompile(`([<>-]=? )(2\^30|\d+(?:\.\d+)?)\b`), func(found []string) []string {
			return []string{found[1] + "(" + found[2] + " * 1.02 + 1.2)", found[1] + "(" + found[2] + " * 0.98 - 0.6)"}
		}},
		{"any value of a label", regexp.MustCompile(`([a-z]+)="[^"]+"([,}])`), always(`$1=~".*"$2`)},
		{"one value less", regexp.MustCompile(`=~"([^"]*\|[^"]*)"`), func(found []string) []string {
			var out []string
			parts := strings.Split(found[1], "|")
			for i := range parts {
				out = append(out, `=~"`+strings.Join(slices.Delete(slices.Clone(parts), i, i+1), "|")+`"`)
			}
			return out
		}},
		{"operator", regexp.MustCompile(`\b(unless|and|or)\b`), func(found []string) []string {
			return []string{map[string]string{"unless": "and", "and": "unless", "or": "and"}[found[1]]}
		}},
		{"compared by fewer labels", regexp.MustCompile(`\b(on|by) \((\w+(?:, \w+)+)\)`), func(found []string) []string {
			var out []string
			labels := strings.Split(found[2], ", ")
			for i := range labels {
				out = append(out, found[1]+" ("+strings.Join(slices.Delete(slices.Clone(labels), i, i+1), ", ")+")")
			}
			return out
		}},
		{"aggregate", regexp.MustCompile(`\b(min|sum) (by|without)`), always(`max $2`)},
	}
}

// mutant is an alert with one fault.
type mutant struct {
	what string
	rule rule
}

// mutants returns all faulty variants of an alert.
func mutants(t *testing.T, r rule) []mutant {
	t.Helper()
	var all []mutant
	for _, m := range mutators() {
		for _, at := range m.pattern.FindAllStringSubmatchIndex(r.Expr, -1) {
			found := make([]string, len(at)/2)
			for i := range found {
				if at[2*i] >= 0 {
					found[i] = r.Expr[at[2*i]:at[2*i+1]]
				}
			}
			for _, by := range m.replace(found) {
				changed := r
				changed.Expr = r.Expr[:at[0]] + by + r.Expr[at[1]:]
				all = append(all, mutant{fmt.Sprintf("%s, %d: %s -> %s", m.what, at[0], abridged(found[0]), abridged(by)), changed})
			}
		}
	}
	other := r
	other.Labels = map[string]string{"severity": "other"}
	all = append(all, mutant{"another severity", other})
	for _, d := range waits(t, r.For) {
		changed := r
		changed.For = d
		all = append(all, mutant{"for " + d, changed})
	}
	for _, d := range waits(t, r.KeepFiringFor) {
		changed := r
		changed.KeepFiringFor = d
		all = append(all, mutant{"keep_firing_for " + d, changed})
	}
	return all
}

// waits are no wait, and one evaluation less and more.
func waits(t *testing.T, duration string) []string {
	t.Helper()
	if duration == "" {
		return nil
	}
	d, err := time.ParseDuration(duration)
	if err != nil {
		t.Fatal(err)
	}
	const evaluation = 15 * time.Second
	return []string{"0s", fmt.Sprintf("%.0fs", (d - evaluation).Seconds()), fmt.Sprintf("%.0fs", (d + evaluation).Seconds())}
}

func abridged(text string) string {
	text = strings.Join(strings.Fields(text), " ")
	return text[:min(len(text), 60)]
}

// harmless is a fault that no test can find, as it changes nothing that an alert does.
type harmless struct {
	// part is what the faulty expression has.
	part, why string
}

func harmlessFaults() map[string][]harmless {
	outlasted := "the alert waits for as long as the bridge is, so that a gap is over before it would fire"
	return map[string][]harmless{
		"GPUXidDuringStartup": {{"startupd_gpu_last_xid_timestamp_seconds[6m]", "a start that ended counts for five minutes, and so does one whose series are gone"}},
		"StartupdBlind": {
			{"startupd_journal_reader_restarts_total[15m])) >= 2.5", "nothing is restarted two and a half times"},
			{"max without (unit, kind)", "the sum is over 0 where one of its parts is"},
		},
		"LLMStartupNewError": {
			{"last_over_time(startupd_new_errors[15s]) <=", outlasted},
			{"last_over_time(startupd_new_errors[15s] offset 1d)", outlasted},
			{"last_over_time(startupd_startup_begin_timestamp_seconds[15s]) <", outlasted},
		},
	}
}

// TestTestsFindFaults changes one thing after another in the alerts: the tests of
// that alert must fail then. A fault that they let pass is one that an edit could
// make unnoticed.
func TestTestsFindFaults(t *testing.T) {
	for name, r := range alerts(t) {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			tests := singleTests(t, name)
			if delivered := survivors(t, []mutant{{"", r}}, tests); len(delivered) == 0 {
				t.Fatal("the tests of the alert fail as it is")
			}
			all := mutants(t, r)
			t.Logf("%d faults", len(all))
			known := harmlessFaults()[name]
			for _, m := range survivors(t, all, tests) {
				expr := strings.Join(strings.Fields(m.rule.Expr), " ")
				i := slices.IndexFunc(known, func(h harmless) bool { return strings.Contains(expr, h.part) })
				if i < 0 {
					t.Errorf("no test fails of %s", m.what)
					continue
				}
				known = slices.Delete(known, i, i+1)
			}
			for _, h := range known {
				t.Errorf("a test fails of %q, which is listed as harmless because %s", h.part, h.why)
			}
		})
	}
}

// singleTest is a test of an alert as a file of its own.
type singleTest struct {
	text []byte
	// until is when its last look is.
	until time.Duration
}

// singleTests are the tests of an alert, the short ones first. Annotations are left
// out: their queries would take most of the time.
func singleTests(t *testing.T, alert string) []singleTest {
	t.Helper()
	var single []singleTest
	for _, file := range files(t, prometheusFolder+"/tests/"+alert+"*.yml") {
		doc := readYAML[map[string]any](t, file)
		tests, _ := without(doc["tests"], "exp_annotations").([]any)
		for _, test := range tests {
			doc["tests"] = []any{test}
			text, err := yaml.Marshal(doc)
			if err != nil {
				t.Fatal(err)
			}
			one := singleTest{text: text}
			for _, m := range regexp.MustCompile(`eval_time: (\w+)`).FindAllSubmatch(text, -1) {
				at, err := model.ParseDuration(string(m[1]))
				if err != nil {
					t.Fatalf("%s: %v", file, err)
				}
				one.until = max(one.until, time.Duration(at))
			}
			single = append(single, one)
		}
	}
	slices.SortStableFunc(single, func(a, b singleTest) int { return cmp.Compare(a.until, b.until) })
	return single
}

// survivors are the variants of an alert that all tests let pass. Those that one
// test finds are not shown to the next.
func survivors(t *testing.T, variants []mutant, tests []singleTest) []mutant {
	t.Helper()
	dir := t.TempDir()
	for i, test := range tests {
		paths := make([]string, len(variants))
		for j, v := range variants {
			folder := filepath.Join(dir, fmt.Sprintf("%d-%d", i, j))
			paths[j] = filepath.Join(folder, "tests", "test.yml")
			if err := os.MkdirAll(filepath.Dir(paths[j]), 0o755); err != nil {
				t.Fatal(err)
			}
			v.rule.Annotations = nil
			writeYAML(t, filepath.Join(folder, filepath.Base(alertRules)), ruleGroups{[]ruleGroup{{"mutant", []rule{v.rule}}}})
			if err := os.WriteFile(paths[j], test.text, 0o644); err != nil {
				t.Fatal(err)
			}
		}
		passed := verdicts(t, paths)
		var left []mutant
		for j, v := range variants {
			if passed[j] {
				left = append(left, v)
			}
		}
		if variants = left; len(left) == 0 {
			break
		}
	}
	return variants
}

// verdicts has promtool run test files and says which pass.
func verdicts(t *testing.T, paths []string) []bool {
	t.Helper()
	out, _ := promtool(t, append([]string{"test", "rules"}, paths...)...)
	parts := strings.Split(out, "Unit Testing:  ")[1:]
	if len(parts) != len(paths) {
		t.Fatalf("promtool tested %d files of %d:\n%s", len(parts), len(paths), out)
	}
	passed := make([]bool, len(paths))
	for i, part := range parts {
		if strings.Contains(part, "parse error") {
			t.Errorf("a fault must be a rule that Prometheus takes: %s", part)
		}
		passed[i] = strings.Contains(part, "SUCCESS")
	}
	return passed
}

// without is a document without a key, wherever it stands.
func without(v any, key string) any {
	switch v := v.(type) {
	case map[string]any:
		delete(v, key)
		for k := range v {
			v[k] = without(v[k], key)
		}
	case []any:
		for i := range v {
			v[i] = without(v[i], key)
		}
	}
	return v
}

func writeYAML(t *testing.T, file string, v any) {
	t.Helper()
	text, err := yaml.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(file, text, 0o644); err != nil {
		t.Fatal(err)
	}
}
