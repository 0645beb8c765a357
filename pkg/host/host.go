// Package host samples the vital signs of a unit's processes: CPU time, I/O,
// how many there are and which of them are compilers.
//
// It reads the unit's cgroup, or /proc where there is none. What can't be read
// is nil, never 0. The package must not judge what the signs mean.
package host

import (
	"context"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/startupd/startupd/pkg/event"
)

// The states of the host source for a target, as in event.SourceState.State.
// The source is up in all of them where it sees anything at all.
const (
	StateUp = "up"
	// StateIdle: the target has no process now.
	StateIdle = "idle"
	// StateNoIO: I/O is not accounted for the unit.
	StateNoIO = "no_io_accounting"
	// StateNoCgroup: the control group can't be read; the descendants of the
	// main process are counted instead.
	StateNoCgroup = "no_cgroup"
	// StateNotPermitted: /proc hides the unit's processes.
	StateNotPermitted = "not_permitted"
)

// Target is a unit whose processes are watched.
type Target struct {
	// Name is the target's name in events.
	Name string
	// ControlGroup is the unit's path below the cgroup root
	// ("/system.slice/llm.service"); "" when not known.
	ControlGroup string
	// MainPID is used where the cgroup can't be read; 0 when there is none.
	MainPID int
}

// Options set up a Source.
type Options struct {
	// Clock stamps the events; it must be set.
	Clock event.Clock
	// Interval lies between samples until SetInterval says otherwise; 0 is 10 s.
	Interval time.Duration
	// CgroupRoot is where the cgroup file systems are; "" is /sys/fs/cgroup.
	CgroupRoot string
	// ProcRoot is where procfs is; "" is /proc.
	ProcRoot string
}

// Emit hands events on. An error ends the source.
type Emit = func(context.Context, []event.Event) error

// Source is the host source. Its events carry their target's name.
type Source struct {
	clock event.Clock
	files files
	// wake is told of new targets and of a new interval.
	wake chan struct{}

	mu       sync.Mutex
	interval time.Duration
	targets  []Target
}

// New returns a Source without targets; nothing runs before Run.
func New(o Options) *Source {
	if o.Interval <= 0 {
		o.Interval = 10 * time.Second
	}
	if o.CgroupRoot == "" {
		o.CgroupRoot = "/sys/fs/cgroup"
	}
	if o.ProcRoot == "" {
		o.ProcRoot = "/proc"
	}
	return &Source{
		clock:    o.Clock,
		files:    files{cgroup: o.CgroupRoot, proc: o.ProcRoot},
		wake:     make(chan struct{}, 1),
		interval: o.Interval,
	}
}

// SetTargets replaces the targets; a change is followed by a sample at once.
// It may be called from every goroutine, at any time.
func (s *Source) SetTargets(targets []Target) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !slices.Equal(targets, s.targets) {
		s.targets = slices.Clone(targets)
		s.rouse()
	}
}

// SetInterval changes the time between samples; a change is followed by a
// sample at once. It may be called from every goroutine, at any time.
func (s *Source) SetInterval(d time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if d > 0 && d != s.interval {
		s.interval = d
		s.rouse()
	}
}

func (s *Source) rouse() {
	select {
	case s.wake <- struct{}{}:
	default:
	}
}

// settings returns what is set now; nothing is left to wake up for.
func (s *Source) settings() ([]Target, time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	select {
	case <-s.wake:
	default:
	}
	return s.targets, s.interval
}

// memory is what is kept of a target between two samples.
type memory struct {
	target Target
	// compilers are those of the last sample; nil before the first.
	compilers map[process]bool
	told      event.SourceState
}

// Run samples until the context is done or emit fails, and returns that error.
// It may be called once.
func (s *Source) Run(ctx context.Context, emit Emit) error {
	known := map[string]*memory{}
	for {
		targets, interval := s.settings()
		due := time.NewTimer(interval)
		if err := s.sample(ctx, targets, known, emit); err != nil {
			due.Stop()
			return err
		}
		select {
		case <-due.C:
		case <-s.wake:
			due.Stop()
		case <-ctx.Done():
			due.Stop()
			return ctx.Err()
		}
	}
}

// sample looks at every target once and emits what it saw as one batch.
func (s *Source) sample(ctx context.Context, targets []Target, known map[string]*memory, emit Emit) error {
	maps.DeleteFunc(known, func(name string, _ *memory) bool {
		return !slices.ContainsFunc(targets, func(t Target) bool { return t.Name == name })
	})
	var events []event.Event
	for _, t := range targets {
		m := known[t.Name]
		if m == nil {
			m = &memory{}
			known[t.Name] = m
		}
		if m.target != t {
			// Another process tree: its compilers are no news.
			m.target, m.compilers = t, nil
		}
		events = append(events, s.look(m)...)
	}
	if len(events) == 0 {
		return nil
	}
	return emit(ctx, events)
}

// look samples one target: its state where it changed, and its vital signs
// where it has processes.
func (s *Source) look(m *memory) []event.Event {
	v := s.files.vitals(m.target)
	at := s.clock()
	var events []event.Event
	if st := v.state(m.target); st != m.told {
		m.told = st
		events = append(events, event.Event{At: at, Target: m.target.Name, Data: &st})
	}
	if !v.alive {
		m.compilers = nil
		return events
	}
	sample := v.sample(m.compilers)
	m.compilers = v.compilers
	return append(events, event.Event{At: at, Target: m.target.Name, Data: sample})
}
