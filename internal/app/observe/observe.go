// Package observe gives a command on this host a running view of units: from
// the daemon where one watches them, else by running the same core on the
// journal itself. It owns the choice between the two, and going on when the
// daemon dies, restarts or does not answer. It must not judge or print.
package observe

import (
	"context"
	"errors"
	"fmt"
	"path"
	"slices"
	"strings"
	"time"

	"github.com/startupd/startupd/internal/app"
	"github.com/startupd/startupd/pkg/web/api"
	"github.com/startupd/startupd/pkg/web/client"
)

// Options say what is observed, and how.
type Options struct {
	// Socket is the daemon's unix socket; "" asks no daemon.
	Socket string
	// Units are full names or globs; none means all that the daemon watches.
	Units []string
	// Own returns how the journal is followed where no daemon watches the units;
	// nil follows none, and without a daemon Run fails. It is called at most once.
	Own func(units []string) (app.Options, error)
	// Note is given a sentence when the way of observing changes; nil is allowed.
	Note func(string)
}

// Update is a new view.
type Update struct {
	Status *api.Status
	// Daemon is true when the daemon told it, false when this process did.
	Daemon bool
	// Settled is true once the view is of the present: the past has been read.
	Settled bool
}

// ErrBlind: there is no daemon, and the journal can't be read.
var ErrBlind = errors.New("nothing can be observed")

// Run calls see with each new view, from one goroutine, until ctx ends, see
// returns an error, or nothing can be observed. The error is see's, ctx's or
// an ErrBlind.
func Run(ctx context.Context, o Options, see func(Update) error) error {
	o.Units = slices.Clone(o.Units)
	if o.Note == nil {
		o.Note = func(string) {}
	}
	r := &run{opts: o, see: see}
	if o.Socket == "" {
		return r.own(ctx, "")
	}
	r.client = client.New(client.Options{Socket: o.Socket})
	return r.run(ctx)
}

// run is one Run. Only its goroutine touches it.
type run struct {
	opts   Options
	see    func(Update) error
	client *client.Client
	// last is the daemon's last view; nil before the first. gone is when it was
	// lost.
	last *api.Status
	gone time.Time
}

func (r *run) run(ctx context.Context) error {
	defer r.client.Close()
	why, err := r.daemon(ctx)
	if err != nil {
		return err
	}
	return r.own(ctx, why)
}

// seeError is an error of the receiver, which nothing here can mend.
type seeError struct{ err error }

func (e *seeError) Error() string { return e.err.Error() }

// tell hands on a view, with the units that are wanted.
func (r *run) tell(u Update) error {
	if err := r.see(u); err != nil {
		return &seeError{err}
	}
	return nil
}

// matches says that a unit is wanted.
func (r *run) matches(unit string) bool {
	return len(r.opts.Units) == 0 || slices.ContainsFunc(r.opts.Units, func(want string) bool {
		if want == unit {
			return true
		}
		// A backslash is part of systemd's escaped names.
		ok, err := path.Match(strings.ReplaceAll(want, `\`, `\\`), unit)
		return isGlob(want) && ok && err == nil
	})
}

func isGlob(unit string) bool { return strings.ContainsAny(unit, "*?[") }

// names are the wanted units; nil where globs or nothing at all is asked for.
func (r *run) names() []string {
	if slices.ContainsFunc(r.opts.Units, isGlob) {
		return nil
	}
	return r.opts.Units
}

// missing is a wanted unit, or a glob, for which the view has nothing; "" when
// it has all.
func (r *run) missing(s *api.Status) string {
	for _, want := range r.opts.Units {
		one := run{opts: Options{Units: []string{want}}}
		if !slices.ContainsFunc(s.Units, func(u api.Unit) bool { return one.matches(u.Unit) }) {
			return want
		}
	}
	return ""
}

// journal is what the view says of the journal's source; nil when nothing yet.
func journal(s *api.Status) *api.Source {
	for i := range s.Sources {
		if s.Sources[i].Source == "journal" && s.Sources[i].Unit == "" {
			return &s.Sources[i]
		}
	}
	return nil
}

// blind makes an ErrBlind of the reasons that are known.
func blind(reasons ...string) error {
	reasons = slices.DeleteFunc(reasons, func(s string) bool { return s == "" })
	return fmt.Errorf("%w: %s", ErrBlind, strings.Join(reasons, "; "))
}
