package explain

import (
	"time"

	"github.com/startupd/startupd/pkg/event"
	"github.com/startupd/startupd/pkg/phases"
)

// Schema names the version of Report's JSON form. Fields may be added to a
// version; none is removed or changes its meaning.
const Schema = "startupd.explain/v1"

// The outcomes of a startup in a report.
const (
	Serving  = "serving"
	Failed   = "failed"
	Stopped  = "stopped"
	Stalled  = "stalled"
	Starting = "starting"
)

// Report is what an input tells of one unit's startups. A null field is not
// known.
type Report struct {
	Schema string `json:"schema"`
	// Target is the unit's or the file's name.
	Target string `json:"target"`
	// Engine, EngineVersion and Model are those of the last startup that told
	// them.
	Engine        *string `json:"engine"`
	EngineVersion *string `json:"engine_version"`
	Model         *string `json:"model"`
	// Startups are in order; never null.
	Startups []Startup `json:"startups"`
}

// Startup is one attempt to start the engine.
type Startup struct {
	// Invocation is null in a plain text.
	Invocation *string    `json:"invocation"`
	Began      *time.Time `json:"began"`
	Outcome    string     `json:"outcome"`
	// Reason says why it ended, or why it counts as stalled.
	Reason *string `json:"reason"`
	// Phase is the last of the five phases entered.
	Phase string  `json:"phase"`
	Step  *string `json:"step"`
	// Phases are those entered, in order.
	Phases []Phase `json:"phases"`
	// RootCause is null where none can be told.
	RootCause *RootCause `json:"root_cause"`
	Findings  []Finding  `json:"findings"`
	Gaps      []Gap      `json:"gaps"`
}

// Phase is one phase of a startup.
type Phase struct {
	Phase   string     `json:"phase"`
	Entered *time.Time `json:"entered"`
	// Seconds is null where the input has no times.
	Seconds *float64 `json:"seconds"`
	// Skipped is true for a phase that the startup does not have.
	Skipped  bool     `json:"skipped,omitempty"`
	Evidence Evidence `json:"evidence"`
}

// Evidence is why a phase was entered.
type Evidence struct {
	// Source is log, journal, unit, gpu or health; "" for a beginning that
	// nothing but itself shows.
	Source string  `json:"source"`
	Rule   *string `json:"rule"`
	Text   *string `json:"text"`
	// Line is 1-based in a text input, Cursor is the journal's.
	Line   *int    `json:"line"`
	Cursor *string `json:"cursor"`
}

// RootCause is the one cause of a failed or stalled startup.
type RootCause struct {
	Class       string  `json:"class"`
	Exception   *string `json:"exception"`
	Message     *string `json:"message"`
	Process     *string `json:"process"`
	Line        *int    `json:"line"`
	Cursor      *string `json:"cursor"`
	DiedIn      *string `json:"died_in"`
	Remediation *string `json:"remediation"`
}

// Finding is one kind of error record.
type Finding struct {
	// Verdict is cause, symptom, suspect or benign.
	Verdict   string  `json:"verdict"`
	Class     string  `json:"class"`
	Exception *string `json:"exception"`
	Message   *string `json:"message"`
	Process   *string `json:"process"`
	Lines     []int   `json:"lines"`
	Count     int     `json:"count"`
}

// Gap is a hole in the evidence.
type Gap struct {
	Kind string `json:"kind"`
	// Lines is how many lines were lost; null when that is not known.
	Lines  *int       `json:"lines"`
	Detail *string    `json:"detail"`
	At     *time.Time `json:"at"`
}

// newReport returns the report of a target's startups, which are in order.
func newReport(target string, startups []*phases.Startup) *Report {
	r := &Report{Schema: Schema, Target: target, Startups: []Startup{}}
	for _, s := range startups {
		r.Startups = append(r.Startups, newStartup(s))
		r.Engine = known(s.Engine.Name, r.Engine)
		r.EngineVersion = known(s.Engine.Version, r.EngineVersion)
		r.Model = known(s.Engine.Model, r.Model)
	}
	return r
}

func newStartup(s *phases.Startup) Startup {
	out := Startup{
		Invocation: known(s.Invocation, nil), Began: wall(s.Began), Outcome: outcome(s), Reason: known(s.Reason, nil),
		Step: known(s.Step, nil), Phases: []Phase{}, Findings: []Finding{}, Gaps: []Gap{},
	}
	if s.Stalled {
		out.Reason = known(s.StalledReason, nil)
	}
	for _, p := range s.Phases {
		if !p.Skipped {
			out.Phase = string(p.Phase)
		}
		out.Phases = append(out.Phases, newPhase(p))
	}
	for _, g := range s.Gaps {
		gap := Gap{Kind: string(g.Kind), Detail: known(g.Detail, nil), At: wall(g.At)}
		if g.Lines > 0 {
			gap.Lines = &g.Lines
		}
		out.Gaps = append(out.Gaps, gap)
	}
	return out
}

func newPhase(p phases.Phase) Phase {
	e := p.Evidence
	out := Phase{
		Phase: string(p.Phase), Entered: wall(p.Entered), Skipped: p.Skipped,
		Evidence: Evidence{Source: e.Source, Rule: known(e.Rule, nil), Text: known(e.Text, nil), Cursor: known(e.Cursor, nil)},
	}
	if !p.Entered.IsZero() {
		out.Seconds = &p.Seconds
	}
	if e.LineNo > 0 {
		out.Evidence.Line = &e.LineNo
	}
	return out
}

func outcome(s *phases.Startup) string {
	switch {
	case s.Outcome != phases.OutcomeNone:
		return string(s.Outcome)
	case s.Stalled:
		return Stalled
	}
	return Starting
}

// known returns s, or otherwise when s is "".
func known(s string, otherwise *string) *string {
	if s == "" {
		return otherwise
	}
	return &s
}

func wall(s event.Stamp) *time.Time {
	if s.Real.IsZero() {
		return nil
	}
	t := s.Real.UTC()
	return &t
}
