package explain

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/startupd/startupd/pkg/history"
	"github.com/startupd/startupd/pkg/phases"
)

// Past returns what is kept of a target's startups, in order; nothing where
// nothing is kept.
type Past func(ctx context.Context, target string) ([]history.Record, error)

// compare tells what is new in a startup since the last good one before it: of
// the input, else of what is kept. err is why the latter could not be read; the
// comparison then says that no good start is known.
func compare(ctx context.Context, target string, before []*phases.Startup, now *phases.Startup, past Past) (*history.Diff, error) {
	var earlier []history.Record
	for _, s := range before {
		earlier = append(earlier, history.FromStartup(target, s))
	}
	var err error
	if past != nil && !slices.ContainsFunc(earlier, func(r history.Record) bool { return r.Good() }) {
		if earlier, err = past(ctx, target); err != nil {
			earlier, err = nil, fmt.Errorf("--diff: %w", err)
		}
	}
	record := history.FromStartup(target, now)
	d := history.Since(earlier, &record)
	return &d, err
}

// diffText is a comparison in lines; empty when none was asked for.
func diffText(d *history.Diff) []string {
	if d == nil {
		return nil
	}
	var b strings.Builder
	// A strings.Builder takes everything.
	_ = d.WriteText(&b)
	return strings.Split(strings.TrimSuffix(b.String(), "\n"), "\n")
}

// labelled is how wide the label of a comparison's line is, with its indent.
const labelled = 12

func (p *page) diff(d *history.Diff) {
	lines := diffText(d)
	for i, l := range lines {
		switch l = Visible(l); {
		case i == 0:
			p.para("  ", "", l)
		case len(l) > labelled && l[labelled-1] == ' ':
			p.para("  "+l[:labelled], "", l[labelled:])
		default:
			p.para("    ", "", l)
		}
	}
	if len(lines) > 0 {
		p.line("")
	}
}
