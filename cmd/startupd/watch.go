package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/alecthomas/kingpin/v2"
	"go.uber.org/zap"
	"golang.org/x/term"

	"github.com/startupd/startupd/internal/app"
	"github.com/startupd/startupd/internal/app/observe"
	"github.com/startupd/startupd/internal/app/watch"
)

// viewFlags say which units are looked at, and how where no daemon tells of
// them; watch and status share them.
type viewFlags struct {
	units            []string
	socket, profiles string
	journal          journalFlags
	gpu              bool
	nvml             string
}

func addViewFlags(cmd *kingpin.CmdClause) *viewFlags {
	f := &viewFlags{}
	cmd.Arg("UNIT", "Units, globs allowed; all that the daemon watches by default. Without a daemon their journal is read here.").StringsVar(&f.units)
	cmd.Flag("api.socket", "Unix socket of the daemon; empty asks none.").
		Default(filepath.Join(firstOf("RUNTIME_DIRECTORY", "/run/startupd"), "api.sock")).StringVar(&f.socket)
	f.journal = addJournalFlags(cmd)
	cmd.Flag("profile.dir", "Directory of YAML profiles that add to the built-in ones; without a daemon.").PlaceHolder("DIR").StringVar(&f.profiles)
	cmd.Flag("gpu", "Look at GPUs over NVML; without a daemon.").Default("true").BoolVar(&f.gpu)
	cmd.Flag("gpu.nvml-library", "Path of libnvidia-ml.so.1, where the dynamic loader does not find it.").PlaceHolder("FILE").StringVar(&f.nvml)
	return f
}

// observing is how the units are observed. Journal files of another host are
// read here: the daemon knows this one's.
func (f *viewFlags) observing() (observe.Options, error) {
	o := observe.Options{Socket: f.socket}
	if *f.journal.dir != "" {
		o.Socket = ""
	}
	if len(f.units) > 0 {
		o.Own = f.own
	} else if o.Socket == "" {
		why := "--api.socket is empty"
		if *f.journal.dir != "" {
			why = "--journal.dir is read here"
		}
		return o, &exitError{exitUsage, fmt.Errorf("which units? No daemon is asked for them (%s); name at least one", why)}
	}
	for _, u := range f.units {
		o.Units = append(o.Units, app.UnitName(u))
	}
	return o, nil
}

// own is a core in this process. It logs nothing: the screen is the view's.
func (f *viewFlags) own(units []string) (app.Options, error) {
	clock, err := app.SystemClock()
	if err != nil {
		return app.Options{}, err
	}
	self, err := os.Executable()
	if err != nil {
		return app.Options{}, err
	}
	reader := []string{self, "gpu-reader"}
	if f.nvml != "" {
		reader = append(reader, "--gpu.nvml-library="+f.nvml)
	}
	v, r := build()
	return app.Options{
		Units: units, ProfileDir: f.profiles, Journal: f.journal.reading(self),
		// The GPUs of this host are not those of another one's journal.
		NoGPU: !f.gpu || *f.journal.dir != "", GPUReader: reader,
		Log: zap.NewNop(), Clock: clock, Version: v, Revision: r,
	}, nil
}

// unseen makes the exit code of an error of the observer. Where a unit was
// named, its reasons say what to do.
func (f *viewFlags) unseen(err error) error {
	if !errors.Is(err, observe.ErrBlind) {
		return err
	}
	if len(f.units) == 0 {
		err = fmt.Errorf("%w; without a daemon, name a unit whose journal is to be read here", err)
	}
	return &exitError{exitUnknown, err}
}

type watchFlags struct {
	*viewFlags
	std streams
}

func watchCommand(cli *kingpin.Application, std streams) command {
	cmd := cli.Command("watch", "Show in the terminal, live, where units' starts are: phases, progress, GPU memory, errors.")
	f := &watchFlags{viewFlags: addViewFlags(cmd), std: std}
	return command{name: cmd.FullCommand(), run: f.run}
}

func (f *watchFlags) run(ctx context.Context) error {
	in, isFile := f.std.in.(*os.File)
	out, alsoFile := f.std.out.(*os.File)
	if !isFile || !alsoFile || !term.IsTerminal(int(in.Fd())) || !term.IsTerminal(int(out.Fd())) {
		return &exitError{exitUsage, errors.New("watch needs a terminal; use `startupd status` to print the state once")}
	}
	collectAt(200) // one user's, and soon over
	o, err := f.observing()
	if err != nil {
		return err
	}
	err = watch.Run(ctx, watch.Terminal{In: in, Out: out, Env: os.Environ()}, func(ctx context.Context, see func(observe.Update) error, note func(string)) error {
		o.Note = note
		return observe.Run(ctx, o, see)
	})
	return f.unseen(err)
}
