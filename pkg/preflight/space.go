package preflight

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/prometheus/procfs"

	"github.com/startupd/startupd/pkg/profile"
)

const (
	// leastRoom is what a directory must have free for a start to write anything.
	leastRoom = 64 << 20
	// leastFiles is how many files a cache of compiled kernels makes, and more.
	leastFiles = 1000
)

// sharedMemory checks /dev/shm, which processes that share a model need.
func (l *look) sharedMemory() *Result {
	p := l.cmd.profile.Preflight
	if p.SharedMemory == nil {
		return nil
	}
	n := l.cmd.gpuNeed()
	r := &Result{Check: CheckSharedMemory, Status: Unknown, NeedBytes: &p.SharedMemory.Good}
	switch k := l.cmd.container; {
	case n.count == 1:
		return nil
	case k != nil && k.ipc != "host" && strings.Contains(k.ipc, ":"):
		r.What = "the container shares that of --ipc=" + k.ipc
		return r
	case k != nil && k.ipc != "host" && k.shmSize != "":
		r.What = "the container has its own, of " + k.shmSize
		return r
	case k != nil && k.ipc != "host":
		r.Status, r.Class = Warning, "shm_exhausted"
		r.What = fmt.Sprintf("the container has its own, of %s's default (64 MiB, if nobody changed it); processes that share a model need up to %s", k.runtime, gib(p.SharedMemory.Good))
		r.Do = "Run it with --ipc=host, or with --shm-size."
		return r
	}
	space, err := l.sys.Statfs(l.sys.path("/dev/shm"))
	if err != nil {
		r.What = "can't be looked at: " + why(err)
		return r
	}
	r.HaveBytes = &space.Free
	r.Status, r.What = OK, fmt.Sprintf("%s free of %s", gib(space.Free), gib(space.Size))
	if space.Free >= p.SharedMemory.Good {
		return r
	}
	r.Status, r.Class = Warning, "shm_exhausted"
	r.Do = fmt.Sprintf("Remove what earlier starts left in /dev/shm, or make it bigger (mount -o remount,size=... /dev/shm): %s is usually enough.", gib(p.SharedMemory.Good))
	if space.Free == 0 || space.Free < p.SharedMemory.Least && l.cmd.atLeast(p.SharedMemory.Since) {
		r.Status = Fail
		r.What += fmt.Sprintf("; the processes need %s at least", gib(p.SharedMemory.Least))
	}
	return r
}

// disks checks the room of the directories that a start writes to, one result a
// file system.
func (l *look) disks() []Result {
	if l.cmd.container != nil {
		return []Result{{Check: CheckDisk, Status: Unknown, What: "caches and models are inside the container, and are not looked at"}}
	}
	var out []Result
	var good []string
	for _, d := range l.cmd.profile.Preflight.Directories {
		dir, ok := l.cmd.directory(d)
		if !ok {
			continue
		}
		r := l.disk(d, dir)
		if r.Status != OK {
			out = append(out, r)
			continue
		}
		good = append(good, r.What)
	}
	if good != nil {
		out = append([]Result{{Check: CheckDisk, Status: OK, What: strings.Join(good, "; ")}}, out...)
	}
	return out
}

func (l *look) disk(d profile.Directory, dir string) Result {
	r := Result{Check: CheckDisk, Status: Unknown}
	at, err := l.existing(dir)
	var space Space
	if err == nil {
		space, err = l.sys.Statfs(l.sys.path(at))
	}
	if err != nil {
		r.What = fmt.Sprintf("%s %s: %s", d.Name, dir, why(err))
		return r
	}
	r.HaveBytes = &space.Free
	r.Status, r.What = OK, fmt.Sprintf("%s %s: %s free", d.Name, dir, gib(space.Free))
	if l.model.missing && d.Name == l.modelPlace() {
		r.What += ", for weights whose size is not known"
	}
	// A download must be written; of a cache nobody knows whether this start needs
	// more than is in it.
	status := Warning
	if d.Name == l.modelPlace() {
		if l.model.missing {
			status = Fail
		} else if l.model.bytes > 0 {
			return r
		}
	}
	switch {
	case space.ReadOnly:
		r.Status, r.Class = status, "disk_full"
		r.What = fmt.Sprintf("%s %s: its file system is read-only", d.Name, dir)
		r.Do = "Mount it writable, or set another directory."
	case space.Free < leastRoom || space.Files > 0 && space.FreeFiles == 0:
		r.Status, r.Class = status, "disk_full"
		r.What += fmt.Sprintf(" and %d inodes", space.FreeFiles)
		r.Do = "Make room, or set another directory."
	case space.Free < d.Room || space.Files > 0 && space.FreeFiles < leastFiles:
		r.Status = Warning
		r.What += fmt.Sprintf(" and %d inodes; a first start may write %s", space.FreeFiles, gib(d.Room))
		r.Do = "Make room, or set another directory."
	}
	return r
}

// modelPlace is the name of the directory that downloaded models lie in.
func (l *look) modelPlace() string {
	if c := l.cmd.profile.Preflight.ModelCache; c != nil {
		return c.Directory
	}
	return ""
}

// existing is the nearest directory above a path that is there: a start makes
// the rest.
func (l *look) existing(dir string) (string, error) {
	for {
		_, err := os.Stat(l.sys.path(dir))
		if err == nil || !errors.Is(err, fs.ErrNotExist) || dir == "/" {
			return dir, err
		}
		dir = filepath.Dir(dir)
	}
}

// memory compares the host's memory with the weights, which are read through its
// cache.
func (l *look) memory() *Result {
	pfs, err := procfs.NewFS(l.sys.ProcRoot)
	var info procfs.Meminfo
	if err == nil {
		info, err = pfs.Meminfo()
	}
	if err != nil || info.MemAvailableBytes == nil {
		return &Result{Check: CheckMemory, Status: Unknown, What: "the host's memory can't be read"}
	}
	have, of := *info.MemAvailableBytes, "available"
	if u := l.unit; u != nil && u.MemoryMax != nil && *u.MemoryMax < have {
		have, of = *u.MemoryMax, "allowed by MemoryMax="
	}
	r := &Result{Check: CheckMemory, Status: OK, HaveBytes: &have, What: fmt.Sprintf("%s %s", gib(have), of)}
	if l.model.bytes == 0 {
		r.What += "; the weights' size is not known"
		return r
	}
	r.NeedBytes = &l.model.bytes
	r.What += fmt.Sprintf(", weights of %s", gib(l.model.bytes))
	if have < l.model.bytes {
		r.Status = Warning
		r.Do = "The weights do not fit into the host's cache: they are read from disk again for each process that wants them, so expect a slow load."
	}
	return r
}

// limits checks the limit of open files.
func (l *look) limits() *Result {
	want := l.cmd.profile.Preflight.OpenFiles
	if want == 0 || l.unit == nil || l.unit.OpenFiles == nil || l.cmd.container != nil {
		return nil
	}
	have := *l.unit.OpenFiles
	if have >= want {
		return nil
	}
	return &Result{Check: CheckLimits, Status: Warning, What: fmt.Sprintf("LimitNOFILE= allows %d open files, the engine asks for %d", have, want),
		Do: fmt.Sprintf("Set LimitNOFILE=%d in the unit.", want)}
}
