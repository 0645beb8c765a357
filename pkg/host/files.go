package host

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
)

// files reads a target's files below the two roots.
type files struct{ cgroup, proc string }

// vitals looks at a target: by its cgroup where that is there, else by the
// processes that descend from its main process.
func (f files) vitals(t Target) vitals {
	if pids, ok := f.members(t.ControlGroup); ok {
		return f.byCgroup(t.ControlGroup, pids)
	}
	stats := f.descendants(t.MainPID)
	v := vitals{alive: len(stats) > 0, byProc: true, cpuSeconds: cpuOf(stats), io: f.ioOf(stats)}
	if !v.alive && t.MainPID > 0 && f.hides(t.MainPID) {
		v.alive, v.hidden = true, true
		return v
	}
	n := len(stats)
	v.processes, v.compilers = &n, compilersOf(stats)
	return v
}

// byCgroup takes totals from the cgroup's own counters where it has them.
func (f files) byCgroup(group string, pids []int) vitals {
	n, stats := len(pids), f.stats(pids)
	v := vitals{alive: n > 0, processes: &n, cpuSeconds: f.cpu(group), io: f.io(group)}
	if v.cpuSeconds == nil {
		v.cpuSeconds = cpuOf(stats)
	}
	if v.io == nil {
		v.io = f.ioOf(stats)
	}
	if v.hidden = v.alive && len(stats) == 0 && f.hides(pids[0]); !v.hidden {
		v.compilers = compilersOf(stats)
	}
	return v
}

// compilersOf finds the compilers; it is never nil.
func compilersOf(stats map[int]stat) map[process]bool {
	found := map[process]bool{}
	for pid, s := range stats {
		if isCompiler(s.comm) {
			found[process{pid: pid, start: s.start}] = true
		}
	}
	return found
}

// members lists the processes of a cgroup and of those below it. The tree is
// the unified one, the unified one of a hybrid host, or systemd's own of
// version 1; ok is false when none has the cgroup.
//
// The .control group holds ExecStartPost= and the like, which are no
// descendants of the main process.
func (f files) members(group string) (pids []int, ok bool) {
	if !valid(group) {
		return nil, false
	}
	for _, tree := range [...]string{"", "systemd", "unified"} {
		dir := filepath.Join(f.cgroup, tree, group)
		if _, err := os.Stat(filepath.Join(dir, "cgroup.procs")); err != nil {
			continue
		}
		_ = filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
			switch {
			case err != nil:
				// It was removed while we walked.
				return nil
			case d.IsDir() && d.Name() == ".control":
				return fs.SkipDir
			case d.Name() == "cgroup.procs":
				pids = append(pids, readPIDs(path)...)
			}
			return nil
		})
		return pids, true
	}
	return nil, false
}

// valid keeps the root group, whose processes are everyone's, and paths that
// lead out of the tree away.
func valid(group string) bool {
	return strings.Trim(group, "/") != "" && !slices.Contains(strings.Split(group, "/"), "..")
}

func readPIDs(path string) []int {
	b, err := os.ReadFile(path)
	if err != nil {
		return nil
	}
	pids, err := parsePIDs(string(b))
	if err != nil {
		return nil
	}
	return pids
}

// cpu returns a cgroup's CPU time in seconds; nil when not accounted.
func (f files) cpu(group string) *float64 {
	return firstOf(f.cgroup, group, []source[float64]{
		{"", "cpu.stat", parseCPUStat},
		{"unified", "cpu.stat", parseCPUStat},
		{"cpuacct", "cpuacct.usage", parseCPUAcct},
		{"cpu,cpuacct", "cpuacct.usage", parseCPUAcct},
	})
}

// io returns a cgroup's I/O; nil when not accounted.
func (f files) io(group string) *ioBytes {
	return firstOf(f.cgroup, group, []source[ioBytes]{
		{"", "io.stat", parseIOStat},
		{"unified", "io.stat", parseIOStat},
		{"blkio", "blkio.throttle.io_service_bytes_recursive", parseBlkio},
		{"blkio", "blkio.throttle.io_service_bytes", parseBlkio},
	})
}

// source is one place where a cgroup's number can be.
type source[T any] struct {
	tree, file string
	parse      func(string) (T, error)
}

// firstOf returns the first number that is there and can be read.
func firstOf[T any](root, group string, places []source[T]) *T {
	for _, p := range places {
		b, err := os.ReadFile(filepath.Join(root, p.tree, group, p.file))
		if err != nil {
			continue
		}
		if v, err := p.parse(string(b)); err == nil {
			return &v
		}
	}
	return nil
}

// stats reads /proc/PID/stat of each; one that is gone, or hidden, is left out.
func (f files) stats(pids []int) map[int]stat {
	m := make(map[int]stat, len(pids))
	for _, pid := range pids {
		b, err := os.ReadFile(f.path(pid, "stat"))
		if err != nil {
			continue
		}
		if s, err := parseStat(string(b)); err == nil {
			m[pid] = s
		}
	}
	return m
}

// hides says that /proc hides a process that could not be read, rather than
// that it has just ended: the read is refused, or even process 1 is not there.
func (f files) hides(pid int) bool {
	if _, err := os.ReadFile(f.path(pid, "stat")); errors.Is(err, fs.ErrPermission) {
		return true
	}
	_, err := os.Stat(f.path(1, "stat"))
	return err != nil
}

// descendants reads a process and all that descend from it; empty when it is
// gone. It looks at every process of the host.
func (f files) descendants(root int) map[int]stat {
	tree := map[int]stat{}
	if root <= 0 {
		return tree
	}
	all := f.stats(f.everyone())
	children := map[int][]int{}
	for pid, s := range all {
		children[s.parent] = append(children[s.parent], pid)
	}
	for queue := []int{root}; len(queue) > 0; queue = queue[1:] {
		pid := queue[0]
		s, ok := all[pid]
		if _, seen := tree[pid]; !ok || seen {
			continue
		}
		tree[pid] = s
		queue = append(queue, children[pid]...)
	}
	return tree
}

// everyone lists the PIDs that /proc shows.
func (f files) everyone() []int {
	d, err := os.Open(f.proc)
	if err != nil {
		return nil
	}
	defer d.Close()
	names, _ := d.Readdirnames(-1)
	var pids []int
	for _, name := range names {
		if pid, err := strconv.Atoi(name); err == nil && pid > 0 {
			pids = append(pids, pid)
		}
	}
	return pids
}

// cpuOf sums CPU time in seconds over processes; nil when there is none.
func cpuOf(stats map[int]stat) *float64 {
	if len(stats) == 0 {
		return nil
	}
	var ticks uint64
	for _, s := range stats {
		ticks += s.cpuTicks
	}
	seconds := float64(ticks) / clockTicks
	return &seconds
}

// ioOf sums I/O over processes. It is nil when one of them may not be read:
// /proc/PID/io is for the process's own user and for root. The sum falls when a
// process ends.
func (f files) ioOf(stats map[int]stat) *ioBytes {
	var sum ioBytes
	read := 0
	for pid := range stats {
		b, err := os.ReadFile(f.path(pid, "io"))
		if errors.Is(err, fs.ErrNotExist) || errors.Is(err, syscall.ESRCH) {
			continue
		}
		if err != nil {
			return nil
		}
		one, err := parseProcIO(string(b))
		if err != nil {
			return nil
		}
		sum.read += one.read
		sum.write += one.write
		read++
	}
	if read == 0 {
		return nil
	}
	return &sum
}

func (f files) path(pid int, name string) string {
	return filepath.Join(f.proc, strconv.Itoa(pid), name)
}
