package app

import (
	"context"
	"errors"
	"maps"
	"slices"
	"sync"
	"time"

	"go.uber.org/zap"

	"github.com/startupd/startupd/pkg/event"
	"github.com/startupd/startupd/pkg/history"
	"github.com/startupd/startupd/pkg/phases"
)

const (
	// historyQueue is how many finished startups may wait to be written.
	historyQueue = 64
	// historyRetry is the pause after a write that has failed.
	historyRetry = time.Minute
	// historyWait bounds how long another process's lock is waited for.
	historyWait = 5 * time.Second
)

// historian keeps the finished startups, and tells the core what is known of
// the earlier ones.
type historian struct {
	store history.Store
	clock event.Clock
	log   *zap.Logger
	// off is true where nothing is kept.
	off bool
	// failing says that the last access failed, and that it was logged.
	failing bool
	// told are the targets whose baseline the core has.
	told map[string]bool

	mu sync.Mutex
	// queue is what is still to be written, oldest first; dropped counts what was
	// never written.
	queue   []finished
	dropped int
	// wake holds a token while there is something new in the queue.
	wake chan struct{}
}

type finished struct {
	target  string
	startup *phases.Startup
}

func newHistorian(o *Options) *historian {
	h := &historian{
		store: history.In(o.StateDir, o.History), clock: o.Clock, log: o.Log, told: map[string]bool{}, wake: make(chan struct{}, 1),
	}
	switch {
	case o.StateDir == "":
		h.off = true
		h.log.Info("No history of startups is kept: there is no state directory (--state.dir)")
	case o.History.MaxStartups <= 0:
		h.off = true
		h.log.Info("No history of startups is kept: --history.max-startups is 0")
	}
	return h
}

// finished is the core's HostOptions.Finished; nil where nothing is kept.
func (h *historian) finished() func(string, *phases.Startup) {
	if h.off {
		return nil
	}
	return h.keep
}

// keep takes a startup. The main loop calls it, so it never waits: when the disk
// can't keep up, the oldest is lost and counted.
func (h *historian) keep(target string, s *phases.Startup) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.queue = append(h.queue, finished{target, s})
	h.shed()
	select {
	case h.wake <- struct{}{}:
	default: // the token is still there
	}
}

// shed drops what is too much. h.mu is held.
func (h *historian) shed() {
	n := len(h.queue) - historyQueue
	if n <= 0 {
		return
	}
	h.queue = h.queue[n:]
	if h.dropped == 0 {
		h.log.Warn("Finished startups come faster than the history can be written: the oldest are not kept; their number is logged when it can be written again")
	}
	h.dropped += n
}

func (h *historian) next() (finished, bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if len(h.queue) == 0 {
		return finished{}, false
	}
	f := h.queue[0]
	h.queue = h.queue[1:]
	return f, true
}

// putBack keeps what could not be written for the next try.
func (h *historian) putBack(f finished) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.queue = append([]finished{f}, h.queue...)
	h.shed()
}

// meet tells the core of targets that it did not have before: at the beginning,
// after a reload, or when a unit of a glob turns up.
func (h *historian) meet(ctx context.Context, snap *phases.Snapshot, emit Emit) error {
	if h.off {
		return nil
	}
	present := map[string]bool{}
	for _, t := range snap.Targets {
		present[t.Name] = true
		if h.told[t.Name] || h.off { // the first may turn it off
			continue
		}
		if err := h.tell(ctx, t.Name, emit); err != nil {
			return err
		}
	}
	// One that comes back begins without a baseline.
	for name := range h.told {
		if !present[name] {
			delete(h.told, name)
		}
	}
	return nil
}

// tell gives the core a target's baseline. Without one it takes nothing for new.
func (h *historian) tell(ctx context.Context, target string, emit Emit) error {
	h.told[target] = true
	b, err := h.baseline(ctx, target)
	if errors.Is(err, history.ErrDamaged) && h.setAside(err) {
		b, err = h.baseline(ctx, target)
	}
	if err != nil {
		h.complain(err)
		return ctx.Err()
	}
	// It belongs to no moment: the core's time must not move on by it.
	return emit(ctx, []event.Event{{Target: target, Data: &b}})
}

func (h *historian) baseline(ctx context.Context, target string) (event.Baseline, error) {
	ctx, cancel := context.WithTimeout(ctx, historyWait)
	defer cancel()
	return h.store.Baseline(ctx, target)
}

// run writes what keep has taken, so that a slow disk holds up nobody, and
// follows the snapshots for targets that come.
func (h *historian) run(ctx context.Context, snaps <-chan *phases.Snapshot, emit Emit) error {
	retry := time.NewTicker(historyRetry)
	defer retry.Stop()
	for {
		var err error
		select {
		case <-ctx.Done():
			// The sources have stopped: nothing is added any more.
			stop, cancel := context.WithTimeout(context.WithoutCancel(ctx), historyWait)
			defer cancel()
			return h.write(stop, func(context.Context, []event.Event) error { return nil })
		case snap := <-snaps:
			err = h.meet(ctx, snap, emit)
		case <-h.wake:
			err = h.write(ctx, emit)
		case <-retry.C:
			err = h.write(ctx, emit)
		}
		if err != nil && ctx.Err() == nil {
			return err
		}
	}
}

// write writes the queue until it is empty or a write fails. Its error is
// emit's.
func (h *historian) write(ctx context.Context, emit Emit) error {
	changed := map[string]bool{}
	h.writeQueue(ctx, changed)
	// A crash loop writes faster than it is worth to count anew.
	for _, target := range slices.Sorted(maps.Keys(changed)) {
		if err := h.tell(ctx, target, emit); err != nil {
			return err
		}
	}
	return nil
}

// writeQueue notes the targets whose history is another one now.
func (h *historian) writeQueue(ctx context.Context, news map[string]bool) {
	for !h.off {
		f, ok := h.next()
		if !ok {
			return
		}
		changed, err := h.put(ctx, f)
		if errors.Is(err, history.ErrDamaged) && h.setAside(err) {
			changed, err = h.put(ctx, f)
		}
		if err != nil {
			h.complain(err)
			h.putBack(f)
			return
		}
		h.recovered()
		if changed {
			news[f.target] = true
		}
	}
}

func (h *historian) put(ctx context.Context, f finished) (changed bool, err error) {
	ctx, cancel := context.WithTimeout(ctx, historyWait)
	defer cancel()
	return h.store.Put(ctx, h.clock().Real, history.FromStartup(f.target, f.startup))
}

// setAside makes room for a new file, and says whether it could.
func (h *historian) setAside(why error) bool {
	kept, err := h.store.SetAside(h.clock().Real)
	if err != nil {
		h.complain(errors.Join(why, err))
		return false
	}
	h.log.Error("The history of startups is damaged: it was set aside, and a new one begins", zap.Error(why), zap.String("kept", kept))
	return true
}

// complain logs the first of several failures.
func (h *historian) complain(err error) {
	if errors.Is(err, history.ErrNewer) {
		h.off = true
		h.log.Error("The history of startups is left as it is and nothing is added; install the newer version again, or remove the file", zap.Error(err))
		return
	}
	if !h.failing {
		h.log.Error("The history of startups can't be read or written, and is tried again each minute; make room, and make --state.dir writable for startupd", zap.Error(err))
	}
	h.failing = true
}

func (h *historian) recovered() {
	h.mu.Lock()
	dropped := h.dropped
	h.dropped = 0
	h.mu.Unlock()
	if h.failing || dropped > 0 {
		h.log.Info("The history of startups is written again", zap.String("file", h.store.Path), zap.Int("not_kept", dropped))
	}
	h.failing = false
}
