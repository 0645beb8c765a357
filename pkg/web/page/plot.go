package page

import (
	"fmt"
	"math"
	"strings"

	"github.com/startupd/startupd/pkg/web/api"
)

// maxPlotted bounds the samples of a plot: a phone shows no more.
const maxPlotted = 300

// gib is the unit of a plot's numbers, in bytes.
const gib = 1 << 30

// plot is a unit's GPU memory over time, ready to be drawn. Lines that say the
// same are one: the ranks of a model hold alike.
type plot struct {
	// Key changes with the startup; what it had drawn is not this one's.
	Key string `json:"key"`
	// Text says it in words; also why there is nothing to draw.
	Text string `json:"text"`
	// X are seconds since the first sample.
	X []float64 `json:"x"`
	// Total is the size of the largest GPU in GiB; 0 is not known.
	Total  float64     `json:"total"`
	Lines  []plotLine  `json:"lines"`
	Levels []plotLevel `json:"levels"`
}

// plotLine is one line, in GiB; nil is not known.
type plotLine struct {
	Label string `json:"label"`
	// Kind is unit, others or used.
	Kind string     `json:"kind"`
	Y    []*float64 `json:"y"`
	gpus []int
}

// plotLevel is where the unit's memory was once its weights were resident, since
// From seconds after the first sample; nil is not known.
type plotLevel struct {
	Y    float64  `json:"y"`
	From *float64 `json:"from"`
	Text string   `json:"text"`
}

func newPlot(m *api.Memory) plot {
	p := plot{X: []float64{}, Lines: []plotLine{}, Levels: []plotLevel{}}
	if m == nil || len(m.At) == 0 || len(m.GPUs) == 0 {
		p.Text = "No sample has come since the start began."
		return p
	}
	p.Key = fmt.Sprintf("%s/%d/%.0f", m.Invocation, m.Generation, m.At[0])
	picked := pick(len(m.At))
	for _, i := range picked {
		p.X = append(p.X, math.Round((m.At[i]-m.At[0])*10)/10)
	}
	for i := range m.GPUs {
		p.add("unit", m.GPUs[i].GPU, m.GPUs[i].Unit, picked)
	}
	// Who holds the memory is not told by every driver; how much is held, is.
	if len(p.Lines) == 0 {
		for i := range m.GPUs {
			p.add("used", m.GPUs[i].GPU, m.GPUs[i].Used, picked)
		}
	}
	for i := range m.GPUs {
		g := &m.GPUs[i]
		if holds(g.Foreign) {
			p.add("others", g.GPU, g.Foreign, picked)
		}
		if g.TotalBytes != nil {
			p.Total = max(p.Total, rounded(*g.TotalBytes))
		}
		p.level(g, m.At[0])
	}
	p.name()
	return p
}

// pick returns the places of at most maxPlotted of n samples, the last one among
// them.
func pick(n int) []int {
	step := (n + maxPlotted - 1) / maxPlotted
	var out []int
	for i := (n - 1) % step; i < n; i += step {
		out = append(out, i)
	}
	return out
}

func rounded(bytes uint64) float64 { return math.Round(float64(bytes)/gib*100) / 100 }

// holds says that a series has anything but nothing.
func holds(series []*uint64) bool {
	for _, v := range series {
		if v != nil && *v > 0 {
			return true
		}
	}
	return false
}

// add puts a GPU's series among the lines, or to the one that says the same.
func (p *plot) add(kind string, gpu int, series []*uint64, picked []int) {
	line := plotLine{Kind: kind, gpus: []int{gpu}}
	known := false
	for _, i := range picked {
		var y *float64
		if i < len(series) && series[i] != nil {
			v := rounded(*series[i])
			y, known = &v, true
		}
		line.Y = append(line.Y, y)
	}
	if !known {
		return
	}
	for i := range p.Lines {
		if p.Lines[i].Kind == kind && same(p.Lines[i].Y, line.Y) {
			p.Lines[i].gpus = append(p.Lines[i].gpus, gpu)
			return
		}
	}
	p.Lines = append(p.Lines, line)
}

func same(a, b []*float64) bool {
	for i := range a {
		if (a[i] == nil) != (b[i] == nil) || a[i] != nil && !alike(*a[i], *b[i]) {
			return false
		}
	}
	return true
}

// alike says that two sizes in GiB can't be told apart in a plot.
func alike(a, b float64) bool { return math.Abs(a-b) <= 0.02*max(a, b)+0.05 }

func (p *plot) level(g *api.MemorySeries, first float64) {
	if g.PlateauBytes == nil {
		return
	}
	y := rounded(*g.PlateauBytes)
	for _, l := range p.Levels {
		if alike(l.Y, y) {
			return
		}
	}
	l := plotLevel{Y: y, Text: "weights resident: " + bytesText(*g.PlateauBytes)}
	if g.PlateauAt != nil {
		from := max(*g.PlateauAt-first, 0)
		l.From = &from
	}
	p.Levels = append(p.Levels, l)
}

// name labels the lines and says in words how they end.
func (p *plot) name() {
	kinds := map[string]string{"unit": "this unit", "used": "all processes", "others": "other processes"}
	var parts []string
	for i := range p.Lines {
		l := &p.Lines[i]
		l.Label = kinds[l.Kind] + " on GPU " + ranges(l.gpus)
		text := l.Label + ": now not known"
		if last := l.Y[len(l.Y)-1]; last != nil {
			text = fmt.Sprintf("%s: now %.1f GiB", l.Label, *last)
		}
		parts = append(parts, text)
	}
	for _, l := range p.Levels {
		parts = append(parts, l.Text)
	}
	p.Text = "GPU memory over time. " + strings.Join(parts, "; ") + "."
	if len(p.Lines) == 0 {
		p.Text = "What is held on the GPUs is not known."
	}
}

// ranges writes 0 1 2 5 as "0-2, 5".
func ranges(ns []int) string {
	var parts []string
	for i := 0; i < len(ns); i++ {
		from := ns[i]
		for i+1 < len(ns) && ns[i+1] == ns[i]+1 {
			i++
		}
		if ns[i] == from {
			parts = append(parts, fmt.Sprint(from))
		} else {
			parts = append(parts, fmt.Sprintf("%d-%d", from, ns[i]))
		}
	}
	return strings.Join(parts, ", ")
}
