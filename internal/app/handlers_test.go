package app

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/startupd/startupd/pkg/event"
	"github.com/startupd/startupd/pkg/phases"
)

// testAPI answers from a snapshot with a unit in each of three states.
func testAPI(t *testing.T, change func(*api)) http.Handler {
	t.Helper()
	half := 0.5
	snap := &phases.Snapshot{
		Targets: []phases.Target{
			{Name: "down.service", State: phases.Failed, Startup: &phases.Startup{
				Began: at(0), Ended: at(4 * time.Second), Outcome: phases.OutcomeFailed, Reason: "<b>status 1</b>",
			}},
			{Name: "load.service", State: phases.Load, Startup: &phases.Startup{
				Began: at(0), Step: "weights", Progress: &half, ExpectedServing: at(time.Minute), Stalled: true, StalledReason: "silent",
			}},
			{Name: "new.service", State: phases.Unknown},
			{Name: "up.service", State: phases.Serving, Disagreement: "the probe finds it closed", Startup: &phases.Startup{
				Began: at(0), Ended: at(30 * time.Second), Outcome: phases.OutcomeServing, Reason: "ready",
			}},
		},
		Sources: []phases.Source{{Source: event.SourceGPU, State: "no_driver", Reason: "no libnvidia-ml.so.1"}},
	}
	a := &api{
		snapshot: func() *phases.Snapshot { return snap },
		clock:    func() event.Stamp { return at(10 * time.Second) },
		ready:    func() bool { return true },
		alive:    func() bool { return true },
		metrics:  http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusAccepted) }),
		version:  "1.2.3",
	}
	if change != nil {
		change(a)
	}
	h, err := a.routes()
	if err != nil {
		t.Fatal(err)
	}
	return h
}

func ask(h http.Handler, method, path string) *httptest.ResponseRecorder {
	w := httptest.NewRecorder()
	h.ServeHTTP(w, httptest.NewRequest(method, "http://host"+path, nil))
	return w
}

func TestStartupzOfAUnit(t *testing.T) {
	h := testAPI(t, nil)
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
		w := ask(h, http.MethodGet, "/startupz?unit="+tt.query)
		var got Readiness
		if err := json.Unmarshal(w.Body.Bytes(), &got); err != nil {
			t.Fatalf("%s: %v", tt.query, err)
		}
		if w.Code != tt.code || w.Header().Get("Content-Type") != "application/json" {
			t.Errorf("%s: %d, %v", tt.query, w.Code, w.Header())
		}
		if diff := cmp.Diff(tt.want, got); diff != "" {
			t.Errorf("%s: %s", tt.query, diff)
		}
	}
}

func TestStartupzOfUnknownUnit(t *testing.T) {
	for _, query := range []string{"?unit=none.service", "?unit="} {
		if w := ask(testAPI(t, nil), http.MethodGet, "/startupz"+query); w.Code != http.StatusNotFound || !strings.Contains(w.Body.String(), "not watched") {
			t.Errorf("%s: %d %s", query, w.Code, w.Body)
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
		h := testAPI(t, func(a *api) { a.snapshot = func() *phases.Snapshot { return &phases.Snapshot{Targets: tt.targets} } })
		w := ask(h, http.MethodGet, "/startupz")
		var got AllReadiness
		if err := json.Unmarshal(w.Body.Bytes(), &got); err != nil {
			t.Fatal(err)
		}
		if w.Code != tt.want || got.Ready != (tt.want == http.StatusOK) || len(got.Units) != len(tt.targets) || got.Units == nil {
			t.Errorf("%s: %d %s", tt.name, w.Code, w.Body)
		}
	}
}

func TestStartupzShowsNoLog(t *testing.T) {
	if body := ask(testAPI(t, nil), http.MethodGet, "/startupz").Body.String(); strings.Contains(body, "status 1") || strings.Contains(body, "silent") {
		t.Errorf("the body is public and holds a reason: %s", body)
	}
}

func TestProbes(t *testing.T) {
	no := func() bool { return false }
	tests := []struct {
		path   string
		change func(*api)
		want   int
	}{
		{"/-/healthy", nil, http.StatusOK},
		{"/-/healthy", func(a *api) { a.alive = no }, http.StatusServiceUnavailable},
		{"/-/ready", nil, http.StatusOK},
		{"/-/ready", func(a *api) { a.ready = no }, http.StatusServiceUnavailable},
		{"/metrics", nil, http.StatusAccepted},
		{"/none", nil, http.StatusNotFound},
	}
	for _, tt := range tests {
		if w := ask(testAPI(t, tt.change), http.MethodGet, tt.path); w.Code != tt.want {
			t.Errorf("%s: %d, want %d", tt.path, w.Code, tt.want)
		}
	}
	if w := ask(testAPI(t, nil), http.MethodPost, "/-/healthy"); w.Code != http.StatusMethodNotAllowed {
		t.Errorf("POST /-/healthy: %d", w.Code)
	}
}

func TestReloadHandler(t *testing.T) {
	reloads := 0
	good := func(a *api) { a.reload = func(context.Context) error { reloads++; return nil } }
	bad := func(a *api) { a.reload = func(context.Context) error { return errors.New("no unit") } }

	if w := ask(testAPI(t, nil), http.MethodPost, "/-/reload"); w.Code != http.StatusForbidden || !strings.Contains(w.Body.String(), "--web.enable-lifecycle") {
		t.Errorf("off: %d %s", w.Code, w.Body)
	}
	if w := ask(testAPI(t, good), http.MethodPost, "/-/reload"); w.Code != http.StatusOK || reloads != 1 {
		t.Errorf("on: %d, %d reloads", w.Code, reloads)
	}
	if w := ask(testAPI(t, good), http.MethodGet, "/-/reload"); w.Code != http.StatusMethodNotAllowed || reloads != 1 {
		t.Errorf("GET: %d, %d reloads", w.Code, reloads)
	}
	if w := ask(testAPI(t, bad), http.MethodPost, "/-/reload"); w.Code != http.StatusInternalServerError || !strings.Contains(w.Body.String(), "no unit") {
		t.Errorf("bad: %d %s", w.Code, w.Body)
	}
	r := httptest.NewRequest(http.MethodPost, "http://host/-/reload", nil)
	r.Header.Set("Sec-Fetch-Site", "cross-site")
	w := httptest.NewRecorder()
	testAPI(t, good).ServeHTTP(w, r)
	if w.Code != http.StatusForbidden || reloads != 1 {
		t.Errorf("from another site: %d, %d reloads", w.Code, reloads)
	}
}

func TestLandingPage(t *testing.T) {
	w := ask(testAPI(t, nil), http.MethodGet, "/")
	if w.Code != http.StatusOK || !strings.HasPrefix(w.Header().Get("Content-Type"), "text/html") {
		t.Fatalf("%d %v", w.Code, w.Header())
	}
	body := w.Body.String()
	for _, want := range []string{"1.2.3", "load.service", "weights", "(stalled)", "silent", "the probe finds it closed", "&lt;b&gt;status 1&lt;/b&gt;", "no_driver", `href="/metrics"`} {
		if !strings.Contains(body, want) {
			t.Errorf("the page lacks %q", want)
		}
	}
	if strings.Contains(body, "<b>status") {
		t.Error("text of the log is not escaped")
	}
}
