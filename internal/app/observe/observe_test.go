package observe

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/zap"

	"github.com/startupd/startupd/internal/app"
	"github.com/startupd/startupd/pkg/event"
	"github.com/startupd/startupd/pkg/web/api"
	"github.com/startupd/startupd/pkg/web/client"
)

const (
	unit = "llm.service"
	id   = "11111111111111111111111111111111"
	boot = "b0000000000000000000000000000000"
)

// fakeDaemon answers over pipes, on a test's own clock.
type fakeDaemon struct {
	mu sync.Mutex
	// down refuses connections, mute answers no request.
	down, mute bool
	// foreign has no such paths, as a daemon of an older version.
	foreign bool
	status  *api.Status
	lines   chan net.Conn
	server  *http.Server
	// frames are what the present stream sends next; closing it ends the stream.
	frames  chan string
	fetches int
	open    []net.Conn
}

func startFake(t *testing.T) *fakeDaemon {
	d := &fakeDaemon{lines: make(chan net.Conn), frames: make(chan string), status: statusOf(api.Starting)}
	mux := http.NewServeMux()
	mux.HandleFunc("/api/v1/status", func(w http.ResponseWriter, r *http.Request) {
		d.mu.Lock()
		mute, status := d.mute, d.status
		d.fetches++
		d.mu.Unlock()
		switch {
		case mute:
			<-r.Context().Done()
		default:
			_ = json.NewEncoder(w).Encode(status)
		}
	})
	mux.HandleFunc("/api/v1/events", d.events)
	d.server = &http.Server{Handler: mux}
	go func() { _ = d.server.Serve(&pipes{d.lines, make(chan struct{}), sync.Once{}}) }()
	t.Cleanup(func() { _ = d.server.Close() })
	return d
}

func (d *fakeDaemon) events(w http.ResponseWriter, r *http.Request) {
	d.mu.Lock()
	mute, foreign, status, frames := d.mute, d.foreign, d.status, d.frames
	d.mu.Unlock()
	if foreign {
		http.NotFound(w, r)
		return
	}
	if mute {
		<-r.Context().Done()
		return
	}
	if status == nil {
		http.Error(w, `{"error":"unit is not watched"}`, http.StatusNotFound)
		return
	}
	w.Header().Set("Content-Type", "text/event-stream")
	fmt.Fprint(w, frame(api.EventSnapshot, status))
	rc := http.NewResponseController(w)
	for {
		_ = rc.Flush()
		select {
		case f, ok := <-frames:
			if !ok {
				return
			}
			fmt.Fprint(w, f)
		case <-r.Context().Done():
			return
		}
	}
}

func frame(kind string, data any) string {
	b, _ := json.Marshal(data)
	return "event: " + kind + "\ndata: " + string(b) + "\n\n"
}

func (d *fakeDaemon) dial(context.Context) (net.Conn, error) {
	d.mu.Lock()
	down := d.down
	d.mu.Unlock()
	if down {
		return nil, syscall.ECONNREFUSED
	}
	here, there := net.Pipe()
	d.set(func() { d.open = append(d.open, there) })
	d.lines <- there
	return here, nil
}

// set changes what the daemon is, under its lock.
func (d *fakeDaemon) set(change func()) {
	d.mu.Lock()
	defer d.mu.Unlock()
	change()
}

// die ends all connections; new ones are refused for so long, or for ever.
func (d *fakeDaemon) die(away time.Duration) {
	d.set(func() {
		d.down = true
		for _, c := range d.open {
			_ = c.Close()
		}
	})
	if away > 0 {
		time.AfterFunc(away, func() { d.set(func() { d.down = false }) })
	}
}

// pipes is a listener of pipes.
type pipes struct {
	lines chan net.Conn
	done  chan struct{}
	once  sync.Once
}

func (p *pipes) Accept() (net.Conn, error) {
	select {
	case c := <-p.lines:
		return c, nil
	case <-p.done:
		return nil, net.ErrClosed
	}
}
func (p *pipes) Close() error   { p.once.Do(func() { close(p.done) }); return nil }
func (p *pipes) Addr() net.Addr { return &net.UnixAddr{Name: "fake"} }

func statusOf(outcome string) *api.Status {
	return &api.Status{
		Schema:  api.StatusSchema,
		At:      time.Now(),
		Units:   []api.Unit{{Unit: unit, Startup: &api.Startup{Unit: unit, Invocation: id, Outcome: outcome, Findings: []api.Finding{{Class: "gpu_oom"}}}}},
		Sources: []api.Source{{Source: "journal", Up: true}},
	}
}

// seen is one view, in short.
type seen struct {
	at       time.Duration
	daemon   bool
	settled  bool
	outcome  string
	findings int
}

// watcher runs an observer and notes what it tells.
type watcher struct {
	views []seen
	notes []string
	err   error
}

var errEnough = errors.New("enough")

// watch observes until enough says so, or for two minutes.
func watch(t *testing.T, d *fakeDaemon, o Options, enough func(seen) bool) *watcher {
	t.Helper()
	w := &watcher{}
	if o.Units == nil {
		o.Units = []string{unit}
	}
	o.Note = func(text string) { w.notes = append(w.notes, text) }
	began := time.Now()
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	r := &run{opts: o, client: client.New(client.Options{Dial: d.dial}), see: func(u Update) error {
		v := seen{at: time.Since(began), daemon: u.Daemon, settled: u.Settled}
		if one := u.Status.Find(unit); one != nil && one.Startup != nil {
			v.outcome, v.findings = one.Startup.Outcome, len(one.Startup.Findings)
		}
		w.views = append(w.views, v)
		if enough(v) {
			return errEnough
		}
		return nil
	}}
	w.err = r.run(ctx)
	return w
}

// own is a core whose journal tells of a start that begins at once.
func own(state event.SourceState) func([]string) (app.Options, error) {
	return func(units []string) (app.Options, error) {
		began := time.Now()
		clock := func() event.Stamp {
			return event.Stamp{Real: time.Now(), Boot: boot, Mono: time.Hour + time.Since(began)}
		}
		return app.Options{
			Units: units, Log: zap.NewNop(), Clock: clock,
			Feeds: []app.Feed{{Name: event.SourceJournal, Run: func(ctx context.Context, emit app.Emit) error {
				now := clock()
				state.Source = event.SourceJournal
				err := emit(ctx, []event.Event{
					{At: now, Target: units[0], Data: &event.UnitMessage{Message: event.Starting, Invocation: id}},
					{At: now, Data: &state},
				})
				if err != nil {
					return err
				}
				<-ctx.Done()
				return nil
			}}},
		}, nil
	}
}

func up() func([]string) (app.Options, error) { return own(event.SourceState{Up: true, State: "up"}) }

func isOwn(v seen) bool { return !v.daemon && v.settled }

func TestDaemonTells(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := startFake(t)
		go func() {
			time.Sleep(time.Second)
			bare := statusOf(api.Starting)
			bare.Units[0].Startup.Findings = nil
			d.frames <- frame(api.EventUpdate, bare)
			d.frames <- ": alive\n\n"
			time.Sleep(time.Second)
			d.set(func() { d.status = statusOf(api.Serving) })
			d.frames <- frame(api.EventTransition, api.Transition{Unit: unit, To: api.Serving})
		}()
		w := watch(t, d, Options{}, func(v seen) bool { return v.outcome == api.Serving })
		want := []seen{
			{0, true, true, api.Starting, 1},
			{time.Second, true, true, api.Starting, 1}, // an update keeps what is known
			{2 * time.Second, true, true, api.Serving, 1},
		}
		if !errors.Is(w.err, errEnough) || !slices.Equal(w.views, want) || len(w.notes) > 0 {
			t.Errorf("%v\n%+v\n%q", w.err, w.views, w.notes)
		}
	})
}

// Findings come by the hundred: they are fetched together.
func TestFindingsAreGathered(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := startFake(t)
		go func() {
			for range 100 {
				d.frames <- frame(api.EventFinding, api.Told{Unit: unit})
				time.Sleep(10 * time.Millisecond)
			}
			d.frames <- frame(api.EventOutcome, api.Told{Unit: unit})
		}()
		n := 0
		w := watch(t, d, Options{}, func(v seen) bool { n++; return v.at >= time.Second })
		if !errors.Is(w.err, errEnough) || n < 4 || n > 6 {
			t.Errorf("%v: %d views", w.err, n)
		}
	})
}

// TestChange: what becomes of the view when the daemon is, or gets, of no use.
func TestChange(t *testing.T) {
	for _, tt := range []struct {
		name string
		play func(d *fakeDaemon)
		// from is when the view is our own, by so much at most.
		from, within time.Duration
		note         string
	}{
		{"none there", func(d *fakeDaemon) { d.down = true }, 0, 0, "no daemon runs here"},
		{"never answers", func(d *fakeDaemon) { d.mute = true }, answerWithin, 0, "the daemon does not answer within 3s"},
		{"does not watch the unit", func(d *fakeDaemon) { d.status = nil }, 0, 0, "the daemon does not watch the unit"},
		{"is of an older version", func(d *fakeDaemon) { d.foreign = true }, 0, 0, "what answers at the daemon's socket has no events: is it of another version?"},
		{"is of a newer version", func(d *fakeDaemon) { d.status.Schema = "startupd.status/v2" }, 0, 0,
			`the daemon tells a status of schema "startupd.status/v2", and startupd.status/v1 is understood; is it of another version?`},
		{"becomes blind", func(d *fakeDaemon) {
			time.AfterFunc(10*time.Second, func() {
				d.set(func() {
					s := *d.status
					s.Sources = []api.Source{{Source: "journal", State: "reader_failed", Reason: "it is gone"}}
					d.status = &s
				})
			})
		}, 10*time.Second + blindFor, 3 * silentAfter, "the daemon can't read the journal (it is gone)"},
		{"knows only others", func(d *fakeDaemon) { d.status.Units[0].Unit = "web.service" }, 0, 0, "the daemon does not watch llm.service"},
		{"can't read the journal", func(d *fakeDaemon) { d.status.Sources[0] = api.Source{Source: "journal", Reason: "no right"} }, 0, 0, "the daemon can't read the journal (no right)"},
		{"stops in the middle", func(d *fakeDaemon) {
			time.AfterFunc(10*time.Second, func() { d.set(func() { d.mute = true }) })
		}, 10*time.Second + answerWithin, silentAfter, "the daemon does not answer within 3s"},
		{"dies", func(d *fakeDaemon) { time.AfterFunc(10*time.Second, func() { d.die(0) }) },
			10*time.Second + backWithin, time.Second, "the daemon is gone and does not come back: no daemon runs here"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				d := startFake(t)
				tt.play(d)
				w := watch(t, d, Options{Own: up()}, isOwn)
				last := w.views[len(w.views)-1]
				if !errors.Is(w.err, errEnough) || last.outcome != api.Starting {
					t.Fatalf("%v: %+v", w.err, last)
				}
				if last.at < tt.from || last.at > tt.from+tt.within {
					t.Errorf("our own view came after %s", last.at)
				}
				if len(w.notes) != 1 || w.notes[0] != tt.note+"; the journal is followed here instead" {
					t.Errorf("noted %q", w.notes)
				}
			})
		})
	}
}

// The wall clock may be set back by more than a stream is ever behind.
func TestClockSetBack(t *testing.T) {
	for _, back := range []time.Duration{5 * time.Second, time.Hour} {
		synctest.Test(t, func(t *testing.T) {
			d := startFake(t)
			time.AfterFunc(5*time.Second, func() {
				d.set(func() {
					d.status = statusOf(api.Serving)
					d.status.At = d.status.At.Add(-back)
				})
				d.frames <- frame(api.EventTransition, api.Transition{Unit: unit, To: api.Serving})
			})
			w := watch(t, d, Options{}, func(v seen) bool { return v.outcome == api.Serving })
			if last := w.views[len(w.views)-1]; !errors.Is(w.err, errEnough) || last.at != 5*time.Second {
				t.Errorf("set back by %s: %v: %+v", back, w.err, last)
			}
		})
	}
}

// An update that was made before the last view, and comes after it, is old.
func TestViewThatComesLate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := startFake(t)
		time.AfterFunc(time.Second, func() {
			old := statusOf(api.Failed)
			old.At = old.At.Add(-1500 * time.Millisecond) // half a second before the first view
			d.frames <- frame(api.EventUpdate, old)
			d.frames <- frame(api.EventUpdate, statusOf(api.Serving))
		})
		w := watch(t, d, Options{}, func(v seen) bool { return v.outcome == api.Serving })
		if len(w.views) != 2 || !errors.Is(w.err, errEnough) {
			t.Errorf("%v: %+v", w.err, w.views)
		}
	})
}

// A daemon that is restarted is gone on with.
func TestRestartedDaemon(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := startFake(t)
		time.AfterFunc(10*time.Second, func() { d.die(2 * time.Second) })
		time.AfterFunc(20*time.Second, func() {
			d.set(func() { d.status = statusOf(api.Serving) })
			d.frames <- frame(api.EventOutcome, api.Told{Unit: unit})
		})
		w := watch(t, d, Options{Own: up()}, func(v seen) bool { return v.outcome == api.Serving })
		if last := w.views[len(w.views)-1]; !errors.Is(w.err, errEnough) || !last.daemon || last.at != 20*time.Second || len(w.notes) > 0 {
			t.Errorf("%v: %+v, %q", w.err, last, w.notes)
		}
	})
}

// One that reads its past again says so.
func TestUnsettledDaemon(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := startFake(t)
		d.status.Sources = []api.Source{{Source: "unit", Up: true}}
		time.AfterFunc(time.Second, func() {
			d.set(func() { d.status = statusOf(api.Serving) })
			d.frames <- frame(api.EventTransition, api.Transition{Unit: unit})
		})
		w := watch(t, d, Options{}, func(v seen) bool { return v.settled })
		if len(w.views) != 2 || w.views[0].settled || !w.views[1].settled {
			t.Errorf("%v: %+v", w.err, w.views)
		}
	})
}

func TestBlind(t *testing.T) {
	for _, tt := range []struct {
		name string
		own  func([]string) (app.Options, error)
		want string
	}{
		{"no core of our own", nil, "nothing can be observed: no daemon runs here"},
		{"no right to the journal", own(event.SourceState{State: "not_permitted", Reason: "join systemd-journal"}), "nothing can be observed: join systemd-journal"},
		{"a reader that never comes", own(event.SourceState{State: "reader_failed", Reason: "no journalctl"}), "nothing can be observed: no journalctl"},
		{"a bad configuration", func([]string) (app.Options, error) { return app.Options{}, errors.New("no clock") }, "nothing can be observed: no daemon runs here; no clock"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				d := startFake(t)
				d.down = true
				w := watch(t, d, Options{Own: tt.own}, func(v seen) bool { return v.settled })
				if !errors.Is(w.err, ErrBlind) || w.err.Error() != tt.want {
					t.Errorf("%v, want %q", w.err, tt.want)
				}
			})
		})
	}
}

func TestGlobs(t *testing.T) {
	r := &run{opts: Options{Units: []string{`llm\x2dbig@*.service`, "web.service"}}}
	for name, want := range map[string]bool{
		`llm\x2dbig@1.service`: true, "web.service": true, "llm@1.service": false, "webx.service": false,
	} {
		if got := r.matches(name); got != want {
			t.Errorf("matches(%q) = %v", name, got)
		}
	}
	if r.names() != nil || strings.Join((&run{opts: Options{Units: []string{"a.service"}}}).names(), "") != "a.service" {
		t.Error("a glob is not for the daemon to match")
	}
}
