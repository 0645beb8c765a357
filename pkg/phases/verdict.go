package phases

import (
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/startupd/startupd/pkg/event"
	"github.com/startupd/startupd/pkg/profile"
	"github.com/startupd/startupd/pkg/triage"
)

const (
	// finalAfter is how long after its unit's end a startup's root cause may still
	// change: the kernel's and systemd's entries come late. finalAfterDump is the
	// same where a core dump is written.
	finalAfter     = 2 * time.Second
	finalAfterDump = 30 * time.Second
	// finalUnseen is the same after the failure itself, where nobody tells of the
	// end of its processes.
	finalUnseen = time.Minute
)

// place is where the line that is being scanned stands.
func (m *Machine) place(at event.Stamp) triage.Place { return placeOf(m.line, at) }

func placeOf(l *event.Line, at event.Stamp) triage.Place {
	return triage.Place{Line: l.No, Cursor: l.Cursor, At: at, PID: l.PID, Proc: l.Proc}
}

// weigh gives a record to the startup's triage.
func (m *Machine) weigh(s *startup, r *profile.Record, at event.Stamp) {
	if s.final && !s.serving() || m.profile == nil && m.scanned != m.scans[0].profile {
		return
	}
	// A script that starts the engine again keeps the invocation.
	if b := m.before; b != nil && !b.final && b.pub.Invocation == s.pub.Invocation && b.pids[m.line.PID] {
		s = b
	}
	s.triage.Add(m.scanned, r, m.place(at), string(s.phase()))
	if r.Rule != nil && r.Rule.Role == profile.RoleStop && r.Rule.Class != "" {
		s.triage.Stopped()
	}
}

// amend gives a late line of the startup before the present one to its triage.
func (m *Machine) amend(l *event.Line, at event.Stamp) {
	b := m.before
	if b == nil || b.final || !b.owns(l.Invocation) || m.profile == nil {
		return
	}
	m.scans[0].scanner.Scan(l.Text, func(r *profile.Record) {
		b.triage.Add(m.profile, r, placeOf(l, at), string(b.phase()))
	})
}

// owns says whether an ID is the startup's.
func (s *startup) owns(id string) bool {
	return id != "" && (id == s.pub.Invocation || id == s.unitInvocation)
}

// judgement is what the startup's evidence says by now.
func (m *Machine) judgement(s *startup) *triage.Judgement {
	return s.triage.Judge(m.profile, triage.Question{
		Failed:  s.pub.Outcome == OutcomeFailed,
		Hung:    s.hung,
		Stalled: s.running() && s.pub.Stalled,
		Served:  s.pub.Outcome == OutcomeServing,
		Phase:   string(s.phase()), ExitStatus: s.exit, Final: s.final,
		Blind:     m.journal.known && !m.journal.up && len(s.pub.LastLine) == 0,
		LastLines: func() map[string]string { return maps.Clone(s.pub.LastLine) },
	})
}

// failed is the root cause of the last failed startup until one serves; nil when
// there is none.
func (m *Machine) failed() *triage.RootCause {
	for _, s := range []*startup{m.cur, m.before} {
		switch {
		case s == nil:
		case s.pub.Outcome == OutcomeServing:
			return nil
		case s.pub.Outcome == OutcomeFailed:
			return m.judgement(s).Root
		}
	}
	return m.failure
}

// onBaseline takes what history knows. A startup that is over keeps what was
// known then: its own record would make its errors old ones.
func (m *Machine) onBaseline(b *event.Baseline) {
	m.baseline = b
	if m.cur != nil && m.cur.running() {
		m.cur.triage.Baseline(m.baselineOf(m.cur))
	}
}

// baselineOf is what history knows beside the startup itself, which it holds
// already where the daemon reads it again.
func (m *Machine) baselineOf(s *startup) *event.Baseline {
	b := m.baseline
	if b == nil || b.Newest == nil || b.Newest.Key != s.key(s.pub.Invocation) && b.Newest.Key != s.key(s.unitInvocation) {
		return b
	}
	out := &event.Baseline{Good: b.Good, Bad: b.Bad, Errors: maps.Clone(b.Errors)}
	good, bad := 0, 1
	if b.Newest.Good {
		good, bad = 1, 0
	}
	out.Good, out.Bad = out.Good-good, out.Bad-bad
	for _, f := range b.Newest.Errors {
		n := out.Errors[f]
		out.Errors[f] = event.Seen{Good: n.Good - good, Bad: n.Bad - bad}
	}
	return out
}

// closeEvidence sets when the startup's root cause becomes final.
func (m *Machine) closeEvidence(s *startup, at event.Stamp) {
	if s.final || s.closed {
		return
	}
	s.closed = true
	after := finalAfter
	if s.dumping {
		after = finalAfterDump
	}
	s.finalAt = at.Add(after)
}

// supersede makes the present startup the one before, for a new one.
func (m *Machine) supersede(at event.Stamp) {
	if m.before != nil && !m.before.final {
		m.finalize(m.before)
	}
	s := m.cur
	m.before = s
	s.pids = maps.Clone(m.pids)
	m.closeEvidence(s, at)
}

// finalize freezes a startup's root cause and counts its errors.
func (m *Machine) finalize(s *startup) {
	if s.final {
		return
	}
	s.final = true
	later := s != m.cur && m.cur != nil && m.cur.pub.Outcome == OutcomeServing
	if s.pub.Outcome == OutcomeFailed && !later {
		m.failure = m.judgement(s).Root
		m.failureMessage(m.failure) // also where no snapshot has shown it
	}
	m.report(s)
}

// report hands a final startup on.
func (m *Machine) report(s *startup) {
	m.tally(s)
	if m.finished != nil && s.final {
		m.finished(m.cfg.Name, m.publish(s, m.now))
	}
}

// tally adds the startup's errors to the totals, once for all runs of the daemon.
func (m *Machine) tally(s *startup) {
	now := m.judgement(s).Errors
	first := s.tallied == nil
	if first && m.countable(s, "/errors", s.pub.Ended) || !first && !m.replayed {
		for k, n := range now {
			if add := n - s.tallied[k]; add > 0 {
				m.counters.Errors[k] += uint64(add)
			}
		}
	}
	s.tallied = maps.Clone(now)
}

// onKernel takes a line of the kernel's log, which is of the whole host: it
// counts where it names a process or the control group of the unit.
func (m *Machine) onKernel(l *event.Line, at event.Stamp) {
	if len(m.scans) == 0 {
		return
	}
	r := m.scans[0].scanner.ScanKernel(l.Text)
	if r.Rule == nil || r.Rule.Role != profile.RoleCause {
		return
	}
	pid, _ := strconv.Atoi(r.Capture("pid"))
	cgroup := r.Capture("cgroup")
	if s := m.named(pid, cgroup); s != nil {
		weight := triage.Decisive
		if r.Rule.Weak {
			weight = triage.Late
		}
		s.triage.Witness(m.scans[0].profile, triage.Witness{
			Process: "kernel", Class: r.Rule.ClassFor(string(s.phase())), Message: l.Text, Weight: weight,
			Rule: r.Rule, Capture: r.Capture, Place: placeOf(l, at),
		})
	}
}

// named finds the startup that a line of the kernel is about, by a process or by
// the unit's control group; nil for none.
func (m *Machine) named(pid int, cgroup string) *startup {
	cur, before := m.cur, m.before
	if cur != nil && cur.final {
		cur = nil
	}
	if before != nil && before.final {
		before = nil
	}
	switch {
	case cur != nil && (m.cfg.Text || pid != 0 && (m.pids[pid] || pid == m.mainPID)):
		return cur
	case before != nil && pid != 0 && before.pids[pid]:
		return before
	case !m.inCgroup(cgroup):
		return nil
	case before != nil:
		return before // it has just ended, and of what is not known yet
	}
	return cur
}

// inCgroup says whether a control group is the unit's, or below it.
func (m *Machine) inCgroup(cgroup string) bool {
	for _, own := range []string{m.controlGroup, m.engineCgroup} {
		if own != "" && strings.HasPrefix(cgroup+"/", strings.TrimSuffix(own, "/")+"/") {
			return true
		}
	}
	return slices.Contains(strings.Split(cgroup, "/"), m.cfg.Name)
}

// testify takes what systemd says of a startup's end as evidence.
func (m *Machine) testify(s *startup, d *event.UnitMessage, at event.Stamp) {
	say := func(class string, weight triage.Weight) {
		if s.final {
			return
		}
		s.triage.Witness(m.profile, triage.Witness{
			Process: "systemd", Class: class, Message: d.Text, Weight: weight, Place: triage.Place{Line: d.No, Cursor: d.Cursor, At: at},
		})
	}
	switch d.Message {
	case event.Stopping:
		s.triage.Stopped()
	case event.OutOfMemory, event.OOMDKill:
		say("host_oom", triage.Decisive)
	case event.TimedOut:
		say("startup_timeout", triage.Late)
		s.triage.Stopped()
	case event.Coredump:
		s.dumping = true
		if !s.finalAt.IsZero() {
			s.finalAt = at.Add(finalAfterDump)
		}
	case event.ProcessExit:
		if d.Command == "" || d.Command == "ExecStart" {
			s.exit = clip(strings.TrimSpace(d.ExitCode + ", status " + d.ExitStatus))
			m.exited(s, d, say)
		}
	case event.FailureResult, event.StartFailed:
		s.killed = s.killed || killed(d.Result)
		switch d.Result {
		case "timeout", "watchdog":
			// After a failure it is the end of its processes that takes too long.
			if !s.fatal {
				say("startup_timeout", triage.Late)
			}
		case "oom-kill":
			say("host_oom", triage.Decisive)
		}
	}
}

// killed says whether a unit's result means that a signal ended it.
func killed(result string) bool {
	return result == "signal" || result == "core-dump" || result == "oom-kill"
}

// exited takes the exit of the main process as evidence: a signal, or a status
// by which systemd says that it could not run it (systemd.exec(5)).
func (m *Machine) exited(s *startup, d *event.UnitMessage, say func(class string, weight triage.Weight)) {
	number, name, _ := strings.Cut(d.ExitStatus, "/")
	status, err := strconv.Atoi(number)
	if err != nil {
		name = number
	}
	switch {
	case d.ExitCode == "killed" || d.ExitCode == "dumped":
		s.killed = true
		switch {
		case s.stopAsked:
		case slices.Contains([]int{1, 2, 3, 9, 15}, status) || slices.Contains([]string{"HUP", "INT", "QUIT", "KILL", "TERM"}, name):
			say("killed_externally", triage.Last)
		default:
			say("worker_crashed", triage.Last)
		}
	case d.ExitCode != "exited":
	case status == 200 || status == 203 || status == 226:
		say("config_invalid", triage.Decisive)
	case status == 216 || status == 217:
		say("permission_denied", triage.Decisive)
	}
}
