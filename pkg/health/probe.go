package health

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"os"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/startupd/startupd/pkg/event"
)

const (
	// maxBody is read and thrown away, so that a server does not log a broken
	// connection for each probe.
	maxBody = 4 << 10
	// maxHeader bounds what a stranger may send before its body.
	maxHeader = 16 << 10
)

var errNotLocal = errors.New("the address is not this host's: set the health URL in the configuration")

// client probes one endpoint.
type client struct {
	target  Target
	address endpoint
	http    *http.Client
	timeout time.Duration
}

// newClient takes a target whose URL CheckURL accepts.
func newClient(t Target, timeout time.Duration) *client {
	address, err := parseURL(t.URL)
	c := &client{target: t, address: address, timeout: timeout}
	transport := &http.Transport{
		// A proxy would answer for the engine.
		Proxy: nil,
		DialContext: func(ctx context.Context, network, addr string) (net.Conn, error) {
			if err != nil {
				return nil, err
			}
			return c.dial(ctx, network, addr)
		},
		// A connection kept open would hide that the port was closed and opened.
		DisableKeepAlives:      true,
		DisableCompression:     true,
		MaxResponseHeaderBytes: maxHeader,
		TLSClientConfig:        &tls.Config{InsecureSkipVerify: t.Insecure}, //nolint:gosec // only when the operator says so
	}
	c.http = &http.Client{
		Transport:     transport,
		Timeout:       timeout,
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
	return c
}

func (c *client) dial(ctx context.Context, network, addr string) (net.Conn, error) {
	if c.address.socket != "" {
		network, addr = "unix", c.address.socket
	}
	conn, err := new(net.Dialer).DialContext(ctx, network, addr)
	if err != nil || !c.target.OnlyLocal || isLocal(conn) {
		return conn, err
	}
	conn.Close()
	return nil, errNotLocal
}

// isLocal uses that the kernel takes the destination as the source address
// when it is one of the host's own, or a loopback address.
func isLocal(conn net.Conn) bool {
	remote, ok := conn.RemoteAddr().(*net.TCPAddr)
	if !ok {
		return true // a unix socket
	}
	local, ok := conn.LocalAddr().(*net.TCPAddr)
	return remote.IP.IsLoopback() || ok && local.IP.Equal(remote.IP)
}

// probe asks once.
func (c *client) probe(ctx context.Context) event.HealthSample {
	sample := event.HealthSample{URL: c.address.shown}
	code, err := c.get(ctx)
	if err != nil {
		sample.Status, sample.Detail = c.classify(err)
		return sample
	}
	sample.Code = code
	ready := c.target.ReadyCodes
	if len(ready) == 0 {
		ready = []int{http.StatusOK}
	}
	switch {
	case slices.Contains(ready, code):
		sample.Status = event.HealthReady
	case len(c.target.NotReadyCodes) == 0 || slices.Contains(c.target.NotReadyCodes, code):
		sample.Status = event.HealthNotReady
	default:
		sample.Status = event.HealthUnknown
		sample.Detail = fmt.Sprintf("HTTP status %d means neither ready nor not ready: is this the engine's health URL?", code)
	}
	return sample
}

func (c *client) get(ctx context.Context) (int, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, c.address.url, nil)
	if err != nil {
		return 0, err
	}
	req.Header.Set("User-Agent", "startupd")
	resp, err := c.http.Do(req)
	if err != nil {
		return 0, err
	}
	defer resp.Body.Close()
	// What the body holds, and whether it ends well, tells nothing.
	_, _ = io.CopyN(io.Discard, resp.Body, maxBody)
	return resp.StatusCode, nil
}

// classify tells a closed port from an answer that tells nothing.
func (c *client) classify(err error) (event.HealthStatus, string) {
	var failed *url.Error
	if errors.As(err, &failed) {
		err = failed.Err // the URL is in the sample, without its secrets
	}
	var untrusted *tls.CertificateVerificationError
	switch {
	case errors.Is(err, syscall.ECONNREFUSED),
		c.address.socket != "" && errors.Is(err, os.ErrNotExist):
		return event.HealthClosed, "nothing listens there"
	case errors.Is(err, os.ErrDeadlineExceeded) || errors.Is(err, context.DeadlineExceeded):
		return event.HealthUnknown, fmt.Sprintf("no answer within %v", c.timeout)
	case errors.As(err, &untrusted):
		return event.HealthUnknown, "the certificate is not trusted: add its CA to the system's, or set insecure for this target"
	}
	var op *net.OpError
	if errors.As(err, &op) {
		// Its own text names our port, which changes from probe to probe.
		return event.HealthUnknown, shorten(op.Op + ": " + op.Err.Error())
	}
	return event.HealthUnknown, shorten(err.Error())
}

func shorten(s string) string {
	const limit = 200
	s = strings.ToValidUTF8(s, "\uFFFD")
	if len(s) <= limit {
		return s
	}
	return strings.ToValidUTF8(s[:limit], "") + "..."
}
