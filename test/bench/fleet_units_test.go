//go:build bench

package bench

import (
	"bufio"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/startupd/startupd/test/fakenvml"
	"github.com/startupd/startupd/test/nspawn"
)

const (
	fleetUnits = 20
	// fleetGPUs are shared by all units: each holds memory on each of them.
	fleetGPUs = 8
)

func fleetUnit(i int) string { return fmt.Sprintf("llm-fleet-%02d.service", i) }

// startFleet starts a daemon and has its units make every series that a unit
// without a real systemd can have: each has served, has then failed in several
// ways, and loads now.
func startFleet(b *testing.B) exporter {
	b.Helper()
	dir := b.TempDir()
	files, state := filepath.Join(dir, "journal"), filepath.Join(dir, "state")
	for _, d := range []string{files, state} {
		if err := os.Mkdir(d, 0o755); err != nil {
			b.Fatal(err)
		}
	}
	lib, err := fakenvml.Build(dir)
	if err != nil {
		b.Fatal(err)
	}
	nvml := filepath.Join(dir, "nvml")
	if err := fakenvml.WriteFile(nvml, fleetMemory(engines(b))); err != nil {
		b.Fatal(err)
	}
	var ready atomic.Bool
	health := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		if !ready.Load() {
			w.WriteHeader(http.StatusServiceUnavailable)
		}
	}))
	b.Cleanup(health.Close)
	config := "targets:\n"
	for i := range fleetUnits {
		config += fmt.Sprintf("  - unit: %s\n    profile: vllm\n    expected_weights: 13.7GiB\n    health: {url: %s/%d}\n", fleetUnit(i), health.URL, i)
	}
	nspawn.Put(b, filepath.Join(dir, "startupd.yml"), config)

	journal, _ := liveJournal(b, files)
	w := &export{w: bufio.NewWriter(journal), live: true}
	w.own(0, "a line of a unit that nobody watches, so that there is a journal")
	w.w.Flush()
	addr := freeAddress(b)
	cmd := exec.Command(program(b), "serve", "--config.file="+filepath.Join(dir, "startupd.yml"), "--journal.dir="+files,
		"--gpu.nvml-library="+lib, "--api.socket=", "--state.dir="+state, "--web.listen-address="+addr, "--log.level=error")
	cmd.Env = append(os.Environ(), fakenvml.EnvState+"="+nvml)
	e := exporter{url: "http://" + addr + "/metrics", pid: daemon(b, cmd)}
	fleetHas(b, e, map[string]int{`startupd_source_up{source="journal"... 1`: 1, `startupd_gpu_memory_used_bytes`: fleetGPUs})
	ready.Store(true)
	if err := fleetServes(w); err != nil {
		b.Fatal(err)
	}
	fleetHas(b, e, map[string]int{`startupd_startups_total{outcome="serving"... 1`: fleetUnits})
	ready.Store(false)
	if err := fleetFails(w); err != nil {
		b.Fatal(err)
	}
	fleetHas(b, e, wholeFleet())
	rests(b, e)
	return e
}

// wholeFleet is how many series there are of what comes last or is easily
// missed.
func wholeFleet() map[string]int {
	return map[string]int{
		"startupd_root_cause_info{":                    fleetUnits,
		"startupd_root_cause_message_info{":            fleetUnits,
		"startupd_engine_info{":                        fleetUnits,
		"startupd_progress_ratio{":                     fleetUnits,
		"startupd_expected_serving_timestamp_seconds{": fleetUnits,
		"startupd_new_errors{":                         fleetUnits,
		`startupd_ready{source="log"`:                  fleetUnits,
		`startupd_ready{source="port"`:                 fleetUnits,
		`startupd_ready{source="health"`:               fleetUnits,
		"startupd_startup_errors{":                     2 * fleetUnits,
		"startupd_errors_total{":                       7 * fleetUnits,
		"startupd_unit_gpu_memory_bytes{":              fleetUnits * fleetGPUs,
		"startupd_gpu_plateau{":                        fleetUnits * fleetGPUs,
		"startupd_gpu_foreign_memory_bytes{":           fleetGPUs,
		"startupd_gpu_xid_errors_total{":               fleetGPUs,
	}
}

// fleetHas waits until there are at least so many series that begin so, and whose
// value is that behind "... " if one is given.
func fleetHas(b *testing.B, e exporter, want map[string]int) {
	b.Helper()
	nspawn.Eventually(b, 30*time.Second, func() error {
		body, err := scrape(e.url)
		if err != nil {
			return err
		}
		for series, n := range want {
			prefix, value, given := strings.Cut(series, "... ")
			got := 0
			for line := range strings.Lines(body) {
				if strings.HasPrefix(line, prefix) && (!given || strings.HasSuffix(line, " "+value+"\n")) {
					got++
				}
			}
			if got < n {
				return fmt.Errorf("%d series %s, want %d", got, series, n)
			}
		}
		return nil
	})
}

// rests waits until an exporter has done what it had to: judged its units' last
// ends and saved them.
func rests(b *testing.B, e exporter) {
	b.Helper()
	last := -1.0 // the first look compares with nothing
	nspawn.Poll(b, 500*time.Millisecond, time.Minute, func() error {
		now := cpu(b, e)
		used := now - last
		if last = now; used > 0.05 {
			return fmt.Errorf("it used %.2f s in the last half second", used)
		}
		return nil
	})
}

// fleetServes has each unit start well.
func fleetServes(w *export) error {
	good, err := lines(goodStart)
	if err != nil {
		return err
	}
	for i := range fleetUnits {
		w.of = fleetUnit(i)
		w.start(firstStart(i), good)
	}
	return w.w.Flush()
}

// firstStart is the invocation with which a unit begins; more follow.
func firstStart(i int) int { return 100 * (i + 1) }

// fleetFails ends the good starts, has each unit fail in several ways and then
// load, and each GPU report an error.
func fleetFails(w *export) error {
	good, err := lines(goodStart)
	if err != nil {
		return err
	}
	loading := 1 + slices.IndexFunc(good, func(l string) bool { return strings.Contains(l, "38% Completed") })
	var failed [][]string
	for _, name := range []string{"001-free-mem-leftover-tp2", "044-no-c-compiler-triton", "024-oom-weights-single-hit-exception", "106-nccl-init-memlock-ibv"} {
		log, err := lines(corpus + name + "/log.txt")
		if err != nil {
			return err
		}
		failed = append(failed, log)
	}
	for i := range fleetUnits {
		w.of = fleetUnit(i)
		n := firstStart(i)
		w.end(n)
		for _, log := range failed {
			n++
			w.start(n, log)
			w.end(n)
		}
		w.start(n+1, good[:loading])
	}
	for i := range fleetGPUs {
		w.kernel(fmt.Sprintf("NVRM: Xid (PCI:%s): 31, pid=8820, name=python3, Ch 00000008", fleetPCI(i)))
	}
	return w.w.Flush()
}

func (e *export) start(invocation int, log []string) {
	e.manager(invocation, msgStarted, "Started "+e.unit()+" - Language model server.")
	for _, l := range log {
		e.own(invocation, l)
	}
}

func (e *export) end(invocation int) {
	e.manager(invocation, msgExit, e.unit()+": Main process exited, code=exited, status=1/FAILURE", "COMMAND=ExecStart", "EXIT_CODE=exited", "EXIT_STATUS=1")
	e.manager(invocation, msgFailed, e.unit()+": Failed with result 'exit-code'.", "UNIT_RESULT=exit-code")
}

func (e *export) kernel(line string) {
	e.head("kernel")
	e.w.WriteString("PRIORITY=3\nSYSLOG_FACILITY=0\nSYSLOG_IDENTIFIER=kernel\n")
	e.message(line)
}

func fleetPCI(gpu int) string { return fmt.Sprintf("0000:%02x:00", 0x1b+8*gpu) }

// fleetMemory is what the driver tells while each of the processes holds memory
// on each GPU.
func fleetMemory(pids []int) fakenvml.State {
	held, total, busy := uint64(3<<30), uint64(96<<30), 40
	used := held*uint64(len(pids)) + 1<<30
	var s fakenvml.State
	for i := range fleetGPUs {
		g := fakenvml.GPU{
			UUID: fmt.Sprintf("GPU-%08x-0000-4000-8000-000000000000", i), Name: "NVIDIA RTX PRO 6000",
			PCI: fleetPCI(i), UsedBytes: &used, TotalBytes: &total, UtilizationPercent: &busy,
		}
		for _, pid := range pids {
			g.Processes = append(g.Processes, fakenvml.Process{PID: pid, UsedBytes: &held})
		}
		s.GPUs = append(s.GPUs, g)
	}
	return s
}

// engines starts a process for each unit, in a control group of the unit's name,
// and returns their PIDs. They end with this process, however that ends.
func engines(b *testing.B) (pids []int) {
	b.Helper()
	sweepGroups(hierarchy(b))
	root := fmt.Sprintf("%s/startupd-bench-%d", hierarchy(b), os.Getpid())
	if err := os.Mkdir(root, 0o755); err != nil {
		b.Fatalf("make a control group (run this as root): %v", err)
	}
	b.Cleanup(func() { removeGroup(b, root) })
	for i := range fleetUnits {
		group := filepath.Join(root, fleetUnit(i))
		if err := os.Mkdir(group, 0o755); err != nil {
			b.Fatal(err)
		}
		cmd := exec.Command("cat")
		in, err := cmd.StdinPipe()
		if err != nil {
			b.Fatal(err)
		}
		if err := cmd.Start(); err != nil {
			b.Fatal(err)
		}
		b.Cleanup(func() {
			_ = in.Close()
			_ = cmd.Wait()
			removeGroup(b, group)
		})
		pids = append(pids, cmd.Process.Pid)
		if err := os.WriteFile(filepath.Join(group, "cgroup.procs"), []byte(strconv.Itoa(cmd.Process.Pid)), 0); err != nil {
			b.Fatal(err)
		}
	}
	return pids
}

// hierarchy is where systemd's control groups are: of version 2, or of a hybrid
// host's own.
func hierarchy(b *testing.B) string {
	b.Helper()
	for _, dir := range []string{"/sys/fs/cgroup/unified", "/sys/fs/cgroup", "/sys/fs/cgroup/systemd"} {
		if _, err := os.Stat(filepath.Join(dir, "cgroup.procs")); err == nil {
			return dir
		}
	}
	b.Fatal("no control groups in /sys/fs/cgroup")
	return ""
}

// sweepGroups removes the control groups of benchmarks that were killed, as far as
// they are empty.
func sweepGroups(hierarchy string) {
	roots, _ := filepath.Glob(hierarchy + "/startupd-bench-*") // the pattern is valid
	for _, root := range roots {
		if _, err := os.Stat("/proc/" + root[strings.LastIndexByte(root, '-')+1:]); err == nil {
			continue
		}
		groups, _ := filepath.Glob(root + "/*.service")
		for _, dir := range append(groups, root) {
			_ = os.Remove(dir)
		}
	}
}

// removeGroup removes an empty control group, which the kernel holds for a moment
// longer than its last process.
func removeGroup(b *testing.B, dir string) {
	nspawn.Eventually(b, 10*time.Second, func() error { return os.Remove(dir) })
}
