package app

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
)

// testAPI answers for a daemon that is well.
func testAPI(change func(*api)) http.Handler {
	answer := func(code int) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(code) })
	}
	a := &api{
		ready: func() bool { return true }, alive: func() bool { return true },
		metrics: answer(http.StatusAccepted), units: answer(http.StatusTeapot), page: answer(http.StatusNonAuthoritativeInfo),
	}
	if change != nil {
		change(a)
	}
	return a.routes()
}

func ask(h http.Handler, method, path string) *httptest.ResponseRecorder {
	w := httptest.NewRecorder()
	h.ServeHTTP(w, httptest.NewRequest(method, "http://host"+path, nil))
	return w
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
		{"/startupz?unit=a", nil, http.StatusTeapot},
		{"/api/v1/status", nil, http.StatusTeapot},
		{"/api/none", nil, http.StatusTeapot},
		{"/", nil, http.StatusNonAuthoritativeInfo},
		{"/page/units", nil, http.StatusNonAuthoritativeInfo},
		{"/none", nil, http.StatusNotFound},
	}
	for _, tt := range tests {
		if w := ask(testAPI(tt.change), http.MethodGet, tt.path); w.Code != tt.want {
			t.Errorf("%s: %d, want %d", tt.path, w.Code, tt.want)
		}
	}
	if w := ask(testAPI(nil), http.MethodPost, "/-/healthy"); w.Code != http.StatusMethodNotAllowed {
		t.Errorf("POST /-/healthy: %d", w.Code)
	}
}

func TestReloadHandler(t *testing.T) {
	reloads := 0
	good := func(a *api) { a.reload = func(context.Context) error { reloads++; return nil } }
	bad := func(a *api) { a.reload = func(context.Context) error { return errors.New("no unit") } }

	if w := ask(testAPI(nil), http.MethodPost, "/-/reload"); w.Code != http.StatusForbidden || !strings.Contains(w.Body.String(), "--web.enable-lifecycle") {
		t.Errorf("off: %d %s", w.Code, w.Body)
	}
	if w := ask(testAPI(good), http.MethodPost, "/-/reload"); w.Code != http.StatusOK || reloads != 1 {
		t.Errorf("on: %d, %d reloads", w.Code, reloads)
	}
	if w := ask(testAPI(good), http.MethodGet, "/-/reload"); w.Code != http.StatusMethodNotAllowed || reloads != 1 {
		t.Errorf("GET: %d, %d reloads", w.Code, reloads)
	}
	if w := ask(testAPI(bad), http.MethodPost, "/-/reload"); w.Code != http.StatusInternalServerError || !strings.Contains(w.Body.String(), "no unit") {
		t.Errorf("bad: %d %s", w.Code, w.Body)
	}
	r := httptest.NewRequest(http.MethodPost, "http://host/-/reload", nil)
	r.Header.Set("Sec-Fetch-Site", "cross-site")
	w := httptest.NewRecorder()
	testAPI(good).ServeHTTP(w, r)
	if w.Code != http.StatusForbidden || reloads != 1 {
		t.Errorf("from another site: %d, %d reloads", w.Code, reloads)
	}
}
