package app

import (
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/zap"

	"github.com/startupd/startupd/pkg/event"
	"github.com/startupd/startupd/pkg/journal"
	"github.com/startupd/startupd/pkg/phases"
)

func nopLog() *zap.Logger { return zap.NewNop() }

// script is a journal that a test writes.
type script struct {
	batches chan []event.Event
	done    chan struct{}
}

func newScript() *script {
	return &script{batches: make(chan []event.Event), done: make(chan struct{}, 1)}
}

func (s *script) run(ctx context.Context, emit Emit) error {
	for {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case b := <-s.batches:
			if err := emit(ctx, b); err != nil {
				return err
			}
			s.done <- struct{}{}
		}
	}
}

// play returns once the events are applied.
func (s *script) play(t *testing.T, events ...event.Event) {
	t.Helper()
	for _, step := range []func() bool{
		func() bool {
			select {
			case s.batches <- events:
				return true
			case <-t.Context().Done():
				return false
			}
		},
		func() bool {
			select {
			case <-s.done:
				return true
			case <-t.Context().Done():
				return false
			}
		},
	} {
		if !step() {
			t.Fatal("the app takes no events")
		}
	}
}

// daemon is a running app.
type daemon struct {
	*App
	script *script
	base   string
	stop   func() error
	mu     sync.Mutex
	said   []string
}

// told returns what the service manager was told so far.
func (d *daemon) told() string {
	d.mu.Lock()
	defer d.mu.Unlock()
	return strings.Join(d.said, "|")
}

func begin(t *testing.T, change func(*Options), prepare ...func(*App)) *daemon {
	t.Helper()
	clock, err := SystemClock()
	if err != nil {
		t.Fatal(err)
	}
	d := &daemon{script: newScript()}
	addrs := make(chan []net.Addr, 1)
	o := Options{
		Units: []string{"a.service"}, Web: flags("127.0.0.1:0"), Log: zap.NewNop(), Clock: clock, Version: "1.0",
		Feeds:   []Feed{{Name: event.SourceJournal, Run: d.script.run}},
		Started: func(as []net.Addr) { addrs <- as },
		Notify: func(s string) error {
			d.mu.Lock()
			defer d.mu.Unlock()
			d.said = append(d.said, s)
			return nil
		},
	}
	if change != nil {
		change(&o)
	}
	if d.App, err = New(o); err != nil {
		t.Fatal(err)
	}
	for _, p := range prepare {
		p(d.App)
	}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- d.Run(ctx) }()
	d.stop = sync.OnceValue(func() error { cancel(); return <-ended })
	t.Cleanup(func() { _ = d.stop() })
	select {
	case as := <-addrs:
		d.base = "http://" + as[0].String()
	case err := <-ended:
		t.Fatal("the app did not start: ", err)
	}
	return d
}

func get(t *testing.T, url string) (int, string) {
	t.Helper()
	return request(t, http.MethodGet, url)
}

func request(t *testing.T, method, url string) (int, string) {
	t.Helper()
	req, err := http.NewRequest(method, url, nil)
	if err != nil {
		t.Fatal(err)
	}
	r, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer r.Body.Close()
	b, err := io.ReadAll(r.Body)
	if err != nil {
		t.Fatal(err)
	}
	return r.StatusCode, string(b)
}

func up() event.Event {
	return event.Event{At: at(0), Data: &event.SourceState{Source: event.SourceJournal, Up: true, State: "up"}}
}

func started(unit, invocation string, d time.Duration) event.Event {
	return event.Event{At: at(d), Target: unit, Data: &event.UnitMessage{Message: event.Starting, Invocation: invocation}}
}

func failed(unit, invocation string, d time.Duration) event.Event {
	return event.Event{At: at(d), Target: unit, Data: &event.UnitMessage{Message: event.FailureResult, Invocation: invocation, Result: "exit-code"}}
}

func TestAppServes(t *testing.T) {
	spawned := make(chan struct{})
	tell := sync.OnceFunc(func() { close(spawned) })
	d := begin(t, func(o *Options) {
		o.Changed = func(snap *phases.Snapshot) {
			if statusText(snap) == "a.service: spawn" {
				tell()
			}
		}
	})
	if code, _ := get(t, d.base+"/-/ready"); code != http.StatusServiceUnavailable {
		t.Errorf("ready before a source: %d", code)
	}
	d.script.play(t, up(), started("a.service", "01", time.Second))
	for path, want := range map[string]string{
		"/-/ready":   "is ready",
		"/-/healthy": "is healthy",
		"/metrics":   `startupd_phase{phase="spawn",unit="a.service"} 1`,
		"/":          "a.service",
	} {
		if code, body := get(t, d.base+path); code != http.StatusOK || !strings.Contains(body, want) {
			t.Errorf("%s: %d, lacks %q:\n%s", path, code, want, body)
		}
	}
	if code, body := get(t, d.base+"/startupz?unit=a"); code != http.StatusServiceUnavailable || !strings.Contains(body, `"phase":"spawn"`) {
		t.Errorf("startupz: %d %s", code, body)
	}
	if code, body := get(t, d.base+"/metrics"); !strings.Contains(body, "go_goroutines") || !strings.Contains(body, "process_open_fds") {
		t.Errorf("no metrics of the process: %d", code)
	}
	<-spawned
	if err := d.stop(); err != nil {
		t.Error(err)
	}
	// Snapshots coalesce, so the status before the first event may go unsaid.
	told := d.told()
	if strings.Replace(told, "STATUS=a.service: unknown|", "", 1) != "READY=1|STATUS=a.service: spawn|STOPPING=1" {
		t.Errorf("the service manager was told %q", told)
	}
}

func TestTwoAppsInOneProcess(t *testing.T) {
	one := begin(t, nil)
	two := begin(t, func(o *Options) { o.Units = []string{"b.service"} })
	one.script.play(t, up(), started("a.service", "01", 0))
	two.script.play(t, up(), started("b.service", "02", 0), failed("b.service", "02", time.Second))
	_, a := get(t, one.base+"/metrics")
	_, b := get(t, two.base+"/metrics")
	if strings.Contains(a, "b.service") || strings.Contains(b, "a.service") {
		t.Error("the apps share metrics")
	}
	if err := one.stop(); err != nil {
		t.Error(err)
	}
	if code, body := get(t, two.base+"/startupz?unit=b"); code != http.StatusServiceUnavailable || !strings.Contains(body, `"phase":"failed"`) {
		t.Errorf("the other app after the first one's end: %d %s", code, body)
	}
}

func TestReload(t *testing.T) {
	file := writeConfig(t, "targets:\n  - unit: a\n")
	d := begin(t, func(o *Options) { o.Units, o.ConfigFile, o.Lifecycle = nil, file, true })
	d.script.play(t, up(), started("a.service", "01", 0))
	post := func() (int, string) {
		t.Helper()
		return request(t, http.MethodPost, d.base+"/-/reload")
	}
	rewrite := func(text string) {
		t.Helper()
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}

	rewrite("targets:\n  - unit: a\n  - units: b\n")
	if code, body := post(); code != http.StatusInternalServerError || !strings.Contains(body, file+`:3: unknown field "units"`) {
		t.Errorf("bad configuration: %d %s", code, body)
	}
	if code, _ := get(t, d.base+"/startupz?unit=a"); code != http.StatusServiceUnavailable {
		t.Errorf("the old target after a refused reload: %d", code)
	}

	rewrite("targets:\n  - unit: a\n  - unit: b\n  - unit: c-*\n")
	if code, body := post(); code != http.StatusOK {
		t.Fatalf("good configuration: %d %s", code, body)
	}
	d.script.play(t, started("c-1.service", "03", time.Second), started("d.service", "04", time.Second))
	_, body := get(t, d.base+"/startupz")
	for _, want := range []string{`"unit":"a.service","ready":false,"phase":"spawn"`, `"unit":"b.service","ready":false,"phase":"unknown"`, `"unit":"c-1.service","ready":false,"phase":"spawn"`} {
		if !strings.Contains(body, want) {
			t.Errorf("after the reload %s lacks %s", body, want)
		}
	}
	if strings.Contains(body, "d.service") {
		t.Errorf("a unit that nobody asked for: %s", body)
	}

	rewrite("targets:\n  - unit: b\n")
	if err := d.Reload(t.Context()); err != nil {
		t.Fatal(err)
	}
	if _, body := get(t, d.base+"/startupz"); strings.Contains(body, "a.service") || strings.Contains(body, "c-1") || !strings.Contains(body, "b.service") {
		t.Errorf("after removal: %s", body)
	}
	if told := d.told(); strings.Count(told, "RELOADING=1\nMONOTONIC_USEC=") != 3 {
		t.Errorf("the service manager was told %q", told)
	}
}

func TestReloadNeedsTheFlag(t *testing.T) {
	d := begin(t, nil)
	if code, _ := request(t, http.MethodPost, d.base+"/-/reload"); code != http.StatusForbidden {
		t.Errorf("%d", code)
	}
}

func TestAPISocket(t *testing.T) {
	path := filepath.Join(t.TempDir(), "api.sock")
	d := begin(t, func(o *Options) { o.APISocket = path })
	client := http.Client{Transport: &http.Transport{DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		var dial net.Dialer
		return dial.DialContext(ctx, "unix", path)
	}}}
	r, err := client.Get("http://startupd/")
	if err != nil {
		t.Fatal(err)
	}
	r.Body.Close()
	client.CloseIdleConnections()
	if r.StatusCode != http.StatusOK {
		t.Errorf("%d", r.StatusCode)
	}
	if err := d.stop(); err != nil {
		t.Error(err)
	}
	if _, err := os.Stat(path); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the socket is left behind: %v", err)
	}
}

func TestStartIsRolledBack(t *testing.T) {
	dir := t.TempDir()
	free, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	addr := free.Addr().String()
	if err := free.Close(); err != nil {
		t.Fatal(err)
	}
	clock, err := SystemClock()
	if err != nil {
		t.Fatal(err)
	}
	a, err := New(Options{
		Units: []string{"a.service"}, Web: flags(addr), Log: zap.NewNop(), Clock: clock, Feeds: []Feed{},
		APISocket: filepath.Join(dir, "none", "api.sock"), APISocketRequired: true,
	})
	if err != nil {
		t.Fatal(err)
	}
	if err := a.Run(t.Context()); err == nil || !strings.Contains(err.Error(), "--api.socket") {
		t.Errorf("error %v", err)
	}
	again, err := net.Listen("tcp", addr)
	if err != nil {
		t.Fatalf("the address is still taken: %v", err)
	}
	again.Close()
}

func TestSourcesThatFail(t *testing.T) {
	broken := errors.New("broken")
	fails := func(context.Context, Emit) error { return broken }
	d := begin(t, func(o *Options) { o.Feeds = append(o.Feeds, Feed{Name: event.SourceGPU, Run: fails}) })
	d.script.play(t, up())
	seen := func(snap *phases.Snapshot) bool {
		for _, s := range snap.Sources {
			if s.Source == event.SourceGPU && !s.Up && s.State == "failed" && s.Reason == "broken" {
				return true
			}
		}
		return false
	}
	snaps := d.loop.Subscribe(t.Context())
	for !seen(<-snaps) {
	}
	if err := d.stop(); err != nil {
		t.Errorf("a lesser source ended the app: %v", err)
	}

	clock, err := SystemClock()
	if err != nil {
		t.Fatal(err)
	}
	a, err := New(Options{
		Units: []string{"a.service"}, Web: flags("127.0.0.1:0"), Log: zap.NewNop(), Clock: clock,
		Feeds: []Feed{{Name: event.SourceJournal, Run: fails}},
	})
	if err != nil {
		t.Fatal(err)
	}
	if err := a.Run(t.Context()); !errors.Is(err, broken) {
		t.Errorf("without the journal: %v", err)
	}
}

func TestStateOverARestart(t *testing.T) {
	dir := t.TempDir()
	keep := func(o *Options) {
		o.StateDir = dir
		o.Clock = func() event.Stamp { return at(-time.Hour) }
	}
	first := begin(t, keep, func(a *App) {
		a.saver.applied = func() journal.Position { return journal.Position{Cursor: "c1"} }
	})
	events := []event.Event{started("a.service", "01", 0), failed("a.service", "01", time.Second), started("a.service", "02", 2*time.Second)}
	first.script.play(t, append([]event.Event{up()}, events...)...)
	if err := first.stop(); err != nil {
		t.Fatal(err)
	}
	second := begin(t, keep)
	if got := second.saver.state.Position.Cursor; got != "c1" {
		t.Errorf("position %q", got)
	}
	const count = `startupd_startups_total{outcome="failed",unit="a.service"} 1`
	if _, body := get(t, second.base+"/metrics"); !strings.Contains(body, count) {
		t.Error("the count is lost")
	}
	second.script.play(t, append([]event.Event{up()}, events...)...)
	if _, body := get(t, second.base+"/metrics"); !strings.Contains(body, count) {
		t.Error("a start was counted twice")
	}
}

func TestNewRefuses(t *testing.T) {
	if _, err := New(Options{Log: zap.NewNop(), Web: flags()}); !errors.Is(err, ErrConfig) {
		t.Errorf("no unit: %v", err)
	}
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "bad.yaml"), []byte("engine: [\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	_, err := New(Options{Units: []string{"a"}, ProfileDir: dir, Log: zap.NewNop(), Web: flags()})
	if !errors.Is(err, ErrConfig) || !strings.Contains(err.Error(), "bad.yaml") {
		t.Errorf("bad profile: %v", err)
	}
}
