package app

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
	"go.uber.org/zap/zaptest/observer"

	"github.com/startupd/startupd/pkg/event"
	"github.com/startupd/startupd/pkg/exporter"
	"github.com/startupd/startupd/pkg/phases"
	"github.com/startupd/startupd/pkg/triage"
)

// TestCrashLoopIsBounded plays a restart loop through the core, each start of
// which dies of another exception of another process: what startupd logs is
// bounded by time, not by restarts, every start is told or counted, and what it
// exports does not grow.
func TestCrashLoopIsBounded(t *testing.T) {
	const starts = 10000
	l := newLoop(t)
	var after20 int
	for i := range starts {
		l.crash(i, fmt.Sprintf("Evil%d: the reason is %x", i, i))
		if i != 20 && i != starts-1 {
			continue
		}
		causes, all := seriesIn(t, l.reg)
		if causes != 1 {
			t.Errorf("start %d: %d root causes of one unit", i, causes)
		}
		if i == 20 {
			after20 = all
		}
		if all != after20 {
			t.Errorf("%d series after %d starts, %d after 20", all, i+1, after20)
		}
	}
	// A start each 100 ms: 10,000 of them are 17 minutes.
	minutes := starts / 600
	if n := l.seen.Len(); n > 4*fullStarts+4*minutes {
		t.Errorf("%d lines of log for %d starts in %d minutes: %v", n, starts, minutes, l.messages())
	}
	l.wantAll(starts)
	last := l.seen.All()[l.seen.Len()-1]
	if fields := last.ContextMap(); !strings.HasPrefix(last.Message, "More starts have failed; the newest cause is here") ||
		!strings.Contains(fmt.Sprint(fields["message"]), fmt.Sprintf("Evil%d", starts-1)) || !strings.HasPrefix(fmt.Sprint(fields["classes"]), "unknown ") {
		t.Errorf("the last line is %q %v", last.Message, fields)
	}
}

// TestRestartLoopOfOneCause: the story is told until the cause is known, then
// there is one line a minute; another cause, and the start that serves, are told
// in full, and no start is lost.
func TestRestartLoopOfOneCause(t *testing.T) {
	const starts, other = 10000, 7000
	l := newLoop(t)
	for i := range starts {
		text := fmt.Sprintf("PortError: [Errno 98] attempt %d", i)
		// Then the causes take turns.
		if i >= other && i%2 == 0 {
			text = fmt.Sprintf("DiskError: no room left, attempt %d", i)
		}
		l.crash(i, text)
	}
	sums := l.seen.FilterMessageSnippet("More starts have failed").Len()
	if minutes := starts / 600; sums < minutes-1 || sums > minutes+2 {
		t.Errorf("%d sums in %d minutes: %v", sums, minutes, l.messages())
	}
	if n := l.seen.FilterMessage("Root cause of the failed start").Len(); n != restartLoop+1 {
		t.Errorf("%d root causes, want those of the %d starts that make a loop, and one other: %v", n, restartLoop, l.messages())
	}
	found := l.seen.FilterMessage("Root cause of the failed start").All()
	if got := found[len(found)-1].ContextMap()["exception"]; got != "DiskError" {
		t.Errorf("the last cause told is %v", got)
	}
	// It is mended.
	id := fmt.Sprintf("%032d", starts)
	l.apply(started("a.service", id, l.now()))
	l.shows(ended(try(id, l.now(), 5), time.Minute, phases.OutcomeServing, "ready"), false)
	text := strings.Join(l.order(), "\n")
	if !strings.Contains(text, "The engine serves") || !strings.Contains(text, "The restart loop is over") {
		t.Errorf("the end of the loop is not told: %v", l.messages())
	}
	l.wantAll(starts)
}

// TestServesAndDiesAtOnce: what is no restart loop to the core, as each start
// serves, is no flood either.
func TestServesAndDiesAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const starts = 3000
		core, seen := observer.New(zapcore.InfoLevel)
		d := newDiary(zap.New(core))
		var count uint64
		for i := range starts {
			s := ended(try(fmt.Sprint(i), time.Duration(i)*time.Second, 5), 500*time.Millisecond, phases.OutcomeServing, "ready")
			target := phases.Target{Name: "a.service", State: phases.Serving, Startup: s, Last: s}
			count++
			target.Counters.Startups = map[phases.Outcome]uint64{phases.OutcomeServing: count}
			d.write(&phases.Snapshot{Targets: []phases.Target{target}})
			gone := *s
			gone.ServingEnded, gone.ServingEndReason = at(time.Duration(i+1)*time.Second), "exited"
			target.Startup, target.Last = &gone, &gone
			d.write(&phases.Snapshot{Targets: []phases.Target{target}})
			time.Sleep(time.Second)
		}
		if n, minutes := seen.Len(), starts/60; n > 3*fullStarts+4*minutes {
			t.Errorf("%d lines in %d minutes", n, minutes)
		}
		d.finish()
		told := uint64(seen.FilterMessage("The engine serves").Len())
		for _, e := range seen.FilterMessage("More starts, too fast for lines of their own").All() {
			told += e.ContextMap()["serving"].(uint64)
		}
		if told != starts {
			t.Errorf("%d of %d starts are told or counted", told, starts)
		}
	})
}

// TestAStartThatLivesIsTold: in a loop, a start that gets further than the others,
// or lives longer than a minute, is told while it runs.
func TestAStartThatLivesIsTold(t *testing.T) {
	for name, live := range map[string]func(*loop, string){
		"longer": func(l *loop, id string) {
			l.clock = l.clock.Add(summaryEvery)
			l.diary.again()
		},
		"further": func(l *loop, id string) {
			l.shows(try(id, l.now(), 2), true)
		},
	} {
		t.Run(name, func(t *testing.T) {
			l := newLoop(t)
			for i := range 100 {
				l.crash(i, "PortError: [Errno 98]")
			}
			id := fmt.Sprintf("%032d", 100)
			l.apply(started("a.service", id, l.now()))
			if got := l.order(); strings.HasPrefix(got[len(got)-1], "A start") {
				t.Fatalf("the start that begins is told at once: %v", l.messages())
			}
			live(l, id)
			got := l.order()
			if last := got[len(got)-1]; !strings.HasPrefix(last, "A start") || !strings.Contains(strings.Join(got, "\n"), "More starts have failed") {
				t.Errorf("the last lines are %q", got[max(0, len(got)-3):])
			}
		})
	}
}

// TestLateEvidenceInALoop: a start that is in the sum is told after all when the
// kernel's word gives it another cause, and counts once.
func TestLateEvidenceInALoop(t *testing.T) {
	const starts = 10
	l := newLoop(t)
	for i := range starts {
		l.crash(i, "PortError: [Errno 98]")
	}
	l.apply(started("a.service", fmt.Sprintf("%032d", starts), l.now()))
	snap := *l.host.Snapshot()
	snap.Targets = slices.Clone(snap.Targets)
	snap.Targets[0].Failure = &triage.RootCause{Class: "host_oom", Process: "kernel", Message: "Out of memory: Killed process"}
	l.diary.write(&snap)
	causes := l.seen.FilterMessage("Root cause of the failed start").All()
	if last := causes[len(causes)-1].ContextMap()["class"]; last != "host_oom" {
		t.Errorf("the last cause told is %v: %v", last, l.order())
	}
	l.wantAll(starts)
}

// restartLoop is how many failed starts the core calls a loop.
const restartLoop = 3

// loop is a unit that fails again and again, with a diary and an exporter.
type loop struct {
	t      *testing.T
	host   *phases.Host
	diary  *diary
	seen   *observer.ObservedLogs
	reg    *prometheus.Registry
	banner string
	began  time.Time
	clock  time.Time
}

func newLoop(t *testing.T) *loop {
	t.Helper()
	set, err := LoadProfiles("")
	if err != nil {
		t.Fatal(err)
	}
	s := &settings{targets: []Target{{Unit: "a.service"}}, profiles: set}
	core, seen := observer.New(zapcore.InfoLevel)
	l := &loop{
		t: t, host: phases.NewHost(phases.HostOptions{Journal: true}, s.configs(event.Stamp{})...), diary: newDiary(zap.New(core)),
		seen: seen, reg: prometheus.NewRegistry(), banner: bannerOf(t, s), began: at(0).Real, clock: at(0).Real,
	}
	l.diary.now = func() time.Time { return l.clock }
	l.reg.MustRegister(exporter.New(exporter.Options{
		Snapshot: l.host.Snapshot, KnowsClass: s.knowsClass, Clock: func() event.Stamp { return l.host.Snapshot().At },
	}))
	l.apply(up())
	return l
}

// now is the loop's age; the test turns its clock.
func (l *loop) now() time.Duration { return l.clock.Sub(l.began) }

func (l *loop) apply(e event.Event) {
	l.host.Apply(e)
	l.diary.write(l.host.Snapshot())
}

// shows publishes another present startup than the core's.
func (l *loop) shows(s *phases.Startup, loops bool) {
	snap := *l.host.Snapshot()
	snap.Targets = slices.Clone(snap.Targets)
	snap.Targets[0].Startup, snap.Targets[0].RestartLoop = s, loops
	l.diary.write(&snap)
}

func (l *loop) line(id, text string) {
	l.apply(event.Event{At: at(l.now()), Target: "a.service", Data: &event.Line{Text: text, Invocation: id, Origin: event.OriginUnit, PID: 100}})
}

// crash is a start that dies of an exception within 100 ms.
func (l *loop) crash(i int, text string) {
	id := fmt.Sprintf("%032d", i)
	l.apply(started("a.service", id, l.now()))
	l.clock = l.clock.Add(50 * time.Millisecond)
	for _, text := range []string{l.banner, "Traceback (most recent call last):", `  File "/opt/app/m.py", line 1, in main`, "    run()", text} {
		l.line(id, text)
	}
	l.apply(failed("a.service", id, l.now()))
	l.clock = l.clock.Add(50 * time.Millisecond)
}

// wantAll checks that each failed start is told or in a sum.
func (l *loop) wantAll(starts int) {
	l.t.Helper()
	l.diary.finish()
	n := uint64(l.seen.FilterMessage("The start has failed").Len())
	for _, e := range l.seen.All() {
		if more, ok := e.ContextMap()["failed"].(uint64); ok {
			n += more
		}
	}
	if n != uint64(starts) {
		l.t.Errorf("%d of %d failed starts are told or counted: %v", n, starts, l.messages())
	}
}

// messages counts the lines by their text, order lists them.
func (l *loop) messages() map[string]int {
	counts := map[string]int{}
	for _, m := range l.order() {
		counts[m]++
	}
	return counts
}

func (l *loop) order() []string {
	var all []string
	for _, e := range l.seen.All() {
		all = append(all, e.Message)
	}
	return all
}

// bannerOf is the first line of an engine that has a built-in profile.
func bannerOf(t *testing.T, s *settings) string {
	t.Helper()
	for _, r := range engineOf(t, s.profiles).Rules {
		if r.Banner {
			return r.Example
		}
	}
	t.Fatal("no rule is a banner")
	return ""
}

// seriesIn counts the root causes and all series of a registry.
func seriesIn(t *testing.T, reg *prometheus.Registry) (causes, all int) {
	t.Helper()
	families, err := reg.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range families {
		if f.GetName() == "startupd_root_cause_info" {
			causes = len(f.GetMetric())
		}
		all += len(f.GetMetric())
	}
	return causes, all
}
