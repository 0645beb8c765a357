package phases

import (
	"fmt"
	"slices"

	"github.com/startupd/startupd/pkg/event"
	"github.com/startupd/startupd/pkg/profile"
	"github.com/startupd/startupd/pkg/triage"
)

// Config is what a target is and what is known of it beforehand.
type Config struct {
	// Name is the unit's name, or what stands for it in a file.
	Name string
	// Profile is the engine's; nil means to choose among Profiles, by the
	// unit's command or the first line that one of them knows.
	Profile  *profile.Profile
	Profiles []*profile.Profile
	// ExpectedWeightBytes is the weights' size on one GPU; nil when not known.
	ExpectedWeightBytes *uint64
	// GPUs are the indices that the unit uses; empty means to go by what its
	// processes hold.
	GPUs []int
	// Container is the name or ID of the container that the engine runs in, and
	// Cgroup a path below the cgroup root; "" when the unit's own cgroup holds it.
	Container, Cgroup string
	// CountFrom is when startupd was installed: startups that ended before it
	// are shown, not counted. Zero counts all.
	CountFrom event.Stamp
	// Text is true for an input without invocations (a pasted log).
	Text bool
	// Year resolves engine time stamps, which have none; 0 means 1970.
	Year int
}

// Machine follows one target. It is not safe for concurrent use.
type Machine struct {
	cfg     Config
	profile *profile.Profile
	// finished is HostOptions.Finished.
	finished func(target string, s *Startup)
	// transition is HostOptions.Transition.
	transition func(Transition)
	scans      []scan
	// record is Scan's callback, made once so that a line costs no closure.
	record func(*profile.Record)

	// foreign is HostOptions.Foreign.
	foreign bool

	// now is the newest event's time, read that of the last entry of the log, line
	// the line that is being scanned.
	now, read event.Stamp
	line      *event.Line
	// lineAt is the line's own time; zero when it tells none.
	lineAt event.Stamp
	// scanned is the profile whose scanner is at work.
	scanned *profile.Profile
	text    textClock
	// replayed says that an earlier run has counted the present event.
	replayed bool
	// known and matched say that the line is an engine's, and that a rule knows it.
	known, matched bool

	state State
	since event.Stamp
	// cur is the present or last startup, settledLast the last one whose outcome
	// is final; nil when there is none.
	cur, settledLast *startup
	// before is the startup before cur while late entries may still amend it; nil
	// when none may.
	before *startup
	// failure is the last failed startup's root cause, until one serves; nil for
	// none. baseline is what history knows; nil for nothing.
	failure  *triage.RootCause
	baseline *event.Baseline
	// messages are the first texts of the errors that starts have failed of since one
	// served, the one told last at the end; bounded.
	messages []message
	// shown is the cause whose text was told last.
	shown struct {
		cause *triage.RootCause
		text  string
	}
	memo triage.Memo
	past ring

	counters    Counters
	counted     ring
	lastOutcome Outcome
	// failedInRow is how many starts have failed since one served or was stopped.
	failedInRow int
	// typical is how long each phase of the last good start took, in seconds; nil
	// when none was seen whole.
	typical map[State]float64

	restarts     *int
	mainPID      int
	controlGroup string
	// engineCgroup is the engine's container's; "" when it has none.
	engineCgroup string
	// unit is systemd's last state, of unitAt; nil when not known. unitBegan is
	// when its invocation began; zero when not known. held says that the journal
	// has not confirmed it yet: it is acted upon at heldUntil.
	unit              *event.UnitState
	unitAt, unitBegan event.Stamp
	held              bool
	heldUntil         event.Stamp

	health   *event.HealthSample
	own      map[int]uint64
	cpu      *float64
	cpuAt    event.Stamp
	io       *uint64
	pids     map[int]bool
	journal  journalState
	disagree string
}

type scan struct {
	profile *profile.Profile
	scanner *profile.Scanner
}

// NewMachine returns a machine that has seen nothing.
func NewMachine(cfg Config) *Machine {
	m := &Machine{
		state: Unknown, counters: newCounters(), past: newRing(64), counted: newRing(256),
		pids: map[int]bool{},
	}
	m.record = m.onRecord
	m.configure(cfg)
	return m
}

// configure takes over a new configuration and keeps what was seen, the engine
// that was recognised too.
func (m *Machine) configure(cfg Config) {
	chosen := m.profile
	m.cfg = cfg
	m.text.year = cfg.Year
	profiles := cfg.Profiles
	if cfg.Profile != nil {
		profiles = []*profile.Profile{cfg.Profile}
	}
	m.profile = nil
	m.scans = m.scans[:0]
	for _, p := range profiles {
		m.scans = append(m.scans, scan{profile: p, scanner: p.NewScanner()})
	}
	if len(profiles) == 1 {
		m.profile = profiles[0]
	}
	for _, p := range profiles {
		if chosen != nil && p.Engine == chosen.Engine {
			m.pin(p)
		}
	}
}

// pin chooses the profile for good.
func (m *Machine) pin(p *profile.Profile) {
	if m.profile != nil {
		return
	}
	m.profile = p
	m.scans = slices.DeleteFunc(m.scans, func(s scan) bool { return s.profile != p })
	m.omit()
}

// omit notes the phases that the engine does not have.
func (m *Machine) omit() {
	if m.profile == nil || m.cur == nil {
		return
	}
	for _, p := range Phases() {
		if !m.profile.HasPhase(string(p)) && !slices.Contains(m.cur.pub.Skipped, p) {
			m.cur.pub.Skipped = append(m.cur.pub.Skipped, p)
		}
	}
}

// Apply takes one event of the target.
func (m *Machine) Apply(ev event.Event) {
	m.replayed = ev.Replayed
	if m.replayed {
		// Of a target that came later, the past is read while others are followed.
		m.journal.watermark = event.Stamp{}
	}
	switch d := ev.Data.(type) {
	case *event.Watermark:
		m.journal.mark(ev.At)
	case *event.HealthSample, *event.HostSample:
		if m.journal.catchingUp() {
			return
		}
	case *event.UnitMessage:
		m.read = m.stamp(ev.At)
	case *event.Line:
		if d.Origin != event.OriginKernel {
			m.read = m.stamp(ev.At)
		}
	}
	m.counters.begin(ev.At, m.cfg.CountFrom)
	m.advance(ev.At)
	m.dispatch(ev)
	m.expire(m.heard(ev.Data))
}

func (m *Machine) dispatch(ev event.Event) {
	switch d := ev.Data.(type) {
	case *event.Line:
		m.onLine(d, ev.At)
	case *event.UnitMessage:
		m.onMessage(d, m.stamp(ev.At))
	case *event.UnitState:
		m.onUnitState(d, ev.At)
	case *event.Gap:
		m.onGap(d, ev.At)
	case *event.Earlier:
		m.past.add(d.Invocation)
	case *event.HealthSample:
		m.onHealth(d, ev.At)
	case *event.HostSample:
		m.onVitals(d, ev.At)
	case *event.Watermark:
		if !m.foreign {
			m.rebooted(ev.At)
		}
		if m.cur != nil && m.cur.final {
			m.tally(m.cur) // errors of a server that goes on
		}
	case *event.Baseline:
		m.onBaseline(d)
	case *event.Tick:
	}
}

func (m *Machine) setState(s State, at event.Stamp) {
	if m.state == s {
		return
	}
	t := Transition{Target: m.cfg.Name, From: m.state, To: s, At: at, Replayed: m.replayed}
	m.state, m.since = s, at
	if m.transition == nil {
		return
	}
	if c := m.cur; c != nil {
		t.Invocation, t.Generation, t.Began = c.pub.Invocation, c.pub.Generation, c.pub.Began
	}
	m.transition(t)
}

// expire does what the time that has passed asks for.
func (m *Machine) expire(now event.Stamp) {
	if m.held && !m.journal.catchingUp() && passed(m.heldUntil, now) {
		m.held = false
		m.applyUnitState(m.unit, m.unitAt)
	}
	for _, s := range []*startup{m.before, m.cur} {
		if s != nil && !s.final && passed(s.finalAt, now) {
			m.finalize(s)
		}
	}
	s := m.cur
	if s == nil {
		return
	}
	if !s.running() && !s.settled && passed(s.settleAt, now) {
		m.settle(s)
	}
	if s.running() {
		m.judge(now)
	}
}

// Deadline is when the machine next wants a Tick; zero when it doesn't.
func (m *Machine) Deadline() event.Stamp {
	var first event.Stamp
	if m.journal.catchingUp() {
		return first
	}
	want := func(at event.Stamp) {
		if !at.IsZero() && (first.IsZero() || at.Before(first)) {
			first = at
		}
	}
	if m.held {
		want(m.heldUntil)
	}
	if m.before != nil && !m.before.final {
		want(m.before.finalAt)
	}
	if s := m.cur; s != nil {
		if !s.running() && !s.settled {
			want(s.settleAt)
		}
		if !s.final {
			want(s.finalAt)
		}
		if s.running() {
			want(m.stallDeadline())
		}
	}
	return first
}

// Target publishes the machine's state.
func (m *Machine) Target() Target { return m.target(m.now) }

// target publishes the state as it is at now: the host's time, which other
// targets' events move on too.
func (m *Machine) target(now event.Stamp) Target {
	t := Target{
		Name: m.cfg.Name, State: m.state, Since: m.since, LastOutcome: m.lastOutcome, RestartLoop: m.failedInRow >= restartLoop,
		Counters: m.counters.clone(), Restarts: m.restarts, Disagreement: m.disagree,
		MainPID: m.mainPID, ControlGroup: m.controlGroup, EngineCgroup: m.engineCgroup,
	}
	if m.own != nil {
		t.GPUMemory = m.own
	}
	if m.cur != nil {
		t.Startup = m.publish(m.cur, now)
		t.Startup.ExpectedServing = m.expect(t.Startup, now)
		t.Ready = m.ready()
	}
	switch {
	case m.settledLast == nil:
	case m.settledLast == m.cur:
		t.Last = t.Startup
	default:
		t.Last = m.publish(m.settledLast, now)
	}
	t.Failure = m.failed()
	t.FailureMessage = m.failureMessage(t.Failure)
	return t
}

func (m *Machine) ready() Ready {
	log := m.cur.readyLog
	r := Ready{Log: &log}
	if m.health == nil || m.health.Status == event.HealthUnknown {
		return r
	}
	open, ok := m.health.Status != event.HealthClosed, m.health.Status == event.HealthReady
	r.Port, r.Health = &open, &ok
	return r
}

func (m *Machine) note(source, format string, args ...any) Evidence {
	return Evidence{Source: source, Text: fmt.Sprintf(format, args...), At: m.now}
}
