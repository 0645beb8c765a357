package triage

import (
	"fmt"
	"strings"
	"testing"
)

func TestLoggedRecordOfSeveralLines(t *testing.T) {
	l := newLog(t).read(`
(Worker_TP0 pid=30) ERROR 12:00:00 [worker.py:10] Worker hit an exception: boom
(Worker_TP0 pid=30) ERROR 12:00:00 [worker.py:10] Traceback (most recent call last):
(Worker_TP0 pid=30) ERROR 12:00:00 [worker.py:10]   File "/x/alloc.py", line 7, in grow
(Worker_TP0 pid=30) ERROR 12:00:00 [worker.py:10]     raise OutOfMemoryError(text)
(Worker_TP0 pid=30) ERROR 12:00:00 [worker.py:10] torch.OutOfMemoryError: Tried to allocate 4GiB of memory
(Worker_TP0 pid=30) INFO 12:00:01 [worker.py:11] shutting down
`)
	l.want("gpu_oom", "torch.OutOfMemoryError: Tried to allocate 4GiB of memory", "Worker_TP0", 5)
	l.wantFindings("\ncause gpu_oom 1 torch.OutOfMemoryError: Tried to allocate 4GiB of memory\n")
	root := l.failed().Root
	if root.Exception != "torch.OutOfMemoryError" || root.Remediation != "It wanted 4GiB more." || root.Retry == nil || *root.Retry {
		t.Errorf("root cause is %+v", root)
	}
}

func TestRawTraceback(t *testing.T) {
	newLog(t).read(`
(Core pid=20) Process Core:
(Core pid=20) Traceback (most recent call last):
(Core pid=20)   File "/x/loader.py", line 7, in load
(Core pid=20)     param = params[name]
(Core pid=20)             ~~~~~~^^^^^^
(Core pid=20) KeyError: 'w13_weight'
`).want("bad_weights", "KeyError: 'w13_weight'", "Core", 6)
}

// A rule with a frame holds for no other traceback.
func TestFrameOfARule(t *testing.T) {
	l := newLog(t).read(`
(Core pid=20) Traceback (most recent call last):
(Core pid=20)   File "/x/config.py", line 7, in read
(Core pid=20) KeyError: 'w13_weight'
`)
	l.want(ClassUnknown, "KeyError: 'w13_weight'", "Core", 3)
}

func TestChains(t *testing.T) {
	const inner = `
Traceback (most recent call last):
  File "/x/loader.py", line 7, in load
KeyError: 'w13'

%s

Traceback (most recent call last):
  File "/x/api.py", line 9, in main
    run()
%s
`
	for _, c := range []struct{ name, link, outer, class, message string }{
		{"direct cause", directCause, "RuntimeError: Core failed, see above", "bad_weights", "KeyError: 'w13'"},
		{"during handling, of a consequence", whileHandling, "ConnectionResetError: peer", "bad_weights", "KeyError: 'w13'"},
		{"during handling, of the real one", whileHandling, "torch.OutOfMemoryError: Tried to allocate 4GiB", "gpu_oom", "torch.OutOfMemoryError: Tried to allocate 4GiB"},
	} {
		t.Run(c.name, func(t *testing.T) {
			l := newLog(t).read(fmt.Sprintf(inner, c.link, c.outer))
			if root := l.failed().Root; root.Class != c.class || root.Message != c.message {
				t.Errorf("root cause is %+v, want %s: %s", root, c.class, c.message)
			}
			if n := len(l.failed().Findings); n != 1 {
				t.Errorf("%d findings of one chain:\n%s", n, list(l.failed()))
			}
		})
	}
}

func TestExceptionGroup(t *testing.T) {
	newLog(t).read(`
  + Exception Group Traceback (most recent call last):
  |   File "/x/api.py", line 9, in main
  |     async with group:
  | ExceptionGroup: unhandled errors in a TaskGroup (1 sub-exception)
  +-+---------------- 1 ----------------
    | Traceback (most recent call last):
    |   File "/x/loader.py", line 7, in load
    | KeyError: 'w13'
    +------------------------------------
`).want("bad_weights", "KeyError: 'w13'", "", 8)
}

// The source that a traceback echoes can hold the text of an error that never
// happened.
func TestSourceEchoIsNoError(t *testing.T) {
	l := newLog(t).read(`
(Core pid=20) Traceback (most recent call last):
(Core pid=20)   File "/x/alloc.py", line 7, in grow
(Core pid=20)     raise torch.OutOfMemoryError: Tried to allocate 1GiB
(Core pid=20)           ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^
(Core pid=20)     NCCL failure in quoted.cc:10
(Core pid=20) ValueError: bad shape
`)
	l.want(ClassUnknown, "ValueError: bad shape", "Core", 6)
	l.wantFindings("\ncause unknown 1 ValueError: bad shape\n")
}

func TestLoggedAndRawAreOneFinding(t *testing.T) {
	l := newLog(t).read(`
(Core pid=20) ERROR 12:00:00 [core.py:10] Core failed to start.
(Core pid=20) ERROR 12:00:00 [core.py:10] Traceback (most recent call last):
(Core pid=20) ERROR 12:00:00 [core.py:10]   File "/x/loader.py", line 7, in load
(Core pid=20) ERROR 12:00:00 [core.py:10] KeyError: 'w13'
(Core pid=20) Process Core:
(Core pid=20) Traceback (most recent call last):
(Core pid=20)   File "/x/loader.py", line 7, in load
(Core pid=20) KeyError: 'w13'
(Api pid=10) RuntimeError: Core failed, see above
`)
	l.want("bad_weights", "KeyError: 'w13'", "Core", 4)
	l.wantFindings("\ncause bad_weights 2 KeyError: 'w13'\nsymptom unknown 1 RuntimeError: Core failed, see above\n")
	if lines := l.failed().Findings[0].Lines; len(lines) != 2 || lines[0] != 4 || lines[1] != 8 {
		t.Errorf("told in lines %v", lines)
	}
}

func TestInterleavedRanks(t *testing.T) {
	l := newLog(t).read(`
(Worker_TP0 pid=30) Traceback (most recent call last):
(Worker_TP1 pid=31) Traceback (most recent call last):
(Worker_TP1 pid=31)   File "/x/loader.py", line 7, in load
(Worker_TP0 pid=30)   File "/x/comm.py", line 9, in wait
(Worker_TP1 pid=31) KeyError: 'w13'
(Worker_TP0 pid=30) ConnectionResetError: peer
`)
	l.want("bad_weights", "KeyError: 'w13'", "Worker_TP1", 5)
	l.wantFindings("\ncause bad_weights 1 KeyError: 'w13'\nsymptom unknown 1 ConnectionResetError: peer\n")
}

// Without prefixes the journal's own pid tells processes apart, and their names.
func TestInterleavedByPID(t *testing.T) {
	l := newLog(t)
	for _, x := range []struct {
		pid  int
		text string
	}{
		{31, "(Worker_TP1 pid=31) INFO 12:00:00 [worker.py:1] hello"},
		{30, "Traceback (most recent call last):"}, {31, "Traceback (most recent call last):"},
		{30, `  File "/x/comm.py", line 9, in wait`}, {31, `  File "/x/loader.py", line 7, in load`},
		{30, "ConnectionResetError: peer"}, {31, "KeyError: 'w13'"},
	} {
		l.pid = x.pid
		l.line(x.text)
	}
	l.want("bad_weights", "KeyError: 'w13'", "Worker_TP1", 7)
}

func TestRankPrefixOfTorch(t *testing.T) {
	newLog(t).read(`
[rank3]: Traceback (most recent call last):
[rank3]:   File "/x/loader.py", line 7, in load
[rank3]: KeyError: 'w13'
`).want("bad_weights", "KeyError: 'w13'", "", 3)
}

func TestBenignSwallowsItsTraceback(t *testing.T) {
	l := newLog(t).read(`
(Worker_TP0 pid=30) ERROR 12:00:00 [kernels.py:10] Optional kernels are missing
(Worker_TP0 pid=30) ERROR 12:00:00 [kernels.py:10] Traceback (most recent call last):
(Worker_TP0 pid=30) ERROR 12:00:00 [kernels.py:10]   File "/x/loader.py", line 7, in load
(Worker_TP0 pid=30) ERROR 12:00:00 [kernels.py:10] KeyError: 'SparseMatrix'
`)
	if got := l.failed().Root; got.Class != ClassUnknown || got.Rule != "" {
		t.Errorf("root cause is %+v, want unknown", got)
	}
	l.wantFindings("\nbenign unknown 1 Optional kernels are missing\n")
}

func TestBenignUntilItTurnsOut(t *testing.T) {
	const tuner = "(Worker_TP0 pid=30) WARNING 12:00:00 [tune.py:10] Tuner skips one: out of memory\n"
	l := newLog(t).read(tuner)
	l.wantFindings("\nbenign compile_failed 1 Tuner skips one: out of memory\n")
	l.read("(Worker_TP0 pid=30) ERROR 12:00:01 [tune.py:11] Tuner has nothing left\n")
	l.want("compile_failed", "Tuner skips one: out of memory", "Worker_TP0", 1)
}

// A block of native code: its first line says what failed, its stack says
// nothing.
func TestNativeBlock(t *testing.T) {
	for _, lines := range []int{10, 45, 120} {
		l := newLog(t).read("(Worker_TP0 pid=30) NCCL failure in init.cc:10: unhandled system error")
		for i := range lines {
			l.line(fmt.Sprintf("(Worker_TP0 pid=30) frame #%d: c10::detail::call() + 0x%x (0x7f00 in libc10.so)", i, i*16))
		}
		l.read("(Core pid=20) ERROR 12:01:00 [core.py:10] Worker 0 died unexpectedly")
		l.want("nccl_init", "NCCL failure in init.cc:10: unhandled system error", "Worker_TP0", 1)
		l.wantFindings("\ncause nccl_init 1 NCCL failure in init.cc:10: unhandled system error\nsymptom unknown 1 Worker 0 died unexpectedly\n")
	}
}

// A process that is cut off in the middle of a traceback still tells what its
// native code says.
func TestNativeErrorAfterACutTraceback(t *testing.T) {
	newLog(t).read(`
(Worker_TP0 pid=30) Traceback (most recent call last):
(Worker_TP0 pid=30)   File "/x/comm.py", line 9, in wait
(Worker_TP0 pid=30) NCCL failure in init.cc:10: unhandled system error
`).want("nccl_init", "NCCL failure in init.cc:10: unhandled system error", "Worker_TP0", 3)
}

// A logger's argument that never was filled in: the traceback below tells.
func TestLiteralPercentS(t *testing.T) {
	newLog(t).read(`
(Worker_TP0 pid=30) ERROR 12:00:00 [worker.py:10] Worker hit an exception: %s
(Worker_TP0 pid=30) ERROR 12:00:00 [worker.py:10] Traceback (most recent call last):
(Worker_TP0 pid=30) ERROR 12:00:00 [worker.py:10]   File "/x/loader.py", line 7, in load
(Worker_TP0 pid=30) ERROR 12:00:00 [worker.py:10] KeyError: 'w13'
`).want("bad_weights", "KeyError: 'w13'", "Worker_TP0", 4)
}

// A bar has no newline: the next record begins on its line.
func TestGluedToABar(t *testing.T) {
	newLog(t).read(
		"(Worker_TP0 pid=30) Loading shards:  50%|#| 1/2 [00:01<00:01, 1.1s/s](Core pid=20) ERROR 12:00:00 [core.py:10] --a cannot be used with --b",
	).want("bad_flag", "--a cannot be used with --b", "Core", 1)
}

// journald cuts a message at 48 KiB, in the middle of a word: the rest is a line
// without a header.
func TestCutAt48KiB(t *testing.T) {
	l := newLog(t)
	long := strings.Repeat("x", 48<<10)
	l.read(`
(Worker_TP0 pid=30) Traceback (most recent call last):
(Worker_TP0 pid=30)   File "/x/loader.py", line 7, in load
(Worker_TP0 pid=30) KeyError: '` + long + `
` + long + `'
(Core pid=20) ERROR 12:00:00 [core.py:10] Worker 0 died unexpectedly
`)
	root := l.failed().Root
	if root.Class != "bad_weights" || root.Line != 3 || len(root.Message) > maxMessage {
		t.Errorf("root cause is %s, line %d, of %d bytes", root.Class, root.Line, len(root.Message))
	}
	if n := len(l.failed().Findings); n != 2 {
		t.Errorf("%d findings, want 2", n)
	}
}

// The log begins in the middle of a traceback.
func TestHeadIsMissing(t *testing.T) {
	newLog(t).read(`
(Core pid=20) ERROR 12:00:00 [core.py:10]   File "/x/loader.py", line 7, in load
(Core pid=20) ERROR 12:00:00 [core.py:10] KeyError: 'w13'
`).want("bad_weights", "KeyError: 'w13'", "Core", 2)
}

func TestTextAfterTheException(t *testing.T) {
	l := newLog(t).read(`
(Core pid=20) Traceback (most recent call last):
(Core pid=20)   File "/x/loader.py", line 7, in load
(Core pid=20) KeyError: 'w13'
(Core pid=20) Some note that the exception carries
(Core pid=20) ValueError: another one
`)
	l.want("bad_weights", "KeyError: 'w13'", "Core", 3)
	l.wantFindings("\ncause bad_weights 1 KeyError: 'w13'\nsymptom unknown 1 ValueError: another one\n")
}

// A logger that puts its header on the first line only (uvicorn).
func TestHeaderOnTheFirstLineOnly(t *testing.T) {
	l := newLog(t).read(`
(Api pid=10) ERROR:    Traceback (most recent call last):
(Api pid=10)   File "/x/loader.py", line 7, in load
(Api pid=10)     param = params[name]
(Api pid=10) KeyError: 'w13'
(Api pid=10)
(Api pid=10) ERROR:    Core failed to start.
`)
	l.want("bad_weights", "KeyError: 'w13'", "Api", 4)
	l.wantFindings("\ncause bad_weights 1 KeyError: 'w13'\nsymptom unknown 1 Core failed to start.\n")
}

// A header that tells neither time nor place joins no lines.
func TestHeaderThatTellsNothing(t *testing.T) {
	newLog(t).read(`
(Api pid=10) ERROR 12:00:00 [kernels.py:10] Optional kernels are missing
(Api pid=10) ERROR:    something odd
(Api pid=10) ERROR:    torch.OutOfMemoryError: Tried to allocate 4GiB
`).wantFindings(`
benign unknown 1 Optional kernels are missing
suspect unknown 1 something odd
cause gpu_oom 1 torch.OutOfMemoryError: Tried to allocate 4GiB
`)
}

// The journal's reader takes the blank at a line's end away, also that of an
// empty line's header.
func TestLoggedChainWithEmptyLines(t *testing.T) {
	l := newLog(t).read(`
(Core pid=20) ERROR 12:00:00 [core.py:1] Traceback (most recent call last):
(Core pid=20) ERROR 12:00:00 [core.py:1]   File "/x/a.py", line 1, in f
(Core pid=20) ERROR 12:00:00 [core.py:1] torch.OutOfMemoryError: Tried to allocate 4GiB
(Core pid=20) ERROR 12:00:00 [core.py:1]
(Core pid=20) ERROR 12:00:00 [core.py:1] The above exception was the direct cause of the following exception:
(Core pid=20) ERROR 12:00:00 [core.py:1]
(Core pid=20) ERROR 12:00:00 [core.py:1] Traceback (most recent call last):
(Core pid=20) ERROR 12:00:00 [core.py:1]   File "/x/b.py", line 1, in g
(Core pid=20) ERROR 12:00:00 [core.py:1] ValueError: who knows
`)
	l.want("gpu_oom", "torch.OutOfMemoryError: Tried to allocate 4GiB", "Core", 3)
	l.wantFindings("\ncause gpu_oom 1 torch.OutOfMemoryError: Tried to allocate 4GiB\n")
}
