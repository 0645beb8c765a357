package journal

import (
	"context"
	"fmt"
	"maps"
	"os"
	"path"
	"path/filepath"
	"strings"

	"github.com/startupd/startupd/pkg/event"
)

// plan decides what is to be read before the live end, and queues it:
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
		s.queue = append(s.queue, &pass{
			specs: s.specs(), from: pos.Cursor, after: true, until: tail.cursor, position: true,
		})
	}
	s.planned = true
	return nil
}

// planTargets queues the back-fill of targets that had none yet.
func (s *Source) planTargets(ctx context.Context) error {
	at := s.Applied().Cursor
	present := map[TargetSpec]bool{}
	for _, spec := range s.specs() {
		present[spec] = true
		if s.filled[spec] {
			continue
		}
		if at != "" {
			if err := s.fill(ctx, spec, at); err != nil {
				return err
			}
		}
		s.filled[spec] = true
	}
	// A target that comes back later has missed what was written meanwhile.
	maps.DeleteFunc(s.filled, func(spec TargetSpec, _ bool) bool { return !present[spec] })
	return nil
}

// fill queues the back-fill of one target. A glob stands for the units that
// systemd runs now; a control group has no invocation to go back to.
func (s *Source) fill(ctx context.Context, spec TargetSpec, until string) error {
	units := []TargetSpec{spec}
	switch {
	case spec.Cgroup != "":
		return nil
	case spec.isGlob():
		units = s.runningUnits(spec.Unit)
	}
	for _, u := range units {
		from, err := s.beginning(ctx, u, until)
		if err != nil {
			return err
		}
		if from != "" {
			s.queue = append(s.queue, &pass{
				specs: []TargetSpec{u}, target: u.target(), from: from, until: until, replayed: true,
			})
		}
	}
	return nil
}

const linkPrefix = "invocation:"

func (s *Source) runningUnits(glob string) []TargetSpec {
	entries, err := os.ReadDir(s.opts.UnitsDir)
	if err != nil {
		return nil // no systemd here: units show up with their first entry
	}
	var units []TargetSpec
	for _, e := range entries {
		unit, ok := strings.CutPrefix(e.Name(), linkPrefix)
		if !ok {
			continue
		}
		if match, _ := path.Match(glob, unit); match {
			units = append(units, TargetSpec{Unit: unit})
		}
	}
	return units
}

// beginning returns the cursor of the first entry of the invocation that was
// present at the cursor until; "" when there is nothing to read.
func (s *Source) beginning(ctx context.Context, spec TargetSpec, until string) (string, error) {
	end, err := parsePlace(until)
	if err != nil {
		return "", err
	}
	if spec.Unit != "" {
		// systemd keeps the present invocation's ID where anybody may read it.
		id, err := os.Readlink(filepath.Join(s.opts.UnitsDir, linkPrefix+spec.Unit))
		if err == nil {
			from, err := s.firstOf(ctx, spec, id, end)
			if err != nil || from != "" {
				return from, err
			}
		}
	}
	last, err := first(ctx, s.launcher, request{Matches: unitMatches(spec), From: until, Reverse: true})
	if err != nil || last.invocation == "" {
		return "", err
	}
	return s.firstOf(ctx, spec, last.invocation, end)
}

// firstOf returns the cursor of an invocation's first entry; "" when it lies
// behind end.
func (s *Source) firstOf(ctx context.Context, spec TargetSpec, id string, end place) (string, error) {
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
