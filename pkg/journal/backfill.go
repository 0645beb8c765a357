package journal

import (
	"context"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"strings"

	"github.com/startupd/startupd/pkg/event"
)

// plan decides what is to be read before the live end:
//
//  1. for each target the invocation that was present at the applied position,
//     from its first entry up to that position, as replayed;
//  2. what came since, up to the tail of now, for all targets together.
//
// On a first run the applied position is the tail, so that there is no 2.
func (s *Source) plan(ctx context.Context) error {
	if s.planned {
		return s.planTargets(ctx)
	}
	tail, err := first(ctx, s.launcher, request{Reverse: true})
	if err != nil {
		return err
	}
	pos := s.Applied()
	if pos.Cursor == "" && tail.cursor != "" {
		p, err := parsePlace(tail.cursor)
		if err != nil {
			return err
		}
		s.setApplied(Position{Cursor: tail.cursor, At: p.stamp()})
	}
	if err := s.planTargets(ctx); err != nil {
		return err
	}
	if pos.Cursor != "" && tail.cursor != "" && tail.cursor != pos.Cursor {
		s.catchUp = &pass{from: pos.Cursor, after: true, until: tail.cursor, position: true}
	}
	s.planned = true
	return nil
}

// planTargets queues the back-fill of targets that had none yet.
func (s *Source) planTargets(ctx context.Context) error {
	s.specs = s.takeTargets()
	present := map[TargetSpec]bool{}
	var fresh []TargetSpec
	for _, spec := range s.specs {
		present[spec] = true
		if !s.filled[spec] {
			fresh = append(fresh, spec)
		}
	}
	// A target that comes back later has missed what was written meanwhile.
	maps.DeleteFunc(s.filled, func(spec TargetSpec, _ bool) bool { return !present[spec] })
	var passes []*pass
	if at := s.Applied().Cursor; at != "" {
		for _, target := range s.targetsOf(fresh) {
			p, err := s.fill(ctx, target, at)
			if err != nil {
				return err
			}
			if p != nil {
				passes = append(passes, p)
			}
		}
	}
	s.queue = append(s.queue, passes...)
	for _, spec := range fresh {
		s.filled[spec] = true
	}
	return nil
}

// targetsOf groups specs by their target. A glob stands for the units that
// systemd runs now, each of them once; one that has a spec of its own is left
// to that.
func (s *Source) targetsOf(specs []TargetSpec) [][]TargetSpec {
	named := map[string]bool{}
	for _, spec := range s.specs {
		named[spec.Unit] = true
	}
	var order []string
	byName := map[string][]TargetSpec{}
	add := func(spec TargetSpec) {
		t := spec.target()
		if byName[t] == nil {
			order = append(order, t)
		}
		byName[t] = append(byName[t], spec)
	}
	for _, spec := range specs {
		if !spec.isGlob() {
			add(spec)
			continue
		}
		for _, unit := range s.runningUnits(spec.Unit) {
			if !named[unit] {
				named[unit] = true
				add(TargetSpec{Unit: unit})
			}
		}
	}
	var targets [][]TargetSpec
	for _, t := range order {
		targets = append(targets, byName[t])
	}
	return targets
}

// fill returns the back-fill of one target: a single pass for all of its specs,
// so that the entries come in the order of time. It begins with the earliest of
// what is present, as a container and the unit that runs it begin apart; nil
// when there is nothing to read.
func (s *Source) fill(ctx context.Context, target []TargetSpec, until string) (*pass, error) {
	from := ""
	var earliest place
	var earlier []string
	for _, spec := range target {
		cursor, id, err := s.beginning(ctx, spec, until)
		if err != nil {
			return nil, err
		}
		if cursor == "" {
			continue
		}
		before, err := newestInvocation(ctx, s.launcher, spec, cursor, id)
		if err != nil {
			return nil, err
		}
		if before != "" {
			earlier = append(earlier, before)
		}
		at, err := parsePlace(cursor)
		if err != nil {
			return nil, err
		}
		if from == "" || earliest.after(at) {
			from, earliest = cursor, at
		}
	}
	if from == "" {
		return nil, nil
	}
	return &pass{specs: target, target: target[0].target(), earlier: earlier, from: from, until: until, replayed: true}, nil
}

const linkPrefix = "invocation:"

func (s *Source) runningUnits(glob string) []string {
	entries, err := os.ReadDir(s.opts.UnitsDir)
	if err != nil {
		return nil // no systemd here: units show up with their first entry
	}
	var units []string
	for _, e := range entries {
		if unit, ok := strings.CutPrefix(e.Name(), linkPrefix); ok && matchUnit(glob, unit) {
			units = append(units, unit)
		}
	}
	return units
}

// beginning returns the cursor of the first entry of the invocation or
// container that was present at the cursor until, and its ID; "" when there is
// none. A control group has no invocation to go back to.
func (s *Source) beginning(ctx context.Context, spec TargetSpec, until string) (cursor, id string, err error) {
	if spec.Cgroup != "" {
		return "", "", nil
	}
	if spec.Unit != "" {
		// systemd keeps the present invocation's ID where anybody may read it.
		id, err := os.Readlink(filepath.Join(s.opts.UnitsDir, linkPrefix+spec.Unit))
		if err == nil {
			from, err := s.firstOf(ctx, spec, id, until)
			if err != nil || from != "" {
				return from, id, err
			}
		}
	}
	id, err = newestInvocation(ctx, s.launcher, spec, until, "")
	if err != nil || id == "" {
		return "", "", err
	}
	cursor, err = s.firstOf(ctx, spec, id, until)
	return cursor, id, err
}

// firstOf returns the cursor of an invocation's first entry; "" when it lies
// behind until, so that the invocation began after it.
func (s *Source) firstOf(ctx context.Context, spec TargetSpec, id, until string) (string, error) {
	end, err := parsePlace(until)
	if err != nil {
		return "", err
	}
	f, err := first(ctx, s.launcher, request{Matches: invocationMatches(spec, id)})
	if err != nil || f.cursor == "" {
		return "", err
	}
	p, err := parsePlace(f.cursor)
	if err != nil || p.after(end) {
		return "", err
	}
	return f.cursor, nil
}

// newestInvocation returns the invocation, or the container's ID, that wrote
// last up to the cursor from ("" is the tail), other than not; "" when there is
// none. Some entries tell none: what systemd says of a unit's file when it loads
// it.
func newestInvocation(ctx context.Context, l launcher, spec TargetSpec, from, not string) (string, error) {
	f, err := search(ctx, l, request{Matches: unitMatches(spec), From: from, Reverse: true, Limit: searchLimit},
		func(f found) bool { return f.invocation != "" && f.invocation != not })
	return f.invocation, err
}

// lost says what is gone of the entries behind the applied position; nil when
// its entry is still there, so that nothing is.
func (s *Source) lost(ctx context.Context, pos Position) (*event.Gap, error) {
	cursor := pos.Cursor
	want, err := parsePlace(cursor)
	if err != nil {
		return nil, err
	}
	next, err := first(ctx, s.launcher, request{From: cursor})
	if err != nil {
		return nil, err
	}
	g := &event.Gap{Gap: event.GapTruncated, Cursor: cursor,
		Detail: "the last applied entry is gone from the journal: a file was cut short or replaced"}
	if next.cursor == "" {
		return g, nil
	}
	got, err := parsePlace(next.cursor)
	if err != nil || got.same(want) {
		return nil, err
	}
	head, err := first(ctx, s.launcher, request{})
	if err != nil {
		return nil, err
	}
	if head.cursor == next.cursor {
		if !got.stamp().Real.After(pos.At.Real) {
			return nil, nil // the target was silent, and its last line is old
		}
		g.Gap, g.Detail = event.GapVacuumed, "the journal begins after the last applied entry: journald has removed what came between"
	}
	if got.seqnumID == want.seqnumID && got.seqnum > want.seqnum {
		g.Detail += fmt.Sprintf(" (%d entries of all units)", got.seqnum-want.seqnum-1)
	}
	return g, nil
}
