//go:build e2e

package e2e

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/startupd/startupd/test/nspawn"
)

const (
	checked     = "vllm-checked.service"
	checkedPort = "8400"
	// checkedCommand asks for nine tenths of all eight GPUs.
	checkedCommand = "/opt/vllm/bin/vllm serve /models/checked --tensor-parallel-size 8 --gpu-memory-utilization 0.9 --port " + checkedPort
)

// checkedDropIn is deploy/systemd/preflight.conf as delivered, but with a shorter
// wait and the fake NVML.
func checkedDropIn(t *testing.T) string {
	t.Helper()
	b, err := os.ReadFile("../../deploy/systemd/preflight.conf")
	if err != nil {
		t.Fatal(err)
	}
	text := strings.Replace(string(b), " --wait 60s ", " --wait 2s --gpu.nvml-library=/e2e/libnvidia-ml.so.1 ", 1)
	if text == string(b) {
		t.Fatalf("the drop-in does not wait 60 s:\n%s", text)
	}
	return text + "ExecStart=\nExecStart=" + checkedCommand + "\nEnvironment=FAKE_NVML_STATE=/e2e/nvml\nRestart=no\n"
}

// preflightRun is the check as a person runs it.
func preflightRun(c *nspawn.Container, args ...string) (string, int, error) {
	args = append([]string{"env", "FAKE_NVML_STATE=/e2e/nvml", "startupd", "preflight", "--gpu.nvml-library=/e2e/libnvidia-ml.so.1", "--state.dir="}, args...)
	out, err := c.Try(args...)
	var exit *exec.ExitError
	switch {
	case err == nil:
		return out, 0, nil
	case errors.As(err, &exit):
		return out, exit.ExitCode(), nil
	}
	return out, 0, err
}

// wantPreflight runs the check and wants an exit code and texts.
func wantPreflight(t *testing.T, c *nspawn.Container, code int, args []string, texts ...string) {
	t.Helper()
	out, got, err := preflightRun(c, args...)
	if err != nil || got != code {
		t.Fatalf("it ended with %d, %v, want %d:\n%s", got, err, code, out)
	}
	for _, text := range texts {
		if !strings.Contains(out, text) {
			t.Errorf("no %q in:\n%s", text, out)
		}
	}
}

// testPreflight checks a host before a start: by hand, waiting, and as
// ExecStartPre=, whose failure is the start's.
func testPreflight(t *testing.T, c *nspawn.Container) {
	unit := engineUnit{name: checked, scenario: "eager", speed: 5, port: 8400, restartSec: "1", dropIn: checkedDropIn(t)}
	unit.add(t, c)
	c.Write(t, "/models/checked/model-1.safetensors", "weights")
	d := install(t, c, "--unit="+checked)

	t.Run("fit", func(t *testing.T) {
		wantPreflight(t, c, 0, []string{checked}, "GPUs 0-7: the tightest needs 0.90 x 95.6 GiB = 86.0 GiB", "0.0.0.0:8400 is free", "preflight of "+checked+": fit")
	})
	t.Run("port", func(t *testing.T) {
		c.Run(t, "systemd-run", "--unit=port-thief.service", "python3", "-m", "http.server", checkedPort)
		t.Cleanup(func() { _, _ = c.Try("systemctl", "stop", "port-thief.service") })
		nspawn.Eventually(t, 10*time.Second, func() error {
			_, err := c.Try("curl", "--silent", "http://127.0.0.1:"+checkedPort+"/")
			return err
		})
		pid := d.Property(t, "port-thief.service", "MainPID")
		wantPreflight(t, c, 1, []string{checked}, "0.0.0.0:8400 is taken", "PID "+pid+", port-thief.service, user root", "not fit [port_in_use]")
		// Another user sees that it is taken, and says that it can't see by whom.
		out, err := c.Try("setpriv", "--reuid=nobody", "--regid=nogroup", "--clear-groups", "startupd", "preflight", "--no-gpu", "--state.dir=", checked)
		if err == nil || !strings.Contains(out, "can't be seen from here") {
			t.Errorf("as nobody: %v\n%s", err, out)
		}
	})
	t.Run("packages", func(t *testing.T) {
		const site = "/opt/checked/lib/python3.12/site-packages/"
		c.Write(t, "/opt/checked/pyvenv.cfg", "home = /usr/bin\nversion = 3.12.3\n")
		c.Write(t, "/opt/checked/bin/vllm", "#!/opt/checked/bin/python3\n")
		c.Write(t, site+"flashinfer_python-0.6.4.dist-info/METADATA", "Name: flashinfer-python\nVersion: 0.6.4\n")
		c.Write(t, site+"flashinfer_cubin-0.6.3.dist-info/METADATA", "Name: flashinfer-cubin\nVersion: 0.6.3\n")
		wantPreflight(t, c, 1, []string{"--", "/opt/checked/bin/vllm", "serve", "/models/checked", "--port", "8402"},
			"flashinfer-cubin 0.6.3 does not match flashinfer-python 0.6.4", "not fit [package_mismatch]")
	})
	holder(t, c, "vllm-foreign.service", "3=60GiB", false)
	pid := d.Property(t, "vllm-foreign.service", "MainPID")
	t.Run("held", func(t *testing.T) {
		nspawn.Eventually(t, 10*time.Second, func() error {
			if out, code, err := preflightRun(c, checked); code != 1 || !strings.Contains(out, "60.0 GiB, PID "+pid+", vllm-foreign.service") {
				return fmt.Errorf("%d, %v:\n%s", code, err, out)
			}
			return nil
		})
		wantPreflight(t, c, 3, []string{checked, "--wait=1s"}, "GPU 3 needs 0.90 x 95.6 GiB = 86.0 GiB", "not fit [gpu_memory_occupied] after waiting")
	})
	t.Run("ExecStartPre", func(t *testing.T) { stopsTheStart(t, d, pid) })
	t.Run("drains", func(t *testing.T) { drains(t, c) })
	t.Run("starts", func(t *testing.T) {
		c.Run(t, "systemctl", "start", "--no-block", checked)
		d.reaches(t, 20*time.Second, checked, "serving")
		wantPreflight(t, c, 0, []string{checked}, "what it holds counts as free", "is the running unit's own")
	})
}

// stopsTheStart wants a start that its check stops to say why, everywhere.
func stopsTheStart(t *testing.T, d *daemon, pid string) {
	if out, err := d.Try("systemctl", "start", checked); err == nil {
		t.Fatalf("it starts:\n%s", out)
	}
	status, _ := d.Try("systemctl", "status", "--no-pager", "--full", checked)
	for _, text := range []string{"startupd: preflight of " + checked + ": not fit [gpu_memory_occupied]", "held by PID " + pid + " of vllm-foreign.service"} {
		if !strings.Contains(status, text) {
			t.Errorf("no %q in systemctl status:\n%s", text, status)
		}
	}
	d.reaches(t, 10*time.Second, checked, "failed")
	d.until(t, 20*time.Second, func(m metrics) error {
		return check(m, metrics{
			key("startupd_root_cause_info", "unit", checked, "class", "gpu_memory_occupied", "exception", "", "process", "ExecStartPre"): 1,
			key("startupd_startups_total", "unit", checked, "outcome", "failed"):                                                         1,
		})
	})
	out, err := d.Try("startupd", "explain", "--unit="+checked, "--state.dir=")
	if err == nil || !strings.Contains(out, "gpu_memory_occupied") || !strings.Contains(out, "the check before the start failed") {
		t.Errorf("explain: %v\n%s", err, out)
	}
}

// drains waits for memory that its holder gives back.
func drains(t *testing.T, c *nspawn.Container) {
	var out nspawn.Output
	cmd := c.Command(t.Context(), "env", "FAKE_NVML_STATE=/e2e/nvml", "startupd", "preflight", "--gpu.nvml-library=/e2e/libnvidia-ml.so.1", "--state.dir=",
		"--wait=30s", "--poll=500ms", checked)
	cmd.Stdout, cmd.Stderr = &out, &out
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait() }()
	nspawn.Eventually(t, 10*time.Second, func() error {
		if !strings.Contains(out.String(), "waiting: GPU 3") {
			return fmt.Errorf("it does not wait:\n%s", out.String())
		}
		return nil
	})
	c.Run(t, "systemctl", "stop", "vllm-foreign.service")
	select {
	case err := <-ended:
		if err != nil || !strings.Contains(out.String(), ": fit") {
			t.Errorf("%v\n%s", err, out.String())
		}
	case <-time.After(10 * time.Second):
		t.Errorf("it goes on waiting:\n%s", out.String())
	}
}
