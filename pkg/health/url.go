package health

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"net/url"
	"strconv"
	"strings"
)

// endpoint is a parsed health URL.
type endpoint struct {
	// url is what is requested.
	url string
	// socket is the unix socket to connect to; "" for TCP.
	socket string
	// shown is the URL without password and query, for people.
	shown string
}

// CheckURL says what is wrong with a health URL. Good ones are
// http://host:port/path, https://host:port/path and
// unix:/path/to/socket[:/path].
func CheckURL(raw string) error {
	_, err := parseURL(raw)
	return err
}

func parseURL(raw string) (endpoint, error) {
	if rest, ok := strings.CutPrefix(raw, "unix:"); ok {
		return parseUnix(rest)
	}
	u, err := url.Parse(raw)
	if err != nil {
		var failed *url.Error
		if errors.As(err, &failed) {
			err = failed.Err
		}
		return endpoint{}, fmt.Errorf("not a URL (%w): write http://127.0.0.1:8000/health", err)
	}
	if u.Scheme != "http" && u.Scheme != "https" {
		return endpoint{}, fmt.Errorf("scheme %q is not supported: write http://, https:// or unix:/path/to/socket:/health", u.Scheme)
	}
	if u.Hostname() == "" && u.Port() == "" {
		return endpoint{}, errors.New("no host in the URL: write http://127.0.0.1:8000/health")
	}
	if port := u.Port(); port != "" {
		if n, err := strconv.ParseUint(port, 10, 16); err != nil || n == 0 {
			return endpoint{}, fmt.Errorf("port %s is not in 1 to 65535", port)
		}
	}
	if host := connectable(u.Hostname()); host != u.Hostname() {
		u.Host = joinHostPort(host, u.Port())
	}
	shown := url.URL{Scheme: u.Scheme, Host: u.Host, Path: u.Path}
	return endpoint{url: u.String(), shown: shown.String()}, nil
}

// parseUnix takes what follows unix: in a URL.
func parseUnix(rest string) (endpoint, error) {
	rest = strings.TrimPrefix(rest, "//")
	socket, path, _ := strings.Cut(rest, ":")
	if !strings.HasPrefix(socket, "/") {
		return endpoint{}, fmt.Errorf("socket %q is not an absolute path: write unix:/path/to/socket:/health", socket)
	}
	if path == "" {
		path = "/"
	}
	if !strings.HasPrefix(path, "/") {
		return endpoint{}, fmt.Errorf("path %q does not begin with a slash: write unix:/path/to/socket:/health", path)
	}
	u, err := url.Parse("http://localhost" + path)
	if err != nil {
		return endpoint{}, fmt.Errorf("path %q is not a URL's: write unix:/path/to/socket:/health", path)
	}
	return endpoint{url: u.String(), socket: socket, shown: "unix:" + socket + ":" + u.Path}, nil
}

// URLFromListen makes a health URL of the address that an engine listens on.
// Wildcard and empty hosts become the loopback address; a host of the form
// unix:/path/to/socket needs no port.
func URLFromListen(host string, port int, path string) (string, error) {
	if path == "" {
		path = "/"
	}
	if strings.HasPrefix(host, "unix:") {
		u := host + ":" + path
		return u, CheckURL(u)
	}
	if port < 1 || port > 65535 {
		return "", fmt.Errorf("port %d is not in 1 to 65535", port)
	}
	host = connectable(strings.Trim(host, "[]"))
	u := url.URL{Scheme: "http", Host: joinHostPort(host, strconv.Itoa(port)), Path: path}
	if err := CheckURL(u.String()); err != nil {
		return "", fmt.Errorf("host %q: %w", host, err)
	}
	return u.String(), nil
}

// connectable maps addresses to listen on to addresses to connect to.
func connectable(host string) string {
	ip, err := netip.ParseAddr(host)
	switch {
	case host == "" || host == "*":
		return "127.0.0.1"
	case err != nil || !ip.Unmap().IsUnspecified():
		return host
	case ip.Unmap().Is4():
		return "127.0.0.1"
	}
	return "::1"
}

func joinHostPort(host, port string) string {
	if port != "" {
		return net.JoinHostPort(host, port)
	}
	if strings.Contains(host, ":") {
		return "[" + host + "]"
	}
	return host
}
