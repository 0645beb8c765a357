package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"strings"
	"time"

	"github.com/alecthomas/kingpin/v2"
	"golang.org/x/term"

	"github.com/startupd/startupd/internal/app"
	"github.com/startupd/startupd/internal/app/explain"
	"github.com/startupd/startupd/pkg/event"
	"github.com/startupd/startupd/pkg/history"
	"github.com/startupd/startupd/pkg/journal"
	"github.com/startupd/startupd/pkg/profile"
)

// stdin is the file that - stands for.
const stdin = "/dev/stdin"

type explainFlags struct {
	file, unit, invocation  string
	journal                 journalFlags
	profiles, format, state string
	elapsed                 time.Duration
	all, diff               bool
	std                     streams
}

func explainCommand(cli *kingpin.Application, std streams) command {
	f := &explainFlags{std: std}
	cmd := cli.Command("explain", "Explain the starts that a log, an export file or the journal tells of: how each ended, and why.")
	cmd.Arg("FILE", "Log as plain text, or made by `journalctl -o export`; - is standard input.").StringVar(&f.file)
	cmd.Flag("unit", "Unit whose entries are read: from the journal, or from an export file that holds several.").PlaceHolder("UNIT").StringVar(&f.unit)
	cmd.Flag("invocation", "Report on one start only: 0 for the last, -1 for the one before it and so on, or an invocation ID.").PlaceHolder("N").StringVar(&f.invocation)
	cmd.Flag("all", "Show every start in full, not only the last one.").BoolVar(&f.all)
	cmd.Flag("diff", "Show what is new since the last good start, of the input or else of the state directory's history.").BoolVar(&f.diff)
	f.journal = addJournalFlags(cmd)
	cmd.Flag("elapsed", "Judge as seen that long after the last start began, such as 30m.").PlaceHolder("DURATION").DurationVar(&f.elapsed)
	cmd.Flag("profile.dir", "Directory of YAML profiles that add to the built-in ones.").PlaceHolder("DIR").StringVar(&f.profiles)
	cmd.Flag("state.dir", "Directory with the daemon's history, for --diff; empty looks at none.").
		Default(firstOf("STATE_DIRECTORY", "/var/lib/startupd")).StringVar(&f.state)
	cmd.Flag("format", "text for people, markdown for a bug report, json for programs.").Default("text").EnumVar(&f.format, "text", "markdown", "json")
	return command{name: cmd.FullCommand(), run: f.run}
}

func (f *explainFlags) run(ctx context.Context) error {
	if err := f.check(); err != nil {
		return &exitError{exitUsage, err}
	}
	collectAt(200) // it is soon over, and somebody waits for it
	set, err := app.LoadProfiles(f.profiles)
	if err != nil {
		return err
	}
	report, err := f.explain(ctx, set.Profiles(), f.narrow())
	if err != nil && f.narrow() {
		// What there is instead only the whole journal tells.
		if all, again := f.explain(ctx, set.Profiles(), false); again == nil {
			report, err = all, nil
		} else if errors.As(again, new(*explain.NoInvocationError)) {
			err = again
		}
	}
	if err != nil {
		return &exitError{exitUnknown, err}
	}
	if report.Trouble != nil {
		fmt.Fprintf(f.std.err, "startupd: %v\n", report.Trouble)
	}
	if err := f.print(report); err != nil {
		return err
	}
	return f.verdict(report)
}

// narrow says that only one invocation's entries are to be read: a journal is
// indexed by them, but the last good start is another one.
func (f *explainFlags) narrow() bool { return f.file == "" && f.invocation != "" && !f.diff }

func (f *explainFlags) explain(ctx context.Context, profiles []*profile.Profile, narrow bool) (*explain.Report, error) {
	in, err := f.open(narrow)
	if err != nil {
		return nil, err
	}
	defer in.close()
	o := explain.Options{
		Input: f.input(), Source: in.source, Profiles: profiles, Elapsed: f.elapsed, Year: in.written.Year(), Invocation: f.invocation,
		Diff: f.diff, Past: f.past,
	}
	if narrow {
		o.Invocation = ""
	}
	return explain.Run(ctx, o)
}

// past reads the daemon's history of a unit.
func (f *explainFlags) past(ctx context.Context, target string) ([]history.Record, error) {
	if f.state == "" {
		return nil, nil
	}
	if f.unit != "" {
		// The input is a file's; its startups are the unit's.
		target = app.UnitName(f.unit)
	}
	ctx, cancel := context.WithTimeout(ctx, historyWait)
	defer cancel()
	records, err := history.In(f.state, history.Limits{}).List(ctx, target, 0)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil, nil
	case err != nil:
		return nil, advise(err)
	}
	return records, nil
}

func (f *explainFlags) check() error {
	switch {
	case f.file == "" && f.unit == "":
		return errors.New("explain what? name a log file, - for standard input, or --unit UNIT for the journal")
	case f.file != "" && *f.journal.dir != "":
		return errors.New("FILE and --journal.dir exclude each other: name one of them")
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

func (f *explainFlags) open(narrow bool) (*input, error) {
	if f.file == "" {
		return f.openJournal(narrow)
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

func (f *explainFlags) openJournal(narrow bool) (*input, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	opts := journal.DirOptions{
		Reader: f.journal.reading(self), Target: journal.TargetSpec{Unit: app.UnitName(f.unit)},
	}
	if narrow {
		opts.Invocation = f.invocation
	}
	return &input{
		written: time.Now(), close: func() error { return nil },
		source: func(ctx context.Context, emit func(context.Context, []event.Event) error) error {
			if err := journal.ReadDir(ctx, opts, emit); err != nil || *f.journal.dir != "" || f.elapsed != 0 {
				return err
			}
			return untilNow(ctx, emit)
		},
	}, nil
}

// untilNow tells that nothing has been written to this host's journal up to the
// present moment: a start that hangs writes nothing.
func untilNow(ctx context.Context, emit func(context.Context, []event.Event) error) error {
	clock, err := app.SystemClock()
	if err != nil {
		return err
	}
	now := clock()
	return emit(ctx, []event.Event{{At: now, Data: &event.Watermark{}}, {At: now, Data: &event.Tick{}}})
}

func (f *explainFlags) print(r *explain.Report) error {
	switch {
	case f.format == "json":
		enc := json.NewEncoder(f.std.out)
		enc.SetEscapeHTML(false)
		enc.SetIndent("", "  ")
		return enc.Encode(r)
	case len(r.Startups) == 0:
		// The error says so.
		return nil
	case f.format == "markdown":
		return r.WriteMarkdown(f.std.out, f.all)
	}
	width, color := terminal(f.std.out)
	return r.WriteText(f.std.out, explain.TextOptions{Width: width, Color: color, All: f.all, JournalDir: *f.journal.dir})
}

// terminal returns the columns of the terminal that w writes to, and whether it
// takes colours; 0 and false when w is no terminal.
func terminal(w io.Writer) (columns int, color bool) {
	file, ok := w.(*os.File)
	if !ok || !term.IsTerminal(int(file.Fd())) {
		return 0, false
	}
	columns, _, err := term.GetSize(int(file.Fd()))
	if err != nil || columns <= 0 {
		columns = 80
	}
	// See no-color.org: any text counts, none does not.
	return columns, os.Getenv("NO_COLOR") == "" && os.Getenv("TERM") != "dumb"
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
