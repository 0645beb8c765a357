package fitness

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/prometheus/exporter-toolkit/web"
	"golang.org/x/sys/unix"

	"github.com/startupd/startupd/pkg/history"
)

// room is the free space below which the state directory is short of it.
const room = 64 << 20

func checkState(ctx context.Context, h *host) outcome {
	if h.o.App.StateDir == "" {
		return warn("nothing is kept (--state.dir is empty): after a restart counters begin at 0, and there is no history", "name a directory with --state.dir")
	}
	dir := h.path(h.o.App.StateDir)
	f, err := os.CreateTemp(dir, ".check-*")
	if err != nil {
		return h.stateless(ctx, dir, err)
	}
	_, err = f.WriteString("startupd check\n")
	err = errors.Join(err, f.Close(), os.Remove(f.Name()))
	if err != nil {
		return fail(err.Error(), "make room on its file system")
	}
	var s unix.Statfs_t
	if err := unix.Statfs(dir, &s); err != nil {
		return unknown(err.Error(), "")
	}
	free := s.Bavail * uint64(s.Bsize)
	if free < room {
		return warn(fmt.Sprintf("%s can be written, %s are free", dir, size(free)), "make room on its file system")
	}
	return ok("%s can be written, %s are free", dir, size(free))
}

// stateless judges a state directory that can't be written.
func (h *host) stateless(ctx context.Context, dir string, err error) outcome {
	if errors.Is(err, fs.ErrNotExist) {
		p, perr := h.properties(ctx, Service)
		if perr == nil && slices.Contains(p.texts("StateDirectory"), filepath.Base(dir)) {
			return ok("%s is not there yet: %s makes it", dir, Service)
		}
	}
	if pe := (*fs.PathError)(nil); errors.As(err, &pe) {
		err = pe.Err // its path is that of a file of ours
	}
	return fail(fmt.Sprintf("%s can't be written: %v", dir, err), "make it, and give it to the daemon's user: chown startupd: "+dir)
}

func checkHistory(ctx context.Context, h *host) outcome {
	if h.o.App.StateDir == "" || h.o.App.History.MaxStartups <= 0 {
		return ok("switched off")
	}
	store := history.In(h.path(h.o.App.StateDir), history.Limits{})
	names, err := store.Targets(ctx)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return ok("no startup has finished yet")
	case errors.Is(err, fs.ErrPermission):
		return fail(err.Error(), "give it to the daemon's user, or run this as root")
	case errors.Is(err, history.ErrDamaged):
		return warn(err.Error(), "the daemon sets it aside when the next startup finishes, and begins a new one")
	case errors.Is(err, history.ErrNewer):
		return warn(err.Error(), "nothing is added to it; use the startupd that wrote it, or remove it")
	case err != nil:
		return unknown(err.Error(), "try again")
	}
	n := 0
	for _, name := range names {
		records, err := store.List(ctx, name, 0)
		if err != nil {
			return unknown(err.Error(), "try again")
		}
		n += len(records)
	}
	return ok("%s of %s", count(n, "startup"), count(len(names), "unit"))
}

func checkWebConfig(_ context.Context, h *host) outcome {
	if h.o.App.Web == nil {
		return outcome{}
	}
	path := *h.o.App.Web.WebConfigFile
	if path == "" {
		return ok("none: page and API answer this host only, /metrics and /startupz everyone")
	}
	if err := web.Validate(path); err != nil {
		return fail(fmt.Sprintf("%s: %v", path, err), "mend it; see the exporter-toolkit's docs/web-configuration.md")
	}
	return ok("%s is valid", path)
}

// checkListen tries the addresses.
func checkListen(ctx context.Context, h *host) outcome {
	flags := h.o.App.Web
	if flags == nil {
		return outcome{}
	}
	if flags.WebSystemdSocket != nil && *flags.WebSystemdSocket {
		return ok("systemd's socket unit has it (--web.systemd-socket)")
	}
	var details []string
	worst := outcome{status: OK}
	for _, addr := range *flags.WebListenAddresses {
		o := h.tryListen(ctx, addr)
		details = append(details, o.detail)
		if slices.Index(Statuses(), o.status) > slices.Index(Statuses(), worst.status) {
			worst = o
		}
	}
	worst.detail = strings.Join(details, "; ")
	return worst
}

func (h *host) tryListen(ctx context.Context, addr string) outcome {
	var lc net.ListenConfig
	l, err := lc.Listen(ctx, "tcp", addr)
	switch {
	case err == nil:
		if err := l.Close(); err != nil {
			return unknown(err.Error(), "")
		}
		return ok("%s is free", addr)
	case errors.Is(err, syscall.EADDRINUSE):
		return h.holder(ctx, addr)
	case errors.Is(err, fs.ErrPermission):
		return fail(fmt.Sprintf("no right to listen on %s", addr), "ports below 1024 are root's; choose a higher one with --web.listen-address")
	}
	return fail(err.Error(), "write HOST:PORT, :PORT or [IPv6]:PORT in --web.listen-address; `ip address` shows the addresses of this host")
}

// holder tells whether the daemon has an address that is in use.
func (h *host) holder(ctx context.Context, addr string) outcome {
	_, port, _ := net.SplitHostPort(addr)
	do := fmt.Sprintf("stop the process that has it (`ss -ltnp 'sport = :%s'` shows it), or choose another with --web.listen-address", port)
	switch is := askHolder(ctx, addr); is {
	case http.StatusOK:
		return ok("%s is the running daemon's", addr)
	case http.StatusUnauthorized:
		if _, err := h.daemon(); err == nil {
			return ok("%s is held by a server with a password, as the running daemon's is", addr)
		}
		return warn(addr+" is held by a server with a password", "if it is not the daemon: "+do)
	}
	return fail(addr+" is held by another process than startupd", do)
}

// askHolder returns the status of a server whose metrics are startupd's, or that
// asks for a password; 0 for any other.
func askHolder(ctx context.Context, addr string) int {
	host, port, err := net.SplitHostPort(addr)
	if err != nil {
		return 0
	}
	if ip := net.ParseIP(host); host == "" || ip != nil && ip.IsUnspecified() {
		host = "localhost"
	}
	c := &http.Client{Timeout: 2 * time.Second, Transport: &http.Transport{
		// It is only asked who it is.
		TLSClientConfig: &tls.Config{InsecureSkipVerify: true}, DisableKeepAlives: true,
	}}
	for _, scheme := range []string{"http", "https"} {
		req, err := http.NewRequestWithContext(ctx, http.MethodGet, scheme+"://"+net.JoinHostPort(host, port)+"/metrics", nil)
		if err != nil {
			return 0
		}
		resp, err := c.Do(req)
		if err != nil {
			continue
		}
		body, _ := io.ReadAll(io.LimitReader(resp.Body, 4<<20))
		_ = resp.Body.Close()
		if resp.StatusCode == http.StatusUnauthorized || strings.Contains(string(body), "startupd_build_info") {
			return resp.StatusCode
		}
	}
	return 0
}
