package deploy

import (
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"go.yaml.in/yaml/v3"
)

const (
	notifierConfig    = "../../deploy/alertmanager/alertmanager.yml"
	notifierTemplates = "../../deploy/alertmanager/templates/*.tmpl"
	alertRules        = "../../deploy/prometheus/alerts.rules.yml"
)

// routed is an alert and whom it should reach.
type routed struct {
	name, severity, receiver string
	// scope is what the alert is about: unit, gpu, or host.
	scope string
}

// ownAlerts are startupd's.
func ownAlerts() []routed {
	return []routed{
		{"LLMStartupFailed", "critical", "page", "unit"},
		{"LLMStartupRestartLoop", "critical", "page", "unit"},
		{"LLMStartupStalled", "critical", "page", "unit"},
		{"LLMStartupSlow", "warning", "chat", "unit"},
		{"LLMStartupNewError", "info", "log", "unit"},
		{"LLMStartupInProgress", "none", "none", "unit"},
		{"LLMServingProbeDisagrees", "warning", "chat", "unit"},
		{"LLMGPUForeignMemory", "warning", "chat", "gpu"},
		{"GPUXidDuringStartup", "warning", "chat", "gpu"},
		{"StartupdDown", "critical", "page", "host"},
		{"StartupdBlind", "warning", "chat", "host"},
	}
}

// otherAlerts are those of other packs on the same host.
func otherAlerts() []routed {
	return []routed{
		{"VLLMDown", "critical", "page", "unit"},
		{"InstanceDown", "warning", "chat", "unit"},
		{"TargetDown", "info", "log", "unit"},
		{"VLLMQueueLong", "critical", "page", "unit"},
		{"NoSeverity", "", "chat", "unit"},
		{"PrometheusTargetMissing", "critical", "page", "host"},
	}
}

// notifierProgram finds a program under the name that Debian gives it, or its own.
func notifierProgram(t *testing.T, names ...string) string {
	t.Helper()
	for _, name := range names {
		if path, err := exec.LookPath(name); err == nil {
			return path
		}
	}
	t.Fatalf("none of %s is installed; run scripts/install-test-deps", strings.Join(names, ", "))
	return ""
}

// amtool runs it and returns what it prints.
func amtool(t *testing.T, args ...string) (string, error) {
	t.Helper()
	out, err := exec.CommandContext(t.Context(), notifierProgram(t, "amtool"), args...).CombinedOutput()
	return string(out), err
}

func TestAlertmanagerConfigIsValid(t *testing.T) {
	out, err := amtool(t, "check-config", notifierConfig)
	if err != nil || !strings.Contains(out, "1 templates") {
		t.Errorf("amtool check-config: %v\n%s", err, out)
	}
	text, err := os.ReadFile(notifierConfig)
	if err != nil {
		t.Fatal(err)
	}
	// What Alertmanager still reads and will not for ever.
	for _, old := range []string{"match:", "match_re:", "source_match:", "source_match_re:", "target_match:", "target_match_re:", "mute_time_intervals:"} {
		if strings.Contains(string(text), " "+old) {
			t.Errorf("%s is deprecated", old)
		}
	}
}

// TestRoutes asks amtool whom each alert reaches, at each severity: an operator
// who thinks another one right changes it in the rules alone.
func TestRoutes(t *testing.T) {
	for _, a := range append(ownAlerts(), otherAlerts()...) {
		t.Run(a.name, func(t *testing.T) {
			t.Parallel()
			for severity, receiver := range map[string]string{
				a.severity: a.receiver, "critical": "page", "warning": "chat", "info": "log", "none": "none",
			} {
				out, err := amtool(t, "config", "routes", "test", "--config.file="+notifierConfig,
					"--verify.receivers="+receiver, "alertname="+a.name, "severity="+severity, "job=any", "instance=gpu1.example:10944", "unit=vllm.service")
				if err != nil {
					t.Errorf("severity %q should reach %q: %s", severity, receiver, out)
				}
			}
		})
	}
	if out, err := amtool(t, "config", "routes", "test", "--config.file="+notifierConfig, "--verify.receivers=page", "alertname=LLMStartupSlow", "severity=warning"); err == nil {
		t.Errorf("amtool lets a wrong receiver pass: %s", out)
	}
}

// TestEveryAlertIsRouted compares the table with the rules.
func TestEveryAlertIsRouted(t *testing.T) {
	text, err := os.ReadFile(alertRules)
	if err != nil {
		t.Fatal(err)
	}
	var doc struct {
		Groups []struct {
			Rules []struct {
				Alert  string
				Labels map[string]string
			}
		}
	}
	if err := yaml.Unmarshal(text, &doc); err != nil {
		t.Fatalf("%s: %v", alertRules, err)
	}
	var got, want []string
	for _, g := range doc.Groups {
		for _, r := range g.Rules {
			if r.Alert != "" {
				got = append(got, r.Alert+" "+r.Labels["severity"])
			}
		}
	}
	for _, a := range ownAlerts() {
		want = append(want, a.name+" "+a.severity)
	}
	slices.Sort(got)
	slices.Sort(want)
	if diff := cmp.Diff(want, slices.Compact(got)); diff != "" {
		t.Errorf("alerts of the rules (+) and those whose way is tested (-):\n%s", diff)
	}
}

// TestAlertingPageNamesEveryAlert compares the page's table with the alerts.
func TestAlertingPageNamesEveryAlert(t *testing.T) {
	text, err := os.ReadFile("../../docs/alerting.md")
	if err != nil {
		t.Fatal(err)
	}
	_, table, _ := strings.Cut(string(text), "\n## Alerts and whom they reach\n")
	table, _, _ = strings.Cut(table, "\n## ")
	for _, a := range ownAlerts() {
		receiver := "`" + a.receiver + "`"
		if a.receiver == "none" {
			receiver = "nobody"
		}
		rows := 0
		for line := range strings.Lines(table) {
			cells := strings.Split(line, " | ")
			if len(cells) > 2 && strings.Contains(strings.ReplaceAll(cells[0], ",", "")+" ", a.name+" ") {
				rows++
				if cells[1] != a.severity || cells[2] != receiver {
					t.Errorf("%s is of severity %s and reaches %s; the page says: %s", a.name, a.severity, a.receiver, line)
				}
			}
		}
		if rows != 1 {
			t.Errorf("%s stands in %d rows of the page's table", a.name, rows)
		}
	}
}

// notifierSettings reads the delivered configuration as data; its templates' path is made
// absolute, so that a copy can lie elsewhere.
func notifierSettings(t *testing.T) map[string]any {
	t.Helper()
	text, err := os.ReadFile(notifierConfig)
	if err != nil {
		t.Fatal(err)
	}
	return parseSettings(t, text)
}

func parseSettings(t *testing.T, text []byte) map[string]any {
	t.Helper()
	var doc map[string]any
	if err := yaml.Unmarshal(text, &doc); err != nil {
		t.Fatal(err)
	}
	path, err := filepath.Abs(notifierTemplates)
	if err != nil {
		t.Fatal(err)
	}
	doc["templates"] = []any{path}
	return doc
}

// mappings returns the mappings of a list.
func mappings(v any) []map[string]any {
	var out []map[string]any
	items, _ := v.([]any)
	for _, item := range items {
		if m, ok := item.(map[string]any); ok {
			out = append(out, m)
		}
	}
	return out
}
