package monitor

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/startupd/startupd/pkg/event"
	"github.com/startupd/startupd/pkg/phases"
	"github.com/startupd/startupd/pkg/profile"
)

const (
	unit = "llm.service"
	boot = "b0000000000000000000000000000000"
)

// clock tells the bubble's time on both clocks.
func clock() event.Clock {
	began := time.Now()
	return func() event.Stamp {
		return event.Stamp{Real: time.Now(), Boot: boot, Mono: time.Hour + time.Since(began)}
	}
}

func start(t *testing.T, ctx context.Context, now event.Clock) *Loop {
	t.Helper()
	set, err := profile.Builtin()
	if err != nil {
		t.Fatal(err)
	}
	host := phases.NewHost(phases.HostOptions{}, phases.Config{Name: unit, Profiles: set.Profiles()})
	l := New(Options{Host: host, Clock: now})
	go func() {
		if err := l.Run(ctx); err != nil {
			t.Error(err)
		}
	}()
	return l
}

func line(at event.Stamp, text string) event.Event {
	return event.Event{At: at, Target: unit, Data: &event.Line{Text: text, Invocation: "11111111111111111111111111111111"}}
}

const loading = "(Worker_TP0 pid=300) INFO 03-01 23:30:21 [gpu_model_runner.py:4124] Starting to load model acme/m..."

func TestEmitPublishesBeforeItReturns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx := t.Context()
		now := clock()
		l := start(t, ctx, now)
		if err := l.Emit(ctx, []event.Event{line(now(), loading)}); err != nil {
			t.Fatal(err)
		}
		if got := l.Snapshot().Targets[0].State; got != phases.Load {
			t.Errorf("state %s, want load", got)
		}
	})
}

func TestTimePassesByItself(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx := t.Context()
		now := clock()
		l := start(t, ctx, now)
		if err := l.Emit(ctx, []event.Event{line(now(), loading)}); err != nil {
			t.Fatal(err)
		}
		<-time.After(2 * time.Hour)
		synctest.Wait()
		if s := l.Snapshot().Targets[0].Startup; !s.Stalled {
			t.Error("two hours of silence are no stall")
		}
	})
}

func TestTimeDoesNotOvertakeTheJournal(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx := t.Context()
		now := clock()
		l := start(t, ctx, now)
		mark := now()
		err := l.Emit(ctx, []event.Event{
			{At: mark, Data: &event.SourceState{Source: event.SourceJournal, Up: true, State: "up"}},
			line(mark, loading),
			{At: mark, Data: &event.Watermark{}},
		})
		if err != nil {
			t.Fatal(err)
		}
		<-time.After(2 * time.Hour)
		synctest.Wait()
		snap := l.Snapshot()
		if snap.Targets[0].Startup.Stalled || snap.At != mark {
			t.Errorf("stalled %v at %v, though the journal is known up to %v only", snap.Targets[0].Startup.Stalled, snap.At, mark)
		}
	})
}

// A verdict that can't come must not keep the loop awake.
func TestABlindLoopSleeps(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx := t.Context()
		now := clock()
		set, err := profile.Builtin()
		if err != nil {
			t.Fatal(err)
		}
		turns := 0
		host := phases.NewHost(phases.HostOptions{}, phases.Config{Name: unit, Profiles: set.Profiles()})
		l := New(Options{Host: host, Clock: now, OnTurn: func() { turns++ }})
		go func() {
			if err := l.Run(ctx); err != nil {
				t.Error(err)
			}
		}()
		err = l.Emit(ctx, []event.Event{
			line(now(), loading),
			{At: now(), Data: &event.SourceState{Source: event.SourceJournal, State: "not_permitted"}},
		})
		if err != nil {
			t.Fatal(err)
		}
		<-time.After(2 * time.Hour)
		synctest.Wait()
		if turns > 7300 {
			t.Errorf("%d turns in two hours, want one a second", turns)
		}
	})
}

func TestSubscriberSeesTheNewest(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx := t.Context()
		now := clock()
		l := start(t, ctx, now)
		ch := l.Subscribe(ctx)
		for range 3 {
			if err := l.Emit(ctx, []event.Event{line(now(), loading)}); err != nil {
				t.Fatal(err)
			}
		}
		if got := (<-ch).Targets[0].Counters.Lines; got != 3 {
			t.Errorf("the subscriber sees %d lines, want the newest snapshot's 3", got)
		}
	})
}

func TestStoppedLoopRefuses(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		l := start(t, ctx, clock())
		cancel()
		synctest.Wait()
		if err := l.Emit(t.Context(), nil); !errors.Is(err, ErrStopped) {
			t.Errorf("emit: %v, want ErrStopped", err)
		}
	})
}
