package app

import (
	"context"
	"errors"
	"slices"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"

	"github.com/startupd/startupd/pkg/phases"
)

func TestStatusText(t *testing.T) {
	if got := statusText(&phases.Snapshot{}); got != "No unit seen yet" {
		t.Errorf("empty: %q", got)
	}
	got := statusText(&phases.Snapshot{Targets: []phases.Target{
		{Name: "a.service", State: phases.Serving, Startup: &phases.Startup{Step: "api_init"}},
		{Name: "b.service", State: phases.Load, Startup: &phases.Startup{Step: "weights", Stalled: true}},
		{Name: "c.service", State: phases.Unknown},
	}})
	if want := "a.service: serving; b.service: load/weights (stalled); c.service: unknown"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
}

func TestNotifier(t *testing.T) {
	var said []string
	core, logs := observer.New(zap.WarnLevel)
	n := &notifier{log: zap.New(core), send: func(s string) error { said = append(said, s); return nil }}
	n.show("a")
	n.show("a")
	n.show("b")
	if want := []string{"STATUS=a", "STATUS=b"}; !slices.Equal(said, want) {
		t.Errorf("said %q, want %q", said, want)
	}
	n.send = func(string) error { return errors.New("no socket") }
	n.say("READY=1")
	if logs.Len() != 1 {
		t.Errorf("log: %v", logs.All())
	}
	(&notifier{}).say("READY=1")
}

func TestWatchdogFollowsTheLoop(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		beats := 0
		n := &notifier{log: zap.NewNop(), send: func(s string) error {
			if s == "WATCHDOG=1" {
				beats++
			}
			return nil
		}}
		var hung atomic.Bool
		turn := func(ctx context.Context) error {
			if hung.Load() {
				<-ctx.Done()
				return ctx.Err()
			}
			return nil
		}
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan error, 1)
		go func() { ended <- watchdog(ctx, 30*time.Second, turn, n) }()
		<-time.After(61 * time.Second)
		synctest.Wait()
		if beats != 4 {
			t.Errorf("%d beats in a minute, want 4", beats)
		}
		hung.Store(true)
		<-time.After(time.Hour)
		synctest.Wait()
		if beats != 4 {
			t.Errorf("%d beats of a loop that hangs", beats)
		}
		cancel()
		<-ended
	})
}
