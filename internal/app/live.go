package app

import (
	"context"
	"errors"

	"go.uber.org/zap"

	"github.com/startupd/startupd/pkg/event"
	"github.com/startupd/startupd/pkg/gpu"
	"github.com/startupd/startupd/pkg/health"
	"github.com/startupd/startupd/pkg/host"
	"github.com/startupd/startupd/pkg/journal"
	"github.com/startupd/startupd/pkg/monitor"
	"github.com/startupd/startupd/pkg/phases"
	"github.com/startupd/startupd/pkg/unit"
)

// live are the sources that watch this host.
type live struct {
	journal *journal.Source
	unit    *unit.Source
	// gpu is nil when NVML is turned off.
	gpu    *gpu.Source
	host   *host.Source
	health *health.Source
	saver  *saver
	log    *zap.Logger
}

// newLive makes the sources; none runs yet. serves tells the journal's source
// when a back-fill has come far enough.
func newLive(o *Options, s *settings, sv *saver, serves func(unit string) bool) (*live, error) {
	j, err := journal.New(journal.Options{
		Reader: o.Journal, Targets: s.journalSpecs(), Resume: sv.state.Position, Served: serves, Clock: o.Clock,
	})
	if err != nil {
		return nil, badConfig("%v", err)
	}
	sv.applied = j.Applied
	l := &live{
		journal: j, saver: sv, log: o.Log,
		unit: unit.New(unit.Options{
			Clock: o.Clock, Logger: o.Log.Named(event.SourceUnit), MaxFound: phases.LiveLimits().Units,
		}),
		health: health.New(health.Options{Clock: o.Clock, Logger: o.Log.Named(event.SourceHealth)}),
		host:   host.New(host.Options{Clock: o.Clock}),
	}
	if !o.NoGPU {
		l.gpu = gpu.New(gpu.Options{Command: o.GPUReader, Clock: o.Clock, Log: o.Log.Named(event.SourceGPU).Sugar().Infow})
	}
	return l, l.setUnits(s)
}

// feeds are the sources to run.
func (l *live) feeds(loop *monitor.Loop) []Feed {
	fs := []Feed{
		{event.SourceJournal, func(ctx context.Context, emit Emit) error { return l.journal.Run(ctx, l.saver.wrap(emit, loop)) }},
		{event.SourceUnit, l.unit.Run},
		{event.SourceHost, l.host.Run},
		{event.SourceHealth, l.health.Run},
	}
	if l.gpu != nil {
		fs = append(fs, Feed{event.SourceGPU, l.gpu.Run})
	}
	return fs
}

// setTargets takes over a reloaded configuration.
func (l *live) setTargets(s *settings) error {
	return errors.Join(l.setUnits(s), l.journal.SetTargets(s.journalSpecs()))
}

func (l *live) setUnits(s *settings) error {
	var units []unit.Target
	var globs []string
	for _, t := range s.targets {
		if t.Glob() {
			globs = append(globs, t.Unit)
		} else {
			units = append(units, unit.Target{Unit: t.Unit})
		}
	}
	return l.unit.SetTargets(units, globs)
}

// steer applies what the present snapshot asks of the sources.
func (l *live) steer(w wishes) error {
	l.journal.SetFast(w.starting)
	l.host.SetInterval(w.interval)
	l.host.SetTargets(w.vitals)
	if l.gpu != nil {
		l.gpu.SetInterval(w.interval)
	}
	err := l.health.SetTargets(w.probes)
	for name, d := range w.probeEvery {
		l.health.SetInterval(name, d)
	}
	if err != nil {
		return errors.Join(errors.New("an engine tells an address that can't be probed; set health.url in --config.file"), err)
	}
	return nil
}
