package preflight

import (
	"cmp"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/prometheus/procfs"

	"github.com/startupd/startupd/pkg/event"
	"github.com/startupd/startupd/pkg/triage"
)

// maxCommand bounds a command line that is shown. Its secrets are masked.
const maxCommand = 120

// process fills in what /proc tells of a holder; what can't be read stays empty.
func (l *look) process(h *Holder) {
	fs, err := procfs.NewFS(l.sys.ProcRoot)
	if err != nil {
		return
	}
	p, err := fs.Proc(h.PID)
	if err != nil {
		h.StateMeaning = "it is not in /proc: it has just ended, or it is in another PID namespace"
		return
	}
	stat, err := p.Stat()
	if err == nil {
		h.State, h.Parent = stat.State, stat.PPID
		if start, err := stat.StartTime(); err == nil {
			h.Since = time.Unix(int64(start), 0).UTC()
		}
	}
	h.StateMeaning = l.meaning(h)
	if status, err := p.NewStatus(); err == nil {
		h.User = l.sys.UserName(strconv.FormatUint(status.UIDs[1], 10))
	}
	if argv, err := p.CmdLine(); err == nil && len(argv) > 0 {
		h.Command = triage.Clip(strings.Join(argv, " "), maxCommand)
	} else if h.Command == "" {
		h.Command = stat.Comm
	}
	if h.Unit == "" && h.Container == "" {
		h.Unit = l.unitOf(h.PID)
	}
}

// unitOf is the innermost unit in a process's cgroup; "" when there is none. A
// control group that is gone has " (deleted)" behind it.
func (l *look) unitOf(pid int) string {
	b, err := readFile(l.sys.proc(strconv.Itoa(pid), "cgroup"), 64<<10)
	if err != nil {
		return ""
	}
	for line := range strings.Lines(string(b)) {
		parts := strings.SplitN(strings.TrimSuffix(strings.TrimSpace(line), " (deleted)"), ":", 3)
		if len(parts) == 3 {
			if u := innermost(parts[2]); u != "" {
				return u
			}
		}
	}
	return ""
}

func innermost(cgroup string) string {
	names := strings.Split(cgroup, "/")
	for _, n := range slices.Backward(names) {
		if n = strings.TrimPrefix(n, "_"); strings.HasSuffix(n, ".service") || strings.HasSuffix(n, ".scope") {
			return n
		}
	}
	return ""
}

// meaning explains the states that no signal ends.
func (l *look) meaning(h *Holder) string {
	switch h.State {
	case "D":
		return "it waits inside the kernel and can't be killed until that returns: look for Xid and hung-task lines in the kernel's log; often only a reset of the GPU or a reboot helps"
	case "Z":
		if n := l.stuck(h.PID); n > 0 {
			return counted(n, "thread") + " of it still " + map[bool]string{true: "waits", false: "wait"}[n == 1] +
				" inside the kernel (D): its memory is given back when they return, else by a reset of the GPU or a reboot"
		}
		return "it has ended and waits for its parent, PID " + strconv.Itoa(h.Parent) + l.named(h.Parent) + ", to reap it: end the parent"
	case "T", "t":
		return "it is stopped: let it go on with kill -CONT, or end it with kill -KILL"
	}
	return ""
}

// stuck counts the threads of a process that wait inside the kernel.
func (l *look) stuck(pid int) int {
	entries, err := os.ReadDir(l.sys.proc(strconv.Itoa(pid), "task"))
	if err != nil {
		return 0
	}
	n := 0
	for _, e := range entries[:min(len(entries), 4096)] {
		b, err := readFile(l.sys.proc(strconv.Itoa(pid), "task", e.Name(), "stat"), 4<<10)
		if err != nil {
			continue
		}
		// The name may hold spaces and brackets.
		text := string(b)
		if rest := strings.Fields(text[strings.LastIndexByte(text, ')')+1:]); len(rest) > 0 && rest[0] == "D" {
			n++
		}
	}
	return n
}

// named is a process's name in brackets; "" when it can't be read.
func (l *look) named(pid int) string {
	b, err := readFile(l.sys.proc(strconv.Itoa(pid), "comm"), 256)
	if err != nil {
		return ""
	}
	return " (" + strings.TrimSpace(string(b)) + ")"
}

// role tells whose a holder is, as far as the unit is concerned.
func (l *look) role(h *Holder) string {
	u := l.unit
	switch {
	case u != nil && h.Unit == u.Name && l.running():
		return RoleSelf
	case u != nil && h.Unit == u.Name:
		return RoleLeftOver
	case u != nil && l.startedBy(h.PID, u.Name):
		return RoleLeftOver
	case h.Parent == 1 && !strings.HasSuffix(h.Unit, ".service") && h.Container == "" && l.cmd.profile != nil &&
		(l.cmd.profile.DetectCommand(h.Command) || l.cmd.profile.TitleProcess(h.Command) != ""):
		return RoleOrphan
	}
	return ""
}

// running says that the unit's main process is there. A unit that runs this very
// check before its start has none.
func (l *look) running() bool {
	return l.unit != nil && l.unit.MainPID != 0
}

// startedBy says that a process's environment holds an invocation of the unit
// that systemd has told us of. Only the same user, or root, can read it.
func (l *look) startedBy(pid int, unit string) bool {
	b, err := readFile(l.sys.proc(strconv.Itoa(pid), "environ"), 1<<20)
	if err != nil {
		return false
	}
	for v := range strings.SplitSeq(string(b), "\x00") {
		if id, ok := strings.CutPrefix(v, "MEMORY_PRESSURE_WATCH="); ok && slices.Contains(strings.Split(id, "/"), unit) {
			// systemd writes the path of the unit's own control group into it.
			return true
		}
	}
	return false
}

// gpuHolders are the processes on a GPU, the biggest first, with what nobody
// seems to hold at the end.
func (l *look) gpuHolders(g *event.GPU) []Holder {
	var out []Holder
	var told uint64
	for _, p := range g.Processes {
		h := Holder{PID: p.PID, Bytes: p.UsedBytes, Unit: p.Unit, Container: p.Container, Command: triage.Clip(p.Title, maxCommand)}
		if p.UsedBytes != nil {
			told += *p.UsedBytes
		}
		l.process(&h)
		h.Role = l.role(&h)
		out = append(out, h)
	}
	slices.SortStableFunc(out, func(a, b Holder) int { return cmp.Compare(bytesOf(b.Bytes), bytesOf(a.Bytes)) })
	if g.UsedBytes != nil && allTold(g.Processes) {
		// The driver keeps some hundred MiB for itself.
		if rest := *g.UsedBytes - min(told, *g.UsedBytes); rest > 1<<30 {
			out = append(out, Holder{Bytes: &rest, StateMeaning: l.unseen(g)})
		}
	}
	return out
}

func (l *look) unseen(g *event.GPU) string {
	if g.Processes == nil {
		return "the driver does not list its processes"
	}
	return "no process is listed for it: it is in another PID namespace, or the driver has not given it back yet"
}

func allTold(ps []event.GPUProcess) bool {
	return !slices.ContainsFunc(ps, func(p event.GPUProcess) bool { return p.UsedBytes == nil })
}

func bytesOf(n *uint64) uint64 {
	if n == nil {
		return 0
	}
	return *n
}

func cutText(s string, n int) string {
	s = strings.ToValidUTF8(s, "\uFFFD")
	if len(s) <= n {
		return s
	}
	return strings.ToValidUTF8(s[:n], "") + "..."
}
