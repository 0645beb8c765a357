package client

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strconv"
	"strings"

	"github.com/startupd/startupd/pkg/web/api"
)

// Options say where the daemon is.
type Options struct {
	// Socket is the path of its unix socket.
	Socket string
	// Dial connects to it; nil dials Socket.
	Dial func(context.Context) (net.Conn, error)
}

// Client asks one daemon. It is safe for concurrent use.
type Client struct{ http *http.Client }

// StatusError is an answer of the daemon that is no success.
type StatusError struct {
	// Code is the HTTP status.
	Code int
	// Text is what the daemon says, in one line.
	Text string
	// Foreign says that the answer is none of this API's problems: an older daemon
	// has no such path, or it is no startupd at all.
	Foreign bool
}

func (e *StatusError) Error() string {
	if e.Text == "" {
		return fmt.Sprintf("the daemon answers %d", e.Code)
	}
	return fmt.Sprintf("the daemon answers %d: %s", e.Code, e.Text)
}

const (
	// maxBody bounds an answer: a status with all findings of many units is far
	// smaller.
	maxBody = 64 << 20
	// maxComplaint bounds what is read of an error.
	maxComplaint = 4 << 10
)

// New returns a client. Nothing is dialled before the first request.
func New(o Options) *Client {
	dial := o.Dial
	if dial == nil {
		dial = func(ctx context.Context) (net.Conn, error) {
			var d net.Dialer
			return d.DialContext(ctx, "unix", o.Socket)
		}
	}
	return &Client{http: &http.Client{Transport: &http.Transport{
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) { return dial(ctx) },
		// The socket is at hand: a proxy of the environment must not be asked.
		Proxy: nil, MaxIdleConnsPerHost: 1, DisableCompression: true,
	}}}
}

// Close gives up idle connections. The client can be used again.
func (c *Client) Close() { c.http.CloseIdleConnections() }

// Status is the present state of these units; none means all. A unit that the
// daemon does not watch is absent, or a *StatusError of 404.
func (c *Client) Status(ctx context.Context, units ...string) (*api.Status, error) {
	s, err := get[api.Status](ctx, c, "/api/v1/status", url.Values{"unit": units})
	if err != nil {
		return nil, err
	}
	return known(s)
}

// known refuses a status of another schema: its fields may mean something else.
func known(s *api.Status) (*api.Status, error) {
	if s.Schema != api.StatusSchema {
		return nil, fmt.Errorf("the daemon tells a status of schema %.60q, and %s is understood; is it of another version?", s.Schema, api.StatusSchema)
	}
	return s, nil
}

// Startups are a unit's startups, the newest first; "" means of all units, and a
// limit of 0 as many as the daemon gives by default.
func (c *Client) Startups(ctx context.Context, unit string, limit int) (*api.Startups, error) {
	q := url.Values{}
	if unit != "" {
		q.Set("unit", unit)
	}
	if limit > 0 {
		q.Set("limit", strconv.Itoa(limit))
	}
	return get[api.Startups](ctx, c, "/api/v1/startups", q)
}

// Startup is the newest startup of an invocation of the unit; "" means of any. One
// that is not known is a *StatusError of 404.
func (c *Client) Startup(ctx context.Context, unit, invocation string) (*api.Startup, error) {
	q := url.Values{}
	if unit != "" {
		q.Set("unit", unit)
	}
	return get[api.Startup](ctx, c, "/api/v1/startups/"+url.PathEscape(invocation), q)
}

// Memory is a unit's GPU memory since its present startup began.
func (c *Client) Memory(ctx context.Context, unit string) (*api.Memory, error) {
	return get[api.Memory](ctx, c, "/api/v1/memory", url.Values{"unit": {unit}})
}

func get[T any](ctx context.Context, c *Client, path string, query url.Values) (*T, error) {
	res, err := c.ask(ctx, path, query, nil)
	if err != nil {
		return nil, err
	}
	defer res.Body.Close()
	out := new(T)
	if err := json.NewDecoder(io.LimitReader(res.Body, maxBody)).Decode(out); err != nil {
		return nil, fmt.Errorf("the daemon's answer to %s can't be read: %w; is it of another version?", path, err)
	}
	// What is left is a newline: read, so that the connection can be used again.
	_, _ = io.CopyN(io.Discard, res.Body, maxComplaint)
	return out, nil
}

// ask returns a successful answer to an escaped path, whose body the caller closes.
func (c *Client) ask(ctx context.Context, path string, query url.Values, header http.Header) (*http.Response, error) {
	if q := query.Encode(); q != "" {
		path += "?" + q
	}
	// The transport dials the socket, whatever the host is called.
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://startupd"+path, nil)
	if err != nil {
		return nil, err
	}
	for k, v := range header {
		req.Header[k] = v
	}
	res, err := c.http.Do(req)
	if err != nil {
		// The made-up URL tells the reader nothing.
		if ue := (*url.Error)(nil); errors.As(err, &ue) {
			err = ue.Err
		}
		return nil, err
	}
	if res.StatusCode/100 == 2 {
		return res, nil
	}
	defer res.Body.Close()
	text, _ := io.ReadAll(io.LimitReader(res.Body, maxComplaint))
	said, foreign := complaint(text)
	return nil, &StatusError{Code: res.StatusCode, Text: said, Foreign: foreign}
}

// complaint is what an answer that is no success says, in one line. foreign says
// that it is none of this API's.
func complaint(body []byte) (text string, foreign bool) {
	var p api.Problem
	foreign = json.Unmarshal(body, &p) != nil || p.Error == ""
	if !foreign {
		body = []byte(p.Error)
		if p.Next != "" {
			body = []byte(p.Error + "; " + p.Next)
		}
	}
	return strings.Join(strings.Fields(string(body)), " "), foreign
}
