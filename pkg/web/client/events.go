package client

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"mime"
	"net/http"
	"net/url"

	"github.com/startupd/startupd/pkg/web/api"
)

// Event is one event of /api/v1/events.
type Event struct {
	// ID resumes behind it; "" for those that can't be resumed after.
	ID string
	// Type is one of api's Event names; "" is a sign of life without content.
	Type string
	// Data is the event's document as JSON.
	Data []byte
}

// Status decodes a snapshot or an update.
func (e *Event) Status() (*api.Status, error) {
	s, err := decode[api.Status](e)
	if err != nil {
		return nil, err
	}
	return known(s)
}

// Transition decodes a transition.
func (e *Event) Transition() (*api.Transition, error) { return decode[api.Transition](e) }

// Told decodes a finding, root_cause, outcome or stall.
func (e *Event) Told() (*api.Told, error) { return decode[api.Told](e) }

// Reset decodes a reset or dropped.
func (e *Event) Reset() (*api.Reset, error) { return decode[api.Reset](e) }

func decode[T any](e *Event) (*T, error) {
	out := new(T)
	if err := json.Unmarshal(e.Data, out); err != nil {
		return nil, fmt.Errorf("the daemon's %s event can't be read: %w; is it of another version?", e.Type, err)
	}
	return out, nil
}

// ErrEnded is what Events returns when the daemon ends the stream.
var ErrEnded = errors.New("the daemon has ended the stream of events")

// EventsOptions say which events are wanted.
type EventsOptions struct {
	// Units are those of interest; none means all.
	Units []string
	// After is the ID of the last event that was seen, to go on behind it; ""
	// begins with the present.
	After string
}

// Events calls see with each event, until ctx ends, see returns an error, or the
// stream does. The error is never nil.
func (c *Client) Events(ctx context.Context, o EventsOptions, see func(Event) error) error {
	header := http.Header{"Accept": {"text/event-stream"}}
	if o.After != "" {
		header.Set("Last-Event-ID", o.After)
	}
	res, err := c.ask(ctx, "/api/v1/events", url.Values{"unit": o.Units}, header)
	if err != nil {
		return err
	}
	defer res.Body.Close()
	if kind, _, _ := mime.ParseMediaType(res.Header.Get("Content-Type")); kind != "text/event-stream" {
		return fmt.Errorf("the daemon answers /api/v1/events with %q, not with events; is it of another version?", kind)
	}
	err = readEvents(res.Body, see)
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	return err
}

// readEvents reads server-sent events (HTML standard, section 9.2).
//
//	id: 12
//	event: transition
//	data: {"unit":"llm.service"}
func readEvents(r io.Reader, see func(Event) error) error {
	in := bufio.NewScanner(r)
	in.Buffer(nil, maxBody)
	var ev Event
	for in.Scan() {
		line := in.Bytes()
		if len(ev.Data)+len(line) > maxBody {
			return errLong
		}
		name, value, _ := bytes.Cut(line, []byte(":"))
		value = bytes.TrimPrefix(value, []byte(" "))
		switch {
		case len(line) == 0:
			if ev.Data != nil {
				if err := see(ev); err != nil {
					return err
				}
			}
			ev = Event{}
		case len(name) == 0:
			if err := see(Event{}); err != nil {
				return err
			}
		case string(name) == "id":
			ev.ID = string(value)
		case string(name) == "event":
			ev.Type = string(value)
		case string(name) == "data":
			if ev.Data != nil {
				ev.Data = append(ev.Data, '\n')
			}
			ev.Data = append(append([]byte{}, ev.Data...), value...)
		}
	}
	switch err := in.Err(); {
	case errors.Is(err, bufio.ErrTooLong):
		return errLong
	case err != nil:
		return err
	}
	return ErrEnded // also inside an event: half of one is none
}

var errLong = fmt.Errorf("an event of the daemon is longer than %d bytes", maxBody)
