//go:build e2e

package e2e

import (
	"context"
	"encoding/json"
	"fmt"
	"math"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/startupd/startupd/test/engine/scenario"
	"github.com/startupd/startupd/test/nspawn"
)

const (
	kimi        = "vllm-kimi-k25.service"
	docker      = "vllm-docker.service"
	batch       = "batch-job.service"
	containerID = "3f1c8e0b5d7a49628d0c1e2f3a4b5c6d7e8f90a1b2c3d4e5f60718293a4b5c6d"
	speed       = 40
)

const config = `targets:
  - unit: ` + kimi + `
  - unit: ` + docker + `
    container: ` + containerID + `
    health: none
`

// testReference plays the reference run: a crash, a restart by systemd, a good
// start on eight GPUs; then the same unit again, with restarts of startupd.
func testReference(t *testing.T, c *nspawn.Container, reader string) {
	u := engineUnit{name: kimi, scenario: "reference", speed: speed, port: 8000, restartSec: "1"}
	f := u.add(t, c)
	holder(t, c, batch, "2=3GiB", false)
	holder(t, c, "docker-"+containerID+".scope", "1=5GiB", true)
	c.Write(t, "/etc/startupd/startupd.yml", config)
	d := install(t, c, "--config.file=/etc/startupd/startupd.yml", "--journal.reader="+reader)
	d.until(t, 20*time.Second, func(m metrics) error { return sources(m) })

	w := d.watch(t, kimi)
	c.Run(t, "systemctl", "start", "--no-block", kimi)
	d.reaches(t, 60*time.Second, kimi, "serving")
	// The counters follow once nothing can amend the verdict any more.
	d.until(t, 10*time.Second, func(m metrics) error { return counted(m, 1, 1, 0) })
	seen := w.stop()

	t.Run("phases", func(t *testing.T) { checkPhases(t, seen, f) })
	t.Run("starts apart", func(t *testing.T) { checkApart(t, d) })
	t.Run("memory", func(t *testing.T) { checkMemory(t, seen) })
	t.Run("page", func(t *testing.T) { checkPage(t, d) })
	t.Run("explain", func(t *testing.T) { checkExplain(t, d) })
	t.Run("restarts of startupd", func(t *testing.T) { checkRestarts(t, d, f) })
}

// sources says whether the host-wide ones see.
func sources(m metrics) error {
	for _, s := range []string{"journal", "unit", "gpu"} {
		if up, _ := m.sum("startupd_source_up", "source", s); up != 1 {
			return fmt.Errorf("source %s is not up:\n%s", s, m.dump("startupd_source_up"))
		}
	}
	return nil
}

// counted says whether the unit's finished starts are counted as wanted.
func counted(m metrics, failed, serving, stopped float64) error {
	return check(m, metrics{
		key("startupd_startups_total", "unit", kimi, "outcome", "failed"):  failed,
		key("startupd_startups_total", "unit", kimi, "outcome", "serving"): serving,
		key("startupd_startups_total", "unit", kimi, "outcome", "stopped"): stopped,
	})
}

// watcher scrapes all the time, and keeps what it saw.
type watcher struct {
	unit   string
	cancel context.CancelFunc
	done   chan struct{}
	// scrapes is what came, in order.
	scrapes []metrics
	errs    []string
}

// watch begins to scrape.
func (d *daemon) watch(t *testing.T, unit string) *watcher {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	w := &watcher{unit: unit, cancel: cancel, done: make(chan struct{})}
	go func() {
		defer close(w.done)
		tick := time.NewTicker(120 * time.Millisecond)
		defer tick.Stop()
		// What is there when it stops is seen too.
		for last := false; !last; {
			last = ctx.Err() != nil
			if m, _, err := d.scrape(); err != nil {
				w.errs = append(w.errs, err.Error())
			} else {
				w.scrapes = append(w.scrapes, m)
			}
			select {
			case <-ctx.Done():
			case <-tick.C:
			}
		}
	}()
	return w
}

func (w *watcher) stop() *watcher {
	w.cancel()
	<-w.done
	return w
}

// states is the sequence of the unit's states.
func (w *watcher) states(t *testing.T) []string {
	t.Helper()
	var seq []string
	for _, m := range w.scrapes {
		s, err := m.state(w.unit)
		if err != nil {
			t.Fatal(err)
		}
		if len(seq) == 0 || seq[len(seq)-1] != s {
			seq = append(seq, s)
		}
	}
	return seq
}

func checkPhases(t *testing.T, w *watcher, f *scenario.File) {
	if len(w.errs) > 0 {
		t.Errorf("%d scrapes failed: %s", len(w.errs), w.errs[0])
	}
	states := w.states(t)
	if i := slices.Index(states, "spawn"); i > 0 {
		states = states[i:]
	}
	if want := []string{"spawn", "failed", "spawn", "load", "compile", "cudagraph", "serving"}; !slices.Equal(states, want) {
		t.Errorf("states were %v, want %v", states, want)
	}
	progress := 0.0
	for _, m := range w.scrapes {
		sum := 0.0
		for _, p := range []string{"spawn", "load", "compile", "cudagraph"} {
			v, _ := m.get("startupd_phase_duration_seconds", "unit", kimi, "phase", p)
			sum += v
		}
		if total, ok := m.get("startupd_startup_duration_seconds", "unit", kimi); ok && math.Abs(total-sum) > 0.001 {
			t.Errorf("phases add up to %v of %v:\n%s", sum, total, m.dump("duration_seconds", kimi))
		}
		if p, ok := m.get("startupd_progress_ratio", "unit", kimi, "phase", "load"); ok {
			if p < progress {
				t.Errorf("progress went from %v back to %v", progress, p)
			}
			progress = p
		}
	}
	if progress < 0.9 {
		t.Errorf("load was seen to come to %v only", progress)
	}
	last := w.scrapes[len(w.scrapes)-1]
	// What the scenario says, at its speed. A process starts late on a busy
	// machine.
	const slack = 1.5
	for _, want := range []struct {
		series   string
		from, to float64
	}{
		{key("startupd_phase_duration_seconds", "unit", kimi, "phase", "spawn"), 0, 21},
		{key("startupd_phase_duration_seconds", "unit", kimi, "phase", "load"), 21, 571},
		{key("startupd_phase_duration_seconds", "unit", kimi, "phase", "compile"), 571, 757},
		{key("startupd_startup_duration_seconds", "unit", kimi), 0, time.Duration(f.Starts[1].Ready).Seconds()},
	} {
		if got, scaled := last[want.series], (want.to-want.from)/speed; math.Abs(got-scaled) > slack {
			t.Errorf("%s is %v, want about %v", want.series, got, scaled)
		}
	}
}

// checkApart looks for traces of the first start in the second.
func checkApart(t *testing.T, d *daemon) {
	m := d.metrics(t)
	began, err := time.Parse("Mon 2006-01-02 15:04:05 MST", d.Property(t, kimi, "ExecMainStartTimestamp"))
	if err != nil {
		t.Fatal(err)
	}
	if got, _ := m.get("startupd_startup_begin_timestamp_seconds", "unit", kimi); math.Abs(got-float64(began.Unix())) > 1.5 {
		t.Errorf("the startup began at %v, systemd says %v", got, began)
	}
	for _, verdict := range []string{"cause", "symptom", "suspect"} {
		if n, _ := m.sum("startupd_startup_errors", "unit", kimi, "verdict", verdict); n != 0 {
			t.Errorf("the good start has errors of the crash:\n%s", m.dump("startupd_startup_errors"))
		}
	}
	// The harmless import error: the server, its engine and eight workers.
	if n, _ := m.sum("startupd_startup_errors", "unit", kimi, "verdict", "benign"); n < 10 {
		t.Errorf("%v benign errors, want 10 or more:\n%s", n, m.dump("startupd_startup_errors"))
	}
	if n, _ := m.sum("startupd_errors_total", "unit", kimi, "class", "package_mismatch"); n < 8 {
		t.Errorf("the crash's errors were not counted:\n%s", m.dump("startupd_errors_total"))
	}
	if err := check(m, metrics{
		key("startupd_last_startup_outcome", "unit", kimi, "outcome", "serving"):   1,
		key("startupd_last_startup_outcome", "unit", kimi, "outcome", "failed"):    0,
		key("startupd_unit_restarts", "unit", kimi):                                1,
		key("startupd_stalled", "unit", kimi):                                      0,
		key("startupd_ready", "unit", kimi, "source", "log"):                       1,
		key("startupd_serving_ended_total", "unit", kimi, "reason", "stopped"):     0,
		key("startupd_startup_phase_seconds_count", "unit", kimi, "phase", "load"): 1,
	}); err != nil {
		t.Error(err)
	}
	// The endpoint's address is told by the engine's log alone.
	d.until(t, 15*time.Second, func(m metrics) error {
		return check(m, metrics{
			key("startupd_ready", "unit", kimi, "source", "port"):   1,
			key("startupd_ready", "unit", kimi, "source", "health"): 1,
		})
	})
	if n, _ := m.sum("startupd_engine_info", "unit", kimi, "engine", "vllm", "version", "0.16.0rc2.dev344", "model", "/models/kimi-k2.5-nvfp4"); n != 1 {
		t.Errorf("the engine is not told:\n%s", m.dump("startupd_engine_info"))
	}
}

const gib = 1 << 30

func checkMemory(t *testing.T, w *watcher) {
	last := w.scrapes[len(w.scrapes)-1]
	level := 73.7 * gib
	for gpu := range 8 {
		g := strconv.Itoa(gpu)
		plateau := 0
		for _, m := range w.scrapes {
			if v, ok := m.get("startupd_unit_gpu_memory_bytes", "unit", kimi, "gpu", g); ok && math.Abs(v-level) < 1<<20 {
				plateau++
			}
		}
		if plateau < 3 {
			t.Errorf("GPU %d was seen %d times at 73.7 GiB", gpu, plateau)
		}
		used := 86.8 * gib
		foreign, target := 0.0, 0.0
		if gpu == 2 {
			foreign = 3 * gib
		}
		if gpu == 1 {
			target = 5 * gib
		}
		total, _ := last.sum("startupd_gpu_memory_used_bytes", "gpu", g, "uuid", scenario.UUID(gpu))
		for what, c := range map[string]struct{ got, want float64 }{
			"used":         {total, used + foreign + target + 4<<20},
			"the unit's":   {last[key("startupd_unit_gpu_memory_bytes", "unit", kimi, "gpu", g)], used},
			"the target's": {last[key("startupd_unit_gpu_memory_bytes", "unit", docker, "gpu", g)], target},
			"foreign":      {last[key("startupd_gpu_foreign_memory_bytes", "gpu", g)], foreign},
			"unattributed": {last[key("startupd_gpu_unattributed_memory_bytes", "gpu", g)], 0},
		} {
			if math.Abs(c.got-c.want) > 1<<20 {
				t.Errorf("GPU %d: %s memory is %.2f GiB, want %.2f", gpu, what, c.got/gib, c.want/gib)
			}
		}
		if v, _ := last.get("startupd_gpu_plateau", "unit", kimi, "gpu", g); v != 1 {
			t.Errorf("GPU %d has no plateau", gpu)
		}
	}
}

// checkPage lets promtool judge the metrics, and asks the probe's endpoint.
func checkPage(t *testing.T, d *daemon) {
	_, text, err := d.scrape()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command("promtool", "check", "metrics")
	cmd.Stdin = strings.NewReader(text)
	if out, err := cmd.CombinedOutput(); err != nil || len(out) > 0 {
		t.Errorf("promtool: %v\n%s", err, out)
	}
	for path, want := range map[string]string{
		"/startupz?unit=" + kimi: "200", "/startupz?unit=none": "404", "/-/healthy": "200", "/-/ready": "200",
	} {
		if got := d.Run(t, "curl", "--silent", "--output", "/dev/null", "--write-out", "%{http_code}", "http://"+address+path); got != want {
			t.Errorf("%s answers %s, want %s", path, got, want)
		}
	}
}

// checkExplain reads the same journal once more, after the fact.
func checkExplain(t *testing.T, d *daemon) {
	out, err := d.Try("startupd", "explain", "--unit", kimi, "--format", "json")
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	var got struct {
		Schema   string
		Startups []struct{ Outcome, Phase, Invocation string }
	}
	if err := json.Unmarshal([]byte(out), &got); err != nil {
		t.Fatalf("%v in %s", err, out)
	}
	if got.Schema != "startupd.explain/v1" || len(got.Startups) < 2 {
		t.Fatalf("explain says %s", out)
	}
	last := got.Startups[len(got.Startups)-2:]
	if last[0].Outcome != "failed" || last[0].Phase != "spawn" || last[1].Outcome != "serving" || last[1].Phase != "serving" {
		t.Errorf("explain says %+v", last)
	}
	if want := d.Property(t, kimi, "InvocationID"); last[1].Invocation != want {
		t.Errorf("explain says invocation %s, systemd %s", last[1].Invocation, want)
	}
}

// unchanged compares what a restart of startupd must not change.
func unchanged(before, after metrics) error {
	families := []string{
		"startupd_startups_total", "startupd_serving_ended_total", "startupd_journal_lines_total", "startupd_errors_total", "startupd_startup_errors",
		"startupd_last_startup_outcome", "startupd_startup_phase_seconds_", "startupd_phase{", "startupd_engine_info",
		"startupd_startup_begin", "startupd_phase_entered", "startupd_startup_duration",
	}
	for k, v := range before {
		if !strings.Contains(k, kimi) || !slices.ContainsFunc(families, func(f string) bool { return strings.HasPrefix(k, f) }) {
			continue
		}
		if got, ok := after[k]; !ok || got != v {
			return fmt.Errorf("%s was %v and is %v (there: %v)", k, v, got, ok)
		}
	}
	return nil
}

// checkRestarts restarts startupd when all is over, and in the middle of one
// more start.
func checkRestarts(t *testing.T, d *daemon, f *scenario.File) {
	// The engine has something to say after its start, too.
	all := float64(lines(t, f, 0) + lines(t, f, 1))
	d.until(t, 10*time.Second, func(m metrics) error {
		return check(m, metrics{key("startupd_journal_lines_total", "unit", kimi): all})
	})
	before := d.metrics(t)
	d.Run(t, "systemctl", "restart", service)
	d.until(t, 20*time.Second, func(m metrics) error {
		if err := sources(m); err != nil {
			return err
		}
		return unchanged(before, m)
	})

	w := d.watch(t, kimi)
	d.Run(t, "systemctl", "restart", "--no-block", kimi)
	d.reaches(t, 20*time.Second, kimi, "load")
	d.halfway(t, kimi, 0.3)
	d.Run(t, "systemctl", "restart", service)
	d.reaches(t, 60*time.Second, kimi, "serving")
	d.until(t, 10*time.Second, func(m metrics) error { return counted(m, 1, 2, 0) })
	states := w.stop().states(t)
	if i := slices.Index(states, "spawn"); i > 0 {
		states = states[i:]
	}
	// The restarted startupd knows the start's phase as soon as it is ready.
	states = slices.DeleteFunc(states, func(s string) bool { return s == "unknown" })
	if want := []string{"spawn", "load", "compile", "cudagraph", "serving"}; !slices.Equal(slices.Compact(states), want) {
		t.Errorf("states were %v, want %v", states, want)
	}
	m := d.metrics(t)
	if err := check(m, metrics{
		key("startupd_serving_ended_total", "unit", kimi, "reason", "stopped"):     1,
		key("startupd_startup_phase_seconds_count", "unit", kimi, "phase", "load"): 2,
	}); err != nil {
		t.Error(err)
	}
	if got, want := m[key("startupd_phase_duration_seconds", "unit", kimi, "phase", "load")], 550.0/speed; math.Abs(got-want) > 1.5 {
		t.Errorf("load took %v, want about %v", got, want)
	}
}
