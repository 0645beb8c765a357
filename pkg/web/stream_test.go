package web

import (
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/startupd/startupd/pkg/event"
	"github.com/startupd/startupd/pkg/phases"
	"github.com/startupd/startupd/pkg/web/api"
)

func TestOrderOnConnect(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, nil)
		dial, stop := w.serve()
		defer stop()
		w.move("a.service", phases.Unknown, phases.Spawn)
		c := connect(t, dial(), "", "")
		defer c.close()
		if c.retry != "retry: 2000\n" {
			t.Errorf("begins with %q", c.retry)
		}
		snap := c.want(api.EventSnapshot)
		var st api.Status
		snap.into(t, &st)
		if snap.id != w.hub.id(1) || st.LastEventID != snap.id || st.Version != "1.2.3" || len(st.Units) != 1 || st.Units[0].State != "spawn" {
			t.Errorf("snapshot %s: %s", snap.id, snap.data)
		}
		w.set(at(21 * time.Second))
		w.move("a.service", phases.Spawn, phases.Load)
		m := c.want(api.EventTransition)
		var tr api.Transition
		m.into(t, &tr)
		if m.id != w.hub.id(2) || tr.Unit != "a.service" || tr.From != "spawn" || tr.To != "load" || tr.Seconds == nil || *tr.Seconds != 21 {
			t.Errorf("transition %s: %s", m.id, m.data)
		}
	})
}

// TestTransitionsWaitForTheirSnapshot shows that a client which connects between
// a change and its publication is told of the change: its snapshot lacks it.
func TestTransitionsWaitForTheirSnapshot(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, nil)
		dial, stop := w.serve()
		defer stop()
		w.publish(phases.Target{Name: "a.service", State: phases.Unknown})
		w.hub.Transition(phases.Transition{Target: "a.service", From: phases.Unknown, To: phases.Spawn, At: at(0)})
		// Another goroutine compares meanwhile: what it finds may not let it out either.
		w.hub.look(&phases.Snapshot{Targets: []phases.Target{{Name: "b.service", Startup: ended("02", phases.OutcomeStopped)}}})
		c := connect(t, dial(), "", "")
		defer c.close()
		m := c.want(api.EventSnapshot)
		if m.id != w.hub.id(0) || !strings.Contains(m.data, `"state":"unknown"`) {
			t.Errorf("snapshot %s: %s", m.id, m.data)
		}
		w.publish(phases.Target{Name: "a.service", State: phases.Spawn})
		if m = c.want(api.EventTransition); m.id != w.hub.id(1) {
			t.Errorf("transition %s", m.id)
		}
		if m = c.want(api.EventOutcome); m.id != w.hub.id(2) {
			t.Errorf("outcome %s", m.id)
		}
	})
}

func TestResume(t *testing.T) {
	for _, by := range []string{"header", "query"} {
		synctest.Test(t, func(t *testing.T) {
			w := newWorld(t, nil)
			dial, stop := w.serve()
			defer stop()
			for i := range 5 {
				w.set(at(time.Duration(i) * time.Second))
				w.move("a.service", phases.Spawn, phases.Load)
			}
			query, last := "?last_event_id="+w.hub.id(3), ""
			if by == "header" {
				query, last = "?last_event_id="+w.hub.id(1), w.hub.id(3)
			}
			c := connect(t, dial(), query, last)
			defer c.close()
			for _, n := range []uint64{4, 5} {
				if m := c.want(api.EventTransition); m.id != w.hub.id(n) {
					t.Errorf("by %s: %s, want event %d", by, m.id, n)
				}
			}
			w.move("a.service", phases.Load, phases.Compile)
			w.hub.update(time.Now())
			if m := c.want(api.EventTransition); !strings.Contains(m.data, `"to":"compile"`) {
				t.Errorf("by %s: live %s", by, m.data)
			}
			// One that was away has missed updates too.
			if m := c.want(api.EventUpdate); !strings.Contains(m.data, `"state":"compile"`) {
				t.Errorf("by %s: update %s", by, m.data)
			}
		})
	}
}

func TestReset(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, nil)
		dial, stop := w.serve()
		defer stop()
		const events = ringEvents + 10
		for range events {
			w.move("a.service", phases.Spawn, phases.Load)
		}
		before := NewHub(w.hub.opts)
		ten := uint64(10)
		tests := []struct {
			name, last, query string
			reason            string
			missed            *uint64
		}{
			{"no longer kept", w.hub.id(0), "", "no longer kept", &ten},
			{"of an earlier run", before.id(5), "", "restarted", nil},
			{"not ours", "17", "", "not one of", nil},
			{"no number", w.hub.epoch + "-x", "", "not one of", nil},
			{"of the future", w.hub.id(events + 1), "", "has not happened", nil},
			{"of a unit", w.hub.id(0), "?unit=a", "no longer kept", nil},
		}
		for _, tt := range tests {
			c := connect(t, dial(), tt.query, tt.last)
			var reset api.Reset
			c.want(api.EventReset).into(t, &reset)
			if !strings.Contains(reset.Reason, tt.reason) || (reset.Missed == nil) != (tt.missed == nil) || tt.missed != nil && *reset.Missed != *tt.missed {
				t.Errorf("%s: %+v", tt.name, reset)
			}
			if m := c.want(api.EventSnapshot); m.id != w.hub.id(events) {
				t.Errorf("%s: snapshot %s", tt.name, m.id)
			}
			c.close()
		}
		c := connect(t, dial(), "", w.hub.id(10)) // the oldest place that is left
		defer c.close()
		if m := c.want(api.EventTransition); m.id != w.hub.id(11) {
			t.Errorf("the first event that is kept is %s", m.id)
		}
	})
}

func TestUnitFilter(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, nil)
		dial, stop := w.serve()
		defer stop()
		two := func(b phases.State) []phases.Target {
			return []phases.Target{{Name: "a.service", State: phases.Load}, {Name: "b.service", State: b}}
		}
		w.publish(two(phases.Unknown)...)
		c := connect(t, dial(), "?unit=b", "")
		defer c.close()
		if m := c.want(api.EventSnapshot); strings.Contains(m.data, "a.service") || !strings.Contains(m.data, "b.service") {
			t.Errorf("snapshot %s", m.data)
		}
		for range 3 {
			w.hub.Transition(phases.Transition{Target: "a.service", From: phases.Spawn, To: phases.Load})
		}
		w.hub.Transition(phases.Transition{Target: "b.service", From: phases.Unknown, To: phases.Spawn})
		w.publish(two(phases.Spawn)...)
		if m := c.want(api.EventTransition); m.id != w.hub.id(4) {
			t.Errorf("%s %s", m.id, m.data)
		}
		w.hub.update(time.Now())
		if m := c.want(api.EventUpdate); strings.Contains(m.data, "a.service") {
			t.Errorf("update %s", m.data)
		}
		// Events of other units move the client's place on, or it would have to begin
		// anew after a long quiet.
		w.hub.Transition(phases.Transition{Target: "a.service", From: phases.Load, To: phases.Failed})
		w.hub.Turned()
		if m, _ := c.next(); !m.comment || m.id != w.hub.id(5) {
			t.Errorf("keep-alive %+v", m)
		}
	})
}

// TestStreamLives keeps a stream open for longer than the server's deadlines for
// reading and writing a request.
func TestStreamLives(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, nil)
		dial, stop := w.serve()
		defer stop()
		c := connect(t, dial(), "", "")
		defer c.close()
		c.want(api.EventSnapshot)
		began := time.Now()
		for range 20 {
			if m, ok := c.next(); !ok || !m.comment {
				t.Fatalf("after %s: %+v", time.Since(began), m)
			}
		}
		if d := time.Since(began); d != 20*keepAlive {
			t.Errorf("20 keep-alives in %s", d)
		}
		w.move("a.service", phases.Unknown, phases.Spawn)
		c.want(api.EventTransition)
	})
}

func TestTenClients(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const events = 3000
		w := newWorld(t, nil)
		dial, stop := w.serve()
		defer stop()
		var done sync.WaitGroup
		for range 10 {
			c := connect(t, dial(), "", "")
			c.want(api.EventSnapshot)
			done.Go(func() {
				defer c.close()
				for n := range uint64(events) {
					if m := c.want(api.EventTransition, api.EventUpdate); m.id != w.hub.id(n+1) {
						t.Errorf("%s, want event %d", m.id, n+1)
						return
					}
				}
			})
		}
		for i := range events {
			w.move("a.service", phases.Spawn, phases.Load)
			if i%50 == 0 {
				w.hub.update(time.Now())
				synctest.Wait() // the ring holds 2,048
			}
		}
		done.Wait()
	})
}

// TestOvertakenClient lets a client stop reading while events go on.
func TestOvertakenClient(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var told []string
		w := newWorld(t, func(h *HubOptions, _ *Options) { h.Dropped = func(_, why string) { told = append(told, why) } })
		dial, stop := w.serve()
		defer stop()
		c := connect(t, dial(), "", "")
		defer c.close()
		c.want(api.EventSnapshot)
		for range 3 * ringEvents {
			w.move("a.service", phases.Spawn, phases.Load)
		}
		// What it had in hand it gets; then it is told.
		var seen uint64
		m := c.want(api.EventTransition)
		for ; m.kind == api.EventTransition; m, _ = c.next() {
			if seen++; m.id != w.hub.id(seen) {
				t.Fatalf("a hole before %s", m.id)
			}
		}
		var r api.Reset
		m.into(t, &r)
		if want := 2*ringEvents - seen; m.kind != api.EventDropped || r.Missed == nil || *r.Missed != want || !strings.Contains(r.Reason, "too slowly") {
			t.Errorf("%s %s, want %d missed", m.kind, m.data, want)
		}
		if _, more := c.next(); more {
			t.Error("the stream goes on")
		}
		if len(told) != 1 || !strings.Contains(told[0], "too slowly") {
			t.Errorf("the log has %q", told)
		}
		again := connect(t, dial(), "", w.hub.id(seen))
		defer again.close()
		again.want(api.EventReset)
		again.want(api.EventSnapshot)
	})
}

// TestClientThatDoesNotRead has a real connection whose buffers fill up.
func TestClientThatDoesNotRead(t *testing.T) {
	dropped := make(chan string, 1)
	w := newWorld(t, func(h *HubOptions, _ *Options) {
		h.WriteWithin = 300 * time.Millisecond
		h.Dropped = func(_, why string) { dropped <- why }
	})
	w.publish(phases.Target{Name: "a.service", Startup: try("01")})
	s := httptest.NewUnstartedServer(w.web)
	s.Config.ConnState = func(c net.Conn, st http.ConnState) {
		if st == http.StateNew {
			_ = c.(*net.TCPConn).SetWriteBuffer(4 << 10)
		}
	}
	s.Start()
	defer s.Close()
	defer w.hub.End()
	dial := func() *client {
		conn, err := net.Dial("tcp", s.Listener.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		_ = conn.(*net.TCPConn).SetReadBuffer(4 << 10)
		c := connect(t, conn, "", "")
		c.want(api.EventSnapshot)
		return c
	}
	deaf, good := dial(), dial()
	defer deaf.close()
	defer good.close()
	long := phases.Transition{Target: "a.service", Invocation: strings.Repeat("x", 4000), From: phases.Spawn, To: phases.Load}
	for i := uint64(1); ; i++ {
		w.hub.Transition(long)
		w.hub.Turned()
		if m := good.want(api.EventTransition); m.id != w.hub.id(i) {
			t.Fatalf("the client beside it has %s instead of event %d", m.id, i)
		}
		select {
		case why := <-dropped:
			if !strings.Contains(why, "timeout") {
				t.Errorf("dropped: %s", why)
			}
			return
		case <-t.Context().Done():
			t.Fatal("it is still there")
		default:
		}
	}
}

func TestStreamsEndAtShutdown(t *testing.T) {
	w := newWorld(t, nil)
	s := httptest.NewUnstartedServer(w.web)
	s.Config.RegisterOnShutdown(w.hub.End)
	s.Start()
	defer s.Close()
	conn, err := net.Dial("tcp", s.Listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	c := connect(t, conn, "", "")
	defer c.close()
	c.want(api.EventSnapshot)
	if err := s.Config.Shutdown(t.Context()); err != nil {
		t.Error(err)
	}
	if m, more := c.next(); more {
		t.Errorf("the stream goes on: %+v", m)
	}
}

func TestStreamsAreBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, func(h *HubOptions, _ *Options) { h.MaxStreams = 2 })
		dial, stop := w.serve()
		defer stop()
		one, two := connect(t, dial(), "", ""), connect(t, dial(), "", "")
		defer two.close()
		one.want(api.EventSnapshot)
		two.want(api.EventSnapshot)
		r := httptest.NewRecorder()
		w.web.ServeHTTP(r, httptest.NewRequest(http.MethodGet, "/api/v1/events", nil))
		if r.Code != http.StatusServiceUnavailable || r.Header().Get("Retry-After") == "" || !strings.Contains(r.Body.String(), "too many streams") {
			t.Errorf("%d %v %s", r.Code, r.Header(), r.Body)
		}
		one.close()
		synctest.Wait()
		three := connect(t, dial(), "", "")
		defer three.close()
		three.want(api.EventSnapshot)
		if n := len(w.hub.feeds); n != 1 {
			t.Errorf("%d feeds for the same units", n)
		}
	})
}

// TestCrashLoopInOneBatch plays more starts than a snapshot can show.
func TestCrashLoopInOneBatch(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const starts = 400
		w := newWorld(t, nil)
		dial, stop := w.serve()
		defer stop()
		host := phases.NewHost(phases.HostOptions{Transition: w.hub.Transition, Finished: w.hub.Finished}, phases.Config{Name: "a.service"})
		w.publish(host.Snapshot().Targets...)
		c := connect(t, dial(), "", "")
		defer c.close()
		c.want(api.EventSnapshot)
		for i := range starts {
			id, began := fmt.Sprintf("%032d", i), time.Duration(i)*time.Second
			for _, m := range []event.UnitMessage{
				{Message: event.Starting, Invocation: id}, {Message: event.FailureResult, Invocation: id, Result: "exit-code"},
			} {
				host.Apply(event.Event{At: at(began), Target: "a.service", Data: &m})
			}
		}
		w.publish(host.Snapshot().Targets...)
		failures, outcomes := 0, map[string]int{}
		for failures < starts {
			m, ok := c.next()
			if !ok {
				t.Fatal("the client was dropped")
			}
			if m.kind == api.EventOutcome {
				var n api.Told
				m.into(t, &n)
				outcomes[n.Invocation]++
			}
			if m.kind != api.EventTransition {
				continue
			}
			var tr api.Transition
			m.into(t, &tr)
			if want := fmt.Sprintf("%032d", failures); tr.Invocation != want {
				t.Fatalf("%s, want start %s", m.data, want)
			}
			if tr.To == "failed" {
				failures++
			}
		}
		w.look()
		c.want(api.EventOutcome, api.EventFinding, api.EventRootCause)
		// The last ones may still be amended, and are told when they are final.
		if len(outcomes) < starts-4 {
			t.Errorf("outcomes of %d of %d starts", len(outcomes), starts)
		}
		for id, n := range outcomes {
			if n != 1 {
				t.Errorf("start %s ended %d times", id, n)
			}
		}
	})
}

// TestHugeSnapshot gives a reader that is slow but reads a deadline a piece.
func TestHugeSnapshot(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, nil)
		dial, stop := w.serve()
		defer stop()
		s := try("01")
		s.LastLine = map[string]string{}
		for i := range 400 {
			s.LastLine[fmt.Sprint("worker ", i)] = strings.Repeat("x", 500)
		}
		w.publish(phases.Target{Name: "a.service", Startup: s})
		c := connect(t, dial(), "", "")
		defer c.close()
		// The server gets an answer to a piece after 9 s each: 60 s in all.
		head := make([]byte, 6*pieceBytes)
		for i := range 6 {
			if _, err := io.ReadFull(c.in, head[i*pieceBytes:][:pieceBytes]); err != nil {
				t.Fatal(err)
			}
			time.Sleep(9 * time.Second)
		}
		m, ok := c.next()
		if !ok {
			t.Fatal("it was dropped though it reads")
		}
		_, data, _ := strings.Cut(string(head), "data: ")
		if data += m.rest; !json.Valid([]byte(data)) || len(data) < 6*pieceBytes {
			t.Errorf("%d bytes of no document", len(data))
		}
	})
}
