package host

import (
	"fmt"

	"github.com/startupd/startupd/pkg/event"
)

// process is one process for as long as it lives: PIDs are used again.
type process struct {
	pid int
	// start is its start time in clock ticks since the boot.
	start uint64
}

// vitals is one look at a target.
type vitals struct {
	// alive is false when the target has no process.
	alive bool
	// byProc is true when the cgroup could not be read.
	byProc bool
	// hidden is true when /proc shows none of the processes that there are.
	hidden     bool
	cpuSeconds *float64
	io         *ioBytes
	processes  *int
	// compilers is nil when /proc hides the processes.
	compilers map[process]bool
}

type ioBytes struct{ read, write uint64 }

// sample makes the payload; last holds the compilers of the sample before, nil
// when there was none.
func (v vitals) sample(last map[process]bool) *event.HostSample {
	s := &event.HostSample{CPUSeconds: v.cpuSeconds, Processes: v.processes}
	if v.io != nil {
		s.ReadBytes, s.WriteBytes = &v.io.read, &v.io.write
	}
	if v.compilers == nil {
		return s
	}
	n := len(v.compilers)
	s.Compilers = &n
	if last != nil {
		begun := 0
		for p := range v.compilers {
			if !last[p] {
				begun++
			}
		}
		s.CompilersBegun = &begun
	}
	return s
}

// state says how well the target can be seen.
func (v vitals) state(t Target) event.SourceState {
	s := event.SourceState{Source: event.SourceHost, Up: true, State: StateUp}
	switch {
	case !v.alive:
		s.State = StateIdle
	case v.hidden:
		// What the cgroup itself counts is still there.
		s.Up, s.State = !v.byProc, StateNotPermitted
		s.Reason = "/proc hides the unit's processes (hidepid): mount it without hidepid, or add this user to the group that its gid= option names"
	case v.byProc:
		s.State = StateNoCgroup
		s.Reason = fmt.Sprintf("the control group %q can't be read: counting process %d and its descendants instead", t.ControlGroup, t.MainPID)
	case v.io == nil:
		s.State = StateNoIO
		s.Reason = "I/O is not accounted: set IOAccounting=yes in the unit to have it count as a sign of life"
	}
	return s
}

// isCompiler says that a process of this name (comm: at most 15 bytes) compiles
// or links. A version behind a dash (gcc-12, clang++-18) does not count.
func isCompiler(comm string) bool {
	switch withoutVersion(comm) {
	case "nvcc", "cicc", "cudafe++", "ptxas", "fatbinary", "nvlink",
		"hipcc", "amdclang", "amdclang++",
		"gcc", "g++", "cc", "c++", "cc1", "cc1plus", "clang", "clang++", "lto1", "lto-wrapper",
		"as", "collect2", "ld", "ld.bfd", "ld.gold", "ld.lld", "lld", "mold",
		"ninja", "cmake", "make", "rustc":
		return true
	}
	return false
}

// withoutVersion cuts a trailing "-" and digits off.
func withoutVersion(comm string) string {
	i := len(comm)
	for i > 0 && (comm[i-1] >= '0' && comm[i-1] <= '9' || comm[i-1] == '.') {
		i--
	}
	if i > 1 && i < len(comm) && comm[i-1] == '-' {
		return comm[:i-1]
	}
	return comm
}
