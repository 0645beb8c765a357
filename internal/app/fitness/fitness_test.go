package fitness

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/exporter-toolkit/web"
	"github.com/santhosh-tekuri/jsonschema/v6"

	"github.com/startupd/startupd/internal/app"
	"github.com/startupd/startupd/pkg/event"
	"github.com/startupd/startupd/pkg/history"
)

// fakeBus answers with properties by unit; one that is not there is not found.
type fakeBus map[string]properties

func (b fakeBus) List(_ context.Context, globs []string) ([]string, error) {
	var out []string
	for name := range b {
		for _, g := range globs {
			if ok, _ := filepath.Match(g, name); ok {
				out = append(out, name)
			}
		}
	}
	return out, nil
}

func (b fakeBus) Properties(_ context.Context, unit string) (map[string]any, error) {
	if p, ok := b[unit]; ok {
		return p, nil
	}
	return map[string]any{"LoadState": "not-found"}, nil
}

// with returns a loaded service's properties, changed.
func with(changes properties) properties {
	p := properties{
		"LoadState": "loaded", "ActiveState": "inactive", "Type": "simple", "StandardOutput": "journal", "StandardError": "inherit",
		"TimeoutStartUSec": uint64(90_000_000), "LogLevelMax": int32(-1), "SyslogLevel": int32(6),
	}
	for k, v := range changes {
		p[k] = v
	}
	return p
}

// newOptions are those of a host whose system files are in root.
func newOptions(t *testing.T, bus fakeBus, units ...string) Options {
	t.Helper()
	clock := func() event.Stamp {
		return event.Stamp{Real: time.Now(), Boot: strings.Repeat("a", 32), Mono: time.Hour}
	}
	return Options{
		App:  app.Options{Units: units, Clock: clock, NoGPU: true, Version: "1.0.0"},
		User: "user tester", Arguments: "the test", Root: t.TempDir(),
		Dial: func(context.Context) (Bus, error) { return bus, nil },
	}
}

func find(t *testing.T, r *Report, check, unit string) Result {
	t.Helper()
	for _, res := range r.Checks {
		if res.Check == check && res.Unit == unit {
			return res
		}
	}
	t.Fatalf("there is no check %s %s", check, unit)
	return Result{}
}

// one runs a single check.
func one(t *testing.T, o Options, code, unit string) Result {
	t.Helper()
	o.Now = time.Now
	for _, c := range table() {
		if c.code == code {
			return job{check: c, name: unit}.result(t.Context(), newHost(t.Context(), o), time.Minute)
		}
	}
	t.Fatalf("there is no check %s", code)
	return Result{}
}

func TestUnits(t *testing.T) {
	log := properties{"StandardOutput": "file", "StandardError": "inherit"}
	for _, tt := range []struct {
		name, check string
		props       properties
		want        Status
		text        string
	}{
		{"well", "unit", with(nil), OK, "loaded, inactive, Type=simple"},
		{"not there", "unit", properties{"LoadState": "not-found"}, Fail, "no such unit"},
		{"masked", "unit", with(properties{"LoadState": "masked"}), Fail, "systemctl unmask a.service"},
		{"broken", "unit", with(properties{"LoadState": "bad-setting"}), Fail, "bad-setting"},
		{"changed", "unit", with(properties{"NeedDaemonReload": true}), Warning, "daemon-reload"},
		{"journal", "unit_output", with(nil), OK, "to the journal"},
		{"console too", "unit_output", with(properties{"StandardOutput": "journal+console"}), OK, "to the journal"},
		{"file", "unit_output", with(log), Fail, "never reaches the journal (StandardOutput=file, StandardError=file)"},
		{"null", "unit_output", with(properties{"StandardOutput": "null", "StandardError": "journal"}), Warning, "StandardOutput=null"},
		{"errors lost", "unit_output", with(properties{"StandardError": "append"}), Warning, "tracebacks are lost"},
		{"inherited nothing", "unit_output", with(properties{"StandardInput": "null", "StandardOutput": "inherit"}), Fail, "StandardOutput=null"},
		{"not told", "unit_output", properties{"LoadState": "loaded"}, NotKnown, "does not tell"},
		{"namespace", "unit_output", with(properties{"LogNamespace": "apart"}), Fail, "LogNamespace=apart"},
		{"level", "unit_output", with(properties{"LogLevelMax": int32(4)}), Fail, "LogLevelMax=4"},
		{"level that lets pass", "unit_output", with(properties{"LogLevelMax": int32(6)}), OK, ""},
		{"patterns", "unit_output", with(properties{"LogFilterPatterns": [][]any{{false, "x"}}}), Warning, "LogFilterPatterns"},
		{"not loaded", "unit_output", properties{"LoadState": "not-found"}, NotKnown, "see the check of the unit"},
		{"simple", "unit_timeout", with(nil), OK, "does not wait"},
		{"notify", "unit_timeout", with(properties{"Type": "notify"}), OK, "no good start is on record"},
		{"no time-out", "unit_timeout", with(properties{"Type": "notify", "TimeoutStartUSec": uint64(math.MaxUint64)}), OK, "infinity"},
		{"idle", "unit_vitals", with(nil), OK, "does not run"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			o := newOptions(t, fakeBus{"a.service": tt.props}, "a")
			if got := one(t, o, tt.check, "a.service"); got.Status != tt.want || !strings.Contains(got.Detail+" "+got.Do, tt.text) {
				t.Errorf("%+v, want %s with %q", got, tt.want, tt.text)
			}
		})
	}
}

// TestTimeout compares a unit's time-out with the starts on record.
func TestTimeout(t *testing.T) {
	for _, tt := range []struct {
		limit time.Duration
		post  [][]any
		kind  string
		want  Status
		text  string
	}{
		{90 * time.Second, nil, "notify", Warning, "the longest took 13m20s"},
		{90 * time.Second, [][]any{{"/usr/bin/startupd"}}, "simple", Warning, "TimeoutStartSec=1600"},
		{90 * time.Second, nil, "simple", OK, "does not wait"},
		{30 * time.Minute, nil, "notify", OK, "a good start takes 10m0s, the longest of 3 took 13m20s"},
	} {
		o := newOptions(t, fakeBus{"a.service": with(properties{"Type": tt.kind, "TimeoutStartUSec": uint64(tt.limit.Microseconds()), "ExecStartPost": tt.post})}, "a")
		o.App.StateDir = "/state"
		dir := filepath.Join(o.Root, "state")
		if err := os.MkdirAll(dir, 0o755); err != nil {
			t.Fatal(err)
		}
		store := history.In(dir, history.Limits{MaxStartups: 10})
		now := time.Now()
		for i, seconds := range []float64{600, 800, 300, 9999} {
			outcome := "serving"
			if seconds > 9000 {
				outcome = "failed"
			}
			if _, err := store.Put(t.Context(), now, history.Record{
				Schema: history.Schema, Target: "a.service", Invocation: strings.Repeat("0123"[i:i+1], 32), Began: now.Add(time.Duration(i-9) * time.Hour),
				Seconds: &seconds, Outcome: outcome,
			}); err != nil {
				t.Fatal(err)
			}
		}
		got := one(t, o, "unit_timeout", "a.service")
		text := got.Detail
		for _, f := range got.Write {
			text += f.Text
		}
		if got.Status != tt.want || !strings.Contains(text, tt.text) {
			t.Errorf("%v: %+v, want %s with %q", tt, got, tt.want, tt.text)
		}
	}
}

func TestBadConfig(t *testing.T) {
	for name, change := range map[string]func(*Options){
		"no unit": func(o *Options) { o.App.Units = nil },
		"file":    func(o *Options) { o.App.ConfigFile = filepath.Join(o.Root, "none.yml") },
		"profile": func(o *Options) { o.App.ProfileDir = filepath.Join(o.Root, "none") },
		"web": func(o *Options) {
			path := filepath.Join(o.Root, "web.yml")
			if err := os.WriteFile(path, []byte("passwords: none\n"), 0o600); err != nil {
				t.Fatal(err)
			}
			none, addrs := false, []string{}
			o.App.Web = &web.FlagConfig{WebConfigFile: &path, WebListenAddresses: &addrs, WebSystemdSocket: &none}
		},
	} {
		t.Run(name, func(t *testing.T) {
			o := newOptions(t, fakeBus{}, "a")
			if r := Run(t.Context(), o); r.BadConfig() {
				t.Fatalf("bad before: %+v", r.Checks)
			}
			change(&o)
			if r := Run(t.Context(), o); !r.BadConfig() || r.Fit == nil || *r.Fit {
				t.Errorf("it is good: %+v", r.Checks)
			}
		})
	}
}

// TestOwnRules: an operator's rules are counted, and those that replace a built-in
// one are named.
func TestOwnRules(t *testing.T) {
	o := newOptions(t, fakeBus{}, "a")
	set, err := app.LoadProfiles("")
	if err != nil {
		t.Fatal(err)
	}
	p := set.Profiles()[0]
	var old string
	for _, r := range p.Rules {
		if r.Role == "benign" && r.Kind == "log" {
			old = r.ID
			break
		}
	}
	o.App.ProfileDir = filepath.Join(o.Root, "profiles")
	if err := os.Mkdir(o.App.ProfileDir, 0o755); err != nil {
		t.Fatal(err)
	}
	if got := one(t, o, "profiles", ""); got.Status != Warning || !strings.Contains(got.Do, "right directory") {
		t.Errorf("an empty directory: %+v", got)
	}
	text := "schema: startupd-profile/v1\nengine: " + p.Engine + "\nextends: " + p.Engine + "\nrules:\n" +
		"  - {id: own_a, role: benign, kind: log, regex: '^own a$', example: 'own a'}\n" +
		"  - {id: " + old + ", role: benign, kind: log, regex: '^own b$', example: 'own b'}\n"
	if err := os.WriteFile(filepath.Join(o.App.ProfileDir, "own.yaml"), []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	got := one(t, o, "profiles", "")
	if got.Status != OK || !strings.Contains(got.Detail, "2 rules from") || !strings.HasSuffix(got.Detail, "replace the built-in "+old) {
		t.Errorf("%+v", got)
	}
}

// TestNoBus: without systemd the units' checks are not known, never ok.
func TestNoBus(t *testing.T) {
	o := newOptions(t, nil, "a", "b*")
	o.Dial = func(context.Context) (Bus, error) { return nil, errors.New("nobody there") }
	r := Run(t.Context(), o)
	for _, check := range []string{"unit", "unit_output", "unit_rate_limit", "unit_timeout", "unit_vitals"} {
		if got := find(t, r, check, "a.service"); got.Status != NotKnown {
			t.Errorf("%+v", got)
		}
	}
	if got := find(t, r, "bus", ""); got.Status != Warning || !strings.Contains(got.Detail, "nobody there") {
		t.Errorf("%+v", got)
	}
}

func TestGlobs(t *testing.T) {
	o := newOptions(t, fakeBus{"llm-b.service": with(nil), "llm-a.service": with(nil), "other.service": with(nil)}, "llm-*", "llm-a", "c")
	if got := strings.Join(Run(t.Context(), o).Units, " "); got != "llm-a.service c.service llm-b.service" {
		t.Errorf("units %s", got)
	}
}

// TestHang: what hangs is not known, and holds nothing up; a check that fails
// itself says so.
func TestHang(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		never := make(chan struct{})
		began := time.Now()
		h := &host{}
		j := job{check: check{code: "x", title: "x", host: func(context.Context, *host) outcome { <-never; return ok("late") }}}
		if got := j.result(t.Context(), h, 10*time.Second); got.Status != NotKnown || !strings.Contains(got.Detail, "no answer within 10s") {
			t.Errorf("%+v", got)
		}
		if took := time.Since(began); took > 11*time.Second {
			t.Errorf("it took %s", took)
		}
		close(never)
		j.check.host = func(ctx context.Context, _ *host) outcome { <-ctx.Done(); return unknown("its own reason", "") }
		if got := j.result(t.Context(), h, time.Second); got.Detail != "its own reason" {
			t.Errorf("%+v", got)
		}
		j.check.host = func(context.Context, *host) outcome { panic("boom") }
		if got := j.result(t.Context(), h, time.Second); got.Status != NotKnown || !strings.Contains(got.Detail, "boom") {
			t.Errorf("%+v", got)
		}
	})
}

// TestTable: codes are unique and the documents list them all.
func TestTable(t *testing.T) {
	text, err := os.ReadFile("../../../docs/check.md")
	if err != nil {
		t.Fatal(err)
	}
	seen := map[string]bool{}
	for _, c := range table() {
		if seen[c.code] || (c.host == nil) == (c.unit == nil) || c.title == "" || len(c.title) > titleWidth {
			t.Errorf("check %q is not well made", c.code)
		}
		seen[c.code] = true
		if !bytes.Contains(text, []byte("| `"+c.code+"` |")) {
			t.Errorf("docs/check.md does not list %s", c.code)
		}
	}
}

// TestSchema: what is printed is what docs/check.schema.json says.
func TestSchema(t *testing.T) {
	schema, err := jsonschema.NewCompiler().Compile("../../../docs/check.schema.json")
	if err != nil {
		t.Fatal(err)
	}
	r := Run(t.Context(), newOptions(t, fakeBus{"a.service": with(properties{"StandardOutput": "null"})}, "a"))
	b, err := json.Marshal(r)
	if err != nil {
		t.Fatal(err)
	}
	doc, err := jsonschema.UnmarshalJSON(bytes.NewReader(b))
	if err != nil {
		t.Fatal(err)
	}
	if err := schema.Validate(doc); err != nil {
		t.Error(err)
	}
	doc.(map[string]any)["checks"] = "none"
	if schema.Validate(doc) == nil {
		t.Error("the schema takes anything")
	}
}
