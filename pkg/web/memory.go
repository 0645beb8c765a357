package web

import (
	"math"
	"sync"
	"time"

	"github.com/startupd/startupd/pkg/phases"
	"github.com/startupd/startupd/pkg/web/api"
)

const (
	// maxPoints is how many samples a unit's series hold; then every second one is
	// dropped, and only every second one is taken from then on.
	maxPoints = 600
	// firstStep is the distance of samples at first.
	firstStep = time.Second
	// maxGPUs bounds the GPUs of a unit's series.
	maxGPUs = 16
	// block is the resolution of the series in bytes: a sample fits in 32 bits.
	block = 64 << 10
	// unknown is a sample that is not known.
	unknown = math.MaxUint32
)

// recorder keeps the GPU memory of each unit since its present startup began.
type recorder struct {
	mu    sync.Mutex
	units map[string]*series
}

// series is one unit's samples.
type series struct {
	of   attempt
	step time.Duration
	last time.Time
	at   []float64
	gpus []*gpuSeries
}

// gpuSeries is one GPU's part: a number of blocks for each moment.
type gpuSeries struct {
	index               int
	total               *uint64
	used, unit, foreign []uint32
	// held says that the unit has had memory on it.
	held      bool
	plateau   *uint64
	plateauAt float64
}

func newRecorder() *recorder { return &recorder{units: map[string]*series{}} }

// record takes a snapshot's samples.
func (r *recorder) record(snap *phases.Snapshot) {
	r.mu.Lock()
	defer r.mu.Unlock()
	present := make(map[string]*series, len(snap.Targets))
	for i := range snap.Targets {
		t := &snap.Targets[i]
		if t.Startup == nil {
			continue
		}
		s := r.units[t.Name]
		if of := attemptOf(t.Startup); s == nil || s.of != of {
			s = &series{of: of, step: firstStep}
		}
		present[t.Name] = s
		s.take(snap, t)
	}
	r.units = present
}

// take adds a sample where the last one is old enough. Before the first sample
// of a GPU there is nothing to record.
func (s *series) take(snap *phases.Snapshot, t *phases.Target) {
	now := snap.At.Real
	if now.IsZero() || len(snap.GPUs) == 0 && len(s.gpus) == 0 || !s.last.IsZero() && now.Sub(s.last) < s.step {
		s.mark(snap, t)
		return
	}
	if len(s.at) == maxPoints {
		s.thin()
	}
	s.last = now
	s.at = append(s.at, seconds(now))
	for _, g := range snap.GPUs {
		s.gpu(g.Index)
	}
	for _, g := range s.gpus {
		g.sample(snap, t)
	}
	s.mark(snap, t)
}

// gpu finds a GPU's series, or begins it with nothing known of the past.
func (s *series) gpu(index int) {
	for _, g := range s.gpus {
		if g.index == index {
			return
		}
	}
	if len(s.gpus) == maxGPUs {
		return
	}
	g := &gpuSeries{index: index}
	for range len(s.at) - 1 {
		g.add(unknown, unknown, unknown)
	}
	s.gpus = append(s.gpus, g)
}

func (g *gpuSeries) add(used, unit, foreign uint32) {
	g.used, g.unit, g.foreign = append(g.used, used), append(g.unit, unit), append(g.foreign, foreign)
}

// sample adds what is known of the GPU now.
func (g *gpuSeries) sample(snap *phases.Snapshot, t *phases.Target) {
	used, unit, foreign := uint32(unknown), uint32(unknown), uint32(unknown)
	for i := range snap.GPUs {
		if d := &snap.GPUs[i]; d.Index == g.index {
			if d.TotalBytes != nil {
				g.total = d.TotalBytes
			}
			if d.UsedBytes != nil {
				used = blocks(*d.UsedBytes)
			}
			foreign = others(snap, d, t.Name)
		}
	}
	if n, ok := t.GPUMemory[g.index]; ok {
		unit = blocks(n)
		g.held = g.held || n > 0
	}
	g.add(used, unit, foreign)
}

// others is what everybody but the unit holds on a GPU.
func others(snap *phases.Snapshot, d *phases.GPU, unit string) uint32 {
	if d.ForeignBytes == nil {
		return unknown
	}
	n := *d.ForeignBytes
	if d.UnattributedBytes != nil {
		n += *d.UnattributedBytes
	}
	for i := range snap.Targets {
		if t := &snap.Targets[i]; t.Name != unit {
			n += t.GPUMemory[d.Index]
		}
	}
	return blocks(n)
}

func blocks(bytes uint64) uint32 { return uint32(min((bytes+block/2)/block, unknown-1)) }

// mark notes where a plateau was reached.
func (s *series) mark(snap *phases.Snapshot, t *phases.Target) {
	for _, g := range s.gpus {
		if n, ok := t.Startup.GPUPlateauBytes[g.index]; ok && g.plateau == nil && !snap.At.Real.IsZero() {
			g.plateau, g.plateauAt = &n, seconds(snap.At.Real)
		}
	}
}

// thin drops every second sample.
func (s *series) thin() {
	s.step *= 2
	s.at = half(s.at)
	for _, g := range s.gpus {
		g.used, g.unit, g.foreign = half(g.used), half(g.unit), half(g.foreign)
	}
}

func half[T any](all []T) []T {
	n := 0
	for i := 0; i < len(all); i += 2 {
		all[n] = all[i]
		n++
	}
	return all[:n]
}

func seconds(t time.Time) float64 { return float64(t.UnixMilli()) / 1000 }

// document returns a copy of a unit's series: of the GPUs that it has used, or
// of all where that can't be told.
func (r *recorder) document(unit string) *api.Memory {
	r.mu.Lock()
	defer r.mu.Unlock()
	out := &api.Memory{Schema: api.MemorySchema, Unit: unit, At: []float64{}, GPUs: []api.MemorySeries{}}
	s := r.units[unit]
	if s == nil {
		return out
	}
	out.Invocation, out.Generation = s.of.invocation, s.of.generation
	out.At = append(out.At, s.at...)
	told := false
	for _, g := range s.gpus {
		told = told || g.held
	}
	for _, g := range s.gpus {
		if g.held || !told {
			out.GPUs = append(out.GPUs, g.document())
		}
	}
	return out
}

func (g *gpuSeries) document() api.MemorySeries {
	out := api.MemorySeries{
		GPU: g.index, TotalBytes: g.total, Used: numbers(g.used), Unit: numbers(g.unit), Foreign: numbers(g.foreign), PlateauBytes: g.plateau,
	}
	if g.plateau != nil {
		at := g.plateauAt
		out.PlateauAt = &at
	}
	return out
}

func numbers(of []uint32) []*uint64 {
	values := make([]uint64, len(of))
	out := make([]*uint64, len(of))
	for i, n := range of {
		if n != unknown {
			values[i] = uint64(n) * block
			out[i] = &values[i]
		}
	}
	return out
}
