//go:build e2e

package e2e

import (
	"bytes"
	"context"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

// container is a booted systemd.
type container struct {
	// init is its process 1 as this machine counts it.
	init int
	// share is the folder that it sees as /e2e.
	share string
}

// log collects what the container prints.
type log struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

func (l *log) Write(b []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.buf.Write(b)
}

func (l *log) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.buf.String()
}

// boot starts a container with stage laid over this machine's root. It ends
// with the test.
func boot(t *testing.T, stage, share string) *container {
	t.Helper()
	sweep(t)
	var out log
	name := fmt.Sprintf("e2e-%d", os.Getpid())
	// In a PID namespace of its own, all of it ends with unshare, and that with
	// this process.
	cmd := exec.Command("unshare", "--mount", "--pid", "--fork", "--kill-child=KILL", "--mount-proc", "--propagation", "private",
		"sh", "boot.sh", stage, share, name)
	cmd.Stdout, cmd.Stderr = &out, &out
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	c := &container{share: share}
	ended := run(t, cmd)
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		<-ended
		eventually(t, 10*time.Second, func() error { return removeGroups(name) })
	})
	eventually(t, 30*time.Second, func() error {
		select {
		case <-ended:
			t.Fatalf("the container ended at once:\n%s", out.String())
		default:
		}
		if c.init == 0 {
			c.init = initOf(cmd.Process.Pid)
		}
		if c.init == 0 {
			return fmt.Errorf("no systemd yet:\n%s", out.String())
		}
		state, err := c.try("systemctl", "is-active", "e2e.target", "dbus.service")
		if err != nil {
			return fmt.Errorf("%w:\n%s", err, state)
		}
		return nil
	})
	return c
}

// run starts cmd on a thread of its own, as Pdeathsig watches the thread that
// started it, and returns a channel that is closed at its end.
func run(t *testing.T, cmd *exec.Cmd) <-chan struct{} {
	t.Helper()
	started, ended := make(chan error), make(chan struct{})
	go func() {
		defer close(ended)
		lockThread()
		err := cmd.Start()
		started <- err
		if err == nil {
			_ = cmd.Wait()
		}
	}()
	if err := <-started; err != nil {
		t.Fatal(err)
	}
	return ended
}

// groups are the control groups of a container, in every hierarchy.
func groups(name string) []string {
	found, _ := filepath.Glob("/sys/fs/cgroup/startupd-" + name)
	below, _ := filepath.Glob("/sys/fs/cgroup/*/startupd-" + name)
	return append(found, below...)
}

// removeGroups removes a container's control groups. It touches none of them
// while one still has a process.
func removeGroups(name string) error {
	for _, root := range groups(name) {
		var dirs []string
		if err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
			if err != nil || !d.IsDir() {
				return err
			}
			dirs = append(dirs, path)
			procs, err := os.ReadFile(filepath.Join(path, "cgroup.procs"))
			if err == nil && len(procs) > 0 {
				err = fmt.Errorf("control group %s has processes: %s", path, strings.Fields(string(procs)))
			}
			return err
		}); err != nil {
			return err
		}
		for _, dir := range slices.Backward(dirs) {
			if err := syscall.Rmdir(dir); err != nil {
				return fmt.Errorf("control group %s: %w", dir, err)
			}
		}
	}
	return nil
}

// sweep removes the control groups of tests that were killed.
func sweep(t *testing.T) {
	for _, dir := range groups("e2e-*") {
		name := strings.TrimPrefix(filepath.Base(dir), "startupd-")
		if _, err := os.Stat("/proc/" + strings.TrimPrefix(name, "e2e-")); err == nil {
			continue
		}
		if err := removeGroups(name); err != nil {
			t.Logf("left behind by an earlier run: %v", err)
		}
	}
}

// initOf finds the systemd below a process; 0 while there is none.
func initOf(pid int) int {
	children, err := os.ReadFile(fmt.Sprintf("/proc/%d/task/%d/children", pid, pid))
	if err != nil {
		return 0
	}
	for field := range strings.FieldsSeq(string(children)) {
		child, err := strconv.Atoi(field)
		comm, cerr := os.ReadFile(fmt.Sprintf("/proc/%d/comm", child))
		if err != nil || cerr != nil {
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

// command makes a command that runs inside.
func (c *container) command(ctx context.Context, args ...string) *exec.Cmd {
	return exec.CommandContext(ctx, "nsenter", append([]string{"--target", strconv.Itoa(c.init), "--all", "--"}, args...)...)
}

// try runs a command inside and returns what it prints.
func (c *container) try(args ...string) (string, error) {
	ctx, cancel := context.WithTimeout(context.Background(), 60*time.Second)
	defer cancel()
	out, err := c.command(ctx, args...).CombinedOutput()
	if err != nil {
		return string(out), fmt.Errorf("%s: %w", strings.Join(args, " "), err)
	}
	return string(out), nil
}

// run is try for a command that must work.
func (c *container) run(t *testing.T, args ...string) string {
	t.Helper()
	out, err := c.try(args...)
	if err != nil {
		t.Fatalf("%v:\n%s", err, out)
	}
	return strings.TrimSpace(out)
}

// write puts a file into the container.
func (c *container) write(t *testing.T, path, text string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	cmd := c.command(ctx, "install", "-D", "-m", "0644", "/dev/stdin", path)
	cmd.Stdin = strings.NewReader(text)
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("write %s: %v\n%s", path, err, out)
	}
}

// property reads one property of a unit.
func (c *container) property(t *testing.T, unit, name string) string {
	t.Helper()
	return c.run(t, "systemctl", "show", "--value", "--property="+name, unit)
}

// eventually calls check until it returns nil, and fails the test with its
// last error when time is up.
func eventually(t *testing.T, within time.Duration, check func() error) {
	t.Helper()
	tick := time.NewTicker(100 * time.Millisecond)
	defer tick.Stop()
	deadline := time.After(within)
	for {
		err := check()
		if err == nil {
			return
		}
		select {
		case <-deadline:
			t.Fatalf("not within %v: %v", within, err)
		case <-tick.C:
		}
	}
}
