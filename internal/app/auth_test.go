package app

import (
	"context"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/crypto/bcrypt"
)

// TestWebConfig asks for a password on TCP, and for none on the unix socket.
func TestWebConfig(t *testing.T) {
	hash, err := bcrypt.GenerateFromPassword([]byte("secret"), bcrypt.MinCost)
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	file, socket := filepath.Join(dir, "web.yml"), filepath.Join(dir, "api.sock")
	if err := os.WriteFile(file, []byte("basic_auth_users:\n  prometheus: "+string(hash)+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	d := begin(t, func(o *Options) { o.Web.WebConfigFile, o.APISocket = &file, socket })
	status := func(c *http.Client, url, password string) int {
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
		defer resp.Body.Close()
		return resp.StatusCode
	}
	for _, path := range []string{"/", "/metrics", "/startupz"} {
		for password, denied := range map[string]bool{"": true, "wrong": true, "secret": false} {
			if got := status(http.DefaultClient, d.base+path, password); (got == http.StatusUnauthorized) != denied {
				t.Errorf("%s with password %q: %d", path, password, got)
			}
		}
	}
	local := &http.Client{Transport: &http.Transport{DisableKeepAlives: true, DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		var dial net.Dialer
		return dial.DialContext(ctx, "unix", socket)
	}}}
	if got := status(local, "http://startupd/", ""); got != http.StatusOK {
		t.Errorf("on the socket: %d", got)
	}
}
