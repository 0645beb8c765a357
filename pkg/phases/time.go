package phases

import "github.com/startupd/startupd/pkg/event"

// journalState is what a verdict needs to know of the evidence's freshness.
type journalState struct {
	// known is false where no journal source exists (a file, a text).
	known, up bool
	// watermark is the time up to which everything was read; zero while the past
	// is still being read.
	watermark event.Stamp
	// boot is that of the newest watermark: the host's present one.
	boot string
}

// catchingUp says that the past is still being read.
func (j journalState) catchingUp() bool { return j.known && j.up && j.watermark.IsZero() }

// mark takes a watermark.
func (j *journalState) mark(at event.Stamp) { j.watermark, j.boot = at, at.Boot }

// forward returns the later of now and at. A boot begins a new time, whatever
// the wall clock says; but what is read of the past never leaves the present
// boot.
func (j journalState) forward(now, at event.Stamp) event.Stamp {
	switch {
	case at.IsZero():
		return now
	case now.IsZero():
		return at
	case otherBoot(now, at):
		if now.Boot == j.boot {
			return now
		}
		return at
	case at.After(now):
		return at
	}
	return now
}

// otherBoot says that two moments are known to be of different boots.
func otherBoot(a, b event.Stamp) bool { return a.Boot != "" && b.Boot != "" && a.Boot != b.Boot }

// passed says that the moment at is over. That of another boot is.
func passed(at, now event.Stamp) bool {
	if at.IsZero() || now.IsZero() {
		return false
	}
	return otherBoot(at, now) || !now.Before(at)
}

// advance moves the machine's time on; it never goes back.
func (m *Machine) advance(at event.Stamp) { m.now = m.journal.forward(m.now, at) }

// stamp is at, or the text's own time where at is not known.
func (m *Machine) stamp(at event.Stamp) event.Stamp {
	if at.IsZero() {
		return m.text.now
	}
	return at
}

// heard is the time up to which all is known that could change a verdict: that
// of the entry at work, else what the journal's reader promises. It may lie far
// behind now, which the other sources move on too.
func (m *Machine) heard(data event.Data) event.Stamp {
	if !m.journal.known {
		return m.now
	}
	switch data.(type) {
	case *event.Line, *event.UnitMessage:
		return m.read
	}
	if !m.journal.up {
		return m.now
	}
	return m.journal.forward(m.read, m.journal.watermark)
}

// older says that an entry lies before the present startup. Across boots the
// wall clock proves nothing: the entries' order does, unless the startup is of
// the present boot.
func (m *Machine) older(at event.Stamp) bool {
	began := m.cur.pub.Began
	if otherBoot(at, began) {
		return began.Boot == m.journal.boot
	}
	return at.Before(began)
}

// rebooted ends what ran in an earlier boot, where no entry tells of its end.
func (m *Machine) rebooted(at event.Stamp) {
	if s := m.cur; s != nil && s.alive() && otherBoot(s.pub.Began, at) {
		s.killed = true
		m.gone("killed by a reboot of the host", m.read)
	}
}
