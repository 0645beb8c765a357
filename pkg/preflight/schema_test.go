package preflight

import (
	"bytes"
	"encoding/json"
	"os"
	"strings"
	"testing"

	"github.com/santhosh-tekuri/jsonschema/v6"

	"github.com/startupd/startupd/pkg/event"
)

// closed compiles the documented schema with every object closed: a field that it
// does not list is a fault of ours.
func closed(t *testing.T) *jsonschema.Schema {
	t.Helper()
	raw, err := os.ReadFile("../../docs/preflight.schema.json")
	if err != nil {
		t.Fatal(err)
	}
	doc, err := jsonschema.UnmarshalJSON(bytes.NewReader(raw))
	if err != nil {
		t.Fatal(err)
	}
	root := doc.(map[string]any)
	root["additionalProperties"] = false
	for _, d := range root["$defs"].(map[string]any) {
		d.(map[string]any)["additionalProperties"] = false
	}
	c := jsonschema.NewCompiler()
	c.AssertFormat()
	if err := c.AddResource("preflight.schema.json", doc); err != nil {
		t.Fatal(err)
	}
	s, err := c.Compile("preflight.schema.json")
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func TestReportFitsItsSchema(t *testing.T) {
	s := closed(t)
	h := newHost(t)
	h.process(proc{pid: 45, parent: 1, state: "D", argv: []string{"python"}, cgroup: "/system.slice/llm.service", socket: 5})
	h.sockets("00000000:1F40 0A 0 5")
	h.venv(plainVenv)
	h.dist(venvSite, "vllm", "0.16.0", "torch==1")
	full := holding(45, 70, "llm.service")
	full.Container = strings.Repeat("a", 64)
	lost := card(0, 1, 80)
	lost.Lost = "gone"
	reports := map[string]*Report{
		"fit":         Run(t.Context(), h.options(cards(1, 1, 80), "/opt/venv/bin/vllm", "serve", "m", "--port", "1")),
		"held":        Run(t.Context(), h.options([]event.GPU{card(0, 75, 80, full)}, "vllm", "serve", "m").withUnit(Unit{})),
		"lost":        Run(t.Context(), h.options([]event.GPU{lost}, "vllm", "serve", "m")),
		"unknown":     Run(t.Context(), h.options(nil, "other")),
		"no systemd":  Run(t.Context(), Options{Unit: "llm.service", System: h.sys}),
		"no engine":   Run(t.Context(), Options{Argv: []string{"x"}, System: h.sys}),
		"no anything": Run(t.Context(), Options{System: h.sys}),
	}
	for name, r := range reports {
		text, err := json.Marshal(r)
		if err != nil {
			t.Fatal(err)
		}
		v, err := jsonschema.UnmarshalJSON(bytes.NewReader(text))
		if err != nil {
			t.Fatal(err)
		}
		if err := s.Validate(v); err != nil {
			t.Errorf("%s: %v\n%s", name, err, text)
		}
	}
	if reports["no anything"].Verdict != CannotTell {
		t.Errorf("nothing to look at is %s", reports["no anything"].Verdict)
	}
}

func TestVerdicts(t *testing.T) {
	one := func(check string, s Status) Result { return Result{Check: check, Status: s, What: "it is so"} }
	passing := Result{Check: CheckPort, Status: Fail, What: "taken", Class: "port_in_use", passing: true}
	for _, c := range []struct {
		name    string
		checks  []Result
		waited  bool
		verdict Verdict
		text    string
	}{
		{"all is good", []Result{one(CheckPort, OK)}, false, Fit, "fit"},
		{"warnings", []Result{one(CheckPort, OK), one(CheckDisk, Warning), one(CheckDisk, Warning)}, false, Fit, "fit, 2 warnings"},
		{"something is not known", []Result{one(CheckPort, OK), one(CheckDisk, Unknown)}, false, Fit, "fit, as far as can be told, 1 not known"},
		{"only the command is known", []Result{one(CheckCommand, OK), one(CheckPort, Unknown)}, false, CannotTell, "cannot tell: no check could be made"},
		{"one fails", []Result{one(CheckPort, OK), one(CheckDisk, Fail)}, false, NotFit, "not fit: it is so"},
		{"several fail", []Result{passing, one(CheckDisk, Fail)}, true, NotFit, "not fit [port_in_use]: taken, and 1 more"},
		{"waiting did not help", []Result{passing}, true, Held, "not fit [port_in_use] after waiting 5 s: taken"},
		{"nobody waited", []Result{passing}, false, NotFit, "not fit [port_in_use]: taken"},
		{"nothing", nil, false, CannotTell, "cannot tell: no check could be made"},
	} {
		r := &Report{Checks: c.checks, WaitedSeconds: 5}
		r.judge(c.waited)
		if r.Verdict != c.verdict || r.Summary() != c.text {
			t.Errorf("%s: %s, %q; want %s, %q", c.name, r.Verdict, r.Summary(), c.verdict, c.text)
		}
	}
}
