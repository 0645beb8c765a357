package wait

import (
	"context"

	"github.com/startupd/startupd/pkg/event"
	"github.com/startupd/startupd/pkg/journal"
	"github.com/startupd/startupd/pkg/phases"
	"github.com/startupd/startupd/pkg/profile"
	"github.com/startupd/startupd/pkg/web/api"
)

// Past reads the newest start of an invocation out of the journal; nil when the
// journal holds none.
func Past(ctx context.Context, reader journal.Reader, profiles []*profile.Profile, unit, invocation string) (*api.Startup, error) {
	host := phases.NewHost(phases.HostOptions{}, phases.Config{Name: unit, Profiles: profiles})
	o := journal.DirOptions{Reader: reader, Target: journal.TargetSpec{Unit: unit}, Invocation: invocation}
	err := journal.ReadDir(ctx, o, func(ctx context.Context, events []event.Event) error {
		for _, ev := range events {
			host.Apply(ev)
		}
		return ctx.Err()
	})
	if err != nil {
		return nil, err
	}
	host.Drain()
	for _, t := range host.Snapshot().Targets {
		if t.Startup != nil && t.Startup.Invocation == invocation {
			return api.NewStartup(unit, t.Startup, host.Snapshot().At), nil
		}
	}
	return nil, nil
}
