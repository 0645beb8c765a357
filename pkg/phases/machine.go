package phases

import (
	"fmt"
	"slices"
	"time"

	"github.com/startupd/startupd/pkg/event"
	"github.com/startupd/startupd/pkg/profile"
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
	// replaced is HostOptions.Replaced.
	replaced func(target string, s *Startup)
	scans    []scan
	// record is Scan's callback, made once so that a line costs no closure.
	record func(*profile.Record)

	// now is the newest event's time, line the line that is being scanned.
	now  event.Stamp
	line *event.Line
	// lineAt is the line's own time; zero when it tells none.
	lineAt event.Stamp
	// scanned is the profile whose scanner is at work.
	scanned *profile.Profile
	text    textClock
	// replayed says that an earlier run has counted the present event.
	replayed bool

	state State
	since event.Stamp
	// cur is the present or last startup, prev the one before it, settledLast
	// the last one whose outcome is final; nil when there is none.
	cur, prev, settledLast *startup
	past                   ring

	counters    Counters
	counted     ring
	lastOutcome Outcome

	restarts     *int
	mainPID      int
	controlGroup string
	// engineCgroup is the engine's container's; "" when it has none.
	engineCgroup string
	// unit is systemd's last state; nil when not known. held is when a state
	// that the journal has not confirmed yet is acted upon.
	unit      *event.UnitState
	unitAt    event.Stamp
	held      bool
	heldUntil event.Stamp

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

// journalState is what a verdict needs to know of the evidence's freshness.
type journalState struct {
	// known is false where no journal source exists (a file, a text).
	known, up bool
	watermark event.Stamp
}

// catchingUp says that the past is still being read.
func (j journalState) catchingUp() bool { return j.known && j.up && j.watermark.IsZero() }

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

// configure takes over a new configuration and keeps what was seen.
func (m *Machine) configure(cfg Config) {
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
}

// pin chooses the profile for good.
func (m *Machine) pin(p *profile.Profile) {
	if m.profile != nil {
		return
	}
	m.profile = p
	m.scans = slices.DeleteFunc(m.scans, func(s scan) bool { return s.profile != p })
}

// Apply takes one event of the target.
func (m *Machine) Apply(ev event.Event) {
	m.replayed = ev.Replayed
	m.advance(ev.At)
	switch d := ev.Data.(type) {
	case *event.Line:
		m.onLine(d, ev.At)
	case *event.UnitMessage:
		m.onMessage(d, m.stamp(ev.At))
	case *event.UnitState:
		m.onUnitState(d, ev.At)
	case *event.Gap:
		m.onGap(d, ev.At)
	case *event.HealthSample:
		m.onHealth(d, ev.At)
	case *event.HostSample:
		m.onVitals(d, ev.At)
	case *event.Tick, *event.Watermark:
	}
	m.expire()
}

// advance moves the machine's time on; it never goes back.
func (m *Machine) advance(at event.Stamp) {
	if m.now.IsZero() || at.Boot != "" && at.Boot != m.now.Boot || at.After(m.now) {
		if !at.IsZero() {
			m.now = at
		}
	}
}

// stamp is at, or the text's own time where at is not known.
func (m *Machine) stamp(at event.Stamp) event.Stamp {
	if at.IsZero() {
		return m.text.now
	}
	return at
}

func (m *Machine) setState(s State, at event.Stamp) {
	if m.state != s {
		m.state, m.since = s, at
	}
}

// begin opens a new startup.
func (m *Machine) begin(at event.Stamp, invocation string, generation int) {
	if m.cur != nil {
		if m.cur.running() {
			m.finish(OutcomeFailed, "a new start began before it was ready", at, 0)
		} else if m.cur.serving() {
			m.endServing("exited", at)
		}
		m.settle(m.cur)
		if m.replaced != nil {
			m.replaced(m.cfg.Name, m.cur.publish(m.now))
		}
		m.past.add(m.cur.pub.Invocation)
		m.past.add(m.cur.unitInvocation)
		m.prev = m.cur
	}
	m.cur = newStartup(at, invocation, generation)
	if m.unit != nil && m.unit.Invocation != "" && m.unit.Invocation == invocation && !m.unit.InactiveExit.IsZero() {
		m.attach(m.unit.InactiveExit)
	}
	m.disagree = ""
	m.own = nil
	clear(m.pids)
	m.setState(Spawn, at)
}

// lateAfter is how long after systemd's own time of start the first evidence
// may come before it counts as an attach in the middle.
const lateAfter = 5 * time.Second

// attach corrects the beginning of a startup whose first lines are missing.
func (m *Machine) attach(began event.Stamp) {
	s := m.cur
	if s.pub.Began.Sub(began) > lateAfter {
		s.pub.AttachedLate = true
		s.pub.Began = began
		s.pub.Phases[0].Entered = began
	}
}

// finish ends the present startup. settle is how long the outcome may still be
// revoked.
func (m *Machine) finish(outcome Outcome, reason string, at event.Stamp, settle time.Duration) {
	s := m.cur
	last := s.pub.Phases[len(s.pub.Phases)-1]
	if at.Before(last.Entered) {
		at = last.Entered
	}
	s.pub.Outcome, s.pub.Reason, s.pub.Ended = outcome, reason, at
	s.settleAt = at.Add(settle)
	s.pub.Stalled, s.pub.StalledReason, s.pub.Slow = false, "", false
	m.setState(map[Outcome]State{OutcomeServing: Serving, OutcomeFailed: Failed, OutcomeStopped: Stopped}[outcome], at)
	if settle == 0 {
		m.settle(s)
	}
}

// fail ends a running startup, or a ready one that could not keep its promise.
func (m *Machine) fail(reason string, at event.Stamp, settle time.Duration) {
	if s := m.cur; s.pub.Outcome == OutcomeServing {
		s.readyLog, s.readyOK = false, false
	}
	m.finish(OutcomeFailed, reason, at, settle)
}

// revive takes a failure back that rested on a line alone.
func (m *Machine) revive() {
	s := m.cur
	s.fatal, s.trouble = false, nil
	s.pub.Outcome, s.pub.Reason, s.pub.Ended = OutcomeNone, "", event.Stamp{}
	s.settleAt = event.Stamp{}
	m.setState(s.phase(), m.now)
}

func (m *Machine) endServing(reason string, at event.Stamp) {
	s := m.cur
	if !s.serving() {
		return
	}
	m.settle(s)
	s.pub.ServingEnded, s.pub.ServingEndReason = at, reason
	if reason == "stopped" {
		m.setState(Stopped, at)
	} else {
		m.setState(Failed, at)
	}
	if !s.endSettled && m.countable(s.key()+"/end", at) {
		m.counters.ServingEnded[reason]++
	}
	s.endSettled = true
}

// settle makes a startup's outcome final and counts it, once for all runs of
// the daemon.
func (m *Machine) settle(s *startup) {
	if s.settled || s.running() {
		return
	}
	s.settled = true
	m.settledLast, m.lastOutcome = s, s.pub.Outcome
	if !m.countable(s.key(), s.pub.Ended) {
		return
	}
	m.counters.Startups[s.pub.Outcome]++
	s.completed(m.counters.observe)
}

// countable says whether a fact of that identity is to be counted, and notes
// that it was.
func (m *Machine) countable(key string, at event.Stamp) bool {
	if m.counted.has(key) || !m.cfg.CountFrom.IsZero() && at.Before(m.cfg.CountFrom) {
		return false
	}
	m.counted.add(key)
	return true
}

// Drain ends the input: what was still open to revocation becomes final, and a
// start that ended in trouble has failed.
func (m *Machine) Drain() {
	s := m.cur
	if s == nil {
		return
	}
	if s.running() {
		switch {
		case s.stopLine && !s.stopAsked:
			m.finish(OutcomeFailed, "it was told to stop before it was ready", m.now, 0)
		case s.trouble != nil:
			m.finish(OutcomeFailed, "its log ends in an error: "+clip(s.trouble.Text), m.now, 0)
		}
	}
	m.settle(s)
}

// expire does what the time that has passed asks for.
func (m *Machine) expire() {
	if m.held && !m.journal.catchingUp() && !m.now.Before(m.heldUntil) {
		m.held = false
		m.applyUnitState(m.unit, m.unitAt)
	}
	s := m.cur
	if s == nil {
		return
	}
	if !s.running() && !s.settled && !m.now.Before(s.settleAt) {
		m.settle(s)
	}
	if s.running() {
		m.judge()
	}
}

// Deadline is when the machine next wants a Tick; zero when it doesn't.
func (m *Machine) Deadline() event.Stamp {
	var first event.Stamp
	want := func(at event.Stamp) {
		if !at.IsZero() && (first.IsZero() || at.Before(first)) {
			first = at
		}
	}
	if m.held {
		want(m.heldUntil)
	}
	if s := m.cur; s != nil {
		if !s.running() && !s.settled {
			want(s.settleAt)
		}
		if s.running() {
			want(m.stallDeadline())
		}
	}
	return first
}

// Target publishes the machine's state.
func (m *Machine) Target() Target {
	t := Target{
		Name: m.cfg.Name, State: m.state, Since: m.since, LastOutcome: m.lastOutcome,
		Counters: m.counters.clone(), Restarts: m.restarts, Disagreement: m.disagree,
		MainPID: m.mainPID, ControlGroup: m.controlGroup, EngineCgroup: m.engineCgroup,
	}
	if m.own != nil {
		t.GPUMemory = m.own
	}
	if m.cur != nil {
		t.Startup = m.cur.publish(m.now)
		t.Ready = m.ready()
	}
	switch {
	case m.settledLast == nil:
	case m.settledLast == m.cur:
		t.Last = t.Startup
	default:
		t.Last = m.settledLast.publish(m.now)
	}
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
