// Package profile owns what startupd knows of engines: how a line of log is
// built (process prefixes, headers, levels), which lines are milestones,
// progress, readiness, causes of failure or harmless, which phases the engine
// has, how long each step may be quiet, and where its health is asked. All of it is data: YAML files
// (schema startupd-profile/v1), embedded, and extendable from a directory.
//
// A rule carries an example and the captures expected of it. A file that
// comes from outside is tested against its own examples when it is loaded,
// and refused with file, line, rule and reason. The embedded files are tested
// so by this package's tests instead, which keeps a start of the daemon fast;
// their regular expressions are compiled when first needed.
//
// The package must not know an engine in Go code, keep state between lines,
// read a clock, do I/O (a directory comes as an fs.FS) or log.
package profile

import (
	"regexp"
	"slices"
	"strings"
	"time"
)

// Role is what a rule's line means.
type Role string

// The roles of a rule.
const (
	// RoleEnter opens the rule's phase and step.
	RoleEnter Role = "enter"
	// RoleEnd closes the rule's step.
	RoleEnd Role = "end"
	// RoleFact moves nothing; its captures are worth keeping.
	RoleFact Role = "fact"
	// RoleProgress counts: Record.Done of Record.Total. It opens its phase and
	// step as RoleEnter does; without them it belongs to the open step.
	RoleProgress Role = "progress"
	// RoleHeartbeat shows that something lives, and is no progress.
	RoleHeartbeat Role = "heartbeat"
	// RoleReady says that the engine serves.
	RoleReady Role = "ready"
	// RoleCause names why a start fails.
	RoleCause Role = "cause"
	// RoleWrapper reports a failure whose cause another line tells.
	RoleWrapper Role = "wrapper"
	// RoleCascade is what a failure elsewhere sets off in another process (a peer
	// that closed, a broken pipe).
	RoleCascade Role = "cascade"
	// RoleTeardown is noise of processes that end.
	RoleTeardown Role = "teardown"
	// RoleBenign looks like an error and harms nothing.
	RoleBenign Role = "benign"
	// RoleStop says that the engine is being stopped.
	RoleStop Role = "stop"
)

// Level is a record's severity.
type Level int

// The levels, in order of severity.
const (
	// LevelNone means that the record tells no level.
	LevelNone Level = iota
	LevelDebug
	LevelInfo
	LevelWarning
	LevelError
	LevelCritical
)

// Rule is one kind of line that an engine prints.
type Rule struct {
	ID   string
	Role Role
	// Shared marks a rule of the catalogue that all engines have.
	Shared bool
	// Phase and Step are opened or closed by the line; "" keeps the present one.
	Phase, Step string
	// Class is the class of a cause, or of what a benign line or a wrapper
	// speaks of; "" when not known.
	Class string
	// ClassIn are the classes where it depends on the phase that the line comes
	// in, by phase; use ClassFor.
	ClassIn map[string]string
	// Process is who prints the line: one of the profile's process roles, or
	// "any".
	Process string
	// From restricts the rule to records of these process roles; "none" stands
	// for a record that names no process. nil is no restriction.
	From []string
	// Fatal marks a cause or wrapper after which the start can't succeed.
	Fatal bool
	// Banner marks the first line of a new main process.
	Banner bool
	// RevokesReady marks a fatal error that makes an earlier ready line void.
	RevokesReady bool
	// Waits marks a cause of waiting: the start goes on, and may go on for ever.
	Waits bool
	// Skips are phases that this start will not have.
	Skips []string
	// ReadyIf lists rules; when one of them has matched in this startup, this
	// rule's line means ready.
	ReadyIf []string
	// Await is nil when the rule always means its own phase and step.
	Await *Await
	// Weights names the capture that holds the weights' size on one GPU; "" when
	// there is none. Record.Number gives it in bytes.
	Weights string
	// FramePhase is the phase that a traceback with this frame died in: a second
	// choice where no milestone tells the phase; "" for other rules.
	FramePhase string
	// Weak marks a cause that names a kind of failure only: one that is not weak
	// explains the same start better, also if it comes later.
	Weak bool
	// Exception restricts the rule to lines that name one of these exceptions,
	// with or without their modules; nil is no restriction.
	Exception []string
	// Frame is an expression that a frame of the line's traceback must match
	// ("file:function"); "" is no restriction. Such a rule is only a candidate of
	// a record: see Record.Conditional.
	Frame string
	// CauseIf lists rules: once one of them has matched later in the startup, a
	// benign line of this rule was the cause, of Class.
	CauseIf []string
	// ElseClass is the class of a startup's failure that this rule's line is the
	// best evidence of, where nothing names a cause; "" when it is none.
	ElseClass string
	// Hang is the class of a hang whose last word is this rule's line; "" when it
	// tells none.
	Hang string
	// Remedy says in one sentence what to do, with captures in braces; "" leaves it
	// to the class. Use Profile.Advise.
	Remedy string
	// Retry says whether starting again can help; nil leaves it to the class.
	Retry *bool
	// Captures are the names of all captures of Regex and Extract, in order.
	Captures []string

	// What follows documents the rule.

	// Kind is the kind of record that it matches: the name of a header, or raw
	// (no header), traceback (no header, or a level of error and above, or no
	// level told), any.
	Kind string
	// Level is the level that the line is printed at; LevelNone when it varies.
	Level Level
	// Since and Until are engine versions, both inclusive; "" is unbounded.
	Since, Until string
	Source, Note string
	// Regex is searched in Record.Message. Extract are searched in it too, for
	// further captures.
	Regex   string
	Extract []string
	// Example is a message that selects the rule. Examples are more of them.
	Example  string
	Examples []string

	// ExampleFrame is a frame that Frame takes.
	ExampleFrame string

	// want are the captures expected of Example, and line is where the rule
	// stands in its file.
	want     map[string]string
	line     int
	index    int
	literals literals
	// re is Regex, and expressions are Regex and Extract; compiled when first
	// needed, as few rules ever match in one run.
	re          func() *regexp.Regexp
	expressions func() []*regexp.Regexp
	// frame is Frame compiled; nil when there is none.
	frame func() *regexp.Regexp
}

// TakesFrame says whether a frame, as "file:function", fulfils the rule's
// condition.
func (r *Rule) TakesFrame(frame string) bool { return r.frame == nil || r.frame().MatchString(frame) }

// ClassFor returns the class of the rule's line in a phase.
func (r *Rule) ClassFor(phase string) string {
	if class, ok := r.ClassIn[phase]; ok {
		return class
	}
	return r.Class
}

// Await changes what a rule means early in a startup: until one of Rules has
// matched, and only if one of Seen has, it means Phase and Step.
type Await struct {
	Rules, Seen []string
	Phase, Step string
}

// Profile is the knowledge of one engine. It is immutable and may be shared by
// goroutines.
type Profile struct {
	Engine string
	// Phases are those that the engine has, in order; the others are skipped.
	Phases []string
	// DefaultPort is where it serves unless told otherwise; 0 when not known.
	DefaultPort int
	Health      Health
	// Preflight is what is known before a start; nil when nothing is.
	Preflight *Preflight
	// Rules are in order of precedence.
	Rules []*Rule
	// File is where the profile was read from.
	File string
	// Classes are the classes of failure, by name.
	Classes map[string]Class

	detect    []*regexp.Regexp
	titles    []*template
	processes []processRole
	roles     []string
	grammar   *grammar
	steps     map[string]StepInfo
	quiet     time.Duration
	// kernel are the indexes of the rules for the kernel's lines.
	kernel []*index
}

// Class is a kind of failure.
type Class struct {
	Meaning string
	// Remedy says in one sentence what to do; "" when nothing general helps.
	Remedy string
	// Retry says whether starting again can help; nil when that is not known.
	Retry *bool
}

// Health is how the engine is asked whether it is ready.
type Health struct {
	// Path is the URL's path; "" when the engine has no such endpoint.
	Path string
	// Ready and NotReady are HTTP statuses; any other status tells nothing.
	Ready, NotReady []int
	// Closed is what a refused connection means: the state of a start that has
	// not opened its port yet ("starting"), or "" when it tells nothing.
	Closed string
}

// StepInfo tells how long a step may be quiet.
type StepInfo struct {
	// Quiet is the longest normal silence; 0 means that there is no budget.
	Quiet time.Duration
	// NoStretch means that use of CPU or GPU must not stretch the budget: a
	// hung collective shows full use of both.
	NoStretch bool
}

// HasPhase says whether the engine has a phase.
func (p *Profile) HasPhase(phase string) bool {
	return slices.Contains(p.Phases, phase)
}

// DetectCommand says whether a command line is one of the engine's.
func (p *Profile) DetectCommand(cmdline string) bool {
	for _, re := range p.detect {
		if re.MatchString(cmdline) {
			return true
		}
	}
	return false
}

// Step returns the quiet budget of a step: the step's own, else its phase's,
// else the profile's.
func (p *Profile) Step(phase, step string) StepInfo {
	if info, ok := p.steps[phase+"/"+step]; ok {
		return info
	}
	if info, ok := p.steps[phase]; ok {
		return info
	}
	return StepInfo{Quiet: p.quiet}
}

// TitleProcess turns a process's title into the name that the process has in
// the log; "" when it is none of the engine's.
func (p *Profile) TitleProcess(title string) string {
	for _, t := range p.titles {
		var h header
		if t.parse(title, &h) {
			return h.process
		}
	}
	return ""
}

// ProcessRole returns the role of a process by its name in the log (Record.
// Process); "" when the name is not known.
func (p *Profile) ProcessRole(process string) string {
	for i := range p.processes {
		if strings.HasPrefix(process, p.processes[i].prefix) {
			return p.processes[i].role
		}
	}
	return ""
}

// processRole maps names of processes by their beginning.
type processRole struct {
	prefix, role string
}
