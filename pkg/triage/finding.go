package triage

import "github.com/startupd/startupd/pkg/event"

// Verdict is what a finding was for its startup.
type Verdict string

// The verdicts.
const (
	// Cause is the one finding that the startup failed of.
	Cause Verdict = "cause"
	// Symptom reports, or was set off by, a failure whose cause is elsewhere.
	Symptom Verdict = "symptom"
	// Suspect looks like an error, and nothing more is known of it.
	Suspect Verdict = "suspect"
	// Benign looks like an error and harms nothing.
	Benign Verdict = "benign"
)

// ClassUnknown is the class of what no rule of the catalogue names.
const ClassUnknown = "unknown"

// Finding is one error of a startup, told by one record or by several that say
// the same. Texts are cut to a bounded length, with their secrets masked.
type Finding struct {
	Verdict Verdict
	// Class is one of the catalogue's, or ClassUnknown.
	Class string
	// Exception is the exception's type as printed; "" when it is none.
	Exception string
	Message   string
	// Process is the process that told it first, without its pid; "" when not told.
	// Processes are all that told it, in order; bounded.
	Process   string
	Processes []string
	// Rule is the catalogue's rule; "" when none knows it.
	Rule string
	// Lines are the 1-based lines of a text input; nil for a journal; bounded.
	Lines []int
	// Cursor is the journal's cursor of the first record; "" in a text.
	Cursor string
	// At is when it was told first.
	At event.Stamp
	// Count is how many records told it; at least 1.
	Count int
	// Fingerprint identifies the error across startups, hosts and versions.
	Fingerprint string
	// Good and Bad are how many good and failed startups before this one had it, of
	// Starts that history knows; nil when there is no history.
	Good, Bad *int
	// AfterReady says that it was told while the startup served: it tells nothing of
	// how it started.
	AfterReady bool
	// New says that history knows good starts, and none of them had it.
	New bool
}

// RootCause is why a startup failed or hangs.
type RootCause struct {
	// Class is one of the catalogue's; ClassUnknown when the evidence holds no
	// cause. Then Message says what is known, and DiedIn is set.
	Class     string
	Exception string
	Message   string
	// Process is without its pid; "kernel" or "systemd" for theirs; "" when not
	// told.
	Process string
	Rule    string
	// Line is 1-based in a text input, Cursor the journal's; zero when the evidence
	// is no line of log.
	Line        int
	Cursor      string
	At          event.Stamp
	Fingerprint string
	// Remediation says in one sentence what to do; "" when nothing is known to help.
	Remediation string
	// Retry says whether starting again can help; nil when not known.
	Retry *bool
	// DiedIn is the phase that the startup ended in, ExitStatus what systemd told of
	// the main process ("exited, status 1"), and LastLines each process's last line;
	// set where Class is unknown.
	DiedIn     string
	ExitStatus string
	LastLines  map[string]string
	// NotArrived are the processes that a hang waits for; nil when not known.
	NotArrived []string
	// Provisional is true until the evidence is complete.
	Provisional bool
}
