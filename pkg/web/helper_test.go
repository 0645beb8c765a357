package web

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/startupd/startupd/pkg/event"
	"github.com/startupd/startupd/pkg/phases"
)

// at is d after the moment at which the tests' units begin to start.
func at(d time.Duration) event.Stamp {
	return event.Stamp{Real: time.Date(2026, 3, 1, 10, 0, 0, 0, time.UTC).Add(d), Boot: "b", Mono: time.Hour + d}
}

// world is a core that a test plays, with a server over it.
type world struct {
	*testing.T
	snap atomic.Pointer[phases.Snapshot]
	now  atomic.Pointer[event.Stamp]
	hub  *Hub
	web  *Server
	// snaps is what the hub's goroutine reads.
	snaps chan *phases.Snapshot
}

func newWorld(t *testing.T, change func(*HubOptions, *Options)) *world {
	t.Helper()
	w := &world{T: t, snaps: make(chan *phases.Snapshot)}
	w.set(at(0))
	w.snap.Store(&phases.Snapshot{At: at(0)})
	h := HubOptions{Snapshot: w.snap.Load, Clock: w.time, Version: "1.2.3"}
	o := Options{Snapshot: h.Snapshot, Clock: h.Clock, UnitName: func(s string) string { return strings.TrimSuffix(s, ".service") + ".service" }}
	if change != nil {
		change(&h, &o)
	}
	w.hub = NewHub(h)
	o.Hub = w.hub
	w.web = New(o)
	return w
}

func (w *world) set(now event.Stamp) { w.now.Store(&now) }
func (w *world) time() event.Stamp   { return *w.now.Load() }

// publish makes a state the present one, as the core's loop does.
func (w *world) publish(targets ...phases.Target) {
	w.Helper()
	w.snap.Store(&phases.Snapshot{At: w.time(), Targets: targets})
	w.hub.Turned()
}

// look lets the hub compare what is published.
func (w *world) look() { w.hub.look(w.snap.Load()) }

// move tells a change of state and publishes it.
func (w *world) move(unit string, from, to phases.State) {
	w.hub.Transition(phases.Transition{Target: unit, Invocation: "01", Began: at(0), From: from, To: to, At: w.time()})
	w.publish(phases.Target{Name: unit, State: to, Startup: try("01")})
}

// try is a startup in phase spawn.
func try(invocation string) *phases.Startup {
	return &phases.Startup{
		Invocation: invocation, Began: at(0),
		Phases: []phases.Phase{{Phase: phases.Spawn, Entered: at(0), Evidence: phases.Evidence{Source: "journal"}}},
	}
}

// message is one event of a stream.
type message struct {
	id, kind string
	data     string
	// comment says that it is only a comment, with or without an ID.
	comment bool
	// rest is a line that begins in the middle of an event.
	rest string
}

func (m message) into(t *testing.T, doc any) {
	t.Helper()
	if err := json.Unmarshal([]byte(m.data), doc); err != nil {
		t.Fatalf("%s: %v\n%s", m.kind, err, m.data)
	}
}

// client reads one stream.
type client struct {
	t    *testing.T
	conn net.Conn
	resp *http.Response
	in   *bufio.Reader
	// retry is what the stream began with.
	retry string
}

// pipes is a listener whose connections have no buffer.
type pipes struct {
	conns chan net.Conn
	done  chan struct{}
}

func (p pipes) Accept() (net.Conn, error) {
	select {
	case c := <-p.conns:
		return c, nil
	case <-p.done:
		return nil, net.ErrClosed
	}
}
func (p pipes) Close() error   { close(p.done); return nil }
func (p pipes) Addr() net.Addr { return &net.UnixAddr{Name: "pipe", Net: "unix"} }

// serve answers on unbuffered connections, with the deadlines of the daemon's
// servers.
func (w *world) serve() (dial func() net.Conn, stop func()) {
	l := pipes{conns: make(chan net.Conn), done: make(chan struct{})}
	s := &http.Server{Handler: w.web, ReadTimeout: 10 * time.Second, WriteTimeout: 30 * time.Second, IdleTimeout: 2 * time.Minute}
	ended := make(chan error, 1)
	go func() { ended <- s.Serve(l) }()
	dial = func() net.Conn {
		here, there := net.Pipe()
		l.conns <- there
		return here
	}
	return dial, func() {
		w.hub.End()
		_ = s.Close()
		<-ended
	}
}

// connect opens a stream and reads its head.
func connect(t *testing.T, conn net.Conn, query, last string) *client {
	t.Helper()
	header := ""
	if last != "" {
		header = "Last-Event-ID: " + last + "\r\n"
	}
	if _, err := fmt.Fprintf(conn, "GET /api/v1/events%s HTTP/1.1\r\nHost: localhost\r\n%s\r\n", query, header); err != nil {
		t.Fatal(err)
	}
	resp, err := http.ReadResponse(bufio.NewReader(conn), nil)
	if err != nil {
		t.Fatal(err)
	}
	c := &client{t: t, conn: conn, resp: resp, in: bufio.NewReader(resp.Body)}
	if resp.StatusCode != http.StatusOK || resp.Header.Get("Content-Type") != "text/event-stream" {
		b, _ := io.ReadAll(resp.Body)
		t.Fatalf("%s %v: %s", resp.Status, resp.Header, b)
	}
	c.retry, _ = c.in.ReadString('\n')
	if empty, err := c.in.ReadString('\n'); err != nil || empty != "\n" {
		t.Fatalf("%q, %v", empty, err)
	}
	return c
}

// next reads an event or a comment; false at the stream's end.
func (c *client) next() (message, bool) {
	c.t.Helper()
	var m message
	for {
		line, err := c.in.ReadString('\n')
		if err != nil {
			return m, false
		}
		line = strings.TrimSuffix(line, "\n")
		key, value, _ := strings.Cut(line, ": ")
		switch key {
		case "":
			if line == "" {
				return m, true
			}
			m.comment = true
		case "id":
			m.id = value
		case "event":
			m.kind = value
		case "data":
			m.data = value
		default:
			m.rest = line
		}
	}
}

// want reads events until one of the kind comes, and fails where another than
// the skipped kinds does.
func (c *client) want(kind string, skipped ...string) message {
	c.t.Helper()
	for {
		m, ok := c.next()
		if !ok {
			c.t.Fatalf("the stream ends before a %s", kind)
		}
		if m.rest != "" {
			c.t.Fatalf("line %q of a stream", m.rest)
		}
		if m.kind == kind {
			return m
		}
		skip := false
		for _, k := range skipped {
			skip = skip || k == m.kind
		}
		if !skip {
			c.t.Fatalf("%s %s came before a %s", m.kind, m.data, kind)
		}
	}
}

func (c *client) close() { _ = c.conn.Close() }

func newPair() (*bufio.Reader, net.Conn) {
	here, there := net.Pipe()
	return bufio.NewReader(here), there
}

func contextOf(t *testing.T) (context.Context, context.CancelFunc) {
	return context.WithCancel(t.Context())
}
