package web

import (
	"fmt"
	"net/http"
	"time"

	"github.com/startupd/startupd/pkg/event"
	"github.com/startupd/startupd/pkg/phases"
	"github.com/startupd/startupd/pkg/web/api"
)

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

func (s *Server) startupz(w http.ResponseWriter, r *http.Request) {
	snap := s.opt.Snapshot()
	if !r.URL.Query().Has("unit") {
		all := AllReadiness{Ready: len(snap.Targets) > 0, Units: []Readiness{}}
		for i := range snap.Targets {
			u := NewReadiness(&snap.Targets[i], s.opt.Clock())
			all.Ready = all.Ready && u.Ready
			all.Units = append(all.Units, u)
		}
		writeReadiness(w, all.Ready, all)
		return
	}
	unit := s.opt.UnitName(r.URL.Query().Get("unit"))
	for i := range snap.Targets {
		if t := &snap.Targets[i]; t.Name == unit {
			u := NewReadiness(t, s.opt.Clock())
			writeReadiness(w, u.Ready, u)
			return
		}
	}
	fail(w, http.StatusNotFound, api.Problem{Error: fmt.Sprintf("unit %.200q is not watched", unit), Next: "/startupz without a unit lists those that are"})
}

func writeReadiness(w http.ResponseWriter, ready bool, body any) {
	if ready {
		write(w, http.StatusOK, body)
		return
	}
	write(w, http.StatusServiceUnavailable, body)
}

// NewReadiness returns the document of a target as seen at now.
func NewReadiness(t *phases.Target, now event.Stamp) Readiness {
	u := Readiness{Unit: t.Name, Phase: t.State, Ready: t.State == phases.Serving}
	st := t.Startup
	if st == nil {
		return u
	}
	u.Step, u.Progress, u.Stalled = st.Step, st.Progress, st.Stalled
	u.Began, u.ExpectedServing = known(st.Began), known(st.ExpectedServing)
	end := st.Ended
	if end.IsZero() {
		end = now
	}
	if !st.Began.IsZero() {
		d := end.Sub(st.Began).Seconds()
		u.StartupSeconds = &d
	}
	return u
}

// known returns the wall clock's time, or nil when it is not known.
func known(s event.Stamp) *time.Time {
	t := wall(s)
	if t.IsZero() {
		return nil
	}
	return &t
}
