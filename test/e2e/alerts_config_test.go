//go:build e2e

package e2e

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/prometheus/common/model"
	"go.yaml.in/yaml/v3"

	"github.com/startupd/startupd/test/nspawn"
)

const (
	rulesDir     = "../../deploy/prometheus"
	notifierDir  = "../../deploy/alertmanager"
	rhythm       = 500 * time.Millisecond
	hurry        = 30
	groupWait    = 4 * time.Second
	groupPause   = 2 * time.Second
	neverWithin  = time.Hour
	vllmDown     = "VLLMDown"
	marker       = "ChainMarker"
	markerMetric = "e2e_marker"
)

// The configuration is the delivered one, except for its addresses and its
// patience. What takes minutes on a host takes seconds here, so that the chain is
// gone through in two minutes:
//
//	scrape and evaluation interval  500 ms: the starts are 60 times too fast
//	for, keep_firing_for            a thirtieth: 2 m become 4 s
//	group_wait                      4 s where it is longer: a restart loop of 100 ms
//	                                is told by its third failure, within 2 s
//	group_interval                  2 s: it delays what is resolved
//	repeat_interval                 an hour: whatever comes twice is too much
//
// Ranges and thresholds of expressions, routes, groups, inhibitions, templates
// and relabelling stay.
type chainConfig struct {
	prometheus, notifier string
	// slowest is how long the most patient alert takes to come out.
	slowest time.Duration
}

// addresses are those of the test's chain.
type addresses struct {
	prometheus, notifier, inbox string
	daemons                     []string
}

// othersRules are those of another pack on the same host, as startupd's users have
// them, and the test's own.
const othersRules = `groups:
  - name: others
    rules:
      - alert: ` + vllmDown + `
        expr: up{job="vllm"} == 0
        for: 3s
        labels: {severity: critical}
        annotations: {summary: vLLM does not answer.}
      - alert: ` + marker + `
        expr: ` + markerMetric + ` == 1
        for: %s
        labels: {severity: critical}
        annotations: {summary: Whatever happened before has come through by now.}
`

// configure writes the shortened copies into dir. The engines' targets are read
// from vllm.json and the test's from e2e.json there.
func configure(t *testing.T, dir string, a addresses) *chainConfig {
	t.Helper()
	c := &chainConfig{prometheus: filepath.Join(dir, "prometheus.yml"), notifier: filepath.Join(dir, "alertmanager.yml")}
	var rules []any
	for _, name := range []string{"recording.rules.yml", "alerts.rules.yml"} {
		rules = append(rules, c.rules(t, dir, name))
	}
	c.receivers(t, dir, a.inbox)
	c.slowest += groupWait + groupPause
	others := filepath.Join(dir, "others.rules.yml")
	nspawn.Put(t, others, fmt.Sprintf(othersRules, model.Duration(c.slowest)))
	c.scrapes(t, dir, a, append(rules, others))
	return c
}

// rules writes a rules file's copy and returns its path.
func (c *chainConfig) rules(t *testing.T, dir, name string) string {
	t.Helper()
	doc := readYAML(t, filepath.Join(rulesDir, name))
	for _, g := range list(doc["groups"]) {
		delete(g, "interval")
		for _, r := range list(g["rules"]) {
			for _, key := range []string{"for", "keep_firing_for"} {
				if d, ok := r[key]; ok {
					short := duration(t, d) / hurry
					r[key] = model.Duration(short).String()
					if key == "for" {
						c.slowest = max(c.slowest, short)
					}
				}
			}
		}
	}
	path := filepath.Join(dir, name)
	writeYAML(t, path, doc)
	return path
}

// scrapes writes prometheus.yml.
func (c *chainConfig) scrapes(t *testing.T, dir string, a addresses, rules []any) {
	t.Helper()
	doc := readYAML(t, filepath.Join(rulesDir, "prometheus.yml"))
	every := model.Duration(rhythm).String()
	doc["global"] = map[string]any{"scrape_interval": every, "scrape_timeout": every, "evaluation_interval": every}
	doc["rule_files"] = rules
	doc["alerting"] = map[string]any{"alertmanagers": []any{targets(a.notifier)}}
	var jobs []any
	for _, job := range list(doc["scrape_configs"]) {
		delete(job, "scrape_interval")
		delete(job, "scrape_timeout")
		switch job["job_name"] {
		case "startupd":
			job["static_configs"] = targets(a.daemons...)["static_configs"]
		case "vllm":
			// The simulated engine has no metrics: an empty page says as much.
			job["metrics_path"] = "/health"
			delete(job, "static_configs")
			job["file_sd_configs"] = files(filepath.Join(dir, "vllm.json"))
		default:
			continue
		}
		jobs = append(jobs, job)
	}
	if len(jobs) != 2 {
		t.Fatalf("prometheus.yml has not the two jobs startupd and vllm: %v", jobs)
	}
	doc["scrape_configs"] = append(jobs, map[string]any{"job_name": "e2e", "file_sd_configs": files(filepath.Join(dir, "e2e.json"))})
	writeYAML(t, c.prometheus, doc)
}

// receivers writes alertmanager.yml: every receiver posts to the inbox under its
// name, once as data and once with the texts of the templates.
func (c *chainConfig) receivers(t *testing.T, dir, inbox string) {
	t.Helper()
	doc := readYAML(t, filepath.Join(notifierDir, "alertmanager.yml"))
	hasten(t, doc["route"].(map[string]any))
	for _, r := range list(doc["receivers"]) {
		hooks := list(r["webhook_configs"])
		if len(hooks) == 0 {
			continue // it notifies nobody
		}
		for _, h := range hooks {
			h["url"] = fmt.Sprintf("http://%s/webhook/%s", inbox, r["name"])
		}
		r["slack_configs"] = []any{map[string]any{
			"api_url": "http://" + inbox + "/chat", "channel": "#test", "send_resolved": true,
			"title": `{{ template "startupd.slack.title" . }}`, "text": `{{ template "startupd.slack.text" . }}`,
			"fallback": `{{ template "startupd.title" . }}`, "pretext": `{{ template "startupd.text" . }}`,
		}}
	}
	absolute, err := filepath.Abs(filepath.Join(notifierDir, "templates", "*.tmpl"))
	if err != nil {
		t.Fatal(err)
	}
	doc["templates"] = []any{absolute}
	writeYAML(t, c.notifier, doc)
}

// hasten shortens the waits of a route and of those below it.
func hasten(t *testing.T, route map[string]any) {
	for key, limit := range map[string]time.Duration{"group_wait": groupWait, "group_interval": groupPause} {
		if d, ok := route[key]; ok {
			route[key] = model.Duration(min(duration(t, d), limit)).String()
		}
	}
	if _, ok := route["repeat_interval"]; ok {
		route["repeat_interval"] = model.Duration(neverWithin).String()
	}
	for _, below := range list(route["routes"]) {
		hasten(t, below)
	}
}

// targets is the part of a configuration that lists addresses.
func targets(addrs ...string) map[string]any {
	return map[string]any{"static_configs": []any{map[string]any{"targets": addrs}}}
}

func files(path string) []any { return []any{map[string]any{"files": []any{path}}} }

// duration reads what Prometheus and Alertmanager read.
func duration(t *testing.T, v any) time.Duration {
	t.Helper()
	d, err := model.ParseDuration(fmt.Sprint(v))
	if err != nil {
		t.Fatal(err)
	}
	return time.Duration(d)
}

// list is a list of mappings; nil if there is none.
func list(v any) []map[string]any {
	var out []map[string]any
	items, _ := v.([]any)
	for _, item := range items {
		if m, ok := item.(map[string]any); ok {
			out = append(out, m)
		}
	}
	return out
}

func readYAML(t *testing.T, path string) map[string]any {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	var doc map[string]any
	if err := yaml.Unmarshal(text, &doc); err != nil {
		t.Fatalf("%s: %v", path, err)
	}
	return doc
}

func writeYAML(t *testing.T, path string, doc any) {
	t.Helper()
	text, err := yaml.Marshal(doc)
	if err != nil {
		t.Fatal(err)
	}
	nspawn.Put(t, path, string(text))
}
