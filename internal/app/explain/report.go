package explain

import (
	"cmp"
	"math"
	"time"

	"github.com/startupd/startupd/pkg/event"
	"github.com/startupd/startupd/pkg/history"
	"github.com/startupd/startupd/pkg/phases"
	"github.com/startupd/startupd/pkg/triage"
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

	// Trouble is what could not be read beside the input, for whoever asked; nil when
	// nothing is amiss. The report is as complete as it can be.
	Trouble error `json:"-"`
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
	// ServingEnded is when an engine that served was gone, and ServingEndReason how
	// (stopped, exited or killed); null while it serves, or when it never did.
	ServingEnded     *time.Time `json:"serving_ended"`
	ServingEndReason *string    `json:"serving_end_reason"`
	// RootCause is null where none can be told.
	RootCause *RootCause `json:"root_cause"`
	// Findings are in the order of their first record; never null.
	Findings []Finding `json:"findings"`
	// NewErrors counts the findings that no good start has had; null when no good
	// start is known.
	NewErrors *int `json:"new_errors"`
	// Arguments are the engine's, Versions those of packages; null when not told.
	Arguments map[string]string `json:"arguments"`
	Versions  map[string]string `json:"versions"`
	Gaps      []Gap             `json:"gaps"`
	// Diff is what is new since the last good startup; null unless asked for.
	Diff *history.Diff `json:"diff"`

	// number is the startup's place in the input, of all of its startups; from 1.
	number, of int
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
	// Class is the catalogue's, or unknown: then DiedIn, ExitStatus and LastLines
	// say what is known instead.
	Class     string  `json:"class"`
	Exception *string `json:"exception"`
	Message   *string `json:"message"`
	// Process is kernel or systemd for their own lines.
	Process *string    `json:"process"`
	Line    *int       `json:"line"`
	Cursor  *string    `json:"cursor"`
	At      *time.Time `json:"at"`
	// DiedIn is a phase, ExitStatus what systemd told of the main process.
	DiedIn      *string `json:"died_in"`
	ExitStatus  *string `json:"exit_status"`
	Remediation *string `json:"remediation"`
	// Retry says whether starting again can help.
	Retry *bool `json:"retry"`
	// NotArrived are the processes that a hang waits for.
	NotArrived []string `json:"not_arrived"`
	// LastLines holds the last line of each process, by its name.
	LastLines   map[string]string `json:"last_lines"`
	Fingerprint *string           `json:"fingerprint"`
	Rule        *string           `json:"rule"`
	// Provisional is true while later evidence can still amend it.
	Provisional bool `json:"provisional"`
}

// Finding is one kind of error record.
type Finding struct {
	// Verdict is cause, symptom, suspect or benign.
	Verdict   string  `json:"verdict"`
	Class     string  `json:"class"`
	Exception *string `json:"exception"`
	Message   *string `json:"message"`
	// Process told it first; Processes are all that told it.
	Process   *string  `json:"process"`
	Processes []string `json:"processes"`
	// Lines are those of a text; empty in a journal.
	Lines []int `json:"lines"`
	// Cursor is that of the first record.
	Cursor *string `json:"cursor"`
	// Count is how many records told it.
	Count int `json:"count"`
	// First is when it was told first.
	First       *time.Time `json:"first"`
	Fingerprint *string    `json:"fingerprint"`
	// New says that no good start has had it; Good and Bad are how many good and
	// failed startups before have. All are null without a history.
	New  *bool   `json:"new"`
	Good *int    `json:"good"`
	Bad  *int    `json:"bad"`
	Rule *string `json:"rule"`
}

// Gap is a hole in the evidence.
type Gap struct {
	Kind string `json:"kind"`
	// Lines is how many lines were lost; null when that is not known.
	Lines  *int       `json:"lines"`
	Detail *string    `json:"detail"`
	At     *time.Time `json:"at"`
}

// newReport returns the report of a target's startups, which are in order, and
// of which it shows those that were chosen.
func newReport(target string, all []*phases.Startup, chosen span) *Report {
	r := &Report{Schema: Schema, Target: target, Startups: []Startup{}}
	for i := chosen.from; i < chosen.to; i++ {
		s := all[i]
		out := newStartup(s)
		out.number, out.of = i+1, len(all)
		r.Startups = append(r.Startups, out)
		r.Engine = known(s.Engine.Name, r.Engine)
		r.EngineVersion = known(s.Engine.Version, r.EngineVersion)
		r.Model = known(s.Engine.Model, r.Model)
	}
	return r
}

func newStartup(s *phases.Startup) Startup {
	out := Startup{
		Invocation: known(s.Invocation, nil), Began: wall(s.Began), Outcome: outcome(s), Reason: known(s.Reason, nil),
		Step: known(s.Step, nil), Phases: []Phase{}, ServingEnded: wall(s.ServingEnded),
		ServingEndReason: known(s.ServingEndReason, nil), RootCause: newRootCause(s.RootCause),
		Findings: []Finding{}, NewErrors: s.NewErrors, Arguments: s.Arguments, Versions: s.Versions, Gaps: []Gap{},
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
	for i := range s.Findings {
		out.Findings = append(out.Findings, newFinding(&s.Findings[i]))
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

func newRootCause(c *triage.RootCause) *RootCause {
	if c == nil {
		return nil
	}
	out := &RootCause{
		Class: cmp.Or(c.Class, triage.ClassUnknown), Exception: known(c.Exception, nil), Message: known(c.Message, nil), Process: known(c.Process, nil),
		Cursor: known(c.Cursor, nil), At: wall(c.At), DiedIn: known(c.DiedIn, nil), ExitStatus: known(c.ExitStatus, nil),
		Remediation: known(c.Remediation, nil), Retry: c.Retry, NotArrived: c.NotArrived, LastLines: c.LastLines,
		Fingerprint: known(c.Fingerprint, nil), Rule: known(c.Rule, nil), Provisional: c.Provisional,
	}
	if c.Line > 0 {
		out.Line = &c.Line
	}
	return out
}

func newFinding(f *triage.Finding) Finding {
	out := Finding{
		Verdict: string(f.Verdict), Class: cmp.Or(f.Class, triage.ClassUnknown), Exception: known(f.Exception, nil), Message: known(f.Message, nil),
		Process: known(f.Process, nil), Processes: append([]string{}, f.Processes...), Lines: append([]int{}, f.Lines...),
		Cursor: known(f.Cursor, nil), Count: f.Count, First: wall(f.At), Fingerprint: known(f.Fingerprint, nil),
		Good: f.Good, Bad: f.Bad, Rule: known(f.Rule, nil),
	}
	if f.Good != nil {
		out.New = &f.New
	}
	return out
}

func newPhase(p phases.Phase) Phase {
	e := p.Evidence
	out := Phase{
		Phase: string(p.Phase), Entered: wall(p.Entered), Skipped: p.Skipped,
		Evidence: Evidence{Source: e.Source, Rule: known(e.Rule, nil), Text: known(e.Text, nil), Cursor: known(e.Cursor, nil)},
	}
	if !p.Entered.IsZero() && !math.IsNaN(p.Seconds) && !math.IsInf(p.Seconds, 0) {
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
