package phases

import (
	"slices"
	"strings"

	"github.com/startupd/startupd/pkg/event"
)

// onGPUs takes a sample of all GPUs: it tells whose memory it is, and hands
// each target its own.
func (h *Host) onGPUs(d *event.GPUSample, at event.Stamp) {
	h.xids.learn(d.GPUs)
	owners := h.owners(d)
	h.gpus = make([]GPU, 0, len(d.GPUs))
	for _, g := range d.GPUs {
		pub := GPU{
			Index: g.Index, UUID: g.UUID, Name: g.Name, Lost: g.Lost,
			UsedBytes: g.UsedBytes, TotalBytes: g.TotalBytes, UtilizationRatio: g.UtilizationRatio,
		}
		pub.ForeignBytes = held(g, owners, foreign)
		pub.UnattributedBytes = held(g, owners, unattributed)
		h.gpus = append(h.gpus, pub)
	}
	for _, m := range h.order {
		if m.journal.catchingUp() {
			continue
		}
		m.replayed = false
		m.advance(at)
		own, busy := m.ownMemory(d, owners)
		m.onMemory(own, busy, at)
		m.expire(m.heard(d))
	}
}

// owner is a target's machine, or one of the two marks below.
type owner struct {
	machine *Machine
	mark    ownerMark
}

type ownerMark int

const (
	watched ownerMark = iota
	foreign
	unattributed
)

// owners tells for each process of the sample whose it is.
func (h *Host) owners(d *event.GPUSample) map[int]owner {
	owners := map[int]owner{}
	for _, g := range d.GPUs {
		for _, p := range g.Processes {
			if _, done := owners[p.PID]; done {
				continue
			}
			if i := slices.IndexFunc(h.order, func(m *Machine) bool { return m.owns(p) }); i >= 0 {
				owners[p.PID] = owner{machine: h.order[i]}
				h.order[i].runsIn(p)
			}
		}
	}
	// A target is unresolved while it runs and none of its processes was found:
	// what runs in a container may then be its.
	unresolved := h.unresolved(owners)
	for _, g := range d.GPUs {
		for _, p := range g.Processes {
			if _, done := owners[p.PID]; !done {
				owners[p.PID] = guess(p, unresolved)
			}
		}
	}
	return owners
}

func (h *Host) unresolved(owners map[int]owner) []*Machine {
	var out []*Machine
	for _, m := range h.order {
		found := false
		for _, o := range owners {
			found = found || o.machine == m
		}
		if s := m.cur; !found && s != nil && s.alive() {
			out = append(out, m)
		}
	}
	return out
}

// guess decides on a process that no target owns for certain.
func guess(p event.GPUProcess, unresolved []*Machine) owner {
	var titled []*Machine
	for _, m := range unresolved {
		if m.titled(p.Title) {
			titled = append(titled, m)
		}
	}
	inContainer := p.Container != "" || strings.Contains(p.Cgroup, "kubepods")
	switch {
	case len(titled) == 1 && (inContainer || p.Unit == ""):
		return owner{machine: titled[0]}
	case len(titled) > 1, p.Cgroup == "", inContainer && len(unresolved) > 0, p.Unit == "" && p.Container == "":
		return owner{mark: unattributed}
	}
	return owner{mark: foreign}
}

// runsIn notes the container's cgroup, which the unit's own does not hold.
func (m *Machine) runsIn(p event.GPUProcess) {
	if p.Container != "" {
		m.engineCgroup = p.Cgroup
	}
}

// owns says whether a process is the target's beyond doubt.
func (m *Machine) owns(p event.GPUProcess) bool {
	switch {
	case p.Unit != "" && p.Unit == m.cfg.Name && m.inSystem(p.Cgroup):
		return true
	case m.cfg.Cgroup != "" && below(p.Cgroup, m.cfg.Cgroup):
		return true
	case m.controlGroup != "" && below(p.Cgroup, m.controlGroup):
		return true
	case p.Container != "" && m.containerIs(p.Container):
		return true
	case m.pids[p.PID] && (p.Unit == "" || p.Container != ""):
		// The journal saw it write into the unit's log.
		return true
	}
	return false
}

// inSystem says whether a unit of the target's name is the system's, not a
// user's or a container's of the same name. A cgroup may be seen from outside a
// namespace, with more before it.
func (m *Machine) inSystem(cgroup string) bool {
	return cgroup == "" || m.controlGroup == "" || strings.Contains(cgroup+"/", m.controlGroup+"/")
}

// containerIs says whether the container is the target's: by the configured
// ID, or by the ID that the journal gives the configured name.
func (m *Machine) containerIs(id string) bool {
	c := m.cfg.Container
	if c != "" && len(c) >= 12 && strings.HasPrefix(id, c) {
		return true
	}
	s := m.cur
	return s != nil && m.isContainer(s.pub.Invocation) && len(s.pub.Invocation) >= 12 && strings.HasPrefix(id, s.pub.Invocation)
}

// titled says whether a process's title is that of a process that the target's
// log has named in this startup.
func (m *Machine) titled(title string) bool {
	if m.profile == nil || m.cur == nil {
		return false
	}
	name := m.profile.TitleProcess(title)
	_, logged := m.cur.pub.LastLine[name]
	return name != "" && logged
}

func below(path, root string) bool {
	path, root = "/"+strings.Trim(path, "/"), "/"+strings.Trim(root, "/")
	return root != "/" && (path == root || strings.HasPrefix(path, root+"/"))
}

// held sums what the processes with a mark hold on a GPU; nil when a part of
// it is not known.
func held(g event.GPU, owners map[int]owner, mark ownerMark) *uint64 {
	if g.Processes == nil {
		return nil
	}
	var sum uint64
	for _, p := range g.Processes {
		if o := owners[p.PID]; o.machine != nil || o.mark != mark {
			continue
		}
		if p.UsedBytes == nil {
			return nil
		}
		sum += *p.UsedBytes
	}
	return &sum
}

// ownMemory sums what the target's processes hold on each GPU, and says whether
// one of those GPUs is busy. The map is nil when nothing could be told.
func (m *Machine) ownMemory(d *event.GPUSample, owners map[int]owner) (own map[int]uint64, busy bool) {
	for _, g := range d.GPUs {
		if len(m.cfg.GPUs) > 0 && !slices.Contains(m.cfg.GPUs, g.Index) {
			continue
		}
		sum, ok := m.holds(g, owners)
		if !ok {
			continue
		}
		if own == nil {
			own = map[int]uint64{}
		}
		own[g.Index] = sum
		busy = busy || g.UtilizationRatio != nil && *g.UtilizationRatio >= busyGPU
	}
	return own, busy
}

// uses says whether the target is known to use a GPU.
func (m *Machine) uses(gpu int) bool {
	return slices.Contains(m.cfg.GPUs, gpu) || m.cur != nil && m.cur.memory.gpus[gpu] != nil
}

// holds sums the target's memory on one GPU; ok is false where it can't be told,
// and on a GPU that the target does not use.
func (m *Machine) holds(g event.GPU, owners map[int]owner) (sum uint64, ok bool) {
	ok = g.Processes != nil && m.uses(g.Index)
	for _, p := range g.Processes {
		if owners[p.PID].machine != m {
			continue
		}
		if p.UsedBytes == nil {
			return 0, false
		}
		sum += *p.UsedBytes
		ok = true
	}
	return sum, ok
}
