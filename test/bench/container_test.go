//go:build bench

package bench

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/startupd/startupd/test/nspawn"
)

const metricsURL = "http://127.0.0.1:10944/metrics"

// host is a container with the hardened startupd, which watches unit. Its
// folder share is /e2e inside.
type host struct {
	*nspawn.Container
	share string
}

// boot starts startupd with a reader. The unit, which runs command, is not
// started yet.
func boot(b *testing.B, reader, command string) host {
	b.Helper()
	dir := b.TempDir()
	// The shared folder is read by an unprivileged service.
	if err := os.Chmod(dir, 0o755); err != nil {
		b.Fatal(err)
	}
	stage, share := filepath.Join(dir, "root"), filepath.Join(dir, "share")
	for path, text := range map[string]string{
		"etc/default/startupd":                   fmt.Sprintf("ARGS=--unit=%s --journal.reader=%s\n", unit, reader),
		"etc/systemd/system/" + unit:             "[Service]\nExecStart=" + command + "\nLogRateLimitIntervalSec=0\n",
		"etc/systemd/journald.conf.d/bench.conf": "[Journal]\nStorage=persistent\nRateLimitIntervalSec=0\nSystemMaxUse=1G\n",
	} {
		nspawn.Put(b, filepath.Join(stage, path), text)
	}
	for from, to := range map[string]string{
		"../../deploy/systemd/startupd.service":         "usr/lib/systemd/system/startupd.service",
		"../../deploy/systemd/sysusers.d/startupd.conf": "usr/lib/sysusers.d/startupd.conf",
		program(b): "usr/bin/startupd",
	} {
		nspawn.Copy(b, from, filepath.Join(stage, to))
	}
	probe := filepath.Join(stage, "usr/bin/lineprobe")
	if out, err := exec.Command("go", "build", "-o", probe, "./lineprobe").CombinedOutput(); err != nil {
		b.Fatalf("%v\n%s", err, out)
	}
	if err := os.MkdirAll(share, 0o777); err != nil {
		b.Fatal(err)
	}
	h := host{nspawn.Boot(b, stage, share), share}
	h.Run(b, "systemd-sysusers")
	h.Run(b, "systemctl", "start", "startupd.service")
	return h
}

// daemon is startupd's PID as this machine counts it.
func (h host) daemon(b *testing.B) int {
	b.Helper()
	for _, pid := range nspawn.Children(h.Init) {
		line, _ := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/cmdline")
		if strings.HasPrefix(string(line), "/usr/bin/startupd\x00") {
			return pid
		}
	}
	b.Fatal("startupd does not run in the container")
	return 0
}
