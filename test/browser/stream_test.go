//go:build browser

package browser

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"sync/atomic"
	"testing"
	"time"

	"github.com/startupd/startupd/pkg/web/api"
	"github.com/startupd/startupd/pkg/web/page"
)

// troubled is a server whose stream of events the test breaks.
type troubled struct {
	*httptest.Server
	status atomic.Pointer[api.Status]
	// streams tells of each stream that is opened; send says what it gets, and end
	// that it ends.
	streams chan struct{}
	send    chan string
	end     chan struct{}
	refuse  atomic.Bool
}

func newTroubled(t *testing.T) *troubled {
	t.Helper()
	s := &troubled{streams: make(chan struct{}, 100), send: make(chan string), end: make(chan struct{})}
	s.show("load")
	h, err := page.New(page.Options{Status: s.status.Load, Version: "1.0"})
	if err != nil {
		t.Fatal(err)
	}
	mux := http.NewServeMux()
	mux.Handle("/", h)
	mux.HandleFunc("GET /api/v1/events", s.events)
	s.Server = httptest.NewServer(mux)
	t.Cleanup(s.CloseClientConnections)
	return s
}

func (s *troubled) show(state string) {
	s.status.Store(&api.Status{At: time.Now(), Units: []api.Unit{{Unit: "a.service", State: state}}})
}

func (s *troubled) events(w http.ResponseWriter, r *http.Request) {
	if s.refuse.Load() {
		http.Error(w, "too many clients", http.StatusServiceUnavailable)
		return
	}
	w.Header().Set("Content-Type", "text/event-stream")
	fmt.Fprint(w, "retry: 200\n\n")
	flush := http.NewResponseController(w)
	_ = flush.Flush()
	s.streams <- struct{}{}
	for {
		select {
		case <-r.Context().Done():
			return
		case <-s.end:
			return
		case text := <-s.send:
			fmt.Fprint(w, text)
			_ = flush.Flush()
		}
	}
}

func (s *troubled) await(t *testing.T, what string) {
	t.Helper()
	select {
	case <-s.streams:
	case <-time.After(patience / 2):
		t.Fatal("no stream is opened ", what)
	}
}

// TestStreamInTrouble: a stream that is reset, dropped, broken or refused costs no
// news.
func TestStreamInTrouble(t *testing.T) {
	s := newTroubled(t)
	b := browse(t)
	b.open(t, s.URL)
	s.await(t, "at first")
	live := `document.getElementById("link").dataset.state === "live"`
	b.until(t, live)
	b.eval(t, "window.first = true")

	s.show("compile")
	s.send <- "event: reset\ndata: {\"reason\":\"too old\"}\n\n"
	b.until(t, badge("a.service", "compile"))

	s.show("cudagraph")
	s.send <- "event: update\ndata: this is no JSON\n\n"
	b.until(t, badge("a.service", "cudagraph"))

	b.allowOffline(true)
	s.show("serving")
	s.send <- "event: dropped\ndata: {\"reason\":\"too slow\"}\n\n"
	s.end <- struct{}{}
	s.await(t, "after one was dropped")
	b.until(t, badge("a.service", "serving"))
	b.until(t, live)

	// Without a stream the page asks again and again, and says so.
	s.refuse.Store(true)
	s.end <- struct{}{}
	b.sees(t, "no event stream; loaded again every 5 s")
	s.show("failed")
	b.until(t, badge("a.service", "failed"))
	s.refuse.Store(false)
	s.await(t, "after some were refused")
	b.until(t, live)
	b.is(t, "window.first === true")
}

// TestHungServer: a server that takes requests and does not answer is no live
// one.
func TestHungServer(t *testing.T) {
	s := newTroubled(t)
	hung := make(chan struct{})
	var hang atomic.Bool
	inner := s.Config.Handler
	s.Config.Handler = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if hang.Load() && r.URL.Path != "/api/v1/events" {
			select {
			case <-hung:
			case <-r.Context().Done():
			}
			return
		}
		inner.ServeHTTP(w, r)
	})
	b := browse(t)
	b.open(t, s.URL)
	s.await(t, "at first")
	b.until(t, `document.getElementById("link").dataset.state === "live"`)
	b.allowOffline(true)
	hang.Store(true)
	b.sees(t, "connection lost, retrying")
	hang.Store(false)
	close(hung)
	b.until(t, `document.getElementById("link").dataset.state === "live"`)
}
