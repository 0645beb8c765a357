package app

import (
	"maps"
	"slices"
	"strings"

	"github.com/startupd/startupd/pkg/event"
	"github.com/startupd/startupd/pkg/phases"
	"github.com/startupd/startupd/pkg/triage"
)

// maxShown bounds the findings that the page lists of each verdict.
const maxShown = 50

// causeView is a root cause as a card. A text is "" where nothing is known.
type causeView struct {
	Title                         string
	Class, Message, Process, When string
	Remediation                   string
	// Retry says in words whether starting again can help.
	Retry              string
	DiedIn, ExitStatus string
	LastLines          []lastLine
	NotArrived         string
	// Command shows the place in the journal.
	Command     string
	Provisional bool
}

type lastLine struct{ Process, Text string }

// errorsView are a startup's errors.
type errorsView struct {
	Title  string
	Groups []verdictView
}

// verdictView are the findings of one verdict.
type verdictView struct {
	Verdict triage.Verdict
	Meaning string
	// Summary says how many records and kinds there are.
	Summary  string
	Findings []findingView
	// More is how many kinds are not listed.
	More int
}

type findingView struct {
	Count                     int
	Class, Message, Who, When string
	New                       bool
	// History says in which starts it was seen before; "" when not known.
	History string
}

// causesOf are the cards of a unit: why its present start failed or hangs, and
// why the one before failed, if that still matters.
func causesOf(t *phases.Target, now event.Stamp) []causeView {
	var vs []causeView
	s := t.Startup
	if s != nil && s.RootCause != nil {
		title := "Why the start failed"
		if s.Stalled {
			title = "Why the start hangs"
		}
		vs = append(vs, newCauseView(title, s.RootCause, now))
	}
	if t.Failure != nil && (s == nil || s.Outcome != phases.OutcomeFailed) {
		vs = append(vs, newCauseView("Why the last failed start failed", t.Failure, now))
	}
	// The present start has failed, and only the target tells of what.
	if t.Failure != nil && len(vs) == 0 {
		vs = append(vs, newCauseView("Why the start failed", t.Failure, now))
	}
	return vs
}

func newCauseView(title string, c *triage.RootCause, now event.Stamp) causeView {
	v := causeView{
		Title: title, Class: c.Class, Message: errorText(c.Exception, c.Message), Process: c.Process,
		When: moment(c.At), Remediation: c.Remediation, Retry: retryText(c.Retry),
		DiedIn: c.DiedIn, ExitStatus: c.ExitStatus, NotArrived: strings.Join(c.NotArrived, ", "), Provisional: c.Provisional,
	}
	if ago := now.Sub(c.At).Seconds(); v.When != "" && ago >= 0 {
		v.When += ", " + took(ago) + " ago"
	}
	if c.Cursor != "" && !strings.Contains(c.Cursor, "'") {
		v.Command = "journalctl --cursor='" + c.Cursor + "'"
	}
	for _, process := range slices.Sorted(maps.Keys(c.LastLines)) {
		v.LastLines = append(v.LastLines, lastLine{process, c.LastLines[process]})
	}
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
		return ""
	case *retry:
		return "Starting again can help."
	}
	return "Starting again does not help."
}

// errorsOf lists the errors of the present start, and those of the last one
// where its failure still matters.
func errorsOf(t *phases.Target) []errorsView {
	var vs []errorsView
	add := func(title string, s *phases.Startup) {
		if groups := verdictViews(s); len(groups) > 0 {
			vs = append(vs, errorsView{title, groups})
		}
	}
	s, last := t.Startup, t.Last
	if s != nil {
		add("Errors of this start", s)
	}
	same := s != nil && last != nil && s.Invocation == last.Invocation && s.Generation == last.Generation && s.Began == last.Began
	if last != nil && !same && t.Failure != nil && last.Outcome == phases.OutcomeFailed {
		add("Errors of the last failed start", last)
	}
	return vs
}

func verdictViews(s *phases.Startup) []verdictView {
	var vs []verdictView
	for _, v := range []verdictView{
		{Verdict: triage.Cause, Meaning: "what the start failed of"},
		{Verdict: triage.Suspect, Meaning: "look like errors, and no more is known"},
		{Verdict: triage.Symptom, Meaning: "report the failure, or follow from it"},
		{Verdict: triage.Benign, Meaning: "look like errors and harm nothing"},
	} {
		v.fill(s)
		if v.Summary != "" {
			vs = append(vs, v)
		}
	}
	return vs
}

// fill takes the findings of the verdict, the new ones first. Counts come from
// the startup, which counts also what is too much to keep.
func (v *verdictView) fill(s *phases.Startup) {
	var records, listed int
	for k, n := range s.Errors {
		if k.Verdict == v.Verdict {
			records += n
		}
	}
	var all []triage.Finding
	for _, f := range s.Findings {
		if f.Verdict == v.Verdict {
			all = append(all, f)
			listed += f.Count
		}
	}
	if records = max(records, listed); records == 0 {
		return
	}
	v.Summary = counted(records, "record", "records")
	if len(all) > 0 {
		v.Summary += " of " + counted(len(all), "kind", "kinds")
	}
	slices.SortStableFunc(all, func(a, b triage.Finding) int {
		switch {
		case a.New == b.New:
			return 0
		case a.New:
			return -1
		}
		return 1
	})
	for _, f := range all[:min(len(all), maxShown)] {
		v.Findings = append(v.Findings, newFindingView(&f))
	}
	v.More = len(all) - len(v.Findings)
}

func newFindingView(f *triage.Finding) findingView {
	v := findingView{
		Count: f.Count, Class: f.Class, Message: errorText(f.Exception, f.Message), Who: f.Process, When: moment(f.At), New: f.New,
	}
	if n := len(f.Processes); n > 1 {
		v.Who = counted(n, "process", "processes") + ", first " + f.Process
	}
	if f.Good != nil && f.Bad != nil {
		v.History = "seen before in " + counted(*f.Good, "good start", "good starts") + " and " + counted(*f.Bad, "failed one", "failed ones")
	}
	return v
}
