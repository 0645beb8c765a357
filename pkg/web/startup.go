package web

import (
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"

	"github.com/startupd/startupd/pkg/web/api"
)

// maxCandidates bounds the startups that an ambiguous ID is answered with.
const maxCandidates = 20

// which is a startup that is asked for.
type which struct {
	// invocation is a whole ID or the beginning of one, unit "" for any.
	invocation, unit string
	// generation is nil for the newest.
	generation *int
}

func (s *Server) which(r *http.Request) (which, error) {
	v := r.URL.Query()
	q := which{invocation: r.PathValue("invocation")}
	if v.Has("unit") {
		q.unit = s.opt.UnitName(v.Get("unit"))
	}
	if v.Has("generation") {
		n, err := strconv.Atoi(v.Get("generation"))
		if err != nil || n < 0 {
			return q, fmt.Errorf("generation %.40q is no number from 0", v.Get("generation"))
		}
		q.generation = &n
	}
	return q, nil
}

// wants says that a startup is one of those that are asked for.
func (q *which) wants(s *api.Startup) bool {
	return s.Invocation != "" && strings.HasPrefix(s.Invocation, q.invocation) && (q.generation == nil || *q.generation == s.Generation)
}

func (s *Server) startup(w http.ResponseWriter, r *http.Request) {
	q, err := s.which(r)
	if err != nil {
		fail(w, http.StatusBadRequest, api.Problem{Error: err.Error(), Next: "count generations from 0, or leave it out for the newest"})
		return
	}
	var found []*api.Startup
	add := func(one *api.Startup) {
		same := func(f *api.Startup) bool { return identityOf(f) == identityOf(one) }
		if q.wants(one) && !slices.ContainsFunc(found, same) {
			found = append(found, one)
		}
	}
	for _, one := range s.present(q.unit) {
		add(one)
	}
	// Memory has all that can be told of a startup that is named whole.
	var problem string
	if !slices.ContainsFunc(found, func(f *api.Startup) bool { return f.Invocation == q.invocation && q.generation != nil }) {
		problem = s.kept(r.Context(), q.unit, 0, add)
	}
	one, err := choose(found, q.invocation)
	switch {
	case err != nil:
		fail(w, http.StatusBadRequest, api.Problem{
			Error: err.Error(), Next: "write more of the ID, or add ?unit=", Candidates: candidates(found),
		})
	case one == nil:
		p := api.Problem{Error: fmt.Sprintf("no startup %.80q is known", q.invocation), Next: "/api/v1/startups lists those that are"}
		if problem != "" {
			p.Error += "; " + problem
		}
		fail(w, http.StatusNotFound, p)
	default:
		write(w, http.StatusOK, one)
	}
}

// choose returns the one startup that an ID stands for, of several generations
// the newest; nil when there is none. A whole ID is not the beginning of another.
func choose(found []*api.Startup, id string) (*api.Startup, error) {
	if whole := slices.DeleteFunc(slices.Clone(found), func(s *api.Startup) bool { return s.Invocation != id }); len(whole) > 0 {
		found = whole
	}
	var best *api.Startup
	for _, s := range found {
		switch {
		case best == nil:
			best = s
		case best.Unit != s.Unit || best.Invocation != s.Invocation:
			return nil, errors.New("several startups begin with this ID")
		case s.Generation > best.Generation:
			best = s
		}
	}
	return best, nil
}

func candidates(found []*api.Startup) []api.Candidate {
	slices.SortStableFunc(found, func(a, b *api.Startup) int { return newestFirst(*a, *b) })
	var out []api.Candidate
	for _, s := range found[:min(len(found), maxCandidates)] {
		out = append(out, api.Candidate{Unit: s.Unit, Invocation: s.Invocation, Generation: s.Generation, Began: s.Began})
	}
	return out
}
