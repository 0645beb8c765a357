package app

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
	"go.uber.org/zap/zaptest/observer"

	"github.com/startupd/startupd/pkg/event"
	"github.com/startupd/startupd/pkg/phases"
)

// TestUnitsThatComeAndGo lets more units run at once than are watched, then end,
// and restarts the daemon between.
func TestUnitsThatComeAndGo(t *testing.T) {
	core, logged := observer.New(zapcore.WarnLevel)
	dir := t.TempDir()
	options := func(o *Options) {
		recent(o)
		o.Units, o.StateDir, o.Log = []string{"run-*.service"}, dir, zap.New(core)
	}
	d := begin(t, options)
	limit := phases.LiveLimits().Units
	events := []event.Event{up(), started("run-\xff.service", "00", 0), started("run-a b.service", "01", 0), started("run-"+strings.Repeat("x", 300)+".service", "02", 0)}
	name := func(i int) string { return fmt.Sprintf("run-%d.service", i) }
	for i := range limit + 50 {
		events = append(events, started(name(i), fmt.Sprintf("%032d", i), time.Second))
	}
	d.script.play(t, events...)
	if got := len(d.Snapshot().Targets); got != limit {
		t.Errorf("%d units are watched, want %d", got, limit)
	}
	if status, body := get(t, d.base+"/metrics"); status != 200 || strings.Count(body, `startupd_phase{phase="spawn"`) != limit {
		t.Errorf("a scrape tells of %d units, want %d (%d)", strings.Count(body, `startupd_phase{phase="spawn"`), limit, status)
	}
	events = events[:0]
	for i := range limit {
		events = append(events, failed(name(i), fmt.Sprintf("%032d", i), 10*time.Second))
	}
	events = append(events, event.Event{At: at(20 * time.Second), Data: &event.Watermark{}})
	d.script.play(t, events...)
	if err := d.stop(); err != nil {
		t.Fatal(err)
	}
	if n := logged.FilterMessageSnippet("make the globs narrower").Len(); n != 1 {
		t.Errorf("%d lines about units that are too many, want 1: %v", n, logged.All())
	}

	d = begin(t, options)
	targets := d.Snapshot().Targets
	if len(targets) != limit || targets[0].LastOutcome != phases.OutcomeFailed {
		t.Fatalf("after a restart %d units are watched, want %d that have failed", len(targets), limit)
	}
	mark := func(after time.Duration) {
		d.script.play(t, event.Event{At: at(after), Data: &event.Watermark{}})
	}
	d.script.play(t, up())
	mark(time.Minute)
	mark(time.Hour)
	if got := len(d.Snapshot().Targets); got != limit {
		t.Errorf("within the hour %d units are watched, want %d", got, limit)
	}
	mark(time.Hour + time.Minute)
	if got := d.Snapshot().Targets; len(got) != 0 {
		t.Errorf("after an hour %d units are still watched", len(got))
	}
	if _, body := get(t, d.base+"/metrics"); strings.Contains(body, `unit="run-`) {
		t.Error("a scrape tells of units that are gone")
	}
}

// TestNotesOfUnitsThatAreGone: what is noted of a unit to log it goes with it.
func TestNotesOfUnitsThatAreGone(t *testing.T) {
	d, l := newDiary(nopLog()), newSourceLog(nopLog())
	for i := range 1000 {
		name := fmt.Sprintf("run-%d.service", i)
		snap := &phases.Snapshot{
			At:      at(0),
			Targets: []phases.Target{{Name: name, State: phases.Spawn, Startup: &phases.Startup{Invocation: name, Began: at(0)}}},
			Sources: []phases.Source{{Source: event.SourceHost, Target: name, State: "up", Up: true}},
		}
		d.write(snap)
		l.write(snap)
	}
	if len(d.pages) != 1 || len(l.sources) != 1 {
		t.Errorf("notes of %d units and %d sources, want those of one", len(d.pages), len(l.sources))
	}
}

func TestUnitNames(t *testing.T) {
	for name, want := range map[string]bool{
		"vllm-kimi-k25.service": true, "vllm@a.service": true, `run-\x2d:1.scope`: true, "": false, "a b.service": false, "a/b.service": false,
		"ä.service": false, "a\n.service": false, strings.Repeat("x", maxUnitName): true, strings.Repeat("x", maxUnitName+1): false,
	} {
		if got := validUnit(name); got != want {
			t.Errorf("%.40q: %v", name, got)
		}
	}
	if _, err := LoadTargets([]string{strings.Repeat("x", 300)}, "", nil); err == nil || !strings.Contains(err.Error(), "longer than 255 bytes") {
		t.Error(err)
	}
}
