package health

import (
	"strings"
	"testing"
)

func TestURLFromListen(t *testing.T) {
	for _, c := range []struct {
		host string
		port int
		path string
		want string
	}{
		{"0.0.0.0", 8000, "/health", "http://127.0.0.1:8000/health"},
		{"", 8000, "/health", "http://127.0.0.1:8000/health"},
		{"*", 8000, "", "http://127.0.0.1:8000/"},
		{"::", 8000, "/health", "http://[::1]:8000/health"},
		{"[::]", 8000, "/health", "http://[::1]:8000/health"},
		{"::ffff:0.0.0.0", 8000, "/", "http://127.0.0.1:8000/"},
		{"192.0.2.7", 30000, "/health", "http://192.0.2.7:30000/health"},
		{"2001:db8::7", 80, "/h", "http://[2001:db8::7]:80/h"},
		{"fe80::1%eth0", 80, "/h", "http://[fe80::1%25eth0]:80/h"},
		{"localhost", 1, "/health", "http://localhost:1/health"},
		{"unix:/run/engine.sock", 0, "/health", "unix:/run/engine.sock:/health"},
	} {
		got, err := URLFromListen(c.host, c.port, c.path)
		if err != nil || got != c.want {
			t.Errorf("%q %d %q: %q, %v; want %q", c.host, c.port, c.path, got, err, c.want)
		}
		if err == nil && CheckURL(got) != nil {
			t.Errorf("%q is refused by CheckURL", got)
		}
	}
	for _, c := range []struct {
		host string
		port int
		say  string
	}{
		{"localhost", 0, "65535"},
		{"localhost", 65536, "65535"},
		{"evil.example/path?", 80, "host"},
		{"user@host", 80, "host"},
		{"a b", 80, "host"},
		{"unix:relative", 0, "absolute"},
	} {
		if got, err := URLFromListen(c.host, c.port, "/health"); err == nil || !strings.Contains(err.Error(), c.say) {
			t.Errorf("%q %d: %q, %v; want an error that says %q", c.host, c.port, got, err, c.say)
		}
	}
}

func TestParseURL(t *testing.T) {
	for _, c := range []struct{ raw, url, socket, shown string }{
		{"http://0.0.0.0:8000/health", "http://127.0.0.1:8000/health", "", "http://127.0.0.1:8000/health"},
		{"https://[::]/", "https://[::1]/", "", "https://[::1]/"},
		{"http://:8000", "http://127.0.0.1:8000", "", "http://127.0.0.1:8000"},
		{"http://u:secret@h/p?token=secret", "http://u:secret@h/p?token=secret", "", "http://h/p"},
		{"unix:/run/e.sock", "http://localhost/", "/run/e.sock", "unix:/run/e.sock:/"},
		{"unix:///run/e.sock:/h?x=1", "http://localhost/h?x=1", "/run/e.sock", "unix:/run/e.sock:/h"},
	} {
		got, err := parseURL(c.raw)
		if want := (endpoint{c.url, c.socket, c.shown}); err != nil || got != want {
			t.Errorf("%q: %+v, %v; want %+v", c.raw, got, err, want)
		}
	}
	for raw, say := range map[string]string{
		"":                     "scheme",
		"localhost:8000":       "scheme",
		"ftp://h/":             "scheme",
		"http://":              "no host",
		"http://h:0/":          "65535",
		"http://h:99999/":      "65535",
		"http://h:port/":       "not a URL",
		"http://h\x7f/":        "not a URL",
		"unix:run/e.sock":      "absolute",
		"unix:/run/e.sock:bad": "slash",
	} {
		if err := CheckURL(raw); err == nil || !strings.Contains(err.Error(), say) {
			t.Errorf("%q: %v, want an error that says %q", raw, err, say)
		}
	}
}
