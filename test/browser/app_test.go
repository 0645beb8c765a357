//go:build browser

package browser

import (
	"context"
	"fmt"
	"net"
	"sync"
	"testing"

	"github.com/prometheus/exporter-toolkit/web"
	"go.uber.org/zap"

	"github.com/startupd/startupd/internal/app"
	"github.com/startupd/startupd/internal/demo"
	"github.com/startupd/startupd/pkg/event"
	"github.com/startupd/startupd/pkg/history"
)

// daemon is a running app whose journal the test writes.
type daemon struct {
	base    string
	clock   event.Clock
	batches chan []event.Event
	done    chan struct{}
	stop    func()
}

func flags(addr string) *web.FlagConfig {
	socket, file := false, ""
	return &web.FlagConfig{WebListenAddresses: &[]string{addr}, WebSystemdSocket: &socket, WebConfigFile: &file}
}

func clock(t *testing.T) event.Clock {
	t.Helper()
	c, err := app.SystemClock()
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// begin starts an app on addr that watches the units.
func begin(t *testing.T, addr string, units ...string) *daemon {
	t.Helper()
	d := &daemon{clock: clock(t), batches: make(chan []event.Event), done: make(chan struct{}, 1)}
	d.run(t, addr, units, d.feed)
	d.play(t, &event.SourceState{Source: event.SourceJournal, Up: true, State: "up"})
	return d
}

// beginDemo starts an app that plays the recorded restart.
func beginDemo(t *testing.T, speed float64, through func(app.Emit) app.Emit) *daemon {
	t.Helper()
	d := &daemon{clock: clock(t)}
	src, err := demo.New(demo.Options{Speed: speed, Clock: d.clock, Linger: true})
	if err != nil {
		t.Fatal(err)
	}
	d.run(t, "127.0.0.1:0", src.Info().Targets, func(ctx context.Context, emit app.Emit) error {
		if through != nil {
			emit = through(emit)
		}
		return src.Run(ctx, emit)
	})
	return d
}

func (d *daemon) run(t *testing.T, addr string, units []string, feed func(context.Context, app.Emit) error) {
	t.Helper()
	addrs := make(chan []net.Addr, 1)
	a, err := app.New(app.Options{
		Units: units, Web: flags(addr), Log: zap.NewNop(), Clock: d.clock, Version: "1.0",
		StateDir: t.TempDir(), History: history.Limits{MaxStartups: 20},
		Feeds:   []app.Feed{{Name: event.SourceJournal, Run: feed}},
		Started: func(as []net.Addr) { addrs <- as },
	})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- a.Run(ctx) }()
	d.stop = sync.OnceFunc(func() { cancel(); <-ended })
	t.Cleanup(d.stop)
	select {
	case as := <-addrs:
		d.base = "http://" + as[0].String()
	case err := <-ended:
		ended <- err
		t.Fatal("the app did not start: ", err)
	}
}

func (d *daemon) feed(ctx context.Context, emit app.Emit) error {
	for {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case b := <-d.batches:
			if err := emit(ctx, b); err != nil {
				return err
			}
			d.done <- struct{}{}
		}
	}
}

// play returns once what is said of the host is applied.
func (d *daemon) play(t *testing.T, data ...event.Data) { t.Helper(); d.playFor(t, "", data...) }

// playFor returns once what is said of the unit is applied.
func (d *daemon) playFor(t *testing.T, unit string, data ...event.Data) {
	t.Helper()
	var events []event.Event
	now := d.clock()
	for _, one := range data {
		events = append(events, event.Event{At: now, Target: unit, Data: one})
	}
	events = append(events, event.Event{At: now, Data: &event.Watermark{}})
	select {
	case d.batches <- events:
		<-d.done
	case <-t.Context().Done():
		t.Fatal("the app takes no events")
	}
}

// invocation is the ID of a unit's nth start.
func invocation(unit string, n int) string { return fmt.Sprintf("%x%02d", unit, n) }

// start begins the unit's nth start.
func (d *daemon) start(t *testing.T, unit string, n int) {
	t.Helper()
	d.playFor(t, unit, &event.UnitMessage{Message: event.Starting, Invocation: invocation(unit, n)})
}

// say writes lines of the unit's own log.
func (d *daemon) say(t *testing.T, unit string, n int, lines ...string) {
	t.Helper()
	var data []event.Data
	for i, text := range lines {
		data = append(data, &event.Line{
			Text: text, Invocation: invocation(unit, n), PID: 100, Origin: event.OriginUnit, Cursor: fmt.Sprintf("s=5eed;i=%x", i),
		})
	}
	d.playFor(t, unit, data...)
}

// fail ends the main process of the unit's nth start.
func (d *daemon) fail(t *testing.T, unit string, n int) {
	t.Helper()
	d.playFor(t, unit,
		&event.UnitMessage{Message: event.ProcessExit, Command: "ExecStart", ExitCode: "exited", ExitStatus: "1", Invocation: invocation(unit, n), PID: 100},
		&event.UnitMessage{Message: event.FailureResult, Result: "exit-code", Invocation: invocation(unit, n)})
}
