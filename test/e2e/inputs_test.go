//go:build e2e

package e2e

import (
	"errors"
	"fmt"
	"os/exec"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/startupd/startupd/test/nspawn"
)

// testService judges the unit as delivered.
func testService(t *testing.T, c *nspawn.Container) {
	d := install(t, c, "--unit=none.service")
	out := c.Run(t, "systemd-analyze", "security", "--no-pager", service)
	found := regexp.MustCompile(`Overall exposure level for startupd.service: ([0-9.]+)`).FindStringSubmatch(out)
	if found == nil {
		t.Fatalf("systemd-analyze says:\n%s", out)
	}
	if score, err := strconv.ParseFloat(found[1], 64); err != nil || score > 2.0 {
		t.Errorf("exposure level is %s, want 2.0 or less:\n%s", found[1], out)
	}
	if user := c.Run(t, "ps", "-o", "user=", "-p", d.pid(t)); user != "startupd" {
		t.Errorf("it runs as %s", user)
	}
	if caps := c.Run(t, "grep", "CapEff", "/proc/"+d.pid(t)+"/status"); !strings.HasSuffix(caps, "0000000000000000") {
		t.Errorf("it has capabilities: %s", caps)
	}
	d.until(t, 20*time.Second, sources)
	const socket = "/run/startupd/api.sock"
	if mode := c.Run(t, "stat", "--format=%a %U:%G", socket); mode != "660 startupd:startupd" {
		t.Errorf("the socket for the command line is %s", mode)
	}
	if code := c.Run(t, "curl", "--silent", "--unix-socket", socket, "--output", "/dev/null", "--write-out", "%{http_code}", "http://localhost/"); code != "200" {
		t.Errorf("the socket answers %s", code)
	}
	nspawn.Eventually(t, 10*time.Second, func() error {
		if status := d.Property(t, service, "StatusText"); !strings.Contains(status, "none.service") {
			return fmt.Errorf("its status is %q", status)
		}
		return nil
	})
}

// testInputs gives startupd what an operator may give it by mistake.
func testInputs(t *testing.T, c *nspawn.Container) {
	d := install(t, c, "--unit=none.service")
	d.until(t, 20*time.Second, sources)
	t.Run("no such unit", func(t *testing.T) {
		d.reaches(t, 10*time.Second, "none.service", "unknown")
		nspawn.Eventually(t, 10*time.Second, func() error {
			if log := d.log(t); !strings.Contains(log, "none.service") {
				return fmt.Errorf("the log does not name the unit:\n%s", log)
			}
			return nil
		})
	})
	t.Run("port in use", func(t *testing.T) {
		out, err := c.Try("startupd", "serve", "--unit=none.service", "--web.listen-address="+address, "--state.dir=", "--api.socket=")
		var exit *exec.ExitError
		if !errors.As(err, &exit) || exit.ExitCode() != 1 {
			t.Errorf("it ended with %v", err)
		}
		if !strings.Contains(out, address) || !strings.Contains(out, "in use") || !strings.Contains(out, "--web.listen-address") {
			t.Errorf("it says %q", out)
		}
	})
	t.Run("no target", func(t *testing.T) {
		out, err := c.Try("startupd", "serve")
		var exit *exec.ExitError
		if !errors.As(err, &exit) || exit.ExitCode() != 2 || !strings.Contains(out, "--unit") {
			t.Errorf("it ended with %v and says %q", err, out)
		}
	})
	t.Run("no right to read the journal", func(t *testing.T) { stranger(t, c, nil, "journal", "systemd-journal") })
	t.Run("no bus", func(t *testing.T) {
		stranger(t, c, []string{"DBUS_SYSTEM_BUS_ADDRESS=unix:path=/nowhere"}, "unit", "/nowhere")
	})
	t.Run("no driver", func(t *testing.T) { stranger(t, c, nil, "gpu", "libnvidia-ml") })
	t.Run("reload", func(t *testing.T) { reload(t, c) })
	t.Run("flood", func(t *testing.T) { flood(t, c) })
}

// stranger runs startupd without any right, and wants a source to be down, with
// a word about what to do.
func stranger(t *testing.T, c *nspawn.Container, env []string, source, word string) {
	const addr = "127.0.0.1:10950"
	args := append([]string{"env"}, env...)
	args = append(args, "setpriv", "--reuid=nobody", "--regid=nogroup", "--clear-groups",
		"/usr/bin/startupd", "serve", "--unit=none.service", "--web.listen-address="+addr, "--state.dir=", "--api.socket=")
	var out nspawn.Output
	cmd := c.Command(t.Context(), args...)
	cmd.Stdout, cmd.Stderr = &out, &out
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait() }()
	// nsenter waits for the process in the container: that one is told to end.
	pid := ""
	t.Cleanup(func() { _, _ = c.Try("kill", "-KILL", pid) })
	nspawn.Eventually(t, 20*time.Second, func() error {
		found, err := c.Try("pgrep", "--oldest", "--exact", "--uid", "nobody", "startupd")
		pid = strings.TrimSpace(found)
		return err
	})
	nspawn.Eventually(t, 20*time.Second, func() error {
		text, err := c.Try("curl", "--silent", "--fail", "http://"+addr+"/metrics")
		if err != nil {
			return fmt.Errorf("%w\n%s", err, out.String())
		}
		m, err := parse(text)
		if err != nil {
			return err
		}
		up, n := m.sum("startupd_source_up", "source", source)
		if n != 1 || up != 0 || !strings.Contains(out.String(), word) {
			return fmt.Errorf("source %s is %v (of %d), want 0, and a log with %q:\n%s", source, up, n, word, out.String())
		}
		_, err = m.state("none.service")
		return err
	})
	c.Run(t, "kill", "-INT", pid)
	select {
	case err := <-ended:
		if err != nil {
			t.Errorf("asked to stop it ended with %v", err)
		}
	case <-time.After(15 * time.Second):
		t.Error("it does not end when asked to")
	}
}

// reload replaces the configuration of a running service.
func reload(t *testing.T, c *nspawn.Container) {
	const path = "/etc/startupd/reload.yml"
	post := func() string {
		return c.Run(t, "curl", "--silent", "--request", "POST", "--write-out", " %{http_code}", "http://"+address+"/-/reload")
	}
	c.Write(t, path, "targets:\n  - unit: one.service\n")
	d := install(t, c, "--config.file="+path)
	c.Write(t, path, "targets:\n  - unit: one.service\n  - unti: two.service\n")
	if got := post(); !strings.HasSuffix(got, " 500") || !strings.Contains(got, "unti") || !strings.Contains(got, path+":3") {
		t.Errorf("a bad configuration is answered %q", got)
	}
	if _, err := d.metrics(t).state("one.service"); err != nil {
		t.Error(err)
	}
	c.Write(t, path, "targets:\n  - unit: one.service\n  - unit: two.service\n")
	if got := post(); !strings.HasSuffix(got, " 200") {
		t.Errorf("a good configuration is answered %q", got)
	}
	d.until(t, 10*time.Second, func(m metrics) error { _, err := m.state("two.service"); return err })
	c.Write(t, path, "targets:\n  - unit: two.service\n")
	c.Run(t, "systemctl", "reload", service)
	d.until(t, 10*time.Second, func(m metrics) error {
		if _, err := m.state("one.service"); err == nil {
			return fmt.Errorf("one.service is still watched")
		}
		_, err := m.state("two.service")
		return err
	})
}

// floodUnit writes what no log should hold: ten megabytes in a line, bytes that
// are no text, and more lines than journald lets pass.
const floodUnit = `[Service]
ExecStart=sh -c 'head -c 10000000 /dev/zero | tr "\\0" x; echo; printf "\\377\\376 no text\\n"; seq 200000; sleep 3; echo over; exec sleep infinity'
LogRateLimitIntervalSec=2s
LogRateLimitBurst=5000
`

// flood sees to it that startupd lives through such a log, and says what is
// missing in it.
func flood(t *testing.T, c *nspawn.Container) {
	const unit = "flood.service"
	c.Write(t, "/run/systemd/system/"+unit, floodUnit)
	d := install(t, c, "--unit="+unit)
	pid := d.pid(t)
	c.Run(t, "systemctl", "start", "--no-block", unit)
	t.Cleanup(func() { _, _ = c.Try("systemctl", "stop", unit) })
	d.until(t, 30*time.Second, func(m metrics) error {
		for _, kind := range []string{"suppressed", "line_max"} {
			if n, _ := m.get("startupd_journal_gaps_total", "unit", unit, "kind", kind); n < 1 {
				return fmt.Errorf("no gap %s:\n%s", kind, m.dump(unit))
			}
		}
		if n, _ := m.get("startupd_journal_lines_total", "unit", unit); n < 1000 {
			return fmt.Errorf("%v lines", n)
		}
		if lag, ok := m.get("startupd_journal_lag_seconds", "unit", unit); !ok || lag > 2 {
			return fmt.Errorf("the reader is %v s behind (known: %v)", lag, ok)
		}
		return sources(m)
	})
	if now := d.pid(t); now != pid {
		t.Errorf("startupd was restarted: process %s was %s", now, pid)
	}
}
