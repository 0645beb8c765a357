package api

import (
	"strconv"
	"time"

	"github.com/startupd/startupd/pkg/event"
	"github.com/startupd/startupd/pkg/history"
	"github.com/startupd/startupd/pkg/phases"
	"github.com/startupd/startupd/pkg/triage"
)

// The outcomes of a startup. Starting and Stalled are those of one that runs.
const (
	Serving  = "serving"
	Failed   = "failed"
	Stopped  = "stopped"
	Stalled  = "stalled"
	Starting = "starting"
)

// StartupsSchema names the version of Startups' JSON form.
const StartupsSchema = "startupd.startups/v1"

// Startups is a list of startups, the newest first; never null.
type Startups struct {
	Schema   string    `json:"schema"`
	Startups []Startup `json:"startups"`
	// Incomplete says why startups that were kept are missing; absent when none is.
	Incomplete string `json:"incomplete,omitempty"`
}

// Startup is one attempt to start an engine.
type Startup struct {
	Unit string `json:"unit"`
	// Invocation is the unit's invocation ID or the container's ID; Generation
	// counts the starts inside one, from 0.
	Invocation string `json:"invocation,omitempty"`
	// UnitInvocation is the unit's invocation ID where Invocation is a container's.
	UnitInvocation string    `json:"unit_invocation,omitempty"`
	Generation     int       `json:"generation"`
	Began          time.Time `json:"began,omitzero"`
	// Ended is when it served, failed or was stopped.
	Ended time.Time `json:"ended,omitzero"`
	// Seconds is how long it took, or has taken so far.
	Seconds *float64 `json:"seconds,omitempty"`
	// Outcome is serving, failed, stopped, stalled or starting.
	Outcome string `json:"outcome"`
	// Reason says why it ended, or why it counts as stalled.
	Reason string `json:"reason,omitempty"`
	// Phase is the last of the five phases entered, Step its last step.
	Phase     string    `json:"phase,omitempty"`
	Step      string    `json:"step,omitempty"`
	StepBegan time.Time `json:"step_began,omitzero"`
	// Progress is 0 to 1 in the phase; ProgressNote says what it counts.
	Progress     *float64 `json:"progress,omitempty"`
	ProgressNote string   `json:"progress_note,omitempty"`
	// ExpectedServing is when it will serve if its phases take as long as in the
	// unit's last good start.
	ExpectedServing time.Time `json:"expected_serving,omitzero"`
	// Slow says that the step's quiet budget is over while its processes are busy.
	Slow bool `json:"slow"`
	// AttachedLate is true when its beginning was not seen.
	AttachedLate bool   `json:"attached_late,omitempty"`
	Engine       string `json:"engine,omitempty"`
	Version      string `json:"version,omitempty"`
	Model        string `json:"model,omitempty"`
	// Phases and Steps are those entered, in order; Phases is never null.
	Phases    []Phase    `json:"phases"`
	Steps     []Step     `json:"steps,omitzero"`
	RootCause *RootCause `json:"root_cause,omitempty"`
	// Findings are its errors in the order of their first record; bounded.
	Findings []Finding `json:"findings,omitzero"`
	// Errors counts error records by verdict, also of findings that are too many
	// to keep; absent where that was not kept.
	Errors map[string]int `json:"errors,omitzero"`
	// NewErrors is how many findings no good start has had.
	NewErrors *int `json:"new_errors,omitempty"`
	// Gaps are the holes in its evidence, GapCount is how many there are.
	Gaps     []Gap `json:"gaps,omitzero"`
	GapCount int   `json:"gap_count"`
	// Arguments are the engine's that matter, Versions those of packages.
	Arguments map[string]string `json:"arguments,omitzero"`
	Versions  map[string]string `json:"versions,omitzero"`
	// WeightBytes is the weights' size on one GPU, PlateauBytes what the unit held
	// on each GPU, by index, once they were resident.
	WeightBytes  *uint64        `json:"weight_bytes,omitempty"`
	PlateauBytes map[int]uint64 `json:"gpu_plateau_bytes,omitzero"`
	// ServingEnded and ServingEndReason (stopped, exited, killed) are set when an
	// engine that served is gone.
	ServingEnded     time.Time `json:"serving_ended,omitzero"`
	ServingEndReason string    `json:"serving_end_reason,omitempty"`
	// Host and Port are where the engine says that it will serve.
	Host string `json:"host,omitempty"`
	Port int    `json:"port,omitempty"`
	// LastLines holds the last line of each process, by its name.
	LastLines map[string]string `json:"last_lines,omitzero"`
	// Exited is true once its main process is known to be gone.
	Exited bool `json:"exited,omitempty"`
	// Final is true once nothing can change outcome and root cause any more.
	Final bool `json:"final"`
}

// Phase is one phase of a startup.
type Phase struct {
	Phase   string    `json:"phase"`
	Entered time.Time `json:"entered,omitzero"`
	// Seconds is how long it lasted, or has lasted so far.
	Seconds *float64 `json:"seconds,omitempty"`
	// Done is true once it has been left.
	Done bool `json:"done"`
	// Skipped is true for a phase that this startup does not have.
	Skipped  bool      `json:"skipped,omitempty"`
	Evidence *Evidence `json:"evidence,omitempty"`
}

// Evidence is why a phase was entered.
type Evidence struct {
	// Source is log, journal, unit, gpu or health.
	Source string `json:"source,omitempty"`
	Rule   string `json:"rule,omitempty"`
	Text   string `json:"text,omitempty"`
	Cursor string `json:"cursor,omitempty"`
	// Line is 1-based in a text input.
	Line int `json:"line,omitempty"`
	// Provisional evidence may still be undone by a line.
	Provisional bool `json:"provisional,omitempty"`
}

// Step is one step of a phase.
type Step struct {
	Phase   string    `json:"phase"`
	Step    string    `json:"step"`
	Entered time.Time `json:"entered,omitzero"`
	Seconds *float64  `json:"seconds,omitempty"`
}

// Gap is a hole in the evidence.
type Gap struct {
	Kind string `json:"kind"`
	// Lines is how many were lost; absent when that is not known.
	Lines  int       `json:"lines,omitempty"`
	Detail string    `json:"detail,omitempty"`
	At     time.Time `json:"at,omitzero"`
}

// RootCause is why a startup failed or hangs.
type RootCause struct {
	// Class is the catalogue's, or unknown: then DiedIn, ExitStatus and LastLines
	// say what is known instead.
	Class       string    `json:"class"`
	Exception   string    `json:"exception,omitempty"`
	Message     string    `json:"message,omitempty"`
	Process     string    `json:"process,omitempty"`
	Rule        string    `json:"rule,omitempty"`
	Line        int       `json:"line,omitempty"`
	Cursor      string    `json:"cursor,omitempty"`
	At          time.Time `json:"at,omitzero"`
	Fingerprint string    `json:"fingerprint,omitempty"`
	Remediation string    `json:"remediation,omitempty"`
	// Retry says whether starting again can help.
	Retry      *bool             `json:"retry,omitempty"`
	DiedIn     string            `json:"died_in,omitempty"`
	ExitStatus string            `json:"exit_status,omitempty"`
	NotArrived []string          `json:"not_arrived,omitzero"`
	LastLines  map[string]string `json:"last_lines,omitzero"`
	// Provisional is true while later evidence can still amend it.
	Provisional bool `json:"provisional,omitempty"`
}

// Finding is one error of a startup.
type Finding struct {
	// Verdict is cause, symptom, suspect or benign.
	Verdict   string `json:"verdict"`
	Class     string `json:"class"`
	Exception string `json:"exception,omitempty"`
	Message   string `json:"message,omitempty"`
	// Process told it first, Processes are all that did.
	Process     string    `json:"process,omitempty"`
	Processes   []string  `json:"processes,omitzero"`
	Rule        string    `json:"rule,omitempty"`
	Cursor      string    `json:"cursor,omitempty"`
	At          time.Time `json:"at,omitzero"`
	Count       int       `json:"count"`
	Fingerprint string    `json:"fingerprint,omitempty"`
	// New says that no good start has had it; Good and Bad are how many good and
	// failed starts before had.
	New  bool `json:"new,omitempty"`
	Good *int `json:"good,omitempty"`
	Bad  *int `json:"bad,omitempty"`
	// AfterReady says that it was told while the startup served.
	AfterReady bool `json:"after_ready,omitempty"`
}

// EndOfServing says in words how an engine that had served was gone, by a
// ServingEndReason: "exited", "was killed", "was stopped"; another one as it is.
func EndOfServing(reason string) string {
	switch reason {
	case "killed", "stopped":
		return "was " + reason
	}
	return reason
}

// NewStartup returns the document of a startup as seen at now. It shares the
// startup's maps.
func NewStartup(unit string, s *phases.Startup, now event.Stamp) *Startup {
	out := &Startup{
		Unit: unit, Invocation: s.Invocation, UnitInvocation: s.UnitInvocation, Generation: s.Generation, Began: wall(s.Began), Ended: wall(s.Ended),
		Outcome: outcome(s), Reason: s.Reason, Step: s.Step, StepBegan: wall(s.StepBegan), Progress: s.Progress, ProgressNote: s.ProgressNote,
		ExpectedServing: wall(s.ExpectedServing), Slow: s.Slow, AttachedLate: s.AttachedLate,
		Engine: s.Engine.Name, Version: s.Engine.Version, Model: s.Engine.Model, Host: s.Engine.Host, Port: s.Engine.Port,
		Phases: []Phase{}, RootCause: newRootCause(s.RootCause), NewErrors: s.NewErrors, GapCount: len(s.Gaps),
		Arguments: s.Arguments, Versions: s.Versions, WeightBytes: s.WeightBytes, PlateauBytes: s.GPUPlateauBytes,
		ServingEnded: wall(s.ServingEnded), ServingEndReason: s.ServingEndReason, LastLines: s.LastLine, Exited: s.Exited, Final: s.Final,
	}
	if s.Stalled {
		out.Reason = s.StalledReason
	}
	end := s.Ended
	if end.IsZero() {
		end = now
	}
	out.Seconds = between(s.Began, end)
	out.addPhases(s, now)
	for i := range s.Findings {
		out.Findings = append(out.Findings, newFinding(&s.Findings[i]))
	}
	if len(s.Errors) > 0 {
		out.Errors = map[string]int{}
	}
	for k, n := range s.Errors {
		out.Errors[string(k.Verdict)] += n
	}
	for _, g := range s.Gaps {
		out.Gaps = append(out.Gaps, Gap{Kind: string(g.Kind), Lines: g.Lines, Detail: g.Detail, At: wall(g.At)})
	}
	return out
}

// addPhases fills in phases and steps. What still runs lasts until now, which
// may be later than the snapshot.
func (o *Startup) addPhases(s *phases.Startup, now event.Stamp) {
	for _, p := range s.Phases {
		out := Phase{
			Phase: string(p.Phase), Entered: wall(p.Entered), Done: p.Done, Skipped: p.Skipped,
			Evidence: &Evidence{
				Source: p.Evidence.Source, Rule: p.Evidence.Rule, Text: p.Evidence.Text, Cursor: p.Evidence.Cursor,
				Line: p.Evidence.LineNo, Provisional: p.Evidence.Provisional,
			},
		}
		if !p.Skipped {
			o.Phase = string(p.Phase)
		}
		out.Seconds = lasted(p.Entered, p.Seconds, !p.Done && s.ServingEnded.IsZero() && (s.Ended.IsZero() || p.Phase == phases.Serving), now)
		o.Phases = append(o.Phases, out)
	}
	for i, p := range s.Steps {
		runs := i == len(s.Steps)-1 && s.Ended.IsZero()
		o.Steps = append(o.Steps, Step{Phase: string(p.Phase), Step: p.Step, Entered: wall(p.Entered), Seconds: lasted(p.Entered, p.Seconds, runs, now)})
	}
}

// lasted is a duration in seconds; of what runs, up to now.
func lasted(entered event.Stamp, seconds float64, runs bool, now event.Stamp) *float64 {
	if entered.IsZero() {
		return nil
	}
	if runs {
		seconds = max(seconds, now.Sub(entered).Seconds())
	}
	return &seconds
}

func between(from, to event.Stamp) *float64 {
	if from.IsZero() || to.IsZero() {
		return nil
	}
	d := to.Sub(from).Seconds()
	return &d
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

// FromRecord returns the document of a startup that the history keeps.
func FromRecord(r *history.Record) *Startup {
	out := &Startup{
		Unit: r.Target, Invocation: r.Invocation, Generation: r.Generation, Began: r.Began, Ended: r.Ended, Seconds: r.Seconds,
		Outcome: r.Outcome, Reason: r.Reason, AttachedLate: r.AttachedLate, Engine: r.Engine, Version: r.Version, Model: r.Model,
		Phases: []Phase{}, GapCount: r.Gaps, Arguments: r.Arguments, Versions: r.Versions,
		WeightBytes: r.WeightBytes, PlateauBytes: r.GPUPlateauBytes, ServingEnded: r.ServingEnded, ServingEndReason: r.ServingEndReason, Final: true,
	}
	for _, p := range r.Phases {
		if !p.Skipped {
			out.Phase = p.Phase
		}
		out.Phases = append(out.Phases, Phase{Phase: p.Phase, Entered: p.Entered, Seconds: p.Seconds, Done: p.Phase != Serving, Skipped: p.Skipped})
	}
	for _, s := range r.Steps {
		out.Steps = append(out.Steps, Step(s))
		out.Step, out.StepBegan = s.Step, s.Entered
	}
	if c := r.RootCause; c != nil {
		out.RootCause = &RootCause{
			Class: c.Class, Exception: c.Exception, Message: c.Message, Process: c.Process, Rule: c.Rule, Line: c.Line, Cursor: c.Cursor,
			At: c.At, Fingerprint: c.Fingerprint, Remediation: c.Remediation, Retry: c.Retry, DiedIn: c.DiedIn, ExitStatus: c.ExitStatus,
			NotArrived: c.NotArrived,
		}
	}
	for _, f := range r.Findings {
		out.Findings = append(out.Findings, Finding{
			Verdict: f.Verdict, Class: f.Class, Exception: f.Exception, Message: f.Message, Process: f.Process, Rule: f.Rule,
			Count: f.Count, Fingerprint: f.Fingerprint,
		})
	}
	return out
}

func newRootCause(c *triage.RootCause) *RootCause {
	if c == nil {
		return nil
	}
	return &RootCause{
		Class: c.Class, Exception: c.Exception, Message: c.Message, Process: c.Process, Rule: c.Rule, Line: c.Line, Cursor: c.Cursor,
		At: wall(c.At), Fingerprint: c.Fingerprint, Remediation: c.Remediation, Retry: c.Retry, DiedIn: c.DiedIn,
		ExitStatus: c.ExitStatus, NotArrived: c.NotArrived, LastLines: c.LastLines, Provisional: c.Provisional,
	}
}

func newFinding(f *triage.Finding) Finding {
	return Finding{
		Verdict: string(f.Verdict), Class: f.Class, Exception: f.Exception, Message: f.Message, Process: f.Process, Processes: f.Processes,
		Rule: f.Rule, Cursor: f.Cursor, At: wall(f.At), Count: f.Count, Fingerprint: f.Fingerprint, New: f.New, Good: f.Good, Bad: f.Bad,
		AfterReady: f.AfterReady,
	}
}

// wall returns the wall clock's time in UTC; zero when it is not known.
func wall(s event.Stamp) time.Time {
	if s.Real.IsZero() {
		return time.Time{}
	}
	return s.Real.Round(0).UTC()
}

func gpuName(index int) string { return strconv.Itoa(index) }
