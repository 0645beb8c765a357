package page

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/startupd/startupd/pkg/triage"
	"github.com/startupd/startupd/pkg/web/api"
)

// maxShown bounds the findings that the page lists of each verdict.
const maxShown = 20

// causeView is a root cause as a card. A text is "" where nothing is known.
type causeView struct {
	ID, Title                     string
	Class, Message, Process, When string
	Ago                           duration
	Remediation                   string
	// Retry says in words whether starting again can help.
	Retry              string
	DiedIn, ExitStatus string
	LastLines          []fact
	NotArrived         string
	Rule               string
	// Line is the line's number in a text; 0 in a journal.
	Line int
	// Command shows the place in the journal.
	Command     string
	Provisional bool
	// Unknown says that the log names no cause.
	Unknown bool
}

// causes are the cards of a unit: why its present start failed or hangs, and why
// the one before failed, if that still matters.
func (b *builder) causes() (now, before []causeView) {
	u, s := b.unit, b.unit.Startup
	if s != nil && s.RootCause != nil {
		title := "Why the start failed"
		if s.Outcome == api.Stalled {
			title = "Why the start hangs"
		}
		now = append(now, b.cause(keyOf(s), title, s.RootCause, s.LastLines))
	}
	switch {
	case u.Failure == nil:
	case outcomeOf(u) != api.Failed:
		key, lines := "last", map[string]string(nil)
		if u.Last != nil && u.Last.Outcome == api.Failed {
			key, lines = keyOf(u.Last), u.Last.LastLines
		}
		before = append(before, b.cause(key, "Why the last failed start failed", u.Failure, lines))
	case len(now) == 0:
		// The present start has failed, and only the unit tells of what.
		now = append(now, b.cause(keyOf(s), "Why the start failed", u.Failure, nil))
	}
	return now, before
}

// keyOf is a part of the ids of what tells of a startup: it stays what it is when
// a later start makes it the last one, so that a reader keeps the place.
func keyOf(s *api.Startup) string {
	return fmt.Sprintf("%s-%d", strings.TrimPrefix(identifier(cmp.Or(s.Invocation, "text")), "u-"), s.Generation)
}

func (b *builder) cause(id, title string, c *api.RootCause, lines map[string]string) causeView {
	v := causeView{
		ID: identifier(b.unit.Unit) + "-cause-" + id, Title: title, Class: cmp.Or(c.Class, triage.ClassUnknown),
		Message: errorText(c.Exception, c.Message), Process: c.Process, When: moment(c.At, b.page.opt.Zone),
		Remediation: c.Remediation, Retry: retryText(c.Retry), DiedIn: c.DiedIn, ExitStatus: c.ExitStatus,
		NotArrived: strings.Join(c.NotArrived, ", "), Rule: c.Rule, Line: c.Line, Provisional: c.Provisional,
		Unknown: c.Class == triage.ClassUnknown || c.Class == "",
	}
	if s := ago(c.At, b.status.At); s != nil {
		v.Ago = duration{took(*s) + " ago", "ago", *s}
	}
	if c.Cursor != "" && !strings.Contains(c.Cursor, "'") {
		v.Command = "journalctl --cursor='" + c.Cursor + "'"
	}
	if len(c.LastLines) > 0 {
		lines = c.LastLines
	}
	v.LastLines = factsOf(lines)
	return v
}

// errorText is an error as Python prints it.
func errorText(exception, message string) string {
	switch {
	case exception == "" || strings.HasPrefix(message, exception):
		return message
	case message == "":
		return exception
	}
	return exception + ": " + message
}

func retryText(retry *bool) string {
	switch {
	case retry == nil:
		return "Whether starting again can help is not known."
	case *retry:
		return "Starting again can help."
	}
	return "Starting again does not help."
}

// errorsView are a startup's errors.
type errorsView struct {
	Title  string
	Groups []verdictView
}

// verdictView are the findings of one verdict.
type verdictView struct {
	ID               string
	Verdict, Meaning string
	// Summary says how many records and kinds there are.
	Summary  string
	New      int
	Findings []findingView
	// More is how many kinds are not listed.
	More int
}

type findingView struct {
	Count                     int
	Class, Message, Who, When string
	New, AfterReady           bool
	// History says in which starts it was seen before; "" when not known.
	History string
}

// errors lists the errors of the present start, and those of the last one where
// its failure still matters.
func (b *builder) errors() []errorsView {
	u := b.unit
	var vs []errorsView
	add := func(title string, s *api.Startup) {
		if groups := b.verdicts(s); len(groups) > 0 {
			vs = append(vs, errorsView{title, groups})
		}
	}
	if u.Startup != nil {
		add("Errors of this start", u.Startup)
	}
	if u.Last != nil && u.Failure != nil && u.Last.Outcome == api.Failed {
		add("Errors of the last failed start", u.Last)
	}
	return vs
}

func (b *builder) verdicts(s *api.Startup) []verdictView {
	var vs []verdictView
	for _, v := range []verdictView{
		{Verdict: string(triage.Cause), Meaning: "what the start failed of"},
		{Verdict: string(triage.Suspect), Meaning: "look like errors, and no more is known"},
		{Verdict: string(triage.Symptom), Meaning: "report the failure, or follow from it"},
		{Verdict: string(triage.Benign), Meaning: "look like errors and harm nothing"},
	} {
		v.ID = identifier(b.unit.Unit) + "-errors-" + keyOf(s) + "-" + v.Verdict
		b.fill(&v, s)
		if v.Summary != "" {
			vs = append(vs, v)
		}
	}
	return vs
}

// fill takes the findings of the verdict, the new ones first. Counts come from
// the startup, which counts also what is too much to keep.
func (b *builder) fill(v *verdictView, s *api.Startup) {
	records, listed := s.Errors[v.Verdict], 0
	var all []*api.Finding
	for i := range s.Findings {
		f := &s.Findings[i]
		if f.Verdict != v.Verdict {
			continue
		}
		all = append(all, f)
		listed += f.Count
		if f.New {
			v.New++
		}
	}
	if records = max(records, listed); records == 0 {
		return
	}
	v.Summary = counted(records, "record", "records")
	if len(all) > 0 {
		v.Summary += " of " + counted(len(all), "kind", "kinds")
	}
	slices.SortStableFunc(all, func(x, y *api.Finding) int {
		switch {
		case x.New == y.New:
			return 0
		case x.New:
			return -1
		}
		return 1
	})
	for _, f := range all[:min(len(all), maxShown)] {
		v.Findings = append(v.Findings, b.finding(f))
	}
	v.More = len(all) - len(v.Findings)
}

func (b *builder) finding(f *api.Finding) findingView {
	v := findingView{
		Count: f.Count, Class: f.Class, Message: errorText(f.Exception, f.Message), Who: f.Process,
		When: clockTime(f.At, b.status.At, b.page.opt.Zone), New: f.New, AfterReady: f.AfterReady,
	}
	if n := len(f.Processes); n > 1 {
		v.Who = counted(n, "process", "processes") + ", first " + cmp.Or(f.Process, "not told")
	}
	if f.Good != nil && f.Bad != nil {
		v.History = "seen before in " + counted(*f.Good, "good start", "good starts") + " and " + counted(*f.Bad, "failed one", "failed ones")
	}
	return v
}
