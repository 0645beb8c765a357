package app

import (
	"context"
	"fmt"
	"net/http"
)

// api answers HTTP requests about startupd itself, and hands on the others. It
// never waits for a source.
type api struct {
	// ready says that the sources have begun.
	ready func() bool
	// alive says that the main loop turns.
	alive   func() bool
	metrics http.Handler
	// units answers /startupz and everything below /api/.
	units http.Handler
	// page answers / and everything below /page/.
	page http.Handler
	// reload re-reads the configuration; nil when requests must not do that.
	reload func(context.Context) error
}

// routes returns the handler of every path.
func (a *api) routes() http.Handler {
	mux := http.NewServeMux()
	mux.Handle("GET /metrics", a.metrics)
	mux.Handle("/startupz", a.units)
	mux.Handle("/api/", a.units)
	mux.HandleFunc("GET /-/healthy", a.healthy)
	mux.HandleFunc("GET /-/ready", a.readyz)
	mux.HandleFunc("POST /-/reload", a.reloadNow)
	mux.Handle("GET /{$}", a.page)
	mux.Handle("GET /page/", a.page)
	// A page of another site must not make a browser reload the daemon.
	return http.NewCrossOriginProtection().Handler(mux)
}

func (a *api) healthy(w http.ResponseWriter, _ *http.Request) {
	if !a.alive() {
		http.Error(w, "The main loop does not turn; see startupd's own log.", http.StatusServiceUnavailable)
		return
	}
	fmt.Fprintln(w, "startupd is healthy.")
}

func (a *api) readyz(w http.ResponseWriter, _ *http.Request) {
	if !a.ready() {
		http.Error(w, "Sources have not begun yet.", http.StatusServiceUnavailable)
		return
	}
	fmt.Fprintln(w, "startupd is ready.")
}

func (a *api) reloadNow(w http.ResponseWriter, r *http.Request) {
	if a.reload == nil {
		http.Error(w, "Reload by HTTP is off: start startupd with --web.enable-lifecycle, or send it SIGHUP.", http.StatusForbidden)
		return
	}
	if err := a.reload(r.Context()); err != nil {
		http.Error(w, "Reload refused, the old configuration stays: "+err.Error(), http.StatusInternalServerError)
		return
	}
	fmt.Fprintln(w, "Configuration reloaded.")
}
