package observe

import (
	"context"
	"errors"
	"time"

	"github.com/startupd/startupd/internal/app"
	"github.com/startupd/startupd/pkg/event"
	"github.com/startupd/startupd/pkg/phases"
	"github.com/startupd/startupd/pkg/web/api"
)

// blindFor is how long the journal's reader may fail: it is started again and
// again, and a reader that a rotation has ended comes back at once.
const blindFor = 10 * time.Second

// own runs the core in this process. It reads the present invocation from its
// beginning, so that nothing is missed by the change.
func (r *run) own(ctx context.Context, why string) error {
	if r.opts.Own == nil {
		return blind(why)
	}
	o, err := r.opts.Own(r.opts.Units)
	if err != nil {
		return blind(why, err.Error())
	}
	if why != "" {
		r.opts.Note(why + "; the journal is followed here instead")
	}
	snaps := make(chan *phases.Snapshot, 1)
	o.Web, o.StateDir = nil, ""
	o.Changed = func(s *phases.Snapshot) {
		select {
		case <-snaps:
		default:
		}
		snaps <- s
	}
	a, err := app.New(o)
	if err != nil {
		return blind(why, err.Error())
	}
	ctx, stop := context.WithCancel(ctx)
	ended := make(chan error, 1)
	go func() { ended <- a.Run(ctx) }()
	err, over := r.core(ctx, o.Clock, snaps, ended)
	stop()
	if !over {
		<-ended
	}
	var seen *seeError
	if errors.As(err, &seen) {
		return seen.err
	}
	return err
}

// core tells what the core in this process does. over says that it has ended.
func (r *run) core(ctx context.Context, clock event.Clock, snaps <-chan *phases.Snapshot, ended <-chan error) (err error, over bool) {
	var darkSince time.Time
	settled := false
	for {
		select {
		case <-ctx.Done():
			return ctx.Err(), false
		case err := <-ended:
			if err == nil {
				err = ctx.Err()
			}
			if err == nil {
				return blind("the core has ended"), true
			}
			return blind(err.Error()), true
		case snap := <-snaps:
			status := api.NewStatus(snap, clock())
			src := journal(status)
			settled = settled || src != nil && src.Up
			if src == nil || src.Up {
				darkSince = time.Time{}
			} else if darkSince.IsZero() {
				darkSince = time.Now()
			}
			if src != nil && !src.Up && (src.State != readerFailed || time.Since(darkSince) > blindFor) {
				return blind(src.Reason), false
			}
			if err := r.tell(Update{Status: status, Settled: settled}); err != nil {
				return err, false
			}
		}
	}
}

// readerFailed is the state of a journal source whose reader is started again;
// any other that is not up lasts until somebody mends it.
const readerFailed = "reader_failed"
