package phases

import (
	"math/rand/v2"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/startupd/startupd/pkg/event"
)

func ptr[T any](v T) *T { return &v }

func TestMemoryAloneMovesProvisionally(t *testing.T) {
	weights := uint64(70 << 30)
	s := newScript(t, func(c *Config) { c.ExpectedWeightBytes = &weights })
	s.message(0, event.UnitMessage{Message: event.Started})
	s.memory(1, 8, 0.5)
	s.wantState(Spawn)
	s.memory(30, 8, 20)
	s.wantState(Load)
	if p := s.startup().Progress; p == nil || *p < 0.27 || *p > 0.3 {
		t.Errorf("progress %v, want 20 of 70 GiB", p)
	}
	s.memory(60, 8, 73.7)
	s.memory(75, 8, 73.7)
	s.wantState(Compile)
	if ev := s.startup().Phases[1].Evidence; !ev.Provisional || ev.Source != event.SourceGPU {
		t.Errorf("evidence %+v", ev)
	}
	// The log tells better.
	s.line(80, lineLoad)
	s.wantState(Load)
	if got := s.startup().Phases[1].Entered; got != at(80) {
		t.Errorf("load entered %v, want the line's time", got)
	}
	s.memory(85, 8, 73.8)
	s.memory(99, 8, 73.8)
	s.wantState(Load)
}

func TestPlateau(t *testing.T) {
	for _, c := range []struct {
		name     string
		expected *uint64
		levels   [][2]float64 // second, GiB
		odd      float64      // GiB that GPU 7 holds in the last samples; 0: as the others
		want     int
	}{
		{"level", nil, [][2]float64{{0, 0.5}, {10, 40}, {20, 73.7}, {25, 73.7}, {31, 73.7}}, 0, 8},
		{"not for long enough", nil, [][2]float64{{0, 0.5}, {20, 73.7}, {29, 73.7}}, 0, 0},
		{"still rising", nil, [][2]float64{{0, 0.5}, {10, 20}, {20, 40}, {30, 60}}, 0, 0},
		{"flat contexts are none", nil, [][2]float64{{0, 0.5}, {10, 1.2}, {30, 1.2}}, 0, 0},
		{"far from the weights", ptr(uint64(140 << 30)), [][2]float64{{0, 0.5}, {20, 73.7}, {31, 73.7}}, 0, 0},
		{"one rank is behind", nil, [][2]float64{{0, 0.5}, {20, 73.7}, {31, 73.7}}, 40, 0},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := newScript(t, func(cfg *Config) { cfg.ExpectedWeightBytes = c.expected })
			s.line(0, lineLoad)
			for _, l := range c.levels {
				used := uint64(l[1] * (1 << 30))
				sample := &event.GPUSample{}
				for i := range 8 {
					mine := used
					if i == 7 && c.odd > 0 && l[0] > 0 {
						mine = uint64(c.odd * (1 << 30))
					}
					sample.GPUs = append(sample.GPUs, event.GPU{Index: i, Processes: []event.GPUProcess{{PID: 900 + i, UsedBytes: &mine, Unit: unit}}})
				}
				s.hostWide(l[0], sample)
			}
			if got := len(s.startup().PlateauGPUs); got != c.want {
				t.Errorf("plateau on %d GPUs, want %d", got, c.want)
			}
		})
	}
}

func TestWeightsLoadedIsAPlateau(t *testing.T) {
	s := newScript(t)
	s.line(0, lineLoad)
	s.memory(1, 8, 1)
	s.memory(5, 8, 73.7)
	s.line(6, lineLoaded)
	s.line(7, lineDynamo)
	s.memory(8, 8, 74)
	if got := len(s.startup().PlateauGPUs); got != 8 {
		t.Errorf("plateau on %d GPUs, want 8", got)
	}
}

func TestStalled(t *testing.T) {
	const heartbeat = "(EngineCore_DP0 pid=200) INFO 03-01 23:33:11 [shm_broadcast.py:466] No available shared memory broadcast block found in 60 seconds. This typically happens when some processes are hanging or doing some time-consuming work (e.g. compilation)."
	busy := func(s *script, from, to float64) {
		for sec := from; sec <= to; sec += 10 {
			s.apply(sec, &event.HostSample{CPUSeconds: ptr(sec * 8)})
		}
	}
	for _, c := range []struct {
		name                      string
		before                    []string
		during                    func(s *script, limit float64)
		wantStalled, wantSlow     bool
		wantStalledAfterThreefold bool
	}{
		{name: "silence", before: []string{lineLoad, lineBar25}, wantStalled: true, wantStalledAfterThreefold: true},
		{name: "heartbeats prove nothing", before: []string{lineLoad, lineLoaded, lineKV, lineCapture},
			during:      func(s *script, limit float64) { s.line(limit-1, heartbeat) },
			wantStalled: true, wantStalledAfterThreefold: true},
		{name: "a bar that repeats itself is none", before: []string{lineLoad, lineBar25},
			during:      func(s *script, limit float64) { s.line(limit-1, lineBar25) },
			wantStalled: true, wantStalledAfterThreefold: true},
		{name: "progress", before: []string{lineLoad, lineBar25},
			during:                    func(s *script, limit float64) { s.line(limit-1, lineBar50) },
			wantStalledAfterThreefold: true},
		{name: "I/O", before: []string{lineLoad, lineBar25},
			during: func(s *script, limit float64) {
				s.apply(limit-2, &event.HostSample{ReadBytes: ptr(uint64(1 << 30))})
				s.apply(limit-1, &event.HostSample{ReadBytes: ptr(uint64(2 << 30))})
			}, wantStalledAfterThreefold: true},
		{name: "a new compiler", before: []string{lineLoad, lineLoaded, lineDynamo},
			during:                    func(s *script, limit float64) { s.apply(limit-1, &event.HostSample{CompilersBegun: ptr(1)}) },
			wantStalledAfterThreefold: true},
		{name: "CPU time stretches", before: []string{lineLoad, lineBar25},
			during:   func(s *script, limit float64) { busy(s, 40, limit-5) },
			wantSlow: true, wantStalledAfterThreefold: true},
		{name: "CPU time does not stretch capture", before: []string{lineLoad, lineLoaded, lineKV, lineCapture},
			during:      func(s *script, limit float64) { busy(s, 40, limit-5) },
			wantStalled: true, wantStalledAfterThreefold: true},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := newScript(t)
			s.line(0, lineVersion)
			for i, l := range c.before {
				s.line(float64(30+i), l)
			}
			last := 30 + float64(len(c.before)-1)
			m := s.host.machines[unit]
			quiet, _ := m.budget()
			limit := last + quiet.Seconds()
			s.tick(limit - 10)
			if st := s.startup(); st.Stalled || st.Slow {
				t.Fatalf("stalled %v, slow %v within the budget", st.Stalled, st.Slow)
			}
			if c.during != nil {
				c.during(s, limit)
			}
			s.tick(limit + 1)
			if st := s.startup(); st.Stalled != c.wantStalled || st.Slow != c.wantSlow {
				t.Errorf("stalled %v, slow %v, want %v, %v (%s)", st.Stalled, st.Slow, c.wantStalled, c.wantSlow, st.StalledReason)
			}
			s.tick(limit + 3*quiet.Seconds())
			if st := s.startup(); st.Stalled != c.wantStalledAfterThreefold {
				t.Errorf("after three budgets stalled is %v, want %v", st.Stalled, c.wantStalledAfterThreefold)
			}
			s.line(limit+3*quiet.Seconds()+1, lineEngine)
			if st := s.startup(); st.Stalled {
				t.Error("a milestone leaves it stalled")
			}
		})
	}
}

func TestNoStallWhileBlind(t *testing.T) {
	s := newScript(t)
	s.hostWide(0, &event.SourceState{Source: event.SourceJournal, Up: true, State: "up"})
	s.line(0, lineLoad)
	s.hostWide(1, &event.Watermark{})
	s.tick(7200) // the reader has said nothing since second 1
	if s.startup().Stalled {
		t.Error("stalled although the journal lags")
	}
	s.hostWide(7200, &event.Watermark{})
	if !s.startup().Stalled {
		t.Error("not stalled although the journal was read")
	}
	s.hostWide(7201, &event.SourceState{Source: event.SourceJournal, Up: false, State: "reader_failed"})
	s.tick(7202)
	if s.startup().Stalled {
		t.Error("stalled although the journal is down")
	}
}

func TestDeadlineIsTheStall(t *testing.T) {
	s := newScript(t)
	s.line(0, lineLoad)
	s.line(10, lineBar25)
	d := s.host.Deadline()
	if !d.After(at(10)) {
		t.Fatalf("deadline %v", d)
	}
	s.host.Apply(event.Event{At: d, Data: &event.Tick{}})
	if !s.startup().Stalled {
		t.Error("the deadline's tick does not bring the verdict")
	}
}

func TestAttribution(t *testing.T) {
	const id = "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef"
	g := uint64(1 << 30)
	scope := event.GPUProcess{PID: 1, UsedBytes: &g, Unit: "docker-" + id + ".scope", Container: id, Cgroup: "/system.slice/docker-" + id + ".scope", Title: "VLLM::Worker_TP0"}
	otherUnit := event.GPUProcess{PID: 1, UsedBytes: &g, Unit: "jupyter.service", Cgroup: "/system.slice/jupyter.service", Title: "python3"}
	titled := scope
	nobody := event.GPUProcess{PID: 1, UsedBytes: &g}
	silent := otherUnit
	silent.UsedBytes = nil
	for _, c := range []struct {
		name          string
		config        func(*Config)
		process       event.GPUProcess
		own           *uint64
		foreign, none *uint64
	}{
		{"own unit", nil, event.GPUProcess{PID: 1, UsedBytes: &g, Unit: unit}, &g, ptr(uint64(0)), ptr(uint64(0))},
		{"other unit", nil, otherUnit, nil, &g, ptr(uint64(0))},
		{"container by ID", func(c *Config) { c.Container = id[:12] }, scope, &g, ptr(uint64(0)), ptr(uint64(0))},
		{"container by cgroup", func(c *Config) { c.Cgroup = "/system.slice/docker-" + id + ".scope" }, scope, &g, ptr(uint64(0)), ptr(uint64(0))},
		{"unresolved container of the unit, by title", nil, titled, &g, ptr(uint64(0)), ptr(uint64(0))},
		{"unresolved container without a title", nil, event.GPUProcess{PID: 1, UsedBytes: &g, Unit: scope.Unit, Container: id, Cgroup: scope.Cgroup}, nil, ptr(uint64(0)), &g},
		{"no cgroup", nil, nobody, nil, ptr(uint64(0)), &g},
		{"memory not told", nil, silent, nil, nil, ptr(uint64(0))},
	} {
		t.Run(c.name, func(t *testing.T) {
			var change []func(*Config)
			if c.config != nil {
				change = append(change, c.config)
			}
			s := newScript(t, change...)
			s.line(0, lineVersion)
			s.line(1, lineLoad)
			s.hostWide(2, &event.GPUSample{GPUs: []event.GPU{{Index: 0, UsedBytes: &g, Processes: []event.GPUProcess{c.process}}}})
			snap := s.host.Snapshot()
			if diff := cmp.Diff(c.foreign, snap.GPUs[0].ForeignBytes); diff != "" {
				t.Errorf("foreign: %s", diff)
			}
			if diff := cmp.Diff(c.none, snap.GPUs[0].UnattributedBytes); diff != "" {
				t.Errorf("unattributed: %s", diff)
			}
			var own *uint64
			if b, ok := snap.Targets[0].GPUMemory[0]; ok {
				own = &b
			}
			if diff := cmp.Diff(c.own, own); diff != "" {
				t.Errorf("own: %s", diff)
			}
		})
	}
}

func TestProcessesThatCannotBeListedAreUnknown(t *testing.T) {
	s := newScript(t)
	s.line(0, lineVersion)
	s.hostWide(1, &event.GPUSample{GPUs: []event.GPU{{Index: 0}}})
	g := s.host.Snapshot().GPUs[0]
	if g.ForeignBytes != nil || g.UnattributedBytes != nil || g.UsedBytes != nil {
		t.Errorf("unknown became a number: %+v", g)
	}
	s.hostWide(2, &event.SourceState{Source: event.SourceGPU, State: "hung"})
	if got := s.host.Snapshot().GPUs; got != nil {
		t.Errorf("the last numbers outlive their source: %+v", got)
	}
}

// Whatever comes in whatever order, the phases of a startup add up and the
// machine does not panic.
func TestAnyOrderKeepsThePartition(t *testing.T) {
	lines := []string{lineVersion, lineBanner, lineInit, lineBenign, lineLoad, lineBar25, lineBar50, lineLoaded, lineDynamo, lineKV,
		lineCapture, lineCaptured, lineEngine, lineListen, lineReady, lineWrapper, "noise"}
	for seed := range uint64(300) {
		rng := rand.New(rand.NewPCG(seed, 1))
		s := newScript(t)
		sec := 0.0
		for range 60 {
			sec += rng.Float64() * 100
			when := sec - rng.Float64()*20
			s.inv = []string{first, other, first}[rng.IntN(3)]
			switch rng.IntN(8) {
			case 0:
				s.exit(when, "exited", "1")
			case 1:
				s.memory(when, 2, rng.Float64()*80)
			case 2:
				s.tick(sec)
			case 3:
				status := []event.HealthStatus{event.HealthClosed, event.HealthReady}[rng.IntN(2)]
				s.apply(when, &event.HealthSample{Status: status})
			case 4:
				s.apply(when, &event.UnitState{Loaded: true, ActiveState: []string{"active", "failed", "inactive"}[rng.IntN(3)], Invocation: s.inv})
			default:
				s.line(when, lines[rng.IntN(len(lines))])
			}
			if s.target().Startup != nil {
				s.startup()
			}
		}
	}
}

// Growth that is slow from sample to sample is progress all the same.
func TestSlowGrowthOfMemoryIsASign(t *testing.T) {
	s := newScript(t)
	s.line(0, lineLoad)
	quiet, _ := s.host.machines[unit].budget()
	for sec := 0.0; sec <= quiet.Seconds()+10; sec++ {
		s.memory(sec, 8, 1+sec*0.03)
	}
	if s.startup().Stalled || s.startup().Slow {
		t.Error("30 MiB/s on each GPU are no progress")
	}
}

func TestAGPUThatIsLostHasNoPlateau(t *testing.T) {
	s := newScript(t)
	s.line(0, lineLoad)
	s.memory(0, 2, 0.5)
	s.memory(20, 2, 73.7)
	s.memory(25, 1, 73.7)
	s.memory(31, 1, 73.7)
	if got := s.startup().PlateauGPUs; len(got) != 0 {
		t.Errorf("plateau on %v, though GPU 1 can't be read", got)
	}
}

// A daemon that begins while the engine serves reads of its weights in the log.
func TestPlateauAfterARestartOfTheDaemon(t *testing.T) {
	s := newScript(t)
	s.goodStart(0)
	s.memory(2000, 8, 80)
	if got := len(s.startup().PlateauGPUs); got != 8 {
		t.Errorf("plateau on %d GPUs, want 8", got)
	}
}
