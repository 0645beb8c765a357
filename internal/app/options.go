package app

import (
	"context"
	"net"
	"os"
	"time"

	"github.com/prometheus/exporter-toolkit/web"
	"go.uber.org/zap"

	"github.com/startupd/startupd/pkg/event"
	"github.com/startupd/startupd/pkg/history"
	"github.com/startupd/startupd/pkg/journal"
	"github.com/startupd/startupd/pkg/phases"
	"github.com/startupd/startupd/pkg/profile"
)

// Emit hands events to the core and returns once they are applied.
type Emit = func(context.Context, []event.Event) error

// Feed is a source that an App runs.
type Feed struct {
	// Name is one of the event.Source names, or any other.
	Name string
	// Run delivers events until ctx ends or there are no more.
	Run func(ctx context.Context, emit Emit) error
}

// Options are what an App needs. Nothing is read from the environment, so that
// several apps can live in one process.
type Options struct {
	// Units and ConfigFile name the targets; at least one of both is needed.
	Units      []string
	ConfigFile string
	// ProfileDir holds profiles of the operator's own; "" is none.
	ProfileDir string
	// Journal says how the journal is read.
	Journal journal.Reader
	// StateDir keeps counters and the journal's position over restarts; "" keeps
	// nothing.
	StateDir string
	// History bounds the finished startups kept in StateDir; the zero value keeps
	// none.
	History history.Limits
	// NoGPU turns NVML off. GPUReader is the command line of a process that
	// calls gpu.RunReader.
	NoGPU     bool
	GPUReader []string
	// Feeds replace the live sources; nil means live.
	Feeds []Feed

	// Web are the addresses, TLS and passwords; nil serves nothing, the socket
	// neither. Lifecycle lets POST /-/reload re-read the configuration.
	Web       *web.FlagConfig
	Lifecycle bool
	// NoRootCauseMessage keeps the root cause's text off /metrics.
	NoRootCauseMessage bool
	// APISocket is the unix socket for the command line; "" is none. Without
	// APISocketRequired a socket that can't be opened is only logged.
	APISocket         string
	APISocketRequired bool

	Log   *zap.Logger
	Clock event.Clock
	// Notify sends a state to the service manager; nil when there is none.
	Notify func(state string) error
	// Watchdog is the service manager's interval; 0 is none.
	Watchdog time.Duration
	// Version and Revision are shown.
	Version, Revision string

	// Started is called once with the addresses listened on; nil is allowed.
	Started func([]net.Addr)
	// Changed is called with each new snapshot, or with the newest of several;
	// nil is allowed. It must not block for long.
	Changed func(*phases.Snapshot)
}

// settings is what a reload replaces. It is immutable.
type settings struct {
	targets  []Target
	profiles *profile.Set
	// elsewhere is true where the journal may be another host's.
	elsewhere bool
}

// LoadProfiles returns the built-in profiles and those in dir ("" is none). An
// error is an ErrConfig.
func LoadProfiles(dir string) (*profile.Set, error) {
	set, err := profile.Builtin()
	if err != nil || dir == "" {
		return set, err
	}
	set, err = set.Extend(os.DirFS(dir))
	if err != nil {
		return nil, badConfig("--profile.dir %s: %v", dir, err)
	}
	return set, nil
}

func (o *Options) load() (*settings, error) {
	set, err := LoadProfiles(o.ProfileDir)
	if err != nil {
		return nil, err
	}
	var engines []string
	for _, p := range set.Profiles() {
		engines = append(engines, p.Engine)
	}
	ts, err := LoadTargets(o.Units, o.ConfigFile, engines)
	if err != nil {
		return nil, err
	}
	s := &settings{targets: ts, profiles: set, elsewhere: o.Journal.Dir != ""}
	for _, spec := range s.journalSpecs() {
		if err := spec.Validate(); err != nil {
			return nil, badConfig("%v", err)
		}
	}
	return s, nil
}

// knowsClass says whether a profile's catalogue has a class of failure.
func (s *settings) knowsClass(class string) bool {
	for _, p := range s.profiles.Profiles() {
		if _, ok := p.Classes[class]; ok {
			return true
		}
	}
	return false
}

// find returns the target that a unit belongs to: the one that names it, else
// the first glob that matches.
func (s *settings) find(unit string) (Target, bool) {
	for _, glob := range []bool{false, true} {
		for _, t := range s.targets {
			if t.Glob() == glob && t.matches(unit) {
				return t, true
			}
		}
	}
	return Target{}, false
}

// config is what the core must know of a unit.
func (s *settings) config(unit string, countFrom event.Stamp) (phases.Config, bool) {
	t, ok := s.find(unit)
	return phases.Config{
		Name: unit, Profile: s.profiles.Profile(t.Profile), Profiles: s.profiles.Profiles(),
		ExpectedWeightBytes: t.WeightBytes, GPUs: t.GPUs, Container: t.Container, Cgroup: t.Cgroup,
		CountFrom: countFrom,
	}, ok
}

// configs are those of the units named in full.
func (s *settings) configs(countFrom event.Stamp) []phases.Config {
	var cs []phases.Config
	for _, t := range s.targets {
		if !t.Glob() {
			c, _ := s.config(t.Unit, countFrom)
			cs = append(cs, c)
		}
	}
	return cs
}

// journalSpecs say which entries belong to the targets: the unit's own, and
// those of the container or control group that it runs its engine in.
func (s *settings) journalSpecs() []journal.TargetSpec {
	var specs []journal.TargetSpec
	for _, t := range s.targets {
		name := t.Unit
		if t.Glob() {
			name = ""
		}
		specs = append(specs, journal.TargetSpec{Name: name, Unit: t.Unit})
		if t.Container != "" {
			specs = append(specs, journal.TargetSpec{Name: name, Container: t.Container})
		}
		if t.Cgroup != "" {
			specs = append(specs, journal.TargetSpec{Name: name, Cgroup: t.Cgroup})
		}
	}
	return specs
}
