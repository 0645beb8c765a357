package explain

import (
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/startupd/startupd/pkg/phases"
)

// NoInvocationError says that an input does not hold the invocation that was
// asked for, and which it holds.
type NoInvocationError struct{ text string }

func (e *NoInvocationError) Error() string { return e.text }

// span is a range of startups, from included, to not.
type span struct{ from, to int }

// minPrefix is how much of an invocation ID names it: a short number is meant as
// a count.
const minPrefix = 6

// choose returns the startups of the invocation that is wanted; all where
// nothing is asked for.
func choose(all []*phases.Startup, wanted, input string) (span, error) {
	if wanted == "" {
		return span{0, len(all)}, nil
	}
	list := invocations(all)
	if back, err := strconv.Atoi(wanted); err == nil && back <= 0 {
		if n := len(list) - 1 + back; n >= 0 {
			return list[n], nil
		}
		return span{}, notThere(all, list, wanted, input)
	}
	var found []span
	for _, s := range list {
		id := all[s.from].Invocation
		if id == wanted {
			return s, nil
		}
		if len(wanted) >= minPrefix && strings.HasPrefix(id, wanted) {
			found = append(found, s)
		}
	}
	if len(found) == 1 {
		return found[0], nil
	}
	return span{}, notThere(all, list, wanted, input)
}

// invocations groups startups by invocation, in order. A startup without one
// stands for itself.
func invocations(all []*phases.Startup) []span {
	var out []span
	for i, s := range all {
		if i > 0 && s.Invocation != "" && s.Invocation == all[i-1].Invocation {
			out[len(out)-1].to = i + 1
			continue
		}
		out = append(out, span{i, i + 1})
	}
	return out
}

// maxListed bounds the invocations that an error lists, the newest ones.
const maxListed = 10

func notThere(all []*phases.Startup, list []span, wanted, input string) error {
	var b strings.Builder
	fmt.Fprintf(&b, "no invocation %q in %s, which holds %d", wanted, Visible(input), len(list))
	if len(list) == 0 {
		b.WriteString(": is it the log of an LLM server from its start on?")
	}
	for back := range min(len(list), maxListed) {
		s := all[list[len(list)-1-back].to-1]
		sep := "; "
		if back == 0 {
			sep = ": choose "
		}
		fmt.Fprintf(&b, "%s%d", sep, -back)
		if s.Invocation != "" {
			fmt.Fprintf(&b, " or %s", Visible(s.Invocation))
		}
		fmt.Fprintf(&b, " (%s", outcome(s))
		if !s.Began.Real.IsZero() {
			fmt.Fprintf(&b, ", began %s UTC", s.Began.Real.UTC().Format(time.DateTime))
		}
		b.WriteString(")")
	}
	if more := len(list) - maxListed; more > 0 {
		fmt.Fprintf(&b, "; and %d before them", more)
	}
	return &NoInvocationError{b.String()}
}
