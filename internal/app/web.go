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
	if err := web.Validate(*a.opt.Web.WebConfigFile); err != nil {
		return nil, badConfig("--web.config.file %s: %v; see the exporter-toolkit's docs/web-configuration.md", *a.opt.Web.WebConfigFile, err)
	}
	metrics, err := a.metrics()
	if err != nil {
		return nil, err
	}
	h := &api{
		snapshot: a.loop.Snapshot, clock: a.opt.Clock, ready: a.ready, alive: a.alive, metrics: metrics, version: a.opt.Version,
	}
	if a.opt.Lifecycle {
		h.reload = a.Reload
	}
	routes, err := h.routes()
	if err != nil {
		return nil, err
	}
	w := &webServers{app: a, routes: routes, guarded: routes}
	if *a.opt.Web.WebConfigFile == "" {
		w.guarded = loopbackOnly(routes)
	}
	return w, nil
}

// metrics returns the handler of /metrics, with a registry of its own.
func (a *App) metrics() (http.Handler, error) {
	reg := prometheus.NewRegistry()
	for _, c := range []prometheus.Collector{
		exporter.New(exporter.Options{
			Snapshot: a.loop.Snapshot, Clock: a.opt.Clock,
			KnowsClass: func(class string) bool { return a.settings.Load().knowsClass(class) },
			Build:      exporter.Build{Version: a.opt.Version, Revision: a.opt.Revision},
		}),
		collectors.NewGoCollector(),
		collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}),
	} {
		if err := reg.Register(c); err != nil {
			return nil, fmt.Errorf("metrics: %w", err)
		}
	}
	return promhttp.HandlerFor(reg, promhttp.HandlerOpts{
		EnableOpenMetrics: true, MaxRequestsInFlight: maxScrapes, ErrorLog: zap.NewStdLog(a.log),
	}), nil
}

// open listens on all addresses, or on none.
func (w *webServers) open(ctx context.Context) (err error) {
	if w.tcp, err = listen(ctx, w.app.opt.Web); err != nil {
		return err
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
	log := slogTo(w.app.log)
	for _, l := range w.tcp {
		r.start(ctx, "HTTP on "+l.Addr().String(), func(ctx context.Context) error {
			// One server each: the toolkit puts its own handler before a server's.
			s := newServer(w.guarded)
			return until(ctx, s, func() error { return web.Serve(l, s, w.app.opt.Web, log) })
		})
	}
	if w.socket != nil {
		r.start(ctx, "API socket", func(ctx context.Context) error {
			s := newServer(w.routes)
			return until(ctx, s, func() error { return s.Serve(w.socket) })
		})
	}
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
