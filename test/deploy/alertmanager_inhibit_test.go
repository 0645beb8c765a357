package deploy

import (
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"go.yaml.in/yaml/v3"
)

// inhibitions says whom each alert inhibits, on the same host and for the same
// unit. What is not here is told.
func inhibitions() map[string][]string {
	down := []string{"VLLMDown", "InstanceDown", "TargetDown"}
	failed := append([]string{"LLMStartupStalled", "LLMStartupSlow", "LLMStartupNewError"}, down...)
	return map[string][]string{
		"LLMStartupRestartLoop": append([]string{"LLMStartupFailed"}, failed...),
		"LLMStartupFailed":      failed,
		"LLMStartupStalled":     append([]string{"LLMStartupSlow"}, down...),
		"LLMStartupInProgress":  down,
		"StartupdDown":          {"StartupdBlind", "PrometheusTargetMissing"},
	}
}

// about returns an alert on a host: a unit's alert has the label unit, others'
// alerts come from the engine's own port.
func about(a routed, host string) postedAlert {
	p := postedAlert{Labels: map[string]string{"alertname": a.name, "severity": a.severity, "host": host, "job": "startupd", "instance": host + ":10944"}}
	switch {
	case a.scope == "unit" && slices.Contains(otherAlerts(), a):
		p = p.label("job", "vllm", "instance", host+":8000", "unit", "vllm.service")
	case a.scope == "unit":
		p = p.label("unit", "vllm.service")
	case a.scope == "gpu":
		p = p.label("gpu", "3")
	case a.name == "StartupdBlind":
		p = p.label("reason", "journal")
	}
	return p
}

// variant is how the labels of the two alerts of a pair differ.
type variant struct {
	name string
	// source and target are changes of labels, as of postedAlert.label.
	source, target []string
	// holds says that the pair's inhibition holds all the same.
	holds func(source, target string) bool
}

func variants() []variant {
	never := func(string, string) bool { return false }
	bare := []string{"job", "", "instance", "", "host", "", "unit", ""}
	ofHost := func(source, _ string) bool { return source == "StartupdDown" }
	// Others' alerts on a unit are of another job and instance anyway.
	ofEngine := func(source, target string) bool {
		return source != "StartupdDown" && slices.ContainsFunc(otherAlerts(), func(a routed) bool { return a.name == target })
	}
	ofStartupd := func(source, target string) bool { return !ofEngine(source, target) }
	return []variant{
		{"same", nil, nil, func(string, string) bool { return true }},
		{"another unit", nil, []string{"unit", "embeddings.service"}, ofHost},
		{"another host", nil, []string{"host", "other.example", "instance", "other.example:10944"}, never},
		{"another job", nil, []string{"job", "other"}, ofEngine},
		{"another instance", nil, []string{"instance", "other.example:1"}, ofEngine},
		{"no label", bare, bare, never},
		{"no host", []string{"host", ""}, []string{"host", ""}, ofStartupd},
		{"no unit", []string{"unit", ""}, []string{"unit", ""}, ofHost},
	}
}

// pairs returns every alert before every other one, the related ones in every
// variant, and which of the targets are inhibited. The label case tells the pairs
// apart.
func pairs() (alerts []postedAlert, inhibited map[string]bool) {
	inhibited = map[string]bool{}
	all := append(ownAlerts(), otherAlerts()...)
	for i, source := range all {
		for j, target := range all {
			related := slices.Contains(inhibitions()[source.name], target.name)
			for k, v := range variants() {
				// Two alerts that are not related have no more in common in another variant.
				if !related && v.name != "same" && v.name != "no label" {
					continue
				}
				id := fmt.Sprintf("%s before %s, %s", source.name, target.name, v.name)
				host := fmt.Sprintf("gpu-%d-%d-%d.example", i, j, k)
				s := about(source, host).label(v.source...).label("case", id, "end", "source")
				t := about(target, host).label(v.target...).label("case", id, "end", "target")
				for name, value := range t.Labels { // of this pair alone
					t.Labels[name] = strings.ReplaceAll(value, "other.example", "other."+host)
				}
				alerts = append(alerts, s, t)
				inhibited[id] = related && v.holds(source.name, target.name)
			}
		}
	}
	// Alerts are taken in order: when the last pair is known, all are.
	last, host := "the last pair", "last.example"
	inhibited[last] = true
	for _, a := range []postedAlert{unitAlert("LLMStartupFailed", host, "vllm.service").label("end", "source"), unitAlert("LLMStartupSlow", host, "vllm.service").label("end", "target")} {
		alerts = append(alerts, a.label("case", last))
	}
	return alerts, inhibited
}

// held asks Alertmanager which targets it holds back.
func (n *notifier) held(t *testing.T) map[string]bool {
	t.Helper()
	body, err := n.call(t, http.MethodGet, "/api/v2/alerts?active=false&filter="+url.QueryEscape(`end="target"`), nil)
	if err != nil {
		t.Fatal(err)
	}
	var all []struct {
		Labels map[string]string
		Status struct{ InhibitedBy []string }
	}
	if err := json.Unmarshal(body, &all); err != nil {
		t.Fatal(err)
	}
	held := map[string]bool{}
	for _, a := range all {
		held[a.Labels["case"]] = len(a.Status.InhibitedBy) > 0
	}
	return held
}

// difference lists where held is not as wanted.
func difference(want, held map[string]bool) []string {
	var out []string
	for _, id := range slices.Sorted(maps.Keys(want)) {
		if want[id] != held[id] {
			out = append(out, fmt.Sprintf("%s: inhibited %v, want %v", id, held[id], want[id]))
		}
	}
	return out
}

// TestInhibition posts every pair of alerts and asks which of them Alertmanager
// holds back. Then it proves, by a fault in each part of each rule, that this
// would be seen.
func TestInhibition(t *testing.T) {
	t.Parallel()
	n := &notifier{}
	n.run(t, silent(notifierSettings(t)))
	alerts, want := pairs()
	n.postAll(t, alerts)
	eventually(t, func() error {
		if d := difference(want, n.held(t)); len(d) > 0 {
			return fmt.Errorf("%d of %d pairs:\n%s", len(d), len(want), strings.Join(d, "\n"))
		}
		return nil
	})
	var names []string
	for _, m := range faults(t) {
		names = append(names, m.name)
		n.reload(t, m.doc)
		eventually(t, func() error {
			if len(difference(want, n.held(t))) == 0 {
				return fmt.Errorf("nobody sees the fault: %s", m.name)
			}
			return nil
		})
	}
	t.Logf("%d pairs; seen were the faults:\n%s", len(want), strings.Join(names, "\n"))
}

// silent takes the receivers' addresses out of a configuration.
func silent(doc map[string]any) map[string]any {
	for _, r := range mappings(doc["receivers"]) {
		delete(r, "webhook_configs")
	}
	return doc
}

// reload gives a running Alertmanager another configuration.
func (n *notifier) reload(t *testing.T, doc map[string]any) {
	t.Helper()
	n.write(t, doc)
	if _, err := n.call(t, http.MethodPost, "/-/reload", nil); err != nil {
		t.Fatal(err)
	}
}

// fault is a configuration with one part of an inhibition left out.
type fault struct {
	name string
	doc  map[string]any
}

func faults(t *testing.T) []fault {
	t.Helper()
	var out []fault
	add := func(name string, rule int, change func(rules []any, r map[string]any) []any) {
		doc := notifierSettings(t)
		rules := doc["inhibit_rules"].([]any)
		doc["inhibit_rules"] = change(rules, rules[rule].(map[string]any))
		text, err := yaml.Marshal(doc)
		if err != nil {
			t.Fatal(err)
		}
		// A copy: lists of the document may be shared.
		out = append(out, fault{name, silent(parseSettings(t, text))})
	}
	for i, r := range mappings(notifierSettings(t)["inhibit_rules"]) {
		rule := fmt.Sprintf("rule %d, %v", i+1, r["source_matchers"].([]any)[0])
		add(rule+": left out", i, func(rules []any, _ map[string]any) []any { return slices.Delete(rules, i, i+1) })
		for _, label := range r["equal"].([]any) {
			add(fmt.Sprintf("%s: equal without %v", rule, label), i, func(rules []any, r map[string]any) []any {
				r["equal"] = slices.DeleteFunc(r["equal"].([]any), func(l any) bool { return l == label })
				return rules
			})
		}
		add(rule+": labels may be missing", i, func(rules []any, r map[string]any) []any {
			for _, key := range []string{"source_matchers", "target_matchers"} {
				r[key] = slices.DeleteFunc(r[key].([]any), func(m any) bool { return strings.HasSuffix(m.(string), `=~".+"`) })
			}
			return rules
		})
	}
	return out
}

// TestOneMissingLabelIsEnough proves that each side asks for its labels by itself.
func TestOneMissingLabelIsEnough(t *testing.T) {
	for i, r := range mappings(notifierSettings(t)["inhibit_rules"]) {
		for _, key := range []string{"source_matchers", "target_matchers"} {
			var asked []string
			for _, m := range r[key].([]any) {
				if name, ok := strings.CutSuffix(m.(string), `=~".+"`); ok {
					asked = append(asked, name)
				}
			}
			var equal []string
			for _, l := range r["equal"].([]any) {
				// The rest is told apart by instance and unit, and a label that an
				// operator drops everywhere shall not end the inhibition.
				if l != "job" || slices.Contains(asked, "job") {
					equal = append(equal, l.(string))
				}
			}
			if diff := cmp.Diff(equal, asked); diff != "" {
				t.Errorf("inhibit rule %d: labels in equal (-) and asked for in %s (+):\n%s", i+1, key, diff)
			}
		}
	}
}
