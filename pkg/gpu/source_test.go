package gpu

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/startupd/startupd/pkg/event"
	"github.com/startupd/startupd/test/fakenvml"
)

const (
	gib       = uint64(1) << 30
	container = "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef"
)

// eight is a host of eight GPUs at the end of loading: a worker of a unit on
// each, and a container's process on the first.
func eight() fakenvml.State {
	var st fakenvml.State
	for i := range 8 {
		st.GPUs = append(st.GPUs, fakenvml.GPU{
			UUID: fmt.Sprintf("GPU-%d", i), Name: "NVIDIA RTX PRO 6000", PCI: fmt.Sprintf("0000:%02x:00", 0x3a+i),
			UsedBytes: ptr(75 * gib), TotalBytes: ptr(96 * gib), UtilizationPercent: ptr(50), MIG: ptr(false),
			Processes: []fakenvml.Process{{PID: 100 + i, UsedBytes: ptr(74 * gib)}},
		})
	}
	p := &st.GPUs[0].Processes
	*p = append(*p, fakenvml.Process{PID: 90, UsedBytes: nil}, fakenvml.Process{PID: 100, UsedBytes: ptr(74 * gib), Type: "graphics"})
	return st
}

// proc makes a procfs in which process 100 is of a unit and 90 of a container.
func proc(t *testing.T) {
	t.Helper()
	root := t.TempDir()
	for pid, files := range map[string][2]string{
		"100": {"0::/system.slice/llm.service\n", "Worker_TP0\x00"},
		"90":  {"0::/system.slice/docker-" + container + ".scope\n", "python3\x00-m\x00server\x00"},
	} {
		dir := filepath.Join(root, pid)
		if err := os.Mkdir(dir, 0o755); err != nil {
			t.Fatal(err)
		}
		for i, name := range []string{"cgroup", "cmdline"} {
			if err := os.WriteFile(filepath.Join(dir, name), []byte(files[i]), 0o644); err != nil {
				t.Fatal(err)
			}
		}
	}
	t.Setenv(envProc, root)
}

func TestEightGPUs(t *testing.T) {
	proc(t)
	b := begin(t, os.Getenv(envBuilt), eight(), Options{})
	up := b.awaitState(StateUp)
	if !up.Up || up.Reason != "" || up.Restarts != 0 || up.Source != event.SourceGPU {
		t.Errorf("state %+v, want up without a reason", up)
	}
	s := b.awaitSample()
	if len(s.GPUs) != 8 {
		t.Fatalf("%d GPUs, want 8", len(s.GPUs))
	}
	want := event.GPU{
		Index: 0, UUID: "GPU-0", Name: "NVIDIA RTX PRO 6000", PCI: "0000:3a:00",
		UsedBytes: ptr(75 * gib), TotalBytes: ptr(96 * gib), UtilizationRatio: ptr(0.5),
		Processes: []event.GPUProcess{
			{
				PID: 90, Cgroup: "/system.slice/docker-" + container + ".scope", Unit: "docker-" + container + ".scope",
				Container: container, Title: "python3 -m server",
			},
			{PID: 100, UsedBytes: ptr(74 * gib), Cgroup: "/system.slice/llm.service", Unit: "llm.service", Title: "Worker_TP0"},
		},
	}
	if d := cmp.Diff(want, s.GPUs[0]); d != "" {
		t.Errorf("GPU 0 (-want +got):\n%s", d)
	}
	unknown := []event.GPUProcess{{PID: 107, UsedBytes: ptr(74 * gib)}}
	if d := cmp.Diff(unknown, s.GPUs[7].Processes); d != "" {
		t.Errorf("a process that /proc does not know (-want +got):\n%s", d)
	}

	grown := eight()
	grown.GPUs[3].UsedBytes = ptr(80 * gib)
	grown.GPUs[4].Processes = nil
	b.set(grown)
	s = await(b, "sample of the new file", func(s *event.GPUSample) bool { return *s.GPUs[3].UsedBytes == 80*gib })
	if p := s.GPUs[4].Processes; p == nil || len(p) != 0 {
		t.Errorf("processes of an idle GPU: %v, want an empty list", p)
	}
}

func TestLostGPU(t *testing.T) {
	st := eight()
	st.GPUs[5].Error = "GPU_IS_LOST"
	b := begin(t, os.Getenv(envBuilt), st, Options{})
	state := b.awaitState(StateGPULost)
	if !state.Up || !strings.Contains(state.Reason, "GPU 5: GPU is lost") {
		t.Errorf("state %+v, want up, naming GPU 5", state)
	}
	s := b.awaitSample()
	if d := cmp.Diff(event.GPU{Index: 5, Lost: "GPU is lost"}, s.GPUs[5]); d != "" {
		t.Errorf("the lost GPU (-want +got):\n%s", d)
	}
	if s.GPUs[4].UsedBytes == nil || s.GPUs[6].UsedBytes == nil {
		t.Error("the other GPUs have no memory")
	}
	b.set(eight())
	b.awaitState(StateUp)
}

func TestLostHandle(t *testing.T) {
	st := eight()
	st.Fail = []fakenvml.Fail{{Function: "nvmlDeviceGetHandleByIndex_v2", Code: "GPU_IS_LOST", GPU: ptr(2)}}
	b := begin(t, os.Getenv(envBuilt), st, Options{})
	b.awaitState(StateGPULost)
	if s := b.awaitSample(); s.GPUs[2].Lost == "" || s.GPUs[3].Lost != "" {
		t.Errorf("lost: %q and %q, want GPU 2 alone", s.GPUs[2].Lost, s.GPUs[3].Lost)
	}
}

func TestUnifiedMemory(t *testing.T) {
	st := fakenvml.State{GPUs: []fakenvml.GPU{{
		UUID: "GPU-0", Name: "NVIDIA GB10", UtilizationPercent: ptr(7),
		Processes: []fakenvml.Process{{PID: 1 << 30, UsedBytes: ptr(3 * gib)}},
	}}}
	b := begin(t, os.Getenv(envBuilt), st, Options{})
	if state := b.awaitState(StateNotSupported); !state.Up {
		t.Errorf("state %+v, want up", state)
	}
	want := event.GPU{
		UUID: "GPU-0", Name: "NVIDIA GB10", UtilizationRatio: ptr(0.07),
		Processes: []event.GPUProcess{{PID: 1 << 30, UsedBytes: ptr(3 * gib)}},
	}
	if d := cmp.Diff(want, b.awaitSample().GPUs[0]); d != "" {
		t.Errorf("(-want +got):\n%s", d)
	}
}

func TestMIG(t *testing.T) {
	st := eight()
	st.GPUs[1].MIG = ptr(true)
	st.GPUs[1].MIGDevices = []int{0, 3}
	st.GPUs[1].Processes = []fakenvml.Process{
		{PID: 1 << 30, UsedBytes: ptr(gib), MIG: ptr(0)},
		{PID: 1 << 30, UsedBytes: ptr(2 * gib), MIG: ptr(3)},
		{PID: 1<<30 + 1, UsedBytes: nil, MIG: ptr(3)},
	}
	b := begin(t, os.Getenv(envBuilt), st, Options{})
	if state := b.awaitState(StateMIG); !state.Up {
		t.Errorf("state %+v, want up", state)
	}
	g := b.awaitSample().GPUs[1]
	want := event.GPU{
		Index: 1, UUID: "GPU-1", Name: "NVIDIA RTX PRO 6000", PCI: "0000:3b:00", UsedBytes: ptr(75 * gib), TotalBytes: ptr(96 * gib), MIG: true,
		Processes: []event.GPUProcess{{PID: 1 << 30, UsedBytes: ptr(3 * gib)}, {PID: 1<<30 + 1}},
	}
	if d := cmp.Diff(want, g); d != "" {
		t.Errorf("(-want +got):\n%s", d)
	}
}

func TestOneCallFails(t *testing.T) {
	st := eight()
	st.Fail = []fakenvml.Fail{
		{Function: "nvmlDeviceGetMemoryInfo_v2", Code: "UNKNOWN", GPU: ptr(0)},
		{Function: "nvmlDeviceGetComputeRunningProcesses_v3", Code: "NO_PERMISSION", GPU: ptr(1)},
		{Function: "nvmlDeviceGetGraphicsRunningProcesses_v3", Code: "NO_PERMISSION", GPU: ptr(1)},
		{Function: "nvmlDeviceGetMPSComputeRunningProcesses_v3", Code: "NO_PERMISSION", GPU: ptr(1)},
	}
	b := begin(t, os.Getenv(envBuilt), st, Options{})
	state := b.awaitState(StateDegraded)
	if want := "GPU 0: nvmlDeviceGetMemoryInfo_v2: Unknown Error (and 1 more)"; !state.Up || !strings.Contains(state.Reason, want) {
		t.Errorf("state %+v, want up with %q", state, want)
	}
	s := b.awaitSample()
	if g := s.GPUs[0]; g.UsedBytes != nil || g.UtilizationRatio == nil || len(g.Processes) != 2 {
		t.Errorf("GPU 0: %+v, want all but its memory", g)
	}
	if g := s.GPUs[1]; g.UsedBytes == nil || g.Processes != nil {
		t.Errorf("GPU 1: %+v, want memory and an unknown list of processes", g)
	}
}

func TestInitFailsThenSucceeds(t *testing.T) {
	st := eight()
	st.Fail = []fakenvml.Fail{{Function: "nvmlInit_v2", Code: "DRIVER_NOT_LOADED"}}
	b := begin(t, os.Getenv(envBuilt), st, Options{})
	state := b.awaitState(StateDriverError)
	if state.Up || !strings.Contains(state.Reason, "nvmlInit: Driver Not Loaded: load the kernel module") {
		t.Errorf("state %+v, want down with the reason and what to do", state)
	}
	b.set(eight())
	if up := b.awaitState(StateUp); up.Restarts != 0 {
		t.Errorf("%d restarts, want the same process to find the driver", up.Restarts)
	}
}

func TestDriverGoesAndComes(t *testing.T) {
	b := begin(t, os.Getenv(envBuilt), eight(), Options{})
	b.awaitState(StateUp)
	st := eight()
	st.Fail = []fakenvml.Fail{{Function: "nvmlDeviceGetCount_v2", Code: "UNKNOWN"}}
	b.set(st)
	if state := b.awaitState(StateDriverError); state.Up {
		t.Errorf("state %+v, want down", state)
	}
	b.set(eight())
	b.awaitState(StateUp)
}

func TestDriverUpdatedUnderneath(t *testing.T) {
	st := eight()
	st.Fail = []fakenvml.Fail{{Function: "nvmlInit_v2", Code: "LIB_RM_VERSION_MISMATCH"}}
	b := begin(t, os.Getenv(envBuilt), st, Options{})
	if state := b.awaitState(StateDriverError); !strings.Contains(state.Reason, "reload the module or reboot") {
		t.Errorf("state %+v, want the mismatch", state)
	}
	b.set(eight())
	if up := b.awaitState(StateUp); up.Restarts == 0 {
		t.Error("the process with the old library went on, want a new one")
	}
}

func TestNoLibrary(t *testing.T) {
	b := begin(t, filepath.Join(t.TempDir(), "libnvidia-ml.so.1"), eight(), Options{})
	state := b.awaitState(StateNoDriver)
	if state.Up || !strings.Contains(state.Reason, "install the NVIDIA driver") {
		t.Errorf("state %+v, want down with what to do", state)
	}
}

func TestOtherLibrary(t *testing.T) {
	b := begin(t, "libc.so.6", eight(), Options{})
	if state := b.awaitState(StateDriverError); state.Up || !strings.Contains(state.Reason, "libc.so.6 has no nvmlInit_v2") {
		t.Errorf("state %+v, want down with the symbol that is missing", state)
	}
}

func TestNoGPU(t *testing.T) {
	b := begin(t, os.Getenv(envBuilt), fakenvml.State{}, Options{})
	if state := b.awaitState(StateNoGPU); state.Up {
		t.Errorf("state %+v, want down", state)
	}
}

func TestOldDriver(t *testing.T) {
	st := eight()
	for i := range st.GPUs {
		st.GPUs[i].MIG = nil
	}
	b := begin(t, os.Getenv(envBuiltOld), st, Options{})
	b.awaitState(StateUp)
	s := b.awaitSample()
	if g := s.GPUs[0]; *g.UsedBytes != 75*gib || len(g.Processes) != 2 || *g.Processes[1].UsedBytes != 74*gib {
		t.Errorf("GPU 0: %+v, want memory and processes by the first versions of the calls", g)
	}
}

func TestHang(t *testing.T) {
	st := eight()
	st.Hang = []fakenvml.Hang{{Function: "nvmlDeviceGetMemoryInfo_v2", GPU: ptr(6)}}
	b := begin(t, os.Getenv(envBuilt), eight(), Options{Timeout: 2 * time.Second})
	b.awaitState(StateUp)
	b.set(st)
	if state := b.awaitState(StateHung); state.Up || !strings.Contains(state.Reason, "within 2s") {
		t.Errorf("state %+v, want down with the time-out", state)
	}
	b.set(eight())
	if up := b.awaitState(StateUp); up.Restarts == 0 {
		t.Errorf("%d restarts, want some", up.Restarts)
	}
}

func TestStoppedReader(t *testing.T) {
	b := begin(t, os.Getenv(envBuilt), eight(), Options{Timeout: 2 * time.Second})
	b.awaitState(StateUp)
	b.signal(syscall.SIGSTOP)
	b.awaitState(StateHung)
	if up := b.awaitState(StateUp); up.Restarts == 0 {
		t.Errorf("%d restarts, want some", up.Restarts)
	}
}

func TestKilledReader(t *testing.T) {
	// The interval is long: the end must be seen before the next sample is due.
	b := begin(t, os.Getenv(envBuilt), eight(), Options{Interval: time.Hour})
	b.awaitState(StateUp)
	b.awaitSample()
	b.signal(syscall.SIGKILL)
	if state := b.awaitState(StateRestarting); state.Up || !strings.Contains(state.Reason, "signal: killed") {
		t.Errorf("state %+v, want down with how it ended", state)
	}
	if up := b.awaitState(StateUp); up.Restarts != 1 {
		t.Errorf("%d restarts, want 1", up.Restarts)
	}
	b.awaitSample()
}
