package phases

import (
	"time"

	"github.com/startupd/startupd/pkg/event"
	"github.com/startupd/startupd/pkg/triage"
)

// State is where a target is.
type State string

// The states of a target. Spawn to Serving are the five phases of a start.
const (
	Unknown   State = "unknown"
	Stopped   State = "stopped"
	Spawn     State = "spawn"
	Load      State = "load"
	Compile   State = "compile"
	CUDAGraph State = "cudagraph"
	Serving   State = "serving"
	Failed    State = "failed"
)

// States returns all eight states, in order.
func States() []State {
	return []State{Unknown, Stopped, Spawn, Load, Compile, CUDAGraph, Serving, Failed}
}

// Phases returns the five phases of a start, in order.
func Phases() []State { return []State{Spawn, Load, Compile, CUDAGraph, Serving} }

// Starting says that s is one of the four phases before serving.
func (s State) Starting() bool { return s == Spawn || s == Load || s == Compile || s == CUDAGraph }

// Outcome is how a startup ended.
type Outcome string

// The outcomes of a finished startup; OutcomeNone while it runs.
const (
	OutcomeNone    Outcome = ""
	OutcomeServing Outcome = "serving"
	OutcomeFailed  Outcome = "failed"
	OutcomeStopped Outcome = "stopped"
)

// Outcomes returns the three outcomes that are counted.
func Outcomes() []Outcome { return []Outcome{OutcomeServing, OutcomeFailed, OutcomeStopped} }

// Snapshot is everything that the core knows at a moment. It is immutable: its
// readers may keep it and must not change it.
type Snapshot struct {
	At event.Stamp
	// Targets is sorted by name.
	Targets []Target
	// GPUs is in the driver's order; nil when no sample has come, or when the
	// GPU source is down.
	GPUs []GPU
	// Xids are the NVIDIA driver's error reports, by GPU and number.
	Xids []Xid
	// Sources holds the host-wide sources first, then each target's.
	Sources []Source
	// Refused is the last unit of a glob that is not watched, as there are
	// Limits.Units of them already; "" when there is room.
	Refused string
}

// Target is one watched unit.
type Target struct {
	Name  string
	State State
	// Since is when State was entered; zero when not known.
	Since event.Stamp
	// Startup is the present startup, or the last one; nil when none was seen.
	Startup *Startup
	// Last is the last finished startup (it can be Startup itself); nil when
	// none was seen.
	Last *Startup
	// Failure is the last failed startup's root cause, from the failure until a later
	// startup serves; nil otherwise.
	Failure *triage.RootCause
	// FailureMessage is what Failure's record says, in one line of at most 256 bytes
	// with its secrets masked. While starts fail of the same error it stays what the
	// first of them said. "" when Failure is nil or says nothing.
	FailureMessage string
	// LastOutcome is how the last finished startup ended, also of one that an
	// earlier run of the daemon saw; OutcomeNone when none is known.
	LastOutcome Outcome
	// RestartLoop says that several starts have failed in a row.
	RestartLoop bool
	Counters    Counters
	// Restarts is systemd's NRestarts; nil when not known.
	Restarts *int
	// Ready says which sources call the engine ready.
	Ready Ready
	// Disagreement says in words where sources contradict each other; "" when
	// they don't.
	Disagreement string
	// GPUMemory is what the unit's processes hold, by GPU index; a GPU is absent
	// where it can't be told.
	GPUMemory map[int]uint64
	// MainPID and ControlGroup are systemd's; zero when not known.
	MainPID      int
	ControlGroup string
	// EngineCgroup is the cgroup of the container that the engine runs in; ""
	// when it runs in the unit's own, or when that is not known.
	EngineCgroup string
	// JournalLag is how far the journal's reader is behind; nil when not known.
	JournalLag *time.Duration
}

// Ready holds what each source says of readiness; nil where nobody looked.
type Ready struct{ Log, Port, Health *bool }

// Startup is one attempt to start the engine.
type Startup struct {
	// Invocation is the unit's invocation ID or the container's ID; "" in a
	// plain text.
	Invocation string
	// UnitInvocation is the unit's invocation ID where Invocation is a container's;
	// "" otherwise, and when it is not known.
	UnitInvocation string
	// Generation counts the starts inside one invocation, from 0.
	Generation int
	Began      event.Stamp
	// Ended is when it served, failed or was stopped; zero while it runs.
	Ended   event.Stamp
	Outcome Outcome
	// Reason says why it ended (an exit status, a line, a unit result).
	Reason string
	// Phases holds the phases entered, in order. Their durations, serving's
	// apart, add up to Ended (or now) minus Began.
	Phases []Phase
	// Step is the present or last step (weights, inductor, capture...); "" when
	// none was told.
	Step      string
	StepBegan event.Stamp
	// Progress is 0 to 1 in the present phase; nil when not known.
	Progress *float64
	// ProgressNote says what Progress counts ("12/64 shards", "41.2 of 73.7 GiB").
	ProgressNote string
	// ExpectedServing is when it will serve if its phases take as long as in the
	// target's last good start; zero when there was none, or when it stalls.
	ExpectedServing event.Stamp
	Stalled         bool
	// StalledReason names the step, its budget and the last vital sign.
	StalledReason string
	// Slow says that the step's quiet budget is over, and its processes are busy.
	Slow   bool
	Engine Engine
	// PlateauGPUs are the GPUs whose memory has reached its plateau.
	PlateauGPUs []int
	// Skipped are the phases that the engine does not have in this startup.
	Skipped []State
	// AttachedLate is true when its beginning was not seen.
	AttachedLate bool
	// ServingEnded and ServingEndReason (stopped, exited, killed) are set when
	// an engine that served is gone.
	ServingEnded     event.Stamp
	ServingEndReason string
	// LastLine is the last line of each process, by the process's name.
	LastLine map[string]string
	// Gaps are the holes in this startup's evidence.
	Gaps []Gap
	// Errors counts error records by verdict and class.
	Errors map[ErrorKey]int
	// RootCause is why it failed or stalls; nil while it starts, when it served, and
	// when it was stopped on purpose.
	RootCause *triage.RootCause
	// Findings are its errors in the order of their first record; bounded.
	Findings []triage.Finding
	// NewErrors is how many findings no good start has had; nil when history knows
	// no good start.
	NewErrors *int
	// Arguments are the engine's arguments that matter, as the log tells them;
	// secrets are masked. nil when not told.
	Arguments map[string]string
	// Versions are the versions of packages and libraries that the log tells; nil
	// when it tells none.
	Versions map[string]string
	// WeightBytes is the weights' size on one GPU as the engine told it; nil when it
	// has not.
	WeightBytes *uint64
	// GPUPlateauBytes is what the unit held on each GPU when its weights were
	// resident; nil when not seen.
	GPUPlateauBytes map[int]uint64
	// Steps are the steps entered, in order; bounded.
	Steps []Step
	// Exited is true once its main process is known to be gone.
	Exited bool
	// Final is true once nothing can change its outcome and root cause any more.
	Final bool
}

// Step is one step of a startup.
type Step struct {
	Phase   State
	Step    string
	Entered event.Stamp
	// Seconds is how long it lasted, or has lasted at Snapshot.At.
	Seconds float64
}

// ErrorKey is the labels of an error count.
type ErrorKey = triage.ErrorKey

// Phase is one phase of a startup.
type Phase struct {
	Phase   State
	Entered event.Stamp
	// Seconds is how long it lasted, or has lasted at Snapshot.At.
	Seconds float64
	// Done is true once it has been left.
	Done     bool
	Skipped  bool
	Evidence Evidence
}

// Evidence is why a transition was made.
type Evidence struct {
	// Source is one of the event.Source names, or "log" for a profile's rule.
	Source string
	// Rule is the profile's rule; "" for other evidence.
	Rule string
	// Text is the line, or what was measured.
	Text   string
	Cursor string
	// LineNo is 1-based in a text input; 0 elsewhere.
	LineNo int
	At     event.Stamp
	// Provisional evidence is memory's alone; a line may undo it.
	Provisional bool
}

// Engine is what the log tells of the engine.
type Engine struct {
	// Name is the profile's engine; "" when none was recognised.
	Name, Version, Model string
	// Host and Port are where it says it will serve; zero when not told.
	Host string
	Port int
}

// Gap is a hole in the evidence.
type Gap struct {
	Kind   event.GapKind
	Lines  int
	Detail string
	At     event.Stamp
}

// Counters are totals since the state directory was made, or since the unit was seen
// again after it had been forgotten.
type Counters struct {
	// Since is when all of them were 0 by the wall clock; zero when not known.
	Since    time.Time
	Startups map[Outcome]uint64
	// Ended holds the last startup of each outcome that Startups counts.
	Ended        map[Outcome]Exemplar
	ServingEnded map[string]uint64
	// PhaseSeconds are the completed phases of counted startups.
	PhaseSeconds map[State]Histogram
	Lines        uint64
	Stale        uint64
	Unmatched    uint64
	Gaps         map[event.GapKind]uint64
	Errors       map[ErrorKey]uint64
}

// Histogram holds observations in the fixed buckets of PhaseBuckets.
type Histogram struct {
	Count uint64
	Sum   float64
	// Buckets holds cumulative counts, one for each of PhaseBuckets.
	Buckets []uint64
	// Native holds counts by bucket index of a native histogram of schema
	// NativeSchema (bucket i ends at 2^(i/8)); Zero counts observations of 0.
	Native map[int]uint64
	Zero   uint64
	// Exemplars holds the last observation of each bucket by its index in
	// PhaseBuckets, whose length stands for +Inf. A bucket is absent where no startup
	// with an invocation fell into it.
	Exemplars map[int]Exemplar `json:",omitempty"`
}

// Exemplar is one observation that stands for the others of its series.
type Exemplar struct {
	// Invocation is Startup.Invocation; never "".
	Invocation string
	// Value is the observation, in seconds in a histogram, 1 in a counter.
	Value float64
	// At is when the startup ended by the wall clock.
	At time.Time
}

// NativeSchema is the resolution of Histogram.Native: eight buckets for each
// power of two (Prometheus native histograms, schema 3).
const NativeSchema = 3

// PhaseBuckets returns the upper bounds, in seconds, of the phase histogram.
func PhaseBuckets() []float64 {
	return []float64{1, 2, 5, 10, 30, 60, 120, 300, 600, 1200, 1800, 3600}
}

// GPU is the last sample of one device. nil numbers are not known.
type GPU struct {
	Index      int
	UUID, Name string
	UsedBytes  *uint64
	TotalBytes *uint64
	// UtilizationRatio is 0 to 1.
	UtilizationRatio *float64
	// ForeignBytes is held by processes of other units than the watched ones,
	// UnattributedBytes by processes whose owner could not be told; nil when
	// processes could not be listed or their memory is not told.
	ForeignBytes, UnattributedBytes *uint64
	// Lost is why it can't be read; "" when it can.
	Lost string
}

// Xid counts one of the NVIDIA driver's error reports on one GPU.
type Xid struct {
	// GPU is NVML's index, or the PCI address where that is not known.
	GPU   string
	Xid   int
	Count uint64
	Last  event.Stamp
}

// Source is whether a source can see.
type Source struct {
	Source string
	// Target is "" for a host-wide source.
	Target   string
	Up       bool
	State    string
	Reason   string
	Restarts int
	Since    event.Stamp
}
