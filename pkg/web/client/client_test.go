package client

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/startupd/startupd/pkg/web/api"
)

// serve answers on a unix socket and returns a client of it.
func serve(t *testing.T, h http.HandlerFunc) *Client {
	t.Helper()
	path := filepath.Join(t.TempDir(), "s")
	l, err := net.Listen("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	s := httptest.NewUnstartedServer(h)
	s.Listener.Close()
	s.Listener = l
	s.Start()
	t.Cleanup(s.Close)
	c := New(Options{Socket: path})
	t.Cleanup(c.Close)
	return c
}

// reply answers with a document and notes what was asked.
func reply(asked *[]string, doc any) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		*asked = append(*asked, r.URL.String())
		_ = json.NewEncoder(w).Encode(doc)
	}
}

func TestQuestions(t *testing.T) {
	ctx := t.Context()
	var asked []string
	c := serve(t, reply(&asked, api.Status{Schema: api.StatusSchema, Units: []api.Unit{{Unit: "a.service"}}}))
	s, err := c.Status(ctx, "a.service", "b@1.service")
	if err != nil || s.Find("a.service") == nil {
		t.Errorf("%v: %+v", err, s)
	}
	for _, ask := range []func() error{
		func() error { _, err := c.Status(ctx); return err },
		func() error { _, err := c.Startups(ctx, "a.service", 7); return err },
		func() error { _, err := c.Startups(ctx, "", 0); return err },
		func() error { _, err := c.Startup(ctx, "a.service", "x/y"); return err },
		func() error { _, err := c.Memory(ctx, "a.service"); return err },
	} {
		if err := ask(); err != nil {
			t.Error(err)
		}
	}
	want := []string{
		"/api/v1/status?unit=a.service&unit=b%401.service", "/api/v1/status", "/api/v1/startups?limit=7&unit=a.service", "/api/v1/startups",
		"/api/v1/startups/x%2Fy?unit=a.service", "/api/v1/memory?unit=a.service",
	}
	if diff := cmp.Diff(want, asked); diff != "" {
		t.Error(diff)
	}
}

func TestRefusals(t *testing.T) {
	for _, tt := range []struct {
		name   string
		answer http.HandlerFunc
		want   string
	}{
		{"a problem", func(w http.ResponseWriter, _ *http.Request) {
			w.WriteHeader(http.StatusNotFound)
			_ = json.NewEncoder(w).Encode(api.Problem{Error: "unit is not watched", Next: "add it"})
		}, "the daemon answers 404: unit is not watched; add it"},
		{"a text", func(w http.ResponseWriter, _ *http.Request) { http.Error(w, "no\nroom", http.StatusServiceUnavailable) }, "the daemon answers 503: no room"},
		{"nothing", func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusForbidden) }, "the daemon answers 403"},
		{"another schema", func(w http.ResponseWriter, _ *http.Request) {
			fmt.Fprint(w, `{"schema":"startupd.status/v2","units":[]}`)
		},
			`the daemon tells a status of schema "startupd.status/v2", and startupd.status/v1 is understood`},
		{"no schema", func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, "null") }, `the daemon tells a status of schema ""`},
		{"another document", func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, "<html>") }, "the daemon's answer to /api/v1/status can't be read"},
		{"no events", func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, "{}") }, `the daemon answers /api/v1/events with "text/plain", not with events`},
	} {
		c := serve(t, tt.answer)
		_, err := c.Status(t.Context())
		if tt.name == "no events" {
			err = c.Events(t.Context(), EventsOptions{}, func(Event) error { return nil })
		}
		if err == nil || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%s: %v", tt.name, err)
		}
	}
	for body, foreign := range map[string]bool{"404 page not found\n": true, "{}": true, `{"error":"unit is not watched"}`: false} {
		_, err := serve(t, func(w http.ResponseWriter, _ *http.Request) {
			w.WriteHeader(http.StatusNotFound)
			fmt.Fprint(w, body)
		}).Status(t.Context())
		if se := (*StatusError)(nil); !errors.As(err, &se) || se.Foreign != foreign {
			t.Errorf("%q is foreign: %+v", body, err)
		}
	}
	_, err := New(Options{Socket: filepath.Join(t.TempDir(), "none")}).Status(t.Context())
	if oe := (*net.OpError)(nil); !errors.As(err, &oe) || strings.Contains(err.Error(), "http://") {
		t.Errorf("no daemon: %v", err)
	}
}

func TestEvents(t *testing.T) {
	var query, after string
	ended := make(chan struct{})
	c := serve(t, func(w http.ResponseWriter, r *http.Request) {
		query, after = r.URL.RawQuery, r.Header.Get("Last-Event-ID")
		w.Header().Set("Content-Type", "text/event-stream; charset=utf-8")
		fmt.Fprint(w, "event: snapshot\ndata: {\"schema\":\"startupd.status/v1\",\"units\":[{\"unit\":\"a.service\",\"state\":\"load\"}]}\n\n: alive\n\nid: e-7\nevent: transition\r\ndata: {\"unit\":\"a.service\",\ndata: \"to\":\"compile\"}\n\n")
		http.NewResponseController(w).Flush()
		<-ended
	})
	defer close(ended)
	var got []string
	enough := errors.New("enough")
	err := c.Events(t.Context(), EventsOptions{Units: []string{"a.service"}, After: "e-6"}, func(ev Event) error {
		switch ev.Type {
		case api.EventSnapshot:
			s, err := ev.Status()
			got = append(got, fmt.Sprint(s.Find("a.service").State, err))
		case api.EventTransition:
			tr, err := ev.Transition()
			got = append(got, fmt.Sprint(ev.ID, tr.To, err))
			return enough
		case "":
			got = append(got, "alive")
		}
		return nil
	})
	if diff := cmp.Diff([]string{"load<nil>", "alive", "e-7compile<nil>"}, got); diff != "" || !errors.Is(err, enough) || query != "unit=a.service" || after != "e-6" {
		t.Errorf("%v, %q, %q\n%s", err, query, after, diff)
	}
}

func TestEventsEnd(t *testing.T) {
	for _, tt := range []struct {
		text string
		want error
		n    int
	}{
		{"event: update\ndata: {}\n\n", ErrEnded, 1},
		{"event: update\ndata: {}\n", ErrEnded, 0}, // half an event is none
		{"event: update\n\n", ErrEnded, 0},
		{"", ErrEnded, 0},
	} {
		n := 0
		if err := readEvents(strings.NewReader(tt.text), func(Event) error { n++; return nil }); !errors.Is(err, tt.want) || n != tt.n {
			t.Errorf("%q: %v, %d events", tt.text, err, n)
		}
	}
	endless := io.LimitReader(zeros{}, maxBody+1<<20)
	if err := readEvents(io.MultiReader(endless, strings.NewReader("\n")), func(Event) error { return nil }); err == nil || !strings.Contains(err.Error(), "is longer than") {
		t.Errorf("an endless event: %v", err)
	}
	bad := Event{Type: api.EventOutcome, Data: []byte("<")}
	if _, err := bad.Told(); err == nil || !strings.Contains(err.Error(), "the daemon's outcome event can't be read") {
		t.Error(err)
	}
	ctx, cancel := context.WithCancelCause(t.Context())
	cause := errors.New("no longer wanted")
	c := serve(t, func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/event-stream")
		http.NewResponseController(w).Flush()
		cancel(cause)
	})
	if err := c.Events(ctx, EventsOptions{}, func(Event) error { return nil }); !errors.Is(err, cause) {
		t.Errorf("ended by us: %v", err)
	}
}

// zeros is a line without an end.
type zeros struct{}

func (zeros) Read(p []byte) (int, error) {
	for i := range p {
		p[i] = '0'
	}
	return len(p), nil
}
