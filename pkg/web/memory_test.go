package web

import (
	"fmt"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/startupd/startupd/pkg/phases"
	"github.com/startupd/startupd/pkg/web/api"
)

const gib = 1 << 30

func p(n uint64) *uint64 { return &n }

// sampled is a snapshot with one unit on two GPUs; unit 0 is not told.
func sampled(now time.Duration, invocation string, unit, used uint64) *phases.Snapshot {
	s := &phases.Snapshot{At: at(now)}
	t := phases.Target{Name: "a.service", Startup: &phases.Startup{Invocation: invocation, Began: at(0)}}
	if unit > 0 {
		t.GPUMemory = map[int]uint64{0: unit}
	}
	for i := range 2 {
		s.GPUs = append(s.GPUs, phases.GPU{Index: i, TotalBytes: p(80 * gib), UsedBytes: p(used), ForeignBytes: p(gib), UnattributedBytes: p(gib)})
	}
	s.Targets = []phases.Target{t, {Name: "b.service", GPUMemory: map[int]uint64{0: 3 * gib}}}
	return s
}

func values(of []*uint64) []int {
	var out []int
	for _, n := range of {
		if n == nil {
			out = append(out, -1)
		} else {
			out = append(out, int(*n/gib))
		}
	}
	return out
}

func TestMemory(t *testing.T) {
	w := newWorld(t, nil)
	r := w.hub.memory
	if m := w.web.Memory("a.service"); m.Schema != api.MemorySchema || m.At == nil || m.GPUs == nil || len(m.At) != 0 {
		t.Errorf("before all samples: %+v", m)
	}
	r.record(sampled(0, "01", 0, 2*gib))
	r.record(sampled(300*time.Millisecond, "01", 7*gib, 8*gib)) // too early
	r.record(sampled(time.Second, "01", 8*gib, 20*gib))
	blind := sampled(2*time.Second, "01", 0, 0)
	blind.GPUs = nil
	r.record(blind)
	full := sampled(3*time.Second, "01", 40*gib, 45*gib)
	full.Targets[0].Startup.GPUPlateauBytes = map[int]uint64{0: 40 * gib}
	r.record(full)
	served := sampled(4*time.Second, "01", 60*gib, 65*gib)
	served.Targets[0].Startup.GPUPlateauBytes = map[int]uint64{0: 41 * gib}
	served.Targets[0].Startup.Outcome = phases.OutcomeServing
	r.record(served)

	m := w.web.Memory("a.service")
	began := float64(at(0).Real.Unix())
	if diff := cmp.Diff([]float64{began, began + 1, began + 2, began + 3, began + 4}, m.At); diff != "" || m.Invocation != "01" || len(m.GPUs) != 1 {
		t.Fatalf("%+v %s", m, diff)
	}
	g := m.GPUs[0]
	for name, d := range map[string]string{
		"unit":    cmp.Diff([]int{-1, 8, -1, 40, 60}, values(g.Unit)),
		"used":    cmp.Diff([]int{2, 20, -1, 45, 65}, values(g.Used)),
		"foreign": cmp.Diff([]int{5, 5, -1, 5, 5}, values(g.Foreign)),
	} {
		if d != "" {
			t.Errorf("%s: %s", name, d)
		}
	}
	if *g.TotalBytes != 80*gib || *g.PlateauBytes != 40*gib || *g.PlateauAt != began+3 {
		t.Errorf("%+v", g)
	}

	r.record(sampled(5*time.Second, "02", 0, 2*gib))
	if m := w.web.Memory("a.service"); m.Invocation != "02" || len(m.At) != 1 || len(m.GPUs) != 2 {
		t.Errorf("a new startup, no process told: %+v", m)
	}
	r.record(&phases.Snapshot{At: at(6 * time.Second)})
	if len(r.units) != 0 {
		t.Error("a unit that is no longer watched is kept")
	}
}

// TestMemoryOfALateGPU has a GPU that can be read only later.
func TestMemoryOfALateGPU(t *testing.T) {
	r := newRecorder()
	one := sampled(0, "01", 5*gib, 9*gib)
	one.GPUs = one.GPUs[:1]
	one.GPUs[0].ForeignBytes = nil
	r.record(one)
	two := sampled(time.Second, "01", 5*gib, 9*gib)
	two.Targets[0].GPUMemory = map[int]uint64{0: 5 * gib, 1: 6 * gib}
	r.record(two)
	m := r.document("a.service")
	if diff := cmp.Diff([]int{-1, 6}, values(m.GPUs[1].Unit)); diff != "" {
		t.Error(diff)
	}
	if diff := cmp.Diff([]int{-1, 5}, values(m.GPUs[0].Foreign)); diff != "" {
		t.Error(diff)
	}
}

func TestMemoryIsBounded(t *testing.T) {
	r := newRecorder()
	const day = 24 * 60 * 60
	for i := range day {
		r.record(sampled(time.Duration(i)*time.Second, "01", uint64(i+1)<<20, 70*gib))
	}
	m := r.document("a.service")
	if n := len(m.At); n > maxPoints || n < maxPoints/2 || n != len(m.GPUs[0].Unit) {
		t.Fatalf("%d moments, %d samples", n, len(m.GPUs[0].Unit))
	}
	step := m.At[1] - m.At[0]
	for i := range m.At[1:] {
		if d := m.At[i+1] - m.At[i]; d != step && i+2 < len(m.At) {
			t.Fatalf("moment %d is %g s after the one before, the others %g", i, d, step)
		}
	}
	if last := m.At[len(m.At)-1]; last < float64(at(0).Real.Unix())+day-2*step {
		t.Error("the newest samples are missing")
	}
	for i, n := range m.GPUs[0].Unit {
		if want := uint64(m.At[i]-m.At[0]+1) << 20; *n != want {
			t.Fatalf("sample %d is %d, want %d", i, *n, want)
		}
	}
}

// TestMemoryOfManyUnits fills the series of twenty units on eight GPUs.
func TestMemoryOfManyUnits(t *testing.T) {
	r := newRecorder()
	for i := range 3000 {
		s := &phases.Snapshot{At: at(time.Duration(i) * time.Second)}
		for g := range 20 {
			s.GPUs = append(s.GPUs, phases.GPU{Index: g, UsedBytes: p(gib)})
		}
		for u := range 20 {
			s.Targets = append(s.Targets, phases.Target{Name: string(rune('a' + u)), Startup: &phases.Startup{Invocation: "01"}})
		}
		r.record(s)
	}
	bytes := 0
	for _, s := range r.units {
		bytes += 8 * cap(s.at)
		if len(s.gpus) != maxGPUs {
			t.Errorf("%d GPUs", len(s.gpus))
		}
		for _, g := range s.gpus[:8] {
			bytes += 4 * (cap(g.used) + cap(g.unit) + cap(g.foreign))
		}
	}
	if bytes > 2_000_000 {
		t.Errorf("twenty units on eight GPUs hold %d bytes", bytes)
	}
}

// TestUnitsThatAreGone lets a thousand units come and go: the hub notes nothing of
// those that are gone, not even of one whose end no snapshot shows.
func TestUnitsThatAreGone(t *testing.T) {
	w := newWorld(t, nil)
	used := p(gib)
	for i := range 1000 {
		name := fmt.Sprintf("run-%d.service", i)
		w.hub.Finished(name+".never.shown", ended(name, phases.OutcomeFailed))
		s := &phases.Snapshot{
			At: at(time.Duration(i) * time.Second), GPUs: []phases.GPU{{Index: 0, UsedBytes: used, TotalBytes: used}},
			Targets: []phases.Target{{Name: name, State: phases.Spawn, Startup: try(name), GPUMemory: map[int]uint64{0: gib}}},
		}
		w.snap.Store(s)
		w.look()
	}
	if len(w.hub.ledgers) != 1 || len(w.hub.memory.units) != 1 {
		t.Errorf("notes of %d units and memory of %d, want those of one", len(w.hub.ledgers), len(w.hub.memory.units))
	}
}
