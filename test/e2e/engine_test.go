//go:build e2e

package e2e

import (
	"bytes"
	"fmt"
	"path/filepath"
	"testing"
	"time"

	"github.com/startupd/startupd/test/engine/scenario"
	"github.com/startupd/startupd/test/nspawn"
)

// engineUnit is a unit that runs the simulated engine.
type engineUnit struct {
	name, scenario string
	speed          float64
	port           int
	// restartSec is how long a failure lasts.
	restartSec string
	// dropIn is more of the unit's file; "" is nothing more.
	dropIn string
}

const engineText = `[Unit]
Description=LLM server (%[1]s)

[Service]
ExecStart=%[2]s
Environment=SIMENGINE_SCENARIO=/e2e/%[3]s.yaml SIMENGINE_SPEED=%[4]g SIMENGINE_STATE=/run/sim-%[1]s
Environment=SIMENGINE_NVML=/e2e/nvml SIMENGINE_LISTEN=127.0.0.1:%[5]d
Restart=on-failure
RestartSec=%[6]s
`

// add writes the unit's file and returns its scenario.
func (u engineUnit) add(t *testing.T, c *nspawn.Container) *scenario.File {
	t.Helper()
	f, err := scenario.Load(filepath.Join("../engine/scenarios", u.scenario+".yaml"))
	if err != nil {
		t.Fatal(err)
	}
	c.Run(t, "rm", "-rf", "/run/sim-"+u.name)
	c.Run(t, "mkdir", "/run/sim-"+u.name)
	c.Write(t, "/etc/systemd/system/"+u.name, fmt.Sprintf(engineText, u.name, f.Command, u.scenario, u.speed, u.port, u.restartSec))
	c.Run(t, "rm", "-rf", "/etc/systemd/system/"+u.name+".d")
	if u.dropIn != "" {
		c.Write(t, "/etc/systemd/system/"+u.name+".d/e2e.conf", u.dropIn)
	}
	c.Run(t, "systemctl", "daemon-reload")
	t.Cleanup(func() { _, _ = c.Try("systemctl", "stop", u.name) })
	return f
}

// lines counts what start i of a scenario prints, as the journal does: one
// entry a line.
func lines(t *testing.T, f *scenario.File, i int) int {
	t.Helper()
	p, err := f.Plan(i)
	if err != nil {
		t.Fatal(err)
	}
	n := 0
	for _, a := range p.Actors {
		for _, w := range a.Writes {
			n += bytes.Count(p.Bytes(w, scenario.Writer{}, time.Time{}), []byte("\n"))
		}
	}
	return n
}

// holder is a service, or a scope, whose process holds GPU memory.
func holder(t *testing.T, c *nspawn.Container, unit, memory string, scope bool) {
	t.Helper()
	exec := "/opt/vllm/bin/vllm"
	name := unit
	if scope {
		// As dockerd does: the process is in a scope, not in the unit of whoever
		// asked for it.
		name = "client-" + unit[:12] + ".service"
		exec = "/usr/bin/systemd-run --scope --quiet --unit=" + unit + " /opt/vllm/bin/vllm"
	}
	c.Write(t, "/run/systemd/system/"+name, fmt.Sprintf(
		"[Service]\nExecStart=%s\nEnvironment=SIMENGINE_SCENARIO=/e2e/reference.yaml SIMENGINE_NVML=/e2e/nvml SIMENGINE_HOLD=%s\n", exec, memory))
	c.Run(t, "systemctl", "daemon-reload")
	c.Run(t, "systemctl", "start", name)
	t.Cleanup(func() { _, _ = c.Try("systemctl", "stop", unit, name) })
}
