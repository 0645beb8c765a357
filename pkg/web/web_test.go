package web

import (
	"context"
	"encoding/json"
	"errors"
	"io/fs"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/startupd/startupd/pkg/event"
	"github.com/startupd/startupd/pkg/history"
	"github.com/startupd/startupd/pkg/phases"
	"github.com/startupd/startupd/pkg/triage"
	"github.com/startupd/startupd/pkg/web/api"
)

// ask answers a request, and decodes the answer into doc; nil leaves it.
func ask(t *testing.T, h http.Handler, method, path string, doc any) *httptest.ResponseRecorder {
	t.Helper()
	w := httptest.NewRecorder()
	h.ServeHTTP(w, httptest.NewRequest(method, "http://localhost"+path, nil))
	if doc != nil {
		if err := json.Unmarshal(w.Body.Bytes(), doc); err != nil {
			t.Fatalf("%s: %v\n%s", path, err, w.Body)
		}
		if got := w.Header().Get("Content-Type"); got != "application/json" || w.Header().Get("Cache-Control") != "no-store" {
			t.Errorf("%s: %v", path, w.Header())
		}
	}
	return w
}

// kept is a history in memory.
type kept struct {
	records map[string][]history.Record
	err     error
}

func (k *kept) Targets(context.Context) ([]string, error) {
	var out []string
	for name := range k.records {
		out = append(out, name)
	}
	slices.Sort(out)
	return out, k.err
}

func (k *kept) List(_ context.Context, target string, limit int) ([]history.Record, error) {
	all := k.records[target]
	if limit > 0 && len(all) > limit {
		all = all[len(all)-limit:]
	}
	return all, k.err
}

func record(unit, invocation string, began time.Duration, outcome phases.Outcome) history.Record {
	s := try(invocation)
	s.Began, s.Ended, s.Outcome = at(began), at(began+4*time.Second), outcome
	s.Findings = []triage.Finding{{Verdict: triage.Suspect, Class: "unknown", Message: "odd", Count: 1}}
	return history.FromStartup(unit, s)
}

// threeUnits have a unit in each of three states, and one that was never seen.
func threeUnits() *phases.Snapshot {
	part := 0.5
	return &phases.Snapshot{
		At: at(0),
		Targets: []phases.Target{
			{Name: "down.service", State: phases.Failed, Startup: &phases.Startup{
				Invocation: "dd01", Began: at(0), Ended: at(4 * time.Second), Outcome: phases.OutcomeFailed, Reason: "<b>status 1</b>",
			}},
			{Name: "load.service", State: phases.Load, Startup: &phases.Startup{
				Invocation: "aa01", Began: at(0), Step: "weights", Progress: &part, ExpectedServing: at(time.Minute), Stalled: true, StalledReason: "silent",
				LastLine: map[string]string{"api": "a line"},
			}, Last: &phases.Startup{Invocation: "aa00", Began: at(-time.Minute), Ended: at(-time.Second), Outcome: phases.OutcomeServing}},
			{Name: "new.service", State: phases.Unknown},
			{Name: "up.service", State: phases.Serving, Startup: &phases.Startup{
				Invocation: "ee01", Began: at(0), Ended: at(30 * time.Second), Outcome: phases.OutcomeServing, Reason: "ready",
			}},
		},
		Sources: []phases.Source{{Source: event.SourceGPU, State: "no_driver", Reason: "no libnvidia-ml.so.1"}},
	}
}

func serverOf(t *testing.T, snap *phases.Snapshot, h History) *world {
	t.Helper()
	w := newWorld(t, func(_ *HubOptions, o *Options) {
		o.History, o.NoHistory = h, "no history is kept"
	})
	w.set(at(10 * time.Second))
	w.snap.Store(snap)
	return w
}

func TestStatus(t *testing.T) {
	w := serverOf(t, threeUnits(), nil)
	for query, want := range map[string][]string{
		"":                              {"down.service", "load.service", "new.service", "up.service"},
		"?unit=up.service":              {"up.service"},
		"?unit=up&unit=new.service":     {"new.service", "up.service"},
		"?unit=load.service&other=true": {"load.service"},
	} {
		var st api.Status
		if r := ask(t, w.web, http.MethodGet, "/api/v1/status"+query, &st); r.Code != http.StatusOK {
			t.Errorf("%q: %d", query, r.Code)
		}
		var got []string
		for _, u := range st.Units {
			got = append(got, u.Unit)
		}
		if diff := cmp.Diff(want, got); diff != "" || st.Schema != api.StatusSchema || st.LastEventID != w.hub.id(0) {
			t.Errorf("%q: %+v %s", query, st, diff)
		}
	}
	var st api.Status
	ask(t, w.web, http.MethodGet, "/api/v1/status?unit=load", &st)
	if s := st.Units[0].Startup; s.Outcome != api.Stalled || s.Reason != "silent" || *s.Seconds != 10 || *s.Progress != 0.5 {
		t.Errorf("%+v", s)
	}
	if got := w.web.Status(); len(got.Units) != 4 {
		t.Errorf("the page's status has %d units", len(got.Units))
	}
}

func TestErrorsSayWhatToDo(t *testing.T) {
	w := serverOf(t, threeUnits(), &kept{err: fs.ErrNotExist})
	tests := []struct {
		method, path string
		code         int
		want, next   string
	}{
		{"GET", "/api/v1/status?unit=none", 404, `unit "none.service" is not watched`, "--unit"},
		{"GET", "/api/v1/status?unit=up&unit=", 404, `unit ".service" is not watched`, "/api/v1/status"},
		{"GET", "/api/v1/events?unit=none", 404, "not watched", "/api/v1/status"},
		{"GET", "/api/v1/memory", 400, "0 units", "?unit="},
		{"GET", "/api/v1/memory?unit=up&unit=load", 400, "2 units", "?unit="},
		{"GET", "/api/v1/memory?unit=none", 404, "not watched", "/api/v1/status"},
		{"GET", "/api/v1/startups?unit=none", 404, "no startup of it is kept", "/api/v1/startups"},
		{"GET", "/api/v1/startups?limit=0", 400, `limit "0"`, "docs/api.md"},
		{"GET", "/api/v1/startups?limit=x", 400, `limit "x"`, "docs/api.md"},
		{"GET", "/api/v1/startups?outcome=good", 400, "serving, failed, stopped, stalled, starting", "docs/api.md"},
		{"GET", "/api/v1/startups?unit=a&unit=b", 400, "one unit", "docs/api.md"},
		{"GET", "/api/v1/startups/ff", 404, `no startup "ff"`, "/api/v1/startups"},
		{"GET", "/api/v1/startups/aa01?generation=1", 404, "no startup", "/api/v1/startups"},
		{"GET", "/api/v1/startups/aa01?generation=-1", 400, "generation", "from 0"},
		{"GET", "/api/v1/startups/aa", 400, "several startups", "more of the ID"},
		{"GET", "/api/v2/status", 404, `"/api/v2/status"`, "/api/v1/status"},
		{"GET", "/api/", 404, "there is no", "/api/v1/events"},
		{"GET", "/startupz?unit=none", 404, "not watched", "without a unit"},
		{"POST", "/api/v1/status", 405, "POST", "GET"},
		{"DELETE", "/api/v1/startups/aa01", 405, "DELETE", "GET"},
		{"PUT", "/api/v1/events", 405, "PUT", "GET"},
		{"POST", "/startupz", 405, "POST", "GET"},
	}
	for _, tt := range tests {
		var p api.Problem
		r := ask(t, w.web, tt.method, tt.path, &p)
		if r.Code != tt.code || p.Schema != api.ProblemSchema || !strings.Contains(p.Error, tt.want) || !strings.Contains(p.Next, tt.next) {
			t.Errorf("%s %s: %d %s", tt.method, tt.path, r.Code, r.Body)
		}
		if tt.code == http.StatusMethodNotAllowed && r.Header().Get("Allow") != "GET, HEAD" {
			t.Errorf("%s %s: %v", tt.method, tt.path, r.Header())
		}
	}
}

func TestHead(t *testing.T) {
	w := serverOf(t, threeUnits(), nil)
	for _, path := range []string{"/api/v1/status", "/api/v1/startups", "/api/v1/startups/aa01", "/api/v1/memory?unit=up", "/api/v1/events", "/startupz?unit=up"} {
		if r := ask(t, w.web, http.MethodHead, path, nil); r.Code != http.StatusOK || r.Header().Get("Content-Type") == "" {
			t.Errorf("%s: %d %v", path, r.Code, r.Header())
		}
	}
	if w.hub.streams != 0 {
		t.Errorf("%d streams are left open", w.hub.streams)
	}
}

func TestStartups(t *testing.T) {
	k := &kept{records: map[string][]history.Record{
		"load.service": {record("load.service", "aa98", -time.Hour, phases.OutcomeFailed), record("load.service", "aa00", -time.Minute, phases.OutcomeServing)},
		"gone.service": {record("gone.service", "cc01", -2*time.Hour, phases.OutcomeStopped)},
	}}
	w := serverOf(t, threeUnits(), k)
	for query, want := range map[string]string{
		"":                                      "dd01 aa01 ee01 aa00 aa98 cc01",
		"?limit=2":                              "dd01 aa01",
		"?unit=load":                            "aa01 aa00 aa98",
		"?unit=load&limit=2":                    "aa01 aa00",
		"?unit=gone.service":                    "cc01",
		"?outcome=failed":                       "dd01 aa98",
		"?outcome=failed&limit=1":               "dd01",
		"?unit=load&outcome=failed":             "aa98",
		"?outcome=stalled":                      "aa01",
		"?outcome=starting":                     "",
		"?unit=gone&outcome=serving":            "",
		"?unit=new.service":                     "",
		"?unit=load&outcome=serving":            "aa00",
		"?unit=load&limit=1000&outcome=stopped": "",
	} {
		var l api.Startups
		r := ask(t, w.web, http.MethodGet, "/api/v1/startups"+query, &l)
		var got []string
		for _, s := range l.Startups {
			got = append(got, s.Invocation)
			if s.Findings != nil || s.LastLines != nil || s.Steps != nil {
				t.Errorf("%q: a list has all of %s", query, s.Invocation)
			}
		}
		if r.Code != http.StatusOK || strings.Join(got, " ") != want || l.Startups == nil || l.Incomplete != "" || l.Schema != api.StartupsSchema {
			t.Errorf("%q: %d %q, want %q; %s", query, r.Code, got, want, r.Body)
		}
	}
	list, err := w.web.Startups(t.Context(), "load.service", 2)
	if err != nil || len(list) != 2 {
		t.Errorf("%d startups for the page, %v", len(list), err)
	}
}

func TestStartupsWithoutHistory(t *testing.T) {
	for name, tt := range map[string]struct {
		h    History
		want string
	}{
		"off":     {nil, "no history is kept"},
		"damaged": {&kept{err: history.ErrDamaged}, history.ErrDamaged.Error()},
		"no file": {&kept{err: fs.ErrNotExist}, ""},
	} {
		w := serverOf(t, threeUnits(), tt.h)
		var l api.Startups
		r := ask(t, w.web, http.MethodGet, "/api/v1/startups", &l)
		if r.Code != http.StatusOK || len(l.Startups) != 4 || !strings.Contains(l.Incomplete, tt.want) || tt.want == "" && l.Incomplete != "" {
			t.Errorf("%s: %d %s", name, r.Code, r.Body)
		}
		list, err := w.web.Startups(t.Context(), "", 10)
		if len(list) != 4 || (err == nil) != (tt.want == "") {
			t.Errorf("%s: %d startups for the page, %v", name, len(list), err)
		}
		var p api.Problem
		if r := ask(t, w.web, http.MethodGet, "/api/v1/startups/99", &p); r.Code != http.StatusNotFound || !strings.Contains(p.Error, tt.want) {
			t.Errorf("%s: %d %s", name, r.Code, r.Body)
		}
	}
}

func TestHistoryThatIsBusy(t *testing.T) {
	w := serverOf(t, threeUnits(), &kept{})
	w.web.reading <- struct{}{} // another request reads
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if l := w.web.list(ctx, query{limit: 10}); len(l.Startups) != 4 || !strings.Contains(l.Incomplete, "by others") {
		t.Errorf("%+v", l)
	}
}

func TestOneStartup(t *testing.T) {
	second := record("load.service", "ab12", -time.Hour, phases.OutcomeServing)
	second.Generation = 1
	k := &kept{records: map[string][]history.Record{
		"load.service": {record("load.service", "ab12", -2*time.Hour, phases.OutcomeFailed), second, record("load.service", "aa00", -time.Minute, phases.OutcomeServing)},
		"gone.service": {record("gone.service", "ab1", -3*time.Hour, phases.OutcomeStopped), record("gone.service", "cc01", -3*time.Hour, phases.OutcomeStopped)},
		"up.service":   {record("up.service", "cc01", -3*time.Hour, phases.OutcomeStopped)},
	}}
	w := serverOf(t, threeUnits(), k)
	for path, want := range map[string]string{
		"aa01":              "load.service aa01 0 stalled",
		"dd":                "down.service dd01 0 failed",
		"ab12":              "load.service ab12 1 serving",
		"ab12?generation=0": "load.service ab12 0 failed",
		"ab1":               "gone.service ab1 0 stopped",
		"ab1?unit=load":     "load.service ab12 1 serving",
		"cc01?unit=up":      "up.service cc01 0 stopped",
		"aa00":              "load.service aa00 0 serving",
		"aa00?generation=0": "load.service aa00 0 serving",
	} {
		var s api.Startup
		r := ask(t, w.web, http.MethodGet, "/api/v1/startups/"+path, &s)
		if got := strings.Join([]string{s.Unit, s.Invocation, string(rune('0' + s.Generation)), s.Outcome}, " "); r.Code != http.StatusOK || got != want {
			t.Errorf("%s: %d %s", path, r.Code, got)
		}
	}
	var full api.Startup
	ask(t, w.web, http.MethodGet, "/api/v1/startups/cc01?unit=up", &full)
	if len(full.Findings) != 1 {
		t.Errorf("a whole one has %d findings", len(full.Findings))
	}
	var p api.Problem
	if r := ask(t, w.web, http.MethodGet, "/api/v1/startups/cc01", &p); r.Code != http.StatusBadRequest || len(p.Candidates) != 2 {
		t.Errorf("%d %s", r.Code, r.Body)
	}
	for i := range 30 {
		k.records["up.service"] = append(k.records["up.service"], record("up.service", "ff"+string(rune('a'+i)), 0, phases.OutcomeFailed))
	}
	if ask(t, w.web, http.MethodGet, "/api/v1/startups/ff", &p); len(p.Candidates) != maxCandidates {
		t.Errorf("%d candidates", len(p.Candidates))
	}
}

func TestStartupzOfAUnit(t *testing.T) {
	w := serverOf(t, threeUnits(), nil)
	seconds := func(s float64) *float64 { return &s }
	began, expected := at(0).Real, at(time.Minute).Real
	tests := []struct {
		query string
		code  int
		want  Readiness
	}{
		{"up.service", http.StatusOK, Readiness{Unit: "up.service", Ready: true, Phase: phases.Serving, Began: &began, StartupSeconds: seconds(30)}},
		{"up", http.StatusOK, Readiness{Unit: "up.service", Ready: true, Phase: phases.Serving, Began: &began, StartupSeconds: seconds(30)}},
		{"load.service", http.StatusServiceUnavailable, Readiness{
			Unit: "load.service", Phase: phases.Load, Step: "weights", Began: &began, StartupSeconds: seconds(10),
			Progress: seconds(0.5), ExpectedServing: &expected, Stalled: true,
		}},
		{"down.service", http.StatusServiceUnavailable, Readiness{Unit: "down.service", Phase: phases.Failed, Began: &began, StartupSeconds: seconds(4)}},
		{"new.service", http.StatusServiceUnavailable, Readiness{Unit: "new.service", Phase: phases.Unknown}},
	}
	for _, tt := range tests {
		var got Readiness
		r := ask(t, w.web, http.MethodGet, "/startupz?unit="+tt.query, &got)
		if diff := cmp.Diff(tt.want, got); r.Code != tt.code || diff != "" {
			t.Errorf("%s: %d %s", tt.query, r.Code, diff)
		}
	}
}

func TestStartupzOfAll(t *testing.T) {
	serving := phases.Target{Name: "a.service", State: phases.Serving}
	tests := []struct {
		name    string
		targets []phases.Target
		want    int
	}{
		{"none", nil, http.StatusServiceUnavailable},
		{"all serve", []phases.Target{serving, {Name: "b.service", State: phases.Serving}}, http.StatusOK},
		{"one does not", []phases.Target{serving, {Name: "b.service", State: phases.Compile}}, http.StatusServiceUnavailable},
	}
	for _, tt := range tests {
		w := serverOf(t, &phases.Snapshot{Targets: tt.targets}, nil)
		var got AllReadiness
		r := ask(t, w.web, http.MethodGet, "/startupz", &got)
		if r.Code != tt.want || got.Ready != (tt.want == http.StatusOK) || len(got.Units) != len(tt.targets) || got.Units == nil {
			t.Errorf("%s: %d %s", tt.name, r.Code, r.Body)
		}
	}
}

func TestStartupzShowsNoLog(t *testing.T) {
	w := serverOf(t, threeUnits(), nil)
	if body := ask(t, w.web, http.MethodGet, "/startupz", nil).Body.String(); strings.Contains(body, "status 1") || strings.Contains(body, "silent") {
		t.Errorf("the body is public and holds a reason: %s", body)
	}
}

func TestWhatCannotBeEncoded(t *testing.T) {
	w := httptest.NewRecorder()
	write(w, http.StatusOK, map[string]any{"x": func() {}})
	if w.Code != http.StatusInternalServerError || !strings.Contains(w.Body.String(), "can't be encoded") {
		t.Errorf("%d %s", w.Code, w.Body)
	}
	send(httptest.NewRecorder(), http.StatusOK, nil, errors.New("x"))
}
