package host

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
)

// clockTicks is how many ticks a second /proc/PID/stat counts in. The kernel's
// USER_HZ is 100 on every architecture that has GPUs of this kind.
const clockTicks = 100

// parseCPUStat reads cpu.stat of cgroup v2 and returns seconds:
//
//	usage_usec 8172039
//	user_usec 6210000
//	system_usec 1962039
func parseCPUStat(text string) (float64, error) {
	for line := range strings.Lines(text) {
		if v, ok := strings.CutPrefix(line, "usage_usec "); ok {
			n, err := strconv.ParseUint(strings.TrimSpace(v), 10, 64)
			return float64(n) / 1e6, err
		}
	}
	return 0, errors.New("no usage_usec")
}

// parseCPUAcct reads cpuacct.usage of cgroup v1, nanoseconds, and returns
// seconds.
func parseCPUAcct(text string) (float64, error) {
	n, err := strconv.ParseUint(strings.TrimSpace(text), 10, 64)
	return float64(n) / 1e9, err
}

// parseIOStat sums io.stat of cgroup v2 over all devices. An empty file is an
// accounted zero. Some kernels put several devices on a line, or none of a
// device's counters:
//
//	259:0 rbytes=81920 wbytes=4096 rios=3 wios=1 dbytes=0 dios=0
//	7:0 253:1 rbytes=1024 wbytes=0 rios=1 wios=0 dbytes=0 dios=0
//	8:16
func parseIOStat(text string) (ioBytes, error) {
	var sum ioBytes
	for field := range strings.FieldsSeq(text) {
		var to *uint64
		key, value, _ := strings.Cut(field, "=")
		switch key {
		case "rbytes":
			to = &sum.read
		case "wbytes":
			to = &sum.write
		default:
			continue
		}
		n, err := strconv.ParseUint(value, 10, 64)
		if err != nil {
			return ioBytes{}, err
		}
		*to += n
	}
	return sum, nil
}

// parseBlkio sums blkio.throttle.io_service_bytes of cgroup v1 over all
// devices. Its last line is the sum of all, "Total" of a device the sum of Read
// and Write:
//
//	8:0 Read 81920
//	8:0 Write 4096
//	8:0 Total 86016
//	Total 86016
func parseBlkio(text string) (ioBytes, error) {
	var sum ioBytes
	complete := false
	for line := range strings.Lines(text) {
		f := strings.Fields(line)
		complete = complete || len(f) == 2 && f[0] == "Total"
		if len(f) != 3 || (f[1] != "Read" && f[1] != "Write") {
			continue
		}
		n, err := strconv.ParseUint(f[2], 10, 64)
		if err != nil {
			return ioBytes{}, err
		}
		if f[1] == "Read" {
			sum.read += n
		} else {
			sum.write += n
		}
	}
	if !complete {
		return ioBytes{}, errors.New("no total")
	}
	return sum, nil
}

// parseProcIO reads /proc/PID/io: what the process had the storage layer read
// and write, not what it took from caches.
//
//	rchar: 323934931
//	read_bytes: 81920
//	write_bytes: 4096
func parseProcIO(text string) (ioBytes, error) {
	var sum ioBytes
	found := 0
	for line := range strings.Lines(text) {
		key, value, _ := strings.Cut(line, ":")
		if key != "read_bytes" && key != "write_bytes" {
			continue
		}
		n, err := strconv.ParseUint(strings.TrimSpace(value), 10, 64)
		if err != nil {
			return ioBytes{}, err
		}
		found++
		if key == "read_bytes" {
			sum.read = n
		} else {
			sum.write = n
		}
	}
	if found != 2 {
		return ioBytes{}, errors.New("no read_bytes and write_bytes")
	}
	return sum, nil
}

// stat is what we use of /proc/PID/stat.
type stat struct {
	comm   string
	parent int
	// cpuTicks counts the process and those of its children that it has waited
	// for, so that a sum over a tree does not fall when a child ends.
	cpuTicks uint64
	start    uint64
}

// parseStat reads /proc/PID/stat. The name stands in brackets and may hold
// blanks and brackets itself:
//
//	4242 (cc1plus) R 4241 4240 4240 0 -1 4194304 ... utime stime cutime cstime ... starttime ...
func parseStat(text string) (stat, error) {
	open, end := strings.IndexByte(text, '('), strings.LastIndexByte(text, ')')
	if open < 0 || end < open {
		return stat{}, errors.New("no name in brackets")
	}
	// f[0] is field 3 of proc(5).
	f := strings.Fields(text[end+1:])
	if len(f) < 20 {
		return stat{}, fmt.Errorf("%d fields behind the name, want 20", len(f))
	}
	s := stat{comm: text[open+1 : end]}
	var err error
	if s.parent, err = strconv.Atoi(f[1]); err != nil {
		return stat{}, err
	}
	for _, v := range f[11:15] {
		// A child's times can be negative, by a bug of old kernels.
		n, err := strconv.ParseInt(v, 10, 64)
		if err != nil {
			return stat{}, err
		}
		s.cpuTicks += uint64(max(n, 0))
	}
	s.start, err = strconv.ParseUint(f[19], 10, 64)
	return s, err
}

// parsePIDs reads cgroup.procs, one PID a line. 0 is a process that this PID
// namespace does not see.
func parsePIDs(text string) ([]int, error) {
	var pids []int
	for field := range strings.FieldsSeq(text) {
		pid, err := strconv.ParseUint(field, 10, 31)
		if err != nil {
			return nil, err
		}
		if pid > 0 {
			pids = append(pids, int(pid))
		}
	}
	return pids, nil
}
