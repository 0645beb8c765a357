package history

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"go.etcd.io/bbolt"

	"github.com/startupd/startupd/pkg/event"
	"github.com/startupd/startupd/pkg/phases"
)

func background() context.Context { return context.Background() }

func TestRoundTrip(t *testing.T) {
	s := newStore(t)
	want := FromStartup("a.service", startup())
	put(t, s, want)
	got := list(t, s, "a.service", 0)
	if diff := cmp.Diff([]Record{want}, got); diff != "" {
		t.Error(diff)
	}
	if r := got[0]; *r.Seconds != 90 || *r.seconds("load") != 60 || r.seconds("cudagraph") != nil || *r.RootCause.Retry || r.Gaps != 1 {
		t.Errorf("%+v", r)
	}
	info, err := os.Stat(s.Path)
	if err != nil || info.Mode().Perm() != fileMode {
		t.Errorf("mode %v, %v", info.Mode(), err)
	}
	if diff := cmp.Diff([]string{FileName}, files(t, s)); diff != "" {
		t.Error(diff)
	}
}

func TestRecordDoesNotDependOnWhenItIsMade(t *testing.T) {
	s := startup()
	s.Outcome = phases.OutcomeServing
	s.Phases = append(s.Phases, phases.Phase{Phase: phases.Serving, Entered: stamp(90 * time.Second), Seconds: 1})
	first := FromStartup("a", s)
	s.Phases[3].Seconds = 500
	if diff := cmp.Diff(first, FromStartup("a", s)); diff != "" {
		t.Error(diff)
	}
	// A text without times tells no durations.
	s.Phases[0].Entered, s.Began = event.Stamp{}, event.Stamp{}
	if r := FromStartup("a", s); r.Phases[0].Seconds != nil || r.Seconds != nil {
		t.Errorf("durations without times: %+v", r)
	}
}

func TestReplace(t *testing.T) {
	s := newStore(t)
	r := record("a.service", "01", 0)
	put(t, s, r, record("a.service", "02", 1), record("b.service", "01", 0))
	changed, err := s.Put(t.Context(), day(0), r)
	if err != nil || changed {
		t.Errorf("the same again: changed %v, %v", changed, err)
	}
	// An earlier beginning was found; its place in the order may change too.
	r.Began, r.ServingEnded, r.ServingEndReason = day(0).Add(5*time.Minute), day(1), "killed"
	if changed, err = s.Put(t.Context(), day(0), r); err != nil || !changed {
		t.Errorf("more of it: changed %v, %v", changed, err)
	}
	got := list(t, s, "a.service", 0)
	if diff := cmp.Diff([]string{"02", "01"}, invocations(got)); diff != "" {
		t.Error(diff)
	}
	if got[1].ServingEndReason != "killed" {
		t.Errorf("%+v", got[1])
	}
	// A generation is a startup of its own, and so is another target's.
	r.Generation = 1
	put(t, s, r)
	if n := len(list(t, s, "a.service", 0)); n != 3 {
		t.Errorf("%d startups", n)
	}
	names, err := s.Targets(t.Context())
	if diff := cmp.Diff([]string{"a.service", "b.service"}, names); diff != "" || err != nil {
		t.Error(diff, err)
	}
	if got := invocations(list(t, s, "a.service", 2)); !cmp.Equal(got, []string{"01", "01"}) {
		t.Errorf("newest two: %v", got)
	}
	if got := list(t, s, "none.service", 0); got != nil {
		t.Errorf("an unknown target has %v", got)
	}
}

func TestReplaceKeepsWhatOnlyTheFirstTellingKnew(t *testing.T) {
	live := record("a.service", "01", 0)
	live.GPUPlateauBytes, live.WeightBytes = map[int]uint64{0: 7}, ptr(uint64(6))
	live.Arguments, live.Versions = map[string]string{"x": "1"}, map[string]string{"p": "2"}
	live.ServingEnded, live.ServingEndReason = day(1), "stopped"
	again := record("a.service", "01", 0)
	again.Reason = "later"
	got := merge(live, again)
	want := live
	want.Reason = "later"
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
	// A back-fill whose beginning the journal has lost knows less.
	again.AttachedLate, again.Phases = true, nil
	again.ServingEnded, again.ServingEndReason = day(2), "killed"
	if diff := cmp.Diff(live, merge(live, again)); diff != "" {
		t.Error(diff)
	}
	// It failed in the end: nothing that served has ended.
	again = bad(record("a.service", "01", 0))
	if got := merge(live, again); !got.ServingEnded.IsZero() || got.Outcome != "failed" {
		t.Errorf("%+v", got)
	}
}

func TestLimits(t *testing.T) {
	s := newStore(t)
	s.Limits = Limits{MaxStartups: 3}
	for i := range 7 {
		put(t, s, record("a.service", fmt.Sprint(i), i))
	}
	if got := invocations(list(t, s, "a.service", 0)); !cmp.Equal(got, []string{"4", "5", "6"}) {
		t.Errorf("kept %v", got)
	}
	// Age counts for every target, also one that is no longer watched.
	put(t, s, record("gone.service", "1", 0))
	s.Limits.MaxAge = 24 * time.Hour
	r := record("a.service", "new", 60*24)
	if _, err := s.Put(t.Context(), day(1).Add(5*time.Minute), r); err != nil {
		t.Fatal(err)
	}
	if got := invocations(list(t, s, "a.service", 0)); !cmp.Equal(got, []string{"5", "6", "new"}) {
		t.Errorf("kept %v", got)
	}
	if names, err := s.Targets(t.Context()); err != nil || !cmp.Equal(names, []string{"a.service"}) {
		t.Errorf("targets %v, %v", names, err)
	}
	s.Limits.MaxStartups = 0
	if changed, err := s.Put(t.Context(), day(9), record("a.service", "x", 0)); changed || err != nil {
		t.Errorf("nothing is to be kept: %v, %v", changed, err)
	}
}

// TestTooManyTargets is what a glob brings whose units have ever new names.
func TestTooManyTargets(t *testing.T) {
	s := newStore(t)
	put(t, s, record("llm.service", "1", 0))
	put(t, s, record("llm.service", "2", 1))
	d, err := open(t.Context(), s.Path, false, false)
	if err != nil {
		t.Fatal(err)
	}
	err = d.update(func(tx *bbolt.Tx) error {
		for i := range maxTargets + 500 {
			e, err := newEntry(record(fmt.Sprintf("run-%d.service", i), "1", 10+i))
			if err = errors.Join(err, e.put(tx)); err != nil {
				return err
			}
		}
		return nil
	})
	if err = errors.Join(err, d.close()); err != nil {
		t.Fatal(err)
	}
	put(t, s, record("run-new.service", "1", 5000))
	names, err := s.Targets(t.Context())
	if err != nil || len(names) != maxTargets {
		t.Fatalf("%d targets are kept, want %d (%v)", len(names), maxTargets, err)
	}
	for name, want := range map[string]bool{
		"llm.service": true, "run-new.service": true, fmt.Sprintf("run-%d.service", maxTargets+499): true, "run-0.service": false, "run-501.service": false,
	} {
		if slices.Contains(names, name) != want {
			t.Errorf("%s is kept: %v, want %v", name, !want, want)
		}
	}
}

func TestWithoutAFile(t *testing.T) {
	s := newStore(t)
	_, err := s.List(t.Context(), "a", 0)
	wantErr(t, err, fs.ErrNotExist)
	_, err = s.Targets(t.Context())
	wantErr(t, err, fs.ErrNotExist)
	b, err := s.Baseline(t.Context(), "a")
	if err != nil || b.Good != 0 || b.Bad != 0 {
		t.Errorf("%+v, %v", b, err)
	}
	if len(files(t, s)) != 0 {
		t.Errorf("reading made %v", files(t, s))
	}
	r := record("a", "1", 0)
	r.Began = time.Time{}
	if _, err := s.Put(t.Context(), day(0), r); err == nil || !strings.Contains(err.Error(), "no time of beginning") {
		t.Errorf("error %v", err)
	}
	missing := In(s.Path+".d", Limits{MaxStartups: 1})
	_, err = missing.Put(t.Context(), day(0), record("a", "1", 0))
	wantErr(t, err, fs.ErrNotExist)
}

func TestBaseline(t *testing.T) {
	s := newStore(t)
	stopped := bad(record("a.service", "04", 4))
	stopped.Outcome = "stopped"
	twice := bad(record("a.service", "03", 3))
	twice.Findings = append(twice.Findings, twice.Findings...)
	twice.Findings = append(twice.Findings, Finding{Verdict: "suspect", Count: 1})
	// Its fingerprints were made in another way: nothing can be told from it.
	foreign := record("a.service", "00", -1)
	foreign.Findings[0].Fingerprint = "v0:noise"
	put(t, s, foreign, record("a.service", "01", 1), record("a.service", "02", 2), twice, stopped, record("b.service", "05", 5))
	got, err := s.Baseline(t.Context(), "a.service")
	if err != nil {
		t.Fatal(err)
	}
	want := event.Baseline{Good: 2, Bad: 1, Errors: map[string]event.Seen{"v1:noise": {Good: 2, Bad: 1}, "v1:cause": {Bad: 1}}}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}

func TestBaselineIsBounded(t *testing.T) {
	c := counter{Baseline: event.Baseline{Errors: map[string]event.Seen{}}}
	for i := range 3 {
		r := counted{Outcome: "serving"}
		r.Findings = make([]struct {
			Fingerprint string `json:"fingerprint"`
		}, maxFingerprints)
		for j := range r.Findings {
			r.Findings[j].Fingerprint = fmt.Sprintf("v1:%d-%d", i, j)
		}
		c.add(r)
	}
	if len(c.Errors) != maxFingerprints || c.Errors["v1:0-0"].Good != 1 || c.Good != 3 {
		t.Errorf("%d fingerprints, %d good", len(c.Errors), c.Good)
	}
}

func TestNewerIsLeftAlone(t *testing.T) {
	s := newStore(t)
	put(t, s, record("a.service", "01", 0))
	for name, change := range map[string]func(tx *bbolt.Tx) error{
		"file": func(tx *bbolt.Tx) error {
			return tx.Bucket([]byte(metaBucket)).Put([]byte(schemaKey), []byte("startupd.history/v2"))
		},
		"record": func(tx *bbolt.Tx) error {
			e, err := newEntry(record("a.service", "01", 0))
			if err != nil {
				return err
			}
			e.value = []byte(`{"schema":"startupd.history/v2","began":17}`)
			return e.put(tx)
		},
	} {
		s := s
		b := content(t, s)
		s.Path += "." + name
		overwrite(t, s, b)
		d, err := open(t.Context(), s.Path, false, false)
		if err != nil {
			t.Fatal(err)
		}
		if err := errors.Join(d.update(change), d.close()); err != nil {
			t.Fatal(err)
		}
		before := content(t, s)
		_, err = s.Put(t.Context(), day(0), record("a.service", "01", 0))
		wantErr(t, err, ErrNewer)
		if !strings.Contains(err.Error(), "startupd.history/v2") || !strings.Contains(err.Error(), s.Path) {
			t.Errorf("%s: %v", name, err)
		}
		_, err = s.List(t.Context(), "a.service", 0)
		wantErr(t, err, ErrNewer)
		if string(content(t, s)) != string(before) {
			t.Errorf("%s: the file was written to", name)
		}
	}
}

// TestReadersWhileAWriterWrites reads in this process what another one writes.
func TestReadersWhileAWriterWrites(t *testing.T) {
	s := newStore(t)
	w := startChild(t, s.Path)
	w.ask("first")
	if got := w.answer(); got != "ok" {
		t.Fatal(got)
	}
	const n = 60
	var readers sync.WaitGroup
	done := make(chan struct{})
	for range 3 {
		readers.Go(func() {
			for last := 0; ; {
				rs, err := s.List(t.Context(), "a.service", 0)
				if err != nil || len(rs) < last {
					t.Errorf("%d startups after %d, %v", len(rs), last, err)
					return
				}
				last = len(rs)
				select {
				case <-done:
					return
				default:
				}
			}
		})
	}
	for i := range n {
		w.ask(fmt.Sprint(i))
		if got := w.answer(); got != "ok" {
			t.Error(got)
		}
	}
	close(done)
	readers.Wait()
	if got := len(list(t, s, "a.service", 0)); got != n+1 {
		t.Errorf("%d startups, want %d", got, n+1)
	}
}

func TestLockIsAwaitedNotForEver(t *testing.T) {
	s := newStore(t)
	put(t, s, record("a.service", "01", 0))
	for _, held := range []struct{ readOnly, reads bool }{{readOnly: false, reads: false}, {readOnly: true, reads: true}} {
		d, err := open(t.Context(), s.Path, held.readOnly, false)
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithTimeout(t.Context(), 3*lockEvery)
		_, err = s.Put(ctx, day(0), record("a.service", "02", 1))
		wantErr(t, err, ErrBusy)
		if _, err = s.List(ctx, "a.service", 0); held.reads != (err == nil) {
			t.Errorf("%+v: List: %v", held, err)
		}
		cancel()
		// It is granted once the other has gone.
		put2 := make(chan error, 1)
		go func() {
			_, err := s.Put(t.Context(), day(0), record("a.service", "03", 1))
			put2 <- err
		}()
		if err := d.close(); err != nil {
			t.Fatal(err)
		}
		if err := <-put2; err != nil {
			t.Error(err)
		}
	}
}

// TestKilledWriter kills a process while it writes, again and again.
func TestKilledWriter(t *testing.T) {
	s := newStore(t)
	written := 0
	for round := range 15 {
		w := startChild(t, s.Path)
		for range 4 {
			w.ask(fmt.Sprintf("r%d", round))
		}
		for range round % 4 {
			if got := w.answer(); got != "ok" {
				t.Fatal(got)
			}
			written++
		}
		if err := w.cmd.Process.Kill(); err != nil {
			t.Fatal(err)
		}
		_ = w.cmd.Wait()
		if written == 0 {
			continue
		}
		if got := len(list(t, s, "a.service", 0)); got < written {
			t.Fatalf("round %d: %d startups are left of %d", round, got, written)
		}
	}
	put(t, s, record("a.service", "last", 0))
}

// TestNoSpace writes under a limit of the file's size: the write fails, the file
// stays whole, and nothing is left behind.
func TestNoSpace(t *testing.T) {
	for _, tt := range []struct {
		limit string
		ok    bool
	}{{"2000", false}, {"65536", true}} {
		s := newStore(t)
		w := startChild(t, s.Path, limitEnv+"="+tt.limit)
		failed := ""
		good := 0
		for i := range 30 {
			w.ask(fmt.Sprint(i))
			if got := w.answer(); got == "ok" {
				good++
			} else {
				failed = got
			}
		}
		if !strings.Contains(failed, "file too large") || !strings.Contains(failed, s.Path) {
			t.Errorf("limit %s: %q", tt.limit, failed)
		}
		if (good > 0) != tt.ok {
			t.Errorf("limit %s: %d were written", tt.limit, good)
		}
		if !tt.ok {
			if left := files(t, s); len(left) != 0 {
				t.Errorf("left behind: %v", left)
			}
			continue
		}
		if got := len(list(t, s, "a.service", 0)); got != good {
			t.Errorf("limit %s: %d startups are left of %d", tt.limit, got, good)
		}
		// With room again it goes on.
		put(t, s, record("a.service", "last", 99))
	}
}
