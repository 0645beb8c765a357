package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"path"
	"strconv"
	"strings"
	"time"

	"github.com/alecthomas/kingpin/v2"
	"github.com/prometheus/common/model"

	"github.com/startupd/startupd/internal/app"
	"github.com/startupd/startupd/pkg/history"
)

// historyWait is how long the daemon's write is waited for; it takes
// milliseconds.
const historyWait = 3 * time.Second

// addHistoryFlags adds the flags that bound what the daemon keeps.
func addHistoryFlags(cmd *kingpin.CmdClause, l *history.Limits) {
	cmd.Flag("history.max-startups", "How many finished startups are kept of each unit; 0 keeps none.").Default("200").SetValue((*natural)(&l.MaxStartups))
	cmd.Flag("history.max-age", "How long a finished startup is kept, such as 90d or 12h; 0 is no limit.").Default("90d").SetValue((*age)(&l.MaxAge))
}

// natural is a flag's number that is not negative.
type natural int

func (n *natural) String() string { return strconv.Itoa(int(*n)) }

// Set implements kingpin.Value.
func (n *natural) Set(s string) error {
	v, err := strconv.Atoi(s)
	if err != nil || v < 0 {
		return fmt.Errorf("%q is no number from 0 on", s)
	}
	*n = natural(v)
	return nil
}

// age is a flag's duration, with days, weeks and years as Prometheus has them.
type age time.Duration

func (a *age) String() string { return model.Duration(*a).String() }

// Set implements kingpin.Value.
func (a *age) Set(s string) error {
	d, err := model.ParseDuration(s)
	if err != nil {
		return fmt.Errorf("%q is no duration such as 90d or 12h", s)
	}
	*a = age(d)
	return nil
}

type historyFlags struct {
	unit, state, format string
	limit               int
	std                 streams
}

func historyCommand(cli *kingpin.Application, std streams) command {
	f := &historyFlags{std: std}
	cmd := cli.Command("history", "List the finished startups that the daemon has kept, and what was new in them.")
	cmd.Flag("unit", "Unit whose startups are listed; globs allowed; all by default.").PlaceHolder("UNIT").StringVar(&f.unit)
	cmd.Flag("state.dir", "The daemon's state directory.").Default(firstOf("STATE_DIRECTORY", "/var/lib/startupd")).StringVar(&f.state)
	cmd.Flag("limit", "How many startups of each unit are listed, the newest; 0 lists all.").Default("20").SetValue((*natural)(&f.limit))
	cmd.Flag("format", "text for people, json for programs.").Default("text").EnumVar(&f.format, "text", "json")
	return command{name: cmd.FullCommand(), run: f.run}
}

func (f *historyFlags) run(ctx context.Context) error {
	if f.state == "" {
		return &exitError{exitUsage, errors.New("--state.dir is empty: name the daemon's state directory")}
	}
	if _, err := path.Match(f.unit, ""); err != nil {
		return &exitError{exitUsage, fmt.Errorf("--unit %s: a bad glob: close its brackets", f.unit)}
	}
	ctx, cancel := context.WithTimeout(ctx, historyWait)
	defer cancel()
	l, err := f.list(ctx)
	if err != nil {
		return &exitError{exitUnknown, err}
	}
	if f.format == "json" {
		enc := json.NewEncoder(f.std.out)
		enc.SetEscapeHTML(false)
		enc.SetIndent("", "  ")
		return enc.Encode(l)
	}
	return l.WriteText(f.std.out)
}

func (f *historyFlags) list(ctx context.Context) (*history.Listing, error) {
	store := history.In(f.state, history.Limits{})
	names, err := store.Targets(ctx)
	if err != nil {
		return nil, advise(err)
	}
	l := &history.Listing{Schema: history.Schema, Targets: []history.TargetListing{}}
	for _, name := range names {
		// The pattern was tried.
		if ok, _ := path.Match(app.UnitName(f.unit), name); f.unit != "" && f.unit != name && !ok {
			continue
		}
		records, err := store.List(ctx, name, 0)
		if err != nil {
			return nil, advise(err)
		}
		l.Targets = append(l.Targets, history.NewListing(name, records, f.limit))
	}
	switch {
	case len(names) == 0:
		return nil, fmt.Errorf("no finished startup is in %s: all were older than --history.max-age", store.Path)
	case len(l.Targets) == 0:
		return nil, fmt.Errorf("no finished startup of %s is in %s, only of %s", f.unit, store.Path, strings.Join(names, ", "))
	}
	return l, nil
}

// advise says what to do about an error of the history.
func advise(err error) error {
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return fmt.Errorf("%w; is --state.dir the daemon's, and has a startup finished since it runs?", err)
	case errors.Is(err, fs.ErrPermission):
		return fmt.Errorf("%w; run it as root or as a member of the daemon's group", err)
	case errors.Is(err, history.ErrBusy):
		return fmt.Errorf("%w; try again", err)
	case errors.Is(err, history.ErrDamaged):
		return fmt.Errorf("%w; the daemon sets it aside when the next startup finishes, or remove it", err)
	case errors.Is(err, history.ErrNewer):
		return fmt.Errorf("%w; use the startupd that wrote it", err)
	}
	return err
}
