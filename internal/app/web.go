package app

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	"github.com/prometheus/exporter-toolkit/web"
	"go.uber.org/zap"

	"github.com/startupd/startupd/pkg/exporter"
	"github.com/startupd/startupd/pkg/phases"
	units "github.com/startupd/startupd/pkg/web"
	webpage "github.com/startupd/startupd/pkg/web/page"
)

// maxScrapes bounds the scrapes that are answered at once.
const maxScrapes = 8

// webServers answer on TCP for Prometheus and probes, and on a unix socket for
// the command line of this host, which needs no password.
type webServers struct {
	app *App
	// routes answers on the socket, guarded on TCP.
	routes, guarded http.Handler
	tcp             []net.Listener
	// socket is nil when there is none.
	socket net.Listener
}

func (a *App) newWeb() (*webServers, error) {
	var secured bool
	if flags := a.opt.Web; flags != nil {
		if err := web.Validate(*flags.WebConfigFile); err != nil {
			return nil, badConfig("--web.config.file %s: %v; see the exporter-toolkit's docs/web-configuration.md", *flags.WebConfigFile, err)
		}
		secured = *flags.WebConfigFile != ""
	}
	metrics, err := a.metrics()
	if err != nil {
		return nil, err
	}
	srv := a.newUnits()
	h := &api{ready: a.ready, alive: a.alive, metrics: metrics, units: srv}
	shown := webpage.Options{Status: srv.Status, Memory: srv.Memory, Version: a.opt.Version}
	// That none is kept on purpose is no trouble.
	if !a.history.off {
		shown.Startups = srv.Startups
	}
	h.page, err = webpage.New(shown)
	if err != nil {
		return nil, err
	}
	if a.opt.Lifecycle {
		h.reload = a.Reload
	}
	routes := h.routes()
	w := &webServers{app: a, routes: routes, guarded: routes}
	if !secured {
		w.guarded = loopbackOnly(ownNamesOnly(routes))
	}
	return w, nil
}

// newHub returns the hub of the App's events.
func (a *App) newHub() *units.Hub {
	return units.NewHub(units.HubOptions{
		// The loop is made after the hub.
		Snapshot: func() *phases.Snapshot { return a.loop.Snapshot() },
		Clock:    a.opt.Clock, Version: a.opt.Version,
		Dropped: func(client, why string) {
			a.log.Warn("A stream of events is given up", zap.String("client", client), zap.String("reason", why))
		},
	})
}

// newUnits returns what answers about units.
func (a *App) newUnits() *units.Server {
	o := units.Options{Snapshot: a.loop.Snapshot, Clock: a.opt.Clock, Hub: a.hub, UnitName: UnitName}
	if a.history.off {
		o.NoHistory = "no history of startups is kept, and only what is in memory is listed; set --state.dir and --history.max-startups"
	} else {
		o.History = a.history.store
	}
	return units.New(o)
}

// finished is the core's HostOptions.Finished.
func (a *App) finished() func(string, *phases.Startup) {
	keep := a.history.finished()
	return func(target string, s *phases.Startup) {
		a.hub.Finished(target, s)
		if keep != nil {
			keep(target, s)
		}
	}
}

// metrics returns the handler of /metrics, with a registry of its own.
func (a *App) metrics() (http.Handler, error) {
	reg := prometheus.NewRegistry()
	for _, c := range []prometheus.Collector{
		exporter.New(exporter.Options{
			Snapshot: a.loop.Snapshot, Clock: a.opt.Clock,
			KnowsClass:         func(class string) bool { return a.settings.Load().knowsClass(class) },
			NoRootCauseMessage: a.opt.NoRootCauseMessage,
			Build:              exporter.Build{Version: a.opt.Version, Revision: a.opt.Revision},
		}),
		// Of the heap's statistics two have one name in OpenMetrics, which must not be.
		collectors.NewGoCollector(collectors.WithGoCollectorMemStatsMetricsDisabled()),
		collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}),
	} {
		if err := reg.Register(c); err != nil {
			return nil, fmt.Errorf("metrics: %w", err)
		}
	}
	return promhttp.HandlerFor(reg, promhttp.HandlerOpts{
		// What one source tells twice must not hide all the rest.
		ErrorHandling:     promhttp.ContinueOnError,
		EnableOpenMetrics: true, MaxRequestsInFlight: maxScrapes, ErrorLog: zap.NewStdLog(a.log),
	}), nil
}

// open listens on all addresses, or on none.
func (w *webServers) open(ctx context.Context) (err error) {
	if w.app.opt.Web != nil {
		if w.tcp, err = listen(ctx, w.app.opt.Web); err != nil {
			return err
		}
	}
	path := w.app.opt.APISocket
	if path == "" {
		return nil
	}
	w.socket, err = listenSocket(ctx, path)
	if err != nil && !w.app.opt.APISocketRequired {
		w.app.log.Warn("There is no socket for the command line", zap.Error(err))
		return nil
	}
	if err != nil {
		return errors.Join(err, w.close(ctx))
	}
	return nil
}

func (w *webServers) addrs() []net.Addr {
	var as []net.Addr
	for _, l := range w.tcp {
		as = append(as, l.Addr())
	}
	return as
}

// serve answers until close.
func (w *webServers) serve(ctx context.Context, r *runner) {
	log := quietSlog(w.app.log)
	for _, l := range w.tcp {
		r.start(ctx, "HTTP on "+l.Addr().String(), func(ctx context.Context) error {
			// One server each: the toolkit puts its own handler before a server's.
			s := w.server(w.guarded)
			return until(ctx, s, func() error { return web.Serve(l, s, w.app.opt.Web, log) })
		})
	}
	if w.socket != nil {
		r.start(ctx, "API socket", func(ctx context.Context) error {
			s := w.server(w.routes)
			return until(ctx, s, func() error { return s.Serve(w.socket) })
		})
	}
}

// server returns a server whose streams end when it is shut down: it would wait
// for them. All servers go down together.
func (w *webServers) server(h http.Handler) *http.Server {
	s := newServer(h)
	s.ErrorLog = httpErrors(w.app.said)
	s.RegisterOnShutdown(w.app.hub.End)
	return s
}

// until serves until ctx ends; requests that are being answered come to their
// end.
func until(ctx context.Context, s *http.Server, serve func() error) error {
	done := make(chan error, 1)
	go func() { done <- serve() }()
	select {
	case err := <-done:
		return err
	case <-ctx.Done():
	}
	stop, cancel := context.WithTimeout(context.WithoutCancel(ctx), stopTimeout/2)
	defer cancel()
	err := shutdown(stop, s)
	<-done
	return err
}

// close frees the addresses of servers that never served; those that did have
// closed theirs.
func (w *webServers) close(context.Context) error {
	var errs []error
	all := w.tcp
	if w.socket != nil {
		all = append(all, w.socket)
	}
	for _, l := range all {
		if err := l.Close(); err != nil && !errors.Is(err, net.ErrClosed) {
			errs = append(errs, err)
		}
	}
	return errors.Join(errs...)
}
