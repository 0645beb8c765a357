//go:build e2e

package e2e

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/charmbracelet/x/vt"
	"github.com/creack/pty"

	"github.com/startupd/startupd/pkg/web/api"
	"github.com/startupd/startupd/test/nspawn"
)

const (
	seenUnit   = "vllm-seen.service"
	doomedUnit = "vllm-doomed.service"
)

// testWatch looks at starts as an operator does: live in a terminal, and once by
// a script, with the daemon and without.
func testWatch(t *testing.T, c *nspawn.Container) {
	engineUnit{name: seenUnit, scenario: "steady", speed: 2, port: 8021, restartSec: "1"}.add(t, c)
	engineUnit{name: doomedUnit, scenario: "gpu-oom", speed: 20, port: 8022, restartSec: "1", dropIn: "[Service]\nRestart=no\n"}.add(t, c)
	d := install(t, c, "--unit="+seenUnit, "--unit="+doomedUnit)
	d.until(t, 20*time.Second, sources)

	s := openScreen(t, c, "startupd", "watch", seenUnit)
	c.Run(t, "systemctl", "start", "--no-block", seenUnit)
	s.await(t, "LOAD/")
	s.await(t, "█ unit")
	s.await(t, "SERVING since")
	t.Run("status", func(t *testing.T) { checkStatus(t, c, "█ unit") })
	c.Run(t, "systemctl", "start", "--no-block", doomedUnit)
	d.reaches(t, 20*time.Second, doomedUnit, "failed")
	t.Run("failed", func(t *testing.T) {
		out := exits(t, c, 1, "startupd", "status", doomedUnit)
		if !strings.Contains(out, "FAILED in ") || !strings.Contains(out, "  gpu_oom_weights, torch.OutOfMemoryError") {
			t.Errorf("it says\n%s", out)
		}
		exits(t, c, 1, "startupd", "status")
	})

	c.Run(t, "systemctl", "stop", service)
	s.await(t, "does not come back")
	s.await(t, "no daemon")
	s.await(t, "SERVING since")
	t.Run("status without the daemon", func(t *testing.T) { checkStatus(t, c, "no daemon runs here; the journal is followed here instead") })
	t.Run("without any right", func(t *testing.T) {
		out := exits(t, c, 5, "runuser", "-u", "nobody", "--", "startupd", "status", seenUnit)
		if !strings.Contains(out, "systemd-journal") {
			t.Errorf("it does not say what to do: %s", out)
		}
	})
	c.Run(t, "systemctl", "stop", seenUnit)
	s.await(t, "STOPPED since")
	s.press(t, "q")
	if err := s.cmd.Wait(); err != nil {
		t.Errorf("watch ended with %v", err)
	}
}

// checkStatus asks once for the unit that serves; note is what it says beside.
func checkStatus(t *testing.T, c *nspawn.Container, note string) {
	library := "--gpu.nvml-library=/e2e/libnvidia-ml.so.1"
	out := exits(t, c, 0, "env", "LC_ALL=C.UTF-8", "FAKE_NVML_STATE=/e2e/nvml", "startupd", "status", seenUnit, library)
	for _, want := range []string{note, seenUnit, "SERVING since", "PHASES", "84.0 ", "log yes"} {
		if !strings.Contains(out, want) {
			t.Errorf("it lacks %q:\n%s", want, out)
		}
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	b, err := c.Command(ctx, "startupd", "status", seenUnit, "--format=json").Output()
	if err != nil {
		t.Fatal(err)
	}
	var s api.Status
	if err := json.Unmarshal(b, &s); err != nil {
		t.Fatal(err)
	}
	if u := s.Find(seenUnit); len(s.Units) != 1 || u == nil || u.State != api.Serving || u.Startup.AttachedLate {
		t.Errorf("it says %s", b)
	}
}

// exits runs a command inside that must end with a code.
func exits(t *testing.T, c *nspawn.Container, code int, args ...string) string {
	t.Helper()
	out, err := c.Try(args...)
	got := 0
	var exit *exec.ExitError
	if errors.As(err, &exit) {
		got = exit.ExitCode()
	} else if err != nil {
		t.Fatal(err)
	}
	if got != code {
		t.Errorf("%s: exit code %d, want %d:\n%s", strings.Join(args, " "), got, code, out)
	}
	return out
}

// screen is a terminal with a program inside the container.
type screen struct {
	cmd  *exec.Cmd
	file *os.File
	vt   *vt.Emulator
}

func openScreen(t *testing.T, c *nspawn.Container, args ...string) *screen {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 3*time.Minute)
	t.Cleanup(cancel)
	s := &screen{
		cmd: c.Command(ctx, append([]string{"env", "TERM=xterm-256color", "LC_ALL=C.UTF-8"}, args...)...),
		vt:  vt.NewEmulator(100, 40),
	}
	var err error
	if s.file, err = pty.StartWithSize(s.cmd, &pty.Winsize{Cols: 100, Rows: 40}); err != nil {
		t.Fatal(err)
	}
	// What the terminal answers to what the program asks.
	go func() { _, _ = io.Copy(s.file, s.vt) }()
	t.Cleanup(func() { s.file.Close() })
	return s
}

// await draws until the screen shows a text.
func (s *screen) await(t *testing.T, want string) {
	t.Helper()
	b := make([]byte, 4096)
	for begin := time.Now(); !strings.Contains(s.vt.String(), want); {
		n, err := s.file.Read(b)
		_, _ = s.vt.Write(b[:n])
		if err != nil || time.Since(begin) > time.Minute {
			t.Fatalf("the screen does not show %q (%v):\n%s", want, err, s.vt)
		}
	}
}

func (s *screen) press(t *testing.T, keys string) {
	t.Helper()
	if _, err := s.file.WriteString(keys); err != nil {
		t.Fatal(err)
	}
	// The last it draws must not keep it from ending.
	go func() { _, _ = io.Copy(s.vt, s.file) }()
}
