package profile

import (
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// gpuLine is one line of testdata/gpu_lines.yaml.
type gpuLine struct {
	Line     string
	Class    string
	Role     Role
	Phase    string
	Frame    string
	Weak     bool
	Kernel   bool
	Captures map[string]string
}

// TestGPULines proves what lines of CUDA, NCCL, native code, the host and the
// kernel are taken for.
func TestGPULines(t *testing.T) {
	var cases []gpuLine
	readYAML(t, "gpu_lines.yaml", &cases)
	p := builtinSet(t).Profile("vllm")
	for _, c := range cases {
		want := gpuLine{Line: c.Line, Class: c.Class, Role: c.Role, Phase: c.Phase, Frame: c.Frame, Weak: c.Weak, Kernel: c.Kernel, Captures: c.Captures}
		if want.Role == "" {
			want.Role = RoleCause
		}
		r := lastRecord(p, c)
		if r.Rule == nil {
			t.Errorf("%s\nno rule knows it", c.Line)
			continue
		}
		have := want
		have.Class, have.Role, have.Weak = r.Rule.ClassFor(c.Phase), r.Rule.Role, r.Rule.Weak
		for name := range c.Captures {
			have.Captures = withCapture(have.Captures, name, r.Capture(name))
		}
		if diff := cmp.Diff(want, have); diff != "" {
			t.Errorf("%s: rule %s (-want +got)\n%s", c.Line, r.Rule.ID, diff)
		}
	}
}

// lastRecord matches the line, and takes the rule that its frame selects.
func lastRecord(p *Profile, c gpuLine) *Record {
	if c.Kernel {
		return p.NewScanner().ScanKernel(c.Line)
	}
	records := p.Match(c.Line)
	r := &records[len(records)-1]
	if c.Frame == "" {
		return r
	}
	if i := slices.IndexFunc(r.Conditional, func(rule *Rule) bool { return rule.TakesFrame(c.Frame) }); i >= 0 {
		return r.As(r.Conditional[i])
	}
	return r
}

func withCapture(old map[string]string, name, value string) map[string]string {
	out := map[string]string{name: value}
	for k, v := range old {
		if k != name {
			out[k] = v
		}
	}
	return out
}

// TestEchoedSourceIsNoCause proves that the lines of source in a traceback are
// not taken for what they raise.
func TestEchoedSourceIsNoCause(t *testing.T) {
	p := builtinSet(t).Profile("vllm")
	for _, line := range []string{
		`(Worker_TP0 pid=563) ERROR 09-01 07:08:31 [multiproc_executor.py:1003]     raise RuntimeError(f"NCCL error: {error_str}")`,
		`    raise RuntimeError("CUDA error: out of memory")`,
		`    raise AssertionError("Torch not compiled with CUDA enabled")`,
		`    self.comm: ncclComm_t = self.nccl.ncclCommInitRank(`,
		`    raise torch.OutOfMemoryError('CUDA out of memory.') from e`,
	} {
		for _, r := range p.Match(line) {
			if r.Rule != nil && r.Rule.Role == RoleCause {
				t.Errorf("%s\nis taken for %s", line, r.Rule.ID)
			}
		}
	}
}

// TestCauseIfNamesRules proves the references of shared rules, which a profile
// need not have.
func TestCauseIfNamesRules(t *testing.T) {
	p := builtinSet(t).Profile("vllm")
	ids := map[string]bool{}
	for _, r := range p.Rules {
		ids[r.ID] = true
	}
	for _, r := range p.Rules {
		for _, name := range r.CauseIf {
			if !ids[name] {
				t.Errorf("%s: cause_if names %s, which does not exist", r.ID, name)
			}
		}
	}
}

// TestClassesAdvise proves that an operator is told what to do, whatever the
// class.
func TestClassesAdvise(t *testing.T) {
	for name, c := range builtinSet(t).Profile("vllm").Classes {
		if c.Remedy == "" && name != "unknown" {
			t.Errorf("class %s has no remedy", name)
		}
	}
}

// TestRemedyHasTheNumbers proves that a remedy tells the case's own numbers, and
// that it is the class's where the line tells none.
func TestRemedyHasTheNumbers(t *testing.T) {
	p := builtinSet(t).Profile("vllm")
	for _, c := range []struct{ line, want string }{
		{"CUDA out of memory. Tried to allocate 96.00 MiB. GPU 3 has a total capacity of 79.19 GiB of which 61.06 MiB is free.",
			"Capturing graphs needed 96.00 MiB more on a GPU with 61.06 MiB of 79.19 GiB free: capture fewer sizes, lower the share of memory given to the KV cache, or run without graphs."},
		{"RuntimeError: CUDA error: out of memory", p.Classes["gpu_oom_cudagraph"].Remedy},
	} {
		r := lastRecord(p, gpuLine{Line: c.line, Frame: "/x/torch/cuda/graphs.py:capture_begin"})
		got, retry := p.Advise(r.Rule, r.Rule.Class, r.Capture)
		if got != c.want || retry == nil || *retry {
			t.Errorf("%s: %q, retry %v", c.line, got, retry)
		}
	}
}

// TestKernelLinesTellWho proves that every rule about a process captures its
// pid or its control group, by which a line is given to a unit.
func TestKernelLinesTellWho(t *testing.T) {
	for _, r := range builtinSet(t).Profile("vllm").Rules {
		if r.Kind != KindKernel || !slices.Contains(r.Captures, "process") || r.ID == "kernel_oom_invoked" {
			continue
		}
		if !slices.Contains(r.Captures, "pid") && !slices.Contains(r.Captures, "cgroup") {
			t.Errorf("%s tells neither a pid nor a control group", r.ID)
		}
	}
}
