package unit

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/godbus/dbus/v5"
	"go.uber.org/zap"

	"github.com/startupd/startupd/pkg/event"
)

// callTimeout bounds one call to systemd.
const callTimeout = 10 * time.Second

// run is what one Run remembers across connections. Only its goroutine
// touches it.
type run struct {
	*Source
	emit func(context.Context, []event.Event) error
	// last is the last state emitted of each target.
	last map[string]event.UnitState
	// warned is the last complaint about each unit, so that each is logged once.
	warned map[string]string
	// state is the last source state emitted; nil at first.
	state *event.SourceState
}

// emitError marks the consumer's refusal, which ends Run.
type emitError struct{ error }

// session watches over one connection. It returns the reason of its end.
func (r *run) session(ctx context.Context) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	conn, err := r.opts.Dial(ctx, r.watch)
	if err != nil {
		return fmt.Errorf("connect to systemd: %w", err)
	}
	// A new connection tells everything anew, targets that changed meanwhile too.
	clear(r.last)
	select {
	case <-r.changed:
	default:
	}
	if err := r.refreshAll(ctx, conn); err != nil {
		return err
	}
	poll := time.NewTicker(r.opts.Poll)
	defer poll.Stop()
	for err == nil {
		select {
		case <-ctx.Done():
			err = ctx.Err()
		case <-r.changed:
			// A target that is new needs its first state.
			clear(r.last)
			err = r.refreshAll(ctx, conn)
		case <-poll.C:
			err = r.refreshAll(ctx, conn)
		case unit, ok := <-conn.Changes():
			switch {
			case !ok:
				err = errClosed
			case unit == "":
				err = r.refreshAll(ctx, conn)
			default:
				err = r.refresh(ctx, conn, unit)
			}
		}
	}
	var refused emitError
	if errors.As(err, &refused) {
		return err
	}
	return fmt.Errorf("%w: %w", errLost, err)
}

// refreshAll lists the globs again and reads every watched unit. That it
// succeeds is what makes the source up.
func (r *run) refreshAll(ctx context.Context, conn Conn) error {
	if err := r.list(ctx, conn); err != nil {
		return err
	}
	events, err := r.readAll(ctx, conn, r.units(func(string) bool { return true }))
	if err != nil {
		return err
	}
	if err := r.report(ctx, event.SourceState{Source: event.SourceUnit, Up: true, State: "up"}); err != nil {
		return emitError{err}
	}
	return r.send(ctx, events)
}

// refresh reads what a signal's name stands for: the unit, its watched aliases,
// a new match of a glob.
func (r *run) refresh(ctx context.Context, conn Conn, signal string) error {
	r.mu.Lock()
	isNew := r.matchesGlob(signal) && !r.found[signal]
	r.mu.Unlock()
	if isNew {
		r.add([]string{signal})
	}
	events, err := r.readAll(ctx, conn, r.units(func(unit string) bool { return unit == signal || r.ids[unit] == signal }))
	if err != nil {
		return err
	}
	return r.send(ctx, events)
}

func (r *run) readAll(ctx context.Context, conn Conn, units []string) ([]event.Event, error) {
	var events []event.Event
	for _, unit := range units {
		got, err := r.read(ctx, conn, unit)
		if err != nil {
			return nil, err
		}
		events = append(events, got...)
	}
	return events, nil
}

func (r *run) send(ctx context.Context, events []event.Event) error {
	if len(events) == 0 {
		return nil
	}
	if err := r.emit(ctx, events); err != nil {
		return emitError{err}
	}
	return nil
}

// list asks which units the globs match.
func (r *run) list(ctx context.Context, conn Conn) error {
	r.mu.Lock()
	globs := slices.Clone(r.globs)
	r.mu.Unlock()
	if len(globs) == 0 {
		return nil
	}
	call, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	units, err := conn.List(call, globs)
	if err != nil {
		return fmt.Errorf("list units: %w", err)
	}
	// At once: nothing would tell of them after an error.
	if err := r.send(ctx, r.unload(units)); err != nil {
		return err
	}
	r.add(units)
	return nil
}

// unload drops the matches that are not among the loaded units any more, and
// returns what is to be told of them. They must not be read: to read an instance of
// a template loads it again, and it would never be gone.
func (r *run) unload(loaded []string) []event.Event {
	r.mu.Lock()
	gone := maps.Clone(r.found)
	for _, u := range loaded {
		delete(gone, u)
	}
	for _, t := range r.targets {
		delete(gone, t.Unit)
	}
	r.mu.Unlock()
	var events []event.Event
	for _, u := range slices.Sorted(maps.Keys(gone)) {
		events = append(events, event.Event{At: r.opts.Clock(), Target: u, Data: &event.UnitState{ActiveState: "inactive", SubState: "dead"}})
		r.drop(u)
	}
	return events
}

// add takes matches of globs in, up to the limit.
func (r *run) add(units []string) {
	r.mu.Lock()
	full := false
	for _, u := range units {
		if r.found[u] || !r.matchesGlob(u) {
			continue
		}
		if full = len(r.found) >= r.opts.MaxFound; full {
			break
		}
		r.found[u] = true
	}
	r.mu.Unlock()
	if full {
		r.warnOnce("", fmt.Sprintf("globs match more than %d units; the rest is not watched: make the globs narrower", r.opts.MaxFound))
	}
}

// drop forgets a match whose unit is gone, so that transient units don't pile
// up.
func (r *run) drop(unit string) {
	r.mu.Lock()
	was := r.found[unit]
	delete(r.found, unit)
	if was {
		delete(r.ids, unit)
	}
	r.mu.Unlock()
	if was {
		delete(r.last, unit)
		delete(r.warned, unit)
	}
}

// units returns the watched units that want accepts, each once. want is called
// with mu held.
func (r *run) units(want func(unit string) bool) []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	units := slices.Collect(maps.Keys(r.found))
	for _, t := range r.targets {
		units = append(units, t.Unit)
	}
	slices.Sort(units)
	return slices.DeleteFunc(slices.Compact(units), func(u string) bool { return !want(u) })
}

// read returns the events of a unit's present state, if that is news. An error
// is the connection's; one of the unit is logged, and its state is not known.
func (r *run) read(ctx context.Context, conn Conn, unit string) ([]event.Event, error) {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	props, err := conn.Properties(ctx, unit)
	var refused dbus.Error
	switch {
	case errors.As(err, &refused) && !isConnectionError(refused):
		r.warnOnce(unit, "systemd does not tell about the unit: "+refused.Error())
		return nil, nil
	case err != nil:
		return nil, fmt.Errorf("properties of %s: %w", unit, err)
	}
	now := r.opts.Clock()
	state := unitState(props, now.Boot)
	r.noteAlias(unit, props)
	r.complain(unit, props, state)
	var events []event.Event
	for _, name := range r.names(unit) {
		if last, ok := r.last[name]; ok && last == state {
			continue
		}
		r.last[name] = state
		data := state
		events = append(events, event.Event{At: now, Target: name, Data: &data})
	}
	if !state.Loaded {
		r.drop(unit)
	}
	return events, nil
}

// noteAlias remembers under which name signals of a unit come.
func (r *run) noteAlias(unit string, props map[string]any) {
	id, ok := props["Id"].(string)
	if !ok || id == unit {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.ids[unit] = id
}

// complain says once what a person should do about a unit.
func (r *run) complain(unit string, props map[string]any, state event.UnitState) {
	load, _ := props["LoadState"].(string)
	switch {
	case !state.Loaded && r.isFound(unit):
		// A transient unit that is over.
	case !state.Loaded:
		r.warnOnce(unit, "systemd knows no such unit; it is watched for all the same: check its name with 'systemctl list-unit-files', or create it")
	case load == "masked":
		r.warnOnce(unit, "the unit is masked and can't start: 'systemctl unmask' it")
	case load == "error" || load == "bad-setting":
		r.warnOnce(unit, "systemd could not load the unit: see 'systemctl status' and 'systemd-analyze verify'")
	default:
		delete(r.warned, unit)
	}
}

func (r *run) isFound(unit string) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.found[unit]
}

func (r *run) warnOnce(unit, text string) {
	if r.warned[unit] == text {
		return
	}
	r.warned[unit] = text
	r.opts.Logger.Warn(text, zap.String("unit", unit))
}

// report emits the source's state if it changed.
func (r *run) report(ctx context.Context, st event.SourceState) error {
	if r.state != nil && r.state.State == st.State {
		return nil
	}
	r.state = &st
	if st.Up {
		r.opts.Logger.Info("connected to systemd over D-Bus")
	} else {
		r.opts.Logger.Warn(st.Reason, zap.String("state", st.State))
	}
	data := st
	return r.emit(ctx, []event.Event{{At: r.opts.Clock(), Data: &data}})
}
