package triage

import (
	"fmt"
	"os"
	"strings"
	"sync"
	"testing"
	"testing/fstest"
	"time"

	"github.com/startupd/startupd/pkg/event"
	"github.com/startupd/startupd/pkg/profile"
)

// acme is the profile of testdata/acme.yaml.
var acme = sync.OnceValues(func() (*profile.Profile, error) {
	data, err := os.ReadFile("testdata/acme.yaml")
	if err != nil {
		return nil, err
	}
	set, err := new(profile.Set).Extend(fstest.MapFS{"acme.yaml": {Data: data}})
	if err != nil {
		return nil, err
	}
	return set.Profile("acme"), nil
})

// logged is a log that a Tracker reads as package phases lets it.
type logged struct {
	t       testing.TB
	tracker Tracker
	profile *profile.Profile
	scanner *profile.Scanner
	phase   string
	// no counts the lines; each comes a second after the one before.
	no int
	// pid and proc are those of the lines to come.
	pid  int
	proc string
}

func newLog(t testing.TB) *logged {
	t.Helper()
	p, err := acme()
	if err != nil {
		t.Fatal(err)
	}
	return &logged{t: t, profile: p, scanner: p.NewScanner(), phase: "spawn"}
}

// second is a moment n seconds after the beginning.
func second(n float64) event.Stamp {
	d := time.Duration(n * float64(time.Second))
	return event.Stamp{Real: time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC).Add(d), Boot: "b0", Mono: time.Hour + d}
}

// read takes a text line by line.
func (l *logged) read(text string) *logged {
	for line := range strings.SplitSeq(strings.TrimSuffix(strings.TrimPrefix(text, "\n"), "\n"), "\n") {
		l.line(line)
	}
	return l
}

func (l *logged) line(text string) {
	l.no++
	at := Place{Line: l.no, At: second(float64(l.no)), PID: l.pid, Proc: l.proc}
	l.scanner.Scan(text, func(r *profile.Record) {
		l.tracker.Add(l.profile, r, at, l.phase)
		if r.Rule == nil {
			return
		}
		switch r.Rule.Role {
		case profile.RoleStop:
			l.tracker.Stopped()
		case profile.RoleHeartbeat:
			l.tracker.Heartbeat(r, at)
		case profile.RoleEnter, profile.RoleEnd, profile.RoleProgress, profile.RoleReady:
			l.tracker.Milestone(r, at)
		}
	})
}

func (l *logged) failed() *Judgement {
	return l.tracker.Judge(l.profile, Question{Failed: true, Phase: l.phase, Final: true})
}

func (l *logged) stalled() *Judgement {
	return l.tracker.Judge(l.profile, Question{Stalled: true, Phase: l.phase})
}

// want compares the root cause with "class exception message @process :line".
func (l *logged) want(class, message, process string, line int) {
	l.t.Helper()
	root := l.failed().Root
	if root == nil || root.Class != class || root.Message != message || root.Process != process || root.Line != line {
		l.t.Errorf("root cause is %+v\nwant %s: %q of %q, line %d", root, class, message, process, line)
	}
}

// list renders findings as "verdict class count message".
func list(j *Judgement) string {
	var b strings.Builder
	for _, f := range j.Findings {
		fmt.Fprintf(&b, "%s %s %d %s\n", f.Verdict, f.Class, f.Count, f.Message)
	}
	return b.String()
}

func (l *logged) wantFindings(want string) {
	l.t.Helper()
	if got := list(l.failed()); got != strings.TrimPrefix(want, "\n") {
		l.t.Errorf("findings:\n%swant:%s", got, want)
	}
}

// word makes a word of a number, which no mask takes for one.
func word(n int) string {
	var b []byte
	for ; n > 0; n /= 20 {
		b = append(b, "bcdfghjklmnpqrstvwxz"[n%20])
	}
	return "w" + string(b)
}

// A flood of errors costs neither memory nor the cause that comes after it.
func TestCauseAfterAFlood(t *testing.T) {
	for _, flood := range []string{
		"(Core pid=20) ERROR 12:00:00 [core.py:%d] odd %s", "(Core pid=2%d) ValueError: odd %s", "(Core pid=2%d) ConnectionResetError: peer %s",
	} {
		l := newLog(t)
		for i := range 3 * maxFindings {
			l.line(fmt.Sprintf(flood, i, word(i)))
		}
		l.line("(Worker_TP0 pid=30) torch.OutOfMemoryError: Tried to allocate 4GiB")
		j := l.failed()
		if len(j.Findings) != maxFindings || j.Root.Class != "gpu_oom" {
			t.Errorf("%s: %d findings, root cause %+v", flood, len(j.Findings), j.Root)
		}
		l.line("(Worker_TP0 pid=30) torch.OutOfMemoryError: Tried to allocate 4GiB")
		if j = l.failed(); j.Errors[ErrorKey{"gpu_oom", Cause}] != 2 {
			t.Errorf("%s: an error that is listed is counted on: %v", flood, j.Errors)
		}
	}
}

// Of many processes that all are amid a traceback, the earliest one's is closed.
func TestManyOpenRecords(t *testing.T) {
	l := newLog(t)
	l.line("(Worker_TP0 pid=30) CompileError: no")
	for i := range 4 * maxOpen {
		l.line(fmt.Sprintf("(Worker_X%d pid=%d) Traceback (most recent call last):", i, 1000+i))
	}
	if n := len(l.tracker.open); n != maxOpen || len(l.tracker.order) != n {
		t.Errorf("%d open records, %d in order", n, len(l.tracker.order))
	}
	l.want("compile_failed", "CompileError: no", "Worker_TP0", 1)
}

func TestPublishedTextsAreBounded(t *testing.T) {
	l := newLog(t)
	l.pid = 30
	long := strings.Repeat("x", 5000)
	l.line("(Worker_" + long[:100] + " pid=30) INFO 12:00:00 [core.py:1] hello")
	l.line("torch.OutOfMemoryError: Tried to allocate " + long)
	l.tracker.Witness(l.profile, Witness{Process: "kernel", Class: "host_oom", Message: long, Place: Place{At: second(9)}})
	wantBounded(t, l.failed())
	if root := l.failed().Root; root.Class != "gpu_oom" || !strings.HasPrefix(root.Process, "Worker_x") || len(root.Process) > maxName {
		t.Errorf("root cause is %+v", root)
	}
}

// A Judgement stays as it is whatever the Tracker reads later.
func TestJudgementIsImmutable(t *testing.T) {
	l := newLog(t).read(`
(Worker_TP0 pid=30) KeyError: 'w13'
(Core pid=20) ERROR 12:00:00 [core.py:10] Worker 1 died unexpectedly`)
	before := l.failed()
	was := fmt.Sprintf("%+v %+v %v", *before.Root, before.Findings, before.Errors)
	l.read(`
(Worker_TP1 pid=31) KeyError: 'w13'
(Worker_TP1 pid=31) torch.OutOfMemoryError: Tried to allocate 4GiB
(Worker_TP0 pid=30) INFO 12:00:01 [core.py:1] Loading model m1`)
	if after := l.failed(); after == before || after.Root.Class != "gpu_oom" {
		t.Errorf("root cause is %+v", after.Root)
	}
	if is := fmt.Sprintf("%+v %+v %v", *before.Root, before.Findings, before.Errors); is != was {
		t.Errorf("was %s\nis  %s", was, is)
	}
}

// The same question about the same log has the same answer, at no cost.
func TestJudgementIsKept(t *testing.T) {
	l := newLog(t).read("(Core pid=20) KeyError: 'w13'")
	first := l.failed()
	l.line("(Core pid=20) INFO 12:00:01 [core.py:1] hello")
	if l.failed().Root.Message != first.Root.Message {
		t.Error("a line that says nothing changed the verdict")
	}
	if again := l.failed(); again != l.failed() {
		t.Error("the same question was answered anew")
	}
}
