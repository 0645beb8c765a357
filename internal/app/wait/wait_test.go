package wait

import (
	"context"
	"errors"
	"os"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/startupd/startupd/internal/app/observe"
	"github.com/startupd/startupd/pkg/phases"
	"github.com/startupd/startupd/pkg/web/api"
)

const (
	unit  = "llm.service"
	first = "11111111111111111111111111111111"
	other = "22222222222222222222222222222222"
	box   = "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef"
)

// scene is what a wait meets: views and answers of systemd at their times.
type scene struct {
	views map[time.Duration]api.Unit
	// unsettled are those of a past that is still being read.
	unsettled map[time.Duration]api.Unit
	units     map[time.Duration]Unit
	signals   map[time.Duration]os.Signal
	blind     time.Duration
	past      *api.Startup
	change    func(*Options)
}

func (s *scene) observe(ctx context.Context, see func(observe.Update) error) error {
	began := time.Now()
	for at := time.Duration(0); ; at += 10 * time.Millisecond {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(time.Until(began.Add(at))):
		}
		if s.blind > 0 && at >= s.blind {
			return errors.Join(observe.ErrBlind, errors.New("no right to read it"))
		}
		for i, views := range []map[time.Duration]api.Unit{s.views, s.unsettled} {
			if u, ok := views[at]; ok {
				u.Unit = unit
				status := &api.Status{Units: []api.Unit{u}}
				if err := see(observe.Update{Status: status, Daemon: true, Settled: i == 0}); err != nil {
					return err
				}
			}
		}
	}
}

func (s *scene) manager(began time.Time) func(context.Context) Unit {
	if s.units == nil {
		return nil
	}
	return func(context.Context) Unit {
		var last Unit
		newest := time.Duration(-1)
		for at, u := range s.units {
			if at <= time.Since(began) && at > newest {
				last, newest = u, at
			}
		}
		return last
	}
}

// run plays the scene on a clock of its own and returns when the wait ended.
func (s *scene) run(t *testing.T) (r *Result, took time.Duration) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		began := time.Now()
		signals := make(chan os.Signal, 1)
		for at, sig := range s.signals {
			time.AfterFunc(at, func() { signals <- sig })
		}
		o := Options{
			Unit: unit, For: phases.Serving, Timeout: time.Minute, StartTimeout: 10 * time.Second,
			Observe: s.observe, Manager: s.manager(began), Signals: signals,
			Past: func(context.Context, string) (*api.Startup, error) { return s.past, nil },
		}
		if s.change != nil {
			s.change(&o)
		}
		r = Run(t.Context(), o)
		took = time.Since(began)
	})
	return r, took
}

func starting(id, phase string) *api.Startup {
	return &api.Startup{Unit: unit, Invocation: id, Outcome: api.Starting, Phase: phase}
}

func serving(id string) *api.Startup {
	return &api.Startup{Unit: unit, Invocation: id, Outcome: api.Serving, Phase: api.Serving}
}

func failed(id, class string, exited bool) *api.Startup {
	return &api.Startup{Unit: unit, Invocation: id, Outcome: api.Failed, Phase: "load", Exited: exited, RootCause: &api.RootCause{Class: class, Provisional: true}}
}

func of(s *api.Startup) api.Unit { return api.Unit{Startup: s} }

// running is systemd's view of a unit that starts or serves.
func running(id string) Unit {
	return Unit{Known: true, Loaded: true, ActiveState: "active", Invocation: id}
}

func TestRun(t *testing.T) {
	pin := func(id string) func(*Options) { return func(o *Options) { o.Invocation = id } }
	inside := func(o *Options) { o.Invocation, o.Inside = first, true }
	gone := func(s *api.Startup, reason string) *api.Startup {
		s.ServingEnded, s.ServingEndReason = time.Unix(1, 0), reason
		return s
	}
	// Each key is a time since the wait began.
	const zero, second = time.Duration(0), time.Second
	for _, tt := range []struct {
		name     string
		scene    scene
		want     Verdict
		id       string
		min, max time.Duration
		reason   string
	}{
		{"serves already", scene{views: map[time.Duration]api.Unit{zero: of(serving(first))}, units: map[time.Duration]Unit{zero: running(first)}},
			Reached, first, 0, 20 * time.Millisecond, ""},
		{"serves later", scene{views: map[time.Duration]api.Unit{zero: of(starting(first, "load")), 5 * second: of(serving(first))}, units: map[time.Duration]Unit{zero: running(first)}},
			Reached, first, 5 * second, 5 * second, ""},
		{"an earlier phase is enough", scene{
			views: map[time.Duration]api.Unit{zero: of(starting(first, "spawn")), 2 * second: of(starting(first, "compile"))}, units: map[time.Duration]Unit{zero: running(first)},
			change: func(o *Options) { o.For = phases.Load }}, Reached, first, 2 * second, 2 * second, ""},
		{"fails", scene{views: map[time.Duration]api.Unit{zero: of(starting(first, "load")), 2 * second: of(failed(first, "gpu_oom", true))}, units: map[time.Duration]Unit{zero: running(first)}},
			Failed, first, 2*second + knownCause, 2*second + knownCause + lookEvery, ""},
		{"fails, and its cause comes later", scene{views: map[time.Duration]api.Unit{
			zero: of(failed(first, "unknown", true)), 300 * time.Millisecond: of(failed(first, "host_oom", true))}, units: map[time.Duration]Unit{zero: running(first)}},
			Failed, first, 300 * time.Millisecond, 400 * time.Millisecond, ""},
		{"fails by a line that progress takes back", scene{views: map[time.Duration]api.Unit{
			zero: of(failed(first, "gpu_oom", false)), 3 * second: of(starting(first, "load")), 6 * second: of(serving(first))}, units: map[time.Duration]Unit{zero: running(first)}},
			Reached, first, 6 * second, 6 * second, ""},
		{"fails by a line, and its process stays", scene{views: map[time.Duration]api.Unit{zero: of(failed(first, "gpu_oom", false))}, units: map[time.Duration]Unit{zero: running(first)}},
			Failed, first, takenBack, takenBack + lookEvery, ""},
		{"a wrapper starts the engine again", scene{views: map[time.Duration]api.Unit{
			zero: of(failed(first, "gpu_oom", false)), second: of(starting(first, "load")), 4 * second: of(serving(first))}, units: map[time.Duration]Unit{zero: running(first)}},
			Reached, first, 4 * second, 4 * second, ""},
		{"is stopped", scene{views: map[time.Duration]api.Unit{zero: of(&api.Startup{Invocation: first, Outcome: api.Stopped, Reason: "a stop was asked for"})}, units: map[time.Duration]Unit{zero: running(first)}},
			Stopped, first, 0, lookEvery, "a stop was asked for"},
		{"is being stopped, and its end is told before the unit's", scene{
			views: map[time.Duration]api.Unit{zero: of(starting(first, "load")), 3 * second: of(failed(first, "unknown", true))},
			units: map[time.Duration]Unit{zero: running(first), second: {Known: true, Loaded: true, ActiveState: "deactivating", Invocation: first, Job: "stop"}}},
			Stopped, first, 3 * second, 3*second + lookEvery, "a stop was asked for"},
		{"fails, and is then stopped", scene{
			views: map[time.Duration]api.Unit{zero: of(failed(first, "gpu_oom", true))},
			units: map[time.Duration]Unit{zero: {Known: true, Loaded: true, ActiveState: "deactivating", Invocation: first, Job: "stop"}}, change: pin(first)},
			Failed, first, knownCause, knownCause + 2*lookEvery, ""},
		{"stalls", scene{views: map[time.Duration]api.Unit{zero: of(starting(first, "load")), 7 * second: of(&api.Startup{Invocation: first, Outcome: api.Stalled, Phase: "load"})}, units: map[time.Duration]Unit{zero: running(first)}},
			Stalled, first, 7 * second, 7 * second, ""},
		{"served, and was killed", scene{views: map[time.Duration]api.Unit{zero: of(gone(serving(first), "killed"))}, units: map[time.Duration]Unit{zero: running(first)}},
			Failed, first, 0, lookEvery, "it served, and has been killed since"},
		{"takes too long", scene{views: map[time.Duration]api.Unit{zero: of(starting(first, "load"))}, units: map[time.Duration]Unit{zero: running(first)}},
			TimedOut, first, time.Minute, time.Minute, "the 1m0s to wait are over"},
		{"a past that is still being read proves nothing", scene{unsettled: map[time.Duration]api.Unit{zero: of(failed(first, "gpu_oom", true))},
			views: map[time.Duration]api.Unit{4 * second: of(serving(first))}, units: map[time.Duration]Unit{zero: running(first)}}, Reached, first, 4 * second, 4 * second, ""},
		{"the old start serves until the restart", scene{
			views: map[time.Duration]api.Unit{zero: of(serving(first)), 3 * second: {Startup: starting(other, "spawn"), Last: gone(serving(first), "stopped")}, 9 * second: {Startup: serving(other), Last: gone(serving(first), "stopped")}},
			units: map[time.Duration]Unit{zero: {Known: true, Loaded: true, ActiveState: "active", Invocation: first, Job: "restart"}, 3 * second: running(other)}},
			Reached, other, 9 * second, 9 * second, ""},
		{"a slow stop before the new start", scene{
			views: map[time.Duration]api.Unit{zero: of(serving(first)), 30 * second: of(serving(other))},
			units: map[time.Duration]Unit{zero: {Known: true, Loaded: true, ActiveState: "deactivating", Invocation: first, Job: "restart"}, 29 * second: running(other)}},
			Reached, other, 30 * second, 30 * second, ""},
		{"does not run", scene{views: map[time.Duration]api.Unit{zero: {}}, units: map[time.Duration]Unit{zero: {Known: true, Loaded: true, ActiveState: "inactive", Invocation: first}}},
			Stopped, "", 10 * second, 10*second + lookEvery, "it does not run, and was not started within 10s"},
		{"is started a little later", scene{views: map[time.Duration]api.Unit{zero: {}, 6 * second: of(serving(other))},
			units: map[time.Duration]Unit{zero: {Known: true, Loaded: true, ActiveState: "inactive", Invocation: first}, 5 * second: running(other)}}, Reached, other, 6 * second, 6 * second, ""},
		{"has failed before", scene{views: map[time.Duration]api.Unit{zero: of(failed(first, "gpu_oom", true))}, units: map[time.Duration]Unit{zero: {Known: true, Loaded: true, ActiveState: "failed", Invocation: first, Result: "exit-code"}}},
			Failed, first, knownCause, knownCause + 2*lookEvery, ""},
		{"may not be started any more", scene{views: map[time.Duration]api.Unit{zero: of(failed(first, "gpu_oom", true))}, units: map[time.Duration]Unit{zero: {Known: true, Loaded: true, ActiveState: "failed", Invocation: first, Result: "start-limit-hit"}}},
			Failed, first, knownCause, knownCause + 2*lookEvery, "systemctl reset-failed llm.service"},
		{"has failed, and its log is gone", scene{views: map[time.Duration]api.Unit{zero: {}}, units: map[time.Duration]Unit{zero: {Known: true, Loaded: true, ActiveState: "failed", Invocation: first, Result: "exit-code"}}},
			Failed, first, failedLog, failedLog + lookEvery, "systemd has failed to start it: exit-code"},
		{"is not there", scene{units: map[time.Duration]Unit{zero: {Known: true}}}, NoUnit, "", 0, lookEvery, "systemd knows no unit llm.service"},
		{"nobody to ask, and the newest fails", scene{views: map[time.Duration]api.Unit{zero: of(failed(first, "gpu_oom", true))}, units: map[time.Duration]Unit{zero: {}}},
			Failed, first, knownCause, knownCause + 2*lookEvery, ""},
		{"nobody to ask, and the newest was stopped", scene{views: map[time.Duration]api.Unit{zero: of(gone(serving(first), "stopped")), 4 * second: of(serving(other))}, units: map[time.Duration]Unit{zero: {}}},
			Reached, other, 4 * second, 4 * second, ""},
		{"nobody to ask, and nothing is seen", scene{views: map[time.Duration]api.Unit{zero: {}}}, Stopped, "", 10 * second, 10*second + lookEvery, "no start of it was seen within 10s"},
		{"a container's start", scene{views: map[time.Duration]api.Unit{zero: of(&api.Startup{Invocation: box, UnitInvocation: first, Outcome: api.Serving, Phase: api.Serving})}, units: map[time.Duration]Unit{zero: running(first)}},
			Reached, first, 0, lookEvery, ""},
		{"a container's start of an unknown unit's run", scene{views: map[time.Duration]api.Unit{zero: of(serving(box))}, units: map[time.Duration]Unit{zero: running(first)}},
			Reached, first, 0, lookEvery, ""},
		{"the next start has begun when it is seen to have failed", scene{change: inside,
			views: map[time.Duration]api.Unit{zero: of(starting(first, "load")), 2 * second: {Startup: starting(other, "spawn"), Last: failed(first, "gpu_oom", true)}}},
			Failed, first, 2*second + knownCause, 2*second + knownCause + lookEvery, ""},
		{"two later starts have begun", scene{change: pin(first), past: failed(first, "disk_full", true),
			views: map[time.Duration]api.Unit{zero: {Startup: starting(other, "spawn"), Last: failed(box[:32], "gpu_oom", true)}}},
			Failed, first, lookBack, lookBack + 2*lookEvery, ""},
		{"an invocation that nobody knows", scene{change: pin(first), views: map[time.Duration]api.Unit{zero: of(starting(other, "load"))}},
			TimedOut, first, time.Minute, time.Minute, "no entry of the start was seen"},
		{"SIGTERM inside, and the verdict comes", scene{change: inside, signals: map[time.Duration]os.Signal{second: syscall.SIGTERM},
			views: map[time.Duration]api.Unit{zero: of(starting(first, "load")), second + 500*time.Millisecond: of(failed(first, "gpu_oom", true))}},
			Failed, first, second + 700*time.Millisecond, second + 800*time.Millisecond, ""},
		{"SIGTERM inside, and none comes", scene{change: inside, signals: map[time.Duration]os.Signal{second: syscall.SIGTERM}, views: map[time.Duration]api.Unit{zero: of(starting(first, "load"))}},
			Unknown, first, second + stopGrace, second + stopGrace + lookEvery, "systemd has ended the wait by SIGTERM"},
		{"SIGTERM inside, as the unit is stopped", scene{change: inside, signals: map[time.Duration]os.Signal{second: syscall.SIGTERM}, views: map[time.Duration]api.Unit{zero: of(starting(first, "load"))},
			units: map[time.Duration]Unit{zero: {Known: true, Loaded: true, ActiveState: "deactivating", Invocation: first, Job: "stop"}}},
			Stopped, first, second, second, "a stop was asked for"},
		{"Ctrl-C", scene{signals: map[time.Duration]os.Signal{second: syscall.SIGINT}, views: map[time.Duration]api.Unit{zero: of(starting(first, "load"))}, units: map[time.Duration]Unit{zero: running(first)}},
			Unknown, first, second, second, "the wait was ended by a signal (interrupt)"},
		{"blind", scene{blind: second, units: map[time.Duration]Unit{zero: running(first)}}, Unknown, first, second, second, "no right to read it"},
		{"blind, and systemd tells", scene{blind: second, units: map[time.Duration]Unit{zero: {Known: true, Loaded: true, ActiveState: "failed", Invocation: first, Result: "signal"}}},
			Failed, first, second, second, "systemd has failed it (signal)"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			r, took := tt.scene.run(t)
			if r.Verdict != tt.want || r.Invocation != tt.id || !strings.Contains(r.Reason, tt.reason) {
				t.Errorf("%s of %q: %q; want %s of %q: %q", r.Verdict, r.Invocation, r.Reason, tt.want, tt.id, tt.reason)
			}
			if took < tt.min || took > tt.max {
				t.Errorf("after %s, want %s to %s", took, tt.min, tt.max)
			}
		})
	}
}

// TestTells: systemd is told what changes, once a second at most, and the end.
func TestTells(t *testing.T) {
	s := scene{views: map[time.Duration]api.Unit{}, units: map[time.Duration]Unit{0: running(first)}}
	for at := time.Duration(0); at < 5*time.Second; at += 100 * time.Millisecond {
		st := starting(first, "load")
		p := at.Seconds() / 5
		st.Step, st.Progress, st.ProgressNote = "weights", &p, "12/64"
		s.views[at] = of(st)
	}
	s.views[5*time.Second] = of(serving(first))
	var told []string
	s.change = func(o *Options) { o.Tell = func(text string) { told = append(told, text) } }
	s.run(t)
	if len(told) != 7 || told[0] != "load/weights, 0 % (12/64)" || told[6] != "llm.service SERVING" {
		t.Errorf("%d: %q", len(told), told)
	}
}
