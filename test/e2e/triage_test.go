//go:build e2e

package e2e

import (
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/startupd/startupd/test/nspawn"
)

// profileDir holds what the tests add to the built-in profiles.
const profileDir = "/etc/startupd/profiles.d"

// impatient lets a hang be told within seconds.
const impatient = `schema: startupd-profile/v1
extends: vllm
steps:
  spawn/distributed_init: {quiet: 4s, no_stretch: true}
`

// once keeps a failed unit failed.
const once = "[Service]\nRestart=no\n"

// failure is a unit whose start fails.
type failure struct {
	engineUnit
	// begin starts it; nil is systemctl start.
	begin func(*testing.T, *daemon, failure)
	// starts is how many starts fail; 0 is one.
	starts int
	// classes are the ones that are right for the cause.
	classes []string
	// exception and process are the cause's; message is a part of its text; "" is
	// anything.
	exception, process, message string
	phase                       string
	// check is what must be seen besides, of the last start.
	check func(*testing.T, *daemon, failure, *explainedStart)
}

func failures() []failure {
	return []failure{
		{
			engineUnit: engineUnit{name: "vllm-gpu-oom.service", scenario: "gpu-oom", port: 8401},
			classes:    []string{"gpu_oom_weights"}, exception: "torch.OutOfMemoryError", process: "Worker_TP5",
			message: "GPU 5 has a total capacity of 94.97 GiB", phase: "load", check: checkRanks,
		},
		{
			engineUnit: engineUnit{name: "vllm-sigbus.service", scenario: "sigbus", port: 8402},
			classes:    []string{"shm_exhausted", "worker_crashed"}, message: "Bus error", phase: "spawn", check: checkBusOfMain,
		},
		{
			engineUnit: engineUnit{name: "vllm-port-taken.service", scenario: "port-taken", port: takenPort},
			classes:    []string{"port_in_use"}, exception: "OSError", process: "APIServer",
			message: "[Errno 98] Address already in use", phase: "spawn", check: checkPortFreed,
		},
		{
			engineUnit: engineUnit{
				name: "vllm-timeout.service", scenario: "interrupted", port: 8404,
				dropIn: once + "Type=notify\nTimeoutStartSec=4s\n",
			},
			classes: []string{"startup_timeout"}, message: "timeout", phase: "load", check: checkNotStopped,
		},
		{
			engineUnit: engineUnit{name: "vllm-killed.service", scenario: "interrupted", port: 8405},
			begin:      beginAndKill, classes: []string{"killed_externally"}, phase: "load", check: checkNotStopped,
		},
		{
			engineUnit: engineUnit{
				name: "vllm-gpu-occupied.service", scenario: "gpu-occupied", port: 8406, restartSec: "200ms",
				dropIn: "[Unit]\nStartLimitIntervalSec=5min\nStartLimitBurst=5\n",
			},
			starts: 5, classes: []string{"gpu_memory_occupied"}, exception: "ValueError", message: "11.37/94.97 GiB",
			phase: "spawn", check: checkLoop,
		},
	}
}

// TestTriage boots a container in which all that can go wrong goes wrong at the
// same time, each in a unit of its own.
func TestTriage(t *testing.T) {
	if os.Getuid() != 0 {
		t.Fatal("these tests boot a container: run them as root")
	}
	t.Parallel()
	c := boot(t)
	c.Write(t, profileDir+"/impatient.yaml", impatient)

	crowd := failures()
	// What is put into the journal from outside is read only if nothing later was
	// read before: these wait until the others are quiet.
	alone := []failure{hostOOM("kernel", 8407, kernelTells), hostOOM("systemd", 8408, systemdTells)}
	hang := engineUnit{name: "vllm-nccl-hang.service", scenario: "nccl-hang", speed: 1, port: 8409, restartSec: "1", dropIn: once}
	before := engineUnit{name: kimi, scenario: "before", speed: 1, port: 8000, restartSec: "1"}
	hang.add(t, c)
	before.add(t, c)
	args := []string{"--profile.dir=" + profileDir, "--unit=" + kimi, "--unit=" + hang.name}
	for _, cases := range [][]failure{crowd, alone} {
		for i := range cases {
			cases[i].prepare(t, c)
			args = append(args, "--unit="+cases[i].name)
		}
	}
	squat(t, c)
	d := install(t, c, args...)
	d.until(t, 20*time.Second, sources)

	c.Run(t, "systemctl", "start", "--no-block", before.name, hang.name)
	for _, f := range crowd {
		f.start(t, d)
	}
	for _, f := range crowd {
		t.Run(strings.TrimSuffix(f.name, ".service"), func(t *testing.T) { f.judge(t, d) })
	}
	t.Run("hang", func(t *testing.T) { checkHang(t, d, hang) })
	for _, f := range alone {
		t.Run(strings.TrimSuffix(f.name, ".service"), func(t *testing.T) {
			f.start(t, d)
			f.judge(t, d)
		})
	}
	t.Run("upgrade", func(t *testing.T) { testUpgrade(t, d, before) })
}

// prepare fills in what is the same for most, and writes the unit.
func (f *failure) prepare(t *testing.T, c *nspawn.Container) {
	t.Helper()
	f.speed = 1
	if f.restartSec == "" {
		f.restartSec = "1"
	}
	if f.dropIn == "" {
		f.dropIn = once
	}
	f.starts = max(f.starts, 1)
	f.add(t, c)
}

func (f failure) start(t *testing.T, d *daemon) {
	t.Helper()
	if f.begin != nil {
		f.begin(t, d, f)
		return
	}
	d.Run(t, "systemctl", "start", "--no-block", f.name)
}

// judge compares what the daemon and explain say with the truth.
func (f failure) judge(t *testing.T, d *daemon) {
	d.until(t, 40*time.Second, func(m metrics) error {
		return check(m, metrics{
			key("startupd_startups_total", "unit", f.name, "outcome", "failed"):       float64(f.starts),
			key("startupd_startups_total", "unit", f.name, "outcome", "serving"):      0,
			key("startupd_startups_total", "unit", f.name, "outcome", "stopped"):      0,
			key("startupd_last_startup_outcome", "unit", f.name, "outcome", "failed"): 1,
		})
	})
	d.until(t, 10*time.Second, func(m metrics) error {
		got, err := m.cause(f.name)
		if err != nil {
			return err
		}
		return f.right(got)
	})
	ex := d.explain(t, f.name)
	if len(ex.Startups) != f.starts {
		t.Fatalf("explain tells of %d starts, want %d", len(ex.Startups), f.starts)
	}
	for i := range ex.Startups {
		f.judgeStart(t, d, &ex.Startups[i])
	}
	if f.check != nil {
		f.check(t, d, f, &ex.Startups[len(ex.Startups)-1])
	}
}

// right compares a cause with the truth.
func (f failure) right(got told) error {
	if !slices.Contains(f.classes, got.class) || f.exception != "" && got.exception != f.exception || f.process != "" && got.process != f.process {
		return fmt.Errorf("%s failed of %+v, want class %v, exception %q, process %q", f.name, got, f.classes, f.exception, f.process)
	}
	return nil
}

func (f failure) judgeStart(t *testing.T, d *daemon, s *explainedStart) {
	t.Helper()
	if s.Outcome != "failed" || s.Phase != f.phase || s.RootCause == nil {
		t.Errorf("want a start that failed in %s, and its cause: explain says %v", f.phase, s)
		return
	}
	got := told{s.RootCause.Class, text(s.RootCause.Exception), text(s.RootCause.Process)}
	if err := f.right(got); err != nil || !strings.Contains(text(s.RootCause.Message), f.message) {
		t.Errorf("%v, with %q in its message: explain says %v", err, f.message, s)
	}
	if live, err := d.metrics(t).cause(f.name); err != nil || live != got {
		t.Errorf("the daemon says %+v (%v), explain %+v", live, err, got)
	}
	if text(s.RootCause.Remediation) == "" {
		t.Errorf("nothing is said of what to do: %v", s)
	}
}

// checkRanks sees to it that the other ranks' noise is no cause.
func checkRanks(t *testing.T, d *daemon, f failure, s *explainedStart) {
	if causes := s.ofVerdict("cause"); len(causes) != 1 || text(causes[0].Process) != f.process {
		t.Errorf("want one cause, of %s: %+v", f.process, causes)
	}
	symptoms, watchdogs := 0, []explainedFinding(nil)
	for _, x := range s.ofVerdict("symptom") {
		symptoms += x.Count
		if strings.Contains(text(x.Message), "watchdog thread terminated") {
			watchdogs = append(watchdogs, x)
		}
	}
	if len(watchdogs) != 1 || watchdogs[0].Count != 8 {
		t.Errorf("what eight ranks say alike is one finding: %v", watchdogs)
	}
	// Two ways in which eight ranks lose their peer, and the wrappers.
	if symptoms < 10 || len(s.ofVerdict("suspect")) > 0 {
		t.Errorf("want 10 symptoms or more and no suspect: %v", s)
	}
	m := d.metrics(t)
	if n, _ := m.sum("startupd_startup_errors", "unit", f.name, "verdict", "cause"); n != 1 {
		t.Errorf("%v causes are counted:\n%s", n, m.dump("startupd_startup_errors", f.name))
	}
	if n, _ := m.sum("startupd_startup_errors", "unit", f.name, "verdict", "symptom"); n < 10 {
		t.Errorf("%v symptoms are counted:\n%s", n, m.dump("startupd_startup_errors", f.name))
	}
}

// checkBusOfMain lets the main process die of a bus error without a word.
func checkBusOfMain(t *testing.T, d *daemon, f failure, _ *explainedStart) {
	d.Run(t, "systemctl", "start", f.name)
	d.until(t, 20*time.Second, func(m metrics) error {
		return check(m, metrics{key("startupd_startups_total", "unit", f.name, "outcome", "failed"): 2})
	})
	ex := d.explain(t, f.name)
	s := &ex.Startups[len(ex.Startups)-1]
	if s.Outcome != "failed" || s.RootCause == nil || !slices.Contains(f.classes, s.RootCause.Class) || !strings.Contains(text(s.RootCause.Message), "BUS") {
		t.Errorf("want one of %v, by the signal BUS: explain says %v", f.classes, s)
	}
	if got, err := d.metrics(t).cause(f.name); err != nil || !slices.Contains(f.classes, got.class) {
		t.Errorf("the daemon says %+v, %v", got, err)
	}
}

const takenPort = 8403

// squat lets another server have the port.
func squat(t *testing.T, c *nspawn.Container) {
	t.Helper()
	u := engineUnit{name: "old-server.service", scenario: "port-taken", speed: 4, port: takenPort, restartSec: "1"}
	u.add(t, c)
	c.Run(t, "systemctl", "start", u.name)
	nspawn.Eventually(t, 20*time.Second, func() error {
		_, err := c.Try("curl", "--silent", "--fail", fmt.Sprintf("http://127.0.0.1:%d/health", takenPort))
		return err
	})
}

// checkPortFreed ends the other server: the next start serves, and nothing is
// told of the failure any more.
func checkPortFreed(t *testing.T, d *daemon, f failure, _ *explainedStart) {
	d.Run(t, "systemctl", "stop", "old-server.service")
	d.Run(t, "systemctl", "start", f.name)
	d.reaches(t, 20*time.Second, f.name, "serving")
	d.until(t, 10*time.Second, func(m metrics) error {
		if _, n := m.sum("startupd_root_cause_info", "unit", f.name); n != 0 {
			return fmt.Errorf("it serves, and a cause is shown:\n%s", m.dump("root_cause", f.name))
		}
		return check(m, metrics{key("startupd_last_startup_outcome", "unit", f.name, "outcome", "serving"): 1})
	})
}

// beginAndKill sends SIGTERM as anybody might who is not systemd.
func beginAndKill(t *testing.T, d *daemon, f failure) {
	d.Run(t, "systemctl", "start", "--no-block", f.name)
	d.reaches(t, 20*time.Second, f.name, "load")
	d.kill(t, "TERM", d.Property(t, f.name, "MainPID"))
}

// checkNotStopped sees to it that the engine's reaction to SIGTERM is no crash.
func checkNotStopped(t *testing.T, _ *daemon, _ failure, s *explainedStart) {
	for _, x := range s.Findings {
		if x.Class == "worker_crashed" || x.Class == "engine_bug" {
			t.Errorf("a signal from outside counts as a crash: %+v", x)
		}
	}
}

// checkLoop wants the loop told, and the same errors of each start counted.
func checkLoop(t *testing.T, d *daemon, f failure, s *explainedStart) {
	each := 0
	for _, x := range s.ofVerdict("cause") {
		each += x.Count
	}
	d.until(t, 10*time.Second, func(m metrics) error {
		return check(m, metrics{
			key("startupd_restart_loop", "unit", f.name):                                                     1,
			key("startupd_unit_restarts", "unit", f.name):                                                    5,
			key("startupd_errors_total", "unit", f.name, "class", "gpu_memory_occupied", "verdict", "cause"): float64(5 * each),
		})
	})
	if state := d.Property(t, f.name, "ActiveState"); state != "failed" {
		t.Errorf("systemd says %s: it should have given up", state)
	}
	d.reaches(t, 10*time.Second, f.name, "failed")
}

// checkHang wants the hang named while it lasts, and no failure counted.
func checkHang(t *testing.T, d *daemon, u engineUnit) {
	d.until(t, 30*time.Second, func(m metrics) error {
		return check(m, metrics{
			key("startupd_stalled", "unit", u.name):                             1,
			key("startupd_startups_total", "unit", u.name, "outcome", "failed"): 0,
		})
	})
	d.reaches(t, 5*time.Second, u.name, "spawn")
	// Also the journal alone tells it, judged as of later.
	ex := d.explain(t, u.name, "--elapsed", "1m")
	s := &ex.Startups[len(ex.Startups)-1]
	if s.Outcome != "stalled" || s.Phase != "spawn" || s.RootCause == nil || s.RootCause.Class != "nccl_hang" ||
		!strings.Contains(text(s.RootCause.Message), "nccl==2.27.5") {
		t.Errorf("want a hang in NCCL after its version was told: explain says %v", s)
	}
	d.Run(t, "systemctl", "stop", u.name)
	d.until(t, 10*time.Second, func(m metrics) error {
		return check(m, metrics{
			key("startupd_startups_total", "unit", u.name, "outcome", "stopped"): 1,
			key("startupd_startups_total", "unit", u.name, "outcome", "failed"):  0,
			key("startupd_stalled", "unit", u.name):                              0,
		})
	})
}
