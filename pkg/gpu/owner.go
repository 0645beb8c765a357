package gpu

import (
	"bytes"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/startupd/startupd/pkg/event"
)

const (
	// titleBytes is how much of a command line is kept: enough to tell a
	// worker's rank, too little to hold a whole command's secrets.
	titleBytes = 256
	// cgroupBytes bounds /proc/PID/cgroup, which has a line a hierarchy.
	cgroupBytes = 64 << 10
)

// attribute fills in whose each process is. Neither file needs a right: both
// are readable by every user, unless /proc is mounted with hidepid.
func attribute(procRoot string, gpus []event.GPU) {
	known := map[int]event.GPUProcess{}
	for g := range gpus {
		for i := range gpus[g].Processes {
			p := &gpus[g].Processes[i]
			o, ok := known[p.PID]
			if !ok {
				o = owner(procRoot, p.PID)
				known[p.PID] = o
			}
			p.Cgroup, p.Unit, p.Container, p.Title = o.Cgroup, o.Unit, o.Container, o.Title
		}
	}
}

// owner reads what /proc tells of a process; what can't be read stays "".
func owner(procRoot string, pid int) event.GPUProcess {
	dir := filepath.Join(procRoot, strconv.Itoa(pid))
	c := parseCgroup(string(head(filepath.Join(dir, "cgroup"), cgroupBytes)))
	return event.GPUProcess{
		Cgroup: c.path, Unit: c.unit, Container: c.container,
		Title: parseTitle(head(filepath.Join(dir, "cmdline"), titleBytes)),
	}
}

// parseTitle makes text of the start of /proc/PID/cmdline, whose arguments end
// in NUL.
func parseTitle(b []byte) string {
	b = bytes.ReplaceAll(b, []byte{0}, []byte{' '})
	return strings.TrimSpace(strings.ToValidUTF8(string(b), ""))
}

// head returns the first n bytes of a file; nil when it can't be read.
func head(path string, n int64) []byte {
	f, err := os.Open(path)
	if err != nil {
		return nil
	}
	defer f.Close()
	b, err := io.ReadAll(io.LimitReader(f, n))
	if err != nil {
		return nil
	}
	return b
}
