package preflight

import (
	"fmt"

	"github.com/startupd/startupd/pkg/event"
	"github.com/startupd/startupd/pkg/profile"
)

// weights compares the weights with what the engine asks for on each GPU.
func (l *look) weights(gpus []event.GPU) *Result {
	size, from, sure := l.weightBytes()
	if size == 0 || len(gpus) == 0 {
		return nil
	}
	if s := l.cmd.setting(profile.SettingOffload); s.from != "" && s.from != "default" && s.value != "0" {
		return &Result{Check: CheckWeights, Status: Unknown, What: fmt.Sprintf("weights of %s on each GPU (%s), of which part stays in the host's memory", gib(size), from)}
	}
	shares, _, bad := l.shares()
	g := &gpus[0]
	if g.TotalBytes == nil || g.MIG {
		return nil
	}
	ask, of := *g.TotalBytes, "that the GPU has"
	if l.cmd.setting(profile.SettingFixedCache).from == "" {
		if bad != "" {
			return nil
		}
		// Where the default is not known, the biggest may be it.
		ask, of = uint64(float64(ask)*shares[len(shares)-1]), "that the engine asks for"
	}
	r := &Result{Check: CheckWeights, Status: OK, NeedBytes: &size, HaveBytes: &ask,
		What: fmt.Sprintf("weights of %s on each GPU (%s) in the %s %s", gib(size), from, gib(ask), of)}
	if size > ask {
		r.Status, r.Class = Warning, "gpu_oom_weights"
		if sure {
			r.Status = Fail
		}
		r.What = fmt.Sprintf("weights of %s on each GPU (%s) do not fit into the %s %s", gib(size), from, gib(ask), of)
		r.Do = "Use more GPUs, a larger share of their memory, or a smaller or quantized model."
	}
	return r
}

// weightBytes is the size of the weights on each GPU; sure is false where it is
// told by an earlier start, whose arguments may have been others, or by files,
// which may be quantized when they are loaded.
func (l *look) weightBytes() (size uint64, from string, sure bool) {
	if l.o.WeightBytes != nil {
		return *l.o.WeightBytes, l.o.WeightsFrom, true
	}
	// Another size of the parts, or another quantisation, may hide behind the name.
	if last := l.o.LastWeights; last != nil && last.Model == l.model.name && last.Model != "" {
		return last.Bytes, last.From, false
	}
	if l.model.bytes == 0 {
		return 0, "", false
	}
	parts := 1
	for _, name := range []string{profile.SettingTensorParallel, profile.SettingPipelineParallel} {
		if n, ok := l.cmd.count(name); ok {
			parts *= n
		}
	}
	return l.model.bytes / uint64(parts), fmt.Sprintf("%s of files / %d", gib(l.model.bytes), parts), false
}
