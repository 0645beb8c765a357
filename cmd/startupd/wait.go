package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"path"
	"regexp"
	"strings"
	"syscall"
	"time"

	"github.com/alecthomas/kingpin/v2"
	"github.com/coreos/go-systemd/v22/daemon"
	"go.uber.org/zap"
	"golang.org/x/term"

	"github.com/startupd/startupd/internal/app"
	"github.com/startupd/startupd/internal/app/explain"
	"github.com/startupd/startupd/internal/app/observe"
	"github.com/startupd/startupd/internal/app/wait"
	"github.com/startupd/startupd/pkg/phases"
	"github.com/startupd/startupd/pkg/web/api"
	"github.com/startupd/startupd/pkg/web/client"
)

// exitTimeout: the start still runs, and the time for it is over.
const exitTimeout = 3

// daemonSocket is the daemon's. RUNTIME_DIRECTORY does not name it here: in an
// ExecStartPost= it is the watched unit's.
const daemonSocket = "/run/startupd/api.sock"

type waitFlags struct {
	unit, phase, invocation  string
	timeout, startTimeout    time.Duration
	socket, profiles, format string
	quiet                    bool
	journal                  journalFlags
	std                      streams
}

func waitCommand(cli *kingpin.Application, std streams) command {
	f := &waitFlags{std: std}
	cmd := cli.Command("wait", "Wait until a unit's present start serves, or fails, or stalls; for scripts, and for ExecStartPost= in the unit itself.")
	cmd.Arg("UNIT", "Unit to wait for.").Required().StringVar(&f.unit)
	var names []string
	for _, p := range phases.Phases() {
		names = append(names, string(p))
	}
	cmd.Flag("for", "Phase to wait for: "+strings.Join(names, ", ")+".").Default(string(phases.Serving)).EnumVar(&f.phase, names...)
	cmd.Flag("timeout", "How long to wait at most, such as 20m; 0 waits for ever.").Default("20m").DurationVar(&f.timeout)
	cmd.Flag("start-timeout", "How long to wait for a start while the unit does not run.").Default("10s").DurationVar(&f.startTimeout)
	cmd.Flag("invocation", "Invocation ID to wait for, instead of the unit's present one.").PlaceHolder("ID").StringVar(&f.invocation)
	cmd.Flag("api.socket", "Unix socket of the daemon; empty asks none, and follows the journal here.").Default(daemonSocket).StringVar(&f.socket)
	f.journal = addJournalFlags(cmd)
	cmd.Flag("profile.dir", "Directory of YAML profiles that add to the built-in ones; without a daemon.").PlaceHolder("DIR").StringVar(&f.profiles)
	cmd.Flag("format", "text for people, json for programs.").Default("text").EnumVar(&f.format, "text", "json")
	cmd.Flag("quiet", "Show no progress, only the result.").Short('q').BoolVar(&f.quiet)
	return command{name: cmd.FullCommand(), run: f.run}
}

func (f *waitFlags) run(ctx context.Context) error {
	if err := f.check(); err != nil {
		return &exitError{exitUsage, err}
	}
	set, err := app.LoadProfiles(f.profiles)
	if err != nil {
		return err
	}
	self, err := os.Executable()
	if err != nil {
		return err
	}
	collectAt(200) // somebody waits for it
	systemd := &wait.Systemd{}
	defer systemd.Close()
	f.ownName(ctx, systemd)
	signals := make(chan os.Signal, 4)
	signal.Notify(signals, syscall.SIGTERM, syscall.SIGINT, syscall.SIGHUP)
	defer signal.Stop(signals)
	show := f.progress()
	o := wait.Options{
		Unit: f.unit, For: phases.State(f.phase), Invocation: f.invocation, Timeout: f.timeout, StartTimeout: f.startTimeout,
		Signals: signals, Progress: show,
		Past: func(ctx context.Context, invocation string) (*api.Startup, error) {
			if s := f.kept(ctx, invocation); s != nil {
				return s, nil
			}
			return wait.Past(ctx, f.journal.reading(self), set.Profiles(), f.unit, invocation)
		},
	}
	f.present(ctx, &o, systemd)
	view := observe.Options{Socket: f.socket, Units: []string{f.unit}, Own: f.own, Note: show.Note}
	if *f.journal.dir != "" {
		view.Socket = "" // the daemon knows this host's journal, not a copy
	}
	o.Observe = func(ctx context.Context, see func(observe.Update) error) error { return observe.Run(ctx, view, see) }
	r := wait.Run(ctx, o)
	show.Clear()
	if err := f.print(r); err != nil {
		// What came out counts all the same: a full disk is no failed start.
		return &exitError{codeOf(r), fmt.Errorf("the result can't be printed: %w", err)}
	}
	return verdictOf(r)
}

// ownName replaces an alias by the unit's own name: the journal and the daemon
// know no other.
func (f *waitFlags) ownName(ctx context.Context, systemd *wait.Systemd) {
	if *f.journal.dir != "" {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, time.Second)
	defer cancel()
	if u := systemd.Unit(ctx, f.unit); u.Loaded && u.Name != "" {
		f.unit = u.Name
	}
}

// present says how the invocation is found that is meant. A command of the unit
// itself has it in its environment.
func (f *waitFlags) present(ctx context.Context, o *wait.Options, systemd *wait.Systemd) {
	if *f.journal.dir != "" {
		return
	}
	own := os.Getenv("INVOCATION_ID")
	o.Inside = own != "" && own == systemd.Invocation(f.unit)
	if o.Invocation == "" && o.Inside {
		o.Invocation = own
	}
	o.Manager = func(ctx context.Context) wait.Unit { return systemd.Unit(ctx, f.unit) }
	if !o.Inside || os.Getenv("NOTIFY_SOCKET") == "" {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, time.Second)
	defer cancel()
	// A unit that takes the main process's word alone logs each other one's.
	if systemd.Unit(ctx, f.unit).Status {
		// What fails to be shown is printed all the same.
		o.Tell = func(text string) { _, _ = daemon.SdNotify(false, "STATUS="+text) }
	}
}

func (f *waitFlags) check() error {
	f.unit = app.UnitName(f.unit)
	stem := strings.TrimSuffix(f.unit, path.Ext(f.unit))
	switch {
	case !regexp.MustCompile(`^[A-Za-z0-9:_.\\@-]+$`).MatchString(stem):
		return fmt.Errorf("%q is no name of one unit: wait takes one, such as llm.service", f.unit)
	case strings.HasSuffix(stem, "@"):
		return fmt.Errorf("%s is a template: wait takes one of its units, such as %s", f.unit, stem+"0"+path.Ext(f.unit))
	case f.timeout < 0 || f.startTimeout < 0:
		return errors.New("--timeout and --start-timeout must not be negative")
	case f.invocation != "" && !regexp.MustCompile(`^([0-9a-f]{32}|[0-9a-f]{64})$`).MatchString(f.invocation):
		return fmt.Errorf("--invocation %q is no invocation ID of 32 hex digits: `systemctl show --property=InvocationID %s` tells the present one", f.invocation, f.unit)
	}
	return nil
}

// own is a core in this process, for one unit and without GPUs: the log tells
// enough, and NVML takes its time.
func (f *waitFlags) own(units []string) (app.Options, error) {
	clock, err := app.SystemClock()
	if err != nil {
		return app.Options{}, err
	}
	self, err := os.Executable()
	if err != nil {
		return app.Options{}, err
	}
	v, r := build()
	return app.Options{
		Units: units, ProfileDir: f.profiles, Journal: f.journal.reading(self), NoGPU: true,
		Log: zap.NewNop(), Clock: clock, Version: v, Revision: r,
	}, nil
}

// kept asks the daemon for a start that is over; nil when it does not know it.
func (f *waitFlags) kept(ctx context.Context, invocation string) *api.Startup {
	if f.socket == "" || *f.journal.dir != "" {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, 3*time.Second)
	defer cancel()
	c := client.New(client.Options{Socket: f.socket})
	defer c.Close()
	s, err := c.Startup(ctx, f.unit, invocation)
	if err != nil {
		return nil // the journal is asked next
	}
	return s
}

// progress is what shows a wait.
type progress interface {
	wait.Progress
	Note(text string)
	Clear()
}

type noProgress struct{}

func (noProgress) Show(*api.Startup, time.Time) {}
func (noProgress) Note(string)                  {}
func (noProgress) Clear()                       {}

// lineProgress needs no clearing.
type lineProgress struct{ *wait.Lines }

func (lineProgress) Clear() {}

func (f *waitFlags) progress() progress {
	if f.quiet || f.format == "json" {
		return noProgress{}
	}
	width, color := terminal(f.std.out)
	if width == 0 || os.Getenv("TERM") == "dumb" {
		return lineProgress{&wait.Lines{Out: f.std.out, Unit: f.unit}}
	}
	return &wait.Bar{Out: f.std.out, Unit: f.unit, Color: color, Width: func() int { return columnsOf(f.std.out, width) }}
}

// columnsOf is how wide a terminal is now.
func columnsOf(w io.Writer, otherwise int) int {
	file, ok := w.(*os.File)
	if !ok {
		return otherwise
	}
	if n, _, err := term.GetSize(int(file.Fd())); err == nil && n > 0 {
		return n
	}
	return otherwise
}

func (f *waitFlags) print(r *wait.Result) error {
	if f.format == "json" {
		enc := json.NewEncoder(f.std.out)
		enc.SetEscapeHTML(false)
		enc.SetIndent("", "  ")
		return enc.Encode(r)
	}
	width, color := terminal(f.std.out)
	if width == 0 {
		return r.WriteLines(f.std.out)
	}
	return r.WriteText(f.std.out, explain.TextOptions{Width: width, Color: color, JournalDir: *f.journal.dir})
}

// verdictOf turns a verdict into the command's end. What it means is printed
// already.
func verdictOf(r *wait.Result) error {
	switch r.Verdict {
	case wait.Reached:
		return nil
	case wait.NoUnit:
		return &exitError{exitUsage, fmt.Errorf("systemd knows no unit %s: `systemctl list-units --type=service` lists those that are loaded", r.Unit)}
	}
	return &exitError{code: codeOf(r)}
}

// codeOf is the exit code of a verdict.
func codeOf(r *wait.Result) int {
	switch r.Verdict {
	case wait.Reached:
		return 0
	case wait.Failed, wait.Stopped:
		return exitFailed
	case wait.TimedOut:
		return exitTimeout
	case wait.Stalled:
		return exitStalled
	case wait.NoUnit:
		return exitUsage
	}
	return exitUnknown
}
