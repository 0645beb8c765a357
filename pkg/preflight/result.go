package preflight

import (
	"fmt"
	"time"
)

// Schema names the version of a Report's JSON form. Fields may be added to a
// version; none is removed or changes its meaning.
const Schema = "startupd.preflight/v1"

// Status is how a check ended.
type Status string

// The statuses.
const (
	OK      Status = "ok"
	Warning Status = "warning"
	// Fail: the start will fail of it.
	Fail Status = "fail"
	// Unknown: it could not be looked at, or it tells nothing.
	Unknown Status = "unknown"
)

// The checks.
const (
	CheckCommand      = "command"
	CheckUnit         = "unit"
	CheckGPUs         = "gpus"
	CheckGPUMemory    = "gpu_memory"
	CheckWeights      = "weights"
	CheckPort         = "port"
	CheckSharedMemory = "shared_memory"
	CheckDisk         = "disk"
	CheckMemory       = "memory"
	CheckLimits       = "limits"
	CheckModel        = "model"
	CheckPackages     = "packages"
)

// Result is what one check found.
type Result struct {
	Check  string `json:"check"`
	Status Status `json:"status"`
	// What says what was found, with its numbers.
	What string `json:"what"`
	// Do says what to do; "" when there is nothing to do.
	Do string `json:"do,omitempty"`
	// Class is the class of failure that a start would end in; "" when it is none
	// of the catalogue's.
	Class string `json:"class,omitempty"`
	// GPU is the GPU that it is about; nil when it is about none, or several.
	GPU *int `json:"gpu,omitempty"`
	// NeedBytes and HaveBytes are what is needed and what there is; nil when not
	// known, or no bytes are compared.
	NeedBytes *uint64 `json:"need_bytes,omitempty"`
	HaveBytes *uint64 `json:"have_bytes,omitempty"`
	// Holders are who holds what is missing, the biggest first.
	Holders []Holder `json:"holders,omitempty"`
	// passing is true where waiting alone can help.
	passing bool
}

// Holder is a process that holds GPU memory or a port. What is not known is zero.
type Holder struct {
	// PID is as this process counts; 0 for memory whose processes can't be seen.
	PID int `json:"pid,omitempty"`
	// Bytes is what it holds of the GPU; nil when not told.
	Bytes     *uint64 `json:"bytes,omitempty"`
	Unit      string  `json:"unit,omitempty"`
	Container string  `json:"container,omitempty"`
	User      string  `json:"user,omitempty"`
	Command   string  `json:"command,omitempty"`
	// State is the kernel's letter: R, S, D, Z, T ...
	State string `json:"state,omitempty"`
	// StateMeaning is set for states that a signal does not end.
	StateMeaning string    `json:"state_meaning,omitempty"`
	Parent       int       `json:"parent,omitempty"`
	Since        time.Time `json:"since,omitzero"`
	// Role says whose it is: "this unit", "left over from this unit", "orphan", or
	// "" for somebody else's.
	Role string `json:"role,omitempty"`
}

// The roles of a holder.
const (
	// RoleSelf: the unit runs, and this is its process.
	RoleSelf = "this unit"
	// RoleLeftOver: an earlier start of the unit left it behind.
	RoleLeftOver = "left over from this unit"
	// RoleOrphan: a process of such an engine that no service owns any more.
	RoleOrphan = "orphan"
)

// Verdict is what the checks come to.
type Verdict string

// The verdicts.
const (
	Fit    Verdict = "fit"
	NotFit Verdict = "not_fit"
	// Held: all that is missing may come by waiting, and it did not come in time.
	Held Verdict = "held"
	// CannotTell: no check could be made.
	CannotTell Verdict = "unknown"
)

// Report is the result of all checks. It has a documented JSON form (Schema).
type Report struct {
	Schema string `json:"schema"`
	// Unit is "" for a command without a unit.
	Unit string `json:"unit,omitempty"`
	// Engine is the profile's; "" when none knows the command.
	Engine        string   `json:"engine,omitempty"`
	EngineVersion string   `json:"engine_version,omitempty"`
	Model         string   `json:"model,omitempty"`
	Verdict       Verdict  `json:"verdict"`
	WaitedSeconds float64  `json:"waited_seconds"`
	Checks        []Result `json:"checks"`
}

// judge sets the verdict. waited says that waiting was asked for and did not help.
func (r *Report) judge(waited bool) {
	seen := 0
	r.Verdict = Fit
	passing := true
	for _, c := range r.Checks {
		switch c.Status {
		case Fail:
			r.Verdict = NotFit
			passing = passing && c.passing
			seen++
		case OK, Warning:
			if c.Check != CheckCommand && c.Check != CheckUnit {
				seen++
			}
		case Unknown:
		}
	}
	switch {
	case seen == 0:
		r.Verdict = CannotTell
	case r.Verdict == NotFit && waited && passing:
		r.Verdict = Held
	}
}

// Count returns how many checks ended in a status.
func (r *Report) Count(s Status) int {
	n := 0
	for i := range r.Checks {
		if r.Checks[i].Status == s {
			n++
		}
	}
	return n
}

// Class is the class of the first failure that has one; "" for none.
func (r *Report) Class() string {
	for i := range r.Checks {
		if c := &r.Checks[i]; c.Status == Fail && c.Class != "" {
			return c.Class
		}
	}
	return ""
}

// Summary is the verdict in a sentence: of a host that is not fit
//
//	not fit [gpu_memory_occupied]: GPU 3 needs ..., held by PID 7 of a.service, and 1 more
//
// which the journal's reader knows again.
func (r *Report) Summary() string {
	var also string
	if n := r.Count(Warning); n > 0 {
		also += ", " + counted(n, "warning")
	}
	if n := r.Count(Unknown); n > 0 {
		also += fmt.Sprintf(", %d not known", n)
	}
	switch r.Verdict {
	case Fit:
		if r.Count(Unknown) > 0 {
			return "fit, as far as can be told" + also
		}
		return "fit" + also
	case NotFit, Held:
		after := ""
		if r.Verdict == Held {
			after = " after waiting " + brief(time.Duration(r.WaitedSeconds*float64(time.Second)))
		}
		class := ""
		if c := r.Class(); c != "" {
			class = " [" + c + "]"
		}
		return "not fit" + class + after + ": " + r.first()
	case CannotTell:
	}
	return "cannot tell: no check could be made"
}

// first is what the first check that failed found, and how many more failed.
func (r *Report) first() string {
	text, more := "", 0
	for i := range r.Checks {
		switch c := &r.Checks[i]; {
		case c.Status != Fail:
		case text == "":
			text = c.What
			if len(c.Holders) > 0 {
				text += ", held by " + c.Holders[0].short()
			}
		default:
			more++
		}
	}
	if more > 0 {
		text += fmt.Sprintf(", and %d more", more)
	}
	return text
}

// spoken is a check's name for people.
func spoken(check string) string {
	switch check {
	case CheckGPUs:
		return "GPUs"
	case CheckGPUMemory:
		return "GPU memory"
	case CheckSharedMemory:
		return "/dev/shm"
	}
	return check
}

// Label is the check's name for people.
func (r *Result) Label() string { return spoken(r.Check) }

func counted(n int, one string) string {
	if n == 1 {
		return "1 " + one
	}
	return fmt.Sprintf("%d %ss", n, one)
}

// gib writes bytes as people compare them.
func gib(n uint64) string {
	switch {
	case n >= 1<<30:
		return fmt.Sprintf("%.1f GiB", float64(n)/(1<<30))
	case n >= 1<<20:
		return fmt.Sprintf("%.0f MiB", float64(n)/(1<<20))
	}
	return fmt.Sprintf("%d bytes", n)
}

// brief writes a duration in its two biggest units.
func brief(d time.Duration) string {
	d = d.Round(time.Second)
	switch {
	case d >= 48*time.Hour:
		return fmt.Sprintf("%d d %d h", d/(24*time.Hour), d%(24*time.Hour)/time.Hour)
	case d >= time.Hour:
		return fmt.Sprintf("%d h %d min", d/time.Hour, d%time.Hour/time.Minute)
	case d >= time.Minute:
		return fmt.Sprintf("%d min %d s", d/time.Minute, d%time.Minute/time.Second)
	}
	return fmt.Sprintf("%d s", d/time.Second)
}
