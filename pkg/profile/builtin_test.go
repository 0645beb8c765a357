package profile

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"go.yaml.in/yaml/v3"
)

func builtinSet(t testing.TB) *Set {
	t.Helper()
	set, err := Builtin()
	if err != nil {
		t.Fatal(err)
	}
	return set
}

// readYAML reads a file of testdata.
func readYAML(t testing.TB, name string, v any) {
	t.Helper()
	data, err := os.ReadFile(filepath.Join("testdata", name))
	if err != nil {
		t.Fatal(err)
	}
	if err := yaml.Unmarshal(data, v); err != nil {
		t.Fatal(err)
	}
}

// TestBuiltinSelfTest proves every embedded rule by its examples.
func TestBuiltinSelfTest(t *testing.T) {
	for _, p := range builtinSet(t).Profiles() {
		if len(p.Rules) == 0 {
			t.Errorf("%s has no rules", p.File)
		}
		for _, r := range p.Rules {
			if err := p.selfTest([]*Rule{r}); err != nil {
				t.Errorf("%s: %v", p.File, err)
			}
		}
	}
}

// TestBuiltinIsFiltered proves that no embedded rule runs on every line.
func TestBuiltinIsFiltered(t *testing.T) {
	for _, p := range builtinSet(t).Profiles() {
		for _, r := range p.Rules {
			if len(r.literals.set) == 0 {
				t.Errorf("%s: %s: no text to filter by", p.File, r.ID)
			}
		}
	}
}

// lineCase is one line of testdata/lines.yaml.
type lineCase struct {
	Line    string
	Records []wantRecord
}

type wantRecord struct {
	Process, Kind, Level, Message, Rule string
	PID                                 int
	Known                               bool
	Done, Total                         float64
	Captures                            map[string]string
}

func got(r *Record) wantRecord {
	w := wantRecord{Process: r.Process, PID: r.PID, Kind: r.Kind, Message: r.Message, Known: r.Known, Done: r.Done, Total: r.Total}
	w.Level = map[Level]string{LevelDebug: "debug", LevelInfo: "info", LevelWarning: "warning", LevelError: "error", LevelCritical: "critical"}[r.Level]
	if w.Kind == KindRaw {
		w.Kind = ""
	}
	if r.Rule != nil {
		w.Rule = r.Rule.ID
		if caps := r.captures(); len(caps) > 0 {
			w.Captures = caps
		}
	}
	return w
}

func TestScanLines(t *testing.T) {
	var cases []lineCase
	readYAML(t, "lines.yaml", &cases)
	s := builtinSet(t).Profile("vllm").NewScanner()
	for _, c := range cases {
		var have []wantRecord
		s.Scan(c.Line, func(r *Record) { have = append(have, got(r)) })
		if diff := cmp.Diff(c.Records, have); diff != "" {
			t.Errorf("%s\n(-want +got)\n%s", c.Line, diff)
		}
	}
}

func TestScanKeepsNoState(t *testing.T) {
	var cases []lineCase
	readYAML(t, "lines.yaml", &cases)
	p := builtinSet(t).Profile("vllm")
	s := p.NewScanner()
	for i := range cases {
		line := cases[len(cases)-1-i].Line
		var first, second []wantRecord
		s.Scan(line, func(r *Record) { first = append(first, got(r)) })
		for _, r := range p.Match(line) {
			second = append(second, got(&r))
		}
		if diff := cmp.Diff(first, second); diff != "" {
			t.Errorf("%s: depends on the lines before (-used +fresh)\n%s", line, diff)
		}
	}
}

// TestAwaitsAndReadiness proves the attributes that the core's traps rest on.
func TestAwaitsAndReadiness(t *testing.T) {
	rules := map[string]*Rule{}
	for _, r := range builtinSet(t).Profile("vllm").Rules {
		rules[r.ID] = r
	}
	for _, id := range []string{"capture_bar", "capture_done", "capture_speculator", "capture_addresses"} {
		a := rules[id].Await
		if a == nil || a.Phase != "compile" || a.Step != "cudagraph_estimate" || len(a.Seen) == 0 {
			t.Errorf("%s: await %+v; a capture before the KV cache is sized is an estimate", id, a)
		}
	}
	for _, id := range []string{"engine_init_done", "jit_monitor", "capture_done"} {
		if len(rules[id].ReadyIf) == 0 {
			t.Errorf("%s: must mean ready on a headless node", id)
		}
	}
	if r := rules["rc_bind"]; !r.RevokesReady || !r.Fatal || r.Class != "port_in_use" {
		t.Errorf("rc_bind: %+v", r)
	}
	for _, id := range []string{"api_version_v1", "api_version_nologo", "api_logo_version", "headless_dp", "headless_mp"} {
		if !rules[id].Banner {
			t.Errorf("%s: must be a banner", id)
		}
	}
	for _, id := range []string{"enforce_eager", "capture_skipped", "engine_init_eager", "api_nondefault_args_eager", "api_args_old_eager"} {
		if diff := cmp.Diff([]string{"cudagraph"}, rules[id].Skips); diff != "" {
			t.Errorf("%s: skips %s", id, diff)
		}
	}
	if got := rules["cuda_oom"].ClassFor("cudagraph"); got != "gpu_oom_cudagraph" {
		t.Errorf("out of memory in cudagraph has class %q", got)
	}
	for id, r := range rules {
		if (r.Role == RoleEnter || r.Role == RoleReady) && r.Phase == "" {
			t.Errorf("%s: %s without a phase", id, r.Role)
		}
	}
}

func TestProfileFacts(t *testing.T) {
	p := builtinSet(t).Profile("vllm")
	for cmdline, want := range map[string]bool{
		"/opt/vllm/bin/vllm serve acme/tiny-8b --port 8000":                 true,
		"/usr/bin/python3 -m vllm.entrypoints.openai.api_server --model x":  true,
		"/usr/bin/docker run --gpus all vllm/vllm-openai:v0.16.0 --model x": true,
		"/usr/bin/python3 -m http.server":                                   false,
		"/usr/local/bin/servellm":                                           false,
	} {
		if got := p.DetectCommand(cmdline); got != want {
			t.Errorf("DetectCommand(%q) = %v", cmdline, got)
		}
	}
	for title, want := range map[string]string{
		"VLLM::Worker_TP0": "Worker_TP0", "VLLM::EngineCore": "EngineCore", "VLLM::": "", "python3": "", "": "",
	} {
		if got := p.TitleProcess(title); got != want {
			t.Errorf("TitleProcess(%q) = %q, want %q", title, got, want)
		}
	}
	for process, want := range map[string]string{
		"APIServer": "api", "ApiServer_3": "api", "EngineCore_DP0": "engine", "Worker_TP0_EP1": "worker", "VllmWorker rank=1": "worker", "demo": "",
	} {
		if got := p.ProcessRole(process); got != want {
			t.Errorf("ProcessRole(%q) = %q, want %q", process, got, want)
		}
	}
	if !p.HasPhase("cudagraph") || p.HasPhase("warmup") || p.DefaultPort != 8000 || p.Health.Path != "/health" {
		t.Errorf("phases %v port %d health %+v", p.Phases, p.DefaultPort, p.Health)
	}
}

// TestBuiltinNamesNoOne keeps real hosts and paths out of the examples.
func TestBuiltinNamesNoOne(t *testing.T) {
	for _, p := range builtinSet(t).Profiles() {
		for _, r := range p.Rules {
			if strings.Contains(r.Example, "/home/") {
				t.Errorf("%s: %s: %q", p.File, r.ID, r.Example)
			}
		}
	}
}
