package triage

import (
	"strings"
	"testing"

	"github.com/startupd/startupd/pkg/event"
)

func TestChoice(t *testing.T) {
	for _, c := range []struct{ name, text, class, message string }{
		{"the earliest of equals across ranks", `
(Worker_TP1 pid=31) KeyError: 'first'
(Worker_TP0 pid=30) KeyError: 'second'`, ClassUnknown, "KeyError: 'first'"},
		{"strong over weak, though later", `
(Worker_TP1 pid=31) CompileError: no
(Worker_TP0 pid=30) torch.OutOfMemoryError: Tried to allocate 4GiB`, "gpu_oom", "torch.OutOfMemoryError: Tried to allocate 4GiB"},
		{"weak, fallback: the earlier", `
(Worker_TP1 pid=31) ValueError: who knows
(Worker_TP0 pid=30) CompileError: no`, ClassUnknown, "ValueError: who knows"},
		{"fallback, weak: the earlier", `
(Worker_TP0 pid=30) CompileError: no
(Worker_TP1 pid=31) ValueError: who knows`, "compile_failed", "CompileError: no"},
		{"a cause over the cascade and wrapper before it", `
(Worker_TP1 pid=31) ConnectionResetError: peer
(Core pid=20) RuntimeError: Core failed, see above
(Worker_TP0 pid=30) CompileError: no`, "compile_failed", "CompileError: no"},
		{"a wrapper is never one", `
(Core pid=20) ERROR 12:00:00 [core.py:10] Core failed to start.
(Api pid=10) RuntimeError: Core failed, see above`, ClassUnknown, "no line of the log names a cause"},
		{"the best symptom where nothing else is", `
(Core pid=20) ERROR 12:00:00 [core.py:10] Worker 1 died unexpectedly
(Api pid=10) RuntimeError: Core failed, see above`, "worker_crashed", "Worker 1 died unexpectedly"},
		{"the best symptom after a stop is its consequence", `
(Api pid=10) INFO 12:00:00 [api.py:1] received SIGTERM
(Core pid=20) ERROR 12:00:01 [core.py:10] Worker 1 died unexpectedly`, "killed_externally", "received SIGTERM"},
		{"the best symptom before a stop", `
(Core pid=20) ERROR 12:00:00 [core.py:10] Worker 1 died unexpectedly
(Api pid=10) INFO 12:00:01 [api.py:1] received SIGTERM`, "worker_crashed", "Worker 1 died unexpectedly"},
		{"a stop from outside, and what it sets off", `
(Api pid=10) INFO 12:00:00 [api.py:1] received SIGTERM
(Core pid=20) ValueError: who knows
(Core pid=20) CompileError: no`, "killed_externally", "received SIGTERM"},
		{"a cause of its own after a stop", `
(Api pid=10) INFO 12:00:00 [api.py:1] received SIGTERM
(Core pid=20) torch.OutOfMemoryError: Tried to allocate 4GiB`, "gpu_oom", "torch.OutOfMemoryError: Tried to allocate 4GiB"},
		{"teardown is nothing", `
(Core pid=20) WARNING 12:00:00 [core.py:10] destroy_process_group was not called`, ClassUnknown, "no line of the log names a cause"},
		{"an error that no rule knows is no cause", `
(Core pid=20) ERROR 12:00:00 [core.py:10] something odd`, ClassUnknown, "no line of the log names a cause"},
	} {
		t.Run(c.name, func(t *testing.T) {
			if root := newLog(t).read(c.text).failed().Root; root.Class != c.class || root.Message != c.message {
				t.Errorf("root cause is %s: %q, want %s: %q", root.Class, root.Message, c.class, c.message)
			}
		})
	}
}

func TestNoRootUnlessItFailedOrStalls(t *testing.T) {
	l := newLog(t).read("(Core pid=20) torch.OutOfMemoryError: Tried to allocate 4GiB")
	for _, q := range []Question{{}, {Served: true}} {
		if j := l.tracker.Judge(l.profile, q); j.Root != nil || list(j) != "suspect gpu_oom 1 torch.OutOfMemoryError: Tried to allocate 4GiB\n" {
			t.Errorf("%+v: root cause %+v, findings\n%s", q, j.Root, list(j))
		}
	}
}

func TestProgressClears(t *testing.T) {
	const trouble = "(Core pid=20) CompileError: no\n"
	for _, c := range []struct{ name, after, class string }{
		{"of the process itself", "(Core pid=20) INFO 12:00:01 [core.py:1] Loading model m1", ClassUnknown},
		{"of another process", "(Worker_TP0 pid=30) INFO 12:00:01 [core.py:1] Loading model m1", "compile_failed"},
		{"a line that is none", "(Core pid=20) INFO 12:00:01 [core.py:1] hello", "compile_failed"},
	} {
		if root := newLog(t).read(trouble + c.after).failed().Root; root.Class != c.class {
			t.Errorf("%s: class %s, want %s", c.name, root.Class, c.class)
		}
	}
	l := newLog(t).read(trouble + "(Core pid=20) INFO 12:00:01 [core.py:1] Loading model m1\n" + "(Worker_TP1 pid=31) CompileError: no")
	l.want("compile_failed", "CompileError: no", "Core", 1)
}

// Without a name of its process a raw traceback may be of any.
func TestProgressOfNobodyClearsNoRawTraceback(t *testing.T) {
	newLog(t).read(`
Traceback (most recent call last):
  File "/x/loader.py", line 7, in load
KeyError: 'w13'
INFO 12:00:01 [core.py:1] Loading model m1
`).want("bad_weights", "KeyError: 'w13'", "", 3)
}

func TestWitnesses(t *testing.T) {
	const oom = "(Worker_TP0 pid=30) torch.OutOfMemoryError: Tried to allocate 4GiB"
	kernel := Witness{Process: "kernel", Class: "host_oom", Message: "Killed process 30", Weight: Decisive}
	timeout := Witness{Process: "systemd", Class: "startup_timeout", Message: "Failed with result 'timeout'", Weight: Late}
	signal := Witness{Process: "systemd", Class: "killed_externally", Message: "Main process exited, killed", Weight: Last}
	for _, c := range []struct {
		name string
		text string
		w    Witness
		at   float64
		want string
	}{
		{"the kernel's word beats the text that it set off", oom, kernel, 0, "host_oom"},
		{"text a moment earlier may be stamped by a slower writer", oom, kernel, 2.9, "host_oom"},
		{"text long before is no consequence", oom, kernel, 3.1, "gpu_oom"},
		{"systemd's word at the end: an earlier cause explains it", "(Core pid=20) CompileError: no", timeout, 90, "compile_failed"},
		{"systemd's word at the end, with symptoms only", "(Core pid=20) ERROR 12:00:00 [core.py:1] Worker 1 died unexpectedly", timeout, 90, "startup_timeout"},
		{"a signal only where nothing else is known", "(Core pid=20) CompileError: no", signal, 90, "compile_failed"},
		{"a signal that nothing explains", "(Core pid=20) INFO 12:00:00 [core.py:1] hello", signal, 90, "killed_externally"},
	} {
		l := newLog(t).read(c.text)
		c.w.Place = Place{Cursor: "c1", At: second(c.at)}
		l.tracker.Witness(l.profile, c.w)
		root := l.failed().Root
		if root.Class != c.want {
			t.Errorf("%s: class %s, want %s", c.name, root.Class, c.want)
		}
		if root.Process == c.w.Process && root.Cursor != "c1" {
			t.Errorf("%s: cursor %q is not the witness's", c.name, root.Cursor)
		}
	}
}

// A stop does not take away systemd's own word of why it stopped it.
func TestTimeoutAfterItsOwnStop(t *testing.T) {
	l := newLog(t).read(`
(Api pid=10) INFO 12:00:00 [api.py:1] received SIGTERM
(Core pid=20) ValueError: who knows`)
	l.tracker.Witness(l.profile, Witness{Process: "systemd", Class: "startup_timeout", Message: "Failed with result 'timeout'", Weight: Late, Place: Place{At: second(3)}})
	l.want("startup_timeout", "Failed with result 'timeout'", "systemd", 0)
}

func TestClassByPhase(t *testing.T) {
	l := newLog(t)
	l.phase = "cudagraph"
	l.read("(Core pid=20) CompileError: no").want("graph_failed", "CompileError: no", "Core", 1)
}

func TestUnknownSaysWhatIsKnown(t *testing.T) {
	l := newLog(t).read("(Api pid=10) RuntimeError: Core failed, see above")
	l.phase = "load"
	root := l.tracker.Judge(l.profile, Question{Failed: true, Phase: "load", ExitStatus: "exited, status 1", LastLines: func() map[string]string {
		return map[string]string{"Api": "bye"}
	}}).Root
	if root.Class != ClassUnknown || root.DiedIn != "load" || root.ExitStatus != "exited, status 1" || root.LastLines["Api"] != "bye" || !root.Provisional || root.Remediation != "Read the log." {
		t.Errorf("root cause is %+v", root)
	}
	// Another phase, or exit status, is another question.
	if root := l.tracker.Judge(l.profile, Question{Failed: true, Phase: "compile", ExitStatus: "exited, status 1"}).Root; root.DiedIn != "compile" {
		t.Errorf("root cause is %+v", root)
	}
	if root := l.tracker.Judge(l.profile, Question{Failed: true, Phase: "load", Final: true}).Root; root.ExitStatus != "" || root.Provisional {
		t.Errorf("root cause is %+v", root)
	}
}

func TestBaseline(t *testing.T) {
	const text = `
(Core pid=20) ValueError: known
(Core pid=20) ERROR 12:00:00 [core.py:1] some odd line
(Core pid=20) ERROR 12:00:01 [core.py:2] Optional kernels are missing`
	fingerprint := newLog(t).read(text).failed().Findings[0].Fingerprint
	for _, c := range []struct {
		name string
		b    *event.Baseline
		want string
		news int
	}{
		{"seen in good starts", &event.Baseline{Good: 14, Errors: map[string]event.Seen{fingerprint: {Good: 14}}}, "benign suspect benign", 1},
		{"seen in some good starts", &event.Baseline{Good: 14, Errors: map[string]event.Seen{fingerprint: {Good: 2}}}, "cause suspect benign", 1},
		{"seen in failed starts only", &event.Baseline{Good: 14, Bad: 3, Errors: map[string]event.Seen{fingerprint: {Bad: 3}}}, "cause suspect benign", 2},
		{"no good start", &event.Baseline{Bad: 3}, "cause suspect benign", -1},
		{"no history", nil, "cause suspect benign", -1},
	} {
		l := newLog(t)
		l.tracker.Baseline(c.b)
		j := l.read(text).failed()
		var verdicts []string
		for _, f := range j.Findings {
			verdicts = append(verdicts, string(f.Verdict))
		}
		if got := strings.Join(verdicts, " "); got != c.want {
			t.Errorf("%s: verdicts %s, want %s", c.name, got, c.want)
		}
		news := -1
		if j.New != nil {
			news = *j.New
		}
		if news != c.news {
			t.Errorf("%s: %d new errors, want %d (-1 is not known)", c.name, news, c.news)
		}
		if seen := j.Findings[0].Good != nil; seen != (c.b != nil) {
			t.Errorf("%s: counts of history known: %v", c.name, seen)
		}
	}
}

// What a cause is, it is however often good starts had it.
func TestBaselineExcusesNoNamedCause(t *testing.T) {
	const text = "(Core pid=20) torch.OutOfMemoryError: Tried to allocate 4GiB"
	fingerprint := newLog(t).read(text).failed().Findings[0].Fingerprint
	l := newLog(t)
	l.tracker.Baseline(&event.Baseline{Good: 3, Errors: map[string]event.Seen{fingerprint: {Good: 3}}})
	if root := l.read(text).failed().Root; root.Class != "gpu_oom" {
		t.Errorf("class %s, want gpu_oom", root.Class)
	}
}

func TestErrorsAreCounted(t *testing.T) {
	j := newLog(t).read(`
(Worker_TP0 pid=30) torch.OutOfMemoryError: Tried to allocate 4GiB
(Worker_TP1 pid=31) torch.OutOfMemoryError: Tried to allocate 4GiB
(Core pid=20) ERROR 12:00:00 [core.py:1] Worker 1 died unexpectedly
(Core pid=20) ERROR 12:00:01 [core.py:2] Optional kernels are missing`).failed()
	want := map[ErrorKey]int{{"gpu_oom", Cause}: 2, {ClassUnknown, Symptom}: 1, {ClassUnknown, Benign}: 1}
	for k, n := range want {
		if j.Errors[k] != n {
			t.Errorf("%v: %d, want %d", k, j.Errors[k], n)
		}
	}
	if len(j.Errors) != len(want) {
		t.Errorf("errors are %v", j.Errors)
	}
	if got := strings.Join(j.Findings[0].Processes, " "); got != "Worker_TP0 Worker_TP1" {
		t.Errorf("told by %s", got)
	}
}
