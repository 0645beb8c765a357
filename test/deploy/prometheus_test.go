package deploy

import (
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"go.yaml.in/yaml/v3"
)

const (
	prometheusFolder = "../../deploy/prometheus"
	runbooksFolder   = "../../docs/runbooks"
	repositoryPages  = "https://github.com/startupd/startupd/blob/main/"
)

// rule is an alert or a recording rule, as its file has it.
type rule struct {
	Record        string            `yaml:"record,omitempty"`
	Alert         string            `yaml:"alert,omitempty"`
	Expr          string            `yaml:"expr"`
	For           string            `yaml:"for,omitempty"`
	KeepFiringFor string            `yaml:"keep_firing_for,omitempty"`
	Labels        map[string]string `yaml:"labels,omitempty"`
	Annotations   map[string]string `yaml:"annotations,omitempty"`
}

type ruleGroup struct {
	Name  string `yaml:"name"`
	Rules []rule `yaml:"rules"`
}

type ruleGroups struct {
	Groups []ruleGroup `yaml:"groups"`
}

// ruleTests is a file for promtool test rules, as far as it is looked at here.
type ruleTests struct {
	Tests []struct {
		Name        string `yaml:"name"`
		InputSeries []struct {
			Series string `yaml:"series"`
		} `yaml:"input_series"`
		AlertRuleTest []struct {
			Alertname string `yaml:"alertname"`
			ExpAlerts []struct {
				ExpLabels      map[string]string `yaml:"exp_labels"`
				ExpAnnotations map[string]string `yaml:"exp_annotations"`
			} `yaml:"exp_alerts"`
		} `yaml:"alert_rule_test"`
		PromqlExprTest []struct {
			Expr string `yaml:"expr"`
		} `yaml:"promql_expr_test"`
	} `yaml:"tests"`
}

func readYAML[T any](t *testing.T, file string) T {
	t.Helper()
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	var doc T
	if err := yaml.Unmarshal(text, &doc); err != nil {
		t.Fatalf("%s: %v", file, err)
	}
	return doc
}

// promtool runs it and returns what it prints.
func promtool(t *testing.T, args ...string) (string, error) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), notifierProgram(t, "promtool"), args...)
	// It makes and forgets a storage for each test: half of its time is garbage collection.
	cmd.Env = append(os.Environ(), "GOGC=400")
	out, err := cmd.CombinedOutput()
	return string(out), err
}

// alerts are those of the delivered rules, by name.
func alerts(t *testing.T) map[string]rule {
	t.Helper()
	all := map[string]rule{}
	for _, g := range readYAML[ruleGroups](t, alertRules).Groups {
		for _, r := range g.Rules {
			if _, twice := all[r.Alert]; twice || r.Alert == "" {
				t.Errorf("%s: an alert has no name, or the name of another: %q", alertRules, r.Alert)
			}
			all[r.Alert] = r
		}
	}
	return all
}

func files(t *testing.T, pattern string) []string {
	t.Helper()
	found, err := filepath.Glob(pattern)
	if err != nil || len(found) == 0 {
		t.Fatalf("no file %s (%v)", pattern, err)
	}
	return found
}

func TestPrometheusFilesAreValid(t *testing.T) {
	runs := [][]string{
		append([]string{"check", "rules"}, files(t, prometheusFolder+"/*.rules.yml")...),
		{"check", "config", prometheusFolder + "/prometheus.yml"},
	}
	for _, file := range files(t, prometheusFolder+"/tests/*.yml") {
		runs = append(runs, []string{"test", "rules", file})
	}
	for _, args := range runs {
		t.Run(strings.Join(args[:2], " ")+" "+filepath.Base(args[2]), func(t *testing.T) {
			t.Parallel()
			if out, err := promtool(t, args...); err != nil {
				t.Errorf("promtool %s: %v\n%s", strings.Join(args, " "), err, out)
			}
		})
	}
}

// TestAlertsAreComplete proves that an alert has all that a message shows, and
// that its labels are none that change while it goes on.
func TestAlertsAreComplete(t *testing.T) {
	for name, a := range alerts(t) {
		want := []string{"description", "runbook_url", "summary"}
		if name == "LLMStartupFailed" || name == "LLMStartupRestartLoop" {
			want = append(want, "class", "exception", "message", "process", "remediation")
		}
		slices.Sort(want)
		if got := slices.Sorted(maps.Keys(a.Annotations)); !slices.Equal(got, want) {
			t.Errorf("%s has the annotations %q, want %q", name, got, want)
		}
		if got := slices.Collect(maps.Keys(a.Labels)); !slices.Equal(got, []string{"severity"}) {
			t.Errorf("%s adds the labels %q: those of its series and severity are enough", name, got)
		}
		if strings.Contains(a.Annotations["summary"], "{{") {
			t.Errorf("%s: the summary has values, and must be the same for all: %s", name, a.Annotations["summary"])
		}
		page := "docs/runbooks/" + name + ".md"
		if a.Annotations["runbook_url"] != repositoryPages+page {
			t.Errorf("%s: runbook_url is %s, want %s", name, a.Annotations["runbook_url"], repositoryPages+page)
		}
		if _, err := os.Stat("../../" + page); err != nil {
			t.Errorf("%s has no runbook: %v", name, err)
		}
	}
}

// TestAlertsAreTested proves that each alert has tests in which it fires and does
// not, one of them with all annotations, and one for each case that is known to
// go wrong.
func TestAlertsAreTested(t *testing.T) {
	cases := []string{"fires", "first event", "not too early", "resolves", "restart", "series vanish"}
	named, fires, quiet, full := map[string]string{}, map[string]int{}, map[string]int{}, map[string]int{}
	for _, file := range files(t, prometheusFolder+"/tests/*.yml") {
		for _, test := range readYAML[ruleTests](t, file).Tests {
			alert, what, _ := strings.Cut(test.Name, ":")
			named[alert] += what + ","
			for _, a := range test.AlertRuleTest {
				if len(a.ExpAlerts) == 0 {
					quiet[a.Alertname]++
				}
				for _, e := range a.ExpAlerts {
					fires[a.Alertname]++
					full[a.Alertname] = max(full[a.Alertname], len(e.ExpAnnotations))
				}
			}
		}
	}
	for name, a := range alerts(t) {
		if fires[name] == 0 || quiet[name] == 0 || full[name] != len(a.Annotations) {
			t.Errorf("%s: expected to fire %d times and not to %d times, with %d of %d annotations", name, fires[name], quiet[name], full[name], len(a.Annotations))
		}
		for _, c := range cases {
			if !strings.Contains(named[name], c) {
				t.Errorf("%s has no test whose name says %q", name, c)
			}
		}
	}
}

// TestMetricsAreDocumented looks up every metric, and every label of the tests'
// series, on docs/METRICS.md.
func TestMetricsAreDocumented(t *testing.T) {
	known := documentedMetrics(t)
	texts := map[string]string{}
	for _, file := range files(t, prometheusFolder+"/*.rules.yml") {
		for _, g := range readYAML[ruleGroups](t, file).Groups {
			for _, r := range g.Rules {
				texts[file] += r.Expr + "\n" + strings.Join(slices.Collect(maps.Values(r.Annotations)), "\n") + "\n"
				if r.Record != "" {
					known[r.Record] = nil
				}
			}
		}
	}
	for _, file := range files(t, prometheusFolder+"/tests/*.yml") {
		for _, test := range readYAML[ruleTests](t, file).Tests {
			for _, s := range test.InputSeries {
				name, labels, _ := strings.Cut(s.Series, "{")
				texts[file] += name + "{\n"
				checkLabels(t, file+": "+test.Name, known, name, labels)
			}
			for _, e := range test.PromqlExprTest {
				texts[file] += e.Expr + "\n"
			}
		}
	}
	for _, file := range files(t, runbooksFolder+"/*.md") {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		texts[file] = string(text)
	}
	for file, text := range texts {
		for name := range metricNames(text) {
			if _, ok := known[name]; !ok {
				t.Errorf("%s names %s, which is not in docs/METRICS.md", file, name)
			}
		}
	}
}

// metricNames are startupd's own names, and whatever a selector or a range follows.
func metricNames(text string) map[string]bool {
	names := map[string]bool{}
	for _, m := range regexp.MustCompile(`(?:^|[^\w:])(startupd_[a-z_]+)|([a-zA-Z_][\w:]*)(?:\{[a-z]+[=!]|\[\d+[a-z]\])`).FindAllStringSubmatch(text, -1) {
		name := strings.TrimSuffix(m[1]+m[2], "_bucket")
		names[name] = true
	}
	return names
}

// documentedMetrics are the page's families with their labels, besides those that
// Prometheus itself makes.
func documentedMetrics(t *testing.T) map[string][]string {
	t.Helper()
	page, err := os.ReadFile("../../docs/METRICS.md")
	if err != nil {
		t.Fatal(err)
	}
	known := map[string][]string{"up": {}, "ALERTS": {}}
	for _, m := range regexp.MustCompile("(?m)^\\| `(startupd_[a-z_]+)` \\| [a-z]+ \\| ([a-z, -]+) \\|").FindAllStringSubmatch(string(page), -1) {
		known[m[1]] = strings.Split(m[2], ", ")
	}
	if len(known) < 40 {
		t.Fatalf("docs/METRICS.md has %d families: its tables are not read right", len(known))
	}
	return known
}

func checkLabels(t *testing.T, where string, known map[string][]string, series, labels string) {
	t.Helper()
	name := strings.TrimSuffix(series, "_bucket")
	allowed := append([]string{"job", "instance", "host"}, known[name]...)
	if name != series {
		allowed = append(allowed, "le")
	}
	for _, m := range regexp.MustCompile(`(?:^|",\s*)([a-z_]+)="`).FindAllStringSubmatch(labels, -1) {
		if !slices.Contains(allowed, m[1]) {
			t.Errorf("%s: %s has no label %s", where, series, m[1])
		}
	}
}
