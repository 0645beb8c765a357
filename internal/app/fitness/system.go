package fitness

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/startupd/startupd/pkg/event"
	"github.com/startupd/startupd/pkg/gpu"
	vitals "github.com/startupd/startupd/pkg/host"
	"github.com/startupd/startupd/pkg/journal"
)

func checkBus(ctx context.Context, h *host) outcome {
	if h.elsewhere() {
		return outcome{}
	}
	bus, err := h.bus()
	if err == nil {
		_, err = bus.List(ctx, []string{"-.slice"})
	}
	if err != nil {
		return warn(fmt.Sprintf("systemd does not answer on the system bus: %v", err),
			"start dbus.service; a DynamicUser= is refused by the bus of some distributions; without it the journal alone tells of units")
	}
	return ok("systemd answers")
}

// errSeen ends a source that has told its state.
var errSeen = errors.New("seen")

// gpuTime bounds the driver's first answer: without nvidia-persistenced it takes
// seconds for each GPU.
const gpuTime = 30 * time.Second

func checkGPU(ctx context.Context, h *host) outcome {
	if h.o.App.NoGPU {
		return ok("switched off (--no-gpu)")
	}
	var state event.SourceState
	var gpus []event.GPU
	src := gpu.New(gpu.Options{Command: h.o.App.GPUReader, Clock: h.o.App.Clock, Timeout: gpuTime, InitTimeout: gpuTime})
	err := src.Run(ctx, func(_ context.Context, events []event.Event) error {
		for _, e := range events {
			switch d := e.Data.(type) {
			case *event.SourceState:
				state = *d
			case *event.GPUSample:
				gpus = d.GPUs
			}
		}
		return errSeen
	})
	if !errors.Is(err, errSeen) {
		return unknown("the driver has not answered in time", "look at nvidia-smi and for Xid lines in the kernel's log")
	}
	return judgeGPU(state, gpus, h.driver())
}

// driver is the version of the kernel's module; "" when not known.
func (h *host) driver() string {
	b, err := os.ReadFile(h.path("/sys/module/nvidia/version"))
	if err != nil {
		return ""
	}
	return strings.TrimSpace(string(b))
}

func judgeGPU(state event.SourceState, gpus []event.GPU, driver string) outcome {
	if !state.Up {
		if state.State == gpu.StateNoDriver || state.State == gpu.StateNoGPU {
			return warn("GPUs are not seen: "+state.Reason, "on a host without GPUs: --no-gpu")
		}
		return fail("GPUs are not seen ("+state.State+")", state.Reason)
	}
	models := map[string]int{}
	blind := false
	for _, g := range gpus {
		models[g.Name]++
		blind = blind || g.Processes == nil && g.Lost == ""
	}
	var parts []string
	for _, g := range gpus {
		if n := models[g.Name]; n > 0 {
			parts = append(parts, fmt.Sprintf("%d x %s", n, g.Name))
			delete(models, g.Name)
		}
	}
	detail := strings.Join(parts, ", ")
	if driver != "" {
		detail += ", driver " + driver
	}
	switch {
	case state.Reason != "":
		return warn(detail+"; "+state.State, state.Reason)
	case blind:
		return warn(detail+"; the processes that hold memory can't be listed", "memory can't be given to units; see what `nvidia-smi` lists as this user")
	}
	return outcome{status: OK, detail: detail}
}

// checkProcesses tells whether other users' processes are shown: memory of a GPU
// is given to units by them.
func checkProcesses(_ context.Context, h *host) outcome {
	_, err := os.ReadFile(h.path("/proc/1/cgroup"))
	if err == nil {
		_, err = os.ReadFile(h.path("/proc/1/stat"))
	}
	if err != nil {
		return warn(fmt.Sprintf("/proc hides them (%v): GPU memory can't be given to units", err), "mount /proc without hidepid=, and set no ProtectProc= in the daemon's unit")
	}
	return ok("/proc shows them")
}

func checkCgroup(_ context.Context, h *host) outcome {
	var s unix.Statfs_t
	root := h.path("/sys/fs/cgroup")
	if err := unix.Statfs(root, &s); err != nil {
		return warn(fmt.Sprintf("%s: %v", root, err), "mount it: CPU and I/O of a unit tell slow from stalled")
	}
	switch {
	case s.Type == unix.CGROUP2_SUPER_MAGIC || exists(root+"/cgroup.controllers"):
		return ok("version 2")
	case exists(root + "/unified/cgroup.procs"):
		return ok("versions 1 and 2 side by side")
	case exists(root + "/systemd/cgroup.procs"):
		return ok("version 1")
	}
	return warn("no control groups in "+root, "mount them: CPU and I/O of a unit tell slow from stalled")
}

// checkVitals samples a unit that runs.
func checkVitals(ctx context.Context, h *host, name string) outcome {
	if h.elsewhere() {
		return outcome{}
	}
	p, out := h.loaded(ctx, name)
	if out.status != "" {
		return out
	}
	pid, _ := p.number("MainPID")
	group := p.text("ControlGroup")
	if g := h.target(name).Cgroup; g != "" {
		group = g
	}
	if pid == 0 && group == "" {
		return ok("it does not run now")
	}
	src := vitals.New(vitals.Options{Clock: h.o.App.Clock, CgroupRoot: h.path("/sys/fs/cgroup"), ProcRoot: h.path("/proc")})
	src.SetTargets([]vitals.Target{{Name: name, ControlGroup: group, MainPID: int(pid)}})
	var state event.SourceState
	err := src.Run(ctx, func(_ context.Context, events []event.Event) error {
		for _, e := range events {
			if s, ok := e.Data.(*event.SourceState); ok {
				state = *s
			}
		}
		return errSeen
	})
	switch {
	case !errors.Is(err, errSeen):
		return unknown("they can't be read in time", "")
	case state.State == vitals.StateNoIO:
		o := warn("its I/O is not accounted", "write the file and systemctl daemon-reload")
		o.write = dropIn(name, "accounting", "[Service]", "IOAccounting=yes", "CPUAccounting=yes")
		return o
	case state.Up && state.Reason == "":
		return ok("CPU time, I/O and processes can be read")
	}
	return warn(state.State, state.Reason)
}

// clockSlack is how far in the future an entry may lie.
const clockSlack = 5 * time.Second

func checkClock(ctx context.Context, h *host) outcome {
	if e, _ := h.examiner(); e != nil && !h.elsewhere() {
		span, err := e.Span(ctx, journal.TargetSpec{})
		if ahead := span.Last.Real.Sub(h.o.Now()); err == nil && ahead > clockSlack {
			return warn(fmt.Sprintf("the journal's newest entry is %s ahead of the clock: the clock was set back", ahead.Round(time.Second)),
				"times of entries are out of order until then; durations are right, they come from the monotonic clock")
		}
	}
	var tx unix.Timex
	state, err := unix.Adjtimex(&tx)
	switch {
	case err != nil:
		return unknown(fmt.Sprintf("whether it is synchronised: %v", err), "")
	case state == unix.TIME_ERROR:
		return warn("it is not synchronised", "timedatectl set-ntp true, or start chronyd; durations are right all the same, times may not be")
	}
	return ok("it is synchronised")
}

func checkBoot(ctx context.Context, h *host) outcome {
	boot := h.o.App.Clock().Boot
	if boot == "" {
		return fail("/proc/sys/kernel/random/boot_id can't be read", "mount /proc")
	}
	if h.elsewhere() {
		return ok("%s", boot)
	}
	e, _ := h.examiner()
	if e == nil {
		return ok("%s", boot)
	}
	span, err := e.Span(ctx, journal.TargetSpec{})
	if err == nil && span.Last.Boot != "" && span.Last.Boot != boot {
		return warn(fmt.Sprintf("it is %s here and %s in the journal's newest entry: times can't be compared by the monotonic clock", boot, span.Last.Boot),
			"is this a container with a boot ID of its own?")
	}
	if err != nil || span.Last.Boot == "" {
		return ok("%s", boot)
	}
	return ok("as in the journal")
}

// spare are descriptors for everything but the journal's files.
const spare = 256

func checkDescriptors(ctx context.Context, h *host) outcome {
	files, err := journal.LookAtFiles(h.o.App.Journal.Dir)
	if err != nil {
		return outcome{} // the right to the journal has its own check
	}
	need := uint64(files.Readable+len(files.Broken)) + spare
	var r unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &r); err != nil && !errors.Is(err, fs.ErrPermission) {
		return unknown(err.Error(), "")
	}
	limit, whose := r.Max, "this process's"
	if p, err := h.properties(ctx, Service); err == nil && p.text("LoadState") == "loaded" {
		if n, ok := p.number("LimitNOFILE"); ok {
			limit, whose = n, Service+"'s"
		}
	}
	if limit < need {
		o := warn(fmt.Sprintf("%d allowed (%s), about %d needed: each file of the journal takes one", limit, whose, need), "write the file, systemctl daemon-reload, and systemctl restart startupd")
		o.write = dropIn(Service, "descriptors", "[Service]", "LimitNOFILE=16384")
		return o
	}
	return ok("%d allowed (%s), about %d needed", limit, whose, need)
}
