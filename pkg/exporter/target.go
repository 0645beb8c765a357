package exporter

import (
	"maps"
	"slices"
	"strconv"

	"github.com/startupd/startupd/pkg/event"
	"github.com/startupd/startupd/pkg/phases"
)

// target emits everything about one unit.
func (s *scrape) target(t *phases.Target) {
	state := t.State
	if !slices.Contains(phases.States(), state) {
		state = phases.Unknown
	}
	for _, p := range phases.States() {
		s.send(s.phase, flag(p == state), t.Name, string(p))
	}
	if t.LastOutcome != phases.OutcomeNone {
		for _, o := range phases.Outcomes() {
			s.send(s.lastOutcome, flag(o == t.LastOutcome), t.Name, string(o))
		}
	}
	if t.Startup != nil {
		s.startup(t.Name, t.Startup)
	}
	s.verdicts(t, state)
	s.rootCause(t.Name, t.Failure)
	if t.Restarts != nil {
		s.send(s.restarts, float64(*t.Restarts), t.Name)
	}
	s.readiness(t.Name, t.Ready)
	s.unitGPUs(t, state)
	s.counters(t.Name, &t.Counters)
	if t.JournalLag != nil {
		s.send(s.lag, t.JournalLag.Seconds(), t.Name)
	}
}

// startup emits what is known of the present or last startup.
func (s *scrape) startup(unit string, st *phases.Startup) {
	s.phaseTimes(unit, st)
	s.sendTime(s.startupBegin, st.Began, unit)
	if !st.Began.IsZero() {
		end := st.Ended
		if end.IsZero() {
			end = s.now
		}
		s.send(s.startupDuration, end.Sub(st.Began).Seconds(), unit)
	}
	s.startupErrors(unit, st.Errors)
	if n := st.NewErrors; n != nil {
		s.send(s.newErrors, float64(*n), unit)
	}
	if e := st.Engine; e.Name != "" || e.Version != "" || e.Model != "" {
		s.send(s.engineInfo, 1, unit, e.Name, e.Version, e.Model)
	}
}

// phaseTimes emits durations and entries of the five phases. A phase that was
// not entered lasted 0 s, unless nobody saw the time in which it would have
// been.
func (s *scrape) phaseTimes(unit string, st *phases.Startup) {
	unseen := st.AttachedLate
	for _, name := range phases.Phases() {
		i := slices.IndexFunc(st.Phases, func(p phases.Phase) bool { return p.Phase == name })
		if i < 0 {
			if !unseen {
				s.send(s.phaseDuration, 0, unit, string(name))
			}
			continue
		}
		unseen = false
		p := st.Phases[i]
		s.send(s.phaseDuration, s.phaseSecondsOf(p, st), unit, string(name))
		if !p.Skipped {
			s.sendTime(s.phaseEntered, p.Entered, unit, string(name))
		}
	}
}

// phaseSecondsOf is the phase's duration, up to now if it runs.
func (s *scrape) phaseSecondsOf(p phases.Phase, st *phases.Startup) float64 {
	end := st.Ended
	if p.Phase == phases.Serving {
		end = st.ServingEnded
	}
	if p.Done || !end.IsZero() || p.Entered.IsZero() {
		return p.Seconds
	}
	return s.now.Sub(p.Entered).Seconds()
}

// verdicts emits judgements of the running startup. A unit that is not
// starting is neither slow nor stalled; of an unknown one nothing can be said.
func (s *scrape) verdicts(t *phases.Target, state phases.State) {
	if state == phases.Unknown {
		return
	}
	starting := state.Starting() && t.Startup != nil
	s.send(s.stalled, flag(starting && t.Startup.Stalled), t.Name)
	s.send(s.restartLoop, flag(t.RestartLoop), t.Name)
	s.send(s.slow, flag(starting && t.Startup.Slow), t.Name)
	if !starting {
		return
	}
	if p := t.Startup.Progress; p != nil {
		s.send(s.progress, *p, t.Name, string(state))
	}
	s.sendTime(s.expectedServing, t.Startup.ExpectedServing, t.Name)
}

func (s *scrape) readiness(unit string, r phases.Ready) {
	for _, v := range []struct {
		source string
		ready  *bool
	}{{"log", r.Log}, {"port", r.Port}, {"health", r.Health}} {
		if v.ready != nil {
			s.send(s.ready, flag(*v.ready), unit, v.source)
		}
	}
}

// unitGPUs emits the unit's memory and its plateaus. Weights are resident only
// while the engine starts or serves, whatever an ended startup had reached.
func (s *scrape) unitGPUs(t *phases.Target, state phases.State) {
	plateau := make(map[int]bool, len(t.GPUMemory))
	for gpu, bytes := range t.GPUMemory {
		s.send(s.unitGPU, float64(bytes), t.Name, strconv.Itoa(gpu))
		plateau[gpu] = false
	}
	if state == phases.Unknown {
		return
	}
	if t.Startup != nil && (state.Starting() || state == phases.Serving) {
		for _, gpu := range t.Startup.PlateauGPUs {
			if _, known := plateau[gpu]; known { // it may be gone
				plateau[gpu] = true
			}
		}
	}
	for gpu, reached := range plateau {
		s.send(s.gpuPlateau, flag(reached), t.Name, strconv.Itoa(gpu))
	}
}

// counters emits totals. Every value of a closed label set is there from the
// beginning: a counter that appears with 1 can't be alerted on.
func (s *scrape) counters(unit string, c *phases.Counters) {
	s.created = c.Since
	for _, o := range withAll(phases.Outcomes(), c.Startups) {
		s.ch <- withExemplars(s.total(s.startups, float64(c.Startups[o]), unit, string(o)), c.Ended[o])
	}
	for _, r := range withAll([]string{"stopped", "exited", "killed"}, c.ServingEnded) {
		s.sendTotal(s.servingEnded, float64(c.ServingEnded[r]), unit, r)
	}
	// Serving is no part of a startup's duration; its row comes with its first
	// observation.
	starting := []phases.State{phases.Spawn, phases.Load, phases.Compile, phases.CUDAGraph}
	for _, p := range withAll(starting, c.PhaseSeconds) {
		s.sendHistogram(c.PhaseSeconds[p], unit, string(p))
	}
	s.errorTotals(unit, c.Errors)
	s.sendTotal(s.lines, float64(c.Lines), unit)
	s.sendTotal(s.stale, float64(c.Stale), unit)
	s.sendTotal(s.unmatched, float64(c.Unmatched), unit)
	for _, k := range withAll(gapKinds(), c.Gaps) {
		s.sendTotal(s.gaps, float64(c.Gaps[k]), unit, string(k))
	}
}

func gapKinds() []event.GapKind {
	return []event.GapKind{
		event.GapSuppressed, event.GapLost, event.GapLineMax, event.GapPIDChange,
		event.GapVacuumed, event.GapTruncated, event.GapOversize, event.GapCorrupt,
	}
}

// withAll returns the known keys and those of m besides.
func withAll[K comparable, V any](known []K, m map[K]V) []K {
	keys := slices.Clone(known)
	for k := range maps.Keys(m) {
		if !slices.Contains(known, k) {
			keys = append(keys, k)
		}
	}
	return keys
}
