package api

import (
	"slices"
	"strconv"
	"time"

	"github.com/startupd/startupd/pkg/event"
	"github.com/startupd/startupd/pkg/phases"
)

// StatusSchema names the version of Status's JSON form.
const StatusSchema = "startupd.status/v1"

// Status is everything that is known at a moment.
type Status struct {
	Schema string `json:"schema"`
	// At is the moment that it tells of, by the host's wall clock.
	At time.Time `json:"at,omitzero"`
	// Version is startupd's own.
	Version string `json:"version,omitempty"`
	// LastEventID is the newest event of /api/v1/events that is in it; "" where
	// there are no events.
	LastEventID string `json:"last_event_id,omitempty"`
	// Units is sorted by name; never null.
	Units []Unit `json:"units"`
	// GPUs are null when no sample has come, or when NVML can't be read.
	GPUs []GPU `json:"gpus"`
	// Sources say what can be seen; the host's first, then each unit's.
	Sources []Source `json:"sources"`
}

// Unit is one watched unit.
type Unit struct {
	Unit string `json:"unit"`
	// State is one of the eight states, since Since.
	State string    `json:"state"`
	Since time.Time `json:"since,omitzero"`
	// Startup is the present startup or the last one.
	Startup *Startup `json:"startup,omitempty"`
	// Last is the last finished startup, where that is not Startup.
	Last *Startup `json:"last,omitempty"`
	// Failure is the last failed startup's root cause, until a later one serves.
	Failure *RootCause `json:"failure,omitempty"`
	// LastOutcome is how the last finished startup ended: serving, failed or
	// stopped.
	LastOutcome string `json:"last_outcome,omitempty"`
	RestartLoop bool   `json:"restart_loop"`
	// Restarts is systemd's own count.
	Restarts *int `json:"restarts,omitempty"`
	// Ready holds what each source says of readiness.
	Ready Ready `json:"ready"`
	// Disagreement says in words where sources contradict each other.
	Disagreement string `json:"disagreement,omitempty"`
	// GPUMemory is what the unit's processes hold, by the GPU's index.
	GPUMemory    map[int]uint64 `json:"gpu_memory_bytes,omitzero"`
	MainPID      int            `json:"main_pid,omitempty"`
	ControlGroup string         `json:"control_group,omitempty"`
	// JournalLagSeconds is how far the journal's reader is behind.
	JournalLagSeconds *float64 `json:"journal_lag_seconds,omitempty"`
	// JournalLines are read so far, JournalStale of them of an older startup,
	// JournalUnmatched of them known to no rule.
	JournalLines     uint64 `json:"journal_lines"`
	JournalStale     uint64 `json:"journal_stale_lines"`
	JournalUnmatched uint64 `json:"journal_unmatched_lines"`
}

// Ready holds what each source says; absent where nobody looked.
type Ready struct {
	Log    *bool `json:"log,omitempty"`
	Port   *bool `json:"port,omitempty"`
	Health *bool `json:"health,omitempty"`
}

// GPU is the last sample of one device.
type GPU struct {
	GPU        int     `json:"gpu"`
	UUID       string  `json:"uuid,omitempty"`
	Name       string  `json:"name,omitempty"`
	UsedBytes  *uint64 `json:"used_bytes,omitempty"`
	TotalBytes *uint64 `json:"total_bytes,omitempty"`
	// UtilizationRatio is 0 to 1.
	UtilizationRatio *float64 `json:"utilization_ratio,omitempty"`
	// ForeignBytes is held by processes of units that are not watched,
	// UnattributedBytes by processes whose owner could not be told.
	ForeignBytes      *uint64 `json:"foreign_bytes,omitempty"`
	UnattributedBytes *uint64 `json:"unattributed_bytes,omitempty"`
	// Lost is why it can't be read.
	Lost string `json:"lost,omitempty"`
	// Xids are the driver's error reports.
	Xids []Xid `json:"xids,omitzero"`
}

// Xid counts one of the NVIDIA driver's error reports.
type Xid struct {
	// Xid is 0 for reports whose number is none of the driver's, or which are too
	// many to tell apart.
	Xid   int       `json:"xid"`
	Count uint64    `json:"count"`
	Last  time.Time `json:"last,omitzero"`
}

// Name is what the report is called: "Xid 79".
func (x *Xid) Name() string {
	if x.Xid == phases.OtherXid {
		return "another Xid"
	}
	return "Xid " + strconv.Itoa(x.Xid)
}

// Source says whether a source can see.
type Source struct {
	Source string `json:"source"`
	// Unit is absent for a source of the whole host.
	Unit   string    `json:"unit,omitempty"`
	Up     bool      `json:"up"`
	State  string    `json:"state"`
	Reason string    `json:"reason,omitempty"`
	Since  time.Time `json:"since,omitzero"`
	// Restarts is how often its reader process was started again.
	Restarts int `json:"restarts,omitempty"`
}

// NewStatus returns the document of a snapshot as seen at now: durations of
// what still runs count up to it. units keeps those of these names only; none
// keeps all.
func NewStatus(snap *phases.Snapshot, now event.Stamp, units ...string) *Status {
	s := &Status{Schema: StatusSchema, At: wall(now), Units: []Unit{}, Sources: []Source{}}
	for i := range snap.Targets {
		if t := &snap.Targets[i]; len(units) == 0 || slices.Contains(units, t.Name) {
			s.Units = append(s.Units, newUnit(t, now))
		}
	}
	for _, g := range snap.GPUs {
		s.GPUs = append(s.GPUs, newGPU(g, snap.Xids))
	}
	for _, src := range snap.Sources {
		if src.Target != "" && len(units) > 0 && !slices.Contains(units, src.Target) {
			continue
		}
		s.Sources = append(s.Sources, Source{
			Source: src.Source, Unit: src.Target, Up: src.Up, State: src.State, Reason: src.Reason,
			Since: wall(src.Since), Restarts: src.Restarts,
		})
	}
	return s
}

// Find returns the unit of that name; nil when it is not there.
func (s *Status) Find(unit string) *Unit {
	for i := range s.Units {
		if s.Units[i].Unit == unit {
			return &s.Units[i]
		}
	}
	return nil
}

func newUnit(t *phases.Target, now event.Stamp) Unit {
	u := Unit{
		Unit: t.Name, State: string(t.State), Since: wall(t.Since), Failure: newRootCause(t.Failure),
		LastOutcome: string(t.LastOutcome), RestartLoop: t.RestartLoop, Restarts: t.Restarts,
		Ready: Ready(t.Ready), Disagreement: t.Disagreement, GPUMemory: t.GPUMemory,
		MainPID: t.MainPID, ControlGroup: t.ControlGroup,
		JournalLines: t.Counters.Lines, JournalStale: t.Counters.Stale, JournalUnmatched: t.Counters.Unmatched,
	}
	if t.JournalLag != nil {
		lag := t.JournalLag.Seconds()
		u.JournalLagSeconds = &lag
	}
	if t.Startup != nil {
		u.Startup = NewStartup(t.Name, t.Startup, now)
	}
	if t.Last != nil && !same(t.Last, t.Startup) {
		u.Last = NewStartup(t.Name, t.Last, now)
	}
	return u
}

func same(a, b *phases.Startup) bool {
	return b != nil && a.Invocation == b.Invocation && a.Generation == b.Generation && a.Began == b.Began
}

func newGPU(g phases.GPU, xids []phases.Xid) GPU {
	out := GPU{
		GPU: g.Index, UUID: g.UUID, Name: g.Name, UsedBytes: g.UsedBytes, TotalBytes: g.TotalBytes,
		UtilizationRatio: g.UtilizationRatio, ForeignBytes: g.ForeignBytes, UnattributedBytes: g.UnattributedBytes, Lost: g.Lost,
	}
	for _, x := range xids {
		if x.GPU == gpuName(g.Index) {
			out.Xids = append(out.Xids, Xid{Xid: x.Xid, Count: x.Count, Last: wall(x.Last)})
		}
	}
	return out
}
