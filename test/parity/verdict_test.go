package parity

import (
	"slices"

	"github.com/startupd/startupd/internal/app/explain"
	"github.com/startupd/startupd/pkg/phases"
)

// verdict is what must be the same whatever clocks and positions a log has.
type verdict struct {
	Outcome, Phase, Step string
	Phases               []string
	Root                 *rootCause
	Findings             []finding
}

type rootCause struct {
	Class, Exception, Message, Process, Rule string
	Remediation, DiedIn, ExitStatus          string
	Fingerprint                              string
	NotArrived                               []string
	Provisional                              bool
}

type finding struct {
	Verdict, Class, Exception, Message, Process, Rule, Fingerprint string
	Processes                                                      []string
	Count                                                          int
	New                                                            bool
}

// verdicts are those of a target's startups.
func verdicts(list []*phases.Startup) []verdict {
	var out []verdict
	for _, s := range list {
		out = append(out, verdictOf(s))
	}
	return out
}

func verdictOf(s *phases.Startup) verdict {
	v := verdict{Outcome: string(s.Outcome), Step: s.Step}
	switch {
	case s.Outcome != phases.OutcomeNone:
	case s.Stalled:
		v.Outcome = explain.Stalled
	default:
		v.Outcome = explain.Starting
	}
	for _, p := range s.Phases {
		v.Phases = append(v.Phases, string(p.Phase))
		if !p.Skipped {
			v.Phase = string(p.Phase)
		}
	}
	if c := s.RootCause; c != nil {
		v.Root = &rootCause{
			Class: c.Class, Exception: c.Exception, Message: c.Message, Process: c.Process, Rule: c.Rule,
			Remediation: c.Remediation, DiedIn: c.DiedIn, ExitStatus: c.ExitStatus, Fingerprint: c.Fingerprint,
			NotArrived: c.NotArrived, Provisional: c.Provisional,
		}
	}
	for _, f := range s.Findings {
		v.Findings = append(v.Findings, finding{
			Verdict: string(f.Verdict), Class: f.Class, Exception: f.Exception, Message: f.Message, Process: f.Process, Rule: f.Rule,
			Fingerprint: f.Fingerprint, Processes: f.Processes, Count: f.Count, New: f.New,
		})
	}
	return v
}

// ofReport is the verdict that a report tells.
func ofReport(s explain.Startup) verdict {
	v := verdict{Outcome: s.Outcome, Phase: s.Phase, Step: text(s.Step)}
	for _, p := range s.Phases {
		v.Phases = append(v.Phases, p.Phase)
	}
	if c := s.RootCause; c != nil {
		v.Root = &rootCause{
			Class: c.Class, Exception: text(c.Exception), Message: text(c.Message), Process: text(c.Process), Rule: text(c.Rule),
			Remediation: text(c.Remediation), DiedIn: text(c.DiedIn), ExitStatus: text(c.ExitStatus), Fingerprint: text(c.Fingerprint),
			NotArrived: c.NotArrived, Provisional: c.Provisional,
		}
	}
	for _, f := range s.Findings {
		v.Findings = append(v.Findings, finding{
			Verdict: f.Verdict, Class: f.Class, Exception: text(f.Exception), Message: text(f.Message), Process: text(f.Process), Rule: text(f.Rule),
			Fingerprint: text(f.Fingerprint), Processes: orNil(f.Processes), Count: f.Count, New: f.New != nil && *f.New,
		})
	}
	return v
}

func text(s *string) string {
	if s == nil {
		return ""
	}
	return *s
}

// orNil makes an empty list one that is not there: JSON tells them apart, a
// verdict doesn't.
func orNil(list []string) []string {
	if len(list) == 0 {
		return nil
	}
	return slices.Clone(list)
}
