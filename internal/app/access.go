package app

import (
	"net"
	"net/http"
	"net/netip"
	"os"
	"strings"

	units "github.com/startupd/startupd/pkg/web"
	webapi "github.com/startupd/startupd/pkg/web/api"
)

// loopbackOnly lets requests from beyond this host reach only what Prometheus
// and probes need: the rest shows text of the log, and there is no password. A
// reverse proxy on this host asks for others.
func loopbackOnly(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if !public(r.URL.Path) && (!fromLoopback(r.RemoteAddr) || forwarded(r.Header)) {
			refuse(w, r, "This shows text of the log, so without TLS and a password only this host itself may read it.",
				"Start startupd with --web.config.file, open it through an SSH tunnel, or let a proxy that asks for a password itself use the unix socket.")
			return
		}
		next.ServeHTTP(w, r)
	})
}

// refuse answers a program with a document, and people with text.
func refuse(w http.ResponseWriter, r *http.Request, why, next string) {
	if strings.HasPrefix(r.URL.Path, "/api/") {
		units.Fail(w, http.StatusForbidden, webapi.Problem{Error: why, Next: next})
		return
	}
	http.Error(w, why+" "+next, http.StatusForbidden)
}

// public says that path may be read by anyone. /-/reload answers for itself: it
// is off unless --web.enable-lifecycle is given.
func public(path string) bool {
	switch path {
	case "/metrics", "/startupz", "/-/healthy", "/-/ready", "/-/reload":
		return true
	}
	return false
}

// forwarded says that a proxy hands on another's request. One that says so in no
// header can't be told from a client of this host.
func forwarded(h http.Header) bool {
	for _, name := range []string{"Forwarded", "Via", "X-Forwarded-For", "X-Forwarded-Host", "X-Forwarded-Proto", "X-Real-Ip"} {
		if len(h.Values(name)) > 0 {
			return true
		}
	}
	return false
}

// fromLoopback says that addr ("host:port") is this host's loopback. An address
// that can't be read is not.
func fromLoopback(addr string) bool {
	a, err := netip.ParseAddrPort(addr)
	return err == nil && a.Addr().Unmap().IsLoopback()
}

// ownNamesOnly refuses requests for what is not public that name another host
// than this one. A site whose name suddenly resolves to 127.0.0.1 (DNS
// rebinding) could else read the log through a browser on this host.
func ownNamesOnly(next http.Handler) http.Handler {
	own, _ := os.Hostname() // without a name only addresses and localhost do
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if !public(r.URL.Path) && !ownName(r.Host, own) {
			refuse(w, r, "The address is a name that is not this host's, as with a site that wants to read the log through your browser.",
				"Use localhost, 127.0.0.1 or this host's name, or start startupd with --web.config.file.")
			return
		}
		next.ServeHTTP(w, r)
	})
}

// ownName says that a Host header is an IP address, localhost, or the host's own
// name, whole or its first label alone.
func ownName(header, own string) bool {
	host, _, err := net.SplitHostPort(header)
	if err != nil {
		host = header
	}
	host = strings.ToLower(strings.TrimSuffix(host, "."))
	if _, err := netip.ParseAddr(strings.Trim(host, "[]")); err == nil {
		return true
	}
	own = strings.ToLower(own)
	first, _, _ := strings.Cut(own, ".")
	return host == "localhost" || strings.HasSuffix(host, ".localhost") || own != "" && (host == own || host == first)
}
