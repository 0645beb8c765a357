// Package exporter turns the core's Snapshot into Prometheus metrics: it owns
// the names, labels and types on /metrics, which docs/METRICS.md lists.
//
// It reads immutable snapshots only. It must not know a source or the monitor,
// keep state between scrapes, block, or make up a number: what is not known is
// absent.
package exporter

import (
	"runtime"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/startupd/startupd/pkg/event"
	"github.com/startupd/startupd/pkg/phases"
)

// Options are what a Collector reads.
type Options struct {
	// Snapshot returns the present snapshot, or nil when there is none yet. It
	// is called once a scrape and must not block.
	Snapshot func() *phases.Snapshot
	// Clock measures what still runs at the moment of the scrape.
	Clock event.Clock
	// KnowsClass says whether the catalogue of failures has a class; an error of
	// any other is exported as class unknown, as is every one when this is nil. It
	// is called for each class and scrape, and must not block.
	KnowsClass func(class string) bool
	// NoRootCauseMessage leaves out startupd_root_cause_message_info, which holds text
	// of the log.
	NoRootCauseMessage bool
	// Build is exported as startupd_build_info.
	Build Build
}

// Build says which build of startupd runs.
type Build struct {
	Version, Revision string
	// GoVersion is runtime.Version() when empty.
	GoVersion string
}

// Collector is a prometheus.Collector over snapshots. It holds no metric of
// its own, so any number of scrapes may run at once.
type Collector struct {
	opts     Options
	families *families
}

var _ prometheus.Collector = (*Collector)(nil)

// New returns a Collector. The caller registers it with a registry of its own.
func New(opts Options) *Collector {
	if opts.Build.GoVersion == "" {
		opts.Build.GoVersion = runtime.Version()
	}
	if opts.KnowsClass == nil {
		opts.KnowsClass = func(string) bool { return false }
	}
	return &Collector{opts: opts, families: newFamilies()}
}

// Describe implements prometheus.Collector.
func (c *Collector) Describe(ch chan<- *prometheus.Desc) {
	for _, d := range c.families.all {
		ch <- d
	}
}

// Collect implements prometheus.Collector.
func (c *Collector) Collect(ch chan<- prometheus.Metric) {
	s := scrape{families: c.families, ch: ch, knows: c.opts.KnowsClass}
	b := c.opts.Build
	s.send(s.buildInfo, 1, b.Version, b.Revision, b.GoVersion)
	snap := c.opts.Snapshot()
	if snap == nil {
		return
	}
	s.now = c.opts.Clock()
	if s.now.IsZero() || s.now.Before(snap.At) {
		// The clock went back, or a replay is ahead of it: nothing that the
		// snapshot already counted may shrink.
		s.now = snap.At
	}
	for i := range snap.Targets {
		s.target(&snap.Targets[i])
		if !c.opts.NoRootCauseMessage {
			s.message(&snap.Targets[i])
		}
	}
	for i := range snap.GPUs {
		s.gpu(&snap.GPUs[i])
	}
	s.xids(snap.Xids)
	for _, src := range snap.Sources {
		s.source(src)
	}
}
