package history

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/startupd/startupd/pkg/event"
	"github.com/startupd/startupd/pkg/phases"
	"github.com/startupd/startupd/pkg/triage"
)

// Schema names the version of a Record's JSON form, and of the file. Fields may
// be added to a version; none is removed or changes its meaning.
const (
	Schema        = schemaPrefix + "1"
	schemaPrefix  = "startupd.history/v"
	schemaVersion = 1
)

// Record is one startup, as kept. Fields that are zero, nil or absent are not
// known. Times are UTC.
type Record struct {
	Schema string `json:"schema"`
	Target string `json:"target"`
	// Invocation and Generation identify the startup within its target.
	Invocation string    `json:"invocation,omitempty"`
	Generation int       `json:"generation"`
	Began      time.Time `json:"began,omitzero"`
	// Ended is when it served, failed or was stopped.
	Ended time.Time `json:"ended,omitzero"`
	// Seconds is how long that took, by the monotonic clock within one boot.
	Seconds *float64 `json:"seconds,omitempty"`
	// AttachedLate is true when its beginning was not seen.
	AttachedLate bool `json:"attached_late,omitempty"`
	// Outcome is serving, failed or stopped; "" for one that has not ended.
	Outcome string `json:"outcome"`
	Reason  string `json:"reason,omitempty"`
	Engine  string `json:"engine,omitempty"`
	Version string `json:"version,omitempty"`
	Model   string `json:"model,omitempty"`
	// Arguments are the engine's that matter, Versions those of packages and
	// libraries; nil when not told.
	Arguments map[string]string `json:"arguments,omitzero"`
	Versions  map[string]string `json:"versions,omitzero"`
	// Phases and Steps are those entered, in order.
	Phases    []Phase    `json:"phases"`
	Steps     []Step     `json:"steps,omitzero"`
	RootCause *RootCause `json:"root_cause,omitempty"`
	Findings  []Finding  `json:"findings,omitzero"`
	// WeightBytes is the weights' size on one GPU, GPUPlateauBytes what the unit
	// held on each GPU, by index, when they were resident.
	WeightBytes     *uint64        `json:"weight_bytes,omitempty"`
	GPUPlateauBytes map[int]uint64 `json:"gpu_plateau_bytes,omitzero"`
	// ServingEnded and ServingEndReason (stopped, exited, killed) are set when the
	// engine served and is gone.
	ServingEnded     time.Time `json:"serving_ended,omitzero"`
	ServingEndReason string    `json:"serving_end_reason,omitempty"`
	// Gaps is how many holes the evidence has.
	Gaps int `json:"gaps,omitempty"`
}

// Phase is one phase of a startup.
type Phase struct {
	Phase   string    `json:"phase"`
	Entered time.Time `json:"entered,omitzero"`
	// Seconds is nil for serving, which has no end here, and without times.
	Seconds *float64 `json:"seconds,omitempty"`
	Skipped bool     `json:"skipped,omitempty"`
}

// Step is one step of a phase.
type Step struct {
	Phase   string    `json:"phase"`
	Step    string    `json:"step"`
	Entered time.Time `json:"entered,omitzero"`
	// Seconds is nil for a step of serving, and without times.
	Seconds *float64 `json:"seconds,omitempty"`
}

// RootCause is why a startup failed; see triage.RootCause.
type RootCause struct {
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
	// Retry is nil when it is not known whether starting again can help.
	Retry      *bool    `json:"retry,omitempty"`
	DiedIn     string   `json:"died_in,omitempty"`
	ExitStatus string   `json:"exit_status,omitempty"`
	NotArrived []string `json:"not_arrived,omitzero"`
}

// Finding is one error of a startup; see triage.Finding.
type Finding struct {
	Verdict     string `json:"verdict"`
	Class       string `json:"class"`
	Exception   string `json:"exception,omitempty"`
	Message     string `json:"message,omitempty"`
	Process     string `json:"process,omitempty"`
	Rule        string `json:"rule,omitempty"`
	Count       int    `json:"count"`
	Fingerprint string `json:"fingerprint,omitempty"`
}

// FromStartup returns the record of a startup. It shares the startup's maps,
// which nobody may change.
func FromStartup(target string, s *phases.Startup) Record {
	r := Record{
		Schema: Schema, Target: target, Invocation: s.Invocation, Generation: s.Generation,
		Began: wall(s.Began), Ended: wall(s.Ended), AttachedLate: s.AttachedLate,
		Outcome: string(s.Outcome), Reason: s.Reason,
		Engine: s.Engine.Name, Version: s.Engine.Version, Model: s.Engine.Model,
		Arguments: s.Arguments, Versions: s.Versions, Phases: []Phase{}, RootCause: rootCause(s.RootCause),
		WeightBytes: s.WeightBytes, GPUPlateauBytes: s.GPUPlateauBytes,
		ServingEnded: wall(s.ServingEnded), ServingEndReason: s.ServingEndReason, Gaps: len(s.Gaps),
	}
	if !s.Began.IsZero() && !s.Ended.IsZero() {
		took := s.Ended.Sub(s.Began).Seconds()
		r.Seconds = &took
	}
	for _, p := range s.Phases {
		r.Phases = append(r.Phases, Phase{
			Phase: string(p.Phase), Entered: wall(p.Entered), Seconds: lasted(p.Phase, p.Entered, p.Seconds), Skipped: p.Skipped,
		})
	}
	for _, p := range s.Steps {
		r.Steps = append(r.Steps, Step{
			Phase: string(p.Phase), Step: p.Step, Entered: wall(p.Entered), Seconds: lasted(p.Phase, p.Entered, p.Seconds),
		})
	}
	for _, f := range s.Findings {
		if f.AfterReady {
			continue
		}
		r.Findings = append(r.Findings, Finding{
			Verdict: string(f.Verdict), Class: f.Class, Exception: f.Exception, Message: f.Message,
			Process: f.Process, Rule: f.Rule, Count: f.Count, Fingerprint: f.Fingerprint,
		})
	}
	return r
}

func rootCause(c *triage.RootCause) *RootCause {
	if c == nil {
		return nil
	}
	return &RootCause{
		Class: c.Class, Exception: c.Exception, Message: c.Message, Process: c.Process, Rule: c.Rule,
		Line: c.Line, Cursor: c.Cursor, At: wall(c.At), Fingerprint: c.Fingerprint, Remediation: c.Remediation,
		Retry: c.Retry, DiedIn: c.DiedIn, ExitStatus: c.ExitStatus, NotArrived: c.NotArrived,
	}
}

func wall(s event.Stamp) time.Time {
	if s.Real.IsZero() {
		return time.Time{}
	}
	// Without Go's own monotonic reading, which no file keeps.
	return s.Real.Round(0).UTC()
}

// lasted is a duration that does not depend on when the startup was looked at.
func lasted(phase phases.State, entered event.Stamp, seconds float64) *float64 {
	if phase == phases.Serving || entered.IsZero() {
		return nil
	}
	return &seconds
}

// Good says that the startup served.
func (r *Record) Good() bool { return r.Outcome == string(phases.OutcomeServing) }

// Failed says that the startup failed.
func (r *Record) Failed() bool { return r.Outcome == string(phases.OutcomeFailed) }

// identity is what a startup is known by among those of its target. One without
// an invocation is known by its beginning.
func (r *Record) identity() string {
	id := r.Invocation
	if id == "" {
		id = "@" + r.Began.Format(time.RFC3339Nano)
	}
	return id + "/" + strconv.Itoa(r.Generation)
}

// seconds is how long a phase took; nil when it was not entered or not timed.
func (r *Record) seconds(phase string) *float64 {
	i := slices.IndexFunc(r.Phases, func(p Phase) bool { return p.Phase == phase })
	if i < 0 || r.Phases[i].Skipped {
		return nil
	}
	return r.Phases[i].Seconds
}

// merge joins two tellings of one startup. The later one counts, but a restarted
// daemon that reads the journal again sees neither GPUs nor what the journal has
// lost since: what only the earlier one knew stays.
func merge(earlier, later Record) Record {
	out, other := later, earlier
	if later.AttachedLate && !earlier.AttachedLate {
		out, other = earlier, later
	}
	out.Arguments = orMap(out.Arguments, other.Arguments)
	out.Versions = orMap(out.Versions, other.Versions)
	out.GPUPlateauBytes = orMap(out.GPUPlateauBytes, other.GPUPlateauBytes)
	if out.Outcome == other.Outcome && len(out.Findings) < len(other.Findings) {
		// The journal has lost a part of the log since.
		out.Findings, out.RootCause, out.Phases, out.Steps = other.Findings, other.RootCause, other.Phases, other.Steps
	}
	if out.WeightBytes == nil {
		out.WeightBytes = other.WeightBytes
	}
	if out.ServingEnded.IsZero() && out.Outcome == other.Outcome {
		out.ServingEnded, out.ServingEndReason = other.ServingEnded, other.ServingEndReason
	}
	return out
}

func orMap[K comparable, V any](m, otherwise map[K]V) map[K]V {
	if m == nil {
		return maps.Clone(otherwise)
	}
	return m
}

func encode(r Record) ([]byte, error) {
	r.Schema = Schema
	return json.Marshal(r)
}

// decode reads what encode wrote. It fails with ErrNewer for a later version,
// and with ErrDamaged for what is no record.
func decode(b []byte) (Record, error) {
	var head struct {
		Schema string `json:"schema"`
	}
	if err := json.Unmarshal(b, &head); err != nil {
		return Record{}, fmt.Errorf("%w: a record is no JSON: %v", ErrDamaged, err)
	}
	if err := checkSchema(head.Schema); err != nil {
		return Record{}, fmt.Errorf("a record: %w", err)
	}
	var r Record
	if err := json.Unmarshal(b, &r); err != nil {
		return Record{}, fmt.Errorf("%w: a record: %v", ErrDamaged, err)
	}
	return r, nil
}

// The errors that a caller tells apart.
var (
	// ErrDamaged: the file, or a record in it, is not what this package wrote.
	ErrDamaged = errors.New("the file is damaged")
	// ErrNewer: a later version of startupd wrote the file.
	ErrNewer = errors.New("written by a newer startupd")
	// ErrBusy: another process has kept the file locked.
	ErrBusy = errors.New("the file is in use by another process")
)

// checkSchema accepts the version that this package knows.
func checkSchema(s string) error {
	text, ok := strings.CutPrefix(s, schemaPrefix)
	v, err := strconv.Atoi(text)
	switch {
	case !ok || err != nil || v < 1:
		return fmt.Errorf("%w: its schema is %.40q", ErrDamaged, s)
	case v > schemaVersion:
		return fmt.Errorf("%w: its schema is %s, known is %s", ErrNewer, s, Schema)
	}
	return nil
}
