package phases

import (
	"fmt"
	"slices"
	"time"

	"github.com/startupd/startupd/pkg/event"
)

const (
	// dwell is how long memory must stay level to be a plateau.
	dwell = 10 * time.Second
	// level is the share by which memory may move on a plateau, and levelBytes
	// the bytes by which it may move in any case.
	level      = 0.01
	levelBytes = 256 << 20
	// alike is the share by which the ranks may differ on a plateau.
	alike = 0.10
	// loaded is the share of the expected weights from which they count as there.
	loaded = 0.8
	// risen is the growth that contexts and communication buffers don't reach.
	risen = 4 << 30
	// moved is the change that counts as progress.
	moved = 64 << 20
)

// memoryWatch follows the unit's memory on each of its GPUs.
type memoryWatch struct {
	gpus    map[int]*gpuWatch
	plateau []int
}

type gpuWatch struct {
	// last is the memory at the last sample that could tell it, of lastAt; signed
	// is that of the last change that counted as progress.
	base, last, signed uint64
	// plateau is the memory when it became resident; 0 before.
	plateau uint64
	lastAt  event.Stamp
	// anchor is the memory since anchorAt that it has stayed level with.
	anchor   uint64
	anchorAt event.Stamp
}

// onMemory takes what the unit's processes hold on each GPU, and how busy those
// GPUs are.
func (m *Machine) onMemory(own map[int]uint64, busy bool, at event.Stamp) {
	m.own = own
	s := m.cur
	if s == nil || !s.alive() || own == nil {
		return
	}
	changed := s.memory.update(own, at)
	if s.serving() {
		m.resident()
		return
	}
	if busy {
		s.busy = true
	}
	if changed {
		s.sign(at, "GPU memory of the unit changed")
	}
	plateau := s.memory.level(at, m.expected())
	if plateau {
		s.memory.settle()
	}
	m.moveByMemory(plateau)
	m.progressByBytes()
}

// expected is the weights' size on one GPU; nil when not known.
func (m *Machine) expected() *uint64 {
	if m.cfg.ExpectedWeightBytes != nil {
		return m.cfg.ExpectedWeightBytes
	}
	return m.cur.weights
}

// update takes the new values, and says whether one of them moved.
func (w *memoryWatch) update(own map[int]uint64, at event.Stamp) bool {
	if w.gpus == nil {
		w.gpus = map[int]*gpuWatch{}
	}
	any := false
	for gpu, used := range own {
		g := w.gpus[gpu]
		if g == nil {
			w.gpus[gpu] = &gpuWatch{base: used, last: used, lastAt: at, signed: used, anchor: used, anchorAt: at}
			continue
		}
		if diff(used, g.signed) >= moved {
			any = true
			g.signed = used
		}
		g.last, g.lastAt = used, at
		if diff(used, g.anchor) > max(levelBytes, uint64(level*float64(g.anchor))) {
			g.anchor, g.anchorAt = used, at
		}
	}
	return any
}

// level says whether every GPU's memory has risen and stays level, alike.
func (w *memoryWatch) level(at event.Stamp, expected *uint64) bool {
	if len(w.gpus) == 0 {
		return false
	}
	lo, hi := ^uint64(0), uint64(0)
	for _, g := range w.gpus {
		if g.lastAt != at || at.Sub(g.anchorAt) < dwell || g.last < g.base+risen {
			return false
		}
		lo, hi = min(lo, g.last), max(hi, g.last)
	}
	if expected != nil && float64(lo) < loaded*float64(*expected) {
		return false
	}
	return float64(hi-lo) <= alike*float64(hi)
}

// settle marks every GPU's memory as resident.
func (w *memoryWatch) settle() {
	if len(w.plateau) == len(w.gpus) {
		return
	}
	w.plateau = w.plateau[:0:0]
	for gpu, g := range w.gpus {
		w.plateau = append(w.plateau, gpu)
		g.plateau = g.last
	}
	slices.Sort(w.plateau)
}

// resident marks the GPUs that hold the weights, once the engine says that it
// has loaded them.
func (m *Machine) resident() {
	s, expected := m.cur, m.expected()
	if expected == nil {
		return
	}
	for gpu, g := range s.memory.gpus {
		if float64(g.last) >= loaded*float64(*expected) && !slices.Contains(s.memory.plateau, gpu) {
			s.memory.plateau = append(s.memory.plateau, gpu)
			g.plateau = g.last
		}
	}
	slices.Sort(s.memory.plateau)
}

// resident returns what was held on each GPU when the weights were there; nil
// when that was not seen.
func (w *memoryWatch) resident() map[int]uint64 {
	var out map[int]uint64
	for gpu, g := range w.gpus {
		if g.plateau == 0 {
			continue
		}
		if out == nil {
			out = map[int]uint64{}
		}
		out[gpu] = g.plateau
	}
	return out
}

// moveByMemory moves the phase on memory alone, provisionally, while no line of
// the profile has led.
func (m *Machine) moveByMemory(plateau bool) {
	s := m.cur
	if rank(s.phase()) >= rank(Compile) {
		m.resident()
	}
	if s.logLed {
		return
	}
	expected := m.expected()
	for gpu, g := range s.memory.gpus {
		if g.last >= g.base+risen || expected != nil && g.last > g.base && float64(g.last-g.base) > 0.1*float64(*expected) {
			m.provisional(Load, m.note(event.SourceGPU, "memory of the unit on GPU %d rose to %s", gpu, gib(g.last)))
			break
		}
	}
	if plateau && expected != nil {
		m.provisional(Compile, m.note(event.SourceGPU, "memory of the unit is level on %d GPUs", len(s.memory.gpus)))
	}
}

func (m *Machine) provisional(phase State, ev Evidence) {
	ev.Provisional = true
	if m.cur.enter(phase, ev) {
		m.setState(phase, m.cur.entered())
	}
}

// progressByBytes tells how much of the weights is there, where no bar does.
func (m *Machine) progressByBytes() {
	s, expected := m.cur, m.expected()
	if s.bar || expected == nil || *expected == 0 || s.phase() != Load || len(s.memory.gpus) == 0 {
		return
	}
	least := ^uint64(0)
	for _, g := range s.memory.gpus {
		least = min(least, g.last)
	}
	ratio := min(1, float64(least)/float64(*expected))
	s.pub.Progress = &ratio
	s.pub.ProgressNote = gib(least) + " of " + gib(*expected)
}

func diff(a, b uint64) uint64 {
	if a > b {
		return a - b
	}
	return b - a
}

func gib(b uint64) string { return fmt.Sprintf("%.1f GiB", float64(b)/(1<<30)) }
