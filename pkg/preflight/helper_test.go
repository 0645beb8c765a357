package preflight

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/startupd/startupd/pkg/event"
	"github.com/startupd/startupd/pkg/profile"
)

const gibi = 1 << 30

var builtin = sync.OnceValues(profile.Builtin)

// engine is the profile that the tests' commands are of.
func engine(t testing.TB) *profile.Profile {
	t.Helper()
	set, err := builtin()
	if err != nil {
		t.Fatal(err)
	}
	return set.Profile("vllm")
}

// host is a made-up host below a temporary folder.
type host struct {
	t    testing.TB
	root string
	sys  System
}

func newHost(t testing.TB) *host {
	t.Helper()
	root := t.TempDir()
	h := &host{t: t, root: root}
	h.sys = System{
		Root: root, ProcRoot: filepath.Join(root, "proc"), Machine: "x86_64", UID: 0,
		Statfs: func(string) (Space, error) {
			return Space{Size: 100 * gibi, Free: 50 * gibi, Files: 1e6, FreeFiles: 1e6}, nil
		},
		Home: func(name string) (string, error) {
			switch name {
			case "", "root":
				return "/root", nil
			case "llm":
				return "/home/llm", nil
			}
			return "", errors.New("unknown user")
		},
		UserName: func(uid string) string { return map[string]string{"0": "root", "1000": "llm"}[uid] },
	}
	h.file("/proc/stat", "btime 1700000000\n")
	h.file("/proc/meminfo", "MemTotal: 200000000 kB\nMemAvailable: 100000000 kB\n")
	h.sockets()
	return h
}

func (h *host) file(path, text string) {
	h.t.Helper()
	full := filepath.Join(h.root, path)
	if err := os.MkdirAll(filepath.Dir(full), 0o755); err != nil {
		h.t.Fatal(err)
	}
	if err := os.WriteFile(full, []byte(text), 0o755); err != nil {
		h.t.Fatal(err)
	}
}

func (h *host) dir(path string) {
	h.t.Helper()
	if err := os.MkdirAll(filepath.Join(h.root, path), 0o755); err != nil {
		h.t.Fatal(err)
	}
}

func (h *host) link(path, to string) {
	h.t.Helper()
	h.dir(filepath.Dir(path))
	if err := os.Symlink(to, filepath.Join(h.root, path)); err != nil {
		h.t.Fatal(err)
	}
}

// proc is a process of the made-up host.
type proc struct {
	pid, parent, uid int
	state            string
	argv             []string
	cgroup, environ  string
	// socket is the inode of a socket that it has open; 0 for none.
	socket int
	// threads are the states of further threads.
	threads []string
}

func (h *host) process(p proc) {
	h.t.Helper()
	if p.state == "" {
		p.state = "S"
	}
	dir := fmt.Sprintf("/proc/%d/", p.pid)
	stat := func(pid int, state string) string {
		return fmt.Sprintf("%d (a (b) c) %s %d 1 1 0 -1 4194304 0 0 0 0 0 0 0 0 20 0 1 0 360000 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 17 0 0 0 0 0 0 0 0 0 0 0 0 0 0\n", pid, state, p.parent)
	}
	h.file(dir+"stat", stat(p.pid, p.state))
	h.file(dir+"status", fmt.Sprintf("Name:\tx\nPid:\t%d\nUid:\t%d\t%d\t%d\t%d\nGid:\t0\t0\t0\t0\n", p.pid, p.uid, p.uid, p.uid, p.uid))
	h.file(dir+"cmdline", strings.Join(p.argv, "\x00")+"\x00")
	h.file(dir+"comm", filepath.Base(append(p.argv, "none")[0])+"\n")
	h.file(dir+"cgroup", "0::"+p.cgroup+"\n")
	h.file(dir+"environ", p.environ)
	for i, state := range append([]string{p.state}, p.threads...) {
		h.file(fmt.Sprintf("%stask/%d/stat", dir, p.pid+i), stat(p.pid+i, state))
	}
	if p.socket != 0 {
		h.link(dir+"fd/7", fmt.Sprintf("socket:[%d]", p.socket))
	}
}

// sockets are lines of /proc/net/tcp, each an address and port in hex, a state,
// a user and an inode.
func (h *host) sockets(lines ...string) {
	const head = "  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode\n"
	var four, six string
	for i, l := range lines {
		f := strings.Fields(l)
		rest := "00000000:0000"
		if len(f[0]) > 20 {
			rest = strings.Repeat("0", 32) + ":0000"
		}
		text := fmt.Sprintf("%4d: %s %s %s 00000000:00000000 00:00000000 00000000 %5s        0 %s 1 0000000000000000 100 0 0 10 0\n", i, f[0], rest, f[1], f[2], f[3])
		if len(f[0]) > 20 {
			six += text
		} else {
			four += text
		}
	}
	h.file("/proc/net/tcp", head+four)
	h.file("/proc/net/tcp6", head+six)
}

// card is a GPU of the made-up host, with its memory in GiB.
func card(index int, used, total float64, procs ...event.GPUProcess) event.GPU {
	u, n := uint64(used*gibi), uint64(total*gibi)
	if procs == nil {
		procs = []event.GPUProcess{}
	}
	return event.GPU{Index: index, UUID: fmt.Sprintf("GPU-%08d", index), Name: "Card", UsedBytes: &u, TotalBytes: &n, Processes: procs}
}

func cards(n int, used, total float64) []event.GPU {
	var out []event.GPU
	for i := range n {
		out = append(out, card(i, used, total))
	}
	return out
}

func holding(pid int, gib float64, unit string) event.GPUProcess {
	n := uint64(gib * gibi)
	return event.GPUProcess{PID: pid, UsedBytes: &n, Unit: unit}
}

// options run a command on the host.
func (h *host) options(gpus []event.GPU, argv ...string) Options {
	return Options{
		Argv: argv, Profiles: []*profile.Profile{engine(h.t)}, System: h.sys,
		GPUs: func(context.Context) GPULook { return GPULook{GPUs: gpus, State: "up"} },
	}
}

// withUnit runs the command as a unit's.
func (o Options) withUnit(u Unit) Options {
	u.Loaded, u.Name = true, "llm.service"
	if u.Argv == nil {
		u.Argv = o.Argv
	}
	o.Argv, o.Unit = nil, u.Name
	o.Units = func(context.Context, string) (*Unit, error) { return &u, nil }
	return o
}

// of returns the report's results of one check.
func of(r *Report, check string) []Result {
	var out []Result
	for _, c := range r.Checks {
		if c.Check == check {
			out = append(out, c)
		}
	}
	return out
}

// want checks the one result of a check.
func want(t *testing.T, r *Report, check string, status Status, text string) *Result {
	t.Helper()
	found := of(r, check)
	for i := range found {
		if c := &found[i]; c.Status == status && strings.Contains(c.What, text) {
			return c
		}
	}
	t.Errorf("check %s: %+v; want %s with %q", check, found, status, text)
	return &Result{}
}
