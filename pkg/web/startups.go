package web

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/startupd/startupd/pkg/history"
	"github.com/startupd/startupd/pkg/web/api"
)

const (
	// defaultLimit and maxLimit are how many startups a list holds.
	defaultLimit = 50
	maxLimit     = 1000
	// readWithin bounds how long the history's lock is waited for.
	readWithin = 5 * time.Second
)

// identity tells startups apart.
type identity struct {
	unit string
	attempt
}

func identityOf(s *api.Startup) identity {
	id := identity{s.Unit, attempt{invocation: s.Invocation, generation: s.Generation}}
	if id.invocation == "" {
		id.began = s.Began
	}
	return id
}

// present returns the startups in memory: of each unit the present one and the
// last one. unit "" is all.
func (s *Server) present(unit string) []*api.Startup {
	var units []string
	if unit != "" {
		units = []string{unit}
	}
	st, _ := s.opt.Hub.status(units...)
	var out []*api.Startup
	for i := range st.Units {
		for _, one := range []*api.Startup{st.Units[i].Startup, st.Units[i].Last} {
			if one != nil {
				out = append(out, one)
			}
		}
	}
	return out
}

// kept gives each startup that the history keeps, the newest limit of each unit.
// The problem says why some are missing; "" when none is.
func (s *Server) kept(ctx context.Context, unit string, limit int, each func(*api.Startup)) (problem string) {
	if s.opt.History == nil {
		return s.opt.NoHistory
	}
	ctx, cancel := context.WithTimeout(ctx, readWithin)
	defer cancel()
	select {
	case s.reading <- struct{}{}:
		defer func() { <-s.reading }()
	case <-ctx.Done():
		return "the history is being read by others"
	}
	units := []string{unit}
	var err error
	if unit == "" {
		units, err = s.opt.History.Targets(ctx)
	}
	for _, name := range units {
		if err != nil {
			break
		}
		var records []history.Record
		records, err = s.opt.History.List(ctx, name, limit)
		for i := range records {
			each(api.FromRecord(&records[i]))
		}
	}
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return "the history can't be read, and only what is in memory is listed: " + err.Error()
	}
	return ""
}

// query is what a list holds.
type query struct {
	// unit and outcome are "" for all.
	unit, outcome string
	limit         int
}

// list returns the startups of a query, the newest first, without what only one
// in full has.
func (s *Server) list(ctx context.Context, q query) api.Startups {
	out := api.Startups{Schema: api.StartupsSchema, Startups: []api.Startup{}}
	seen := map[identity]bool{}
	add := func(one *api.Startup) {
		if id := identityOf(one); !seen[id] {
			seen[id] = true
			if q.outcome == "" || q.outcome == one.Outcome {
				out.Startups = append(out.Startups, brief(one))
			}
		}
	}
	for _, one := range s.present(q.unit) {
		add(one)
	}
	limit := q.limit
	if q.outcome != "" {
		limit = 0 // the newest of that outcome may be old
	}
	out.Incomplete = s.kept(ctx, q.unit, limit, add)
	slices.SortStableFunc(out.Startups, newestFirst)
	out.Startups = out.Startups[:min(len(out.Startups), q.limit)]
	return out
}

func newestFirst(a, b api.Startup) int {
	if c := b.Began.Compare(a.Began); c != 0 {
		return c
	}
	return b.Generation - a.Generation
}

// brief is a startup as a list shows it.
func brief(s *api.Startup) api.Startup {
	b := *s
	b.Steps, b.Findings, b.Gaps, b.LastLines = nil, nil, nil, nil
	if b.RootCause != nil {
		c := *b.RootCause
		c.LastLines = nil
		b.RootCause = &c
	}
	return b
}

// Startups returns a unit's startups, the newest first; unit "" is all. Where the
// history can't be read it returns those in memory together with an error.
func (s *Server) Startups(ctx context.Context, unit string, limit int) ([]api.Startup, error) {
	l := s.list(ctx, query{unit: unit, limit: max(1, min(limit, maxLimit))})
	if l.Incomplete != "" {
		return l.Startups, errors.New(l.Incomplete)
	}
	return l.Startups, nil
}

func (s *Server) startups(w http.ResponseWriter, r *http.Request) {
	q, err := s.query(r)
	if err != nil {
		fail(w, http.StatusBadRequest, api.Problem{Error: err.Error(), Next: "see docs/api.md for what can be asked"})
		return
	}
	l := s.list(r.Context(), q)
	if q.unit != "" && len(l.Startups) == 0 && !watched(s.opt.Snapshot(), q.unit) && !s.has(r.Context(), q.unit) {
		fail(w, http.StatusNotFound, api.Problem{
			Error: fmt.Sprintf("unit %.200q is not watched, and no startup of it is kept", q.unit), Next: "/api/v1/startups without a unit lists all",
		})
		return
	}
	write(w, http.StatusOK, l)
}

// has says that a startup of the unit is kept.
func (s *Server) has(ctx context.Context, unit string) bool {
	some := false
	s.kept(ctx, unit, 1, func(*api.Startup) { some = true })
	return some
}

func (s *Server) query(r *http.Request) (query, error) {
	v := r.URL.Query()
	q := query{outcome: v.Get("outcome"), limit: defaultLimit}
	if len(v["unit"]) > 1 {
		return q, errors.New("one unit can be listed, or all")
	}
	if v.Has("unit") {
		q.unit = s.opt.UnitName(v.Get("unit"))
	}
	outcomes := []string{api.Serving, api.Failed, api.Stopped, api.Stalled, api.Starting}
	if v.Has("outcome") && !slices.Contains(outcomes, q.outcome) {
		return q, fmt.Errorf("outcome %.40q is none of %s", q.outcome, strings.Join(outcomes, ", "))
	}
	if v.Has("limit") {
		n, err := strconv.Atoi(v.Get("limit"))
		if err != nil || n < 1 || n > maxLimit {
			return q, fmt.Errorf("limit %.40q is no number from 1 to %d", v.Get("limit"), maxLimit)
		}
		q.limit = n
	}
	return q, nil
}
