package nspawn

import (
	"fmt"
	"io/fs"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
)

// prefix begins the name of every container; its owner's process ID follows.
const prefix = "e2e-"

// newName names a container of this process, which may have several.
func newName() string { return fmt.Sprintf("%s%d-%08x", prefix, os.Getpid(), rand.Uint32()) }

// groups are the control groups of the containers of a name, in every
// hierarchy.
func groups(pattern string) []string {
	found, _ := filepath.Glob("/sys/fs/cgroup/startupd-" + pattern)
	below, _ := filepath.Glob("/sys/fs/cgroup/*/startupd-" + pattern)
	return append(found, below...)
}

// removeGroups removes a container's control groups. It touches none of a
// hierarchy while one still has a process.
func removeGroups(name string) error {
	for _, root := range groups(name) {
		var dirs []string
		if err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
			if err != nil || !d.IsDir() {
				return err
			}
			dirs = append(dirs, path)
			procs, err := os.ReadFile(filepath.Join(path, "cgroup.procs"))
			if err == nil && len(procs) > 0 {
				err = fmt.Errorf("control group %s has processes: %s", path, strings.Fields(string(procs)))
			}
			return err
		}); err != nil {
			return err
		}
		for _, dir := range slices.Backward(dirs) {
			if err := syscall.Rmdir(dir); err != nil {
				return fmt.Errorf("control group %s: %w", dir, err)
			}
		}
	}
	return nil
}

// sweep removes the control groups of processes that were killed.
func sweep(tb testing.TB) {
	for _, dir := range groups(prefix + "*") {
		name := strings.TrimPrefix(filepath.Base(dir), "startupd-")
		owner, _, _ := strings.Cut(strings.TrimPrefix(name, prefix), "-")
		if _, err := os.Stat("/proc/" + owner); err == nil {
			continue
		}
		if err := removeGroups(name); err != nil {
			tb.Logf("left behind by an earlier run: %v", err)
		}
	}
}
