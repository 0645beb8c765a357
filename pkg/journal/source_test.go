package journal

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/startupd/startupd/pkg/event"
)

// TestKilledReaders kills the reader again and again in the middle of its
// output, among entries of which many have the same stamp: nothing may be lost
// or come twice.
func TestKilledReaders(t *testing.T) {
	for seed := range uint64(20) {
		synctest.Test(t, func(t *testing.T) {
			rnd := rand.New(rand.NewPCG(seed, 3))
			j := newFakeJournal(line(1, unitA, invA, "before"))
			for range 30 {
				j.dieAfter = append(j.dieAfter, rnd.IntN(3000))
			}
			var c collector
			s := fakeSource(t, j, Options{Targets: unitTargets(unitA)})
			stop := run(t, s, c.emit)
			elapse(time.Second)
			want := []string{"replayed llm.service before"}
			at := int64(2)
			for i := range 200 {
				at += int64(rnd.IntN(2)) // half of them share a stamp
				j.append(line(at, unitA, invA, fmt.Sprint("line ", i)))
				want = append(want, fmt.Sprint("llm.service line ", i))
				if rnd.IntN(10) == 0 {
					elapse(time.Duration(rnd.IntN(300)) * time.Millisecond)
				}
			}
			elapse(10 * time.Minute)
			stop()
			if d := cmp.Diff(want, texts(c.all())); d != "" {
				t.Errorf("seed %d (-want +got):\n%s", seed, d)
			}
			if s.restarts == 0 {
				t.Errorf("seed %d: no reader was killed", seed)
			}
			st := c.states()
			if last := st[len(st)-1]; !last.Up || last.Restarts != s.restarts {
				t.Errorf("seed %d: last state %+v, want up after %d restarts", seed, last, s.restarts)
			}
		})
	}
}

func TestMuteReaderIsReplaced(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		j := newFakeJournal(line(1, unitA, invA, "a1"))
		j.mute = true
		var c collector
		s := fakeSource(t, j, Options{Targets: unitTargets(unitA)})
		stop := run(t, s, c.emit)
		elapse(15 * time.Second)
		stop()
		st := c.states()
		if len(st) == 0 || st[0].Up || st[0].State != stateReaderFailed || !strings.Contains(st[0].Reason, "mute") {
			t.Errorf("states %+v, want reader_failed because it is mute", st)
		}
	})
}

// TestReaderStoppedInsideAnEntry: a reader that stops for good after some bytes
// of an entry is replaced too.
func TestReaderStoppedInsideAnEntry(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		j := newFakeJournal(line(1, unitA, invA, "a1"), line(2, unitA, invA, "a2"))
		var c collector
		s := fakeSource(t, j, Options{Targets: unitTargets(unitA)})
		stop := run(t, s, c.emit)
		elapse(time.Second)
		j.stopAfter(40)
		j.append(line(3, unitA, invA, "a3"))
		elapse(time.Minute)
		stop()
		if d := cmp.Diff([]string{"replayed llm.service a1", "replayed llm.service a2", "llm.service a3"}, texts(c.all())); d != "" {
			t.Errorf("(-want +got):\n%s", d)
		}
		if st := c.states(); len(st) != 3 || !strings.Contains(st[1].Reason, "inside an entry") {
			t.Errorf("states %+v", st)
		}
	})
}

func TestNotPermitted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		j := newFakeJournal(line(1, unitA, invA, "a1"))
		s := fakeSource(t, j, Options{Targets: unitTargets(unitA)})
		var denied atomic.Bool
		denied.Store(true)
		s.access = func() error {
			if denied.Load() {
				return &accessError{stateNotPermitted, "join systemd-journal"}
			}
			return nil
		}
		var c collector
		stop := run(t, s, c.emit)
		elapse(20 * time.Second)
		denied.Store(false)
		elapse(20 * time.Second)
		stop()
		var got []string
		for _, st := range c.states() {
			got = append(got, fmt.Sprint(st.State, " ", st.Reason, " ", st.Restarts))
		}
		if d := cmp.Diff([]string{"not_permitted join systemd-journal 0", "up  0"}, got); d != "" {
			t.Errorf("states (-want +got):\n%s", d)
		}
	})
}

func TestSetFastReachesTheReader(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		j := newFakeJournal(line(1, unitA, invA, "a1"))
		var c collector
		s := fakeSource(t, j, Options{Targets: unitTargets(unitA)})
		stop := run(t, s, c.emit)
		elapse(time.Second)
		s.SetFast(true)
		s.SetFast(true)
		s.SetFast(false)
		stop()
		if d := cmp.Diff([]string{"slow", "fast", "slow"}, j.commands); d != "" {
			t.Errorf("commands (-want +got):\n%s", d)
		}
	})
}

// TestJournalctlsWatermarks: a reader that sends none is idle after half a
// second, and promises what lies a second back.
func TestJournalctlsWatermarks(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		j := newFakeJournal(line(1, unitA, invA, "a1"))
		j.marks = false
		var c collector
		s := fakeSource(t, j, Options{Targets: unitTargets(unitA)})
		begin := time.Now()
		stop := run(t, s, c.emit)
		elapse(5 * time.Second)
		j.append(line(2, unitA, invA, "a2"))
		elapse(time.Second)
		stop()
		n := 0
		for _, ev := range c.all() {
			if _, ok := ev.Data.(*event.Watermark); ok {
				n++
				if ev.At.Real.After(time.Now().Add(-idleDelay)) {
					t.Errorf("watermark of %v at %v", ev.At.Real.Sub(begin), time.Since(begin))
				}
			}
		}
		if n < 5 {
			t.Errorf("%d watermarks in six seconds", n)
		}
		if d := cmp.Diff([]string{"replayed llm.service a1", "llm.service a2"}, texts(c.all())); d != "" {
			t.Errorf("(-want +got):\n%s", d)
		}
	})
}

// TestRestartsAreToldWhileDown: also of a reader that never comes up.
func TestRestartsAreToldWhileDown(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		j := newFakeJournal(line(1, unitA, invA, "a1"))
		for range 1000 {
			j.dieAfter = append(j.dieAfter, 1)
		}
		var c collector
		s := fakeSource(t, j, Options{Targets: unitTargets(unitA)})
		stop := run(t, s, c.emit)
		elapse(time.Minute)
		stop()
		st := c.states()
		if last := st[len(st)-1]; last.Up || last.Restarts < 3 || last.Restarts != s.restarts {
			t.Errorf("last state %+v, want down after %d restarts", last, s.restarts)
		}
	})
}

// TestReaderThatAlwaysDies: a reader that dies soon after it came up is not
// started again and again at full speed.
func TestReaderThatAlwaysDies(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		j := newFakeJournal(line(1, unitA, invA, "a1"))
		for range 10_000 {
			j.dieAfter = append(j.dieAfter, 700) // its first watermark comes through
		}
		var c collector
		s := fakeSource(t, j, Options{Targets: unitTargets(unitA)})
		stop := run(t, s, c.emit)
		elapse(10 * time.Minute)
		stop()
		if s.restarts < 30 || s.restarts > 200 {
			t.Errorf("%d restarts in ten minutes, want about one each ten seconds", s.restarts)
		}
		up := 0
		for _, st := range c.states() {
			if st.Up {
				up++
			}
		}
		if up < 30 {
			t.Errorf("came up %d times: the reader died too early for this test", up)
		}
	})
}
