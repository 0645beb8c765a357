package phases

import (
	"cmp"
	"maps"
	"slices"
	"strconv"
	"time"

	"github.com/startupd/startupd/pkg/event"
	"github.com/startupd/startupd/pkg/profile"
	"github.com/startupd/startupd/pkg/triage"
)

// startup is a Startup while the machine works on it.
type startup struct {
	pub Startup

	// unitInvocation is systemd's ID where pub.Invocation is a container's.
	unitInvocation string
	// seen holds the rules that have matched.
	seen map[string]bool
	// told holds the last number of each milestone of each process.
	told map[told]float64
	// logLed is true once a line of the profile moved or confirmed a phase:
	// from then on memory alone moves nothing.
	logLed bool
	// stopAsked: systemd was told to stop the unit. stopLine: the engine says
	// that it stops. exited: the main process is gone.
	stopAsked, stopLine, exited bool
	// activating: systemd has said that it starts the unit, and not yet that it has
	// started.
	activating bool
	// givenUp says that systemd ends it as a command of its ExecStartPost= has
	// failed or was ended; "" when not, else that in words. hung: it hung then.
	givenUp string
	// awaited says that its main process has ended, and the unit has not yet.
	awaited bool
	hung    bool
	// precheck is what our own check before the start found; nil when it found
	// nothing, or there was none.
	precheck *event.UnitMessage
	// fatal is true while the failure rests on a line alone, so that progress
	// can still revoke it.
	fatal bool
	// trouble is the last error's text that nothing has cleared; "" for none.
	// troubleFrom are the prefixes of the lines of the process that told it.
	trouble, troubleFrom string
	// bannerPID is the process that printed the banner; 0 when not told.
	bannerPID int
	// closedSeen: the probe found the port not ready since this start began, so
	// that a later 200 is this start's.
	closedSeen bool
	readyLog   bool
	readyOK    bool

	lastSign event.Stamp
	signNote string
	busy     bool

	memory memoryWatch
	// weights is the size of the weights on one GPU, in bytes, as the engine
	// told it; nil when it has not.
	weights *uint64
	bar     bool

	// triage weighs its errors.
	triage triage.Tracker
	// exit is what systemd told of the main process; "" when nothing. killed says
	// that a signal ended it.
	exit   string
	killed bool
	// dumping: a core dump of it is written, which takes its time.
	dumping bool
	// pids are the processes that wrote its log; kept once it is over.
	pids map[int]bool
	// finalAt is when its root cause becomes final; zero while that is open.
	finalAt event.Stamp
	// closed says that finalAt is counted from its end.
	closed, final bool
	// tallied are the errors that the counters hold; nil when none were counted.
	tallied map[ErrorKey]int

	// settleAt is when a finished startup's outcome becomes final; settled says
	// that it has.
	settleAt event.Stamp
	settled  bool
	// endSettled says that the end of its service was counted.
	endSettled bool
}

type told struct{ rule, process string }

func newStartup(at event.Stamp, invocation string, generation int) *startup {
	return &startup{
		pub: Startup{
			Invocation: invocation, Generation: generation, Began: at,
			Phases:   []Phase{{Phase: Spawn, Entered: at}},
			LastLine: map[string]string{},
		},
		seen: map[string]bool{}, told: map[told]float64{}, lastSign: at, signNote: "the start itself",
	}
}

// key identifies the startup across runs of the daemon, by an ID of its
// invocation; where there is none, by its beginning.
func (s *startup) key(invocation string) string {
	if invocation == "" {
		invocation = strconv.FormatInt(s.pub.Began.Real.UnixMicro(), 10)
	}
	return invocation + "/" + strconv.Itoa(s.pub.Generation)
}

func (s *startup) running() bool { return s.pub.Outcome == OutcomeNone }

func (s *startup) serving() bool {
	return s.pub.Outcome == OutcomeServing && s.pub.ServingEndReason == ""
}

// alive says that the engine starts or serves.
func (s *startup) alive() bool { return s.running() || s.serving() }

// over is when the engine was gone; zero while it is alive.
func (s *startup) over() event.Stamp {
	switch {
	case s.alive():
		return event.Stamp{}
	case s.pub.Outcome == OutcomeServing:
		return s.pub.ServingEnded
	}
	return s.pub.Ended
}

// entered is when the last phase was entered.
func (s *startup) entered() event.Stamp { return s.pub.Phases[len(s.pub.Phases)-1].Entered }

// phase is the last phase entered.
func (s *startup) phase() State {
	for i := len(s.pub.Phases) - 1; i >= 0; i-- {
		if !s.pub.Phases[i].Skipped {
			return s.pub.Phases[i].Phase
		}
	}
	return Spawn
}

func rank(s State) int { return slices.Index(Phases(), s) }

// enter moves the high-water mark to phase, if that is further. It never lies
// before the phase entered last, so that durations stay a partition.
func (s *startup) enter(phase State, ev Evidence) bool {
	if rank(phase) <= rank(s.phase()) || slices.Contains(s.pub.Skipped, phase) {
		return false
	}
	at := ev.At
	if at.Before(s.entered()) {
		at = s.entered()
	}
	s.skipUpTo(phase, at)
	s.pub.Phases = append(s.pub.Phases, Phase{Phase: phase, Entered: at, Evidence: ev})
	s.pub.Progress, s.pub.ProgressNote, s.bar = nil, "", false
	return true
}

// skipUpTo lists the phases before the given one that the startup does not
// have, with no duration.
func (s *startup) skipUpTo(phase State, at event.Stamp) {
	for _, p := range Phases() {
		if rank(p) > rank(s.phase()) && rank(p) < rank(phase) && slices.Contains(s.pub.Skipped, p) {
			s.pub.Phases = append(s.pub.Phases, Phase{Phase: p, Entered: at, Done: true, Skipped: true})
		}
	}
}

// revokeServing makes the phase before serving last until the engine failed: it
// reached serving for no time.
func (s *startup) revokeServing(at event.Stamp) {
	for i := len(s.pub.Phases) - 1; i > 0; i-- {
		p := &s.pub.Phases[i]
		if !p.Skipped && p.Phase != Serving {
			return
		}
		if at.After(p.Entered) {
			p.Entered = at
		}
	}
}

// undoProvisional drops the phases that memory alone had opened.
func (s *startup) undoProvisional() {
	for i, p := range s.pub.Phases {
		if p.Evidence.Provisional {
			s.pub.Phases = s.pub.Phases[:i]
			return
		}
	}
}

// skip notes the phases that a line says this startup won't have. A line of an
// earlier phase that comes late (a draft model's configuration) says it of
// something else.
func (s *startup) skip(r *profile.Rule) {
	if rank(State(r.Phase)) < rank(s.phase()) {
		return
	}
	for _, p := range r.Skips {
		if st := State(p); rank(st) > rank(s.phase()) && !slices.Contains(s.pub.Skipped, st) {
			s.pub.Skipped = append(s.pub.Skipped, st)
		}
	}
}

func (s *startup) unskip(phase State) {
	s.pub.Skipped = slices.DeleteFunc(s.pub.Skipped, func(p State) bool { return p == phase })
}

func (s *startup) setStep(step string, at event.Stamp) {
	if step == "" || step == s.pub.Step {
		return
	}
	s.pub.Step, s.pub.StepBegan = step, at
	if len(s.pub.Steps) < maxSteps {
		s.pub.Steps = append(s.pub.Steps, Step{Phase: s.phase(), Step: step, Entered: at})
	}
}

// complain notes what looks like an error.
func (s *startup) complain(text string) { s.trouble = cmp.Or(clip(text), "an error without a text") }

// sign restarts the stall clock.
func (s *startup) sign(at event.Stamp, note string) {
	if at.Before(s.lastSign) {
		return
	}
	s.lastSign, s.signNote = at, note
	s.busy = false
	s.pub.Stalled, s.pub.StalledReason, s.pub.Slow = false, "", false
}

// end is when the phase at index i was left, or now.
func (s *startup) end(i int, now event.Stamp) event.Stamp {
	switch {
	case i+1 < len(s.pub.Phases):
		return s.pub.Phases[i+1].Entered
	case s.pub.Phases[i].Phase == Serving && !s.pub.ServingEnded.IsZero():
		return s.pub.ServingEnded
	case (s.pub.Phases[i].Phase != Serving || s.pub.Outcome != OutcomeServing) && !s.pub.Ended.IsZero():
		return s.pub.Ended
	}
	return now
}

// publish copies a startup as it is at now.
func (m *Machine) publish(s *startup, now event.Stamp) *Startup {
	pub := s.pub
	pub.Phases = slices.Clone(s.pub.Phases)
	for i := range pub.Phases {
		p := &pub.Phases[i]
		p.Done = i+1 < len(pub.Phases) || !s.alive() || s.serving() && p.Phase != Serving
		p.Seconds = max(0, s.end(i, now).Sub(p.Entered).Seconds())
	}
	pub.PlateauGPUs = slices.Clone(s.memory.plateau)
	pub.Skipped = slices.Clone(s.pub.Skipped)
	pub.LastLine = maps.Clone(s.pub.LastLine)
	pub.Gaps = slices.Clone(s.pub.Gaps)
	pub.Steps = slices.Clone(s.pub.Steps)
	for i := range pub.Steps {
		end := now
		if i+1 < len(pub.Steps) {
			end = pub.Steps[i+1].Entered
		} else if !pub.Ended.IsZero() {
			end = pub.Ended
		}
		pub.Steps[i].Seconds = max(0, end.Sub(pub.Steps[i].Entered).Seconds())
	}
	pub.Arguments, pub.Versions = maps.Clone(s.pub.Arguments), maps.Clone(s.pub.Versions)
	pub.WeightBytes, pub.Final = s.weights, s.final
	pub.UnitInvocation, pub.Exited = s.unitInvocation, s.exited
	pub.GPUPlateauBytes = s.memory.resident()
	j := m.judgement(s)
	pub.RootCause, pub.Findings, pub.Errors, pub.NewErrors = j.Root, j.Findings, j.Errors, j.New
	return &pub
}

// completed yields the phases that count in the histogram: those that were
// left for a later one.
func (s *startup) completed(yield func(State, float64)) {
	for i, p := range s.pub.Phases {
		if p.Phase != Serving && !p.Skipped && i+1 < len(s.pub.Phases) {
			yield(p.Phase, max(0, s.end(i, event.Stamp{}).Sub(p.Entered).Seconds()))
		}
	}
}

const (
	// maxSteps bounds the steps that a startup lists.
	maxSteps = 64
	// maxTold bounds the milestones of processes that are told apart, and maxName a
	// process's name, in bytes.
	maxTold = 4096
	maxName = 64
	// maxVersions bounds the packages whose versions are kept.
	maxVersions = 32
	// maxGaps bounds the gaps that a startup lists; more are only counted.
	maxGaps = 100
	// maxProcesses bounds the processes whose last line is kept.
	maxProcesses = 64
	// maxText bounds the text that is kept of a line, in bytes.
	maxText = 512
	// settleReady is how long a ready line may still be revoked by an error of
	// the same instant (a bind error comes after it).
	settleReady = 2 * time.Second
	// settleStop is how long after the end of a unit that was being started systemd
	// may take to say that it was stopped.
	settleStop = time.Second
	// settleUnit is how long after the end of its main process the end of the unit
	// is waited for. More than TimeoutStopSec= it can hardly take.
	settleUnit = 5 * time.Minute
	// settleFatal is how long progress may still revoke a failure that rests on
	// a line alone.
	settleFatal = 10 * time.Second
)

// clip bounds a text that is kept, and masks its secrets.
func clip(text string) string { return triage.Clip(text, maxText) }
