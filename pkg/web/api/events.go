package api

import "time"

// The types of server-sent events on /api/v1/events. Transition, Finding,
// RootCause, Outcome and Stall have IDs and can be resumed after; Snapshot,
// Update, Reset and Dropped tell of now.
const (
	// EventSnapshot is a whole Status; the first event of every stream.
	EventSnapshot = "snapshot"
	// EventUpdate is a Status without findings, at most a few a second.
	EventUpdate     = "update"
	EventTransition = "transition"
	EventFinding    = "finding"
	EventRootCause  = "root_cause"
	EventOutcome    = "outcome"
	EventStall      = "stall"
	// EventReset says that the events after the client's Last-Event-ID are gone;
	// its data is a Reset. The snapshot that follows is complete.
	EventReset = "reset"
	// EventDropped is the last event of a client that reads too slowly; its data is
	// a Reset.
	EventDropped = "dropped"
)

// Transition is a unit's change of state.
type Transition struct {
	Unit       string    `json:"unit"`
	Invocation string    `json:"invocation,omitempty"`
	Generation int       `json:"generation"`
	From       string    `json:"from"`
	To         string    `json:"to"`
	At         time.Time `json:"at,omitzero"`
	// Seconds is the startup's age; absent where there is none.
	Seconds *float64 `json:"seconds,omitempty"`
	// Replayed says that it happened before this daemon began to watch.
	Replayed bool `json:"replayed,omitempty"`
}

// Told is something new about a startup: exactly one of Finding, RootCause,
// Outcome and Stall is set, as the event's type says.
type Told struct {
	Unit       string     `json:"unit"`
	Invocation string     `json:"invocation,omitempty"`
	Generation int        `json:"generation"`
	At         time.Time  `json:"at,omitzero"`
	Finding    *Finding   `json:"finding,omitempty"`
	RootCause  *RootCause `json:"root_cause,omitempty"`
	// Outcome is serving, failed or stopped, with its Reason.
	Outcome string `json:"outcome,omitempty"`
	// Stalled is set by a stall event: it began, or it is over.
	Stalled *bool  `json:"stalled,omitempty"`
	Reason  string `json:"reason,omitempty"`
}

// Reset says why events are missing from a stream.
type Reset struct {
	Reason string `json:"reason"`
	// Missed is how many events; absent when that is not known.
	Missed *uint64 `json:"missed,omitempty"`
}

// MemorySchema names the version of Memory's JSON form.
const MemorySchema = "startupd.memory/v1"

// Memory is a unit's GPU memory since its present startup began.
type Memory struct {
	Schema     string `json:"schema"`
	Unit       string `json:"unit"`
	Invocation string `json:"invocation,omitempty"`
	Generation int    `json:"generation"`
	// At are the samples' moments in Unix seconds.
	At []float64 `json:"at"`
	// GPUs hold one number for each of At.
	GPUs []MemorySeries `json:"gpus"`
}

// MemorySeries is one GPU's part of Memory.
type MemorySeries struct {
	GPU        int     `json:"gpu"`
	TotalBytes *uint64 `json:"total_bytes,omitempty"`
	// Used is what the device had in use, by whomever; null where not known.
	Used []*uint64 `json:"used_bytes"`
	// Unit is what the unit held, Foreign what others did; null where not known.
	Unit    []*uint64 `json:"unit_bytes"`
	Foreign []*uint64 `json:"foreign_bytes"`
	// PlateauBytes is what the unit held when its weights were resident, since
	// PlateauAt; absent until then.
	PlateauBytes *uint64  `json:"plateau_bytes,omitempty"`
	PlateauAt    *float64 `json:"plateau_at,omitempty"`
}
