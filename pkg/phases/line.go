package phases

import (
	"hash/fnv"
	"strconv"
	"strings"

	"github.com/startupd/startupd/pkg/event"
	"github.com/startupd/startupd/pkg/profile"
	"github.com/startupd/startupd/pkg/triage"
)

// onLine takes one line of log.
func (m *Machine) onLine(l *event.Line, at event.Stamp) {
	if l.Origin == event.OriginKernel {
		m.onKernel(l, at)
		return
	}
	if !m.replayed {
		m.counters.Lines++
	}
	if !m.belongs(l, m.stamp(at)) {
		if !m.replayed {
			m.counters.Stale++
		}
		m.amend(l, at)
		return
	}
	if l.PID != 0 && len(m.pids) < maxProcesses*4 {
		m.pids[l.PID] = true
	}
	m.line, m.lineAt = l, at
	m.known, m.matched = false, false
	for _, s := range m.scans {
		m.scanned = s.profile
		s.scanner.Scan(l.Text, m.record)
		if m.profile != nil {
			break
		}
	}
	if m.known && !m.matched && !m.replayed {
		m.counters.Unmatched++
	}
}

// belongs says whether the line is of the present startup, which it may begin.
func (m *Machine) belongs(l *event.Line, at event.Stamp) bool {
	s := m.cur
	switch {
	case s == nil && m.past.has(l.Invocation):
		return false
	case s == nil:
		m.begin(at, l.Invocation, 0)
		m.attach()
	case l.Invocation == "" || l.Invocation == s.pub.Invocation || l.Invocation == s.unitInvocation:
		m.earlier(at)
	case m.past.has(l.Invocation) || m.older(at):
		return false
	case m.adopts(l.Invocation, at):
		s.unitInvocation, s.pub.Invocation = s.pub.Invocation, l.Invocation
	default:
		m.begin(at, l.Invocation, 0)
		m.attach()
	}
	return true
}

// onRecord takes one record of the line, with the rule that it selects.
func (m *Machine) onRecord(r *profile.Record) {
	at := m.recordTime(r)
	if r.Rule != nil && r.Rule.Banner {
		m.nextGeneration(r, at)
	}
	s := m.cur
	m.keepLastLine(r)
	m.weigh(s, r, at)
	if r.Rule == nil {
		m.known = m.known || r.Known && r.Kind != profile.KindRaw
		m.suspect(r, at)
		return
	}
	m.matched = true
	if s.serving() && s.readyLog && (r.Rule.Role == profile.RoleFact || r.Rule.Role == profile.RoleReady) {
		// A server's requests and statistics: millions of them, and no news.
		return
	}
	m.engine(r)
	ev := Evidence{Source: "log", Rule: r.Rule.ID, Text: clip(r.Message), Cursor: m.line.Cursor, LineNo: m.line.No, At: at}
	switch r.Rule.Role {
	case profile.RoleEnter, profile.RoleEnd, profile.RoleFact, profile.RoleReady, profile.RoleProgress:
		m.milestone(r, ev)
	case profile.RoleCause, profile.RoleWrapper, profile.RoleCascade:
		m.trouble(r, ev)
	case profile.RoleStop:
		s.stopLine = true
	case profile.RoleHeartbeat:
		s.triage.Heartbeat(r, m.place(at))
	case profile.RoleTeardown, profile.RoleBenign:
		if r.Rule.Hang != "" {
			s.triage.Sign(r, m.place(at))
		}
	}
	s.seen[r.Rule.ID] = true
}

// recordTime is when the record was printed: the journal's time (or that of the
// wrapper around a text), else the engine's own.
func (m *Machine) recordTime(r *profile.Record) event.Stamp {
	if !m.lineAt.IsZero() {
		if y := m.lineAt.Real.Year(); y > 1 {
			m.text.year = y // of the lines whose own stamps lack it
		}
		return m.lineAt
	}
	at, ok := m.text.read(r)
	if !ok {
		return event.Stamp{}
	}
	m.advance(at)
	m.dateBeginning(at)
	return at
}

// dateBeginning gives a startup whose first lines had no time the first one
// that is known.
func (m *Machine) dateBeginning(at event.Stamp) {
	s := m.cur
	if !s.pub.Began.IsZero() {
		return
	}
	s.pub.Began, s.lastSign, m.since = at, at, at
	for i := range s.pub.Phases {
		s.pub.Phases[i].Entered = at
	}
	if !s.running() {
		s.pub.Ended, s.settleAt = at, at.Add(settleFatal)
	}
}

// nextGeneration opens a new startup inside one invocation: a banner of another
// main process, after evidence that the one before is gone. A text tells of an
// exit less often, so there a banner after the weights began to load is enough.
func (m *Machine) nextGeneration(r *profile.Record, at event.Stamp) {
	s := m.cur
	pid := r.PID
	if pid == 0 {
		pid = m.line.PID
	}
	gone := !s.running() && !s.serving() || s.stopLine || s.exited
	late := m.cfg.Text && rank(s.phase()) >= rank(Load)
	// The same pid may come again (in a container it is always 1): then it says what
	// is said once a start for the second time.
	other := s.bannerPID == 0 || pid == 0 || s.bannerPID != pid || s.seen[r.Rule.ID]
	if other && len(s.seen) > 0 && (gone || late) && !at.Before(s.over()) {
		invocation, generation := s.pub.Invocation, s.pub.Generation+1
		if invocation == "" && m.line.Invocation != "" {
			invocation, generation = m.line.Invocation, 0
		}
		m.begin(at, invocation, generation)
	}
	if m.cur.bannerPID == 0 {
		m.cur.bannerPID = pid
	}
}

// milestone takes a line that tells of the way forward.
func (m *Machine) milestone(r *profile.Record, ev Evidence) {
	s := m.cur
	if r.Rule.FramePhase != "" {
		m.frame(State(r.Rule.FramePhase), ev)
		return
	}
	if m.profile == nil && r.Rule.Role != profile.RoleFact {
		m.pin(m.scanned)
	}
	if !s.running() {
		if s.serving() && s.saysReady(r.Rule) {
			s.readyLog = true // the probe was first
		}
		if !m.revocable(r) {
			return
		}
		m.revive()
	}
	m.size(r)
	s.skip(r.Rule)
	phase, step := State(r.Rule.Phase), r.Rule.Step
	if s.awaits(r.Rule) {
		phase, step = State(r.Rule.Await.Phase), r.Rule.Await.Step
	} else if s.saysReady(r.Rule) {
		m.readyByLog(ev)
		return
	}
	if r.Rule.Role == profile.RoleProgress {
		// Whatever was said before: it is at it.
		s.unskip(phase)
	}
	m.move(phase, step, ev)
	m.progress(r, phase)
	if s.news(r) {
		if s.troubleFrom == r.Prefix {
			s.trouble = ""
		}
		s.sign(ev.At, ev.Text)
		s.triage.Milestone(r, m.place(ev.At))
	}
}

// frame takes a traceback's frame, which tells what a process died in where no
// milestone did. It comes after the failure's first line.
func (m *Machine) frame(phase State, ev Evidence) {
	s := m.cur
	switch {
	case s.running():
	case s.pub.Outcome == OutcomeFailed && s.fatal && !s.settled:
		ev.At = s.pub.Ended
	default:
		return
	}
	if s.enter(phase, ev) && s.running() {
		m.setState(phase, s.entered())
	}
}

// news says whether a milestone tells something that it has not told before: a
// process's first line of a rule, or a bar that moved, of whichever phase (a
// draft model loads late). A line that repeats itself is no progress.
func (s *startup) news(r *profile.Record) bool {
	if r.Rule.Role == profile.RoleFact {
		return false
	}
	value := 0.0
	switch {
	case r.HasProgress:
		value = r.Done
	case r.Rule.Hang != "":
		// One graph after the other is captured, say: other words are another one.
		h := fnv.New32a()
		_, _ = h.Write([]byte(r.Message))
		value = float64(h.Sum32())
	}
	k := told{rule: r.Rule.ID, process: r.Process}
	if old, ok := s.told[k]; ok && old == value {
		return false
	}
	if _, known := s.told[k]; !known && len(s.told) == maxTold {
		return false
	}
	k.process = strings.Clone(k.process)
	s.told[k] = value
	return true
}

// move advances the phase and the step.
func (m *Machine) move(phase State, step string, ev Evidence) {
	s := m.cur
	if rank(phase) >= 0 && !s.logLed {
		s.undoProvisional()
		s.logLed = true
		m.setState(s.phase(), ev.At)
	}
	if rank(phase) >= 0 && s.enter(phase, ev) {
		s.trouble = ""
		m.setState(phase, s.entered())
	}
	// A line of an earlier phase (another rank, a draft model) does not name the
	// step of a later one, but for a second load.
	if phase == "" || phase == s.phase() {
		s.setStep(step, ev.At)
	}
}

// progress takes a bar's numbers.
func (m *Machine) progress(r *profile.Record, phase State) {
	s := m.cur
	if !r.HasProgress || r.Total <= 0 || phase != "" && phase != s.phase() {
		return
	}
	ratio := min(1, max(0, r.Done/r.Total))
	s.bar = true
	s.pub.Progress = &ratio
	s.pub.ProgressNote = number(r.Done) + "/" + number(r.Total)
}

func number(f float64) string { return strconv.FormatFloat(f, 'f', -1, 64) }

// revocable says whether a line takes back a failure that rested on a line
// alone: the start reached something that it had not reached before.
func (m *Machine) revocable(r *profile.Record) bool {
	s := m.cur
	if s.pub.Outcome != OutcomeFailed || !s.fatal || s.exited || s.settled {
		return false
	}
	return r.Rule.Role == profile.RoleReady || rank(State(r.Rule.Phase)) > rank(s.phase())
}

// trouble takes a line that tells of a failure.
func (m *Machine) trouble(r *profile.Record, ev Evidence) {
	s := m.cur
	if r.Rule.RevokesReady && s.pub.Outcome == OutcomeServing && !s.readyOK && !s.settled {
		m.fail("after it was ready: "+clip(ev.Text), ev.At, 0)
		return
	}
	if !s.running() {
		return
	}
	if r.Rule.Waits {
		return
	}
	s.complain(ev.Text)
	s.troubleFrom = strings.Clone(r.Prefix)
	// What a stop sets off is no failure.
	if r.Rule.Fatal && !s.stopAsked {
		s.fatal = true
		m.fail(clip(ev.Text), ev.At, settleFatal)
	}
}

// suspect notes a line that no rule knows and that looks like an error.
func (m *Machine) suspect(r *profile.Record, at event.Stamp) {
	s := m.cur
	if !s.running() {
		return
	}
	if r.Level >= profile.LevelError || strings.HasPrefix(r.Message, "Traceback (most recent call last)") {
		s.complain(r.Message)
		s.troubleFrom = strings.Clone(r.Prefix)
	}
}

// awaits says that a line means less than it says until others have come.
func (s *startup) awaits(r *profile.Rule) bool {
	return r.Await != nil && !s.any(r.Await.Rules) && s.any(r.Await.Seen)
}

// saysReady says that a line is the engine's word that it serves.
func (s *startup) saysReady(r *profile.Rule) bool {
	return !s.awaits(r) && (r.Role == profile.RoleReady || s.any(r.ReadyIf))
}

// readyByLog takes the engine's own word that it serves.
func (m *Machine) readyByLog(ev Evidence) {
	s := m.cur
	s.readyLog = true
	m.serve(ev, settleReady)
}

// keepLastLine remembers what each process said last.
func (m *Machine) keepLastLine(r *profile.Record) {
	s := m.cur
	ends := s.pub.Outcome == OutcomeFailed && !s.final
	if !s.running() && !ends || r.Message == "" {
		return
	}
	name := r.Process
	if name == "" {
		name = m.line.Proc
	}
	if _, known := s.pub.LastLine[triage.Clip(name, maxName)]; known || len(s.pub.LastLine) < maxProcesses {
		s.pub.LastLine[triage.Clip(name, maxName)] = clip(r.Message)
		if ends {
			s.triage.Touch()
		}
	}
}

// any says whether one of the rules has matched in this startup.
func (s *startup) any(rules []string) bool {
	for _, id := range rules {
		if s.seen[id] {
			return true
		}
	}
	return false
}
