//go:build bench

package bench

import (
	"context"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/startupd/startupd/test/nspawn"
)

// BenchmarkWait measures how long after the line by which the server is ready,
// and after the exit of a server that fails, `startupd wait` has returned.
func BenchmarkWait(b *testing.B) {
	for _, through := range []struct {
		name string
		args []string
	}{{"daemon", nil}, {"journal", []string{"--api.socket="}}} {
		for _, c := range []struct {
			name, scenario string
			code           int
			bound          float64
			// entry selects the journal's entry from which the time counts.
			entry string
		}{
			{"ready", "eager", 0, 200, "_TRANSPORT=stdout"},
			{"fatal", "gpu-oom", 1, 1000, "MESSAGE_ID=" + msgExit},
		} {
			b.Run(through.name+"/"+c.name, func(b *testing.B) {
				h := boot(b, "auto", "/e2e/engine serve")
				h.engine(b, c.scenario)
				var took []time.Duration
				for range sized(20, 2) {
					h.Run(b, "systemctl", "stop", unit)
					h.Run(b, "systemctl", "start", "--no-block", unit)
					code, at := h.wait(b, through.args...)
					if code != c.code {
						log, _ := h.Try("journalctl", "--no-pager", "-n", "30")
						b.Fatalf("startupd wait has returned %d, not %d\n%s", code, c.code, log)
					}
					took = append(took, at.Sub(h.newest(b, c.entry)))
				}
				b.ReportMetric(0, "ns/op")
				b.ReportMetric(ms(quantile(took, 0.5)), "p50-ms")
				atMost(b, "p99-ms", ms(quantile(took, 0.99)), c.bound)
			})
		}
	}
}

// engine gives the unit a simulated server.
func (h host) engine(b *testing.B, scenario string) {
	b.Helper()
	out, err := exec.Command("go", "build", "-o", filepath.Join(h.share, "engine"), "../engine/simengine").CombinedOutput()
	if err != nil {
		b.Fatalf("%v\n%s", err, out)
	}
	nspawn.Copy(b, "../engine/scenarios/"+scenario+".yaml", filepath.Join(h.share, "scenario.yaml"))
	h.Write(b, "/etc/systemd/system/"+unit+".d/bench.conf",
		"[Unit]\nStartLimitIntervalSec=0\n[Service]\nEnvironment=SIMENGINE_SCENARIO=/e2e/scenario.yaml SIMENGINE_SPEED=4 SIMENGINE_LISTEN=127.0.0.1:8000\n")
	h.Run(b, "systemctl", "daemon-reload")
}

// wait returns the exit code of `startupd wait`, and when it has returned.
func (h host) wait(b *testing.B, args ...string) (code int, at time.Time) {
	b.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	cmd := h.Command(ctx, append([]string{"startupd", "wait", unit, "--quiet"}, args...)...)
	out, _ := cmd.CombinedOutput() // the code tells
	at = time.Now()
	if id := h.Property(b, unit, "InvocationID"); cmd.ProcessState.ExitCode() != 0 && !strings.Contains(string(out), id) {
		b.Errorf("this is not of the invocation %s:\n%s", id, out)
	}
	return cmd.ProcessState.ExitCode(), at
}

// newest is when the unit's newest entry of a kind was written.
func (h host) newest(b *testing.B, match string) time.Time {
	b.Helper()
	text := h.Run(b, "journalctl", "--unit="+unit, match, "--no-pager", "--output=export", "--reverse", "--lines=1")
	for line := range strings.Lines(text) {
		if us, ok := strings.CutPrefix(strings.TrimSpace(line), "__REALTIME_TIMESTAMP="); ok {
			n, err := strconv.ParseInt(us, 10, 64)
			if err != nil {
				b.Fatal(err)
			}
			return time.UnixMicro(n)
		}
	}
	b.Fatalf("no entry %s of %s:\n%s", match, unit, text)
	return time.Time{}
}
