package page

import (
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/startupd/startupd/pkg/web/api"
)

// leastRest is what a driver holds anyway, in bytes: less is not worth a word.
const leastRest = 64 << 20

// gpuView is the memory of one GPU, of a unit's point of view or the host's.
type gpuView struct {
	GPU int
	// Label names it, or several that are alike; Alike says which is shown then.
	Label, Alike string
	Name, Lost   string
	// Used and Total are "" when not known.
	Used, Total string
	Parts       []memoryPart
	// Unknown names what is not known of who holds the memory.
	Unknown []string
	// Plateau is where the unit's memory was when its weights were resident; "" until
	// then, or when not seen. PlateauX is its place in the bar.
	Plateau  string
	PlateauX float64
	// Load is the utilisation in percent; "" when not known.
	Load string
	Xids []string
}

// memoryPart is one owner's share of a GPU. X and Width are of barWidth.
type memoryPart struct {
	Mark, Label, Text string
	X, Width          float64
	bytes             uint64
}

// gpus are those that matter to the unit: where it holds memory or has done, and
// all of them while it holds none and should.
func (b *builder) gpus() []gpuView {
	u := b.unit
	wanted := map[int]bool{}
	for gpu := range u.GPUMemory {
		wanted[gpu] = true
	}
	if len(wanted) == 0 && u.Startup != nil && starting(u.State) {
		for gpu := range u.Startup.PlateauBytes {
			wanted[gpu] = true
		}
	}
	all := len(wanted) == 0 && (starting(u.State) || u.State == api.Failed)
	var vs []gpuView
	for i := range b.status.GPUs {
		if g := &b.status.GPUs[i]; all || wanted[g.GPU] {
			vs = append(vs, b.gpu(g))
		}
	}
	return vs
}

func (b *builder) gpu(g *api.GPU) gpuView {
	v := newGPUView(g)
	var mine *uint64
	if held, ok := b.unit.GPUMemory[g.GPU]; ok {
		mine = &held
	}
	shares := []share{{"unit", "this unit", mine}, {"others", "other watched units", watched(b.status, g.GPU, b.unit.Unit)}}
	v.divide(g, shares)
	if s := b.unit.Startup; s != nil && g.TotalBytes != nil && *g.TotalBytes > 0 {
		if plateau, ok := s.PlateauBytes[g.GPU]; ok {
			v.Plateau = bytesText(plateau)
			v.PlateauX = min(float64(plateau)/float64(*g.TotalBytes), 1) * barWidth
		}
	}
	return v
}

// gpus are those of the host.
func (v *pageView) gpus(s *api.Status, zone *time.Location) {
	for i := range s.GPUs {
		g := &s.GPUs[i]
		gv := newGPUView(g)
		gv.divide(g, []share{{"unit", "watched units", watched(s, g.GPU, "")}})
		for _, x := range g.Xids {
			text := fmt.Sprintf("%s, %d times", x.Name(), x.Count)
			if x.Count == 1 {
				text = x.Name() + ", once"
			}
			if at := moment(x.Last, zone); at != "" {
				text += ", last " + at
			}
			gv.Xids = append(gv.Xids, text)
		}
		if gv.Lost != "" || len(gv.Xids) > 0 {
			v.GPUTrouble++
		}
		v.GPUs = append(v.GPUs, gv)
	}
}

func newGPUView(g *api.GPU) gpuView {
	v := gpuView{GPU: g.GPU, Label: "GPU " + fmt.Sprint(g.GPU), Name: g.Name, Lost: g.Lost}
	if g.UsedBytes != nil {
		v.Used = bytesText(*g.UsedBytes)
	}
	if g.TotalBytes != nil {
		v.Total = bytesText(*g.TotalBytes)
	}
	if g.UtilizationRatio != nil {
		v.Load = fmt.Sprintf("%.0f %%", *g.UtilizationRatio*100)
	}
	return v
}

// watched is what the watched units but one hold on a GPU; nil where none is
// known to.
func watched(s *api.Status, gpu int, but string) *uint64 {
	var sum *uint64
	for i := range s.Units {
		u := &s.Units[i]
		held, ok := u.GPUMemory[gpu]
		if !ok || u.Unit == but {
			continue
		}
		if sum == nil {
			sum = new(uint64)
		}
		*sum += held
	}
	return sum
}

// share is what one owner holds; nil bytes are not known.
type share struct {
	mark, label string
	bytes       *uint64
}

// divide fills in who holds the GPU's memory. What nobody is known to hold is
// told apart from what is free.
func (v *gpuView) divide(g *api.GPU, shares []share) {
	shares = append(shares, share{"foreign", "other processes", g.ForeignBytes}, share{"unattributed", "owner not told", g.UnattributedBytes})
	held := uint64(0)
	for _, s := range shares {
		switch {
		case s.bytes != nil:
			held += *s.bytes
		case s.mark != "others":
			v.Unknown = append(v.Unknown, s.label)
		}
	}
	if g.UsedBytes != nil {
		if *g.UsedBytes > held+leastRest {
			rest := *g.UsedBytes - held
			label := "driver and rest"
			if len(v.Unknown) > 0 {
				label = "whose is not known"
			}
			shares = append(shares, share{"rest", label, &rest})
		}
		if g.TotalBytes != nil && *g.TotalBytes >= *g.UsedBytes {
			free := *g.TotalBytes - *g.UsedBytes
			shares = append(shares, share{"free", "free", &free})
		}
	}
	x := 0.0
	for _, s := range shares {
		if s.bytes == nil || *s.bytes == 0 && s.mark != "unit" && s.mark != "free" {
			continue
		}
		p := memoryPart{Mark: "m-" + s.mark, Label: s.label, Text: bytesText(*s.bytes), X: x, bytes: *s.bytes}
		if g.TotalBytes != nil && *g.TotalBytes > 0 {
			p.Width = min(float64(*s.bytes)/float64(*g.TotalBytes)*barWidth, barWidth-x)
			x += p.Width
		}
		v.Parts = append(v.Parts, p)
	}
}

// grouped makes one of GPUs that are alike: the ranks of a model are, and on a
// phone eight bars hide what follows them. The fullest one is shown.
func grouped(all []gpuView) []gpuView {
	var out []gpuView
	var members [][]int
	for _, g := range all {
		i := slices.IndexFunc(out, func(o gpuView) bool { return o.like(&g) })
		if i < 0 {
			out, members = append(out, g), append(members, []int{g.GPU})
			continue
		}
		members[i] = append(members[i], g.GPU)
		if len(g.Parts) > 0 && g.Parts[0].bytes > out[i].Parts[0].bytes {
			out[i] = g
		}
	}
	for i := range out {
		if len(members[i]) > 1 {
			out[i].Label = "GPUs " + ranges(members[i])
			out[i].Alike = fmt.Sprintf("each about alike; the numbers are GPU %d's", out[i].GPU)
		}
	}
	return out
}

// like says that two GPUs can't be told apart in a bar.
func (v *gpuView) like(o *gpuView) bool {
	if v.Name != o.Name || v.Total != o.Total || v.Total == "" || v.Lost != o.Lost || (v.Plateau == "") != (o.Plateau == "") ||
		len(v.Parts) != len(o.Parts) || !slices.Equal(v.Unknown, o.Unknown) || !near(v.PlateauX, o.PlateauX) {
		return false
	}
	for i, p := range v.Parts {
		if q := o.Parts[i]; p.Mark != q.Mark || !near(p.Width, q.Width) {
			return false
		}
	}
	return true
}

// near says that two places of a bar are within 2 % of it.
func near(a, b float64) bool { return max(a-b, b-a) <= barWidth*0.02 }

// plateaus is what the unit held on each GPU once its weights were resident, in
// words; "" when not seen.
func plateaus(m map[int]uint64) string {
	if len(m) == 0 {
		return ""
	}
	sizes := slices.Sorted(maps.Values(m))
	lowest, highest := bytesText(sizes[0]), bytesText(sizes[len(sizes)-1])
	if lowest == highest {
		return lowest + " on " + counted(len(m), "GPU", "GPUs")
	}
	return lowest + " to " + highest + " on " + counted(len(m), "GPU", "GPUs")
}
