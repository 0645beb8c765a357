package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"runtime/debug"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/alecthomas/kingpin/v2"

	"github.com/startupd/startupd/internal/app"
	"github.com/startupd/startupd/pkg/event"
	"github.com/startupd/startupd/pkg/gpu"
	"github.com/startupd/startupd/pkg/history"
	"github.com/startupd/startupd/pkg/preflight"
	"github.com/startupd/startupd/pkg/profile"
	"github.com/startupd/startupd/pkg/unit"
)

// exitHeld: --wait ran out, and what is missing may still come.
const exitHeld = 3

type preflightFlags struct {
	unit                            string
	argv                            []string
	wait, poll, timeout             time.Duration
	config, profiles, state, format string
	gpu, blindly                    bool
	nvml                            string
	std                             streams
}

func preflightCommand(cli *kingpin.Application, std streams) command {
	f := &preflightFlags{std: std}
	cmd := cli.Command("preflight", "Tell whether this host is fit for a unit's start: GPUs and their memory, port, disks, packages.")
	cmd.Arg("UNIT", "Unit that will be started.").StringVar(&f.unit)
	cmd.Arg("COMMAND", "The engine's command behind --, in place of the unit's.").StringsVar(&f.argv)
	cmd.Flag("wait", "How long to wait for GPU memory and the port to become free, such as 60s.").Default("0s").DurationVar(&f.wait)
	cmd.Flag("poll", "Time between two looks while waiting.").Default("2s").DurationVar(&f.poll)
	cmd.Flag("timeout", "How long systemd and the GPU driver may take to answer.").Default("30s").DurationVar(&f.timeout)
	cmd.Flag("config.file", "The daemon's configuration, for expected_weights.").PlaceHolder("FILE").StringVar(&f.config)
	cmd.Flag("profile.dir", "Directory of YAML profiles that add to the built-in ones.").PlaceHolder("DIR").StringVar(&f.profiles)
	cmd.Flag("state.dir", "Directory with the daemon's history, for the weights of the last good start; empty looks at none.").
		Default("/var/lib/startupd").StringVar(&f.state) // $STATE_DIRECTORY is the unit's own here
	cmd.Flag("gpu", "Look at GPUs over NVML.").Default("true").BoolVar(&f.gpu)
	cmd.Flag("gpu.nvml-library", "Path of libnvidia-ml.so.1, where the dynamic loader does not find it.").PlaceHolder("FILE").StringVar(&f.nvml)
	cmd.Flag("allow-unknown", "Exit 0 where nothing could be told, so that as ExecStartPre= it does not stop the start.").BoolVar(&f.blindly)
	cmd.Flag("format", "text for people, json for programs.").Default("text").EnumVar(&f.format, "text", "json")
	return command{name: cmd.FullCommand(), run: f.run}
}

func (f *preflightFlags) run(ctx context.Context) error {
	if err := f.check(); err != nil {
		return &exitError{exitUsage, err}
	}
	set, err := app.LoadProfiles(f.profiles)
	if err != nil {
		return err
	}
	o, err := f.options(ctx, set)
	if err != nil {
		return err
	}
	ctx, stop := signal.NotifyContext(ctx, syscall.SIGINT, syscall.SIGTERM)
	defer stop()
	if f.gpu {
		look, end, err := f.lookAtGPUs(ctx)
		if err != nil {
			return &exitError{exitUnknown, fmt.Errorf("the GPUs can't be looked at: %w", err)}
		}
		defer end()
		once := sync.OnceValues(func() ([]string, error) { return driverLines(ctx) })
		o.GPUs, o.KernelLog = look, func(context.Context) ([]string, error) { return once() }
	}
	report, err := f.bounded(func() *preflight.Report { return preflight.Run(ctx, o) })
	if err == nil {
		err = f.print(report)
	}
	if err != nil {
		return err
	}
	return f.verdict(report)
}

// bounded gives the whole check up where a call into a file system does not
// return: nothing else ends it.
func (f *preflightFlags) bounded(run func() *preflight.Report) (*preflight.Report, error) {
	reports := make(chan *preflight.Report, 1)
	go func() { reports <- run() }()
	timer := time.NewTimer(f.wait + 3*f.timeout)
	defer timer.Stop()
	select {
	case r := <-reports:
		return r, nil
	case <-timer.C:
	}
	code := exitUnknown
	if f.blindly {
		code = 0
	}
	return nil, &exitError{code, fmt.Errorf("no answer within %v: a file system that the unit uses may hang; look at network mounts and at processes in state D", f.wait+3*f.timeout)}
}

func (f *preflightFlags) verdict(report *preflight.Report) error {
	switch report.Verdict {
	case preflight.NotFit:
		return &exitError{code: exitFailed}
	case preflight.Held:
		return &exitError{code: exitHeld}
	case preflight.CannotTell:
		if !f.blindly {
			return &exitError{code: exitUnknown}
		}
	case preflight.Fit:
	}
	return nil
}

func (f *preflightFlags) check() error {
	// Words behind -- are the command's, also the first of them.
	if f.unit != "" && isCommand(f.unit) {
		f.argv, f.unit = append([]string{f.unit}, f.argv...), ""
	}
	switch {
	case f.unit == "" && len(f.argv) == 0:
		return errors.New("preflight of what? name a unit, or the engine's command behind --")
	case strings.ContainsAny(f.unit, "*?["):
		return fmt.Errorf("%s names several units: preflight takes one", f.unit)
	case f.wait < 0 || f.poll <= 0 || f.timeout <= 0:
		return errors.New("--wait must not be negative, and --poll and --timeout must be more than 0")
	}
	return nil
}

// isCommand says that the first word is no unit's name but the command itself.
func isCommand(word string) bool {
	at := slices.Index(os.Args, "--")
	return at >= 0 && at+1 < len(os.Args) && os.Args[at+1] == word && !slices.Contains(os.Args[:at], word)
}

func (f *preflightFlags) options(ctx context.Context, set *profile.Set) (preflight.Options, error) {
	o := preflight.Options{
		Profiles: set.Profiles(), System: preflight.Host(), Argv: f.argv, Environ: os.Environ(),
		Units: f.lookUp, Wait: f.wait, Poll: f.poll, Progress: f.progress,
	}
	if f.unit == "" {
		dir, err := os.Getwd()
		if err != nil {
			return o, fmt.Errorf("the working directory: %w", err)
		}
		o.Dir = dir
		return o, nil
	}
	o.Unit = app.UnitName(f.unit)
	if f.config != "" {
		var engines []string
		for _, p := range set.Profiles() {
			engines = append(engines, p.Engine)
		}
		targets, err := app.LoadTargets(nil, f.config, engines)
		if err != nil {
			return o, err
		}
		for _, t := range targets {
			if t.Unit == o.Unit && t.WeightBytes != nil {
				o.WeightBytes, o.WeightsFrom = t.WeightBytes, "expected_weights"
			}
		}
	}
	if f.state != "" {
		o.LastWeights = lastWeights(ctx, f.state, o.Unit)
	}
	return o, nil
}

// lastWeights is the weights' size in the last good start that the daemon has
// kept; a history that can't be read tells nothing.
func lastWeights(ctx context.Context, dir, unit string) *preflight.Weights {
	ctx, cancel := context.WithTimeout(ctx, historyWait)
	defer cancel()
	records, err := history.In(dir, history.Limits{}).List(ctx, unit, 0)
	if err != nil {
		return nil
	}
	var best *history.Record
	for i := range records {
		r := &records[i]
		if r.Outcome == "serving" && r.WeightBytes != nil && (best == nil || r.Began.After(best.Began)) {
			best = r
		}
	}
	if best == nil {
		return nil
	}
	return &preflight.Weights{Bytes: *best.WeightBytes, Model: best.Model, From: "the start of " + best.Began.Format(time.DateOnly)}
}

// lookUp asks systemd for a unit, over the bus or else by systemctl.
func (f *preflightFlags) lookUp(ctx context.Context, name string) (*preflight.Unit, error) {
	ctx, cancel := context.WithTimeout(ctx, f.timeout)
	defer cancel()
	conn, err := unit.DialSystem(ctx, func(string) bool { return false })
	if err == nil {
		var props map[string]any
		if props, err = conn.Properties(ctx, name); err == nil {
			return preflight.UnitFromProperties(name, props), nil
		}
	}
	cmd := exec.CommandContext(ctx, hostProgram("systemctl"), "show", "--property="+preflight.ShowProperties(), "--", name)
	cmd.WaitDelay = time.Second
	out, again := cmd.Output()
	if again != nil {
		if exit := (*exec.ExitError)(nil); errors.As(again, &exit) && len(exit.Stderr) > 0 {
			again = errors.New(strings.Join(strings.Fields(string(exit.Stderr)), " "))
		}
		return nil, fmt.Errorf("%w, and systemctl show: %w", err, again)
	}
	return preflight.UnitFromShow(name, string(out)), nil
}

// hostProgram is where a program of the host's lies. PATH comes last: before a start it
// is the unit's own, whose folders may belong to a user with fewer rights.
func hostProgram(name string) string {
	for _, dir := range []string{"/usr/bin", "/bin", "/run/current-system/sw/bin"} {
		file := filepath.Join(dir, name)
		if info, err := os.Stat(file); err == nil && info.Mode().IsRegular() && info.Mode()&0o111 != 0 {
			return file
		}
	}
	return name
}

// lookAtGPUs starts the GPU reader. end stops it and waits for its end.
func (f *preflightFlags) lookAtGPUs(ctx context.Context) (look func(context.Context) preflight.GPULook, end func(), err error) {
	clock, err := app.SystemClock()
	if err != nil {
		return nil, nil, err
	}
	self, err := os.Executable()
	if err != nil {
		return nil, nil, err
	}
	reader := []string{self, "gpu-reader"}
	if f.nvml != "" {
		reader = append(reader, "--gpu.nvml-library="+f.nvml)
	}
	ctx, cancel := context.WithCancel(ctx)
	w, done := &gpuWatch{first: make(chan struct{})}, make(chan struct{})
	source := gpu.New(gpu.Options{Command: reader, Clock: clock, Interval: time.Second, Timeout: f.timeout, InitTimeout: f.timeout})
	go func() {
		defer close(done)
		_ = source.Run(ctx, w.take)
	}()
	return w.look, func() { cancel(); <-done }, nil
}

// driverLines are the GPU driver's lines in the kernel's log of the last hour. It
// is read once: a fault does not go while somebody waits.
func driverLines(ctx context.Context) ([]string, error) {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	var warned strings.Builder
	cmd := exec.CommandContext(ctx, hostProgram("journalctl"), "--dmesg", "--since=-1h", "--lines=10000", "--no-pager", "--output=cat")
	cmd.Stderr = &warned
	out, err := cmd.Output()
	if strings.Contains(warned.String(), "insufficient permissions") || strings.Contains(warned.String(), "not seeing messages") {
		return nil, errors.New("no right to read the kernel's log")
	}
	if err != nil {
		return nil, fmt.Errorf("journalctl: %w", err)
	}
	var lines []string
	for line := range strings.Lines(string(out)) {
		if strings.HasPrefix(line, "NVRM:") {
			lines = append(lines, strings.TrimSpace(line))
		}
	}
	return lines, nil
}

// gpuWatch keeps the newest that the source has told.
type gpuWatch struct {
	first chan struct{}

	mu     sync.Mutex
	newest preflight.GPULook
	begun  bool
}

// look waits for the first look, and then returns the newest.
func (w *gpuWatch) look(ctx context.Context) preflight.GPULook {
	select {
	case <-w.first:
	case <-ctx.Done():
		return preflight.GPULook{Reason: "the look at the GPUs was broken off", Blind: true}
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.newest
}

// take is the source's consumer. A state without a sample means that nothing is
// seen any more.
func (w *gpuWatch) take(_ context.Context, events []event.Event) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.newest.GPUs = nil
	for _, e := range events {
		switch d := e.Data.(type) {
		case *event.SourceState:
			w.newest.State, w.newest.Reason, w.newest.Blind = d.State, d.Reason, blind(d)
			w.newest.NoDriver = d.State == gpu.StateNoDriver
		case *event.GPUSample:
			w.newest.GPUs = d.GPUs
		}
	}
	if !w.begun {
		w.begun = true
		close(w.first)
	}
	return nil
}

// blind says that a state without GPUs tells of us and not of the host.
func blind(s *event.SourceState) bool {
	if s.State == gpu.StateRestarting || s.State == gpu.StateHung {
		// A driver without persistence mode can take longer than our patience.
		return true
	}
	if info, ok := debug.ReadBuildInfo(); ok {
		for _, b := range info.Settings {
			if b.Key == "CGO_ENABLED" && b.Value == "0" {
				return true
			}
		}
	}
	// A user that is not the unit's own may lack a right that the unit has.
	return s.State == gpu.StateDriverError && os.Getuid() != 0 && os.Getenv("INVOCATION_ID") == ""
}

// progress prints what is still missing; standard output is for the report.
func (f *preflightFlags) progress(text string) {
	fmt.Fprintf(f.std.err, "startupd: waiting: %s\n", visible(text))
}

func (f *preflightFlags) print(r *preflight.Report) error {
	if f.format == "json" {
		enc := json.NewEncoder(f.std.out)
		enc.SetEscapeHTML(false)
		enc.SetIndent("", "  ")
		return enc.Encode(r)
	}
	width, color := terminal(f.std.out)
	return writePreflight(f.std.out, r, textStyle{width: width, color: color, own: os.Getenv("JOURNAL_STREAM") != "" && width == 0})
}
