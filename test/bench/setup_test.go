//go:build bench

package bench

import (
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"sync"
	"testing"
	"time"
)

var (
	bounds = flag.Bool("bounds", false, "fail where a measurement is outside the bounds of docs/benchmarks.md")
	small  = flag.Bool("small", false, "use little data: shows only that the benchmarks run")
	data   = flag.String("data", "", "keep the generated journals in this directory and use them again")
)

// journalRemote is systemd-journal-remote, which makes journal files.
const journalRemote = "/lib/systemd/systemd-journal-remote"

// startupd builds the program once. The build has libsystemd where the tests do.
var startupd = sync.OnceValues(func() (string, error) {
	dir, err := os.MkdirTemp("", "startupd-bench-")
	if err != nil {
		return "", err
	}
	bin := filepath.Join(dir, "startupd")
	args := []string{"build", "-trimpath", "-ldflags=-s -w", "-o", bin}
	if exec.Command("pkg-config", "--exists", "libsystemd").Run() == nil {
		args = append(args, "-tags=sdjournal")
	}
	out, err := exec.Command("go", append(args, "github.com/startupd/startupd/cmd/startupd")...).CombinedOutput()
	if err != nil {
		return "", fmt.Errorf("go build: %w\n%s", err, out)
	}
	return bin, nil
})

func TestMain(m *testing.M) {
	flag.Parse()
	code := m.Run()
	if bin, err := startupd(); err == nil {
		os.RemoveAll(filepath.Dir(bin))
	}
	os.Exit(code)
}

// program returns the path of the built program.
func program(b *testing.B) string {
	b.Helper()
	bin, err := startupd()
	if err != nil {
		b.Fatal(err)
	}
	return bin
}

// sized returns full, or less where little data is wanted.
func sized(full, less int) int {
	if *small {
		return less
	}
	return full
}

// journal returns a directory with journal files of n lines of a mix.
func journal(b *testing.B, name string, n int, m mix) string {
	b.Helper()
	root := *data
	if root == "" {
		root = b.TempDir()
	}
	dir := filepath.Join(root, fmt.Sprintf("%s-%d", name, n))
	file := filepath.Join(dir, "bench.journal")
	if _, err := os.Stat(file); err == nil {
		return dir
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		b.Fatal(err)
	}
	// Made under another name, so that one that was broken off is not used again.
	making := filepath.Join(dir, "making", "bench.journal")
	if err := os.MkdirAll(filepath.Dir(making), 0o755); err != nil {
		b.Fatal(err)
	}
	if err := makeJournal(making, n, m); err != nil {
		b.Fatal(err)
	}
	files, err := filepath.Glob(filepath.Join(filepath.Dir(making), "*.journal"))
	if err != nil {
		b.Fatal(err)
	}
	for _, f := range files {
		if err := os.Rename(f, filepath.Join(dir, filepath.Base(f))); err != nil {
			b.Fatal(err)
		}
	}
	if err := os.Remove(filepath.Dir(making)); err != nil {
		b.Fatal(err)
	}
	return dir
}

// makeJournal pipes a mix through systemd-journal-remote.
func makeJournal(file string, n int, m mix) error {
	cmd := exec.Command(journalRemote, "--split-mode=none", "--output="+file, "-")
	cmd.Stderr = os.Stderr
	in, err := cmd.StdinPipe()
	if err != nil {
		return err
	}
	if err := cmd.Start(); err != nil {
		return fmt.Errorf("make deps installs %s: %w", journalRemote, err)
	}
	werr := writeExport(in, n, m)
	in.Close()
	if err := cmd.Wait(); err != nil {
		return fmt.Errorf("%v: %w", cmd.Args, err)
	}
	return werr
}

// wall runs a command and returns how long it took. Exit codes below 126 are
// answers: startupd's tell the outcome, grep's that nothing matched.
func wall(b *testing.B, command ...string) time.Duration {
	b.Helper()
	cmd := exec.Command(command[0], command[1:]...)
	cmd.Stderr = os.Stderr
	began := time.Now()
	err := cmd.Run()
	took := time.Since(began)
	if cmd.ProcessState == nil || cmd.ProcessState.ExitCode() < 0 || cmd.ProcessState.ExitCode() >= 126 {
		b.Fatalf("%v: %v", cmd.Args, err)
	}
	return took
}

func median(d []time.Duration) time.Duration {
	s := slices.Sorted(slices.Values(d))
	return s[len(s)/2]
}

// quantile returns the q-th quantile (0 to 1) of unsorted times.
func quantile(d []time.Duration, q float64) time.Duration {
	s := slices.Sorted(slices.Values(d))
	return s[min(len(s)-1, int(q*float64(len(s))))]
}

// atMost reports a measurement and holds it to its bound under -bounds.
func atMost(b *testing.B, name string, got, bound float64) {
	b.Helper()
	b.ReportMetric(got, name)
	if *bounds && got > bound {
		b.Errorf("%s is %.3g, the bound is at most %.3g", name, got, bound)
	}
}

// atLeast reports a measurement and holds it to its bound under -bounds.
func atLeast(b *testing.B, name string, got, bound float64) {
	b.Helper()
	b.ReportMetric(got, name)
	if *bounds && got < bound {
		b.Errorf("%s is %.3g, the bound is at least %.3g", name, got, bound)
	}
}
