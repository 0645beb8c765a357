package board

import (
	"os"
	"regexp"
	"slices"
	"testing"

	"go.yaml.in/yaml/v3"
)

// TestAlerts: the tables of firing alerts show each alert of deploy/prometheus that
// tells somebody, and link to its runbook.
func TestAlerts(t *testing.T) {
	b, err := os.ReadFile(root + "deploy/prometheus/alerts.rules.yml")
	if err != nil {
		t.Fatal(err)
	}
	var rules struct {
		Groups []struct {
			Rules []struct {
				Alert               string
				Labels, Annotations map[string]string
			}
		}
	}
	if err := yaml.Unmarshal(b, &rules); err != nil {
		t.Fatal(err)
	}
	shown := regexp.MustCompile("^(?:" + regexp.MustCompile(`alertname=~"([^"]*)"`).FindStringSubmatch(ours)[1] + ")$")
	var severities []string
	for _, s := range colours("severity") {
		severities = append(severities, s.Text)
	}
	found := 0
	for _, g := range rules.Groups {
		for _, r := range g.Rules {
			if r.Labels["severity"] == "none" {
				continue
			}
			found++
			if !shown.MatchString(r.Alert) || !slices.Contains(severities, r.Labels["severity"]) {
				t.Errorf("%s (%s) is not shown, or its severity has no colour", r.Alert, r.Labels["severity"])
			}
			if want := runbooks + r.Alert + ".md"; r.Annotations["runbook_url"] != want {
				t.Errorf("%s has the runbook %s, and the table links to %s", r.Alert, r.Annotations["runbook_url"], want)
			}
		}
	}
	if found < 10 {
		t.Errorf("only %d alerts were found", found)
	}
}
