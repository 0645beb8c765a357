//go:build e2e

package e2e

import (
	"fmt"
	"testing"
	"time"

	"github.com/startupd/startupd/test/nspawn"
)

// testOutcomes plays starts that end in other ways: without graphs, stopped
// half-way, killed by a signal.
func testOutcomes(t *testing.T, c *nspawn.Container) {
	eager := engineUnit{name: "vllm-eager.service", scenario: "eager", speed: 1, port: 8300, restartSec: "1"}
	broken := engineUnit{name: "vllm-interrupted.service", scenario: "interrupted", speed: 1, port: 8301, restartSec: "infinity"}
	eager.add(t, c)
	broken.add(t, c)
	d := install(t, c, "--unit="+eager.name, "--unit="+broken.name)
	outcome := func(unit string, failed, serving, stopped float64) {
		t.Helper()
		d.until(t, 20*time.Second, func(m metrics) error {
			return check(m, metrics{
				key("startupd_startups_total", "unit", unit, "outcome", "failed"):  failed,
				key("startupd_startups_total", "unit", unit, "outcome", "serving"): serving,
				key("startupd_startups_total", "unit", unit, "outcome", "stopped"): stopped,
			})
		})
	}
	c.Run(t, "systemctl", "start", "--no-block", eager.name, broken.name)

	d.reaches(t, 20*time.Second, broken.name, "load")
	c.Run(t, "systemctl", "stop", broken.name)
	outcome(broken.name, 0, 0, 1)
	d.reaches(t, 5*time.Second, broken.name, "stopped")
	c.Run(t, "systemctl", "start", broken.name)
	outcome(broken.name, 1, 0, 1)

	d.reaches(t, 20*time.Second, eager.name, "serving")
	outcome(eager.name, 0, 1, 0)
	m := d.metrics(t)
	if _, ok := m.get("startupd_phase_entered_timestamp_seconds", "unit", eager.name, "phase", "cudagraph"); ok {
		t.Error("a start without graphs has entered cudagraph")
	}
	if v, ok := m.get("startupd_phase_duration_seconds", "unit", eager.name, "phase", "cudagraph"); !ok || v != 0 {
		t.Errorf("a start without graphs spent %v (known: %v) in cudagraph", v, ok)
	}
	// The engine's death without a word.
	c.Run(t, "systemctl", "kill", "--kill-whom=main", "--signal=KILL", eager.name)
	d.until(t, 20*time.Second, func(m metrics) error {
		if v, _ := m.get("startupd_serving_ended_total", "unit", eager.name, "reason", "killed"); v != 1 {
			return fmt.Errorf("the kill is not counted:\n%s", m.dump("serving_ended", eager.name))
		}
		return nil
	})
	outcome(eager.name, 0, 2, 0)
}
