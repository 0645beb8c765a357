package gpu

import (
	"fmt"

	"github.com/startupd/startupd/pkg/event"
)

// The states of the GPU source, as in event.SourceState.State. Samples come in
// the first five, so the source counts as up in them.
const (
	StateUp = "up"
	// StateMIG: a GPU is partitioned; its utilisation is not known.
	StateMIG = "mig"
	// StateNotSupported: a GPU does not tell its memory (unified memory).
	StateNotSupported = "not_supported"
	// StateDegraded: some calls fail; what they tell is not known.
	StateDegraded = "degraded"
	// StateGPULost: a GPU can't be read; the others can.
	StateGPULost = "gpu_lost"

	// StateNoDriver: NVIDIA's library is not there.
	StateNoDriver = "no_driver"
	// StateDriverError: the library is there and refuses.
	StateDriverError = "driver_error"
	// StateNoGPU: the driver works and has no GPU.
	StateNoGPU = "no_gpu"
	// StateHung: a driver call does not return.
	StateHung = "hung"
	// StateRestarting: the reader process ended and is started again.
	StateRestarting = "restarting"
)

// report is one answer of the reader: a line of JSON.
type report struct {
	State  string `json:"state"`
	Reason string `json:"reason,omitempty"`
	// GPUs is nil where there is no sample.
	GPUs []event.GPU `json:"gpus,omitempty"`
	// spent is true when only a new process can do better.
	spent bool
}

// sampled says that the report holds a sample.
func (r report) sampled() bool { return len(r.GPUs) > 0 }

// look is what one look at one GPU brought.
type look struct {
	gpu event.GPU
	// problems are the calls that failed for another reason than that the GPU
	// or the driver does not have them.
	problems []string
}

// sum makes a report of what was seen. The gravest condition names its state.
func sum(looks []look) report {
	r := report{State: StateUp, GPUs: make([]event.GPU, 0, len(looks))}
	var lost, problems, blind, mig []string
	for _, l := range looks {
		name := fmt.Sprintf("GPU %d", l.gpu.Index)
		switch {
		case l.gpu.Lost != "":
			lost = append(lost, name+": "+l.gpu.Lost)
		case len(l.problems) > 0:
			problems = append(problems, name+": "+l.problems[0])
		case l.gpu.UsedBytes == nil:
			blind = append(blind, name)
		case l.gpu.MIG:
			mig = append(mig, name)
		}
		r.GPUs = append(r.GPUs, l.gpu)
	}
	switch {
	case len(looks) == 0:
		r.State, r.Reason = StateNoGPU, "the driver lists no GPU: look at nvidia-smi -L and at the device nodes that this user may open"
	case len(lost) > 0:
		r.State, r.Reason = StateGPULost, first(lost)+": look for Xid lines in the kernel's log; a reset or a reboot brings it back"
	case len(problems) > 0:
		r.State, r.Reason = StateDegraded, first(problems)+": this number is not known; look for Xid lines in the kernel's log"
	case len(blind) > 0:
		r.State, r.Reason = StateNotSupported, first(blind)+": the driver does not tell its memory (unified memory)"
	case len(mig) > 0:
		r.State, r.Reason = StateMIG, first(mig)+": partitioned (MIG); memory is that of the whole GPU, utilisation is not known"
	}
	return r
}

// first returns the first of several and how many more there are.
func first(s []string) string {
	if len(s) == 1 {
		return s[0]
	}
	return fmt.Sprintf("%s (and %d more)", s[0], len(s)-1)
}
