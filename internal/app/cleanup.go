package app

import (
	"context"
	"errors"
	"fmt"
	"time"
)

// cleanups is a stack of named steps that undo a start. The last one pushed
// runs first, whether the start was finished or half built.
type cleanups struct{ steps []cleanup }

type cleanup struct {
	name string
	run  func(context.Context) error
}

func (c *cleanups) push(name string, run func(context.Context) error) {
	c.steps = append(c.steps, cleanup{name: name, run: run})
}

// lateStep is what a step gets that begins after the time is up: one that only
// has to close something is not left out because another one hung.
const lateStep = 100 * time.Millisecond

// run runs every step, also after one has failed, and joins their errors. A
// step that outlasts ctx is left behind, and named in the error.
func (c *cleanups) run(ctx context.Context) error {
	var errs []error
	for i := len(c.steps) - 1; i >= 0; i-- {
		s := c.steps[i]
		done := make(chan error, 1)
		go func() { done <- s.run(ctx) }()
		var err error
		select {
		case err = <-done:
		case <-ctx.Done():
			select {
			case err = <-done:
			case <-time.After(lateStep):
				err = context.Cause(ctx)
			}
		}
		if err != nil {
			errs = append(errs, fmt.Errorf("stop %s: %w", s.name, err))
		}
	}
	c.steps = nil
	return errors.Join(errs...)
}
