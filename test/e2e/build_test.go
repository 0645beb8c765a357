//go:build e2e

package e2e

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/startupd/startupd/test/engine/scenario"
	"github.com/startupd/startupd/test/fakenvml"
	"github.com/startupd/startupd/test/nspawn"
)

// stage builds everything that the container needs: a folder to be laid over
// its root, and one to be shared with it.
func stage(t *testing.T) (root, share string) {
	t.Helper()
	dir := t.TempDir()
	root, share = filepath.Join(dir, "root"), filepath.Join(dir, "share")
	for _, d := range []string{root, share} {
		if err := os.MkdirAll(d, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	// The shared folder is read by an unprivileged service.
	if err := os.Chmod(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	build(t, filepath.Join(root, "usr/bin/startupd"), "./cmd/startupd")
	build(t, filepath.Join(root, "opt/vllm/bin/vllm"), "./test/engine/simengine")
	if _, err := fakenvml.Build(share); err != nil {
		t.Fatal(err)
	}
	nspawn.Copy(t, "../../deploy/systemd/startupd.service", filepath.Join(root, "usr/lib/systemd/system/startupd.service"))
	nspawn.Copy(t, "../../deploy/systemd/sysusers.d/startupd.conf", filepath.Join(root, "usr/lib/sysusers.d/startupd.conf"))
	scenarios, err := filepath.Glob("../engine/scenarios/*.yaml")
	if err != nil || len(scenarios) == 0 {
		t.Fatalf("no scenarios: %v", err)
	}
	for _, path := range scenarios {
		nspawn.Copy(t, path, filepath.Join(share, filepath.Base(path)))
	}
	idle(t, filepath.Join(share, "nvml"))
	return root, share
}

// idle writes what the driver says before any engine runs.
func idle(t *testing.T, path string) {
	t.Helper()
	f, err := scenario.Load("../engine/scenarios/reference.yaml")
	if err != nil {
		t.Fatal(err)
	}
	used, total, busy := uint64(f.GPUs.Idle), uint64(f.GPUs.Total), 0
	var s fakenvml.State
	for i := range f.GPUs.Count {
		s.GPUs = append(s.GPUs, fakenvml.GPU{
			UUID: scenario.UUID(i), Name: f.GPUs.Name, UsedBytes: &used, TotalBytes: &total, UtilizationPercent: &busy,
		})
	}
	if err := fakenvml.WriteFile(path, s); err != nil {
		t.Fatal(err)
	}
}

func build(t *testing.T, out, pkg string) {
	t.Helper()
	cmd := exec.Command("go", "build", "-o", out, pkg)
	cmd.Dir = "../.."
	if hasLibsystemd() {
		cmd.Args = []string{"go", "build", "-tags", "sdjournal", "-o", out, pkg}
	}
	cmd.Env = append(os.Environ(), "CGO_CFLAGS="+strings.TrimSpace(os.Getenv("CGO_CFLAGS")+" -Wno-deprecated-declarations"))
	if b, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("build %s: %v\n%s", pkg, err, b)
	}
}

// hasLibsystemd says whether the sdjournal reader can be built.
func hasLibsystemd() bool { return exec.Command("pkg-config", "--exists", "libsystemd").Run() == nil }
