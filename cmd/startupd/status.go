package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/alecthomas/kingpin/v2"

	"github.com/startupd/startupd/internal/app/explain"
	"github.com/startupd/startupd/internal/app/observe"
	"github.com/startupd/startupd/internal/app/watch"
	"github.com/startupd/startupd/pkg/web/api"
)

const (
	// statusWithin is how long status waits for the past to be read.
	statusWithin = time.Minute
	// sampleWithin is how long status without a daemon waits for a first sample.
	sampleWithin = 2 * time.Second
)

type statusFlags struct {
	*viewFlags
	format  string
	verbose bool
	std     streams
}

func statusCommand(cli *kingpin.Application, std streams) command {
	cmd := cli.Command("status", "Print once where units' starts are.")
	f := &statusFlags{viewFlags: addViewFlags(cmd), std: std}
	cmd.Flag("verbose", "Show each unit in full, also where there are many.").Short('v').BoolVar(&f.verbose)
	cmd.Flag("format", "text for people, json for programs.").Default("text").EnumVar(&f.format, "text", "json")
	return command{name: cmd.FullCommand(), run: f.run}
}

func (f *statusFlags) run(ctx context.Context) error {
	status, err := f.look(ctx)
	if err != nil {
		return f.unseen(err)
	}
	if err := f.print(status); err != nil {
		return err
	}
	if len(status.Units) == 0 {
		return &exitError{exitUnknown, f.nobody()}
	}
	switch watch.Worst(status) {
	case watch.Serving:
		return nil
	case watch.Failed:
		return &exitError{code: exitFailed}
	case watch.Stalled:
		return &exitError{code: exitStalled}
	}
	return &exitError{code: exitUnknown}
}

// nobody says that there is no unit, and what to do.
func (f *statusFlags) nobody() error {
	if len(f.units) == 0 {
		return errors.New("the daemon watches no unit yet; give it one by --unit, or name one here")
	}
	want := strings.Join(f.units, " ")
	return fmt.Errorf("nothing of a unit %s has been seen; compare the name with `systemctl list-units --all '%s'`", want, want)
}

// errSeen ends the observer once it has told the present.
var errSeen = errors.New("seen")

// look returns the first view of the present.
func (f *statusFlags) look(ctx context.Context) (*api.Status, error) {
	late := fmt.Errorf("the past was not read within %s", statusWithin)
	ctx, cancel := context.WithTimeoutCause(ctx, statusWithin, late)
	defer cancel()
	ctx, enough := context.WithCancelCause(ctx)
	defer enough(nil)
	o, err := f.observing()
	if err != nil {
		return nil, err
	}
	o.Note = func(text string) { fmt.Fprintf(f.std.err, "startupd: %s\n", explain.Visible(text)) }
	var last *api.Status
	settled := false
	err = observe.Run(ctx, o, func(u observe.Update) error {
		last = u.Status
		if u.Settled && (u.Daemon || f.sampled(u.Status)) {
			return errSeen
		}
		if u.Settled && !settled {
			settled = true
			time.AfterFunc(sampleWithin, func() { enough(errSeen) })
		}
		return nil
	})
	switch cause := context.Cause(ctx); {
	case errors.Is(err, errSeen), errors.Is(cause, errSeen):
		return last, nil
	case errors.Is(cause, late) && last != nil:
		fmt.Fprintf(f.std.err, "startupd: %v; what follows may be of the past\n", late)
		return last, nil
	case errors.Is(cause, late):
		return nil, &exitError{exitUnknown, late}
	}
	return nil, err
}

// sampled says that the GPUs have been looked at, or can't be. Whose memory it
// is only later samples tell, seconds apart: they are not waited for.
func (f *statusFlags) sampled(s *api.Status) bool {
	return !f.gpu || *f.journal.dir != "" || s.GPUs != nil ||
		slices.ContainsFunc(s.Sources, func(src api.Source) bool { return src.Source == "gpu" && !src.Up })
}

func (f *statusFlags) print(s *api.Status) error {
	if f.format == "json" {
		if s.Version == "" {
			s.Version, _ = build()
		}
		enc := json.NewEncoder(f.std.out)
		enc.SetEscapeHTML(false)
		enc.SetIndent("", "  ")
		return enc.Encode(s)
	}
	if len(s.Units) == 0 {
		return nil // the error says so
	}
	width, color := terminal(f.std.out)
	o := watch.Options{Width: width, Color: color, ASCII: !watch.UTF8(os.Environ())}
	_, err := io.WriteString(f.std.out, watch.Text(s, s.At, f.verbose || len(f.units) > 0, o))
	return err
}
