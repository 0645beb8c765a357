package gpu

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/cenkalti/backoff/v5"

	"github.com/startupd/startupd/pkg/event"
)

const (
	// reapTime is how long a killed reader may take to go.
	reapTime = 2 * time.Second
	// settled is how many samples make a new reader count as a good one.
	settled = 10
)

// run is one Run of a Source.
type run struct {
	*Source
	emit Emit
	// restart spaces new readers, retry spaces samples while the driver refuses.
	restart, retry *backoff.ExponentialBackOff
	restarts       int
	// told is the last state emitted; its zero value is none.
	told event.SourceState
}

// life is the life of one reader process. It returns nil when another one
// should be started.
func (r *run) life(ctx context.Context) error {
	c, err := r.start()
	if err != nil {
		return r.tell(ctx, StateRestarting, fmt.Sprintf("can't start the GPU reader: %v", err))
	}
	err = r.samples(ctx, c)
	c.kill()
	if end := (*endError)(nil); errors.As(err, &end) {
		return r.bury(ctx, c, end)
	}
	// Its end is waited for, yet not for ever.
	wait(context.WithoutCancel(ctx), c.done, reapTime)
	return err
}

// samples asks the reader again and again. It returns an *endError when the
// reader is of no use any more, else the context's or emit's error.
func (r *run) samples(ctx context.Context, c *child) error {
	ready := false
	for n := 0; ; n++ {
		timeout := r.o.Timeout
		if !ready {
			timeout = r.o.InitTimeout
		}
		pause := r.pause()
		due := time.NewTimer(pause)
		rep, err := c.ask(ctx, timeout)
		if err != nil {
			due.Stop()
			return err
		}
		if err := r.report(ctx, rep); err != nil {
			due.Stop()
			return err
		}
		if ready = rep.sampled(); ready {
			r.retry.Reset()
		} else {
			due.Reset(max(pause, r.retry.NextBackOff()))
		}
		if n == settled {
			r.restart.Reset()
		}
		select {
		case <-due.C:
		case <-r.wake:
		case <-c.done:
		case <-ctx.Done():
		}
		due.Stop()
	}
}

// bury says why the reader ended and waits until it is gone. A hung driver
// keeps its name: that it is started again is no news.
func (r *run) bury(ctx context.Context, c *child, end *endError) error {
	if end.hung {
		if err := r.tell(ctx, StateHung, fmt.Sprintf(
			"a call of the NVIDIA driver has not returned within %v; the reader was killed and is started again: look for Xid lines in the kernel's log", end.timeout)); err != nil {
			return err
		}
	}
	gone := wait(context.WithoutCancel(ctx), c.done, reapTime)
	if ctx.Err() != nil {
		return ctx.Err()
	}
	if !gone {
		if err := r.await(ctx, c); err != nil {
			return err
		}
	}
	r.o.Log("the GPU reader ended", "pid", c.pid, "cause", end.Error(), "exit", c.exit())
	if end.hung || (r.told.State != "" && !r.told.Up) {
		return nil
	}
	return r.tell(ctx, StateRestarting, fmt.Sprintf("the GPU reader ended (%s; %s) and is started again", end.Error(), c.exit()))
}

// await waits for a reader that can't be killed.
func (r *run) await(ctx context.Context, c *child) error {
	r.o.Log("the GPU reader can't be killed; waiting for it to go", "pid", c.pid)
	if err := r.tell(ctx, StateHung, fmt.Sprintf(
		"the GPU reader (pid %d) hangs inside the kernel and can't be killed: reset the GPU or reboot", c.pid)); err != nil {
		return err
	}
	select {
	case <-c.done:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// report emits a report's state, where it changed, and its sample.
func (r *run) report(ctx context.Context, rep report) error {
	at := r.o.Clock()
	var events []event.Event
	if st := r.state(rep.State, rep.Reason, rep.sampled()); st != r.told {
		r.told = st
		events = append(events, event.Event{At: at, Data: &st})
	}
	if rep.sampled() {
		events = append(events, event.Event{At: at, Data: &event.GPUSample{GPUs: rep.GPUs}})
	}
	if len(events) == 0 {
		return nil
	}
	return r.emit(ctx, events)
}

// tell emits a state without a sample.
func (r *run) tell(ctx context.Context, state, reason string) error {
	return r.report(ctx, report{State: state, Reason: reason})
}

func (r *run) state(state, reason string, up bool) event.SourceState {
	return event.SourceState{Source: event.SourceGPU, Up: up, State: state, Reason: reason, Restarts: r.restarts}
}

// sleep waits for d; false when the context ends first.
func (r *run) sleep(ctx context.Context, d time.Duration) bool {
	wait(ctx, nil, d)
	return ctx.Err() == nil
}

// wait waits for done, for at most d; it says whether done came.
func wait(ctx context.Context, done <-chan struct{}, d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-done:
		return true
	case <-t.C:
	case <-ctx.Done():
	}
	return false
}
