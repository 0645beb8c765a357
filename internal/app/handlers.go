package app

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"time"

	"github.com/startupd/startupd/pkg/event"
	"github.com/startupd/startupd/pkg/phases"
)

// api answers HTTP requests from the present snapshot. It never waits for a
// source.
type api struct {
	snapshot func() *phases.Snapshot
	clock    event.Clock
	// ready says that the sources have begun.
	ready func() bool
	// alive says that the main loop turns.
	alive   func() bool
	metrics http.Handler
	// reload re-reads the configuration; nil when requests must not do that.
	reload  func(context.Context) error
	version string
}

// routes returns the handler of every path.
func (a *api) routes() (http.Handler, error) {
	page, err := newLanding()
	if err != nil {
		return nil, err
	}
	mux := http.NewServeMux()
	mux.Handle("GET /metrics", a.metrics)
	mux.HandleFunc("GET /startupz", a.startupz)
	mux.HandleFunc("GET /-/healthy", a.healthy)
	mux.HandleFunc("GET /-/ready", a.readyz)
	mux.HandleFunc("POST /-/reload", a.reloadNow)
	mux.HandleFunc("GET /{$}", func(w http.ResponseWriter, r *http.Request) { a.landing(w, r, page) })
	// A page of another site must not make a browser reload the daemon.
	return http.NewCrossOriginProtection().Handler(mux), nil
}

func (a *api) healthy(w http.ResponseWriter, _ *http.Request) {
	if !a.alive() {
		http.Error(w, "The main loop does not turn; see startupd's own log.", http.StatusServiceUnavailable)
		return
	}
	fmt.Fprintln(w, "startupd is healthy.")
}

func (a *api) readyz(w http.ResponseWriter, _ *http.Request) {
	if !a.ready() {
		http.Error(w, "Sources have not begun yet.", http.StatusServiceUnavailable)
		return
	}
	fmt.Fprintln(w, "startupd is ready.")
}

func (a *api) reloadNow(w http.ResponseWriter, r *http.Request) {
	if a.reload == nil {
		http.Error(w, "Reload by HTTP is off: start startupd with --web.enable-lifecycle, or send it SIGHUP.", http.StatusForbidden)
		return
	}
	if err := a.reload(r.Context()); err != nil {
		http.Error(w, "Reload refused, the old configuration stays: "+err.Error(), http.StatusInternalServerError)
		return
	}
	fmt.Fprintln(w, "Configuration reloaded.")
}

// Readiness is the body of /startupz for one unit. It holds no text of the log:
// it is served beyond loopback.
type Readiness struct {
	Unit  string `json:"unit"`
	Ready bool   `json:"ready"`
	// Phase is one of the eight states.
	Phase phases.State `json:"phase"`
	// Step is "" when none was told.
	Step string `json:"step,omitempty"`
	// Began is when the startup began; absent when none was seen.
	Began *time.Time `json:"began,omitempty"`
	// StartupSeconds is how long the startup took, or has taken so far.
	StartupSeconds *float64 `json:"startup_seconds,omitempty"`
	// Progress is 0 to 1 in the present phase; absent when not known.
	Progress *float64 `json:"progress,omitempty"`
	// ExpectedServing is the estimated moment of serving; absent when not known.
	ExpectedServing *time.Time `json:"expected_serving,omitempty"`
	Stalled         bool       `json:"stalled"`
}

// AllReadiness is the body of /startupz without a unit.
type AllReadiness struct {
	// Ready is true when there is a unit, and every one serves.
	Ready bool        `json:"ready"`
	Units []Readiness `json:"units"`
}

func (a *api) startupz(w http.ResponseWriter, r *http.Request) {
	snap := a.snapshot()
	if !r.URL.Query().Has("unit") {
		all := AllReadiness{Ready: len(snap.Targets) > 0, Units: []Readiness{}}
		for _, t := range snap.Targets {
			u := a.readiness(t)
			all.Ready = all.Ready && u.Ready
			all.Units = append(all.Units, u)
		}
		writeReadiness(w, all.Ready, all)
		return
	}
	unit := UnitName(r.URL.Query().Get("unit"))
	for _, t := range snap.Targets {
		if t.Name == unit {
			u := a.readiness(t)
			writeReadiness(w, u.Ready, u)
			return
		}
	}
	http.Error(w, fmt.Sprintf("Unit %q is not watched; /startupz without a unit lists those that are.", unit), http.StatusNotFound)
}

func (a *api) readiness(t phases.Target) Readiness {
	u := Readiness{Unit: t.Name, Phase: t.State, Ready: t.State == phases.Serving}
	s := t.Startup
	if s == nil {
		return u
	}
	u.Step, u.Progress, u.Stalled = s.Step, s.Progress, s.Stalled
	u.Began, u.ExpectedServing = wall(s.Began), wall(s.ExpectedServing)
	end := s.Ended
	if end.IsZero() {
		end = a.clock()
	}
	if !s.Began.IsZero() {
		d := end.Sub(s.Began).Seconds()
		u.StartupSeconds = &d
	}
	return u
}

// wall returns the wall clock's time, or nil when it is not known.
func wall(s event.Stamp) *time.Time {
	if s.Real.IsZero() {
		return nil
	}
	t := s.Real.UTC()
	return &t
}

func writeReadiness(w http.ResponseWriter, ready bool, body any) {
	b, err := json.Marshal(body)
	if err != nil {
		http.Error(w, "Readiness can't be encoded: "+err.Error(), http.StatusInternalServerError)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("Cache-Control", "no-store")
	if !ready {
		w.WriteHeader(http.StatusServiceUnavailable)
	}
	// A client that went away is no error of ours.
	_, _ = w.Write(append(b, '\n'))
}
