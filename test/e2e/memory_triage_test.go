//go:build e2e

package e2e

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/startupd/startupd/pkg/journal"
	"github.com/startupd/startupd/test/nspawn"
)

// hostMemory is how much the unit may have.
const hostMemory = 160 << 20

// gated is the unit's drop-in: the engine begins once its limit is there. Where
// control groups are of version 1, systemd has no power over memory in a
// container, and the test limits it from outside.
const gated = `[Service]
Restart=no
MemoryMax=160M
ExecStart=
ExecStart=sh -c 'until [ -e /run/sim-%n/limited ]; do sleep 0.05; done; exec /opt/vllm/bin/vllm serve /models/acme-70b --tensor-parallel-size 2'
`

// teller writes into the container's journal what happened to a process of a
// unit: the kernel's own lines do not come into a container.
type teller func(t *testing.T, d *daemon, unit string, kill oomKill)

// hostOOM is a unit one of whose processes the kernel really kills for its
// memory. Its name is not that of an earlier run, which the kernel remembers.
func hostOOM(by string, port int, tell teller) failure {
	name := fmt.Sprintf("vllm-host-oom-%s-%d.service", by, os.Getpid())
	return failure{
		engineUnit: engineUnit{name: name, scenario: "host-oom", port: port, dropIn: gated},
		begin: func(t *testing.T, d *daemon, f failure) {
			d.Run(t, "systemctl", "start", "--no-block", f.name)
			group := limitMemory(t, d, f.name)
			d.Run(t, "touch", "/run/sim-"+f.name+"/limited")
			tell(t, d, f.name, waitForKill(t, d, f.name, group))
		},
		classes: []string{"host_oom"}, process: by, phase: "load",
	}
}

// limitMemory puts the unit's main process, and with it all that it will start,
// under a limit. It returns the name by which the kernel calls the group.
func limitMemory(t *testing.T, d *daemon, unit string) string {
	t.Helper()
	const hierarchy = "/sys/fs/cgroup/memory"
	if _, err := os.Stat(hierarchy); err != nil {
		return unit // MemoryMax= does it
	}
	name := fmt.Sprintf("startupd-e2e-%d-%08x", os.Getpid(), rand.Uint32())
	group := filepath.Join(hierarchy, name)
	if err := os.Mkdir(group, 0o755); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_, _ = d.Try("systemctl", "stop", unit)
		nspawn.Eventually(t, 10*time.Second, func() error { return syscall.Rmdir(group) })
	})
	write := func(file string, value int) {
		if err := os.WriteFile(filepath.Join(group, file), []byte(strconv.Itoa(value)), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	write("memory.limit_in_bytes", hostMemory)
	write("cgroup.procs", outside(t, d, unit))
	return name
}

// outside is the unit's main process as this machine counts it.
func outside(t *testing.T, d *daemon, unit string) int {
	t.Helper()
	var found int
	nspawn.Eventually(t, 10*time.Second, func() error {
		inside := d.Property(t, unit, "MainPID")
		for _, pid := range nspawn.Children(d.Init) {
			status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
			if err != nil {
				continue
			}
			ns := regexp.MustCompile(`(?m)^NSpid:.*\s(\d+)$`).FindSubmatch(status)
			if ns != nil && string(ns[1]) == inside {
				found = pid
				return nil
			}
		}
		return fmt.Errorf("%s has main process %s, which is not seen outside", unit, inside)
	})
	return found
}

// oomKill is what the kernel did.
type oomKill struct {
	// line is what it said of the kill, with the process as it is counted inside.
	line string
	pid  int
}

var killed = regexp.MustCompile(`Memory cgroup out of memory: Killed process (\d+) \(VLLM::.*`)

// waitForKill waits until the kernel has killed the worker, by its own word.
func waitForKill(t *testing.T, d *daemon, unit, group string) oomKill {
	t.Helper()
	var kill oomKill
	nspawn.Eventually(t, 20*time.Second, func() error {
		out, err := exec.Command("dmesg").CombinedOutput()
		if err != nil {
			return fmt.Errorf("dmesg: %w: %s", err, out)
		}
		_, after, ours := strings.Cut(string(out), "oom_memcg=/"+group)
		if !ours {
			_, after, ours = strings.Cut(string(out), "/"+group+",task=VLLM::")
		}
		found := killed.FindStringSubmatch(after)
		if !ours || found == nil {
			return fmt.Errorf("the kernel has killed nothing of %s", group)
		}
		kill.line = found[0]
		return nil
	})
	said := d.Run(t, "journalctl", "--unit="+unit, "--output=cat", "--no-pager")
	name := regexp.MustCompile(`\(Worker_TP1 pid=(\d+)\)`).FindStringSubmatch(said)
	if name == nil {
		t.Fatalf("%s has said nothing of its worker:\n%s", unit, said)
	}
	kill.pid, _ = strconv.Atoi(name[1])
	kill.line = regexp.MustCompile(`process \d+ `).ReplaceAllString(kill.line, "process "+name[1]+" ")
	return kill
}

// kernelTells retells the kernel's lines, with process and group as a host
// without containers has them.
func kernelTells(t *testing.T, d *daemon, unit string, kill oomKill) {
	group := "/system.slice/" + unit
	say := func(text string) []string {
		return []string{"_TRANSPORT=kernel", "PRIORITY=6", "SYSLOG_FACILITY=0", "SYSLOG_IDENTIFIER=kernel", "MESSAGE=" + text}
	}
	d.journal(t, "kernel",
		say(fmt.Sprintf("oom-kill:constraint=CONSTRAINT_MEMCG,nodemask=(null),cpuset=/,mems_allowed=0,oom_memcg=%s,task_memcg=%s,task=VLLM::Worker_TP,pid=%d,uid=0", group, group, kill.pid)),
		say(kill.line))
}

// systemdTells says what systemd does where it sees the control group's events.
func systemdTells(t *testing.T, d *daemon, unit string, _ oomKill) {
	d.journal(t, "manager", []string{
		"_TRANSPORT=journal", "PRIORITY=4", "_PID=1", "_UID=0", "_COMM=systemd", "_SYSTEMD_UNIT=init.scope", "SYSLOG_IDENTIFIER=systemd",
		"UNIT=" + unit, "INVOCATION_ID=" + d.Property(t, unit, "InvocationID"), "MESSAGE_ID=fe6faa94e7774663a0da52717891d8ef",
		"MESSAGE=" + unit + ": A process of this unit has been killed by the OOM killer.",
	})
}

// journal adds a file with entries of now to the container's journal.
func (d *daemon) journal(t *testing.T, name string, entries ...[]string) {
	t.Helper()
	boot := strings.ReplaceAll(d.Run(t, "cat", "/proc/sys/kernel/random/boot_id"), "-", "")
	machine := d.Run(t, "cat", "/etc/machine-id")
	var now unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_MONOTONIC, &now); err != nil {
		t.Fatal(err)
	}
	var b bytes.Buffer
	enc := journal.NewEncoder(&b)
	for i, fields := range entries {
		enc.Field("__REALTIME_TIMESTAMP", fmt.Append(nil, time.Now().UnixMicro()+int64(i)))
		enc.Field("__MONOTONIC_TIMESTAMP", fmt.Append(nil, now.Nano()/1000+int64(i)))
		for _, f := range append([]string{"_BOOT_ID=" + boot, "_MACHINE_ID=" + machine}, fields...) {
			key, value, _ := strings.Cut(f, "=")
			enc.Field(key, []byte(value))
		}
		if err := enc.End(); err != nil {
			t.Fatal(err)
		}
	}
	path := fmt.Sprintf("/var/log/journal/%s/%s.journal", machine, name)
	cmd := d.Command(t.Context(), "/lib/systemd/systemd-journal-remote", "-o", path, "-")
	cmd.Stdin = &b
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("systemd-journal-remote (package systemd-journal-remote): %v\n%s", err, out)
	}
}
