package wait

import (
	"github.com/startupd/startupd/pkg/web/api"
)

// Schema names the version of Result's JSON form. Fields may be added to a
// version; none is removed or changes its meaning.
const Schema = "startupd.wait/v1"

// Verdict is how a wait ended.
type Verdict string

// The verdicts.
const (
	// Reached: the unit serves, or is in the phase that was waited for or behind it.
	Reached Verdict = "reached"
	Failed  Verdict = "failed"
	// Stopped: the start was stopped on purpose, or there is none to wait for.
	Stopped Verdict = "stopped"
	Stalled Verdict = "stalled"
	// TimedOut: the start still runs, and the time for it is over.
	TimedOut Verdict = "timeout"
	// Unknown: nothing can be told, or somebody ended the wait.
	Unknown Verdict = "unknown"
	// NoUnit: systemd knows no such unit.
	NoUnit Verdict = "no_unit"
)

// Result is the answer.
type Result struct {
	Schema string `json:"schema"`
	Unit   string `json:"unit"`
	// Invocation is the one that was waited for; absent when none was found.
	Invocation string  `json:"invocation,omitempty"`
	Verdict    Verdict `json:"verdict"`
	// For is the phase that was waited for.
	For string `json:"for"`
	// Reason says in a sentence what the startup does not tell by itself.
	Reason string `json:"reason,omitempty"`
	// Waited is how long the wait took, in seconds.
	Waited float64 `json:"waited_seconds"`
	// Through is daemon or journal: who told; absent when nobody did.
	Through string `json:"through,omitempty"`
	// Startup is what was waited for, as it was last seen; absent when it was not.
	Startup *api.Startup `json:"startup,omitempty"`
}
