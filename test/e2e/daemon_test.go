//go:build e2e

package e2e

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/startupd/startupd/test/nspawn"
)

const (
	service = "startupd.service"
	address = "127.0.0.1:10944"
)

// daemon is the startupd service in a container.
type daemon struct {
	*nspawn.Container
}

// dropIn lets the daemon find the fake NVML. Everything else is as delivered.
const dropIn = `[Service]
Environment=FAKE_NVML_STATE=/e2e/nvml
`

// install starts startupd anew, without state of an earlier one.
func install(t *testing.T, c *nspawn.Container, args ...string) *daemon {
	t.Helper()
	d := &daemon{c}
	c.Run(t, "systemctl", "stop", service)
	c.Run(t, "rm", "-rf", "/var/lib/startupd")
	c.Write(t, "/etc/systemd/system/startupd.service.d/e2e.conf", dropIn)
	args = append(args, "--gpu.nvml-library=/e2e/libnvidia-ml.so.1", "--web.listen-address="+address, "--web.enable-lifecycle")
	c.Write(t, "/etc/default/startupd", "ARGS=\""+strings.Join(args, " ")+"\"\n")
	c.Run(t, "systemctl", "daemon-reload")
	c.Run(t, "systemctl", "reset-failed")
	if out, err := c.Try("systemctl", "start", service); err != nil {
		t.Fatalf("%v\n%s\n%s", err, out, d.log(t))
	}
	t.Cleanup(func() {
		if t.Failed() {
			m, _, err := d.scrape()
			t.Logf("startupd's log:\n%s\nits metrics that are not 0 (%v):\n%s", d.log(t), err, m.dump("startupd_"))
		}
		_, _ = c.Try("systemctl", "stop", service)
	})
	return d
}

// log is the end of what the service has written.
func (d *daemon) log(t *testing.T) string {
	t.Helper()
	out, _ := d.Try("journalctl", "--unit="+service, "_SYSTEMD_INVOCATION_ID="+d.Property(t, service, "InvocationID"),
		"--lines=60", "--no-pager", "--output=cat")
	return out
}

// scrape reads /metrics as Prometheus would.
func (d *daemon) scrape() (metrics, string, error) {
	text, err := d.Try("curl", "--silent", "--show-error", "--fail", "--max-time", "5", "http://"+address+"/metrics")
	if err != nil {
		return nil, text, fmt.Errorf("%w: %s", err, text)
	}
	m, err := parse(text)
	return m, text, err
}

// metrics is a scrape that must work.
func (d *daemon) metrics(t *testing.T) metrics {
	t.Helper()
	m, _, err := d.scrape()
	if err != nil {
		t.Fatal(err)
	}
	return m
}

// until scrapes until check is content.
func (d *daemon) until(t *testing.T, within time.Duration, check func(metrics) error) {
	t.Helper()
	nspawn.Eventually(t, within, func() error {
		m, _, err := d.scrape()
		if err != nil {
			return err
		}
		return check(m)
	})
}

// reaches waits until a unit is in a state.
func (d *daemon) reaches(t *testing.T, within time.Duration, unit, want string) {
	t.Helper()
	d.until(t, within, func(m metrics) error {
		got, err := m.state(unit)
		if err == nil && got != want {
			err = fmt.Errorf("%s is in %s, not in %s", unit, got, want)
		}
		return err
	})
}

// halfway waits until a unit has loaded a share of its weights.
func (d *daemon) halfway(t *testing.T, unit string, share float64) {
	t.Helper()
	d.until(t, 30*time.Second, func(m metrics) error {
		if v, ok := m.get("startupd_progress_ratio", "unit", unit, "phase", "load"); !ok || v < share {
			state, err := m.state(unit)
			return fmt.Errorf("%s is in %s (%v), progress %v, known %v", unit, state, err, v, ok)
		}
		return nil
	})
}

// pid is the service's main process, inside.
func (d *daemon) pid(t *testing.T) string {
	t.Helper()
	return d.Property(t, service, "MainPID")
}

// child finds a process of the service by a word of its command line.
func (d *daemon) child(t *testing.T, word string) string {
	t.Helper()
	for line := range strings.Lines(d.Run(t, "ps", "-o", "pid=,args=", "--ppid", d.pid(t))) {
		if strings.Contains(line, word) {
			return strings.Fields(line)[0]
		}
	}
	t.Fatalf("startupd has no child %q", word)
	return ""
}

// check returns an error that lists the series which differ from what is
// wanted.
func check(m metrics, want metrics) error {
	var diffs []string
	for k, v := range want {
		if got, ok := m[k]; !ok || got != v {
			diffs = append(diffs, fmt.Sprintf("%s is %v (there: %v), want %v", k, got, ok, v))
		}
	}
	if diffs == nil {
		return nil
	}
	return fmt.Errorf("%s", strings.Join(diffs, "\n"))
}
