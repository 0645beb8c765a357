package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/alecthomas/kingpin/v2"

	"github.com/startupd/startupd/internal/app"
	"github.com/startupd/startupd/internal/app/explain"
	"github.com/startupd/startupd/pkg/event"
	"github.com/startupd/startupd/pkg/journal"
)

// stdin is the file that - stands for.
const stdin = "/dev/stdin"

type explainFlags struct {
	file, unit, invocation string
	journal                journalFlags
	profiles, format       string
	elapsed                time.Duration
	std                    streams
}

func explainCommand(cli *kingpin.Application, std streams) command {
	f := &explainFlags{std: std}
	cmd := cli.Command("explain", "Explain the starts that a log, an export file or the journal tells of.")
	cmd.Arg("FILE", "Log as plain text, or made by `journalctl -o export`; - is standard input.").StringVar(&f.file)
	cmd.Flag("unit", "Unit whose entries are read: from the journal, or from an export file that holds several.").PlaceHolder("UNIT").StringVar(&f.unit)
	cmd.Flag("invocation", "Invocation ID, or 0 for the newest, -1 for the one before it, and so on; all by default.").PlaceHolder("N").StringVar(&f.invocation)
	f.journal = addJournalFlags(cmd)
	cmd.Flag("elapsed", "Judge as seen that long after the last start began, such as 30m.").PlaceHolder("DURATION").DurationVar(&f.elapsed)
	cmd.Flag("profile.dir", "Directory of YAML profiles that add to the built-in ones.").PlaceHolder("DIR").StringVar(&f.profiles)
	cmd.Flag("format", "text for people, json for programs.").Default("text").EnumVar(&f.format, "text", "json")
	return command{name: cmd.FullCommand(), run: f.run}
}

func (f *explainFlags) run(ctx context.Context) error {
	if err := f.check(); err != nil {
		return &exitError{exitUsage, err}
	}
	set, err := app.LoadProfiles(f.profiles)
	if err != nil {
		return err
	}
	in, err := f.open()
	if err != nil {
		return &exitError{exitUnknown, err}
	}
	defer in.close()
	o := explain.Options{Input: f.input(), Source: in.source, Profiles: set.Profiles(), Elapsed: f.elapsed, Year: in.written.Year()}
	report, err := explain.Run(ctx, o)
	if err != nil {
		return &exitError{exitUnknown, err}
	}
	if err := f.print(report); err != nil {
		return err
	}
	return f.verdict(report)
}

func (f *explainFlags) check() error {
	switch {
	case f.file == "" && f.unit == "":
		return errors.New("explain what? name a log file, - for standard input, or --unit UNIT for the journal")
	case f.file != "" && *f.journal.dir != "":
		return errors.New("FILE and --journal.dir exclude each other: name one of them")
	case f.file != "" && f.invocation != "":
		return errors.New("--invocation selects from the journal: name --unit UNIT instead of FILE")
	case strings.ContainsAny(f.unit, "*?["):
		return fmt.Errorf("--unit %s names several units: explain takes one", f.unit)
	case f.elapsed < 0:
		return errors.New("--elapsed must not be negative")
	}
	return nil
}

func (f *explainFlags) input() string {
	switch f.file {
	case "":
		return app.UnitName(f.unit)
	case stdin:
		return "standard input"
	}
	return f.file
}

// input is what is explained.
type input struct {
	source explain.Source
	// written is when the input was last written to: time stamps without a year
	// lie before it.
	written time.Time
	close   func() error
}

func (f *explainFlags) open() (*input, error) {
	if f.file == "" {
		return f.openJournal()
	}
	in := &input{written: time.Now(), close: func() error { return nil }}
	r := f.std.in
	if f.file != stdin {
		file, err := os.Open(f.file)
		if err != nil {
			return nil, fmt.Errorf("cannot read the input: %w; name a readable file, or - for standard input", err)
		}
		if info, err := file.Stat(); err == nil {
			in.written = info.ModTime()
		}
		r, in.close = file, file.Close
	}
	opts := journal.FileOptions{Path: f.input(), R: r, Now: in.written}
	if f.unit != "" {
		opts.Unit = app.UnitName(f.unit)
	}
	in.source = func(ctx context.Context, emit func(context.Context, []event.Event) error) error {
		return journal.ReadFile(ctx, opts, emit)
	}
	return in, nil
}

func (f *explainFlags) openJournal() (*input, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	opts := journal.DirOptions{
		Reader: f.journal.reading(self), Target: journal.TargetSpec{Unit: app.UnitName(f.unit)}, Invocation: f.invocation,
	}
	return &input{
		written: time.Now(), close: func() error { return nil },
		source: func(ctx context.Context, emit func(context.Context, []event.Event) error) error {
			return journal.ReadDir(ctx, opts, emit)
		},
	}, nil
}

func (f *explainFlags) print(r *explain.Report) error {
	if f.format == "json" {
		enc := json.NewEncoder(f.std.out)
		enc.SetEscapeHTML(false)
		enc.SetIndent("", "  ")
		return enc.Encode(r)
	}
	if len(r.Startups) == 0 {
		// The error says so.
		return nil
	}
	return r.WriteText(f.std.out)
}

// verdict turns the last start's outcome into the exit code.
func (f *explainFlags) verdict(r *explain.Report) error {
	if why := r.Unknown(); why != "" {
		return &exitError{exitUnknown, errors.New(why)}
	}
	switch r.Last() {
	case explain.Serving:
		return nil
	case explain.Failed, explain.Stopped:
		return &exitError{code: exitFailed}
	case explain.Stalled:
		return &exitError{code: exitStalled}
	}
	return &exitError{code: exitUnknown}
}
