package unit_test

import (
	"context"
	"errors"
	"fmt"
	"path"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/godbus/dbus/v5"
	"github.com/google/go-cmp/cmp"
	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"

	"github.com/startupd/startupd/pkg/event"
	"github.com/startupd/startupd/pkg/unit"
)

const boot = "0123456789abcdef0123456789abcdef"

func clock() event.Stamp { return event.Stamp{Real: time.Now(), Boot: boot} }

// manager is a fake systemd with a bus that can be cut.
type manager struct {
	mu      sync.Mutex
	units   map[string]map[string]any
	dialErr error
	// callErr is returned by Properties; nil for the truth.
	callErr error
	// template is a glob of units that can be loaded at any time; "" is none.
	template string
	dials    int
	live     *conn
}

type conn struct {
	m       *manager
	watch   func(string) bool
	changes chan string
}

func newManager() *manager { return &manager{units: make(map[string]map[string]any)} }

func (m *manager) dial(_ context.Context, watch func(string) bool) (unit.Conn, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.dials++
	if m.dialErr != nil {
		return nil, m.dialErr
	}
	m.live = &conn{m: m, watch: watch, changes: make(chan string, 16)}
	return m.live, nil
}

// set changes a unit without a signal.
func (m *manager) set(name string, props map[string]any) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.units[name] = props
}

// unload lets systemd forget a unit, without a signal.
func (m *manager) unload(name string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	delete(m.units, name)
}

// signal tells the watcher that a unit changed, as the real connection does.
func (m *manager) signal(name string) {
	m.mu.Lock()
	live := m.live
	m.mu.Unlock()
	if live.watch(name) {
		live.changes <- name
	}
}

func (m *manager) cut(dialErr error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.dialErr = dialErr
	close(m.live.changes)
}

func (m *manager) fail(dialErr, callErr error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.dialErr, m.callErr = dialErr, callErr
}

func (m *manager) dialled() int {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.dials
}

func (c *conn) Changes() <-chan string { return c.changes }

func (c *conn) List(_ context.Context, globs []string) ([]string, error) {
	c.m.mu.Lock()
	defer c.m.mu.Unlock()
	var names []string
	for name := range c.m.units {
		if slices.ContainsFunc(globs, func(g string) bool { ok, _ := path.Match(g, name); return ok }) {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return names, nil
}

func (c *conn) Properties(_ context.Context, name string) (map[string]any, error) {
	c.m.mu.Lock()
	defer c.m.mu.Unlock()
	if c.m.callErr != nil {
		return nil, c.m.callErr
	}
	if props, ok := c.m.units[name]; ok {
		return props, nil
	}
	if ok, _ := path.Match(c.m.template, name); ok {
		return map[string]any{"LoadState": "loaded", "ActiveState": "inactive", "SubState": "dead"}, nil
	}
	return map[string]any{"LoadState": "not-found", "ActiveState": "inactive", "SubState": "dead"}, nil
}

func active(sub string) map[string]any {
	return map[string]any{"LoadState": "loaded", "ActiveState": "active", "SubState": sub}
}

// watcher runs a Source and keeps what it emits.
type watcher struct {
	*unit.Source
	logs *observer.ObservedLogs
	mu   sync.Mutex
	got  []string
	stop func() error
}

func start(t *testing.T, m *manager, opts unit.Options, targets []unit.Target, globs ...string) *watcher {
	t.Helper()
	core, logs := observer.New(zap.InfoLevel)
	opts.Clock, opts.Dial, opts.Logger = clock, m.dial, zap.New(core)
	w := &watcher{Source: unit.New(opts), logs: logs}
	mustSet(t, w.Source, targets, globs...)
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	w.stop = func() error { cancel(); return <-done }
	go func() { done <- w.Run(ctx, w.emit) }()
	return w
}

func (w *watcher) emit(_ context.Context, events []event.Event) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, e := range events {
		switch d := e.Data.(type) {
		case *event.SourceState:
			w.got = append(w.got, "source "+d.State)
		case *event.UnitState:
			w.got = append(w.got, fmt.Sprintf("%s %v %s/%s", e.Target, d.Loaded, d.ActiveState, d.SubState))
		}
	}
	return nil
}

// expect waits until everything rests and compares what came since the last
// call.
func (w *watcher) expect(t *testing.T, want ...string) {
	t.Helper()
	synctest.Wait()
	w.mu.Lock()
	defer w.mu.Unlock()
	if diff := cmp.Diff(want, w.got); diff != "" {
		t.Errorf("emitted (-want +got):\n%s", diff)
	}
	w.got = nil
}

// advance lets a bubble's time pass.
func advance(d time.Duration) { <-time.After(d) }

func mustSet(t *testing.T, s *unit.Source, targets []unit.Target, globs ...string) {
	t.Helper()
	if err := s.SetTargets(targets, globs); err != nil {
		t.Fatal(err)
	}
}

func TestInitialStateAndSignals(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newManager()
		m.set("engine.service", active("start"))
		w := start(t, m, unit.Options{}, []unit.Target{{Name: "kimi", Unit: "engine"}})
		w.expect(t, "source up", "kimi true active/start")

		m.signal("engine.service") // nothing changed
		w.expect(t)
		m.set("engine.service", active("running"))
		m.signal("other.service")
		w.expect(t)
		m.signal("engine.service")
		w.expect(t, "kimi true active/running")
		if err := w.stop(); !errors.Is(err, context.Canceled) {
			t.Errorf("Run returned %v", err)
		}
	})
}

// TestPollRepairsLostSignal changes a unit without any signal.
func TestPollRepairsLostSignal(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newManager()
		m.set("engine.service", active("start"))
		w := start(t, m, unit.Options{}, []unit.Target{{Unit: "engine.service"}})
		w.expect(t, "source up", "engine.service true active/start")
		m.set("engine.service", active("running"))
		advance(29 * time.Second)
		w.expect(t)
		advance(2 * time.Second)
		w.expect(t, "engine.service true active/running")
		m.set("engine.service", active("exited"))
		m.live.changes <- "" // signals were dropped
		w.expect(t, "engine.service true active/exited")
		w.stop()
	})
}

func TestAliasFollowsPrimaryName(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newManager()
		props := active("start")
		props["Id"] = "real.service"
		m.set("alias.service", props)
		m.set("real.service", props)
		w := start(t, m, unit.Options{}, []unit.Target{{Unit: "real.service"}, {Unit: "alias.service"}})
		w.expect(t, "source up", "alias.service true active/start", "real.service true active/start")
		next := active("running")
		next["Id"] = "real.service"
		m.set("alias.service", next)
		m.set("real.service", next)
		m.signal("real.service")
		w.expect(t, "alias.service true active/running", "real.service true active/running")
		w.stop()
	})
}

func TestUnknownUnit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newManager()
		w := start(t, m, unit.Options{}, []unit.Target{{Unit: "missing.service"}})
		w.expect(t, "source up", "missing.service false inactive/dead")
		advance(5 * time.Minute)
		w.expect(t)
		if warned := w.logs.FilterMessageSnippet("list-unit-files").Len(); warned != 1 {
			t.Errorf("warned %d times, want once", warned)
		}
		m.set("missing.service", active("running"))
		m.signal("missing.service")
		w.expect(t, "missing.service true active/running")
		w.stop()
	})
}

func TestGlobs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newManager()
		m.set("engine-a.service", active("running"))
		m.set("other.service", active("running"))
		w := start(t, m, unit.Options{MaxFound: 2}, nil, "engine-*")
		w.expect(t, "source up", "engine-a.service true active/running")

		m.set("engine-b.service", active("start"))
		m.signal("engine-b.service")
		w.expect(t, "engine-b.service true active/start")

		m.set("engine-c.service", active("start")) // one too many
		m.signal("engine-c.service")
		w.expect(t)
		if w.logs.FilterMessageSnippet("narrower").Len() != 1 {
			t.Error("no warning that globs match too much")
		}

		m.mu.Lock()
		delete(m.units, "engine-b.service")
		m.mu.Unlock()
		m.signal("engine-b.service")
		w.expect(t, "engine-b.service false inactive/dead")
		advance(30 * time.Second) // its place goes to the one that waits
		w.expect(t, "engine-c.service true active/start")

		mustSet(t, w.Source, nil)
		m.set("engine-a.service", active("stop"))
		m.signal("engine-a.service")
		w.expect(t)
		w.stop()
	})
}

// TestUnloadedMatchesMakeRoom lets instances of a template end: to read one would
// load it, so that it is told to be gone once systemd lists it no more.
func TestUnloadedMatchesMakeRoom(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newManager()
		m.template = "run@*"
		m.set("run@a.service", active("running"))
		m.set("run@named.service", active("running"))
		w := start(t, m, unit.Options{MaxFound: 2}, []unit.Target{{Unit: "run@named.service"}}, "run@*")
		w.expect(t, "source up", "run@a.service true active/running", "run@named.service true active/running")
		for i := range 20 {
			a, b := fmt.Sprintf("run@%d.service", i), "run@a.service"
			if i > 0 {
				b = fmt.Sprintf("run@%d.service", i-1)
			}
			m.unload(b) // its end is a signal
			m.signal(b)
			w.expect(t, b+" true inactive/dead")
			advance(30 * time.Second)
			w.expect(t, b+" false inactive/dead")
			m.set(a, active("running"))
			m.signal(a)
			w.expect(t, a+" true active/running")
		}
		m.unload("run@named.service")
		advance(time.Minute)
		w.expect(t, "run@named.service true inactive/dead")
		w.stop()
		if n := w.logs.FilterMessageSnippet("narrower").Len(); n != 0 {
			t.Errorf("%d warnings that globs match too much", n)
		}
	})
}

// TestUnloadedWhileTheBusWasAway is told after the connection is back.
func TestUnloadedWhileTheBusWasAway(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newManager()
		m.template = "run@*"
		m.set("run@a.service", active("running"))
		w := start(t, m, unit.Options{}, nil, "run@*")
		w.expect(t, "source up", "run@a.service true active/running")
		m.unload("run@a.service")
		m.cut(nil)
		advance(time.Minute)
		w.expect(t, "source disconnected", "run@a.service false inactive/dead", "source up")
		w.stop()
	})
}

func TestReplacedTargetsGetTheirState(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newManager()
		m.set("a.service", active("running"))
		w := start(t, m, unit.Options{}, []unit.Target{{Unit: "a.service"}})
		w.expect(t, "source up", "a.service true active/running")
		mustSet(t, w.Source, []unit.Target{{Name: "renamed", Unit: "a.service"}})
		w.expect(t, "renamed true active/running")
		if err := w.SetTargets(nil, []string{"a["}); err == nil || !strings.Contains(err.Error(), `"a["`) {
			t.Errorf("a bad glob gives %v", err)
		}
		w.expect(t)
		w.stop()
	})
}

func TestReconnect(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newManager()
		m.set("engine.service", active("running"))
		w := start(t, m, unit.Options{}, []unit.Target{{Unit: "engine.service"}})
		w.expect(t, "source up", "engine.service true active/running")

		m.cut(fmt.Errorf("dial unix /run/dbus/system_bus_socket: %w", syscall.ECONNREFUSED))
		w.expect(t, "source disconnected")
		advance(time.Second)
		w.expect(t, "source no_bus")
		before := m.dialled()
		advance(10 * time.Minute)
		if tried := m.dialled() - before; tried < 10 || tried > 60 {
			t.Errorf("%d attempts in ten minutes, want a bounded back-off", tried)
		}
		w.expect(t)
		m.fail(nil, nil)
		advance(time.Minute)
		w.expect(t, "source up", "engine.service true active/running")
		w.stop()
	})
}

func TestRefusals(t *testing.T) {
	for name, c := range map[string]struct {
		dial, call error
		state, say string
	}{
		"dynamic user":  {dial: fmt.Errorf("sendmsg: %w", syscall.ENOTCONN), state: "refused", say: "DynamicUser"},
		"access denied": {call: dbus.Error{Name: "org.freedesktop.DBus.Error.AccessDenied"}, state: "refused", say: "static user"},
		"no socket":     {dial: fmt.Errorf("dial: %w", syscall.ENOENT), state: "no_bus", say: "dbus.service"},
		"mute systemd":  {call: context.DeadlineExceeded, state: "no_bus", say: "does not answer"},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				m := newManager()
				m.fail(c.dial, c.call)
				w := start(t, m, unit.Options{}, []unit.Target{{Unit: "engine.service"}})
				w.expect(t, "source "+c.state)
				if w.logs.FilterMessageSnippet(c.say).Len() != 1 {
					t.Errorf("the log does not say %q once: %v", c.say, w.logs.All())
				}
				w.stop()
			})
		})
	}
}

// TestOneUnitRefused: an answer about one unit does not end the connection.
func TestOneUnitRefused(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newManager()
		m.fail(nil, dbus.Error{Name: "org.freedesktop.DBus.Error.InvalidArgs", Body: []any{"unit name is not valid"}})
		w := start(t, m, unit.Options{}, []unit.Target{{Unit: "engine.service"}})
		w.expect(t, "source up")
		if w.logs.FilterMessageSnippet("not valid").Len() != 1 {
			t.Error("the log does not say what systemd answered")
		}
		w.stop()
	})
}

func TestRunEndsWithTheConsumer(t *testing.T) {
	m := newManager()
	full := errors.New("consumer is full")
	s := unit.New(unit.Options{Clock: clock, Dial: m.dial})
	err := s.Run(t.Context(), func(context.Context, []event.Event) error { return full })
	if err != full {
		t.Errorf("Run returned %v, want the consumer's error", err)
	}
}
