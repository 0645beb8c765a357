package preflight

import (
	"context"
	"errors"
	"testing"
)

func TestXids(t *testing.T) {
	h := newHost(t)
	gpus := cards(2, 1, 80)
	gpus[0].PCI, gpus[1].PCI = "0000:3b:00", "0000:c1:00"
	for _, c := range []struct {
		name   string
		lines  []string
		err    error
		status Status
		text   string
	}{
		{"a fault of the second", []string{"NVRM: Xid (PCI:0000:C1:00): 79, pid=1, name=python3, GPU has fallen off the bus."}, nil, Warning, "GPU 1 had an Xid 79 lately"},
		{"of its memory", []string{"NVRM: Xid (PCI:0000:3b:00.0): 94, pid=1, name=python3, Ch 00000008, Contained: SM (0x1)"}, nil, Warning, "GPU 0 had an Xid 94 lately"},
		{"a program's own", []string{"NVRM: Xid (PCI:0000:3b:00): 31, pid=1, name=python3, MMU Fault"}, nil, OK, "needs 2 GPUs"},
		{"of another GPU", []string{"NVRM: Xid (PCI:0000:ff:00): 79, pid=1, name=python3, GPU has fallen off the bus."}, nil, OK, "needs 2 GPUs"},
		{"no right", nil, errors.New("no right to read the kernel's log"), Unknown, "recent Xid errors are not known: no right"},
	} {
		o := h.options(gpus, "vllm", "serve", "m", "-tp", "2")
		o.KernelLog = func(context.Context) ([]string, error) { return c.lines, c.err }
		r := Run(t.Context(), o)
		got := want(t, r, CheckGPUs, c.status, c.text)
		if r.Verdict != Fit || (c.status == Warning) != (got.Do != "") {
			t.Errorf("%s: %s, do %q", c.name, r.Verdict, got.Do)
		}
		if n := len(of(r, CheckGPUs)); c.status == OK && n != 1 {
			t.Errorf("%s: %d results", c.name, n)
		}
	}
}
