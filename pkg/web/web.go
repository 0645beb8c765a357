package web

import (
	"cmp"
	"context"
	"fmt"
	"net/http"
	"slices"
	"strings"

	"github.com/startupd/startupd/pkg/event"
	"github.com/startupd/startupd/pkg/history"
	"github.com/startupd/startupd/pkg/phases"
	"github.com/startupd/startupd/pkg/web/api"
)

// Options are what a Server needs.
type Options struct {
	// Snapshot is the newest published state.
	Snapshot func() *phases.Snapshot
	Clock    event.Clock
	// Hub tells events and keeps the series of memory; its owner runs it.
	Hub *Hub
	// History holds finished startups; nil where none are kept, for the reason
	// NoHistory.
	History   History
	NoHistory string
	// UnitName completes a unit's name as a user may write it; nil takes it as it
	// is.
	UnitName func(string) string
}

// History is where finished startups are kept.
type History interface {
	Targets(ctx context.Context) ([]string, error)
	// List returns the newest startups of a target, the newest last; limit 0 is all.
	List(ctx context.Context, target string, limit int) ([]history.Record, error)
}

// Server answers requests. It is safe for concurrent use.
type Server struct {
	opt Options
	mux *http.ServeMux
	// reading bounds the readers of the history: its writer waits for them.
	reading chan struct{}
}

// New returns a server. Nothing runs in it.
func New(o Options) *Server {
	if o.UnitName == nil {
		o.UnitName = func(name string) string { return name }
	}
	s := &Server{opt: o, mux: http.NewServeMux(), reading: make(chan struct{}, 1)}
	for path, f := range s.routes() {
		s.mux.HandleFunc("GET "+path, f)
		// Less specific than the above: every other method.
		s.mux.HandleFunc(path, notAllowed)
	}
	s.mux.HandleFunc("/api/", s.unknown)
	return s
}

// routes are all paths, in net/http's notation.
func (s *Server) routes() map[string]http.HandlerFunc {
	return map[string]http.HandlerFunc{
		"/api/v1/status":                s.status,
		"/api/v1/startups":              s.startups,
		"/api/v1/startups/{invocation}": s.startup,
		"/api/v1/memory":                s.memory,
		"/api/v1/events":                s.events,
		"/startupz":                     s.startupz,
	}
}

// ServeHTTP answers /startupz and everything below /api/.
func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) { s.mux.ServeHTTP(w, r) }

// Status is everything that is known now.
func (s *Server) Status() *api.Status {
	st, _ := s.opt.Hub.status()
	return st
}

// Memory is a unit's GPU memory since its present startup began; without
// samples its series are empty.
func (s *Server) Memory(unit string) *api.Memory { return s.opt.Hub.memory.document(unit) }

func (s *Server) status(w http.ResponseWriter, r *http.Request) {
	units, ok := s.units(w, r)
	if !ok {
		return
	}
	b, _, err := s.opt.Hub.encode(units)
	send(w, http.StatusOK, b, err)
}

func (s *Server) memory(w http.ResponseWriter, r *http.Request) {
	units, ok := s.units(w, r)
	switch {
	case !ok:
	case len(units) != 1:
		fail(w, http.StatusBadRequest, api.Problem{
			Error: fmt.Sprintf("%d units are asked for, and one is answered for", len(units)), Next: "name one with ?unit=; /api/v1/status lists those that are watched",
		})
	default:
		write(w, http.StatusOK, s.Memory(units[0]))
	}
}

// units are those that the request names, in full; none means all. Where one is
// not watched it has answered.
func (s *Server) units(w http.ResponseWriter, r *http.Request) ([]string, bool) {
	var out []string
	snap := s.opt.Snapshot()
	for _, name := range r.URL.Query()["unit"] {
		unit := s.opt.UnitName(name)
		if !watched(snap, unit) {
			fail(w, http.StatusNotFound, api.Problem{
				Error: fmt.Sprintf("unit %.200q is not watched", unit),
				Next:  "/api/v1/status without a unit lists those that are; add it with --unit or to --config.file",
			})
			return nil, false
		}
		out = append(out, unit)
	}
	return out, true
}

func watched(snap *phases.Snapshot, unit string) bool {
	return slices.ContainsFunc(snap.Targets, func(t phases.Target) bool { return t.Name == unit })
}

func notAllowed(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("Allow", "GET, HEAD")
	fail(w, http.StatusMethodNotAllowed, api.Problem{Error: fmt.Sprintf("%s is not possible here", r.Method), Next: "use GET: this API only reads"})
}

func (s *Server) unknown(w http.ResponseWriter, r *http.Request) {
	var paths []string
	for p := range s.routes() {
		if strings.HasPrefix(p, "/api/") {
			paths = append(paths, p)
		}
	}
	slices.SortFunc(paths, cmp.Compare)
	fail(w, http.StatusNotFound, api.Problem{Error: fmt.Sprintf("there is no %.200q", r.URL.Path), Next: "ask one of " + strings.Join(paths, ", ")})
}
