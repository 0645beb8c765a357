// Package app is the one place that knows every part of startupd: it wires the
// sources, the core and the servers, starts and stops them, and reloads.
//
// It must not decide anything about phases, end the process, or read flags and
// the environment: those are cmd/startupd's.
package app

import (
	"context"
	"errors"
	"fmt"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"go.uber.org/zap"

	"github.com/startupd/startupd/pkg/event"
	"github.com/startupd/startupd/pkg/monitor"
	"github.com/startupd/startupd/pkg/phases"
	"github.com/startupd/startupd/pkg/web"
)

// stopTimeout bounds a stop: what hangs is left behind and named.
const stopTimeout = 10 * time.Second

// aliveFor is how old the main loop's last turn may be. It turns every second.
const aliveFor = 10 * time.Second

// App is one daemon. Make it with New and run it once.
type App struct {
	opt Options
	// log leaves out what repeats too often; said is for lines that bound
	// themselves.
	log, said *zap.Logger
	flood     *flood
	settings  atomic.Pointer[settings]
	host      *phases.Host
	loop      *monitor.Loop
	notify    *notifier
	saver     *saver
	history   *historian
	live      *live
	hub       *web.Hub
	// diary is nil in a replay, whose player tells of the starts himself.
	diary *diary
	// turned is when the main loop last turned.
	turned atomic.Pointer[time.Time]
	// reloading is held by the one reload that runs.
	reloading sync.Mutex
}

// New reads configuration and state and starts nothing. An ErrConfig tells the
// operator what to mend.
func New(o Options) (*App, error) {
	s, err := o.load()
	if err != nil {
		return nil, err
	}
	said, f := o.Log, &flood{}
	o.Log = f.limit(said)
	a := &App{opt: o, log: o.Log, said: said, flood: f, notify: &notifier{send: o.Notify, log: o.Log}}
	a.settings.Store(s)
	a.saver = newSaver(o.StateDir, o.Clock, o.Log)
	a.history = newHistorian(&o)
	a.hub = a.newHub()
	a.host = phases.NewHost(phases.HostOptions{
		Journal: o.Feeds == nil, Foreign: o.Journal.Dir != "", Resolve: a.resolve, Limits: phases.LiveLimits(),
		Finished: a.finished(), Transition: a.hub.Transition,
	}, s.configs(a.saver.state.Installed)...)
	a.host.Restore(a.saver.state.Saved)
	a.loop = monitor.New(monitor.Options{Host: a.host, Clock: o.Clock, OnTurn: a.turn})
	a.turn()
	if o.Feeds == nil {
		a.diary = newDiary(a.said)
		if a.live, err = newLive(&a.opt, s, a.saver, a.serves); err != nil {
			return nil, err
		}
	}
	return a, nil
}

// resolve configures a unit that a glob brought. The core calls it. A name that no
// unit can have is none: it would be a label of metrics.
func (a *App) resolve(unit string) (phases.Config, bool) {
	if !validUnit(unit) {
		return phases.Config{}, false
	}
	return a.settings.Load().config(unit, a.saver.state.Installed)
}

func (a *App) turn() {
	now := time.Now()
	a.turned.Store(&now)
	a.hub.Turned()
}

func (a *App) alive() bool { return time.Since(*a.turned.Load()) < aliveFor }

// ready says that the journal's source has told whether it can see.
func (a *App) ready() bool { return began(a.loop.Snapshot()) }

func began(snap *phases.Snapshot) bool {
	for _, s := range snap.Sources {
		if s.Source == event.SourceJournal && s.Target == "" {
			return true
		}
	}
	return false
}

// pulse returns once the main loop has turned.
func (a *App) pulse(ctx context.Context) error { return a.loop.Do(ctx, func(*phases.Host) {}) }

// serves says that a unit serves, so that older entries of it tell nothing.
func (a *App) serves(unit string) bool {
	for _, t := range a.loop.Snapshot().Targets {
		if t.Name == unit {
			return t.State == phases.Serving
		}
	}
	return false
}

// Snapshot is the newest published state; never nil.
func (a *App) Snapshot() *phases.Snapshot { return a.loop.Snapshot() }

// Run serves until ctx ends, which is no error, or until a part that the rest
// needs has failed. It stops what it started, also after a failed start.
func (a *App) Run(ctx context.Context) (err error) {
	r := &runner{failed: make(chan error, 1)}
	defer func() {
		stop, cancel := context.WithTimeoutCause(context.WithoutCancel(ctx), stopTimeout, fmt.Errorf("not done within %s", stopTimeout))
		defer cancel()
		err = errors.Join(err, r.down.run(stop))
	}()
	if err := a.start(ctx, r); err != nil {
		return err
	}
	select {
	case <-ctx.Done():
		return nil
	case err := <-r.failed:
		return err
	}
}

// start brings everything up; what it brought up is on r's stack, to be taken
// down in the opposite order.
func (a *App) start(ctx context.Context, r *runner) error {
	// Addresses first: a port in use must not cost a back-fill.
	addrs, serve, err := a.listen(ctx, r)
	if err != nil {
		return err
	}
	r.start(ctx, "main loop", a.loop.Run)
	// Between the loop and the sources: the last save needs the loop, and comes
	// when no source adds to it any more.
	r.start(ctx, "state", a.saver.run)
	r.down.push("last save", func(ctx context.Context) error { return a.saver.last(ctx, a.loop) })
	// Before the first line: what it is compared with.
	if err := a.history.meet(ctx, a.loop.Snapshot(), a.emit); err != nil {
		return err
	}
	r.start(ctx, "history", func(ctx context.Context) error { return a.history.run(ctx, a.loop.Subscribe(ctx), a.emit) })
	for _, f := range a.feeds() {
		r.start(ctx, f.Name, func(ctx context.Context) error { return a.feed(ctx, f) })
	}
	r.start(ctx, "feedback", a.follow)
	r.start(ctx, "events", func(ctx context.Context) error { return a.hub.Run(ctx, a.loop.Subscribe(ctx)) })
	serve()
	a.greet(addrs)
	if a.opt.Watchdog > 0 {
		r.start(ctx, "watchdog", func(ctx context.Context) error { return watchdog(ctx, a.opt.Watchdog, a.pulse, a.notify) })
	}
	r.down.push("notify", func(context.Context) error { a.notify.say("STOPPING=1"); return nil })
	if a.opt.Started != nil {
		a.opt.Started(addrs)
	}
	return nil
}

func (a *App) feeds() []Feed {
	if a.live != nil {
		return a.live.feeds(a.loop)
	}
	return a.opt.Feeds
}

func (a *App) emit(ctx context.Context, events []event.Event) error { return a.loop.Emit(ctx, events) }

// feed runs a source. Without the journal startupd is blind, and the service
// manager should start it anew; any other source may fail for itself.
func (a *App) feed(ctx context.Context, f Feed) error {
	err := f.Run(ctx, a.emit)
	if err == nil || ctx.Err() != nil {
		return nil
	}
	if f.Name == event.SourceJournal {
		return err
	}
	a.log.Error("A source has failed and stays off; restart startupd to try again", zap.String("source", f.Name), zap.Error(err))
	return a.emit(ctx, []event.Event{{At: a.opt.Clock(), Data: &event.SourceState{Source: f.Name, State: "failed", Reason: err.Error()}}})
}

// Reload re-reads configuration and profiles. A bad one is refused, and the old
// one stays. Units that remain keep their state.
func (a *App) Reload(ctx context.Context) error {
	a.reloading.Lock()
	defer a.reloading.Unlock()
	a.notify.say(fmt.Sprintf("RELOADING=1\nMONOTONIC_USEC=%d", a.opt.Clock().Mono.Microseconds()))
	defer a.notify.say("READY=1")
	err := a.apply(ctx)
	if err != nil {
		a.log.Error("Reload refused, the old configuration stays", zap.Error(err))
		return err
	}
	a.log.Info("Configuration reloaded", zap.Int("targets", len(a.settings.Load().targets)))
	return nil
}

func (a *App) apply(ctx context.Context) error {
	next, err := a.opt.load()
	if err != nil {
		return err
	}
	// The core first: it drops events of units that it does not know.
	err = a.loop.Do(ctx, func(h *phases.Host) {
		a.settings.Store(next)
		h.SetTargets(next.configs(a.saver.state.Installed))
	})
	if err != nil || a.live == nil {
		return err
	}
	return a.live.setTargets(next)
}

// listen opens the sockets that are asked for. serve begins to answer on them.
func (a *App) listen(ctx context.Context, r *runner) (addrs []net.Addr, serve func(), err error) {
	if a.opt.Web == nil && a.opt.APISocket == "" {
		return nil, func() {}, nil
	}
	w, err := a.newWeb()
	if err != nil {
		return nil, nil, err
	}
	if err := w.open(ctx); err != nil {
		return nil, nil, err
	}
	r.down.push("sockets", w.close)
	return w.addrs(), func() { w.serve(ctx, r) }, nil
}
