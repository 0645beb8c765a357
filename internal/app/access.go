package app

import (
	"net/http"
	"net/netip"
)

// loopbackOnly lets requests from beyond this host reach only what Prometheus
// and probes need: the rest shows text of the log, and there is no password.
func loopbackOnly(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if !public(r.URL.Path) && !fromLoopback(r.RemoteAddr) {
			http.Error(w, "This page shows text of the log, so without TLS and a password only this host itself may read it. "+
				"Start startupd with --web.config.file, or open it through an SSH tunnel.", http.StatusForbidden)
			return
		}
		next.ServeHTTP(w, r)
	})
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

// fromLoopback says that addr ("host:port") is this host's loopback. An address
// that can't be read is not.
func fromLoopback(addr string) bool {
	a, err := netip.ParseAddrPort(addr)
	return err == nil && a.Addr().Unmap().IsLoopback()
}
