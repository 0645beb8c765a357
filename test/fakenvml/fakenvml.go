// Package fakenvml owns a stand-in for NVIDIA's driver library: a C library
// that is named and loaded like libnvidia-ml.so.1 and answers from a text file.
// It builds the library and writes the file; it must not call NVML itself.
//
// The file's format is told in README.md and at the top of src/fakenvml.c.
package fakenvml

import (
	_ "embed"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
)

// EnvState names the environment variable in which the library finds the path
// of its state file.
const EnvState = "FAKE_NVML_STATE"

//go:embed src/fakenvml.c
var source string

// Build compiles the library into dir with gcc and returns its path, which ends
// in libnvidia-ml.so.1: give it as the library's path, or dir as
// LD_LIBRARY_PATH.
func Build(dir string) (string, error) { return build(dir) }

// BuildOld is Build for a library that lacks what old drivers lack: the second
// and third versions of calls, MIG and MPS.
func BuildOld(dir string) (string, error) { return build(dir, "-DOLD_DRIVER") }

func build(dir string, flags ...string) (string, error) {
	lib := filepath.Join(dir, "libnvidia-ml.so.1")
	args := append([]string{"-shared", "-fPIC", "-O1", "-Wall", "-Wextra", "-Werror", "-fvisibility=hidden",
		"-Wl,-soname,libnvidia-ml.so.1", "-o", lib, "-x", "c", "-"}, flags...)
	cmd := exec.Command("gcc", args...)
	cmd.Stdin = strings.NewReader(source)
	if out, err := cmd.CombinedOutput(); err != nil {
		return "", fmt.Errorf("build the fake NVML library in %s (is gcc installed?): %w\n%s", dir, err, out)
	}
	return lib, nil
}

// State is everything that the library answers.
type State struct {
	GPUs []GPU
	// Fail makes functions fail, Hang makes them never return.
	Fail []Fail
	Hang []Hang
}

// GPU is one device; its index is its place in State.GPUs.
type GPU struct {
	// UUID and Name may not hold a double quote; "" makes the call fail as not
	// supported.
	UUID, Name string
	// PCI is domain:bus:device in hex ("0000:3b:00"); "" makes the call fail as
	// not supported.
	PCI string
	// UsedBytes, TotalBytes and UtilizationPercent make their call fail as not
	// supported where they are nil.
	UsedBytes, TotalBytes *uint64
	UtilizationPercent    *int
	// MIG is nil where the GPU can't be partitioned.
	MIG *bool
	// MIGDevices are the indexes of its MIG devices.
	MIGDevices []int
	// Error makes all calls about this GPU fail ("GPU_IS_LOST"); "" is none.
	Error     string
	Processes []Process
}

// Process holds memory of a GPU.
type Process struct {
	PID int
	// UsedBytes is nil where the driver does not tell it.
	UsedBytes *uint64
	// Type is compute, graphics or mps; "" is compute.
	Type string
	// MIG is the MIG device that it runs on; nil for the GPU itself.
	MIG *int
}

// Fail makes an exported function fail with an NVML error named without its
// prefix ("DRIVER_NOT_LOADED").
type Fail struct {
	Function, Code string
	// GPU is nil for all of them.
	GPU *int
}

// Hang makes an exported function never return.
type Hang struct {
	Function string
	// GPU is nil for all of them.
	GPU *int
}

// String returns s in the library's format.
func (s State) String() string {
	var b strings.Builder
	for i, g := range s.GPUs {
		g.write(&b, i)
	}
	for _, f := range s.Fail {
		fmt.Fprintf(&b, "fail %s %s%s\n", f.Function, f.Code, suffix(f.GPU))
	}
	for _, h := range s.Hang {
		fmt.Fprintf(&b, "hang %s%s\n", h.Function, suffix(h.GPU))
	}
	return b.String()
}

func (g GPU) write(b *strings.Builder, index int) {
	fmt.Fprintf(b, `gpu %d uuid="%s" name="%s" used=%s total=%s util=%s`, index, g.UUID, g.Name,
		number(g.UsedBytes), number(g.TotalBytes), number(g.UtilizationPercent))
	if g.PCI != "" {
		fmt.Fprintf(b, " pci=%s", g.PCI)
	}
	if g.MIG != nil {
		fmt.Fprintf(b, " mig=%d", map[bool]int{true: 1}[*g.MIG])
	}
	if g.Error != "" {
		fmt.Fprintf(b, " error=%s", g.Error)
	}
	b.WriteByte('\n')
	for _, m := range g.MIGDevices {
		fmt.Fprintf(b, "mig %d %d\n", index, m)
	}
	for _, p := range g.Processes {
		fmt.Fprintf(b, "proc %d pid=%d used=%s", index, p.PID, number(p.UsedBytes))
		if p.Type != "" {
			fmt.Fprintf(b, " type=%s", p.Type)
		}
		if p.MIG != nil {
			fmt.Fprintf(b, " mig=%d", *p.MIG)
		}
		b.WriteByte('\n')
	}
}

func number[T int | uint64](n *T) string {
	if n == nil {
		return "-"
	}
	return fmt.Sprint(*n)
}

func suffix(gpu *int) string {
	if gpu == nil {
		return ""
	}
	return fmt.Sprintf(" %d", *gpu)
}

// WriteFile puts s into path at once: a library that reads it meanwhile sees
// the old state or the new one.
func WriteFile(path string, s State) error {
	tmp, err := os.CreateTemp(filepath.Dir(path), ".fakenvml-*")
	if err != nil {
		return fmt.Errorf("fake NVML state: %w", err)
	}
	_, err = tmp.WriteString(s.String())
	if err == nil {
		// A watched daemon reads it as another user.
		err = tmp.Chmod(0o644)
	}
	if cerr := tmp.Close(); err == nil {
		err = cerr
	}
	if err == nil {
		err = os.Rename(tmp.Name(), path)
	}
	if err != nil {
		_ = os.Remove(tmp.Name())
		return fmt.Errorf("fake NVML state: %w", err)
	}
	return nil
}
