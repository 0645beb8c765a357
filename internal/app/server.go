package app

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"strings"
	"syscall"
	"time"

	"github.com/coreos/go-systemd/v22/activation"
	"github.com/prometheus/exporter-toolkit/web"
)

// listen opens every address that the flags name. On an error none stays open.
func listen(ctx context.Context, flags *web.FlagConfig) ([]net.Listener, error) {
	if flags.WebSystemdSocket != nil && *flags.WebSystemdSocket {
		ls, err := activation.Listeners()
		if err == nil && len(ls) == 0 {
			err = errors.New("systemd passed no socket; start the .socket unit, or drop --web.systemd-socket")
		}
		return ls, err
	}
	if len(*flags.WebListenAddresses) == 0 {
		return nil, badConfig("no address to listen on; name one with --web.listen-address")
	}
	var ls []net.Listener
	for _, addr := range *flags.WebListenAddresses {
		l, err := listenTCP(ctx, addr)
		if err != nil {
			for _, open := range ls {
				err = errors.Join(err, open.Close())
			}
			return nil, err
		}
		ls = append(ls, l)
	}
	return ls, nil
}

func listenTCP(ctx context.Context, addr string) (net.Listener, error) {
	if strings.HasPrefix(addr, "vsock:") {
		return nil, badConfig("--web.listen-address %s: a vsock address needs systemd's socket activation; use --web.systemd-socket", addr)
	}
	var lc net.ListenConfig
	l, err := lc.Listen(ctx, "tcp", addr)
	if err == nil {
		return l, nil
	}
	next := "write HOST:PORT, :PORT or [IPv6]:PORT in --web.listen-address"
	switch {
	case errors.Is(err, syscall.EADDRINUSE):
		_, port, _ := net.SplitHostPort(addr)
		next = fmt.Sprintf("stop the process that has it (`ss -ltnp 'sport = :%s'` shows it), or choose another with --web.listen-address", port)
	case errors.Is(err, syscall.EACCES):
		next = "ports below 1024 are root's; choose a higher one with --web.listen-address"
	case errors.Is(err, syscall.EADDRNOTAVAIL):
		next = "`ip address` shows the addresses of this host"
	}
	return nil, fmt.Errorf("cannot listen on %s: %w; %s", addr, cause(err), next)
}

// cause drops the "listen tcp ADDR" that net puts before an error.
func cause(err error) error {
	if oe := (*net.OpError)(nil); errors.As(err, &oe) {
		return oe.Err
	}
	return err
}

// listenSocket opens a unix socket that startupd's group may use. A socket file
// that nobody serves any more is replaced.
func listenSocket(ctx context.Context, path string) (net.Listener, error) {
	var lc net.ListenConfig
	l, err := lc.Listen(ctx, "unix", path)
	if errors.Is(err, syscall.EADDRINUSE) {
		if err = removeStale(ctx, path); err == nil {
			l, err = lc.Listen(ctx, "unix", path)
		}
	}
	if err != nil {
		return nil, fmt.Errorf("cannot listen on %s: %w; choose another path with --api.socket", path, cause(err))
	}
	if err := os.Chmod(path, 0o660); err != nil {
		return nil, errors.Join(err, l.Close())
	}
	return l, nil
}

func removeStale(ctx context.Context, path string) error {
	info, err := os.Lstat(path)
	if err != nil {
		return err
	}
	if info.Mode()&os.ModeSocket == 0 {
		return errors.New("a file that is no socket is there")
	}
	d := net.Dialer{Timeout: time.Second}
	c, err := d.DialContext(ctx, "unix", path)
	if err == nil {
		return errors.Join(errors.New("another startupd serves it"), c.Close())
	}
	if !errors.Is(err, syscall.ECONNREFUSED) {
		return cause(err)
	}
	return os.Remove(path)
}

// newServer returns a server whose slow clients cannot hold it up.
func newServer(h http.Handler) *http.Server {
	return &http.Server{
		Handler:           h,
		ReadHeaderTimeout: 5 * time.Second,
		ReadTimeout:       10 * time.Second,
		WriteTimeout:      30 * time.Second,
		IdleTimeout:       2 * time.Minute,
		ConnContext: func(ctx context.Context, c net.Conn) context.Context {
			limitBuffer(c)
			return ctx
		},
	}
}

// sendBuffer bounds what the kernel holds for a client that does not read: by
// default it takes several MB before a write waits.
const sendBuffer = 128 << 10

func limitBuffer(c net.Conn) {
	if t, ok := c.(*tls.Conn); ok {
		c = t.NetConn()
	}
	if b, ok := c.(interface{ SetWriteBuffer(bytes int) error }); ok {
		_ = b.SetWriteBuffer(sendBuffer) // without it, it is only more
	}
}

// shutdown waits for the requests that are being answered, then closes.
func shutdown(ctx context.Context, s *http.Server) error {
	if err := s.Shutdown(ctx); err != nil {
		return errors.Join(err, s.Close())
	}
	return nil
}
