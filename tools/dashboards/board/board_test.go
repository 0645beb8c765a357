package board

//lint:file-ignore SA1019 Grafana 10 and 11 take no dashboard of the schema v2.

import (
	"encoding/json"
	"errors"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/grafana/grafana-foundation-sdk/go/cog"
	"github.com/grafana/grafana-foundation-sdk/go/cog/plugins"
	"github.com/grafana/grafana-foundation-sdk/go/dashboard"
	"go.yaml.in/yaml/v3"
)

const root = "../../../"

// TestCommitted fails where deploy/grafana is not what this package makes: run
// make dashboards.
func TestCommitted(t *testing.T) {
	for _, d := range All() {
		want, err := d.JSON()
		if err != nil {
			t.Fatal(err)
		}
		file := root + "deploy/grafana/dashboards/" + strings.TrimPrefix(d.UID, "startupd-") + ".json"
		got, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		if string(got) != string(want) {
			t.Errorf("%s is stale: run make dashboards and commit", file)
		}
	}
}

// built is a dashboard in the types of Grafana's SDK.
func built(t *testing.T, d Dashboard) dashboard.Dashboard {
	t.Helper()
	out, err := d.build()
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// strict decodes b. The SDK returns a list of errors that is no nil error where it
// is empty.
func strict(into *dashboard.Dashboard, b []byte) error {
	err := into.UnmarshalJSONStrict(b)
	if list, ok := errors.AsType[cog.BuildErrors](err); ok && len(list) == 0 {
		return nil
	}
	return err
}

// TestSchema reads the JSON back by the schema of Grafana's SDK.
func TestSchema(t *testing.T) {
	plugins.RegisterDefaultPlugins()
	for _, d := range All() {
		b, err := d.JSON()
		if err != nil {
			t.Fatal(err)
		}
		var out dashboard.Dashboard
		if err := strict(&out, b); err != nil {
			t.Errorf("%s is not what the schema allows: %v", d.UID, err)
		}
		if err := built(t, d).Validate(); err != nil {
			t.Errorf("%s: %v", d.UID, err)
		}
		// What nobody chose, the SDK may write as "", which is none of the choices.
		for _, m := range regexp.MustCompile(`"(orientation|mode|sort|displayMode|textMode|placement)": ""`).FindAllString(string(b), -1) {
			t.Errorf("%s has %s", d.UID, m)
		}
	}
	var broken dashboard.Dashboard
	if err := strict(&broken, []byte(`{"title": "a", "pannels": []}`)); err == nil {
		t.Error("a field that does not exist is not refused")
	}
}

// TestPanels: every panel says what it shows, in which unit, from the chosen data
// source, and lies beside the others.
func TestPanels(t *testing.T) {
	for _, d := range All() {
		ids, taken := map[uint32]string{}, map[[2]uint32]string{}
		for _, p := range built(t, d).Panels {
			if p.RowPanel != nil {
				claim(t, ids, p.RowPanel.Id, *p.RowPanel.Title)
				continue
			}
			q := p.Panel
			claim(t, ids, *q.Id, *q.Title)
			if *q.Title == "" || len(*q.Description) < 20 || *q.FieldConfig.Defaults.Unit == "" || *q.FieldConfig.Defaults.NoValue == "" {
				t.Errorf("%s, %q: title, description, unit or text for no value is missing", d.UID, *q.Title)
			}
			if *q.Datasource.Uid != "${datasource}" {
				t.Errorf("%s, %q asks %s, not the chosen data source", d.UID, *q.Title, *q.Datasource.Uid)
			}
			at := q.GridPos
			if at.X+at.W > 24 {
				t.Errorf("%s, %q sticks out of the grid", d.UID, *q.Title)
			}
			for x := at.X; x < at.X+at.W; x++ {
				for y := at.Y; y < at.Y+at.H; y++ {
					claim(t, taken, [2]uint32{x, y}, *q.Title)
				}
			}
		}
	}
}

func claim[K comparable](t *testing.T, taken map[K]string, key K, by string) {
	t.Helper()
	if other, ok := taken[key]; ok {
		t.Errorf("%q and %q both have %v", other, by, key)
	}
	taken[key] = by
}

// families are the labels of every documented family.
func families(t *testing.T) map[string][]string {
	t.Helper()
	b, err := os.ReadFile(root + "docs/METRICS.md")
	if err != nil {
		t.Fatal(err)
	}
	alert := []string{"alertname", "alertstate", "severity", "unit", "gpu", "reason", "job", "instance"}
	out := map[string][]string{"up": {"job", "instance"}, "ALERTS": alert, "ALERTS_FOR_STATE": alert}
	for _, m := range regexp.MustCompile("(?m)^\\| `(startupd_\\w+)` \\| (\\w+) \\| ([^|]*) \\|").FindAllStringSubmatch(string(b), -1) {
		labels := append(strings.Split(m[3], ", "), "job", "instance")
		out[m[1]] = labels
		if m[2] == "histogram" {
			out[m[1]+"_bucket"], out[m[1]+"_count"], out[m[1]+"_sum"] = append(labels, "le"), labels, labels
		}
	}
	if len(out) < 40 {
		t.Fatalf("docs/METRICS.md has only %d families", len(out))
	}
	return out
}

// TestMetrics: every query asks for metrics and labels that exist, and is answered
// without the recording rules.
func TestMetrics(t *testing.T) {
	known := families(t)
	grouping := regexp.MustCompile(`\b(?:by|on|ignoring|group_left) \(([^)]*)\)|\{\{(\w+)\}\}`)
	selector := regexp.MustCompile(`\b(startupd_\w+|up|ALERTS\w*)\{([^}]*)\}`)
	metric := regexp.MustCompile(`\b(startupd_\w+|up|ALERTS\w*)\b`)
	matcher := regexp.MustCompile(`(\w+)\s*(?:=~|!~|!=|=)\s*"`)
	for _, d := range All() {
		for _, q := range d.Queries() {
			found := selector.FindAllStringSubmatch(q.Expr, -1)
			if len(found) != len(metric.FindAllString(q.Expr, -1)) {
				t.Errorf("%s, %s: a metric without a selector in %s", q.Dashboard, q.Panel, q.Expr)
			}
			labels := []string{"start"} // which two queries make
			for _, m := range found {
				labels = append(labels, known[m[1]]...)
			}
			for _, m := range grouping.FindAllStringSubmatch(q.Expr+q.Legend, -1) {
				for _, l := range strings.Split(m[1]+m[2], ", ") {
					if !slices.Contains(labels, l) {
						t.Errorf("%s, %s: no metric of %s has the label %q", q.Dashboard, q.Panel, q.Expr, l)
					}
				}
			}
			for _, m := range found {
				labels, ok := known[m[1]]
				if !ok {
					t.Errorf("%s, %s: docs/METRICS.md has no %s", q.Dashboard, q.Panel, m[1])
				}
				for _, l := range matcher.FindAllStringSubmatch(m[2], -1) {
					if !slices.Contains(labels, l[1]) {
						t.Errorf("%s, %s: %s has no label %s", q.Dashboard, q.Panel, m[1], l[1])
					}
				}
			}
		}
	}
}

// TestVariables: what a query uses is declared, and each depends on the ones
// before it.
func TestVariables(t *testing.T) {
	for _, d := range All() {
		var names []string
		for _, v := range built(t, d).Templating.List {
			names = append(names, v.Name)
		}
		if diff := cmp.Diff([]string{"datasource", "job", "instance", "unit"}, names); diff != "" {
			t.Errorf("%s: %s", d.UID, diff)
		}
		for _, q := range d.Queries() {
			if _, err := Expand(q.Expr, Variables{Job: "j", Instance: "i", Unit: "u", Range: "1h", RateInterval: "1m"}); err != nil {
				t.Errorf("%s, %s: %v", q.Dashboard, q.Panel, err)
			}
		}
	}
	if _, err := Expand(`up{job="$jobs",x="$other"}`, Variables{Job: "j"}); err == nil {
		t.Error("a variable that is not declared passes")
	}
	// Of one unit, a choice is a string of PromQL; of many, a regular expression.
	v := Everything("startupd", "h:1", `vllm-\x2da.service`, "1h", "1m")
	if got, err := Expand(`x{job="$job",unit="$unit"}`, v.single()); err != nil || got != `x{job="startupd",unit="vllm-\\x2da.service"}` {
		t.Errorf("one unit: %s, %v", got, err)
	}
	if got, err := Expand(`x{instance=~"$instance",unit=~"$unit"}`, v); err != nil || got != `x{instance=~".+",unit=~".+"}` {
		t.Errorf("many: %s, %v", got, err)
	}
}

// TestChoices: the choices of Fleet stand in regular expressions, that of Startup
// in strings, where Grafana escapes them differently; and what looks at a time
// range asks for all of it.
func TestChoices(t *testing.T) {
	choice := regexp.MustCompile(`(=~|!=|!~|=)"\$\w+"`)
	for _, d := range All() {
		for _, q := range d.Queries() {
			for _, m := range choice.FindAllStringSubmatch(q.Expr, -1) {
				if (m[1] == "=~") != d.Multi || m[1][0] == '!' {
					t.Errorf("%s, %s: %s does not fit the choice", q.Dashboard, q.Panel, m[0])
				}
			}
			if over := regexp.MustCompile(`\[([^\]]*)\]`).FindStringSubmatch(q.Expr); over != nil {
				if want := map[bool]string{true: "$__range", false: "$__rate_interval"}[q.Instant]; over[1] != want {
					t.Errorf("%s, %s: over %s, want %s", q.Dashboard, q.Panel, over[1], want)
				}
			}
		}
	}
}

// TestPhaseNumber: the states are those of startupd_phase, each with its own
// number and colour.
func TestPhaseNumber(t *testing.T) {
	var texts []string
	colours := map[string]string{}
	for i, p := range phases() {
		texts = append(texts, p.Text)
		claim(t, colours, p.Color, p.Text)
		if p.Number != i {
			t.Errorf("%s is %d, want %d", p.Text, p.Number, i)
		}
	}
	want := strings.Fields("unknown stopped spawn load compile cudagraph serving failed")
	if diff := cmp.Diff(want, texts); diff != "" {
		t.Error(diff)
	}
}

// TestLinks: what a table links to is there.
func TestLinks(t *testing.T) {
	b, err := os.ReadFile(root + "docs/failures.md")
	if err != nil {
		t.Fatal(err)
	}
	for _, class := range []string{"package_mismatch", "unknown"} {
		if !strings.Contains(string(b), "\n### "+class+"\n") && !strings.Contains(string(b), "\n## "+class+"\n") {
			t.Errorf("docs/failures.md has no heading %s to link to", class)
		}
	}
	var uids []string
	for _, d := range All() {
		uids = append(uids, d.UID)
	}
	for _, d := range All() {
		for _, r := range d.Rows {
			for _, p := range r.Panels {
				for _, l := range p.Links {
					if uid, ok := strings.CutPrefix(l.URL, "/d/"); ok {
						uid, _, _ = strings.Cut(uid, "?")
						if !slices.Contains(uids, uid) {
							t.Errorf("%s links to dashboard %s, which is not there", p.Title, uid)
						}
					} else if !strings.HasPrefix(l.URL, failures) && l.URL != runbooks+"${__value.raw}.md" {
						t.Errorf("%s links to %s", p.Title, l.URL)
					}
				}
				for _, alert := range p.Runbooks {
					if _, err := os.Stat(root + "docs/runbooks/" + alert + ".md"); err != nil {
						t.Errorf("%s links to a runbook that is not there: %v", p.Title, err)
					}
				}
			}
		}
	}
}

// TestProvisioning: the files are YAML that Grafana takes, and point at what is
// delivered.
func TestProvisioning(t *testing.T) {
	var providers struct {
		APIVersion int `yaml:"apiVersion"`
		Providers  []struct {
			Name, Folder, Type string
			Options            struct{ Path string }
		}
	}
	var sources struct {
		APIVersion  int `yaml:"apiVersion"`
		Datasources []struct {
			Name, Type, Access, URL, UID string
			IsDefault                    bool           `yaml:"isDefault"`
			JSONData                     map[string]any `yaml:"jsonData"`
		}
	}
	for file, into := range map[string]any{"dashboards/startupd.yml": &providers, "datasources/prometheus.yml": &sources} {
		f, err := os.Open(root + "deploy/grafana/provisioning/" + file)
		if err != nil {
			t.Fatal(err)
		}
		dec := yaml.NewDecoder(f)
		dec.KnownFields(true)
		if err := dec.Decode(into); err != nil {
			t.Errorf("%s: %v", file, err)
		}
		f.Close()
	}
	if p := providers.Providers; len(p) != 1 || p[0].Type != "file" || p[0].Options.Path != "/var/lib/grafana/dashboards/startupd" {
		t.Errorf("providers are %+v", p)
	}
	if s := sources.Datasources; len(s) != 1 || s[0].Type != "prometheus" || s[0].URL == "" {
		t.Errorf("data sources are %+v", s)
	}
}

// TestBothWays: each dashboard leads to the other, by the links at the top that
// Grafana makes of their tag, and Fleet by the units.
func TestBothWays(t *testing.T) {
	for _, d := range All() {
		b := built(t, d)
		if len(b.Links) != 1 || b.Links[0].Type != dashboard.DashboardLinkTypeDashboards || !slices.Equal(b.Links[0].Tags, b.Tags) {
			t.Errorf("%s has the links %+v and the tags %v", d.UID, b.Links, b.Tags)
		}
	}
	for _, name := range regexp.MustCompile(`var-(\w+)=`).FindAllStringSubmatch(fleet().Rows[0].Panels[0].Links[0].URL, -1) {
		if !slices.ContainsFunc(built(t, startup()).Templating.List, func(v dashboard.VariableModel) bool { return v.Name == name[1] }) {
			t.Errorf("Fleet sets the variable %s, which Startup lacks", name[1])
		}
	}
}

// TestSameBytes: the JSON does not depend on the order of a map.
func TestSameBytes(t *testing.T) {
	for _, d := range All() {
		first, err := d.JSON()
		if err != nil {
			t.Fatal(err)
		}
		if !json.Valid(first) || strings.Contains(string(first), "inControlsMenu") {
			t.Fatalf("%s is no JSON, or hides links or annotations in a menu", d.UID)
		}
		for range 5 {
			again, err := d.JSON()
			if err != nil || string(again) != string(first) {
				t.Fatalf("%s changes from run to run (%v)", d.UID, err)
			}
		}
	}
}
