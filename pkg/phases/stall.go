package phases

import (
	"fmt"
	"time"

	"github.com/startupd/startupd/pkg/event"
)

const (
	// stretch is how far use of CPU or GPU may stretch a quiet budget.
	stretch = 3
	// maxLag is how far the journal's reader may be behind for a verdict.
	maxLag = 2 * time.Second
	// busyCores is the CPU use, in cores, from which a unit counts as busy.
	busyCores = 0.5
	// busyGPU is the GPU use from which a unit counts as busy.
	busyGPU = 0.05
)

// budget is how long the present step may be quiet, at first and at most; zero
// when there is no budget.
func (m *Machine) budget() (quiet, limit time.Duration) {
	if m.profile == nil {
		return 0, 0
	}
	s := m.cur
	info := m.profile.Step(string(s.phase()), s.pub.Step)
	limit = info.Quiet
	if s.busy && !info.NoStretch {
		limit *= stretch
	}
	return info.Quiet, limit
}

// judge says whether a running start is slow or stalled at the time up to which
// the journal is known.
func (m *Machine) judge(now event.Stamp) {
	s := m.cur
	quiet, limit := m.budget()
	if quiet == 0 || m.blind() {
		s.pub.Stalled, s.pub.StalledReason, s.pub.Slow = false, "", false
		return
	}
	silent := now.Sub(s.lastSign)
	s.pub.Stalled = silent >= limit
	s.pub.Slow = silent >= quiet && !s.pub.Stalled
	s.pub.StalledReason = ""
	if s.pub.Stalled {
		step := string(s.phase())
		if s.pub.Step != "" {
			step += "/" + s.pub.Step
		}
		s.pub.StalledReason = fmt.Sprintf("%s: no sign of progress for longer than its budget of %s; the last one was: %s", step, limit, s.signNote)
	}
}

// blind says that silence proves nothing, as the journal can't be read now.
func (m *Machine) blind() bool {
	j := m.journal
	return j.known && (!j.up || j.watermark.IsZero() || m.now.Sub(j.watermark) > maxLag)
}

// stallDeadline is when silence becomes slow or stalled; zero when never.
func (m *Machine) stallDeadline() event.Stamp {
	s := m.cur
	quiet, limit := m.budget()
	if quiet == 0 || s.pub.Stalled || m.blind() {
		return event.Stamp{}
	}
	if !s.pub.Slow && limit > quiet {
		return s.lastSign.Add(quiet)
	}
	return s.lastSign.Add(limit)
}

// onVitals takes the vital signs of the unit's processes. I/O and new compilers
// are progress; CPU time only stretches a budget.
func (m *Machine) onVitals(d *event.HostSample, at event.Stamp) {
	cpu, cpuAt, io := m.cpu, m.cpuAt, m.io
	m.cpu, m.cpuAt = d.CPUSeconds, at
	m.io = total(d.ReadBytes, d.WriteBytes)
	s := m.cur
	if s == nil || !s.running() {
		return
	}
	if cpu != nil && d.CPUSeconds != nil {
		if took := at.Sub(cpuAt).Seconds(); took > 0 && (*d.CPUSeconds-*cpu)/took >= busyCores {
			s.busy = true
		}
	}
	if io != nil && m.io != nil && *m.io > *io+minIO {
		s.sign(at, "I/O of the unit")
	}
	if d.CompilersBegun != nil && *d.CompilersBegun > 0 {
		s.sign(at, "a compiler began")
	}
}

// minIO is the I/O between two samples that counts as progress: more than a
// process's own logging makes.
const minIO = 1 << 20

func total(a, b *uint64) *uint64 {
	if a == nil && b == nil {
		return nil
	}
	var sum uint64
	if a != nil {
		sum += *a
	}
	if b != nil {
		sum += *b
	}
	return &sum
}
