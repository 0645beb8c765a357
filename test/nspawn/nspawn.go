// Package nspawn boots a real systemd from this machine's own root, laid over
// with files of the caller, for tests and benchmarks. It needs root. It must
// not know what is run inside.
package nspawn

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
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

// script sets the container up; both its users lie beside it.
const script = "../e2e/boot.sh"

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
	tb   testing.TB
}

// Boot lays the folder stage over this machine's root, boots it with the folder
// share bound to /e2e, and returns once the system bus is up. The container
// ends with the test.
func Boot(tb testing.TB, stage, share string) *Container {
	tb.Helper()
	units := filepath.Join(stage, "etc/systemd/system")
	Put(tb, filepath.Join(units, "e2e.target"), target)
	Put(tb, filepath.Join(units, "boot-id.service"), bootID)
	Put(tb, filepath.Join(units, "systemd-journald.service.d/boot-id.conf"), afterBootID)

	console := filepath.Join(tb.TempDir(), "console")
	out, err := os.Create(console)
	if err != nil {
		tb.Fatal(err)
	}
	defer out.Close()
	cmd := exec.Command("unshare", "--mount", "--propagation", "private", "sh", script, stage, share)
	cmd.Stdout, cmd.Stderr = out, out
	// The container must not outlive a test binary that is killed.
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL, Setpgid: true}
	c := &Container{tb: tb}
	ended := start(tb, cmd)
	tb.Cleanup(func() { c.end(cmd.Process.Pid, ended) })
	Eventually(tb, 30*time.Second, func() error {
		select {
		case <-ended:
			text, _ := os.ReadFile(console)
			tb.Fatalf("the container ended at once:\n%s", text)
		default:
		}
		if c.Init = initOf(cmd.Process.Pid); c.Init == 0 {
			return errors.New("no systemd yet")
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

// end kills the container and removes its control groups.
func (c *Container) end(nspawn int, ended <-chan struct{}) {
	if c.Init != 0 {
		_ = syscall.Kill(c.Init, syscall.SIGKILL)
	}
	select {
	case <-ended:
	case <-time.After(10 * time.Second):
		_ = syscall.Kill(-nspawn, syscall.SIGKILL)
		<-ended
	}
	for _, root := range []string{"/sys/fs/cgroup/systemd", "/sys/fs/cgroup/unified", "/sys/fs/cgroup"} {
		c.removeGroup(filepath.Join(root, fmt.Sprintf("startupd-e2e-%d", nspawn)))
	}
}

func (c *Container) removeGroup(dir string) {
	var dirs []string
	_ = filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err == nil && d.IsDir() {
			dirs = append(dirs, path)
		}
		return nil
	})
	for i := len(dirs) - 1; i >= 0; i-- {
		if err := syscall.Rmdir(dirs[i]); err != nil && !errors.Is(err, fs.ErrNotExist) {
			c.tb.Logf("control group %s remains: %v", dirs[i], err)
		}
	}
}

// initOf finds the systemd below an nspawn; 0 while there is none.
func initOf(nspawn int) int {
	lists, _ := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/children", nspawn))
	for _, list := range lists {
		children, _ := os.ReadFile(list)
		for field := range strings.FieldsSeq(string(children)) {
			comm, _ := os.ReadFile("/proc/" + field + "/comm")
			if pid, err := strconv.Atoi(field); err == nil && strings.TrimSpace(string(comm)) == "systemd" {
				return pid
			}
		}
	}
	return 0
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
func (c *Container) Run(args ...string) string {
	c.tb.Helper()
	out, err := c.Try(args...)
	if err != nil {
		c.tb.Fatalf("%v:\n%s", err, out)
	}
	return strings.TrimSpace(out)
}

// Put writes a file and the folders above it.
func Put(tb testing.TB, path, text string) {
	tb.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		tb.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
		tb.Fatal(err)
	}
}

// Eventually calls check until it returns nil, and fails the test with its
// last error when time is up.
func Eventually(tb testing.TB, within time.Duration, check func() error) {
	tb.Helper()
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	deadline := time.After(within)
	for {
		err := check()
		if err == nil {
			return
		}
		select {
		case <-deadline:
			tb.Fatalf("not within %v: %v", within, err)
		case <-tick.C:
		}
	}
}
