package app

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/startupd/startupd/pkg/health"
	"github.com/startupd/startupd/pkg/host"
	"github.com/startupd/startupd/pkg/phases"
	"github.com/startupd/startupd/pkg/profile"
)

// engineOf returns the name of a built-in profile that has a health endpoint.
func engineOf(t *testing.T, set *profile.Set) *profile.Profile {
	t.Helper()
	for _, p := range set.Profiles() {
		if p.Health.Path != "" {
			return p
		}
	}
	t.Fatal("no built-in profile has a health path")
	return nil
}

func TestWish(t *testing.T) {
	set, err := LoadProfiles("")
	if err != nil {
		t.Fatal(err)
	}
	p := engineOf(t, set)
	told := phases.Engine{Name: p.Engine, Host: "0.0.0.0", Port: 9000}
	elsewhere := "the journal of another host"
	derived := health.Target{
		Name: "a.service", URL: "http://127.0.0.1:9000" + p.Health.Path,
		ReadyCodes: p.Health.Ready, NotReadyCodes: p.Health.NotReady, OnlyLocal: true,
	}
	tests := []struct {
		name   string
		conf   Target
		target phases.Target
		probe  *health.Target
		vitals []host.Target
	}{
		{name: "nothing seen", target: phases.Target{State: phases.Unknown}},
		{name: "told by the log", target: phases.Target{State: phases.Load, Startup: &phases.Startup{Engine: told}}, probe: &derived},
		{name: "still probed while it serves", target: phases.Target{State: phases.Serving, Startup: &phases.Startup{Engine: told}}, probe: &derived},
		{name: "gone", target: phases.Target{State: phases.Failed, Startup: &phases.Startup{Engine: told}}},
		{name: "no port told", target: phases.Target{State: phases.Spawn, Startup: &phases.Startup{Engine: phases.Engine{Name: p.Engine}}}},
		{name: "no engine told", target: phases.Target{State: phases.Spawn, Startup: &phases.Startup{Engine: phases.Engine{Port: 9000}}}},
		{name: "turned off", conf: Target{Health: Health{None: true}}, target: phases.Target{State: phases.Load, Startup: &phases.Startup{Engine: told}}},
		{name: elsewhere, target: phases.Target{State: phases.Load, Startup: &phases.Startup{Engine: told}}},
		{name: "in a container", conf: Target{Container: "llm"}, target: phases.Target{State: phases.Load, Startup: &phases.Startup{Engine: told}}},
		{
			name: "configured", conf: Target{Container: "llm", Health: Health{URL: "https://127.0.0.1:1/ok", Insecure: true}},
			target: phases.Target{State: phases.Spawn, Startup: &phases.Startup{}},
			probe:  &health.Target{Name: "a.service", URL: "https://127.0.0.1:1/ok", Insecure: true},
		},
		{
			name: "vital signs", target: phases.Target{State: phases.Spawn, MainPID: 7, ControlGroup: "/system.slice/a.service"},
			vitals: []host.Target{{Name: "a.service", MainPID: 7, ControlGroup: "/system.slice/a.service"}},
		},
		{
			name:   "vital signs of the container that was found",
			target: phases.Target{State: phases.Spawn, MainPID: 7, ControlGroup: "/system.slice/a.service", EngineCgroup: "/system.slice/docker-1.scope"},
			vitals: []host.Target{{Name: "a.service", MainPID: 7, ControlGroup: "/system.slice/docker-1.scope"}},
		},
		{
			name: "vital signs of a configured group", conf: Target{Cgroup: "/pod"}, target: phases.Target{State: phases.Spawn, MainPID: 7},
			vitals: []host.Target{{Name: "a.service", MainPID: 7, ControlGroup: "/pod"}},
		},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			tt.conf.Unit, tt.target.Name = "a.service", "a.service"
			s := &settings{targets: []Target{tt.conf}, profiles: set, elsewhere: tt.name == elsewhere}
			w := s.wish(&phases.Snapshot{Targets: []phases.Target{tt.target}})
			var want []health.Target
			if tt.probe != nil {
				want = []health.Target{*tt.probe}
			}
			if diff := cmp.Diff(want, w.probes); diff != "" {
				t.Errorf("probes: %s", diff)
			}
			if diff := cmp.Diff(tt.vitals, w.vitals); diff != "" {
				t.Errorf("vital signs: %s", diff)
			}
		})
	}
}

func TestWishIntervals(t *testing.T) {
	set, err := LoadProfiles("")
	if err != nil {
		t.Fatal(err)
	}
	url := Health{URL: "http://127.0.0.1:1/"}
	s := &settings{targets: []Target{{Unit: "a.service", Health: url}, {Unit: "b.service", Health: url}}, profiles: set}
	confirmed := true
	snap := func(a, b phases.State) *phases.Snapshot {
		return &phases.Snapshot{Targets: []phases.Target{
			{Name: "a.service", State: a, Startup: &phases.Startup{}, Ready: phases.Ready{Health: &confirmed}}, {Name: "b.service", State: b, Startup: &phases.Startup{}},
		}}
	}
	w := s.wish(snap(phases.Serving, phases.CUDAGraph))
	if !w.starting || w.interval != time.Second || w.probeEvery["a.service"] != 10*time.Second || w.probeEvery["b.service"] != time.Second {
		t.Errorf("one starts: %+v", w)
	}
	if w := s.wish(snap(phases.Serving, phases.Stopped)); w.starting || w.interval != 10*time.Second {
		t.Errorf("none starts: %+v", w)
	}
	confirmed = false
	if w := s.wish(snap(phases.Serving, phases.Stopped)); w.probeEvery["a.service"] != time.Second {
		t.Errorf("the log alone calls it ready: probed every %s, want 1s", w.probeEvery["a.service"])
	}
}

func TestSettingsFind(t *testing.T) {
	s := &settings{targets: []Target{{Unit: "llm-*.service", Profile: "glob"}, {Unit: "llm-a.service", Profile: "full"}}}
	for unit, want := range map[string]string{"llm-a.service": "full", "llm-b.service": "glob", "other.service": ""} {
		got, ok := s.find(unit)
		if got.Profile != want || ok != (want != "") {
			t.Errorf("%s: %q, %v", unit, got.Profile, ok)
		}
	}
}
