package deploy

import (
	"flag"
	"fmt"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
	"unicode"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"

	"github.com/startupd/startupd/pkg/profile"
)

var update = flag.Bool("update", false, "rewrite the golden files and docs/failures.md")

const failuresPage = "../../docs/failures.md"

// classGroup is a chapter of the page.
type classGroup struct {
	title   string
	classes []string
}

func classGroups() []classGroup {
	return []classGroup{
		{"GPU memory", []string{"gpu_memory_occupied", "gpu_oom_weights", "gpu_oom_profile", "gpu_oom_kv_cache", "gpu_oom_cudagraph", "kv_cache_too_small"}},
		{"GPU and driver", []string{"gpu_unavailable", "driver_too_old", "driver_mismatch", "unsupported_gpu_arch", "cuda_illegal_access", "cuda_device_assert", "fork_cuda_init", "worker_crashed"}},
		{"Packages, compilers and the engine itself", []string{"package_mismatch", "missing_dependency", "abi_mismatch", "missing_toolchain", "compile_failed", "cudagraph_capture_failed", "engine_bug"}},
		{"Settings and the model", []string{"config_invalid", "parallelism_invalid", "unsupported_model", "trust_remote_code", "quantization_mismatch", "corrupt_weights", "lora_load_failed", "hf_auth", "hf_unreachable"}},
		{"The host", []string{"host_oom", "shm_exhausted", "disk_full", "too_many_open_files", "permission_denied", "port_in_use"}},
		{"Several processes, and starts that hang", []string{"nccl_init", "nccl_hang", "cudagraph_hang", "distributed_deadlock", "ray_cluster", "unknown_hang"}},
		{"Ended from outside", []string{"startup_timeout", "killed_externally"}},
		{"No cause found", []string{"unknown"}},
	}
}

const failuresHead = `# Failures

Why a start failed, by class: what the class means, what to do, and whether starting again can help. The class is in
the label ` + "`class`" + ` of ` + "`startupd_root_cause_info`" + `, in the alerts LLMStartupFailed and LLMStartupRestartLoop (whose "what to do"
leads here), on the page and in ` + "`startupd explain`" + `.

The page tells what holds for a class. startupd knows more of a single case, as it fills in the names and numbers of the log:

    startupd explain --unit UNIT

An example shows such a line of a log, and what startupd says to do about it. Classes of your own, out of a profile in
` + "`--profile.dir`" + `, are not on this page.

<!-- Generated from the catalogue in pkg/profile: go test ./test/deploy -run TestFailuresPage -update -->
`

const unknownRemedy = `Read the last line of each process in ` + "`startupd explain --unit UNIT`" + `, and the errors whose part is not known (suspects), new ones
first. Look for gaps in the evidence there: lines that journald dropped may have told the cause. If you find it, a rule of
your own makes the next such failure known: ` + "`startupd rules test`" + ` tries it, and ` + "`--profile.dir`" + ` loads it
([how to write one](../pkg/profile/README.md#failures)).
`

// again says in words whether starting again can help.
func again(retry *bool) string {
	switch {
	case retry == nil:
		return "depends"
	case *retry:
		return "can help"
	}
	return "no"
}

func writeFailures(p *profile.Profile) string {
	var s strings.Builder
	s.WriteString(failuresHead)
	for _, g := range classGroups() {
		fmt.Fprintf(&s, "\n**%s**\n\n| class | meaning | start again? |\n|---|---|---|\n", g.title)
		for _, class := range g.classes {
			fmt.Fprintf(&s, "| [`%s`](#%s) | %s | %s |\n", class, class, strings.ReplaceAll(p.Classes[class].Meaning, "|", `\|`), again(p.Classes[class].Retry))
		}
	}
	for _, g := range classGroups() {
		fmt.Fprintf(&s, "\n## %s\n", g.title)
		for _, class := range g.classes {
			writeClass(&s, p, class)
		}
	}
	return s.String()
}

func writeClass(s *strings.Builder, p *profile.Profile, class string) {
	c := p.Classes[class]
	fmt.Fprintf(s, "\n### %s\n\n%s.\n\n", class, strings.TrimSuffix(sentence(c.Meaning), "."))
	remedy := c.Remedy + "\n"
	if class == "unknown" {
		remedy = unknownRemedy
	}
	fmt.Fprintf(s, "**What to do.** %s\n", remedy)
	switch {
	case c.Retry == nil:
		s.WriteString("**Starting again** may help or not; startupd says so where a case tells.\n")
	case *c.Retry:
		s.WriteString("**Starting again** can help, without a change.\n")
	default:
		s.WriteString("**Starting again** does not help while nothing is changed.\n")
	}
	for i, e := range classExamples(p, class) {
		if i == 0 {
			s.WriteString("\nFor example:\n")
		}
		fmt.Fprintf(s, "\n    %s\n", e.line)
		if e.remedy != "" {
			fmt.Fprintf(s, "\n%s\n", e.remedy)
		}
	}
}

// sentence begins a text with a capital, unless it begins with a name (torch.compile).
func sentence(text string) string {
	word, _, _ := strings.Cut(text, " ")
	first, size := utf8.DecodeRuneInString(text)
	if strings.ContainsAny(word, "./_") {
		return text
	}
	return string(unicode.ToUpper(first)) + text[size:]
}

// classExample is a line and what a rule says about it; "" where that is what its
// class says.
type classExample struct{ line, remedy string }

const maxExamples = 3

// classExamples are lines of a class: of the rules that know better than it, as
// different as there are, else of one that does not.
func classExamples(p *profile.Profile, class string) []classExample {
	var better, plain []classExample
	seen := map[string]bool{p.Classes[class].Remedy: true}
	for _, r := range p.Rules {
		if r.Class != class || r.Role != profile.RoleCause || r.Weak || strings.Contains(r.Example, "\n") {
			continue
		}
		line := strings.TrimSpace(r.Example)
		plain = append(plain, classExample{line, ""})
		remedy, _ := p.Advise(r, class, func(name string) string { return exampleCapture(r, name) })
		if !seen[r.Remedy] && !seen[remedy] {
			better = append(better, classExample{line, remedy})
		}
		seen[r.Remedy], seen[remedy] = true, true
	}
	if len(better) == 0 {
		return plain[:min(1, len(plain))]
	}
	return better[:min(maxExamples, len(better))]
}

// exampleCapture is what a rule captures of its example; "" is nothing.
func exampleCapture(r *profile.Rule, name string) string {
	for _, source := range append([]string{r.Regex}, r.Extract...) {
		re := regexp.MustCompile(source)
		if m, i := re.FindStringSubmatch(r.Example), re.SubexpIndex(name); m != nil && i >= 0 && m[i] != "" {
			return m[i]
		}
	}
	return ""
}

func builtinProfile(t *testing.T) *profile.Profile {
	t.Helper()
	set, err := profile.Builtin()
	if err != nil {
		t.Fatal(err)
	}
	return set.Profile("vllm")
}

// TestFailuresPage proves that the page is what the catalogue says.
func TestFailuresPage(t *testing.T) {
	text := writeFailures(builtinProfile(t))
	if *update {
		if err := os.WriteFile(failuresPage, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	page, err := os.ReadFile(failuresPage)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(text, string(page)); diff != "" {
		t.Errorf("docs/failures.md (+) is not what the catalogue says (-); go test ./test/deploy -run TestFailuresPage -update writes it:\n%s", diff)
	}
}

// TestEveryClassHasASection proves that a link to failures.md#CLASS leads
// somewhere, whatever the class, and that each section says what to do.
func TestEveryClassHasASection(t *testing.T) {
	p := builtinProfile(t)
	text := writeFailures(p)
	var grouped []string
	for _, g := range classGroups() {
		grouped = append(grouped, g.classes...)
	}
	for class := range p.Classes {
		if !slices.Contains(grouped, class) {
			t.Errorf("class %s is in no group", class)
		}
	}
	for _, class := range grouped {
		if _, ok := p.Classes[class]; !ok {
			t.Errorf("the catalogue has no class %s", class)
		}
		if n := strings.Count(text, "\n### "+class+"\n"); n != 1 {
			t.Errorf("%d sections for %s", n, class)
		}
	}
	if m := regexp.MustCompile(`\*\*What to do\.\*\* *\n|\{[a-z_]+\}`).FindString(text); m != "" {
		t.Errorf("the page has %q: nothing to do, or a name that is not filled in", m)
	}
}
