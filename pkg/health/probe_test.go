package health

import (
	"context"
	"crypto/tls"
	"errors"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/startupd/startupd/pkg/event"
)

func probeOnce(t *testing.T, target Target) event.HealthSample {
	t.Helper()
	if err := CheckURL(target.URL); err != nil {
		t.Fatal(err)
	}
	return newClient(target, 2*time.Second).probe(t.Context())
}

func serve(t *testing.T, h http.HandlerFunc) string {
	t.Helper()
	srv := httptest.NewServer(h)
	t.Cleanup(srv.Close)
	return srv.URL
}

func status(code int) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(code) }
}

func TestStatuses(t *testing.T) {
	for name, c := range map[string]struct {
		code            int
		ready, notReady []int
		want            event.HealthStatus
	}{
		"ready by default":         {code: 200, want: event.HealthReady},
		"another success is not":   {code: 204, want: event.HealthNotReady},
		"ready as told":            {code: 204, ready: []int{204}, want: event.HealthReady},
		"not ready":                {code: 503, notReady: []int{503}, want: event.HealthNotReady},
		"neither":                  {code: 404, notReady: []int{503}, want: event.HealthUnknown},
		"not ready without a list": {code: 404, want: event.HealthNotReady},
		"a redirect is no answer":  {code: 302, notReady: []int{503}, want: event.HealthUnknown},
	} {
		t.Run(name, func(t *testing.T) {
			url := serve(t, func(w http.ResponseWriter, r *http.Request) {
				w.Header().Set("Location", "/elsewhere")
				if r.URL.Path == "/elsewhere" {
					t.Error("the redirect was followed")
				}
				w.WriteHeader(c.code)
			})
			got := probeOnce(t, Target{URL: url + "/health", ReadyCodes: c.ready, NotReadyCodes: c.notReady})
			if got.Status != c.want || got.Code != c.code {
				t.Errorf("got %+v, want %s", got, c.want)
			}
			if (got.Detail != "") != (c.want == event.HealthUnknown) {
				t.Errorf("detail %q", got.Detail)
			}
		})
	}
}

func TestClosedPort(t *testing.T) {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	addr := ln.Addr().String()
	ln.Close()
	if got := probeOnce(t, Target{URL: "http://" + addr}); got.Status != event.HealthClosed || got.Code != 0 {
		t.Errorf("got %+v, want closed", got)
	}
}

func TestUnixSocket(t *testing.T) {
	socket := filepath.Join(t.TempDir(), "engine.sock")
	url, err := URLFromListen("unix:"+socket, 0, "/health")
	if err != nil {
		t.Fatal(err)
	}
	if got := probeOnce(t, Target{URL: url}); got.Status != event.HealthClosed {
		t.Errorf("without a socket: %+v, want closed", got)
	}
	ln, err := net.Listen("unix", socket)
	if err != nil {
		t.Fatal(err)
	}
	srv := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path != "/health" {
			w.WriteHeader(http.StatusNotFound)
		}
	}))
	srv.Listener = ln
	srv.Start()
	if got := probeOnce(t, Target{URL: url, OnlyLocal: true}); got.Status != event.HealthReady {
		t.Errorf("with a server: %+v, want ready", got)
	}
	srv.Close()
	// A socket file that a killed engine left behind.
	ln, err = net.Listen("unix", socket)
	if err != nil {
		t.Fatal(err)
	}
	ln.(*net.UnixListener).SetUnlinkOnClose(false)
	ln.Close()
	if got := probeOnce(t, Target{URL: url}); got.Status != event.HealthClosed {
		t.Errorf("with a dead socket: %+v, want closed", got)
	}
}

func TestIPv6(t *testing.T) {
	ln, err := net.Listen("tcp", "[::1]:0")
	if err != nil {
		t.Log("this machine has no IPv6 loopback; only the URL is checked")
		return
	}
	srv := httptest.NewUnstartedServer(status(200))
	srv.Listener = ln
	srv.Start()
	defer srv.Close()
	url, err := URLFromListen("::", ln.Addr().(*net.TCPAddr).Port, "/health")
	if err != nil {
		t.Fatal(err)
	}
	if got := probeOnce(t, Target{URL: url, OnlyLocal: true}); got.Status != event.HealthReady {
		t.Errorf("got %+v, want ready", got)
	}
}

func TestTLS(t *testing.T) {
	srv := httptest.NewUnstartedServer(status(200))
	srv.Config.ErrorLog = log.New(io.Discard, "", 0)
	srv.StartTLS()
	defer srv.Close()
	got := probeOnce(t, Target{URL: srv.URL})
	if got.Status != event.HealthUnknown || !strings.Contains(got.Detail, "insecure") {
		t.Errorf("a self-signed certificate: %+v, want unknown and what to do", got)
	}
	if got := probeOnce(t, Target{URL: srv.URL, Insecure: true}); got.Status != event.HealthReady {
		t.Errorf("insecure: %+v, want ready", got)
	}
	plain := serve(t, status(200))
	got = probeOnce(t, Target{URL: strings.Replace(plain, "http:", "https:", 1), Insecure: true})
	if got.Status != event.HealthUnknown || got.Detail == "" {
		t.Errorf("https to a plain port: %+v, want unknown", got)
	}
}

func TestNoAnswerInTime(t *testing.T) {
	url := serve(t, func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() })
	got := newClient(Target{URL: url}, 30*time.Millisecond).probe(t.Context())
	if got.Status != event.HealthUnknown || got.Detail != "no answer within 30ms" {
		t.Errorf("got %+v, want unknown", got)
	}
}

// TestNotHTTP answers what is no HTTP, and checks that the same failure reads
// the same each time: the text must not hold a port of ours.
func TestNotHTTP(t *testing.T) {
	for name, answer := range map[string]string{"garbage": "SSH-2.0-x\r\n", "nothing": ""} {
		t.Run(name, func(t *testing.T) {
			ln, err := net.Listen("tcp", "127.0.0.1:0")
			if err != nil {
				t.Fatal(err)
			}
			defer ln.Close()
			go func() {
				for {
					c, err := ln.Accept()
					if err != nil {
						return
					}
					_, _ = c.Read(make([]byte, 1<<10))
					_, _ = io.WriteString(c, answer)
					_ = c.(*net.TCPConn).SetLinger(0)
					c.Close()
				}
			}()
			got := probeOnce(t, Target{URL: "http://" + ln.Addr().String()})
			if got.Status != event.HealthUnknown || got.Detail == "" || strings.Contains(got.Detail, "127.0.0.1") {
				t.Errorf("got %+v, want unknown", got)
			}
		})
	}
}

// TestEndlessBody: the status decides, however long the body goes on.
func TestEndlessBody(t *testing.T) {
	url := serve(t, func(w http.ResponseWriter, _ *http.Request) {
		chunk := make([]byte, 1<<10)
		for {
			if _, err := w.Write(chunk); err != nil {
				return
			}
		}
	})
	if got := probeOnce(t, Target{URL: url}); got.Status != event.HealthReady {
		t.Errorf("got %+v, want ready", got)
	}
}

func TestHugeHeader(t *testing.T) {
	url := serve(t, func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("X-Long", strings.Repeat("x", 1<<20))
	})
	if got := probeOnce(t, Target{URL: url}); got.Status != event.HealthUnknown {
		t.Errorf("got %+v, want unknown", got)
	}
}

// TestNoProxyNoKeepAlive: the environment's proxy must not answer for the
// engine, and each probe opens its own connection.
func TestNoProxyNoKeepAlive(t *testing.T) {
	var proxied atomic.Int32
	proxy := serve(t, func(http.ResponseWriter, *http.Request) { proxied.Add(1) })
	t.Setenv("HTTP_PROXY", proxy)
	t.Setenv("http_proxy", proxy)
	var conns atomic.Int32
	srv := httptest.NewUnstartedServer(status(200))
	srv.Config.ConnState = func(_ net.Conn, s http.ConnState) {
		if s == http.StateNew {
			conns.Add(1)
		}
	}
	srv.Start()
	defer srv.Close()
	c := newClient(Target{URL: srv.URL}, time.Second)
	for range 3 {
		if got := c.probe(t.Context()); got.Status != event.HealthReady {
			t.Fatalf("got %+v", got)
		}
	}
	if proxied.Load() != 0 || conns.Load() != 3 {
		t.Errorf("%d requests by the proxy, %d connections; want 0 and 3", proxied.Load(), conns.Load())
	}
	if p := c.http.Transport.(*http.Transport).Proxy; p != nil {
		t.Error("the transport has a proxy") // loopback is exempt from the environment's
	}
}

// TestOnlyLocal uses a connection whose two ends tell that the other is not
// this host.
func TestOnlyLocal(t *testing.T) {
	for name, c := range map[string]struct {
		local, remote net.Addr
		want          bool
	}{
		"own address":     {tcp("192.0.2.7:4000"), tcp("192.0.2.7:8000"), true},
		"loopback":        {tcp("127.0.0.1:4000"), tcp("127.0.0.2:8000"), true},
		"another machine": {tcp("192.0.2.7:4000"), tcp("192.0.2.9:8000"), false},
		"unix socket":     {&net.UnixAddr{}, &net.UnixAddr{}, true},
	} {
		if got := isLocal(fakeConn{local: c.local, remote: c.remote}); got != c.want {
			t.Errorf("%s: %v, want %v", name, got, c.want)
		}
	}
	_, detail := newClient(Target{URL: "http://192.0.2.9"}, time.Second).classify(&net.OpError{Op: "dial", Err: errNotLocal})
	if !strings.Contains(detail, "configuration") {
		t.Errorf("detail %q does not say what to do", detail)
	}
}

type fakeConn struct {
	net.Conn
	local, remote net.Addr
}

func (c fakeConn) LocalAddr() net.Addr  { return c.local }
func (c fakeConn) RemoteAddr() net.Addr { return c.remote }

func tcp(s string) net.Addr {
	a, err := net.ResolveTCPAddr("tcp", s)
	if err != nil {
		panic(err)
	}
	return a
}

func TestClassifyErrors(t *testing.T) {
	c := newClient(Target{URL: "http://127.0.0.1"}, time.Second)
	for name, err := range map[string]error{
		"unknown host": &net.DNSError{Err: "no such host", Name: "engine.invalid", IsNotFound: true},
		"tls alert":    tls.AlertError(40),
		"long text":    errors.New(strings.Repeat("ü", 5000)),
		"cancelled":    context.Canceled,
	} {
		got, detail := c.classify(err)
		if got != event.HealthUnknown || detail == "" || len(detail) > 203 {
			t.Errorf("%s: %s %q", name, got, detail)
		}
	}
}
