package app

import (
	"context"
	"strconv"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/zap"

	"github.com/startupd/startupd/pkg/event"
	"github.com/startupd/startupd/pkg/journal"
	"github.com/startupd/startupd/pkg/monitor"
	"github.com/startupd/startupd/pkg/phases"
)

// TestSavesAreConsistent writes line after line. Whatever moment is saved, the
// position must tell of as many lines as the counters.
func TestSavesAreConsistent(t *testing.T) {
	dir := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		began := time.Now()
		clock := func() event.Stamp { return at(time.Since(began)) }
		host := phases.NewHost(phases.HostOptions{}, phases.Config{Name: "a.service"})
		loop := monitor.New(monitor.Options{Host: host, Clock: clock})
		s := newSaver(dir, clock, zap.NewNop())
		applied := 0
		s.applied = func() journal.Position { return journal.Position{Cursor: strconv.Itoa(applied)} }
		ctx, cancel := context.WithCancel(t.Context())
		go loop.Run(ctx)
		go s.run(ctx)

		emit := s.wrap(loop.Emit, loop)
		saves := 0
		for i := range 100 {
			line := &event.Line{Text: strconv.Itoa(i), Invocation: "01", Origin: event.OriginUnit}
			if err := emit(ctx, []event.Event{{At: clock(), Target: "a.service", Data: line}}); err != nil {
				t.Fatal(err)
			}
			// What the journal's source does once emit has returned.
			applied++
			<-time.After(700 * time.Millisecond)
			synctest.Wait()
			saves += checkSaved(t, s.file)
		}
		if saves < 5 {
			t.Errorf("%d saves were seen", saves)
		}
		if err := s.last(ctx, loop); err != nil {
			t.Fatal(err)
		}
		cancel()
		synctest.Wait()
		if got, err := s.file.load(); err != nil || got.Position.Cursor != "100" {
			t.Errorf("last save: %+v, %v", got, err)
		}
	})
}

// checkSaved returns 1 when a state with counts was there.
func checkSaved(t *testing.T, f stateFile) int {
	t.Helper()
	got, err := f.load()
	if err != nil {
		t.Fatal(err)
	}
	if got == nil || got.Position.Cursor == "0" {
		return 0
	}
	if lines := got.Saved.Targets["a.service"].Lines; strconv.FormatUint(lines, 10) != got.Position.Cursor {
		t.Errorf("%s lines are in the position, %d in the counters", got.Position.Cursor, lines)
	}
	return 1
}

func TestSaveIntervals(t *testing.T) {
	quiet := &phases.Snapshot{Targets: []phases.Target{{State: phases.Serving}, {State: phases.Failed}}}
	busy := &phases.Snapshot{Targets: []phases.Target{{State: phases.Serving}, {State: phases.Spawn}}}
	s := &saver{}
	if got := s.every(quiet); got != saveWhileQuiet {
		t.Errorf("quiet: %s", got)
	}
	if got := s.every(busy); got != saveWhileStarting {
		t.Errorf("starting: %s", got)
	}
}

func TestSaverWithoutADirectory(t *testing.T) {
	s := newSaver("", func() event.Stamp { return at(0) }, zap.NewNop())
	calls := 0
	emit := s.wrap(func(context.Context, []event.Event) error { calls++; return nil }, nil)
	if err := emit(t.Context(), nil); err != nil || calls != 1 {
		t.Errorf("%v, %d calls", err, calls)
	}
	if err := s.last(t.Context(), nil); err != nil {
		t.Error(err)
	}
}
