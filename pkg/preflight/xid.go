package preflight

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/startupd/startupd/pkg/event"
	"github.com/startupd/startupd/pkg/profile"
)

// maxXids bounds the faults that are told.
const maxXids = 8

// xids tells of the faults of hardware that the driver has reported of the GPUs
// in the recent kernel log: the last one of each GPU. A fault of a program's own
// says nothing of the next start.
func (l *look) xids(ctx context.Context, gpus []event.GPU) []Result {
	if l.o.KernelLog == nil || len(gpus) == 0 {
		return nil
	}
	lines, err := l.o.KernelLog(ctx)
	if err != nil {
		return []Result{{Check: CheckGPUs, Status: Unknown, What: fmt.Sprintf("recent Xid errors are not known: %v", err)}}
	}
	scan := l.cmd.profile.NewScanner()
	last := map[int]Result{}
	for _, line := range lines {
		r := scan.ScanKernel(line)
		if r.Rule == nil || r.Rule.Role != profile.RoleCause || r.Capture("xid") == "" || r.Rule.Class != "gpu_unavailable" {
			continue
		}
		address := strings.ToLower(strings.TrimPrefix(r.Capture("device"), "PCI:"))
		at := slices.IndexFunc(gpus, func(g event.GPU) bool { return g.PCI != "" && strings.HasPrefix(address, g.PCI) })
		if at < 0 {
			continue
		}
		index := gpus[at].Index
		remedy, _ := l.cmd.profile.Advise(r.Rule, r.Rule.Class, r.Capture)
		last[index] = Result{Check: CheckGPUs, Status: Warning, GPU: &index, Do: remedy,
			What: fmt.Sprintf("GPU %d had an Xid %s lately: %s", index, r.Capture("xid"), cutText(line, 200))}
	}
	var out []Result
	for _, g := range gpus {
		if r, ok := last[g.Index]; ok && len(out) < maxXids {
			out = append(out, r)
		}
	}
	return out
}
