package app

import (
	"context"
	"fmt"
)

// runner starts tasks and remembers how to stop them.
type runner struct {
	down cleanups
	// failed gets the first error of a task that nobody stopped.
	failed chan error
}

// start runs a task until its turn to stop comes, which the end of ctx does not
// bring forward: a stop has its own order. A task may end by itself; if it does
// so with an error, the app stops.
func (r *runner) start(ctx context.Context, name string, run func(context.Context) error) {
	ctx, cancel := context.WithCancel(context.WithoutCancel(ctx))
	done := make(chan struct{})
	go func() {
		defer close(done)
		if err := run(ctx); err != nil && ctx.Err() == nil {
			select {
			case r.failed <- fmt.Errorf("%s: %w", name, err):
			default: // another one came first
			}
		}
	}()
	r.down.push(name, func(context.Context) error {
		cancel()
		<-done
		return nil
	})
}
