// Package scenario owns the scenario files of the simulated engine: what its
// processes print and when, what memory they hold, when it serves and how it
// ends. It reads them and expands them to a plan that can be played for real
// (test/engine/simengine) or written down as a recording (test/engine/record).
//
// All of an engine's wording stands in the files, none of it here. The package
// starts no process, reads no clock and waits for nothing.
package scenario

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"
	"time"

	"go.yaml.in/yaml/v3"
)

// File is a scenario: what happens at each start of a unit.
type File struct {
	Name    string `yaml:"name"`
	Summary string `yaml:"summary"`
	// Unit, Command and RestartSec serve recordings only: where the scenario is
	// played for real, they are the unit file's.
	Unit       string   `yaml:"unit"`
	Command    string   `yaml:"command"`
	RestartSec Duration `yaml:"restart_sec"`
	Format     Format   `yaml:"format"`
	GPUs       GPUs     `yaml:"gpus"`
	// Starts are played in turn, one at each start of the unit; the last one is
	// repeated.
	Starts []Start `yaml:"starts"`
}

// Format is how the engine's processes print.
type Format struct {
	// Prefix stands before every line of a process that has one; {name} and
	// {pid} are replaced.
	Prefix string `yaml:"prefix"`
	// Log is a line of the engine's logger: {level}, {time} and {src}, with {text}
	// at its end.
	Log string `yaml:"log"`
	// Time is {time} as a Go time layout.
	Time string `yaml:"time"`
}

// GPUs are the host's devices.
type GPUs struct {
	Count int    `yaml:"count"`
	Name  string `yaml:"name"`
	Total Bytes  `yaml:"total"`
	// Idle is what a device uses with no process on it.
	Idle Bytes `yaml:"idle"`
}

// Start is one start of the unit. All its times count from its beginning.
type Start struct {
	Name      string    `yaml:"name"`
	Processes []Process `yaml:"processes"`
	Memory    []Memory  `yaml:"memory"`
	Script    []Item    `yaml:"script"`
	// Ready is when /health begins to listen and answers 200; 0 is never.
	Ready Duration `yaml:"ready"`
	// Exit ends the main process; nil: it runs until it is stopped.
	Exit *Exit `yaml:"exit"`
	// Stop is what a SIGTERM does before Ready, StopServing after it. nil: the
	// signal kills at once.
	Stop        *Stop `yaml:"stop"`
	StopServing *Stop `yaml:"stop_serving"`
	// Taken is played instead of the start where another process listens on the
	// address that the engine is to serve; its times count from the beginning. nil:
	// the simulated engine itself is in error.
	Taken *Stop `yaml:"taken"`
}

// Process is a process of the engine, or a family of equal ones.
type Process struct {
	// Name stands in the prefix; {i} is the index within the family.
	Name string `yaml:"name"`
	// Count is the size of the family; 0 is a single process.
	Count int `yaml:"count"`
	// Title is the process title; "" keeps the command line.
	Title string `yaml:"title"`
	// Main is the unit's main process: exactly one has it, and it begins at 0.
	Main  bool     `yaml:"main"`
	Begin Duration `yaml:"begin"`
	// End ends the process before the main one does; nil: it ends with it.
	End *Exit `yaml:"end"`
}

// Exit is the end of a process.
type Exit struct {
	At   Duration `yaml:"at"`
	Code int      `yaml:"code"`
	// Signal kills it (KILL, SEGV...) instead of an exit; "" exits with Code.
	Signal string `yaml:"signal"`
	// Allocate is host memory that the process takes and touches, for the kernel to
	// kill it by the limit of its control group; Signal is KILL then. 0 takes none,
	// and the process sends the signal to itself.
	Allocate Bytes `yaml:"allocate"`
	// Fault makes the kernel send the signal, which is BUS then: the process reads a
	// mapped page that its file has no longer, as of a /dev/shm that is full.
	Fault bool `yaml:"fault"`
}

// check says what of an exit could not be played.
func (e *Exit) check() error {
	switch {
	case e == nil:
		return nil
	case e.Allocate > 0 && e.Signal != "KILL":
		return errors.New("exit: allocate is for the kernel's kill; give signal: KILL")
	case e.Fault && e.Signal != "BUS":
		return errors.New("exit: fault is a bus error; give signal: BUS")
	}
	return nil
}

// Memory is the device memory that a process holds.
type Memory struct {
	// By is a process or a family; process i of a family is on GPU i.
	By string `yaml:"by"`
	// Used is a curve, linear between its points, flat after the last.
	Used []Point `yaml:"used"`
	// Utilization is the percentage of the GPU's time.
	Utilization []Level `yaml:"utilization"`
}

// Point is one of a curve of bytes.
type Point struct {
	At    Duration `yaml:"at"`
	Bytes Bytes    `yaml:"bytes"`
}

// Level is a percentage from a moment on.
type Level struct {
	At      Duration `yaml:"at"`
	Percent int      `yaml:"percent"`
}

// Stop is the reaction to SIGTERM (its script's times count from the signal), or
// to an address that is taken.
type Stop struct {
	Script []Item `yaml:"script"`
	Exit   Exit   `yaml:"exit"`
}

// Item is something printed. Exactly one of Say, Log and Bar is set. In a text
// {pid} is the process, {i} its index in the family, {port} the port that the
// engine will serve, {time} the format's time and {iso} a full local time with
// milliseconds.
type Item struct {
	At Duration `yaml:"at"`
	// By is a process, or a family ("Worker_TP{i}"): each of it prints.
	By string `yaml:"by"`
	// Stagger delays process i of a family by i times this.
	Stagger Duration `yaml:"stagger"`
	// Bare omits the process prefix.
	Bare bool   `yaml:"bare"`
	Say  string `yaml:"say"`
	Log  *Log   `yaml:"log"`
	Bar  *Bar   `yaml:"bar"`
}

// Log is a record of the engine's logger; each line of Text gets the header.
type Log struct {
	Level string `yaml:"level"`
	Src   string `yaml:"src"`
	Text  string `yaml:"text"`
}

// Bar is a progress bar from its item's At to Until.
type Bar struct {
	Until Duration `yaml:"until"`
	Total int      `yaml:"total"`
	// Text has {pct}, {n}, {total}, {bar}, {elapsed}, {remaining} and {rate}.
	Text string `yaml:"text"`
	// Redraw makes one line that redraws itself with carriage returns. Otherwise
	// every state is a line of its own, with a carriage return before it.
	Redraw bool `yaml:"redraw"`
}

// Load reads a scenario file.
func Load(path string) (*File, error) {
	b, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	f, err := Parse(b)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	return f, nil
}

// Parse reads a scenario. It refuses unknown fields and anything that could
// not be played.
func Parse(b []byte) (*File, error) {
	var f File
	d := yaml.NewDecoder(bytes.NewReader(b))
	d.KnownFields(true)
	if err := d.Decode(&f); err != nil {
		return nil, err
	}
	if len(f.Starts) == 0 {
		return nil, fmt.Errorf("scenario %q has no starts", f.Name)
	}
	for i := range f.Starts {
		if _, err := f.Plan(i); err != nil {
			return nil, err
		}
	}
	return &f, nil
}

// Duration is a time span written as Go writes it (9m12s).
type Duration time.Duration

// UnmarshalText implements encoding.TextUnmarshaler.
func (d *Duration) UnmarshalText(b []byte) error {
	v, err := time.ParseDuration(string(b))
	*d = Duration(v)
	return err
}

// Bytes is a size written as 73.7GiB.
type Bytes uint64

// UnmarshalText implements encoding.TextUnmarshaler.
func (n *Bytes) UnmarshalText(b []byte) error {
	v, err := ParseBytes(string(b))
	*n = Bytes(v)
	return err
}

// ParseBytes reads a size such as 73.7GiB, 512MiB or 0.
func ParseBytes(s string) (uint64, error) {
	number, unit := s, 1.0
	for _, u := range []struct {
		suffix string
		bytes  float64
	}{{"GiB", 1 << 30}, {"MiB", 1 << 20}, {"KiB", 1 << 10}} {
		if cut, ok := strings.CutSuffix(s, u.suffix); ok {
			number, unit = cut, u.bytes
		}
	}
	v, err := strconv.ParseFloat(number, 64)
	if err != nil || v < 0 {
		return 0, fmt.Errorf("size %q: write it like 73.7GiB", s)
	}
	return uint64(v * unit), nil
}

// UUID is the made-up identity of GPU i.
func UUID(i int) string { return fmt.Sprintf("GPU-5eed0000-0000-4000-8000-%012x", i) }
