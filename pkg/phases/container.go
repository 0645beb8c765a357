package phases

import "github.com/startupd/startupd/pkg/event"

// A target whose engine runs in a container has two IDs: its unit's invocation
// and its container's. Either may be seen first, and the container may be
// replaced while the unit lives.

// invocationLen is the length of systemd's invocation IDs; those of containers
// are longer, or cut short.
const invocationLen = 32

// isContainer says that an ID is one of the target's containers'.
func (m *Machine) isContainer(id string) bool {
	return m.cfg.Container != "" && id != "" && len(id) != invocationLen
}

// lacksUnit says that the present startup was told by its container alone.
func (m *Machine) lacksUnit() bool {
	return m.cur.unitInvocation == "" && m.isContainer(m.cur.pub.Invocation)
}

// adopts says that a container's ID joins the startup that its unit began, which
// may be over where the unit's entries were read first.
func (m *Machine) adopts(id string, at event.Stamp) bool {
	s := m.cur
	return m.isContainer(id) && s.unitInvocation == "" && !m.isContainer(s.pub.Invocation) &&
		(s.alive() || !at.After(s.over()))
}

// keepsUnit returns the unit's invocation that a new startup shares with the
// present one: a container's restart leaves its unit as it is. It is "" when
// there is none.
func (m *Machine) keepsUnit(invocation string) string {
	if m.cur.exited || !m.isContainer(invocation) {
		return ""
	}
	return m.cur.unitInvocation
}
