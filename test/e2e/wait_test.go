//go:build e2e

package e2e

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/startupd/startupd/test/nspawn"
)

// waitConf is the drop-in as it is delivered.
const waitConf = "../../deploy/systemd/wait.conf"

// impatientWait is another one, for units of other profiles and limits.
const impatientWait = "[Service]\nExecStartPost=+/usr/bin/startupd wait %%n --timeout %s --profile.dir=" + profileDir + " --api.socket=%s\nTimeoutStartSec=60\n"

const apiSocket = "/run/startupd/api.sock"

// hasty lets a hang be told within seconds, whichever of its processes has the
// last word.
const hasty = `schema: startupd-profile/v1
extends: vllm
steps:
  spawn/engine_core: {quiet: 4s, no_stretch: true}
  spawn/workers: {quiet: 4s, no_stretch: true}
  spawn/distributed_init: {quiet: 4s, no_stretch: true}
`

// TestWait shows what `startupd wait` does in the unit itself, beside it, with a
// daemon and without.
func TestWait(t *testing.T) {
	if os.Getuid() != 0 {
		t.Fatal("these tests boot a container: run them as root")
	}
	root, share := stage(t)
	w := &waiting{Container: nspawn.Boot(t, root, share)}
	w.Run(t, "systemd-sysusers", "/usr/lib/sysusers.d/startupd.conf")
	w.Write(t, profileDir+"/impatient.yaml", hasty)
	w.addUnits(t)
	w.daemon = install(t, w.Container, append([]string{"--profile.dir=" + profileDir}, w.watched...)...)
	w.daemon.until(t, 20*time.Second, sources)

	t.Run("inside", w.testInside)
	t.Run("restart", w.testRestart)
	t.Run("latency", w.testLatency)
	t.Run("daemon killed", func(t *testing.T) { w.testDaemonLost(t, "KILL") })
	t.Run("daemon hangs", func(t *testing.T) { w.testDaemonLost(t, "STOP") })
	t.Run("no daemon", w.testNoDaemon)
}

type waiting struct {
	*nspawn.Container
	daemon *daemon
	// watched are the daemon's arguments.
	watched []string
}

// addUnits writes the units: one name for each scenario, as the drop-in is a
// unit's.
func (w *waiting) addUnits(t *testing.T) {
	conf, err := os.ReadFile(waitConf)
	if err != nil {
		t.Fatal(err)
	}
	noRestart := "\n[Service]\nRestart=no\n"
	for i, u := range []engineUnit{
		{name: "good.service", scenario: "eager", dropIn: string(conf)},
		{name: "failing.service", scenario: "gpu-oom", dropIn: string(conf) + noRestart},
		{name: "failing-alone.service", scenario: "gpu-oom", dropIn: once},
		{name: "stalled.service", scenario: "nccl-hang", dropIn: fmt.Sprintf(impatientWait, "1m", apiSocket) + noRestart},
		{name: "late.service", scenario: "interrupted", dropIn: fmt.Sprintf(impatientWait, "3s", apiSocket) + noRestart},
		{name: "stopped.service", scenario: "interrupted", dropIn: string(conf) + noRestart},
		{name: "loop.service", scenario: "gpu-oom", dropIn: string(conf), restartSec: "100ms"},
		{name: "outside.service", scenario: "eager", dropIn: once},
		{name: "outside-2.service", scenario: "eager", dropIn: once},
		{name: "failing-alone-2.service", scenario: "gpu-oom", dropIn: once},
		{name: "unwatched.service", scenario: "gpu-oom", dropIn: string(conf) + noRestart},
		{name: "unwatched-stalled.service", scenario: "nccl-hang", dropIn: fmt.Sprintf(impatientWait, "1m", "''") + noRestart},
	} {
		u.speed, u.port = 1, 8500+i
		if u.restartSec == "" {
			u.restartSec = "1"
		}
		u.add(t, w.Container)
		if !strings.HasPrefix(u.name, "unwatched") {
			w.watched = append(w.watched, "--unit="+u.name)
		}
	}
}

// run runs a command inside and returns what it prints, its exit status and when
// it returned.
func (w *waiting) run(t *testing.T, args ...string) (out string, code int, at time.Time) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	b, err := w.Command(ctx, args...).CombinedOutput()
	at = time.Now()
	var exit *exec.ExitError
	switch {
	case errors.As(err, &exit):
		code = exit.ExitCode()
	case err != nil:
		t.Errorf("%v: %v", args, err)
	}
	return string(b), code, at
}

// inside is a start with the drop-in.
type inside struct {
	unit, outcome, class string
	// status are texts that `systemctl status` shows.
	status []string
}

func (w *waiting) testInside(t *testing.T) {
	for _, c := range []inside{
		{"good.service", "serving", "", []string{"Status: \"good.service SERVING after "}},
		{"failing.service", "failed", "gpu_oom_weights", []string{"startupd: failing.service FAILED in load", "gpu_oom_weights", "Worker_TP5: torch.OutOfMemoryError: CUDA out of memory", "do: ", "Status: \"failing.service FAILED"}},
		{"stalled.service", "failed", "nccl_hang", []string{"stalled.service STALLED in spawn", "nccl_hang", "nccl==2.27.5"}},
		{"late.service", "failed", "startup_timeout", []string{"late.service NOT READY in load", "the 3 s to wait are over"}},
		{"unwatched.service", "", "", []string{"unwatched.service FAILED in load", "gpu_oom_weights"}},
		{"unwatched-stalled.service", "", "", []string{"unwatched-stalled.service STALLED in spawn", "nccl_hang"}},
	} {
		t.Run(strings.TrimSuffix(c.unit, ".service"), func(t *testing.T) {
			t.Parallel()
			w.start(t, c)
		})
	}
	t.Run("failing-alone", func(t *testing.T) {
		t.Parallel()
		w.run(t, "systemctl", "start", "failing-alone.service")
	})
}

func (w *waiting) start(t *testing.T, c inside) {
	began := time.Now()
	_, code, _ := w.run(t, "systemctl", "start", c.unit)
	t.Logf("systemctl start returned %d after %s", code, time.Since(began).Round(10*time.Millisecond))
	if ok := c.outcome == "serving"; ok != (code == 0) {
		t.Errorf("systemctl start returned %d", code)
	}
	status, _, _ := w.run(t, "systemctl", "status", "--no-pager", "--full", c.unit)
	for _, want := range c.status {
		if !strings.Contains(status, want) {
			t.Errorf("systemctl status does not show %q:\n%s", want, status)
		}
	}
	t.Logf("systemctl status:\n%s", status)
	if c.outcome == "" {
		return
	}
	w.daemon.until(t, 5*time.Second, func(m metrics) error {
		want := metrics{
			key("startupd_startups_total", "unit", c.unit, "outcome", "serving"): 0,
			key("startupd_startups_total", "unit", c.unit, "outcome", "failed"):  0,
			key("startupd_startups_total", "unit", c.unit, "outcome", "stopped"): 0,
		}
		want[key("startupd_startups_total", "unit", c.unit, "outcome", c.outcome)] = 1
		return check(m, want)
	})
	if c.class != "" {
		w.daemon.until(t, 5*time.Second, func(m metrics) error {
			if n, _ := m.sum("startupd_root_cause_info", "unit", c.unit, "class", c.class); n != 1 {
				return fmt.Errorf("no root cause %s:\n%s", c.class, m.dump("root_cause", c.unit))
			}
			return nil
		})
	}
}

// testRestart wants the new start waited for, and no error of what wait printed.
func (w *waiting) testRestart(t *testing.T) {
	m := w.daemon.metrics(t)
	// How many symptoms the engine's processes print as they are stopped is chance.
	for _, verdict := range []string{"cause", "suspect", "benign"} {
		own, _ := m.sum("startupd_startup_errors", "unit", "failing.service", "verdict", verdict)
		alone, _ := m.sum("startupd_startup_errors", "unit", "failing-alone.service", "verdict", verdict)
		if own != alone {
			t.Errorf("%v errors are %s with wait in the unit, and %v without", own, verdict, alone)
		}
	}
	// Its exit status is the start's.
	if out, _ := w.Try("startupd", "explain", "--unit", "failing.service", "--format", "json"); !strings.Contains(out, `"findings"`) || strings.Contains(out, "startupd: ") {
		t.Errorf("what wait printed is taken for the engine's:\n%s", out)
	}
	if n, _ := m.sum("startupd_startup_errors", "unit", "good.service"); n != 0 {
		t.Errorf("%v errors of a good start", n)
	}
	// The journal alone tells the same of a start that was given up.
	ex := w.daemon.explain(t, "stalled.service")
	if s := &ex.Startups[len(ex.Startups)-1]; s.Outcome != "failed" || s.RootCause == nil || s.RootCause.Class != "nccl_hang" {
		t.Errorf("explain says %v", s)
	}
	// A stop that was asked for ends a wait inside, and is no failure.
	w.Run(t, "systemctl", "start", "--no-block", "stopped.service")
	w.daemon.reaches(t, 10*time.Second, "stopped.service", "load")
	w.Run(t, "systemctl", "stop", "stopped.service")
	w.daemon.until(t, 5*time.Second, func(m metrics) error {
		return check(m, metrics{
			key("startupd_startups_total", "unit", "stopped.service", "outcome", "stopped"): 1,
			key("startupd_startups_total", "unit", "stopped.service", "outcome", "failed"):  0,
		})
	})
	old := w.Property(t, "good.service", "InvocationID")
	w.Run(t, "systemctl", "restart", "--no-block", "good.service")
	r, code, _ := w.wait(t, "good.service")
	if now := w.Property(t, "good.service", "InvocationID"); code != 0 || r.Invocation != now || now == old || r.Through != "daemon" {
		t.Errorf("exit %d, verdict %q of %s through %s; the new one is %s, the old one %s", code, r.Verdict, r.Invocation, r.Through, now, old)
	}
	// The journal and the daemon know a unit by its own name alone.
	w.Run(t, "ln", "-s", "good.service", "/etc/systemd/system/nickname.service")
	w.Run(t, "systemctl", "daemon-reload")
	if r, code, _ := w.wait(t, "nickname", "--timeout=5s"); code != 0 || r.Verdict != "reached" || r.Through != "daemon" {
		t.Errorf("by an alias: exit %d: %+v", code, r)
	}
	// Each start of a loop that fails is judged by its own wait.
	w.run(t, "systemctl", "start", "loop.service")
	nspawn.Eventually(t, 30*time.Second, func() error {
		log, _, _ := w.run(t, "journalctl", "--unit=loop.service", "--no-pager", "--output=cat", "--grep=loop.service FAILED in load")
		if n := strings.Count(log, "gpu_oom_weights"); n < 2 {
			return fmt.Errorf("%d verdicts in the journal:\n%s", n, log)
		}
		return nil
	})
	w.Run(t, "systemctl", "stop", "loop.service")
}

// waited is the part of a result that is looked at.
type waited struct {
	Verdict, Invocation, Through, Reason string
}

func (w *waiting) wait(t *testing.T, unit string, args ...string) (waited, int, time.Time) {
	t.Helper()
	out, code, at := w.run(t, append([]string{"startupd", "wait", unit, "--format=json"}, args...)...)
	var r waited
	if err := json.Unmarshal([]byte(out), &r); err != nil {
		t.Errorf("%v:\n%s", err, out)
	}
	return r, code, at
}

// testLatency logs how long after the ready line, and after a fatal exit, wait
// returns. The bounds are generous: other tests share the machine.
func (w *waiting) testLatency(t *testing.T) {
	for _, c := range []struct {
		name, unit, grep string
		code             int
		bound            time.Duration
		args             []string
	}{
		{"ready line, daemon", "outside.service", "Application startup complete", 0, 400 * time.Millisecond, nil},
		{"fatal exit, daemon", "failing-alone.service", "Main process exited", 1, 2 * time.Second, nil},
		{"ready line, journal", "outside-2.service", "Application startup complete", 0, time.Second, []string{"--api.socket="}},
		{"fatal exit, journal", "failing-alone-2.service", "Main process exited", 1, 2 * time.Second, []string{"--api.socket="}},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			w.Run(t, "systemctl", "stop", c.unit)
			w.Run(t, "systemctl", "start", "--no-block", c.unit)
			_, code, at := w.wait(t, c.unit, c.args...)
			if code != c.code {
				t.Errorf("exit %d", code)
			}
			took := at.Sub(w.told(t, c.unit, c.grep))
			t.Logf("wait returned %s after it", took.Round(time.Millisecond))
			if took > c.bound {
				t.Errorf("%s is longer than %s", took, c.bound)
			}
		})
	}
}

// told is when a unit's newest entry of that text was written.
func (w *waiting) told(t *testing.T, unit, grep string) time.Time {
	t.Helper()
	out := w.Run(t, "journalctl", "--unit="+unit, "--no-pager", "--output=export", "--reverse", "--lines=1", "--grep="+grep)
	for line := range strings.Lines(out) {
		if us, ok := strings.CutPrefix(strings.TrimSpace(line), "__REALTIME_TIMESTAMP="); ok {
			n, err := strconv.ParseInt(us, 10, 64)
			if err != nil {
				t.Fatal(err)
			}
			return time.UnixMicro(n)
		}
	}
	t.Fatalf("no entry of %s has %q:\n%s", unit, grep, out)
	return time.Time{}
}

// testDaemonLost takes the daemon away in the middle of a start.
func (w *waiting) testDaemonLost(t *testing.T, signal string) {
	w.daemon.until(t, 10*time.Second, sources)
	w.Run(t, "systemctl", "stop", "outside.service")
	w.Run(t, "systemctl", "start", "--no-block", "outside.service")
	done := make(chan struct{})
	go func() {
		defer close(done)
		r, code, at := w.wait(t, "outside.service")
		t.Logf("exit %d: %+v, %s after the ready line", code, r, at.Sub(w.told(t, "outside.service", "Application startup complete")).Round(time.Millisecond))
		if code != 0 || r.Verdict != "reached" {
			t.Errorf("exit %d: %+v", code, r)
		}
	}()
	w.daemon.reaches(t, 10*time.Second, "outside.service", "load")
	pid := w.daemon.pid(t)
	w.Run(t, "kill", "-"+signal, pid)
	<-done
	if signal == "STOP" {
		w.Run(t, "kill", "-CONT", pid)
	}
}

func (w *waiting) testNoDaemon(t *testing.T) {
	w.Run(t, "systemctl", "stop", service)
	t.Cleanup(func() { _, _ = w.Try("systemctl", "start", service) })
	for _, c := range []struct {
		unit, verdict string
		code          int
	}{{"outside.service", "reached", 0}, {"failing-alone.service", "failed", 1}} {
		w.Run(t, "systemctl", "stop", c.unit)
		w.Run(t, "systemctl", "start", "--no-block", c.unit)
		r, code, _ := w.wait(t, c.unit)
		if code != c.code || r.Verdict != c.verdict || r.Through != "journal" || r.Invocation != w.Property(t, c.unit, "InvocationID") {
			t.Errorf("%s: exit %d: %+v", c.unit, code, r)
		}
	}
	// Of one that failed before it was asked for, too.
	if r, code, _ := w.wait(t, "failing-alone.service"); code != 1 || r.Verdict != "failed" {
		t.Errorf("of a unit that has failed: exit %d: %+v", code, r)
	}
	if r, code, _ := w.wait(t, "late.service", "--start-timeout=1s", "--invocation="+strings.Repeat("0", 32), "--timeout=3s"); code != 3 || r.Verdict != "timeout" {
		t.Errorf("of an invocation that never was: exit %d: %+v", code, r)
	}
	if _, code, _ := w.run(t, "startupd", "wait", "no-such.service", "--timeout=20s"); code != 2 {
		t.Errorf("of a unit that is not there: exit %d", code)
	}
}
