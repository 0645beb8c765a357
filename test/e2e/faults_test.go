//go:build e2e

package e2e

import (
	"fmt"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/startupd/startupd/test/nspawn"
)

// fault is something that goes wrong in the middle of a start.
type fault struct {
	name   string
	inject func(*testing.T, *daemon, string)
	// truncated faults take entries out of the journal: what nobody could read any
	// more is missing, and must show as a gap.
	truncated bool
	// after is what must be seen besides.
	after func(*testing.T, *daemon)
}

func faults(reader string) []fault {
	child := map[string]string{"sdjournal": "journal-reader", "journalctl": "journalctl"}[reader]
	run := func(args ...string) func(*testing.T, *daemon, string) {
		return func(t *testing.T, d *daemon, _ string) { d.Run(t, args...) }
	}
	return []fault{
		{name: "reader killed", inject: func(t *testing.T, d *daemon, _ string) { d.kill(t, "KILL", d.child(t, child)) }, after: readerRestarted},
		{name: "startupd killed", inject: func(t *testing.T, d *daemon, _ string) { d.kill(t, "KILL", d.pid(t)) }},
		{name: "startupd restarted", inject: run("systemctl", "restart", service)},
		{name: "journald restarted", inject: run("systemctl", "restart", "systemd-journald")},
		{name: "vacuumed", inject: run("journalctl", "--rotate", "--vacuum-size=1M")},
		{name: "gpu-reader stopped", inject: stopGPUs, after: gpusBack},
		{name: "gpu-reader killed", inject: killGPUs, after: gpusBack},
		{name: "truncated", inject: func(t *testing.T, d *daemon, _ string) { truncate(t, d) }, truncated: true},
		{name: "truncated unread", inject: func(t *testing.T, d *daemon, unit string) { truncateUnread(t, d, unit, child) }, truncated: true},
	}
}

func (d *daemon) kill(t *testing.T, signal, pid string) {
	t.Helper()
	d.Run(t, "kill", "-"+signal, pid)
}

// stopGPUs hangs the GPU reader: its source must say so within its time-out.
func stopGPUs(t *testing.T, d *daemon, _ string) {
	d.kill(t, "STOP", d.child(t, "gpu-reader"))
	d.until(t, 20*time.Second, func(m metrics) error {
		if up, _ := m.sum("startupd_source_up", "source", "gpu"); up != 0 {
			return fmt.Errorf("the GPU source is up, though its reader hangs")
		}
		if _, n := m.sum("startupd_gpu_memory_used_bytes"); n != 0 {
			return fmt.Errorf("memory of %d GPUs is told, though nobody can know it", n)
		}
		return nil
	})
}

// killGPUs kills the GPU reader, and waits for another one.
func killGPUs(t *testing.T, d *daemon, _ string) {
	old := d.child(t, "gpu-reader")
	d.kill(t, "KILL", old)
	nspawn.Eventually(t, 20*time.Second, func() error {
		found, err := d.Try("pgrep", "--parent", d.pid(t), "--full", "gpu-reader")
		if err == nil && strings.TrimSpace(found) == old {
			err = fmt.Errorf("process %s is still there", old)
		}
		return err
	})
}

// truncate cuts the file that journald writes to, as a broken disk or a
// careless hand would: whoever has it mapped is sent SIGBUS.
func truncate(t *testing.T, d *daemon) {
	files := strings.Fields(d.Run(t, "find", "/var/log/journal", "-name", "system.journal"))
	if len(files) != 1 {
		t.Fatalf("active journal files: %v", files)
	}
	d.Run(t, "truncate", "--size=64K", files[0])
}

// truncateUnread keeps the reader from reading for a while, and then takes away
// what it has not read.
func truncateUnread(t *testing.T, d *daemon, unit, child string) {
	written := func() int {
		return strings.Count(d.Run(t, "journalctl", "--quiet", "--unit="+unit, "--output=cat"), "\n")
	}
	pid := d.child(t, child)
	d.kill(t, "STOP", pid)
	before := written()
	nspawn.Eventually(t, 10*time.Second, func() error {
		if n := written() - before; n < 10 {
			return fmt.Errorf("%d lines unread", n)
		}
		return nil
	})
	truncate(t, d)
	// The daemon may have ended a reader that hangs.
	_, _ = d.Try("kill", "-CONT", pid)
}

func readerRestarted(t *testing.T, d *daemon) {
	if n, _ := d.metrics(t).sum("startupd_journal_reader_restarts_total"); n < 1 {
		t.Errorf("the reader's restart is not counted: %v", n)
	}
}

func gpusBack(t *testing.T, d *daemon) {
	d.until(t, 20*time.Second, sources)
	if _, n := d.metrics(t).sum("startupd_gpu_memory_used_bytes"); n != 8 {
		t.Errorf("memory of %d GPUs is known", n)
	}
}

const steadySpeed = 1.5

// testFaults breaks something in the middle of a start, each time of another
// unit of one glob.
func testFaults(t *testing.T, c *nspawn.Container, reader string) {
	d := install(t, c, "--unit=steady-"+reader+"-*.service", "--journal.reader="+reader)
	for i, f := range faults(reader) {
		t.Run(f.name, func(t *testing.T) {
			u := engineUnit{name: fmt.Sprintf("steady-%s-%d.service", reader, i), scenario: "steady", speed: steadySpeed, port: 8100 + i, restartSec: "1"}
			want := lines(t, u.add(t, c), 0)
			c.Run(t, "systemctl", "start", "--no-block", u.name)
			d.halfway(t, u.name, 0.3)
			f.inject(t, d, u.name)
			d.reaches(t, 40*time.Second, u.name, "serving")
			d.until(t, 10*time.Second, func(m metrics) error { return evidence(m, u.name, f.truncated, want) })
			checkSteady(t, d, u.name)
			if f.after != nil {
				f.after(t, d)
			}
			c.Run(t, "systemctl", "stop", u.name)
			d.until(t, 10*time.Second, func(m metrics) error {
				return check(m, metrics{
					key("startupd_serving_ended_total", "unit", u.name, "reason", "stopped"): 1,
					key("startupd_startups_total", "unit", u.name, "outcome", "serving"):     1,
				})
			})
		})
	}
}

// evidence says whether the start is counted once, and every line of it; where
// the journal was truncated, lines may be missing if gaps tell so.
func evidence(m metrics, unit string, truncated bool, lines int) error {
	if err := check(m, metrics{
		key("startupd_startups_total", "unit", unit, "outcome", "serving"): 1,
		key("startupd_startups_total", "unit", unit, "outcome", "failed"):  0,
		key("startupd_startups_total", "unit", unit, "outcome", "stopped"): 0,
		key("startupd_journal_stale_lines_total", "unit", unit):            0,
	}); err != nil {
		return err
	}
	got, _ := m.get("startupd_journal_lines_total", "unit", unit)
	gaps, _ := m.sum("startupd_journal_gaps_total", "unit", unit)
	// A line that journald has seen half of when another process wrote is two.
	split, _ := m.sum("startupd_journal_gaps_total", "unit", unit, "kind", "pid_change")
	gaps, got = gaps-split, got-split
	if got == float64(lines) || truncated && got < float64(lines) && gaps > 0 {
		return nil
	}
	return fmt.Errorf("%v lines of %d and %v halves, and %v gaps", got, lines, split, gaps)
}

// checkSteady compares the phases with what the scenario says.
func checkSteady(t *testing.T, d *daemon, unit string) {
	t.Helper()
	// Also where the endpoint was quicker than the journal's reader.
	d.until(t, 5*time.Second, func(m metrics) error {
		return check(m, metrics{key("startupd_ready", "unit", unit, "source", "log"): 1})
	})
	m := d.metrics(t)
	began, _ := m.get("startupd_startup_begin_timestamp_seconds", "unit", unit)
	last := 0.0
	for _, p := range []struct {
		phase   string
		entered float64
	}{{"spawn", 0}, {"load", 1}, {"compile", 4.1}, {"cudagraph", 5.8}, {"serving", 7}} {
		at, ok := m.get("startupd_phase_entered_timestamp_seconds", "unit", unit, "phase", p.phase)
		if !ok || at < last || math.Abs(at-began-p.entered/steadySpeed) > 0.7 {
			t.Errorf("%s entered %.2f s after the beginning (known: %v), want about %.2f", p.phase, at-began, ok, p.entered/steadySpeed)
		}
		last = at
	}
}
