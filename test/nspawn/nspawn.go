// Package nspawn boots a real systemd in a container, for tests and benchmarks:
// this machine's own root with files of the caller laid over it, through an
// overlay that is gone afterwards. It needs root and changes nothing of the
// machine. It must not know what is run inside.
package nspawn

import (
	"context"
	_ "embed"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"
)

// script prepares the overlay and the control groups, and becomes
// systemd-nspawn.
//
//go:embed boot.sh
var script string

const target = `[Unit]
Description=All that a test asks of systemd
Requires=basic.target
After=basic.target
Wants=dbus.service
`

// bootID undoes the boot ID that systemd-nspawn makes up. It is a mount that a
// service with a /proc of its own does not see: such a service would ask the
// journal for another boot than the one that is written.
const bootID = `[Unit]
DefaultDependencies=no
Before=systemd-journald.service

[Service]
Type=oneshot
RemainAfterExit=yes
StandardOutput=null
StandardError=null
ExecStart=sh -c 'while umount /proc/sys/kernel/random/boot_id; do :; done'
`

const afterBootID = `[Unit]
Requires=boot-id.service
After=boot-id.service
`

// Container is a booted systemd.
type Container struct {
	// Init is its process 1 as this machine counts it.
	Init int
}

// Boot lays the folder stage, to which it adds units of its own, over this
// machine's root, boots it with the folder share bound to /e2e, and returns
// once the system bus is up. The container ends with the test, and with this
// process however that ends.
func Boot(tb testing.TB, stage, share string) *Container {
	tb.Helper()
	units := filepath.Join(stage, "etc/systemd/system")
	Put(tb, filepath.Join(units, "e2e.target"), target)
	Put(tb, filepath.Join(units, "boot-id.service"), bootID)
	Put(tb, filepath.Join(units, "systemd-journald.service.d/boot-id.conf"), afterBootID)

	sweep(tb)
	name := newName()
	var out Output
	// In a PID namespace of its own, all of it ends with unshare, and that with
	// this process.
	cmd := exec.Command("unshare", "--mount", "--pid", "--fork", "--kill-child=KILL", "--mount-proc", "--propagation", "private",
		"sh", "-c", script, "boot.sh", stage, share, name)
	cmd.Stdout, cmd.Stderr = &out, &out
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	ended := start(tb, cmd)
	tb.Cleanup(func() {
		_ = cmd.Process.Kill()
		<-ended
		Eventually(tb, 10*time.Second, func() error { return removeGroups(name) })
	})
	c := &Container{}
	Eventually(tb, 30*time.Second, func() error {
		select {
		case <-ended:
			tb.Fatalf("the container ended at once:\n%s", out.String())
		default:
		}
		if c.Init == 0 {
			c.Init = initOf(cmd.Process.Pid)
		}
		if c.Init == 0 {
			return fmt.Errorf("no systemd yet:\n%s", out.String())
		}
		state, err := c.Try("systemctl", "is-active", "e2e.target", "dbus.service")
		if err != nil {
			return fmt.Errorf("%w:\n%s", err, state)
		}
		return nil
	})
	return c
}

// start runs cmd on a thread of its own, as Pdeathsig watches the thread that
// started it, and returns a channel that is closed at its end.
func start(tb testing.TB, cmd *exec.Cmd) <-chan struct{} {
	tb.Helper()
	started, ended := make(chan error), make(chan struct{})
	go func() {
		defer close(ended)
		runtime.LockOSThread() // never unlocked: the thread lives as long as cmd
		err := cmd.Start()
		started <- err
		if err == nil {
			_ = cmd.Wait()
		}
	}()
	if err := <-started; err != nil {
		tb.Fatal(err)
	}
	return ended
}

// initOf finds the systemd below a process; 0 while there is none.
func initOf(pid int) int {
	for _, child := range Children(pid) {
		comm, err := os.ReadFile(fmt.Sprintf("/proc/%d/comm", child))
		if err != nil {
			continue
		}
		if strings.TrimSpace(string(comm)) == "systemd" {
			return child
		}
		if found := initOf(child); found != 0 {
			return found
		}
	}
	return 0
}

// Children returns the processes that any thread of a process has forked, all
// as this machine counts them.
func Children(pid int) []int {
	var out []int
	lists, _ := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/children", pid))
	for _, list := range lists {
		b, _ := os.ReadFile(list)
		for field := range strings.FieldsSeq(string(b)) {
			if child, err := strconv.Atoi(field); err == nil {
				out = append(out, child)
			}
		}
	}
	return out
}

// Command makes a command that runs inside.
func (c *Container) Command(ctx context.Context, args ...string) *exec.Cmd {
	return exec.CommandContext(ctx, "nsenter", append([]string{"--target", strconv.Itoa(c.Init), "--all", "--"}, args...)...)
}

// Try runs a command inside and returns what it prints.
func (c *Container) Try(args ...string) (string, error) {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	out, err := c.Command(ctx, args...).CombinedOutput()
	if err != nil {
		return string(out), fmt.Errorf("%s: %w", strings.Join(args, " "), err)
	}
	return string(out), nil
}

// Run is Try for a command that must work.
func (c *Container) Run(tb testing.TB, args ...string) string {
	tb.Helper()
	out, err := c.Try(args...)
	if err != nil {
		tb.Fatalf("%v:\n%s", err, out)
	}
	return strings.TrimSpace(out)
}

// Write puts a file into the container.
func (c *Container) Write(tb testing.TB, path, text string) {
	tb.Helper()
	ctx, cancel := context.WithTimeout(tb.Context(), 10*time.Second)
	defer cancel()
	cmd := c.Command(ctx, "install", "-D", "-m", "0644", "/dev/stdin", path)
	cmd.Stdin = strings.NewReader(text)
	if out, err := cmd.CombinedOutput(); err != nil {
		tb.Fatalf("write %s: %v\n%s", path, err, out)
	}
}

// Property reads one property of a unit.
func (c *Container) Property(tb testing.TB, unit, name string) string {
	tb.Helper()
	return c.Run(tb, "systemctl", "show", "--value", "--property="+name, unit)
}
