// Package explain answers from an input that is complete (a pasted log, an
// export file, journal files) what an operator would ask of it: which
// startups, which phases, how each ended, and why.
//
// It owns the report (schema startupd.explain/v1) and its forms for people: a
// text and Markdown. The judging is the core's alone, the same as in the
// daemon: this package must not look at a line. All text of a log is hostile
// until it has been made visible (see Visible).
package explain

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strconv"
	"time"

	"github.com/startupd/startupd/pkg/event"
	"github.com/startupd/startupd/pkg/phases"
	"github.com/startupd/startupd/pkg/profile"
)

// Source delivers the input's events in order, to its end.
type Source func(ctx context.Context, emit func(context.Context, []event.Event) error) error

// Options are what an explanation needs.
type Options struct {
	// Input names the input in texts.
	Input    string
	Source   Source
	Profiles []*profile.Profile
	// Year resolves time stamps of the engine's own, which have none.
	Year int
	// Elapsed is how long after the last start's beginning the input is judged;
	// 0 means at the input's last moment.
	Elapsed time.Duration
	// Invocation selects one: 0, -1, -2 as text for the last, the one before and so
	// on, or an invocation ID or its beginning; "" selects all. In an input without
	// invocations each startup counts as one.
	Invocation string
	// Diff asks what is new in the last startup of the report since the last good
	// one before it. Past is asked where the input holds none; nil knows of none.
	Diff bool
	Past Past
}

// Run reads the input to its end and reports on every startup, or on those of
// the invocation that the options select. An input without any startup is
// reported with an empty list. A selected invocation that is not there is a
// *NoInvocationError.
func Run(ctx context.Context, o Options) (*Report, error) {
	e := explainer{opts: o}
	e.host = phases.NewHost(phases.HostOptions{Resolve: e.resolve, Finished: e.finished})
	if err := o.Source(ctx, e.apply); err != nil {
		return nil, err
	}
	e.letPass(o.Elapsed)
	e.host.Drain()
	all := e.all()
	if len(all) > 0 {
		all[0].Gaps = append(e.early, all[0].Gaps...)
	}
	target := cmp.Or(e.target, o.Input)
	chosen, err := choose(all, o.Invocation, target)
	if err != nil {
		return nil, err
	}
	r := newReport(target, all, chosen)
	if n := len(r.Startups); o.Diff && n > 0 {
		last := &r.Startups[n-1]
		last.Diff, r.Trouble = compare(ctx, target, all[:chosen.to-1], all[chosen.to-1], o.Past)
	}
	return r, nil
}

type explainer struct {
	opts Options
	host *phases.Host
	// target is the first target of the input.
	target string
	// text is true for an input without invocations.
	text bool
	// early are the gaps before the first startup, such as an unreadable file.
	early []phases.Gap
	// over are the startups that were final once, in the order in which they were.
	over shelf
}

// resolve takes the input's first target and drops others.
func (e *explainer) resolve(target string) (phases.Config, bool) {
	if e.target == "" {
		e.target = target
	}
	return phases.Config{Name: target, Profiles: e.opts.Profiles, Text: e.text, Year: e.opts.Year}, target == e.target
}

// finished keeps a final startup. One that comes again has become clearer: the
// engine that it started is gone.
func (e *explainer) finished(target string, s *phases.Startup) {
	if target == e.target {
		e.over.put(s)
	}
}

func (e *explainer) apply(ctx context.Context, events []event.Event) error {
	for _, ev := range events {
		// An entry of a journal tells its boot, a line of text does not.
		if e.target == "" {
			e.text = ev.At.Boot == ""
			if g, ok := ev.Data.(*event.Gap); ok && ev.Target == "" {
				e.early = append(e.early, phases.Gap{Kind: g.Gap, Lines: g.Lines, Detail: g.Detail, At: ev.At})
			}
		}
		e.host.Apply(ev)
	}
	return ctx.Err()
}

// all returns the startups in order, as they are at the input's end.
func (e *explainer) all() []*phases.Startup {
	if t := e.present(); t != nil {
		for _, s := range []*phases.Startup{t.Last, t.Startup} {
			if s != nil {
				e.over.put(s)
			}
		}
	}
	out := e.over.list
	// One that could still be amended is final after a later one has begun.
	slices.SortStableFunc(out, func(a, b *phases.Startup) int {
		switch {
		case a.Invocation == b.Invocation:
			return cmp.Compare(a.Generation, b.Generation)
		case a.Began.Before(b.Began):
			return -1
		case b.Began.Before(a.Began):
			return 1
		}
		return 0
	})
	return out
}

// shelf holds startups; at is each one's place, by its key.
type shelf struct {
	list []*phases.Startup
	at   map[string]int
}

// put adds a startup, or puts it in the place of what was known of it before.
func (h *shelf) put(s *phases.Startup) {
	if h.at == nil {
		h.at = map[string]int{}
	}
	i, known := h.at[key(s)]
	if known {
		h.list[i] = s
		return
	}
	h.at[key(s)] = len(h.list)
	h.list = append(h.list, s)
}

// key identifies a startup within an input.
func key(s *phases.Startup) string { return s.Invocation + "/" + strconv.Itoa(s.Generation) }

// present is the target as it is now; nil when nothing was seen of it.
func (e *explainer) present() *phases.Target {
	for _, t := range e.host.Snapshot().Targets {
		if t.Name == e.target {
			return &t
		}
	}
	return nil
}

// letPass judges the last startup as seen that long after it began.
func (e *explainer) letPass(elapsed time.Duration) {
	t := e.present()
	if elapsed == 0 || t == nil || t.Startup == nil {
		return
	}
	at := t.Startup.Began.Add(elapsed)
	for _, data := range []event.Data{&event.Watermark{}, &event.Tick{}} {
		e.host.Apply(event.Event{At: at, Data: data})
	}
}

// Last is the last startup's outcome; "" when there is none.
func (r *Report) Last() string {
	if len(r.Startups) == 0 {
		return ""
	}
	return r.Startups[len(r.Startups)-1].Outcome
}

// Unknown says in a sentence why nothing can be told; "" when something can.
func (r *Report) Unknown() string {
	const ask = "is it the log of an LLM server from its start on?"
	switch {
	case len(r.Startups) == 0:
		return fmt.Sprintf("no start-up is told of in %s: %s", r.Target, ask)
	case r.Engine == nil && r.Last() == Starting:
		return fmt.Sprintf("no line of a known engine is in %s: %s", r.Target, ask)
	}
	return ""
}
