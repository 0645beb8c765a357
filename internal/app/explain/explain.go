// Package explain answers from an input that is complete (a pasted log, an
// export file, journal files) what an operator would ask of it: which
// startups, which phases, how each ended.
//
// It owns the report (schema startupd.explain/v1) and its form for people. The
// judging is the core's alone, the same as in the daemon: this package must not
// look at a line.
package explain

import (
	"context"
	"fmt"
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
}

// Run reads the input to its end and reports on every startup. An input without
// any is reported with an empty list.
func Run(ctx context.Context, o Options) (*Report, error) {
	e := explainer{opts: o}
	e.host = phases.NewHost(phases.HostOptions{
		Resolve: e.resolve,
		Finished: func(target string, s *phases.Startup) {
			if target == e.target {
				e.over = append(e.over, s)
			}
		},
	})
	if err := o.Source(ctx, e.apply); err != nil {
		return nil, err
	}
	e.letPass(o.Elapsed)
	e.host.Drain()
	startups := e.over
	if s := e.present(); s != nil {
		startups = append(startups, s)
	}
	if len(startups) > 0 {
		startups[0].Gaps = append(e.early, startups[0].Gaps...)
	}
	target := e.target
	if target == "" {
		target = o.Input
	}
	return newReport(target, startups), nil
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
	// over are the startups before the present one.
	over []*phases.Startup
}

// resolve takes the input's first target and drops others.
func (e *explainer) resolve(target string) (phases.Config, bool) {
	if e.target == "" {
		e.target = target
	}
	return phases.Config{Name: target, Profiles: e.opts.Profiles, Text: e.text, Year: e.opts.Year}, target == e.target
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

// present is the last startup; nil when none was seen.
func (e *explainer) present() *phases.Startup {
	for _, t := range e.host.Snapshot().Targets {
		if t.Name == e.target {
			return t.Startup
		}
	}
	return nil
}

// letPass judges the last startup as seen that long after it began.
func (e *explainer) letPass(elapsed time.Duration) {
	s := e.present()
	if elapsed == 0 || s == nil {
		return
	}
	at := s.Began.Add(elapsed)
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
