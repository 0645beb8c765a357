package journal

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/startupd/startupd/pkg/event"
)

func TestFirstRunReplaysThePresentInvocation(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		j := newFakeJournal(
			line(1, unitA, invA, "old start"),
			line(2, "other.service", invA, "other"),
			manager(3, unitA, invB, idStarted, "Started"),
			line(4, unitA, invB, "present start"),
			rec{5, []string{"_TRANSPORT=kernel", "MESSAGE=Xid"}},
		)
		var c collector
		stop := run(t, fakeSource(t, j, Options{Targets: unitTargets(unitA)}), c.emit)
		elapse(time.Second)
		j.append(line(6, unitA, invB, "live"))
		elapse(time.Second)
		stop()
		want := []string{
			"replayed llm.service <started>",
			"replayed llm.service present start",
			"replayed llm.service Xid",
			"llm.service live",
		}
		if d := cmp.Diff(want, texts(c.all())); d != "" {
			t.Errorf("(-want +got):\n%s", d)
		}
	})
}

// TestRestartOfTheDaemon: what was applied comes back as replayed, what came
// since is new.
func TestRestartOfTheDaemon(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		recs := []rec{
			manager(1, unitA, invA, idStarted, "Started"),
			line(2, unitA, invA, "a1"),
			line(2, unitA, invA, "a2"),
			line(2, unitA, invA, "a3"),
		}
		j := newFakeJournal(recs[0])
		var c collector
		s := fakeSource(t, j, Options{Targets: unitTargets(unitA)})
		stop := run(t, s, c.emit)
		elapse(time.Second)
		j.append(recs[1], recs[2])
		elapse(time.Second)
		stop()
		if got := s.Applied().Cursor; got != cursorOf(2, recs[2]) {
			t.Fatalf("applied %q, want the cursor of a2", got)
		}
		j.append(recs[3],
			manager(3, unitA, invA, idExit, "exit", "COMMAND=ExecStart"),
			manager(4, unitA, invB, idStarted, "Started"),
			line(5, unitA, invB, "b1"))
		c = collector{}
		s = fakeSource(t, j, Options{Targets: unitTargets(unitA), Resume: s.Applied()})
		stop = run(t, s, c.emit)
		elapse(time.Second)
		stop()
		want := []string{
			"replayed llm.service <started>",
			"replayed llm.service a1",
			"replayed llm.service a2",
			"llm.service a3",
			"llm.service <process_exit>",
			"llm.service <started>",
			"llm.service b1",
		}
		if d := cmp.Diff(want, texts(c.all())); d != "" {
			t.Errorf("(-want +got):\n%s", d)
		}
	})
}

// TestServingIsSkipped: a month of request lines is not read when the daemon
// starts again, but a restart in between is.
func TestServingIsSkipped(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		recs := []rec{manager(1, unitA, invA, idStarted, "Started"), line(2, unitA, invA, "ready")}
		for i := range 5000 {
			recs = append(recs, line(int64(3+i), unitA, invA, "request"))
		}
		recs = append(recs,
			manager(6000, unitA, invA, idStopped, "Stopped"),
			manager(6001, unitA, invB, idStarted, "Started"),
			line(6001, unitA, invB, "loading"), line(6003, unitA, invB, "ready"))
		for i := range 5000 {
			recs = append(recs, line(int64(7000+i), unitA, invB, "request"))
		}
		var c collector
		serves := false
		s := fakeSource(t, newFakeJournal(recs...), Options{
			Targets: unitTargets(unitA), Resume: Position{Cursor: cursorOf(1000, recs[1000])},
			Served: func(string) bool { return serves },
		})
		stop := run(t, s, func(ctx context.Context, events []event.Event) error {
			for _, ev := range events {
				switch d := ev.Data.(type) {
				case *event.Line:
					serves = serves || d.Text == "ready"
				case *event.UnitMessage:
					serves = false
				}
			}
			return c.emit(ctx, events)
		})
		elapse(time.Minute)
		stop()
		var got []string
		requests := 0
		for _, l := range texts(c.all()) {
			if strings.HasSuffix(l, "request") {
				requests++
				continue
			}
			got = append(got, l)
		}
		want := []string{
			"replayed llm.service <started>", "replayed llm.service ready",
			"llm.service <stopped>", "llm.service <started>", "llm.service loading", "llm.service ready",
		}
		if d := cmp.Diff(want, got); d != "" {
			t.Errorf("(-want +got):\n%s", d)
		}
		if requests > 100 {
			t.Errorf("%d of 10000 request lines were read", requests)
		}
	})
}

func TestLossIsAGap(t *testing.T) {
	applied := Position{Cursor: cursorOf(3, line(4, unitA, invA, "a4"))}
	for _, tc := range []struct {
		name string
		recs []rec
		want []string
	}{
		{"nothing lost", []rec{line(1, unitA, invA, "a1"), line(2, unitA, invA, "a2"), line(3, unitA, invA, "a3"), line(4, unitA, invA, "a4"), line(5, unitA, invA, "a5")},
			[]string{"llm.service a5"}},
		{"cut short", []rec{line(1, unitA, invA, "a1"), line(2, unitA, invA, "a2")},
			[]string{" gap truncated 0"}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var c collector
				s := fakeSource(t, newFakeJournal(tc.recs...), Options{Targets: unitTargets(unitA), Resume: applied})
				stop := run(t, s, c.emit)
				elapse(time.Second)
				stop()
				var got []string
				for _, l := range texts(c.all()) {
					if !strings.HasPrefix(l, "replayed") {
						got = append(got, l)
					}
				}
				if d := cmp.Diff(tc.want, got); d != "" {
					t.Errorf("(-want +got):\n%s", d)
				}
			})
		})
	}
}

// TestSilentTargetLosesNothing: journald has removed the last line of a target
// that said nothing since, and the reader had watched.
func TestSilentTargetLosesNothing(t *testing.T) {
	recs := []rec{line(100, "web.service", invB, "oldest that is left"), line(200, unitA, invB, "next start")}
	for seen, want := range map[int64][]string{
		150: {"llm.service next start"},
		50:  {" gap vacuumed 0", "llm.service next start"},
	} {
		synctest.Test(t, func(t *testing.T) {
			gone, err := parsePlace(cursorOf(0, line(1, unitA, invA, "gone")))
			if err != nil {
				t.Fatal(err)
			}
			gone.mono = uint64(seen)
			gone.real = uint64(baseReal + seen)
			j := newFakeJournal(recs...)
			j.from = 7 // sequence numbers of what was removed
			var c collector
			s := fakeSource(t, j, Options{Targets: unitTargets(unitA), Resume: Position{
				Cursor: cursorOf(0, line(1, unitA, invA, "gone")), At: gone.stamp()}})
			stop := run(t, s, c.emit)
			elapse(time.Second)
			stop()
			if d := cmp.Diff(want, texts(c.all())); d != "" {
				t.Errorf("seen up to %d (-want +got):\n%s", seen, d)
			}
		})
	}
}

func TestSetTargetsBackfillsTheNewOne(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		j := newFakeJournal(line(1, "b.service", invB, "b1"), line(2, unitA, invA, "a1"))
		var c collector
		s := fakeSource(t, j, Options{Targets: unitTargets(unitA)})
		stop := run(t, s, c.emit)
		elapse(time.Second)
		j.append(line(3, unitA, invA, "a2"), line(4, "b.service", invB, "b2"))
		elapse(time.Second)
		if err := s.SetTargets(unitTargets(unitA, "b.service")); err != nil {
			t.Fatal(err)
		}
		elapse(2 * time.Second)
		j.append(line(5, unitA, invA, "a3"), line(6, "b.service", invB, "b3"))
		elapse(time.Second)
		stop()
		want := []string{
			"replayed llm.service a1", "llm.service a2",
			// b2 lies behind the last applied entry: it was not counted yet.
			"replayed b.service b1", "b.service b2",
			"llm.service a3", "b.service b3",
		}
		if d := cmp.Diff(want, texts(c.all())); d != "" {
			t.Errorf("(-want +got):\n%s", d)
		}
		if err := s.SetTargets([]TargetSpec{{Unit: "no-suffix"}}); err == nil {
			t.Error("a bad target was taken")
		}
	})
}

func TestGlobsAndContainers(t *testing.T) {
	dir := t.TempDir()
	if err := os.Symlink(invA, filepath.Join(dir, "invocation:llm@1.service")); err != nil {
		t.Fatal(err)
	}
	synctest.Test(t, func(t *testing.T) {
		j := newFakeJournal(
			docker(1, "llm", "c1", "old container"), docker(2, "llm", "c2", "present container"),
			line(3, "llm@1.service", invA, "one"), line(4, "web@1.service", invB, "no"))
		var c collector
		s := fakeSource(t, j, Options{UnitsDir: dir, Targets: []TargetSpec{{Unit: "llm@*.service"}, {Name: "box", Container: "llm"}}})
		stop := run(t, s, c.emit)
		elapse(time.Second)
		j.append(line(5, "llm@2.service", invB, "two"), docker(6, "llm", "c2", "more"))
		elapse(time.Second)
		stop()
		want := []string{"replayed llm@1.service one", "replayed box present container", "llm@2.service two", "box more"}
		if d := cmp.Diff(want, texts(c.all())); d != "" {
			t.Errorf("(-want +got):\n%s", d)
		}
		for _, ev := range c.all() {
			if l, ok := ev.Data.(*event.Line); ok && ev.Target == "box" && l.Invocation != "c2" {
				t.Errorf("a container's line has invocation %q, want its ID c2", l.Invocation)
			}
		}
	})
}

// TestOneTargetIsOnePass: what a unit and its container wrote comes back in the
// order of time, from the beginning of the older of the two, with either reader.
func TestOneTargetIsOnePass(t *testing.T) {
	targets := []TargetSpec{{Name: unitA, Unit: unitA}, {Name: unitA, Container: "llm"}}
	for _, tc := range []struct {
		name string
		recs []rec
		want []string
	}{
		{"stopped", []rec{
			manager(1000, unitA, invA, idStarted, "Started"), docker(1100, "llm", "c1", "old"), manager(1200, unitA, invA, idStopped, "Stopped"),
			manager(2000, unitA, invB, idStarted, "Started"), docker(2100, "llm", "c2", "loading"), docker(2150, "web", "c3", "other"),
			line(2200, unitA, invB, "attached"), docker(2300, "llm", "c2", "ready"),
			{2350, []string{"_TRANSPORT=kernel", "MESSAGE=Xid"}}, manager(2400, unitA, invB, idStopped, "Stopped"),
		}, []string{"<started>", "loading", "attached", "ready", "Xid", "<stopped>"}},
		{"container is older", []rec{
			manager(900, unitA, invA, idStarted, "Started"),
			docker(1000, "llm", "c1", "loading"), manager(1100, unitA, invA, idExit, "exit"), docker(1200, "llm", "c1", "ready"),
			manager(1300, unitA, invB, idStarted, "Started"), docker(1400, "llm", "c1", "request"),
		}, []string{"loading", "<process_exit>", "ready", "<started>", "request"}},
		{"container is gone", []rec{
			docker(1000, "llm", "c1", "loading"), manager(1100, unitA, invA, idStarted, "Started"), docker(1200, "other", "c1", "x"),
		}, []string{"loading", "<started>"}},
		{"only the container speaks", []rec{docker(1000, "llm", "c1", "one"), docker(1001, "llm", "c1", "two")}, []string{"one", "two"}},
	} {
		var want []string
		for _, l := range tc.want {
			want = append(want, "replayed "+unitA+" "+l)
		}
		dir := t.TempDir()
		writeJournal(t, dir, "system.journal", tc.recs...)
		for _, kind := range kinds() {
			t.Run(tc.name+"/"+string(kind), func(t *testing.T) {
				w := newWaiter()
				_, stop := startSource(t, Options{Reader: testReader(t, kind, dir), Targets: targets}, w)
				w.untilUp(t)
				stop()
				if d := cmp.Diff(want, w.lines()); d != "" {
					t.Errorf("(-want +got):\n%s", d)
				}
			})
		}
	}
}

// TestClockSetBackAtBoot: the host came up with a clock that was behind. What
// was written before that boot is older all the same.
func TestClockSetBackAtBoot(t *testing.T) {
	const nextBoot = "fedcba9876543210fedcba9876543210"
	late := func(at int64, msg string) rec { return inBoot(nextBoot, -3_600_000_000, line(at, unitA, invB, msg)) }
	for _, kind := range kinds() {
		t.Run(string(kind), func(t *testing.T) {
			dir := t.TempDir()
			writeJournal(t, dir, "system.journal", line(1000, unitA, invA, "one"))
			w := newWaiter()
			o := Options{Reader: testReader(t, kind, dir), Targets: unitTargets(unitA)}
			s, stop := startSource(t, o, w)
			w.untilUp(t)
			stop()
			// The file goes on, so that its sequence numbers do.
			writeJournal(t, dir, "system.journal", line(2000, unitA, invA, "two"), late(10, "three"), late(20, "four"))
			w = newWaiter()
			o.Resume = s.Applied()
			_, stop = startSource(t, o, w)
			w.untilUp(t)
			stop()
			if d := cmp.Diff([]string{"replayed llm.service one", "llm.service two", "llm.service three", "llm.service four"}, w.lines()); d != "" {
				t.Errorf("(-want +got):\n%s", d)
			}
		})
	}
}

// configWarning is what systemd says of a unit's file at each reload: it tells
// no invocation.
func configWarning(at int64) rec {
	return rec{at, []string{"_TRANSPORT=journal", "_PID=1", "_UID=0", "UNIT=" + unitA, "MESSAGE=llm.service:7: Unknown key name"}}
}

func TestLastEntryTellsNoInvocation(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		j := newFakeJournal(line(1, unitA, invA, "a1"), manager(2, unitA, invA, idStopped, "Stopped"), configWarning(3), configWarning(4))
		var c collector
		stop := run(t, fakeSource(t, j, Options{Targets: unitTargets(unitA)}), c.emit)
		elapse(time.Second)
		stop()
		if d := cmp.Diff([]string{"replayed llm.service a1", "replayed llm.service <stopped>"}, texts(c.all())); d != "" {
			t.Errorf("(-want +got):\n%s", d)
		}
	})
}

// TestUnitOfTwoSpecs: a unit that has a spec of its own and matches two globs
// is back-filled once.
func TestUnitOfTwoSpecs(t *testing.T) {
	dir := t.TempDir()
	for _, unit := range []string{"llm@1.service", "llm@2.service"} {
		if err := os.Symlink(invA, filepath.Join(dir, "invocation:"+unit)); err != nil {
			t.Fatal(err)
		}
	}
	synctest.Test(t, func(t *testing.T) {
		j := newFakeJournal(line(1, "llm@1.service", invA, "one"), line(2, "llm@2.service", invA, "two"))
		var c collector
		s := fakeSource(t, j, Options{UnitsDir: dir, Targets: []TargetSpec{{Unit: "llm@*.service"}, {Unit: "llm@?.service"}, {Name: "first", Unit: "llm@1.service"}}})
		stop := run(t, s, c.emit)
		elapse(time.Second)
		stop()
		if d := cmp.Diff([]string{"replayed llm@2.service two", "replayed first one"}, texts(c.all())); d != "" {
			t.Errorf("(-want +got):\n%s", d)
		}
	})
}

// TestSetTargetsWhileCatchingUp: a target that is added while the source still
// reads what came since its last run misses nothing of that.
func TestSetTargetsWhileCatchingUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		recs := []rec{line(1, unitA, invA, "a1"), line(2, "b.service", invB, "b1"), line(3, unitA, invA, "a2"), line(4, "b.service", invB, "b2")}
		s := fakeSource(t, newFakeJournal(recs...), Options{Targets: unitTargets(unitA), Resume: Position{Cursor: cursorOf(0, recs[0])}})
		var c collector
		added := false
		stop := run(t, s, func(ctx context.Context, ev []event.Event) error {
			if !added {
				added = true
				if err := s.SetTargets(unitTargets(unitA, "b.service")); err != nil {
					t.Error(err)
				}
			}
			return c.emit(ctx, ev)
		})
		elapse(time.Second)
		stop()
		if d := cmp.Diff([]string{"replayed llm.service a1", "llm.service a2"}, only(texts(c.all()), unitA)); d != "" {
			t.Errorf("(-want +got):\n%s", d)
		}
		if got := only(texts(c.all()), "b.service"); len(got) != 2 || !strings.HasSuffix(got[0], "b1") || !strings.HasSuffix(got[1], "b2") {
			t.Errorf("of the new target came %q, want b1 and b2 once", got)
		}
	})
}

// only leaves the texts that name the target.
func only(all []string, target string) []string {
	var out []string
	for _, l := range all {
		if strings.Contains(l, target) {
			out = append(out, l)
		}
	}
	return out
}

// TestLateLineOfTheInvocationBefore: who begins to look must not take it for a
// new start.
func TestLateLineOfTheInvocationBefore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		j := newFakeJournal(
			line(1, unitA, invA, "old start"),
			manager(2, unitA, invB, idStarted, "Started"),
			line(3, unitA, invA, "late"),
			line(4, unitA, invB, "present start"),
		)
		var c collector
		stop := run(t, fakeSource(t, j, Options{Targets: unitTargets(unitA)}), c.emit)
		elapse(time.Second)
		stop()
		for _, e := range c.all() {
			switch d := e.Data.(type) {
			case *event.Earlier:
				if e.Target != unitA || d.Invocation != invA || !e.Replayed {
					t.Errorf("%+v %+v", e, d)
				}
				return
			case *event.Line, *event.UnitMessage:
				t.Fatalf("%+v comes before it is told that %s is over", d, invA)
			}
		}
		t.Errorf("nothing tells that %s is over", invA)
	})
}
