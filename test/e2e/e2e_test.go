//go:build e2e

package e2e

import (
	"os"
	"testing"

	"github.com/startupd/startupd/test/nspawn"
)

// TestStartupd boots one container and runs every case in it, one after the
// other: each installs startupd anew and has units of its own.
func TestStartupd(t *testing.T) {
	if os.Getuid() != 0 {
		t.Fatal("these tests boot a container: run them as root")
	}
	root, share := stage(t)
	c := nspawn.Boot(t, root, share)
	c.Run(t, "systemd-sysusers", "/usr/lib/sysusers.d/startupd.conf")
	c.Run(t, "systemctl", "daemon-reload")

	readers := []string{"journalctl"}
	if hasLibsystemd() {
		readers = []string{"sdjournal", "journalctl"}
	}
	t.Run("service", func(t *testing.T) { testService(t, c) })
	for _, reader := range readers {
		t.Run("reference/"+reader, func(t *testing.T) { testReference(t, c, reader) })
		t.Run("faults/"+reader, func(t *testing.T) { testFaults(t, c, reader) })
	}
	t.Run("outcomes", func(t *testing.T) { testOutcomes(t, c) })
	t.Run("inputs", func(t *testing.T) { testInputs(t, c) })
	t.Run("watch", func(t *testing.T) { testWatch(t, c) })
	t.Run("preflight", func(t *testing.T) { testPreflight(t, c) })
}
