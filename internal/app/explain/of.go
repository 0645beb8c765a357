package explain

import (
	"github.com/startupd/startupd/pkg/triage"
	"github.com/startupd/startupd/pkg/web/api"
)

// Of is the report of one startup that the daemon, or a core in this process,
// tells of.
func Of(s *api.Startup) *Report {
	return &Report{
		Schema: Schema, Target: s.Unit, Engine: known(s.Engine, nil), EngineVersion: known(s.Version, nil), Model: known(s.Model, nil),
		Startups: []Startup{fromAPI(s)},
	}
}

func fromAPI(s *api.Startup) Startup {
	out := Startup{
		Invocation: known(s.Invocation, nil), Outcome: s.Outcome, Reason: known(s.Reason, nil), Phase: s.Phase, Step: known(s.Step, nil),
		Phases: []Phase{}, ServingEndReason: known(s.ServingEndReason, nil), RootCause: causeFromAPI(s.RootCause),
		Findings: []Finding{}, NewErrors: s.NewErrors, Arguments: s.Arguments, Versions: s.Versions, Gaps: []Gap{},
	}
	if !s.Began.IsZero() {
		out.Began = &s.Began
	}
	if !s.ServingEnded.IsZero() {
		out.ServingEnded = &s.ServingEnded
	}
	for i := range s.Phases {
		out.Phases = append(out.Phases, phaseFromAPI(&s.Phases[i]))
	}
	for i := range s.Findings {
		out.Findings = append(out.Findings, findingFromAPI(&s.Findings[i]))
	}
	for i := range s.Gaps {
		g := &s.Gaps[i]
		gap := Gap{Kind: g.Kind, Detail: known(g.Detail, nil)}
		if g.Lines > 0 {
			gap.Lines = &g.Lines
		}
		if !g.At.IsZero() {
			gap.At = &g.At
		}
		out.Gaps = append(out.Gaps, gap)
	}
	return out
}

func causeFromAPI(c *api.RootCause) *RootCause {
	if c == nil {
		return nil
	}
	out := &RootCause{
		Class: c.Class, Exception: known(c.Exception, nil), Message: known(c.Message, nil), Process: known(c.Process, nil),
		Cursor: known(c.Cursor, nil), DiedIn: known(c.DiedIn, nil), ExitStatus: known(c.ExitStatus, nil),
		Remediation: known(c.Remediation, nil), Retry: c.Retry, NotArrived: c.NotArrived, LastLines: c.LastLines,
		Fingerprint: known(c.Fingerprint, nil), Rule: known(c.Rule, nil), Provisional: c.Provisional,
	}
	if out.Class == "" {
		out.Class = triage.ClassUnknown
	}
	if c.Line > 0 {
		out.Line = &c.Line
	}
	if !c.At.IsZero() {
		out.At = &c.At
	}
	return out
}

func phaseFromAPI(p *api.Phase) Phase {
	out := Phase{Phase: p.Phase, Seconds: p.Seconds, Skipped: p.Skipped}
	if !p.Entered.IsZero() {
		out.Entered = &p.Entered
	}
	if e := p.Evidence; e != nil {
		out.Evidence = Evidence{Source: e.Source, Rule: known(e.Rule, nil), Text: known(e.Text, nil), Cursor: known(e.Cursor, nil)}
		if e.Line > 0 {
			out.Evidence.Line = &e.Line
		}
	}
	return out
}

func findingFromAPI(f *api.Finding) Finding {
	out := Finding{
		Verdict: f.Verdict, Class: f.Class, Exception: known(f.Exception, nil), Message: known(f.Message, nil),
		Process: known(f.Process, nil), Processes: append([]string{}, f.Processes...), Lines: []int{},
		Cursor: known(f.Cursor, nil), Count: f.Count, Fingerprint: known(f.Fingerprint, nil), Good: f.Good, Bad: f.Bad, Rule: known(f.Rule, nil),
	}
	if out.Class == "" {
		out.Class = triage.ClassUnknown
	}
	if !f.At.IsZero() {
		out.First = &f.At
	}
	if f.Good != nil {
		out.New = &f.New
	}
	return out
}

// Brief prints a duration, in seconds, for a sentence.
func Brief(seconds float64) string { return brief(seconds) }

// Cut shortens visible text to at most n columns of a terminal and marks that it
// did.
func Cut(text string, n int) string { return cut(text, n) }

// Columns is how many columns of a terminal visible text takes.
func Columns(text string) int { return columns(text) }
