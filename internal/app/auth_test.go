package app

import (
	"bufio"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"math/big"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/crypto/bcrypt"
)

// paths is every path that is served, with what it answers to one who may ask.
func paths() map[string]int {
	return map[string]int{
		"/":                             http.StatusOK,
		"/page/units":                   http.StatusOK,
		"/page/unit?unit=a.service":     http.StatusOK,
		"/page/memory?unit=a.service":   http.StatusOK,
		"/page/assets/none":             http.StatusNotFound,
		"/metrics":                      http.StatusOK,
		"/startupz":                     http.StatusServiceUnavailable,
		"/-/healthy":                    http.StatusOK,
		"/-/ready":                      http.StatusServiceUnavailable,
		"/-/reload":                     http.StatusMethodNotAllowed,
		"/api/v1/status":                http.StatusOK,
		"/api/v1/startups":              http.StatusOK,
		"/api/v1/startups/0123":         http.StatusNotFound,
		"/api/v1/memory?unit=a.service": http.StatusOK,
		"/api/v1/events":                http.StatusOK,
		"/api/none":                     http.StatusNotFound,
		"/none":                         http.StatusNotFound,
	}
}

// webConfig writes a configuration of the exporter-toolkit: a password, and TLS
// where a certificate is given.
func webConfig(t *testing.T, dir string, certified bool) string {
	t.Helper()
	hash, err := bcrypt.GenerateFromPassword([]byte("secret"), bcrypt.MinCost)
	if err != nil {
		t.Fatal(err)
	}
	text := "basic_auth_users:\n  prometheus: " + string(hash) + "\n"
	if certified {
		text += "tls_server_config:\n  cert_file: cert.pem\n  key_file: key.pem\n"
	}
	file := filepath.Join(dir, "web.yml")
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return file
}

// certificate writes a certificate for 127.0.0.1 and its key.
func certificate(t *testing.T, dir string) *x509.CertPool {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	c := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "test"}, NotAfter: time.Now().Add(time.Hour),
		IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}, IsCA: true, BasicConstraintsValid: true,
	}
	der, err := x509.CreateCertificate(rand.Reader, c, c, &key.PublicKey, key)
	if err != nil {
		t.Fatal(err)
	}
	private, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	for name, b := range map[string]*pem.Block{"cert.pem": {Type: "CERTIFICATE", Bytes: der}, "key.pem": {Type: "PRIVATE KEY", Bytes: private}} {
		if err := os.WriteFile(filepath.Join(dir, name), pem.EncodeToMemory(b), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	pool := x509.NewCertPool()
	pool.AppendCertsFromPEM(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}))
	return pool
}

// answer is the status of a request; password "" sends none.
func answer(t *testing.T, c *http.Client, url, password string) *http.Response {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, url, nil)
	if err != nil {
		t.Fatal(err)
	}
	if password != "" {
		r.SetBasicAuth("prometheus", password)
	}
	resp, err := c.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = resp.Body.Close() })
	return resp
}

// socketClient talks over a unix socket.
func socketClient(path string) *http.Client {
	return &http.Client{Transport: &http.Transport{DisableKeepAlives: true, DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		var dial net.Dialer
		return dial.DialContext(ctx, "unix", path)
	}}}
}

// TestWebConfig asks for a password on TCP, and for none on the unix socket.
func TestWebConfig(t *testing.T) {
	dir := t.TempDir()
	file, socket := webConfig(t, dir, false), filepath.Join(dir, "api.sock")
	d := begin(t, func(o *Options) { o.Web.WebConfigFile, o.APISocket = &file, socket })
	local := socketClient(socket)
	for path, want := range paths() {
		for password, want := range map[string]int{"": http.StatusUnauthorized, "wrong": http.StatusUnauthorized, "secret": want} {
			if got := answer(t, http.DefaultClient, d.base+path, password).StatusCode; got != want {
				t.Errorf("%s with password %q: %d, want %d", path, password, got, want)
			}
		}
		if got := answer(t, local, "http://startupd"+path, "").StatusCode; got != want {
			t.Errorf("%s on the socket: %d, want %d", path, got, want)
		}
	}
	http.DefaultClient.CloseIdleConnections()
}

// TestTLS reads a stream over HTTP/2, and reaches nothing without the password.
func TestTLS(t *testing.T) {
	dir := t.TempDir()
	pool := certificate(t, dir)
	file := webConfig(t, dir, true)
	d := begin(t, func(o *Options) { o.Web.WebConfigFile = &file })
	plain := strings.TrimPrefix(d.base, "http://")
	c := &http.Client{Transport: &http.Transport{TLSClientConfig: &tls.Config{RootCAs: pool}, ForceAttemptHTTP2: true}}
	defer c.CloseIdleConnections()
	for path, want := range paths() {
		if got := answer(t, c, "https://"+plain+path, "").StatusCode; got != http.StatusUnauthorized {
			t.Errorf("%s without a password: %d", path, got)
		}
		if got := answer(t, c, "https://"+plain+path, "secret").StatusCode; got != want {
			t.Errorf("%s: %d, want %d", path, got, want)
		}
		if got := answer(t, http.DefaultClient, "http://"+plain+path, "secret").StatusCode; got != http.StatusBadRequest {
			t.Errorf("%s without TLS: %d", path, got)
		}
	}
	resp := answer(t, c, "https://"+plain+"/api/v1/events", "secret")
	if resp.ProtoMajor != 2 {
		t.Fatalf("the stream comes over %s", resp.Proto)
	}
	in := bufio.NewScanner(resp.Body)
	waitFor(t, in, "event: snapshot")
	d.script.play(t, up(), started("a.service", "01", 0))
	waitFor(t, in, "event: transition")
	if err := d.stop(); err != nil {
		t.Errorf("a stop with an open stream: %v", err)
	}
}

// waitFor reads lines until one comes.
func waitFor(t *testing.T, in *bufio.Scanner, line string) {
	t.Helper()
	for in.Scan() {
		if in.Text() == line {
			return
		}
	}
	t.Fatalf("the stream ends before %q: %v", line, in.Err())
}

// TestGuard asks as another host does, and as a site does whose name leads here.
func TestGuard(t *testing.T) {
	d := begin(t, func(o *Options) { o.Lifecycle = true })
	w, err := d.newWeb()
	if err != nil {
		t.Fatal(err)
	}
	status := func(path, from, host string) int {
		ctx, cancel := context.WithCancel(t.Context())
		cancel() // a stream ends at once
		r := httptest.NewRequestWithContext(ctx, http.MethodGet, "http://"+host+path, nil)
		r.RemoteAddr = from
		rec := httptest.NewRecorder()
		w.guarded.ServeHTTP(rec, r)
		if rec.Code == http.StatusForbidden && !strings.Contains(rec.Body.String(), "--web.config.file") {
			t.Errorf("%s: %q does not say what to do", path, rec.Body)
		}
		if strings.HasPrefix(path, "/api/") && rec.Header().Get("Content-Type") == "text/plain; charset=utf-8" {
			t.Errorf("%s: a program gets %q", path, rec.Body)
		}
		return rec.Code
	}
	const here, other, own = "127.0.0.1:9", "192.0.2.7:9", "localhost:10944"
	for path := range paths() {
		name, _, _ := strings.Cut(path, "?")
		open := public(name)
		if got := status(path, other, own); (got == http.StatusForbidden) == open {
			t.Errorf("%s from another host: %d", path, got)
		}
		if got := status(path, here, "evil.example"); (got == http.StatusForbidden) == open {
			t.Errorf("%s by another name: %d", path, got)
		}
		if got := status(path, here, own); got == http.StatusForbidden {
			t.Errorf("%s from this host: %d", path, got)
		}
	}
}

func TestOwnName(t *testing.T) {
	for header, want := range map[string]bool{
		"localhost": true, "localhost:10944": true, "LOCALHOST.": true, "x.localhost:1": true,
		"127.0.0.1:10944": true, "[::1]:10944": true, "[::1]": true, "192.0.2.7": true,
		"gpu1": true, "gpu1:10944": true, "GPU1.example.org": true, "gpu1.example.org.:80": true,
		"": false, "evil.example": false, "gpu1.evil.example": false, "localhost.evil.example": false, "127.0.0.1.evil.example": false,
		"gpu2": false, "notlocalhost": false,
	} {
		if got := ownName(header, "gpu1.example.org"); got != want {
			t.Errorf("%q: %v", header, got)
		}
	}
	for _, header := range []string{"", ":80", "."} {
		if ownName(header, "") {
			t.Errorf("without a name of our own %q passes", header)
		}
	}
}

// TestNoAddress runs an app without a listener, as a command does that follows
// the journal itself.
func TestNoAddress(t *testing.T) {
	clock, err := SystemClock()
	if err != nil {
		t.Fatal(err)
	}
	s := newScript()
	var addrs []net.Addr
	started := make(chan struct{})
	d, err := New(Options{
		Units: []string{"a.service"}, Log: nopLog(), Clock: clock, Feeds: []Feed{{Name: "journal", Run: s.run}},
		Started: func(as []net.Addr) { addrs = as; close(started) },
	})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- d.Run(ctx) }()
	<-started
	s.play(t, up())
	cancel()
	if err := <-ended; err != nil || len(addrs) != 0 {
		t.Errorf("%v, addresses %v", err, addrs)
	}
}

// TestSocketAlone serves the command line only.
func TestSocketAlone(t *testing.T) {
	socket := filepath.Join(t.TempDir(), "api.sock")
	begun := make(chan []net.Addr, 1)
	clock, err := SystemClock()
	if err != nil {
		t.Fatal(err)
	}
	d, err := New(Options{
		Units: []string{"a.service"}, Log: nopLog(), Clock: clock, Feeds: []Feed{{Name: "journal", Run: newScript().run}},
		APISocket: socket, APISocketRequired: true, Started: func(as []net.Addr) { begun <- as },
	})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- d.Run(ctx) }()
	if as := <-begun; len(as) != 0 {
		t.Errorf("listens on %v", as)
	}
	if resp := answer(t, socketClient(socket), "http://startupd/api/v1/status", ""); resp.StatusCode != http.StatusOK {
		t.Errorf("%s", resp.Status)
	}
	cancel()
	if err := <-ended; err != nil {
		t.Error(err)
	}
}
