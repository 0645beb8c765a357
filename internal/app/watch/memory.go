package watch

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/charmbracelet/x/ansi"

	"github.com/startupd/startupd/pkg/web/api"
)

const (
	// gpuColumns is the least width of a GPU's line; there are as many side by side
	// as fit, four at most.
	gpuColumns = 36
	maxAside   = 4
	// notable is what others must hold to be worth a word: what the driver keeps for
	// itself is less.
	notable = 1 << 30
)

// goal is what a GPU's memory is expected to reach.
type goal struct {
	bytes uint64
	// what is plateau, last plateau (the last start's) or weights.
	what string
}

// goal is where the mark of a GPU's bar stands, by the best that is known; zero
// when nothing is.
func (u subject) goal(gpu int) goal {
	if u.Startup == nil {
		return goal{}
	}
	if b := u.Startup.PlateauBytes[gpu]; b > 0 {
		return goal{b, "plateau"}
	}
	if u.Last != nil && u.Last.PlateauBytes[gpu] > 0 {
		return goal{u.Last.PlateauBytes[gpu], "last plateau"}
	}
	if b := u.Startup.WeightBytes; b != nil {
		return goal{*b, "weights"}
	}
	return goal{}
}

// memory draws what the unit holds on each of its GPUs.
func (p *page) memory(u subject) {
	gpus := u.status.GPUs
	if len(gpus) == 0 {
		p.title("GPU MEMORY", "not known"+p.gpuTrouble(u))
		return
	}
	shown := u.gpus()
	p.heading("GPU MEMORY", p.legend(u, shown))
	aside := min(max(p.width/gpuColumns, 1), maxAside, max(1, len(shown)))
	rows := (len(shown) + aside - 1) / aside
	each := (p.width - 2*(aside-1)) / aside
	for r := range rows {
		var parts []string
		for i := r; i < len(shown); i += rows {
			parts = append(parts, p.pad(p.gpu(u, shown[i], each), each))
		}
		p.line(strings.TrimRight(strings.Join(parts, "  "), " "))
	}
	p.lost(shown)
	if n := len(gpus) - len(shown); n > 0 {
		p.line("  " + p.paint(dim, plural(n, "GPU")+" more, not the unit's"))
	}
}

func (p *page) gpuTrouble(u subject) string {
	for _, s := range u.status.Sources {
		if s.Source == "gpu" && !s.Up {
			return ": " + p.clean(or(s.Reason, s.State))
		}
	}
	return ": no sample of a GPU has come"
}

// gpus are those that the unit holds memory of, and those that can't be read;
// all while it holds none.
func (u subject) gpus() []api.GPU {
	var own []api.GPU
	for _, g := range u.status.GPUs {
		if u.GPUMemory[g.GPU] > 0 {
			own = append(own, g)
		}
	}
	if len(own) == 0 {
		return u.status.GPUs
	}
	for _, g := range u.status.GPUs {
		if g.Lost != "" && u.GPUMemory[g.GPU] == 0 {
			own = append(own, g)
		}
	}
	slices.SortFunc(own, func(a, b api.GPU) int { return cmp.Compare(a.GPU, b.GPU) })
	return own
}

// legend says what the bars show.
func (p *page) legend(u subject, shown []api.GPU) string {
	var parts []string
	if len(u.GPUMemory) == 0 {
		parts = append(parts, p.paint(dim, p.other+" used, whose it is, is not known"))
	} else {
		parts = append(parts, p.paint(good, p.full)+p.paint(dim, " unit"))
	}
	if len(u.GPUMemory) > 0 && slices.ContainsFunc(shown, u.shared) {
		parts = append(parts, p.paint(warn, p.other)+p.paint(dim, " others"))
	}
	for _, g := range shown {
		if to := u.goal(g.GPU); to.bytes > 0 {
			parts = append(parts, p.paint(bold, p.mark)+p.paint(dim, fmt.Sprintf(" %s %s GiB", to.what, gib(to.bytes))))
			break
		}
	}
	if t := total(shown); t != "" {
		parts = append(parts, p.paint(dim, "of "+t+" GiB"))
	}
	return strings.Join(parts, p.paint(dim, ", "))
}

// total is the size that all GPUs have; "" when they differ.
func total(gpus []api.GPU) string {
	text := ""
	for i, g := range gpus {
		if g.TotalBytes == nil || i > 0 && gib(*g.TotalBytes) != text {
			return ""
		}
		text = gib(*g.TotalBytes)
	}
	return text
}

// gpu draws one GPU in n columns.
func (p *page) gpu(u subject, g api.GPU, n int) string {
	lead := fmt.Sprintf("  %-2d ", g.GPU)
	if g.Lost != "" {
		return lead + p.paint(bad, "lost: "+p.clean(g.Lost))
	}
	own, isOwn := u.GPUMemory[g.GPU]
	to := u.goal(g.GPU)
	text := p.amount(g, own, isOwn, to)
	if isOwn && u.shared(g) {
		text += p.paint(warn, " +"+gib(*g.UsedBytes-own))
	}
	// Room for a larger number, so that the bar's length does not jump.
	const textColumns = 13
	room := n - len(lead) - max(textColumns, ansi.StringWidth(text)) - 1
	return lead + p.held(u, g, to, max(room, 4)) + " " + text
}

// amount is what is held in GiB, of what is expected.
func (p *page) amount(g api.GPU, own uint64, isOwn bool, to goal) string {
	switch {
	case isOwn && to.bytes > 0 && own <= to.bytes:
		return fmt.Sprintf("%5s/%s", gib(own), gib(to.bytes))
	case isOwn:
		return fmt.Sprintf("%5s GiB", gib(own))
	case g.UsedBytes != nil:
		return fmt.Sprintf("%5s used", gib(*g.UsedBytes))
	}
	return "    ? GiB"
}

// shared says that the bar shows memory that is not the unit's.
func (u subject) shared(g api.GPU) bool {
	own := u.GPUMemory[g.GPU]
	return g.UsedBytes != nil && *g.UsedBytes > own && *g.UsedBytes-own >= notable
}

// held is a GPU's bar: the unit's, others', and the mark of what is expected.
func (p *page) held(u subject, g api.GPU, to goal, room int) string {
	own := u.GPUMemory[g.GPU]
	cells := make([]cell, room)
	fill(cells, 0, room, cell{p.free, dim})
	if g.TotalBytes == nil || *g.TotalBytes == 0 {
		return p.bar(cells)
	}
	share := func(b uint64) int { return column(float64(b)/float64(*g.TotalBytes), room) }
	if g.UsedBytes != nil {
		t := warn
		if len(u.GPUMemory) == 0 {
			t = plain
		}
		fill(cells, 0, share(*g.UsedBytes), cell{p.other, t})
	}
	fill(cells, 0, share(own), cell{p.full, good})
	if to.bytes > 0 && to.bytes <= *g.TotalBytes {
		at := min(share(to.bytes), room-1)
		fill(cells, at, at+1, cell{p.mark, bold})
	}
	return p.bar(cells)
}

// lost tells the driver's error reports.
func (p *page) lost(gpus []api.GPU) {
	for _, g := range gpus {
		for _, x := range g.Xids {
			p.line(fmt.Sprintf("  %s GPU %d reported %s %s, last at %s", p.paint(bad, "!"), g.GPU, x.Name(), plural(int(x.Count), "time"), p.clock(x.Last)))
		}
	}
}
