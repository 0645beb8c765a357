package app

import (
	"context"
	"errors"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/prometheus/exporter-toolkit/web"
)

func flags(addrs ...string) *web.FlagConfig {
	no, none := false, ""
	return &web.FlagConfig{WebListenAddresses: &addrs, WebSystemdSocket: &no, WebConfigFile: &none}
}

func TestListenPortInUse(t *testing.T) {
	taken, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer taken.Close()
	addr := taken.Addr().String()
	_, err = listen(t.Context(), flags("127.0.0.1:0", addr))
	if err == nil {
		t.Fatal("no error")
	}
	for _, want := range []string{addr, "address already in use", "ss -ltnp", "--web.listen-address"} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("%q lacks %q", err, want)
		}
	}
}

func TestListenRefuses(t *testing.T) {
	for addr, want := range map[string]string{
		"nonsense":      "HOST:PORT",
		":99999":        "HOST:PORT",
		"192.0.2.1:0":   "ip address",
		"vsock://:1234": "--web.systemd-socket",
	} {
		if _, err := listen(t.Context(), flags(addr)); err == nil || !strings.Contains(err.Error(), want) || !strings.Contains(err.Error(), addr) {
			t.Errorf("%s: %v", addr, err)
		}
	}
	if _, err := listen(t.Context(), flags()); !errors.Is(err, ErrConfig) {
		t.Errorf("no address: %v", err)
	}
}

func TestListenSocket(t *testing.T) {
	path := filepath.Join(t.TempDir(), "api.sock")
	first, err := listenSocket(t.Context(), path)
	if err != nil {
		t.Fatal(err)
	}
	if info, err := os.Stat(path); err != nil || info.Mode().Perm() != 0o660 {
		t.Errorf("mode %v, %v", info.Mode(), err)
	}
	if _, err := listenSocket(t.Context(), path); err == nil || !strings.Contains(err.Error(), "another startupd serves it") {
		t.Errorf("socket in use: %v", err)
	}
	// A killed daemon leaves its socket file behind.
	first.(*net.UnixListener).SetUnlinkOnClose(false)
	if err := first.Close(); err != nil {
		t.Fatal(err)
	}
	second, err := listenSocket(t.Context(), path)
	if err != nil {
		t.Fatalf("stale socket: %v", err)
	}
	if err := second.Close(); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := listenSocket(t.Context(), path); err == nil || !strings.Contains(err.Error(), "no socket") {
		t.Errorf("a plain file: %v", err)
	}
	if _, err := os.Stat(path); err != nil {
		t.Errorf("the plain file is gone: %v", err)
	}
}

func TestLoopbackOnly(t *testing.T) {
	h := loopbackOnly(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusTeapot) }))
	tests := []struct {
		path, from string
		want       int
	}{
		{"/", "127.0.0.1:1", http.StatusTeapot},
		{"/", "[::1]:1", http.StatusTeapot},
		{"/", "[::ffff:127.0.0.2]:1", http.StatusTeapot},
		{"/", "192.0.2.7:1", http.StatusForbidden},
		{"/", "[2001:db8::1]:1", http.StatusForbidden},
		{"/", "", http.StatusForbidden},
		{"/api/v1/status", "192.0.2.7:1", http.StatusForbidden},
		{"/metrics/../", "192.0.2.7:1", http.StatusForbidden},
		{"/metrics", "192.0.2.7:1", http.StatusTeapot},
		{"/startupz", "192.0.2.7:1", http.StatusTeapot},
		{"/-/healthy", "192.0.2.7:1", http.StatusTeapot},
		{"/-/ready", "192.0.2.7:1", http.StatusTeapot},
		{"/-/reload", "192.0.2.7:1", http.StatusTeapot},
	}
	for _, tt := range tests {
		r := httptest.NewRequest(http.MethodGet, "http://host"+tt.path, nil)
		r.RemoteAddr = tt.from
		w := httptest.NewRecorder()
		h.ServeHTTP(w, r)
		if w.Code != tt.want {
			t.Errorf("%s from %q: %d, want %d", tt.path, tt.from, w.Code, tt.want)
		}
		if w.Code == http.StatusForbidden && !strings.Contains(w.Body.String(), "--web.config.file") {
			t.Errorf("%s: body %q does not say what to do", tt.path, w.Body)
		}
	}
}

// A proxy on this host asks for others, and says so.
func TestForwarded(t *testing.T) {
	h := loopbackOnly(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusTeapot) }))
	for _, name := range []string{"Forwarded", "Via", "X-Forwarded-For", "X-Forwarded-Host", "X-Forwarded-Proto", "X-Real-IP"} {
		for path, want := range map[string]int{"/api/v1/status": http.StatusForbidden, "/": http.StatusForbidden, "/metrics": http.StatusTeapot} {
			r := httptest.NewRequest(http.MethodGet, "http://localhost"+path, nil)
			r.RemoteAddr = "127.0.0.1:1"
			r.Header.Set(name, "192.0.2.7")
			w := httptest.NewRecorder()
			h.ServeHTTP(w, r)
			if w.Code != want {
				t.Errorf("%s with %s: %d, want %d", path, name, w.Code, want)
			}
		}
	}
}

func TestCleanups(t *testing.T) {
	var order []string
	var c cleanups
	step := func(name string, err error) {
		c.push(name, func(context.Context) error { order = append(order, name); return err })
	}
	broken := errors.New("broken")
	step("a", nil)
	step("b", broken)
	step("c", nil)
	err := c.run(t.Context())
	if got := strings.Join(order, ""); got != "cba" {
		t.Errorf("order %s", got)
	}
	if !errors.Is(err, broken) || !strings.Contains(err.Error(), "stop b") {
		t.Errorf("error %v", err)
	}
}

func TestCleanupsAreBounded(t *testing.T) {
	var c cleanups
	ran := false
	c.push("first", func(context.Context) error { ran = true; return nil })
	hang := make(chan struct{})
	defer close(hang)
	c.push("hung", func(context.Context) error { <-hang; return nil })
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	err := c.run(ctx)
	if err == nil || !strings.Contains(err.Error(), "stop hung") {
		t.Errorf("error %v", err)
	}
	if !ran {
		t.Error("the step below the hung one did not run")
	}
}
