package explain

import (
	"fmt"
	"slices"

	"github.com/startupd/startupd/pkg/triage"
)

// maxEarlier bounds the lines on earlier startups: a restart loop has thousands.
const maxEarlier = 10

// earlier writes the startups before the last: a line each, and one line for
// several in a row that ended alike.
func (p *page) earlier(startups []Startup) {
	runs := alike(startups)
	if more := len(runs) - maxEarlier; more > 0 {
		n := 0
		for _, r := range runs[:more] {
			n += len(r)
		}
		p.para("", "", fmt.Sprintf("%s before these: --all shows them", plural(n, "startup")))
		runs = runs[more:]
	}
	for _, r := range runs {
		p.line("%s", cut(brieflyAll(r), p.opts.width()))
	}
}

// alike groups startups that follow each other and ended for the same cause.
func alike(startups []Startup) [][]Startup {
	var out [][]Startup
	from := 0
	for i := range startups {
		if i+1 == len(startups) || startups[i+1].ending() != startups[i].ending() {
			out = append(out, startups[from:i+1])
			from = i + 1
		}
	}
	return out
}

// ending is the outcome, the phase and the cause, as far as they are known.
func (s *Startup) ending() string {
	t := s.Outcome
	if s.Outcome != Serving {
		t += " in " + s.Phase
	}
	return t + s.cause()
}

// cause is the class of the root cause, or the reason where there is none.
func (s *Startup) cause() string {
	switch {
	case s.RootCause != nil && s.RootCause.Class == triage.ClassUnknown:
		return ": cause unknown"
	case s.RootCause != nil:
		return ": " + Visible(s.RootCause.Class)
	case s.ServingEndReason != nil:
		return ", later " + Visible(*s.ServingEndReason)
	case s.Outcome != Serving && s.Reason != nil:
		return ": " + Visible(*s.Reason)
	}
	return ""
}

// brieflyAll is a run of startups in a line: what is theirs alike, and the range
// of how long they took.
func brieflyAll(run []Startup) string {
	first, last := &run[0], &run[len(run)-1]
	t := fmt.Sprintf("%d of %d: ", first.number, first.of)
	if len(run) > 1 {
		t = fmt.Sprintf("%d to %d of %d: ", first.number, last.number, first.of)
	}
	t += first.Outcome
	if first.Outcome != Serving {
		t += " in " + first.Phase
	}
	return t + lasted(run) + first.cause()
}

// lasted is how long the startups of a run took; "" when that is not known of
// all.
func lasted(run []Startup) string {
	var all []float64
	for i := range run {
		sum, ok := run[i].took()
		if !ok {
			return ""
		}
		all = append(all, sum)
	}
	low, high := brief(slices.Min(all)), brief(slices.Max(all))
	if low == high {
		return " after " + low
	}
	return " after " + low + " to " + high
}
