package journal

import (
	"context"
	"fmt"
	"strconv"

	"github.com/startupd/startupd/pkg/event"
)

// DirOptions is what ReadDir needs.
type DirOptions struct {
	Reader Reader
	Target TargetSpec
	// Invocation is an invocation's ID, or 0, -1, -2 ... as text for the newest,
	// the one before it and so on; "" reads all of them.
	Invocation string
}

// ReadDir reads a target's entries out of journal files to their end. It fails
// when there is nothing to read, with what to do about it.
func ReadDir(ctx context.Context, o DirOptions, emit Emit) error {
	if err := o.Target.Validate(); err != nil {
		return err
	}
	broken, err := checkAccess(o.Reader.Dir)
	if err != nil {
		return err
	}
	l, err := newLauncher(o.Reader)
	if err != nil {
		return err
	}
	p := &pass{specs: []TargetSpec{o.Target}}
	if o.Invocation != "" {
		if err := selectInvocation(ctx, l, o, p); err != nil {
			return err
		}
	}
	if err := emitBroken(ctx, broken, emit); err != nil {
		return err
	}
	n := 0
	err = readAll(ctx, l, p, func(ctx context.Context, events []event.Event) error {
		for _, ev := range events {
			if ev.Target != "" {
				n++
			}
		}
		return emit(ctx, events)
	})
	if err == nil && n == 0 && ctx.Err() == nil {
		return noEntries(o, broken)
	}
	return err
}

// readAll runs a pass that ends. A reader that dies while journald removes
// files under it (SIGBUS) is started again as long as it gets on.
func readAll(ctx context.Context, l launcher, p *pass, emit Emit) error {
	s := &Source{launcher: l, opts: Options{Served: func(string) bool { return false }}}
	for failures := 0; ; failures++ {
		at := p.from
		err := s.runPass(ctx, p, emit)
		if err == nil || ctx.Err() != nil {
			return ctx.Err()
		}
		if refused, ok := err.(*emitError); ok {
			return refused.err
		}
		if p.from != at {
			failures = 0
		}
		if failures == 2 {
			return err
		}
	}
}

func emitBroken(ctx context.Context, files []string, emit Emit) error {
	for _, f := range files {
		ev := event.Event{Data: &event.Gap{Gap: event.GapCorrupt, Detail: f + " is no whole journal file"}}
		if err := emit(ctx, []event.Event{ev}); err != nil {
			return err
		}
	}
	return nil
}

func noEntries(o DirOptions, broken []string) error {
	dir := ""
	if o.Reader.Dir != "" {
		dir = " --directory=" + o.Reader.Dir
	}
	if len(broken) > 0 {
		return fmt.Errorf("no entries of %s: %d journal files can't be read (%s, ...); check them with journalctl --verify%s",
			o.Target.target(), len(broken), broken[0], dir)
	}
	return fmt.Errorf("no entries of %s in the journal: compare the name with journalctl%s --field=%s",
		o.Target.target(), dir, field(o.Target))
}

func field(t TargetSpec) string {
	switch {
	case t.Container != "":
		return "CONTAINER_NAME"
	case t.Cgroup != "":
		return "_SYSTEMD_CGROUP"
	}
	return "_SYSTEMD_UNIT"
}

// selectInvocation narrows a pass to one invocation.
func selectInvocation(ctx context.Context, l launcher, o DirOptions, p *pass) error {
	spec := o.Target
	if spec.isGlob() || spec.Cgroup != "" {
		return fmt.Errorf("--invocation needs one unit or container, not %q", spec.target())
	}
	id := o.Invocation
	if back, err := strconv.Atoi(id); err == nil && back <= 0 {
		if id, err = invocationBack(ctx, l, spec, -back); err != nil {
			return err
		}
	}
	m := invocationMatches(spec, id)
	from, err := first(ctx, l, request{Matches: m})
	if err != nil {
		return err
	}
	until, err := first(ctx, l, request{Matches: m, Reverse: true})
	if err != nil {
		return err
	}
	if from.cursor == "" || until.cursor == "" {
		return fmt.Errorf("no entries of invocation %q of %s: list them with journalctl --unit=%s --output=json --output-fields=_SYSTEMD_INVOCATION_ID", o.Invocation, spec.target(), spec.target())
	}
	p.from, p.until = from.cursor, until.cursor
	// The other matches of the target can't tell the invocation; between its
	// first and its last entry they belong to it.
	for _, also := range matchesOf([]TargetSpec{spec}, nil) {
		if also[0] != "_SYSTEMD_UNIT="+spec.Unit && also[0] != "_PID=1" && also[0] != "CONTAINER_NAME="+spec.Container {
			m = append(m, also)
		}
	}
	p.matches = m
	return nil
}

// invocationBack returns the ID of the invocation that many before the newest.
func invocationBack(ctx context.Context, l launcher, spec TargetSpec, back int) (string, error) {
	id, err := newestInvocation(ctx, l, spec, "", "")
	for n := 0; err == nil && id != ""; n++ {
		if n == back {
			return id, nil
		}
		id, err = invocationBefore(ctx, l, spec, id)
	}
	if err != nil {
		return "", err
	}
	return "", fmt.Errorf("%s has no invocation -%d in the journal", spec.target(), back)
}

func invocationBefore(ctx context.Context, l launcher, spec TargetSpec, id string) (string, error) {
	begin, err := first(ctx, l, request{Matches: invocationMatches(spec, id)})
	if err != nil || begin.cursor == "" {
		return "", err
	}
	return newestInvocation(ctx, l, spec, begin.cursor, id)
}
