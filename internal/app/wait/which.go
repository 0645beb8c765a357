package wait

// Unit is what systemd tells of a unit.
type Unit struct {
	// Known is false where systemd can't be asked. Invocation may be set all the
	// same: anybody may read the present one of a unit that runs.
	Known bool
	// Name is the unit's own, where it was asked for by an alias; "" when not known.
	Name string
	// Loaded is false when systemd knows no such unit.
	Loaded                bool
	ActiveState, SubState string
	// Invocation is that of the present run, or of the last one; "" when there was
	// none, or when it is not known.
	Invocation string
	// Job is what systemd is about to do (start, stop, restart ...); "" for nothing.
	Job string
	// Result is systemd's of the last run (success, exit-code, ...); "" where not
	// known.
	Result string
	// Status says that the unit takes status texts of all its processes.
	Status bool
}

// answer is what a Unit says of the invocation to wait for.
type answer int

const (
	// present: it is Invocation.
	present answer = iota
	// next: it will be another one than Invocation.
	next
	// over: it is Invocation, which has failed.
	over
	// idle: the unit does not run, and nothing is about to start it.
	idle
	// unsure: nobody knows.
	unsure
	// none: there is no such unit.
	none
)

// which tells the invocation to wait for. A restart that was asked for a moment
// ago has not ended the old run yet, and that one may serve.
func (u Unit) which() answer {
	switch {
	case !u.Known && u.Invocation != "":
		return present
	case !u.Known:
		return unsure
	case !u.Loaded:
		return none
	}
	switch u.Job {
	case "restart":
		return next
	case "stop":
		if u.ActiveState != "failed" && u.ActiveState != "inactive" {
			return next
		}
	case "start":
		if u.ActiveState != "activating" && u.ActiveState != "active" || u.autoRestarts() {
			return next
		}
	}
	switch u.ActiveState {
	case "failed":
		return over
	case "inactive":
		return idle
	}
	return present
}

// pending says that systemd has a start before it, which takes the time that it
// takes.
func (u Unit) pending() bool { return u.Job == "restart" || u.Job == "start" }

// autoRestarts says that the unit waits for its next start.
func (u Unit) autoRestarts() bool {
	return u.SubState == "auto-restart" || u.SubState == "auto-restart-queued"
}
