package watch

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/startupd/startupd/pkg/triage"
	"github.com/startupd/startupd/pkg/web/api"
)

const (
	// maxShown bounds the findings of a verdict that are shown one by one.
	maxShown = 12
	// fresh is how long a finding counts as having just come.
	fresh = 15 * time.Second
)

// findings shows what looks like an error, the most telling first: what is new,
// then what came last. Harmless ones are a count unless they are asked for.
func (p *page) findings(u subject, benign bool) {
	s := u.Startup
	if s == nil {
		return
	}
	if len(s.Findings) == 0 {
		p.counted(s)
		return
	}
	cause := u.causeFinding(s.RootCause)
	var suspects, symptoms, harmless []*api.Finding
	for i := range s.Findings {
		switch f := &s.Findings[i]; {
		case f == cause:
		case f.Verdict == string(triage.Benign):
			harmless = append(harmless, f)
		case f.Verdict == string(triage.Symptom):
			symptoms = append(symptoms, f)
		default:
			suspects = append(suspects, f)
		}
	}
	if len(suspects)+len(symptoms)+len(harmless) == 0 {
		return
	}
	p.title("FINDINGS", p.news(s))
	p.rows(u, suspects, "suspect", "", warn)
	p.rows(u, symptoms, "consequence", " of what went wrong", plain)
	switch {
	case len(harmless) == 0:
	case benign:
		p.rows(u, harmless, "harmless error", "", dim)
	default:
		p.line(fmt.Sprintf("  %s of %s", plural(records(harmless), "harmless error line"), plural(len(harmless), "kind")))
	}
}

// counted tells the findings of which only the number is known.
func (p *page) counted(s *api.Startup) {
	var parts []string
	for _, v := range []triage.Verdict{triage.Cause, triage.Suspect, triage.Symptom, triage.Benign} {
		if n := s.Errors[string(v)]; n > 0 {
			parts = append(parts, fmt.Sprintf("%d %s", n, v))
		}
	}
	if len(parts) > 0 {
		p.title("FINDINGS", "error records: "+strings.Join(parts, ", "))
	}
}

// news says how many findings no good start has had.
func (p *page) news(s *api.Startup) string {
	switch {
	case s.NewErrors == nil:
		return ""
	case *s.NewErrors == 0:
		return "nothing new: good starts have had each of them"
	}
	return fmt.Sprintf("%d new: no good start has had them", *s.NewErrors)
}

func records(list []*api.Finding) int {
	n := 0
	for _, f := range list {
		n += f.Count
	}
	return n
}

// rows shows findings of one verdict in a line each.
func (p *page) rows(u subject, list []*api.Finding, thing, more string, t tone) {
	if len(list) == 0 {
		return
	}
	slices.SortStableFunc(list, func(a, b *api.Finding) int {
		if a.New != b.New {
			if a.New {
				return -1
			}
			return 1
		}
		return b.At.Compare(a.At)
	})
	p.line("  " + p.paint(t, plural(len(list), thing)) + p.paint(dim, more))
	for i, f := range list {
		if i == maxShown {
			p.line("    " + p.paint(dim, fmt.Sprintf("and %d more", len(list)-i)))
			return
		}
		p.finding(u, f)
	}
}

// finding is one line: when, who, how often, what.
func (p *page) finding(u subject, f *api.Finding) {
	mark := " "
	if !f.At.IsZero() && u.now.Sub(f.At) < fresh {
		mark = p.paint(busy, "*")
	}
	var parts []string
	if !f.At.IsZero() {
		parts = append(parts, p.paint(dim, p.clock(f.At)))
	}
	if f.New {
		parts = append(parts, p.paint(warn, "new"))
	}
	if f.Process != "" && p.width >= 60 {
		parts = append(parts, p.clean(f.Process))
	}
	if f.Count > 1 {
		parts = append(parts, fmt.Sprintf("%dx", f.Count))
	}
	if f.Class != triage.ClassUnknown && f.Class != "" {
		parts = append(parts, p.paint(bold, p.clean(f.Class)))
	}
	p.line("  " + mark + " " + strings.Join(append(parts, p.clean(spoken(f.Exception, f.Message))), "  "))
}
