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
		docker := func(at int64, id, msg string) rec {
			return rec{at, []string{"_TRANSPORT=journal", "_PID=50", "_SYSTEMD_UNIT=docker.service", "CONTAINER_NAME=llm", "CONTAINER_ID_FULL=" + id, "MESSAGE=" + msg}}
		}
		j := newFakeJournal(
			docker(1, "c1", "old container"), docker(2, "c2", "present container"),
			line(3, "llm@1.service", invA, "one"), line(4, "web@1.service", invB, "no"))
		var c collector
		s := fakeSource(t, j, Options{UnitsDir: dir, Targets: []TargetSpec{{Unit: "llm@*.service"}, {Name: "box", Container: "llm"}}})
		stop := run(t, s, c.emit)
		elapse(time.Second)
		j.append(line(5, "llm@2.service", invB, "two"), docker(6, "c2", "more"))
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
