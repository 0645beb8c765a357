package unit

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"
	"syscall"
	"time"

	sd "github.com/coreos/go-systemd/v22/dbus"
	"github.com/godbus/dbus/v5"

	"github.com/startupd/startupd/pkg/event"
)

// Reasons for which there is no connection.
var (
	errLost    = errors.New("connection lost")
	errClosed  = errors.New("the bus closed it")
	errRefused = errors.New("refused by the bus")
)

// busConn is a Conn over the system bus.
type busConn struct {
	conn    *sd.Conn
	changes chan string
	dirty   map[string]bool
}

var _ Conn = (*busConn)(nil)

// DialSystem connects to systemd over the system bus and subscribes to its
// signals. It is a Dialer.
func DialSystem(ctx context.Context, watch func(unit string) bool) (Conn, error) {
	ctx, cancel := context.WithCancel(ctx)
	// A bus that accepts and then says nothing must not hold us for ever.
	timer := time.AfterFunc(callTimeout, cancel)
	var buses []*dbus.Conn
	conn, err := sd.NewConnection(func() (*dbus.Conn, error) {
		bus, err := dialBus(ctx)
		buses = append(buses, bus)
		return bus, err
	})
	if err != nil {
		cancel()
		return nil, err
	}
	updates := make(chan *sd.PropertiesUpdate, 256)
	overflow := make(chan error, 1)
	conn.SetPropertiesSubscriber(updates, overflow)
	if err := conn.Subscribe(); err != nil {
		cancel()
		return nil, err
	}
	if !timer.Stop() {
		return nil, context.DeadlineExceeded
	}
	c := &busConn{conn: conn, changes: make(chan string), dirty: make(map[string]bool)}
	for _, bus := range buses {
		// Either connection's end is the end of both.
		context.AfterFunc(bus.Context(), cancel)
	}
	go func() {
		defer cancel()
		c.pump(ctx, signals{updates, overflow, watch})
	}()
	return c, nil
}

// dialBus authenticates by the numeric user ID, which needs no user database.
func dialBus(ctx context.Context) (*dbus.Conn, error) {
	bus, err := dbus.SystemBusPrivate(dbus.WithContext(ctx))
	if err != nil {
		return nil, err
	}
	if err := bus.Auth([]dbus.Auth{dbus.AuthExternal(strconv.Itoa(os.Getuid()))}); err != nil {
		bus.Close()
		return nil, fmt.Errorf("%w: %w", errRefused, err)
	}
	if err := bus.Hello(); err != nil {
		bus.Close()
		return nil, err
	}
	return bus, nil
}

// List implements Conn. It may return more than what the globs match.
func (c *busConn) List(ctx context.Context, globs []string) ([]string, error) {
	patterns := make([]string, len(globs))
	for i, g := range globs {
		patterns[i] = wider(g)
	}
	units, err := c.conn.ListUnitsByPatternsContext(ctx, nil, patterns)
	if err != nil {
		return nil, err
	}
	var names []string
	for _, u := range units {
		if u.LoadState != "not-found" {
			names = append(names, u.Name)
		}
	}
	return names, nil
}

// wider is a pattern for systemd that matches at least what path.Match does. Of
// [!a] and of a backslash the two have other notions, and a unit that one of them
// alone matches would be told of as loaded and unloaded in turn.
func wider(glob string) string {
	if i := strings.IndexAny(glob, `[\`); i >= 0 {
		return glob[:i] + "*"
	}
	return glob
}

// Properties implements Conn.
func (c *busConn) Properties(ctx context.Context, unit string) (map[string]any, error) {
	return c.conn.GetAllPropertiesContext(ctx, unit)
}

// Changes implements Conn.
func (c *busConn) Changes() <-chan string { return c.changes }

// signals are what go-systemd delivers.
type signals struct {
	updates  <-chan *sd.PropertiesUpdate
	overflow <-chan error
	watch    func(string) bool
}

// pump keeps go-systemd's channel empty, however slow the consumer is: each
// unit that changed is remembered once until it is taken.
func (c *busConn) pump(ctx context.Context, in signals) {
	defer close(c.changes)
	for {
		var out chan<- string
		var next string
		for next = range c.dirty {
			out = c.changes
			break
		}
		select {
		case <-ctx.Done():
			return
		case u := <-in.updates:
			if in.watch(u.UnitName) {
				c.dirty[u.UnitName] = true
			}
		case <-in.overflow:
			c.dirty[""] = true
		case out <- next:
			delete(c.dirty, next)
		}
	}
}

// isConnectionError tells errors of the bus from answers about one unit.
func isConnectionError(err dbus.Error) bool {
	switch err.Name {
	case "org.freedesktop.DBus.Error.AccessDenied",
		"org.freedesktop.DBus.Error.Disconnected",
		"org.freedesktop.DBus.Error.NoReply",
		"org.freedesktop.DBus.Error.NameHasNoOwner",
		"org.freedesktop.DBus.Error.ServiceUnknown":
		return true
	}
	return false
}

// sourceState names why there is no connection, and what to do.
func sourceState(err error) event.SourceState {
	st := event.SourceState{Source: event.SourceUnit}
	var answer dbus.Error
	errors.As(err, &answer)
	switch {
	case errors.Is(err, errLost):
		st.State = "disconnected"
		st.Reason = "the connection to the system bus ended (" + err.Error() + "); connecting again"
	case isRefusal(err) || answer.Name == "org.freedesktop.DBus.Error.AccessDenied":
		st.State = "refused"
		st.Reason = "the system bus refused us (" + err.Error() + "): run startupd as a static user (sysusers.d) instead of DynamicUser=yes, " +
			"and allow AF_UNIX in RestrictAddressFamilies; until then the journal alone tells of units"
	case errors.Is(err, syscall.ENOENT) || errors.Is(err, syscall.ECONNREFUSED):
		st.State = "no_bus"
		st.Reason = "no system bus (" + err.Error() + "): start dbus.service, or mount /run/dbus/system_bus_socket into the container; " +
			"until then the journal alone tells of units"
	default:
		st.State = "no_bus"
		st.Reason = "systemd does not answer on the system bus (" + err.Error() + "): see 'systemctl status dbus'; " +
			"until then the journal alone tells of units"
	}
	return st
}

// isRefusal recognises a bus that hangs up during the log-in. To a user that it
// can't resolve, as DynamicUser's, it shows as a socket that is not connected.
func isRefusal(err error) bool {
	for _, refusal := range []error{
		syscall.ENOTCONN, syscall.EPIPE, syscall.ECONNRESET, syscall.EACCES, syscall.EPERM, io.EOF, errRefused,
	} {
		if errors.Is(err, refusal) {
			return true
		}
	}
	return false
}
