package phases

import (
	"time"

	"github.com/startupd/startupd/pkg/event"
)

// begin opens a new startup.
func (m *Machine) begin(at event.Stamp, invocation string, generation int) {
	next := newStartup(at, invocation, generation)
	if m.cur != nil {
		next.unitInvocation = m.keepsUnit(invocation)
		m.conclude(at)
		for _, id := range []string{m.cur.pub.Invocation, m.cur.unitInvocation} {
			if id != invocation && id != next.unitInvocation {
				m.past.add(id)
			}
		}
	}
	m.cur = next
	next.triage.Share(&m.memo)
	next.triage.Baseline(m.baselineOf(next))
	m.omit()
	// The probe tells changes: a port that was closed before is closed now.
	next.closedSeen = m.health != nil && (m.health.Status == event.HealthClosed || m.health.Status == event.HealthNotReady)
	m.disagree = ""
	m.own = nil
	clear(m.pids)
	m.setState(Spawn, at)
}

// conclude closes the present startup for a new one.
func (m *Machine) conclude(at event.Stamp) {
	s := m.cur
	switch {
	case s.running() && s.stopAsked:
		m.finish(OutcomeStopped, "a stop was asked for", at, 0)
	case s.running():
		m.finish(OutcomeFailed, "a new start began before it was ready", at, 0)
	case s.serving():
		m.endServing(m.endReason(), at)
	}
	m.settle(s)
	m.supersede(at)
}

// earlier takes an entry that lies before the one that began its startup:
// journald does not write strictly in the order of its stamps, and a back-fill
// must find the same beginning as the live reader did.
func (m *Machine) earlier(at event.Stamp) {
	s := m.cur
	if s.pub.Generation > 0 || len(s.pub.Phases) > 1 || !at.Before(s.pub.Began) {
		return
	}
	s.pub.Began, s.pub.Phases[0].Entered = at, at
	if m.state == Spawn {
		m.since = at
	}
}

// lateAfter is how long after systemd's own time of start the first evidence
// may come before it counts as an attach in the middle.
const lateAfter = 5 * time.Second

// attach corrects the beginning of a startup whose first entries are missing.
func (m *Machine) attach() {
	s := m.cur
	if m.unit == nil || m.unit.Invocation == "" || m.unit.Invocation != s.pub.Invocation || m.unitBegan.IsZero() {
		return
	}
	if s.pub.Began.Sub(m.unitBegan) > lateAfter {
		s.pub.AttachedLate = true
		s.pub.Began = m.unitBegan
		s.pub.Phases[0].Entered = m.unitBegan
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
	if outcome == OutcomeServing {
		m.failure = nil
		s.triage.Ready(true)
	}
	m.setState(map[Outcome]State{OutcomeServing: Serving, OutcomeFailed: Failed, OutcomeStopped: Stopped}[outcome], at)
	if settle == 0 {
		m.settle(s)
	}
}

// fail ends a running startup, or a ready one that could not keep its promise.
func (m *Machine) fail(reason string, at event.Stamp, settle time.Duration) {
	if s := m.cur; s.pub.Outcome == OutcomeServing {
		s.readyLog, s.readyOK = false, false
		s.triage.Ready(false)
		s.revokeServing(at)
	}
	m.finish(OutcomeFailed, reason, at, settle)
}

// revive takes a failure back that rested on a line alone.
func (m *Machine) revive() {
	s := m.cur
	s.fatal, s.trouble = false, ""
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
	defer m.report(s)
	if reason == "stopped" {
		m.setState(Stopped, at)
	} else {
		m.setState(Failed, at)
	}
	if !s.endSettled && m.countable(s, "/end", at) {
		m.counters.ServingEnded[reason]++
	}
	s.endSettled = true
}

// restartLoop is how many starts must fail in a row to be called a loop.
const restartLoop = 3

// settle makes a startup's outcome final and counts it, once for all runs of
// the daemon.
func (m *Machine) settle(s *startup) {
	if s.settled || s.running() {
		return
	}
	s.settled = true
	m.settledLast, m.lastOutcome = s, s.pub.Outcome
	switch {
	case s.pub.Outcome == OutcomeServing:
		m.finalize(s)
		m.messages = nil
	case !s.exited && s.finalAt.IsZero():
		// Its processes are not seen to end, or take their time.
		s.finalAt = m.now.Add(finalUnseen)
	}
	m.learn(s)
	if !m.countable(s, "", s.pub.Ended) {
		return
	}
	m.counters.end(s.pub.Outcome, s.pub.Invocation, s.pub.Ended)
	if s.pub.Outcome == OutcomeFailed {
		m.failedInRow++
	} else {
		m.failedInRow = 0
	}
	if !s.pub.AttachedLate {
		s.completed(func(phase State, seconds float64) {
			m.counters.observe(phase, Exemplar{Invocation: s.pub.Invocation, Value: seconds, At: s.pub.Ended.Real})
		})
	}
}

// countable says whether a fact of the startup is to be counted, and notes that
// it was.
func (m *Machine) countable(s *startup, fact string, at event.Stamp) bool {
	key := s.key(s.pub.Invocation) + fact
	if m.counted.has(key) || !m.cfg.CountFrom.IsZero() && at.Before(m.cfg.CountFrom) {
		return false
	}
	m.counted.add(key)
	if s.unitInvocation != "" {
		// A back-fill comes upon the unit's ID first.
		m.counted.add(s.key(s.unitInvocation) + fact)
	}
	return true
}

// Drain ends the input: what was still open to revocation becomes final, and a
// start that ended in trouble has failed.
func (m *Machine) Drain() {
	if b := m.before; b != nil && !b.final {
		m.finalize(b)
	}
	s := m.cur
	if s == nil {
		return
	}
	if s.running() {
		switch {
		case s.stopAsked:
			m.finish(OutcomeStopped, "a stop was asked for", m.now, 0)
		case s.stopLine:
			m.finish(OutcomeFailed, "it was told to stop before it was ready", m.now, 0)
		case s.trouble != "":
			m.finish(OutcomeFailed, "its log ends in an error: "+s.trouble, m.now, 0)
		}
	}
	m.settle(s)
	if s.pub.Outcome != OutcomeNone {
		m.finalize(s)
	}
}
