package preflight

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/startupd/startupd/pkg/event"
	"github.com/startupd/startupd/pkg/profile"
)

// GPULook is one look at the GPUs. With no GPU, State and Reason say why.
type GPULook struct {
	GPUs []event.GPU
	// State is the source's (event.SourceState).
	State, Reason string
	// Blind is true where the look itself was not possible (a build without NVML,
	// a missing right): it says nothing of the host.
	Blind bool
	// NoDriver is true where the driver's library was not found: it is not installed,
	// or it lies at an unusual place.
	NoDriver bool
}

// need is how many GPUs of this host the start takes; why is set where that is
// not known.
type need struct {
	count int
	text  string
	why   string
	// elsewhere names a launcher that may take GPUs of other hosts where this one
	// has too few; "" for none.
	elsewhere string
	// one is true where the start is one of several parts, each with GPUs of its
	// own.
	one bool
}

// gpuNeed multiplies the parallel sizes.
func (c *command) gpuNeed() need {
	if c.profile == nil || c.profile.Preflight == nil {
		return need{why: "no profile knows the command"}
	}
	var n need
	product := 1
	n.one = c.setting(profile.SettingDataParallelRank).from != ""
	for _, name := range []string{profile.SettingTensorParallel, profile.SettingPipelineParallel, profile.SettingDataParallel} {
		size, ok := c.count(name)
		if s := c.setting(profile.SettingDataParallelLocal); name == profile.SettingDataParallel && s.from != "" {
			size, ok = c.count(profile.SettingDataParallelLocal)
		}
		if n.one && name == profile.SettingDataParallel {
			size, ok = 1, true
		}
		if !ok {
			return need{why: fmt.Sprintf("the %s size %q is no number", strings.ReplaceAll(name, "_", "-"), c.setting(name).value)}
		}
		if size > 1 {
			n.text += fmt.Sprintf(" x %s %d", strings.ReplaceAll(name, "_", "-"), size)
		}
		product *= size
	}
	nodes, ok := c.count(profile.SettingNodes)
	if !ok || product > 1<<20 || product%nodes != 0 {
		return need{why: "the numbers of hosts and parts do not fit each other"}
	}
	for _, name := range []string{profile.SettingLauncher, profile.SettingDataParallelLauncher} {
		switch l := c.setting(name); {
		case !slices.Contains(c.profile.Preflight.RemoteLaunchers, l.value):
		case l.from == "default":
			n.elsewhere = l.value
		default:
			return need{why: fmt.Sprintf("%s may put its workers on other hosts", l.value)}
		}
	}
	n.count, n.text = product/nodes, strings.TrimPrefix(n.text, " x ")
	return n
}

// visible returns the GPUs that the start may use, in the order of the
// environment variable that chooses them; why is set where that is not known.
func (c *command) visible(all []event.GPU) (gpus []event.GPU, from, why string) {
	name, value, set := "", "", false
	box := ""
	if k := c.container; k != nil {
		box = k.chosen()
	}
	if p := c.profile; p != nil && p.Preflight != nil {
		for _, name = range p.Preflight.VisibleGPUs {
			if value, set = c.env[name]; set {
				break
			}
		}
	}
	if box != "" && set {
		return nil, name + "=" + value, "it counts the GPUs of the container"
	}
	if box != "" {
		name, value, _ = strings.Cut(box, "=")
		set = true
	}
	if !set {
		return all, "", ""
	}
	from = name + "=" + value
	for field := range strings.SplitSeq(value, ",") {
		g, ok := choose(all, strings.TrimSpace(field))
		switch {
		case strings.HasPrefix(strings.TrimSpace(field), "MIG-"):
			return nil, from, "it names a MIG device, whose memory is not looked at"
		case !ok:
			// CUDA takes the ones before an entry that it does not know.
			return gpus, from, ""
		}
		gpus = append(gpus, g)
	}
	if uneven(all) && c.env["CUDA_DEVICE_ORDER"] != "PCI_BUS_ID" && strings.Trim(value, "0123456789, ") == "" {
		return nil, from, "the GPUs differ, and without CUDA_DEVICE_ORDER=PCI_BUS_ID their numbers are not the driver's"
	}
	return gpus, from, ""
}

// choose finds a GPU by index or by the beginning of its UUID.
func choose(all []event.GPU, field string) (event.GPU, bool) {
	if i, err := strconv.Atoi(field); err == nil {
		at := slices.IndexFunc(all, func(g event.GPU) bool { return g.Index == i })
		if at < 0 {
			return event.GPU{}, false
		}
		return all[at], true
	}
	at := slices.IndexFunc(all, func(g event.GPU) bool { return len(field) > 4 && strings.HasPrefix(g.UUID, field) })
	if at < 0 {
		return event.GPU{}, false
	}
	return all[at], true
}

func uneven(gpus []event.GPU) bool {
	return slices.ContainsFunc(gpus, func(g event.GPU) bool { return g.Name != gpus[0].Name })
}

// gpus checks the number of GPUs, and returns those that the start takes.
func (l *look) gpus(seen GPULook) ([]event.GPU, Result) {
	r := Result{Check: CheckGPUs, Class: "gpu_unavailable"}
	p := l.cmd.profile
	needed := p != nil && p.Preflight != nil && p.Preflight.GPUs
	if needed && l.cmd.otherBuild() {
		r.Status, r.Class = Unknown, ""
		r.What = l.cmd.version + " is a build for no GPU of NVIDIA's: what it needs is not looked at"
		return nil, r
	}
	if len(seen.GPUs) == 0 {
		r.Status, r.What = Unknown, seen.Reason
		if !needed || seen.Blind {
			return nil, r
		}
		if why := l.noDriver(seen); why != "" {
			r.What += "; " + why
			return nil, r
		}
		r.Status, r.What = Fail, "the engine needs a GPU: "+seen.Reason
		return nil, r
	}
	gpus, from, whyNot := l.cmd.visible(seen.GPUs)
	if whyNot != "" {
		r.Status, r.What = Unknown, from+": "+whyNot
		return nil, r
	}
	names := fmt.Sprintf("%s of this host's %d", counted(len(gpus), "GPU"), len(seen.GPUs))
	if from != "" {
		names += " by " + from
	}
	n := l.cmd.gpuNeed()
	switch {
	case n.why != "":
		r.Status, r.What = Unknown, names+"; how many the start takes is not known: "+n.why
		return gpus, l.lost(gpus, r)
	case len(gpus) < n.count && needed && n.elsewhere != "":
		r.Status = Unknown
		r.What = fmt.Sprintf("the start needs %s%s, and sees %s: %s may put its workers on other hosts", counted(n.count, "GPU"), in(n.text), names, n.elsewhere)
		return gpus, l.lost(gpus, r)
	case len(gpus) > n.count && n.one:
		r.Status = Unknown
		r.What = fmt.Sprintf("sees %s; which of them this part of several takes is not known", names)
		return nil, r
	case len(gpus) < n.count && needed:
		r.Status = Fail
		r.What = fmt.Sprintf("the start needs %s (%s), and sees %s", counted(n.count, "GPU"), or(n.text, "one by default"), names)
		r.Do = "Lower the parallel sizes, or let the unit see more GPUs."
		return gpus, r
	}
	if len(gpus) > n.count {
		gpus = gpus[:n.count]
	}
	r.Status, r.Class = OK, ""
	r.What = fmt.Sprintf("needs %s%s, sees %s", counted(n.count, "GPU"), in(n.text), names)
	return gpus, l.lost(gpus, r)
}

// otherBuild says that the installed engine was built for other hardware.
func (c *command) otherBuild() bool {
	_, local, ok := strings.Cut(c.version, "+")
	return ok && slices.ContainsFunc(c.profile.Preflight.OtherBuilds, func(b string) bool { return strings.HasPrefix(local, b) })
}

// noDriver says why the engine may start although the driver's library was not
// found; "" where it can't.
func (l *look) noDriver(seen GPULook) string {
	switch {
	case !seen.NoDriver:
		return ""
	case l.sys.exists(l.sys.proc("driver", "nvidia", "version")):
		return "the driver is loaded, so the engine may find its library"
	case l.cmd.version == "":
		return "whether the engine is a build that needs an NVIDIA GPU is not known"
	}
	return ""
}

func in(text string) string {
	if text == "" {
		return ""
	}
	return " (" + text + ")"
}

func or(a, b string) string {
	if a != "" {
		return a
	}
	return b
}

// lost turns r into a failure where a GPU that is needed can't be read.
func (l *look) lost(gpus []event.GPU, r Result) Result {
	for _, g := range gpus {
		if g.Lost != "" {
			index := g.Index
			r.Status, r.GPU, r.Class = Fail, &index, "gpu_unavailable"
			r.What = fmt.Sprintf("GPU %d: %s", g.Index, g.Lost)
			r.Do = "Look for Xid lines in the kernel's log; a reset of the GPU or a reboot brings it back."
			return r
		}
	}
	return r
}

// gpuMemory compares what each GPU has free with what the engine asks for, as
// the engine itself does: total x share must be free (vLLM's
// vllm/v1/worker/utils.py request_memory raises otherwise).
func (l *look) gpuMemory(gpus []event.GPU) []Result {
	if len(gpus) == 0 {
		return nil
	}
	shares, from, bad := l.shares()
	if bad != "" {
		return []Result{{Check: CheckGPUMemory, Status: Unknown, What: bad}}
	}
	var out []Result
	for i := range gpus {
		if r, ok := l.oneGPU(&gpus[i], shares, from); ok {
			out = append(out, r)
		}
	}
	return merged(out)
}

// shares are the shares of memory that the engine may ask for: one, or several
// where the default depends on a version that is not known.
func (l *look) shares() (shares []float64, from, bad string) {
	s := l.cmd.setting(profile.SettingMemoryShare)
	values := []string{s.value}
	if from = s.from; from == "" {
		spec, ok := l.cmd.spec(profile.SettingMemoryShare)
		if !ok {
			return nil, "", "how much the engine asks for is not known"
		}
		values, from = l.cmd.defaults(spec), "default"
	}
	for _, v := range values {
		f, err := strconv.ParseFloat(v, 64)
		if err != nil || f <= 0 || f > 1 {
			return nil, from, fmt.Sprintf("the share of GPU memory %q (%s) is no number above 0 and up to 1", v, from)
		}
		shares = append(shares, f)
	}
	slices.Sort(shares)
	return shares, from, ""
}

// oneGPU judges one GPU; false where there is nothing to say of it.
func (l *look) oneGPU(g *event.GPU, shares []float64, from string) (Result, bool) {
	index := g.Index
	r := Result{Check: CheckGPUMemory, GPU: &index}
	switch {
	case g.Lost != "":
		return r, false
	case g.MIG:
		r.Status, r.What = Unknown, "it is partitioned (MIG): which part the start gets, and what is free there, is not known"
		return r, true
	case g.UsedBytes == nil || g.TotalBytes == nil:
		r.Status, r.What = Unknown, "the driver does not tell its memory (unified memory)"
		return r, true
	}
	total := *g.TotalBytes
	free := total - min(*g.UsedBytes, total)
	holders := l.gpuHolders(g)
	own := ownBytes(holders)
	free = min(free+own, total)
	least, most := shares[0], shares[len(shares)-1]
	need := uint64(float64(total) * most)
	r.NeedBytes, r.HaveBytes = &need, &free
	r.What = fmt.Sprintf("needs %.2f x %s = %s (%s), %s free", most, gib(total), gib(need), from, gib(free))
	if least != most {
		r.What = fmt.Sprintf("needs %.2f or %.2f (default, by a version that is not known) x %s = up to %s, %s free", least, most, gib(total), gib(need), gib(free))
	}
	if own > 0 {
		r.What += fmt.Sprintf(" once the running unit has given back its %s", gib(own))
	}
	over := l.cmd.profile.Preflight.MemoryOverhead
	switch {
	case free < uint64(float64(total)*least):
		r.Status, r.Class, r.passing, r.Holders = Fail, "gpu_memory_occupied", true, holders
		r.Do = l.advise(holders, free, total)
	case free < need:
		r.Status, r.Holders = Unknown, holders
	case free-need < over:
		r.Status, r.Holders = Warning, holders
		r.Do = fmt.Sprintf("Only %s to spare: the engine's own processes take some of it before they look. Free more, or ask for a smaller share.", gib(free-need))
	default:
		r.Status = OK
	}
	return r, true
}

// ownBytes is what the running unit itself holds: it is free when the unit has
// stopped.
func ownBytes(holders []Holder) uint64 {
	var n uint64
	for _, h := range holders {
		if h.Role == RoleSelf {
			n += bytesOf(h.Bytes)
		}
	}
	return n
}

func (l *look) advise(holders []Holder, free, total uint64) string {
	for _, h := range holders {
		switch {
		case h.State == "D" || h.State == "Z":
			return "A holder can't be ended by a signal; see its line."
		case h.Role == RoleLeftOver || h.Role == RoleOrphan:
			return fmt.Sprintf("End what is left over (kill %d), or wait for it to go (--wait).", h.PID)
		}
	}
	room := free - min(free, l.cmd.profile.Preflight.MemoryOverhead)
	share := float64(room*100/total) / 100
	return fmt.Sprintf("Stop who holds it, wait for it (--wait), or ask for a share of %.2f at most.", share)
}

// merged joins the good GPUs into one result.
func merged(results []Result) []Result {
	var good []string
	var sample *Result
	var out []Result
	for i := range results {
		r := &results[i]
		if r.Status != OK {
			r.What = fmt.Sprintf("GPU %d %s", *r.GPU, r.What)
			out = append(out, *r)
			continue
		}
		good = append(good, strconv.Itoa(*r.GPU))
		if sample == nil || *r.HaveBytes-*r.NeedBytes < *sample.HaveBytes-*sample.NeedBytes {
			sample = r
		}
	}
	switch {
	case sample == nil:
		return out
	case len(good) > 1:
		sample.GPU = nil
		sample.What = fmt.Sprintf("GPUs %s: the tightest %s", ranges(good), sample.What)
	default:
		sample.What = "GPU " + good[0] + " " + sample.What
	}
	return append([]Result{*sample}, out...)
}

// ranges writes 0, 1, 2, 5 as 0-2, 5.
func ranges(list []string) string {
	var out []string
	for i := 0; i < len(list); {
		j := i
		for j+1 < len(list) && atoi(list[j+1]) == atoi(list[j])+1 {
			j++
		}
		if j > i+1 {
			out = append(out, list[i]+"-"+list[j])
		} else {
			out = append(out, list[i:j+1]...)
		}
		i = j + 1
	}
	return strings.Join(out, ", ")
}

func atoi(s string) int { n, _ := strconv.Atoi(s); return n }
