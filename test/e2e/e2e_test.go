//go:build e2e

package e2e

import (
	"os"
	"testing"

	"github.com/startupd/startupd/test/nspawn"
)

// The tests of this package wait more than they work, so two containers run at a
// time (-parallel is the number of cores). Those that measure a delay or count
// what a crash loop makes are not parallel, and run first.

// TestStartupd boots a container for each reader of the journal and one for the
// rest, and runs every case in it, one after the other: each installs startupd
// anew and has units of its own.
func TestStartupd(t *testing.T) {
	if os.Getuid() != 0 {
		t.Fatal("these tests boot a container: run them as root")
	}
	t.Parallel()
	readers := []string{"journalctl"}
	if hasLibsystemd() {
		readers = []string{"sdjournal", "journalctl"}
	}
	for _, reader := range readers {
		t.Run(reader, func(t *testing.T) {
			t.Parallel()
			c := boot(t)
			t.Run("reference", func(t *testing.T) { testReference(t, c, reader) })
			t.Run("faults", func(t *testing.T) { testFaults(t, c, reader) })
		})
	}
	t.Run("rest", func(t *testing.T) {
		t.Parallel()
		c := boot(t)
		t.Run("service", func(t *testing.T) { testService(t, c) })
		t.Run("outcomes", func(t *testing.T) { testOutcomes(t, c) })
		t.Run("inputs", func(t *testing.T) { testInputs(t, c) })
		t.Run("watch", func(t *testing.T) { testWatch(t, c) })
		t.Run("preflight", func(t *testing.T) { testPreflight(t, c) })
	})
}

// boot starts a container with startupd's files in it.
func boot(t *testing.T) *nspawn.Container {
	t.Helper()
	root, share := stage(t)
	c := nspawn.Boot(t, root, share)
	c.Run(t, "systemd-sysusers", "/usr/lib/sysusers.d/startupd.conf")
	c.Run(t, "systemctl", "daemon-reload")
	return c
}
