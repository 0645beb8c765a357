package app

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"

	"github.com/startupd/startupd/pkg/event"
	"github.com/startupd/startupd/pkg/history"
	"github.com/startupd/startupd/pkg/phases"
	"github.com/startupd/startupd/pkg/triage"
)

// keeper is a historian whose core is the test.
type keeper struct {
	*historian
	logs *observer.ObservedLogs
	told []string
}

func newKeeper(dir string) *keeper {
	core, logs := observer.New(zap.DebugLevel)
	return &keeper{logs: logs, historian: newHistorian(&Options{
		StateDir: dir, History: history.Limits{MaxStartups: 10}, Log: zap.New(core), Clock: func() event.Stamp { return at(time.Hour) },
	})}
}

// emit notes the baselines that the core is told.
func (k *keeper) emit(_ context.Context, events []event.Event) error {
	for _, ev := range events {
		b := ev.Data.(*event.Baseline)
		k.told = append(k.told, fmt.Sprintf("%s %d/%d", ev.Target, b.Good, b.Bad))
		if !ev.At.IsZero() {
			k.told = append(k.told, "at a time")
		}
	}
	return nil
}

// wantLogs compares the log's lines from warnings on by their beginning.
func (k *keeper) wantLogs(t *testing.T, want ...string) {
	t.Helper()
	var got []string
	for _, e := range k.logs.TakeAll() {
		if e.Level >= zap.WarnLevel {
			got = append(got, e.Message)
		}
	}
	if len(got) != len(want) {
		t.Fatalf("logged %q, want %q", got, want)
	}
	for i := range want {
		if !strings.HasPrefix(got[i], want[i]) {
			t.Errorf("logged %q, want %q", got[i], want[i])
		}
	}
}

func (k *keeper) invocations(t *testing.T, target string) []string {
	t.Helper()
	rs, err := k.store.List(t.Context(), target, 0)
	if err != nil {
		t.Fatal(err)
	}
	var out []string
	for _, r := range rs {
		out = append(out, r.Invocation)
	}
	return out
}

func over(invocation string, n int, outcome phases.Outcome) *phases.Startup {
	began := at(time.Duration(n) * time.Minute)
	return &phases.Startup{
		Invocation: invocation, Began: began, Ended: began.Add(time.Second), Outcome: outcome,
		Findings: []triage.Finding{{Verdict: triage.Suspect, Class: triage.ClassUnknown, Count: 1, Fingerprint: "v1:f"}},
	}
}

func snapshotOf(names ...string) *phases.Snapshot {
	s := &phases.Snapshot{}
	for _, n := range names {
		s.Targets = append(s.Targets, phases.Target{Name: n})
	}
	return s
}

func TestHistorianWritesAndTells(t *testing.T) {
	dir := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		k := newKeeper(dir)
		ctx, cancel := context.WithCancel(t.Context())
		if err := k.meet(ctx, snapshotOf("a.service", "b.service"), k.emit); err != nil {
			t.Fatal(err)
		}
		snaps := make(chan *phases.Snapshot)
		ended := make(chan error)
		go func() { ended <- k.run(ctx, snaps, k.emit) }()
		keep := k.finished()
		keep("a.service", over("01", 1, phases.OutcomeServing))
		synctest.Wait()
		keep("a.service", over("02", 2, phases.OutcomeFailed))
		synctest.Wait()
		// The same again is nothing new.
		keep("a.service", over("01", 1, phases.OutcomeServing))
		synctest.Wait()
		// A unit of a glob comes, goes, and comes again.
		for _, names := range [][]string{{"a.service", "b.service", "c.service"}, {"a.service", "b.service"}, {"a.service", "b.service", "c.service"}} {
			snaps <- snapshotOf(names...)
			synctest.Wait()
		}
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
		want := []string{"a.service 0/0", "b.service 0/0", "a.service 1/0", "a.service 1/1", "c.service 0/0", "c.service 0/0"}
		if diff := cmp.Diff(want, k.told); diff != "" {
			t.Error(diff)
		}
		// What is left at the end is still written.
		keep("b.service", over("03", 3, phases.OutcomeStopped))
		if err := k.run(ctx, nil, k.emit); err != nil {
			t.Error(err)
		}
		if got := k.invocations(t, "a.service"); !slices.Equal(got, []string{"01", "02"}) {
			t.Errorf("a.service: %v", got)
		}
		if got := k.invocations(t, "b.service"); !slices.Equal(got, []string{"03"}) {
			t.Errorf("b.service: %v", got)
		}
		k.wantLogs(t)
	})
}

func TestHistorianRetries(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "state")
	synctest.Test(t, func(t *testing.T) {
		k := newKeeper(dir)
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		go k.run(ctx, nil, k.emit)
		for i := range 3 {
			k.keep("a.service", over(fmt.Sprint(i), i, phases.OutcomeFailed))
			synctest.Wait()
		}
		// One complaint for one trouble.
		k.wantLogs(t, "The history of startups can't be read or written")
		if err := os.Mkdir(dir, 0o700); err != nil {
			t.Fatal(err)
		}
		time.Sleep(historyRetry)
		synctest.Wait()
		if got := k.invocations(t, "a.service"); !slices.Equal(got, []string{"0", "1", "2"}) {
			t.Errorf("written later: %v", got)
		}
		if n := k.logs.FilterMessage("The history of startups is written again").Len(); n != 1 {
			t.Errorf("%d lines say that it works again", n)
		}
	})
}

func TestHistorianDropsTheOldest(t *testing.T) {
	k := newKeeper(t.TempDir())
	k.store.Limits.MaxStartups = 1000
	for i := range historyQueue + 6 {
		k.keep("a.service", over(fmt.Sprint(i), i, phases.OutcomeFailed))
	}
	k.wantLogs(t, "Finished startups come faster than the history can be written")
	if err := k.write(t.Context(), k.emit); err != nil {
		t.Fatal(err)
	}
	got := k.invocations(t, "a.service")
	if len(got) != historyQueue || got[0] != "6" {
		t.Errorf("%d were kept, from %s on", len(got), got[0])
	}
	lines := k.logs.FilterMessage("The history of startups is written again").All()
	if len(lines) != 1 || lines[0].ContextMap()["not_kept"] != int64(6) {
		t.Errorf("the number of the lost is not told: %v", lines)
	}
}

func TestHistorianSetsADamagedFileAside(t *testing.T) {
	for name, use := range map[string]func(k *keeper) error{
		"read": func(k *keeper) error { return k.meet(context.Background(), snapshotOf("a.service"), k.emit) },
		"written": func(k *keeper) error {
			k.keep("a.service", over("01", 1, phases.OutcomeServing))
			return k.write(context.Background(), k.emit)
		},
	} {
		dir := t.TempDir()
		file := filepath.Join(dir, history.FileName)
		if err := os.WriteFile(file, []byte("junk"), 0o600); err != nil {
			t.Fatal(err)
		}
		k := newKeeper(dir)
		if err := use(k); err != nil {
			t.Fatal(err)
		}
		k.wantLogs(t, "The history of startups is damaged: it was set aside, and a new one begins")
		if len(k.told) != 1 {
			t.Errorf("%s: told %v", name, k.told)
		}
		b, err := os.ReadFile(file + ".damaged-20260301T130000Z")
		if err != nil || string(b) != "junk" {
			t.Errorf("%s: kept %q, %v", name, b, err)
		}
	}
}

func TestHistorianLeavesANewerFileAlone(t *testing.T) {
	dir := t.TempDir()
	k := newKeeper(dir)
	k.keep("a.service", over("01", 1, phases.OutcomeServing))
	if err := k.write(t.Context(), k.emit); err != nil {
		t.Fatal(err)
	}
	// The name of the schema stands in the file as it is.
	file := filepath.Join(dir, history.FileName)
	b, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	newer := []byte(strings.ReplaceAll(string(b), history.Schema, "startupd.history/v9"))
	if err := os.WriteFile(file, newer, 0o600); err != nil {
		t.Fatal(err)
	}
	k = newKeeper(dir)
	for i := range 3 {
		k.keep("a.service", over(fmt.Sprint(i), i, phases.OutcomeFailed))
		if err := k.write(t.Context(), k.emit); err != nil {
			t.Fatal(err)
		}
	}
	if err := k.meet(t.Context(), snapshotOf("a.service"), k.emit); err != nil {
		t.Fatal(err)
	}
	k.wantLogs(t, "The history of startups is left as it is and nothing is added")
	if b, err := os.ReadFile(file); err != nil || string(b) != string(newer) {
		t.Errorf("the file was written to: %v", err)
	}
}

func TestHistorianIsOff(t *testing.T) {
	for _, o := range []Options{{History: history.Limits{MaxStartups: 10}}, {StateDir: t.TempDir()}} {
		core, logs := observer.New(zap.InfoLevel)
		o.Log = zap.New(core)
		h := newHistorian(&o)
		if h.finished() != nil || logs.FilterMessageSnippet("No history of startups is kept").Len() != 1 {
			t.Errorf("%+v: logged %v", o.History, logs.All())
		}
		if err := h.meet(t.Context(), snapshotOf("a"), nil); err != nil {
			t.Error(err)
		}
	}
}

func TestHistorianEndsWithTheLoop(t *testing.T) {
	k := newKeeper(t.TempDir())
	gone := errors.New("gone")
	snaps := make(chan *phases.Snapshot, 1)
	snaps <- snapshotOf("a.service")
	err := k.run(t.Context(), snaps, func(context.Context, []event.Event) error { return gone })
	if !errors.Is(err, gone) {
		t.Errorf("error %v", err)
	}
}

// TestAppKeepsHistory runs daemons one after the other on one directory.
func TestAppKeepsHistory(t *testing.T) {
	dir := t.TempDir()
	options := func(o *Options) { o.StateDir, o.History = dir, history.Limits{MaxStartups: 10} }
	// The second one reads the same again, as a back-fill does, and goes on.
	for _, last := range []string{"02", "03"} {
		d := begin(t, options)
		d.script.play(t, up(), started("a.service", "01", time.Second), failed("a.service", "01", 2*time.Second))
		d.script.play(t, started("a.service", "02", 10*time.Second))
		if last == "03" {
			d.script.play(t, failed("a.service", "02", 11*time.Second), started("a.service", "03", 20*time.Second))
		}
		if err := d.stop(); err != nil {
			t.Fatal(err)
		}
	}
	rs, err := history.In(dir, history.Limits{}).List(t.Context(), "a.service", 0)
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, r := range rs {
		got = append(got, r.Invocation+" "+r.Outcome)
	}
	if diff := cmp.Diff([]string{"01 failed", "02 failed"}, got); diff != "" {
		t.Error(diff)
	}
}
