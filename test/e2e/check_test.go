//go:build e2e

package e2e

import (
	"encoding/json"
	"errors"
	"fmt"
	"os/exec"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/startupd/startupd/internal/app/fitness"
	"github.com/startupd/startupd/test/nspawn"
)

// TestCheck runs `startupd check` under a real systemd, with the arguments and the
// rights of the daemon as it is installed, on units that have one thing wrong each.
func TestCheck(t *testing.T) {
	root, share := stage(t)
	c := nspawn.Boot(t, root, share)
	c.Run(t, "systemd-sysusers", "/usr/lib/sysusers.d/startupd.conf")
	c.Run(t, "systemctl", "daemon-reload")
	units := map[string]string{
		"good.service":    simpleUnit("sh -c 'echo hello; exec sleep infinity'"),
		"file.service":    simpleUnit("sleep infinity", "StandardOutput=file:/run/file.log"),
		"spaced.service":  simpleUnit("sleep infinity", "LogNamespace=apart"),
		"quiet.service":   simpleUnit("sleep infinity", "LogLevelMax=warning"),
		"flooded.service": simpleUnit("sh -c 'seq 20000; sleep 3; echo over; exec sleep infinity'", "LogRateLimitIntervalSec=2s", "LogRateLimitBurst=500"),
		"hasty.service":   simpleUnit("sleep infinity", "Type=notify", "TimeoutStartSec=20s"),
	}
	args := []string{"--unit=none.service"}
	for name, text := range units {
		c.Write(t, "/run/systemd/system/"+name, text)
		args = append(args, "--unit="+name)
	}
	slices.Sort(args)
	d := install(t, c, args...)
	c.Run(t, "systemctl", "start", "good.service", "flooded.service")
	d.until(t, 30*time.Second, func(m metrics) error {
		if n, _ := m.get("startupd_journal_gaps_total", "unit", "flooded.service", "kind", "suppressed"); n < 1 {
			return fmt.Errorf("nothing is suppressed yet")
		}
		return sources(m)
	})

	t.Run("the daemon's user", func(t *testing.T) { checkInstalled(t, c) })
	t.Run("another user", func(t *testing.T) {
		r := runCheck(t, c, 1, "setpriv", "--reuid=nobody", "--regid=nogroup", "--clear-groups", "startupd", "check", "--unit=good.service", "--web.listen-address="+address)
		r.want(t, "user", "", fitness.NotKnown, "user nobody")
		r.want(t, "journal_right", "", fitness.Fail, "systemd-journal")
		r.want(t, "daemon", "", fitness.NotKnown, "no right to open /run/startupd/api.sock")
		r.want(t, "state", "", fitness.Fail, "/var/lib/startupd")
		r.want(t, "unit", "good.service", fitness.OK, "loaded")
	})
	t.Run("other arguments than those that run", func(t *testing.T) {
		c.Run(t, "sed", "-i", "s/--unit=none.service//", "/etc/default/startupd")
		runCheck(t, c, 1, "startupd", "check").want(t, "arguments", "", fitness.Warning, "systemctl restart startupd")
	})
	t.Run("an address that is taken", func(t *testing.T) {
		// systemd listens, and what it starts says nothing.
		c.Run(t, "systemd-run", "--unit=squatter", "--socket-property=ListenStream=127.0.0.1:10960", "sleep", "infinity")
		t.Cleanup(func() { _, _ = c.Try("systemctl", "stop", "squatter.socket", "squatter.service") })
		runCheck(t, c, 1, "startupd", "check", "--unit=good.service", "--web.listen-address=127.0.0.1:10960").
			want(t, "listen", "", fitness.Fail, "another process than startupd")
	})
	t.Run("the daemon's log", func(t *testing.T) { checkLog(t, c, d) })
	t.Run("the daemon is stopped", func(t *testing.T) {
		c.Run(t, "systemctl", "stop", service)
		r := runCheck(t, c, 1, "startupd", "check")
		r.want(t, "user", "", fitness.OK, "user startupd, as startupd.service says")
		r.want(t, "daemon", "", fitness.Warning, "systemctl enable --now startupd")
		r.want(t, "journal_right", "", fitness.OK, "")
		r.want(t, "listen", "", fitness.OK, "is free")
	})
	t.Run("without its right", func(t *testing.T) {
		c.Write(t, "/etc/systemd/system/startupd.service.d/right.conf", "[Service]\nSupplementaryGroups=\n")
		t.Cleanup(func() { _, _ = c.Try("rm", "/etc/systemd/system/startupd.service.d/right.conf") })
		c.Run(t, "systemctl", "daemon-reload")
		runCheck(t, c, 1, "startupd", "check").want(t, "journal_right", "", fitness.Fail, "systemd-journal")
	})
}

// checkInstalled is the check of the daemon as it runs: without a flag, as root.
func checkInstalled(t *testing.T, c *nspawn.Container) {
	r := runCheck(t, c, 1, "startupd", "check")
	if !r.Daemon || r.Arguments != "/etc/default/startupd" || r.Schema != fitness.Schema || r.Fit == nil || *r.Fit {
		t.Errorf("daemon's user %v, arguments of %q, schema %q, fit %v", r.Daemon, r.Arguments, r.Schema, r.Fit)
	}
	for _, tt := range []struct {
		check, unit string
		status      fitness.Status
		text        string
	}{
		{"user", "", fitness.OK, "user startupd, as the running daemon"},
		{"config", "", fitness.OK, "7 targets"},
		{"profiles", "", fitness.OK, "proved by its examples"},
		{"daemon", "", fitness.OK, "watches 7 units"},
		{"arguments", "", fitness.OK, ""},
		{"journal_right", "", fitness.OK, "other units"},
		{"journal_reader", "", fitness.OK, "reads"},
		{"journal_storage", "", fitness.OK, "on disk"},
		{"journal_line", "", fitness.OK, "48.0 KiB"},
		{"bus", "", fitness.OK, ""},
		{"gpu", "", fitness.OK, "8 x "},
		{"processes", "", fitness.OK, ""},
		{"state", "", fitness.OK, "can be written"},
		{"history", "", fitness.OK, ""},
		{"web_config", "", fitness.OK, ""},
		{"listen", "", fitness.OK, "is the running daemon's"},
		{"boot", "", fitness.OK, "as in the journal"},
		{"descriptors", "", fitness.OK, "16384 allowed (startupd.service's)"},
		{"unit", "none.service", fitness.Fail, "no such unit"},
		{"unit", "good.service", fitness.OK, "loaded, active"},
		{"unit_output", "good.service", fitness.OK, ""},
		{"unit_entries", "good.service", fitness.OK, "from "},
		{"unit_rate_limit", "good.service", fitness.OK, "10000 lines in 30s, journald's"},
		{"unit_timeout", "good.service", fitness.OK, "does not wait"},
		{"unit_output", "file.service", fitness.Fail, "never reaches the journal"},
		{"unit_output", "spaced.service", fitness.Fail, "LogNamespace=apart"},
		{"unit_output", "quiet.service", fitness.Fail, "LogLevelMax="},
		{"unit_rate_limit", "flooded.service", fitness.Warning, "500 lines in 2s, its own"},
		{"unit_timeout", "hasty.service", fitness.OK, "no good start is on record"},
	} {
		r.want(t, tt.check, tt.unit, tt.status, tt.text)
	}
	for _, res := range r.Checks {
		if res.Check == "unit_rate_limit" && res.Unit == "flooded.service" && (len(res.Write) != 1 || !strings.Contains(res.Write[0].Text, "LogRateLimitBurst=")) {
			t.Errorf("the drop-in is %v", res.Write)
		}
	}
}

// simpleUnit is the file of a service.
func simpleUnit(command string, lines ...string) string {
	return "[Service]\nExecStart=" + command + "\n" + strings.Join(lines, "\n") + "\n"
}

type report struct{ fitness.Report }

// runCheck runs a check inside and reads what it prints as JSON.
func runCheck(t *testing.T, c *nspawn.Container, exit int, args ...string) *report {
	t.Helper()
	began := time.Now()
	out, err := c.Command(t.Context(), append(args, "--format=json")...).Output()
	code := 0
	if ee := (*exec.ExitError)(nil); errors.As(err, &ee) {
		code = ee.ExitCode()
		t.Logf("it says %s", ee.Stderr)
	} else if err != nil {
		t.Fatal(err)
	}
	if code != exit {
		t.Errorf("%v: exit code %d, want %d", args, code, exit)
	}
	if took := time.Since(began); took > 30*time.Second {
		t.Errorf("%v took %s", args, took)
	}
	r := &report{}
	if err := json.Unmarshal(out, &r.Report); err != nil {
		t.Fatalf("%v: %v: %s", args, err, out)
	}
	return r
}

// want looks for a check's status and a part of what it says.
func (r *report) want(t *testing.T, name, unit string, status fitness.Status, text string) {
	t.Helper()
	for _, res := range r.Checks {
		if res.Check != name || res.Unit != unit {
			continue
		}
		if res.Status != status || !strings.Contains(res.Detail+" "+res.Do, text) {
			t.Errorf("%s %s: %s: %s; do: %s; want %s with %q", name, unit, res.Status, res.Detail, res.Do, status, text)
		}
		return
	}
	t.Errorf("%s %s: there is no such check", name, unit)
}

// loopUnit fails again and again, each time of the same cause.
const loopUnit = `[Unit]
StartLimitIntervalSec=0

[Service]
ExecStart=sh -c 'echo "Traceback (most recent call last):"; echo "RuntimeError: flashinfer-cubin version (0.6.3) does not match flashinfer version (0.6.4)"; exit 1'
Restart=always
RestartSec=100ms
`

// checkLog looks at what the daemon writes of a restart loop: each line once, with
// journald's own level and time, and all starts told or counted.
func checkLog(t *testing.T, c *nspawn.Container, d *daemon) {
	c.Write(t, "/run/systemd/system/loop.service", loopUnit)
	c.Run(t, "sed", "-i", `s/^ARGS="/ARGS="--unit=loop.service /`, "/etc/default/startupd")
	c.Run(t, "systemctl", "daemon-reload")
	c.Run(t, "systemctl", "restart", service)
	d.until(t, 20*time.Second, sources)
	c.Run(t, "systemctl", "start", "--no-block", "loop.service")
	d.until(t, time.Minute, func(m metrics) error {
		if n, _ := m.get("startupd_startups_total", "unit", "loop.service", "outcome", "failed"); n < 40 {
			return fmt.Errorf("%v starts have failed", n)
		}
		return nil
	})
	c.Run(t, "systemctl", "stop", "loop.service")
	c.Run(t, "systemctl", "stop", service)
	text := c.Run(t, "journalctl", "--unit="+service, "--output=cat", "--no-pager", "--lines=all", "--grep=loop.service", "--identifier=startupd")
	lines := strings.Split(text, "\n")
	if len(lines) > 40 {
		t.Errorf("%d lines of a loop that took seconds", len(lines))
	}
	// A start that is over before anybody looked has no line for its beginning, and
	// one that the next has replaced at once shares that of the root cause.
	for _, want := range []string{"Watching", "The start has failed", "package_mismatch", "The unit restarts in a loop", "More starts have failed"} {
		if !strings.Contains(text, want) {
			t.Errorf("no %q in its log:\n%s", want, text)
		}
	}
	if strings.Contains(text, "<6>") || strings.HasPrefix(lines[0], "2") {
		t.Errorf("level or time is in the text:\n%s", text)
	}
	if out, err := c.Try("journalctl", "--unit="+service, "--priority=warning", "--output=cat", "--no-pager", "--quiet", "--grep=loop.service"); err == nil {
		t.Errorf("what a unit does is no warning:\n%s", out)
	}
	c.Run(t, "systemctl", "start", service)
	t.Logf("its log:\n%s", text)
}
