package app

import (
	"cmp"
	"context"
	"reflect"
	"time"

	"go.uber.org/zap"

	"github.com/startupd/startupd/pkg/health"
	"github.com/startupd/startupd/pkg/host"
	"github.com/startupd/startupd/pkg/phases"
)

// How often things are looked at while a unit starts, and otherwise.
const (
	lookWhileStarting = time.Second
	lookWhileQuiet    = 10 * time.Second
)

// readyWithin is when the service manager is told READY=1 at the latest.
const readyWithin = 15 * time.Second

// wishes are what a snapshot asks of the sources.
type wishes struct {
	// starting says that a unit starts, so that entries are wanted at once.
	starting bool
	interval time.Duration
	vitals   []host.Target
	probes   []health.Target
	// probeEvery holds the pause between probes, by target.
	probeEvery map[string]time.Duration
}

func starting(snap *phases.Snapshot) bool {
	for _, t := range snap.Targets {
		if t.State.Starting() {
			return true
		}
	}
	return false
}

// unconfirmed says that the log calls a server ready and the probe does not yet.
func unconfirmed(t phases.Target) bool {
	return t.State == phases.Serving && (t.Ready.Health == nil || !*t.Ready.Health)
}

func pause(starting bool) time.Duration {
	if starting {
		return lookWhileStarting
	}
	return lookWhileQuiet
}

// wish derives the wishes from what is known now.
func (s *settings) wish(snap *phases.Snapshot) wishes {
	w := wishes{starting: starting(snap), probeEvery: map[string]time.Duration{}}
	w.interval = pause(w.starting)
	for _, t := range snap.Targets {
		conf, ok := s.find(t.Name)
		if !ok {
			continue
		}
		group := cmp.Or(conf.Cgroup, t.EngineCgroup, t.ControlGroup)
		if group != "" || t.MainPID != 0 {
			w.vitals = append(w.vitals, host.Target{Name: t.Name, ControlGroup: group, MainPID: t.MainPID})
		}
		if p, ok := s.probe(conf, t); ok {
			w.probes = append(w.probes, p)
			w.probeEvery[t.Name] = pause(t.State.Starting() || unconfirmed(t))
		}
	}
	return w
}

// probe says how a target is asked whether it is ready: by the configured URL,
// or where its engine's log says that it will listen.
func (s *settings) probe(conf Target, t phases.Target) (health.Target, bool) {
	p := health.Target{Name: t.Name, URL: conf.Health.URL, Insecure: conf.Health.Insecure}
	if conf.Health.None || t.Startup == nil {
		return p, false
	}
	e := t.Startup.Engine
	prof := s.profiles.Profile(e.Name)
	if prof != nil {
		p.ReadyCodes, p.NotReadyCodes = prof.Health.Ready, prof.Health.NotReady
	}
	if p.URL != "" {
		return p, true
	}
	// What is told inside a container, or on the host that a journal was copied
	// from, holds there. An engine that is gone leaves its port to others.
	if s.elsewhere || conf.Container != "" || conf.Cgroup != "" || t.State == phases.Failed || t.State == phases.Stopped {
		return p, false
	}
	if prof == nil || prof.Health.Path == "" || e.Port == 0 {
		return p, false
	}
	u, err := health.URLFromListen(e.Host, e.Port, prof.Health.Path)
	p.URL, p.OnlyLocal = u, true
	return p, err == nil
}

// writeDue is how often it is looked whether lines that were held back are due.
const writeDue = 10 * time.Second

// follow steers the sources and tells the service manager, as snapshots come.
func (a *App) follow(ctx context.Context) error {
	var last wishes
	var complaint string
	// A back-fill that takes long is no failed start of ours.
	late := time.After(readyWithin)
	told := false
	ready := func() {
		if !told {
			told = true
			a.notify.say("READY=1")
		}
	}
	defer a.diary.finish()
	sources := newSourceLog(a.said)
	due := time.NewTicker(writeDue)
	defer due.Stop()
	snaps := a.loop.Subscribe(ctx)
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-late:
			ready()
		case <-due.C:
			sources.write(a.loop.Snapshot())
			a.diary.again()
			a.flood.report(a.said)
		case snap := <-snaps:
			if w := a.settings.Load().wish(snap); a.live != nil && !reflect.DeepEqual(w, last) {
				last = w
				complaint = a.steer(w, complaint)
			}
			if began(snap) {
				ready()
			}
			a.notify.show(statusText(snap))
			sources.write(snap)
			a.diary.write(snap)
			if a.opt.Changed != nil {
				a.opt.Changed(snap)
			}
		}
	}
}

// steer returns its complaint, so that the same one is logged once.
func (a *App) steer(w wishes, before string) string {
	err := a.live.steer(w)
	if err == nil {
		return ""
	}
	if err.Error() != before {
		a.log.Warn("A target is not probed", zap.Error(err))
	}
	return err.Error()
}
