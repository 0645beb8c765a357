package watch

import (
	"time"

	"charm.land/bubbles/v2/help"
	"charm.land/bubbles/v2/key"
	"charm.land/bubbles/v2/viewport"
	tea "charm.land/bubbletea/v2"

	"github.com/startupd/startupd/internal/app/observe"
	"github.com/startupd/startupd/pkg/phases"
	"github.com/startupd/startupd/pkg/web/api"
)

const (
	// While a start is under way its time runs on; else only what can be seen at a
	// glance has to.
	quickly, slowly = 250 * time.Millisecond, time.Second
	// silent is how long a daemon that is there can tell nothing: the observer asks
	// it more often.
	silent = 12 * time.Second
)

// The messages of the observer.
type (
	updateMsg observe.Update
	noteMsg   string
	// endMsg says that nothing can be observed at present.
	endMsg struct{ err error }
	// tickMsg says that time has gone on.
	tickMsg struct{}
)

// model is the live view. It holds no clock of its own.
type model struct {
	opts  Options
	now   func() time.Time
	keys  keys
	help  help.Model
	body  viewport.Model
	size  size
	ticks bool

	// last is the view that is shown; its Status is nil before the first. heard is
	// when it came, held the newest one while paused.
	last  observe.Update
	heard time.Time
	held  *observe.Update
	// lost is when the way of observing was lost, zero while it works; note is the
	// observer's last word of noted.
	lost, noted time.Time
	note        string
	// ended is why nothing can be observed; nil while it can.
	ended error

	// chosen is the unit in detail; "" before there is one.
	chosen   string
	whole    bool
	pausedAt time.Time
}

type size struct{ width, height int }

func newModel(o Options, now func() time.Time) *model {
	m := &model{opts: o, now: now, keys: newKeys(), help: newHelp(o), body: viewport.New(), size: size{80, 24}}
	m.layout()
	return m
}

var _ tea.Model = (*model)(nil)

// Init implements tea.Model.
func (m *model) Init() tea.Cmd { return m.tick() }

// Update implements tea.Model.
func (m *model) Update(msg tea.Msg) (tea.Model, tea.Cmd) {
	var cmd tea.Cmd
	switch msg := msg.(type) {
	case tea.WindowSizeMsg:
		m.size = size{msg.Width, msg.Height}
	case updateMsg:
		m.take(observe.Update(msg))
	case noteMsg:
		m.note, m.noted = string(msg), m.now()
		if m.last.Status != nil && m.lost.IsZero() {
			m.lost = m.heard
		}
	case endMsg:
		m.ended = msg.err
		if m.last.Status == nil {
			return m, tea.Quit
		}
		if m.lost.IsZero() {
			m.lost = m.heard
		}
	case tickMsg:
		m.ticks = false
		m.listen()
	case tea.KeyPressMsg:
		cmd = m.press(msg)
	}
	m.layout()
	return m, tea.Batch(cmd, m.tick())
}

// take shows a new view, or keeps it for later.
func (m *model) take(u observe.Update) {
	if m.paused() {
		m.held = &u
		return
	}
	m.last, m.heard, m.lost, m.ended = u, m.now(), time.Time{}, nil
	if m.chosen == "" || u.Status.Find(m.chosen) == nil {
		m.choose()
	}
}

// choose picks the first unit that does not serve, else the first.
func (m *model) choose() {
	m.chosen = ""
	for _, u := range m.last.Status.Units {
		if m.chosen == "" || u.State != string(phases.Serving) {
			m.chosen = u.Unit
		}
		if u.State != string(phases.Serving) {
			return
		}
	}
}

// listen notices that a daemon tells nothing any more.
func (m *model) listen() {
	if m.last.Daemon && m.lost.IsZero() && m.now().Sub(m.heard) > silent {
		m.lost, m.note, m.noted = m.heard, "the daemon tells nothing", m.now()
	}
}

func (m *model) paused() bool { return !m.pausedAt.IsZero() }

// moment is the time that is shown: it stands still when nothing is known of
// what goes on.
func (m *model) moment() time.Time {
	switch {
	case m.paused():
		return m.pausedAt
	case !m.lost.IsZero():
		return m.lost
	}
	return m.now()
}

// tick lets time go on, unless it stands still or a tick is under way already.
func (m *model) tick() tea.Cmd {
	if m.ticks || m.paused() {
		return nil
	}
	m.ticks = true
	every := slowly
	if m.last.Status != nil && m.lost.IsZero() {
		for _, u := range subjects(m.last.Status, m.now()) {
			if u.runs() {
				every = quickly
			}
		}
	}
	return tea.Tick(every, func(time.Time) tea.Msg { return tickMsg{} })
}

// press does what a key asks for.
func (m *model) press(msg tea.KeyPressMsg) tea.Cmd {
	is := func(bs ...key.Binding) bool { return key.Matches(msg, bs...) }
	switch {
	case is(m.keys.help), m.help.ShowAll && is(m.keys.quit) && msg.String() == "esc":
		m.help.ShowAll = !m.help.ShowAll
	case m.whole && msg.String() == "esc":
		m.whole = false
	case is(m.keys.quit):
		return tea.Quit
	case is(m.keys.suspend):
		return tea.Suspend
	case is(m.keys.whole):
		m.whole = !m.whole
	case is(m.keys.benign):
		m.opts.Benign = !m.opts.Benign
	case is(m.keys.pause):
		m.pause()
	case is(m.keys.next):
		m.step(1, true)
	case is(m.keys.previous):
		m.step(-1, true)
	case is(m.keys.down) && m.listed():
		m.step(1, false)
	case is(m.keys.up) && m.listed():
		m.step(-1, false)
	default:
		m.scroll(is)
	}
	return nil
}

func (m *model) scroll(is func(...key.Binding) bool) {
	switch {
	case is(m.keys.down):
		m.body.ScrollDown(1)
	case is(m.keys.up):
		m.body.ScrollUp(1)
	case is(m.keys.pageDown):
		m.body.PageDown()
	case is(m.keys.pageUp):
		m.body.PageUp()
	case is(m.keys.top):
		m.body.GotoTop()
	case is(m.keys.bottom):
		m.body.GotoBottom()
	}
}

func (m *model) pause() {
	if !m.paused() {
		m.pausedAt = m.moment()
		return
	}
	m.pausedAt = time.Time{}
	if m.held != nil {
		m.take(*m.held)
		m.held = nil
	}
}

// several says that there is more than one unit, listed that they are shown.
func (m *model) several() bool { return m.last.Status != nil && len(m.last.Status.Units) > 1 }
func (m *model) listed() bool  { return m.several() && !m.whole }

// index is the chosen unit's; 0 when there is none.
func (m *model) index() int {
	if m.last.Status != nil {
		for i, u := range m.last.Status.Units {
			if u.Unit == m.chosen {
				return i
			}
		}
	}
	return 0
}

// step chooses the next unit or the one before it.
func (m *model) step(by int, around bool) {
	if m.last.Status == nil || len(m.last.Status.Units) == 0 {
		return
	}
	units := m.last.Status.Units
	i := m.index() + by
	if around {
		i = (i + len(units)) % len(units)
	}
	m.chosen = units[min(max(i, 0), len(units)-1)].Unit
	m.body.GotoTop()
}

// status is the newest that is known, shown or not; nil before the first.
func (m *model) status() *api.Status {
	if m.held != nil {
		return m.held.Status
	}
	return m.last.Status
}
