package phases

import (
	"encoding/json"
	"fmt"
	"strconv"
	"strings"
	"testing"

	"github.com/startupd/startupd/pkg/event"
	"github.com/startupd/startupd/pkg/triage"
)

const (
	lineOOM     = "(Worker_TP0 pid=300) torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 4.00 GiB. GPU 0 has a total capacity of 79.10 GiB of which 1.20 GiB is free."
	lineDied    = "(EngineCore_DP0 pid=200) ERROR 03-01 23:30:40 [multiproc_executor.py:154] Worker proc VllmWorker-0 died unexpectedly, shutting down executor."
	lineUnknown = "(EngineCore_DP0 pid=200) ERROR 03-01 23:30:30 [core.py:708] AcmeError: the flux is off"
	kernelOOM   = "Memory cgroup out of memory: Killed process %d (VLLM::Worker_TP) total-vm:402653184kB, anon-rss:201326592kB, file-rss:81920kB, shmem-rss:0kB, UID:990 pgtables:402176kB oom_score_adj:0"
	// workerPID wrote the last lines of a start that dies.
	workerPID = 300
	third     = "33333333333333333333333333333333"
)

// finishes makes a script's host one that notes what it hands on.
func (s *script) finishes() *[]*Startup {
	var out []*Startup
	s.host = NewHost(HostOptions{Finished: func(target string, st *Startup) {
		if target != unit {
			s.t.Errorf("a startup of %q was handed on", target)
		}
		out = append(out, st)
	}}, s.host.order[0].cfg)
	return &out
}

// of plays f as entries of another invocation.
func (s *script) of(invocation string, f func()) {
	old := s.inv
	s.inv = invocation
	f()
	s.inv = old
}

func (s *script) kernel(sec float64, text string) {
	s.hostWide(sec, &event.Line{Text: text, Origin: event.OriginKernel})
}

// wantFailure compares the class of the last failure; "" is none.
func (s *script) wantFailure(want string) {
	s.t.Helper()
	got := ""
	if f := s.target().Failure; f != nil {
		got = f.Class
	}
	if got != want {
		s.t.Errorf("at %v s the failure is %q, want %q", s.now, got, want)
	}
}

// dies plays a start whose main process exits with status 1 at 30 s.
func (s *script) dies(lines ...string) {
	s.line(0, lineVersion)
	s.line(21, lineLoad)
	for i, l := range lines {
		s.apply(22+float64(i), &event.Line{Text: l, Invocation: s.inv, Origin: event.OriginUnit, PID: workerPID})
	}
	s.exit(30, "exited", "1")
}

// restart begins the next invocation 100 ms after the end, as RestartSec= does by
// default.
func (s *script) restart() {
	s.inv = other
	s.message(30.1, event.UnitMessage{Message: event.Started})
	s.line(30.1, lineVersion)
}

// What comes late still belongs to the startup before the present one, for two
// seconds.
func TestLateEvidence(t *testing.T) {
	for _, c := range []struct {
		name string
		tell func(s *script, sec float64)
		want string
	}{
		{"a line", func(s *script, sec float64) { s.of(first, func() { s.line(sec, lineOOM) }) }, "gpu_oom_weights"},
		{"a line of the kernel", func(s *script, sec float64) { s.kernel(sec, fmt.Sprintf(kernelOOM, workerPID)) }, "host_oom"},
		{"a message of systemd", func(s *script, sec float64) {
			s.of(first, func() { s.message(sec, event.UnitMessage{Message: event.FailureResult, Result: "oom-kill"}) })
		}, "host_oom"},
	} {
		for _, at := range []struct {
			sec  float64
			want string
		}{{30.2, c.want}, {31.9, c.want}, {32.1, "unknown"}} {
			t.Run(fmt.Sprintf("%s at %v s", c.name, at.sec), func(t *testing.T) {
				s := newScript(t)
				over := s.finishes()
				s.dies(lineWrapper)
				s.restart()
				s.wantFailure("unknown")
				s.tick(at.sec - 0.05)
				c.tell(s, at.sec)
				s.tick(40)
				s.wantFailure(at.want)
				if len(*over) != 1 || (*over)[0].Invocation != first || (*over)[0].RootCause.Class != at.want || (*over)[0].RootCause.Provisional {
					t.Errorf("handed on: %d, %+v", len(*over), (*over)[0].RootCause)
				}
				now := s.startup()
				if now.Invocation != other || now.Outcome != OutcomeNone || len(now.Findings) != 0 {
					t.Errorf("the present startup is %s, %q, with %+v", now.Invocation, now.Outcome, now.Findings)
				}
			})
		}
	}
}

// The root cause is provisional until then.
func TestRootCauseIsProvisional(t *testing.T) {
	s := newScript(t)
	s.dies(lineWrapper)
	for _, c := range []struct {
		sec         float64
		provisional bool
	}{{30, true}, {31.9, true}, {32, false}} {
		s.tick(c.sec)
		if root := s.startup().RootCause; root.Provisional != c.provisional || s.startup().Final == c.provisional {
			t.Errorf("at %v s: provisional is %v, final is %v", c.sec, root.Provisional, s.startup().Final)
		}
	}
	s.line(33, lineOOM)
	if root := s.startup().RootCause; root.Class != "unknown" {
		t.Errorf("a line after the end made it %s", root.Class)
	}
}

// A core dump takes its time to be written.
func TestCoreDumpTakesThirtySeconds(t *testing.T) {
	for _, c := range []struct {
		sec  float64
		want string
	}{{59, "gpu_oom_weights"}, {61, "unknown"}} {
		s := newScript(t)
		s.dies(lineWrapper)
		s.message(30.5, event.UnitMessage{Message: event.Coredump, ExitCode: "dumped", ExitStatus: "SIGSEGV", Text: "Process 300 (python3) of user 990 dumped core."})
		s.restart()
		s.tick(c.sec - 0.5)
		s.of(first, func() { s.line(c.sec, lineOOM) })
		s.tick(100)
		s.wantFailure(c.want)
	}
}

func TestKernelLineOfWhom(t *testing.T) {
	for _, c := range []struct {
		name, text, want string
	}{
		{"a process of the unit", fmt.Sprintf(kernelOOM, 100), "host_oom"},
		{"another process", fmt.Sprintf(kernelOOM, 777), "unknown"},
		{"the unit's control group", "oom-kill:constraint=CONSTRAINT_MEMCG,nodemask=(null),cpuset=/,mems_allowed=0,oom_memcg=/system.slice/llm.service,task_memcg=/system.slice/llm.service,task=python3,pid=777,uid=990", "host_oom"},
		{"another one's", "oom-kill:constraint=CONSTRAINT_MEMCG,nodemask=(null),cpuset=/,mems_allowed=0,oom_memcg=/system.slice/db.service,task_memcg=/system.slice/db.service,task=python3,pid=777,uid=990", "unknown"},
		{"nothing of this kind", "e1000e: eth0 NIC Link is Up", "unknown"},
	} {
		s := newScript(t)
		s.line(0, lineVersion)
		s.line(21, lineLoad)
		s.kernel(25, c.text)
		s.line(26, lineWrapper)
		s.exit(30, "exited", "1")
		if got := s.startup().RootCause; got.Class != c.want {
			t.Errorf("%s: %s (%s), want %s", c.name, got.Class, got.Message, c.want)
		}
	}
}

func TestSystemdAsWitness(t *testing.T) {
	exit := func(code, status string) event.UnitMessage {
		return event.UnitMessage{Message: event.ProcessExit, Command: "ExecStart", ExitCode: code, ExitStatus: status}
	}
	result := func(result string) event.UnitMessage {
		return event.UnitMessage{Message: event.FailureResult, Result: result}
	}
	for _, c := range []struct {
		name     string
		messages []event.UnitMessage
		want     string
	}{
		{"an exit status says nothing", []event.UnitMessage{exit("exited", "1"), result("exit-code")}, "unknown"},
		{"killed from outside", []event.UnitMessage{exit("killed", "TERM"), result("signal")}, "killed_externally"},
		{"by the signal's number", []event.UnitMessage{exit("killed", "9/KILL"), result("signal")}, "killed_externally"},
		{"crashed", []event.UnitMessage{exit("dumped", "SEGV"), result("core-dump")}, "worker_crashed"},
		{"the program is not there", []event.UnitMessage{exit("exited", "203"), result("exit-code")}, "config_invalid"},
		{"the user is not there", []event.UnitMessage{exit("exited", "217/USER"), result("exit-code")}, "permission_denied"},
		{"time-out", []event.UnitMessage{exit("killed", "TERM"), result("timeout")}, "startup_timeout"},
		{"time-out, as it is told when it happens", []event.UnitMessage{{Message: event.TimedOut, Text: "llm.service: start operation timed out. Terminating."}, exit("killed", "TERM"), result("signal")}, "startup_timeout"},
		{"watchdog", []event.UnitMessage{exit("killed", "ABRT"), result("watchdog")}, "startup_timeout"},
		{"out of memory", []event.UnitMessage{{Message: event.OutOfMemory}, exit("killed", "KILL"), result("oom-kill")}, "host_oom"},
		{"systemd-oomd", []event.UnitMessage{{Message: event.OOMDKill}, exit("killed", "KILL"), result("oom-kill")}, "host_oom"},
	} {
		s := newScript(t)
		s.line(0, lineVersion)
		s.line(21, lineLoad)
		for i, m := range c.messages {
			s.message(30+float64(i)/10, m)
		}
		s.tick(60)
		root := s.startup().RootCause
		if root == nil || root.Class != c.want {
			t.Errorf("%s: %+v, want %s", c.name, root, c.want)
			continue
		}
		if root.Class == "unknown" && (root.ExitStatus != "exited, status 1" || root.DiedIn != "load" || len(root.LastLines) == 0) {
			t.Errorf("%s: unknown, with %+v", c.name, root)
		}
	}
}

// A stop that was asked for is no failure, and has no root cause.
func TestStoppedHasNoRootCause(t *testing.T) {
	s := newScript(t)
	s.line(0, lineVersion)
	s.message(20, event.UnitMessage{Message: event.Stopping})
	s.line(21, lineWrapper)
	s.exit(22, "killed", "TERM")
	s.tick(60)
	if st := s.startup(); st.RootCause != nil || st.Outcome != OutcomeStopped || !st.Final {
		t.Errorf("%s, final %v, root cause %+v", st.Outcome, st.Final, st.RootCause)
	}
	s.wantFailure("")
}

// A failure stays until a later startup serves, also over a restart of the daemon.
func TestFailureStaysUntilOneServes(t *testing.T) {
	s := newScript(t)
	s.dies(lineOOM)
	s.wantFailure("gpu_oom_weights")
	s.restart()
	s.wantFailure("gpu_oom_weights")
	s.tick(50)
	s.wantFailure("gpu_oom_weights")

	next := newScript(t)
	next.host.Restore(throughJSON(t, s.host.Save()))
	next.wantFailure("gpu_oom_weights")
	if f := next.target().Failure; !strings.Contains(f.Message, "CUDA out of memory") || f.Process != "Worker_TP0" {
		t.Errorf("restored: %+v", f)
	}
	next.inv = other
	next.line(60, lineVersion)
	next.message(70, event.UnitMessage{Message: event.Stopping})
	next.exit(71, "killed", "TERM")
	next.tick(80)
	next.wantFailure("gpu_oom_weights")
	next.inv = third
	next.goodStart(100)
	next.wantFailure("")
	next.tick(1000)
	next.wantFailure("")
	if f := throughJSON(t, next.host.Save()).Targets[unit].Failure; f != nil {
		t.Errorf("saved: %+v", f)
	}
	// It does not come back with the next ones that fall short of serving.
	for i := range 3 {
		next.inv = strings.Repeat(strconv.Itoa(4+i), 32)
		next.line(3000+float64(100*i), lineVersion)
		next.wantFailure("")
		next.message(3050+float64(100*i), event.UnitMessage{Message: event.Stopping})
		next.exit(3051+float64(100*i), "killed", "TERM")
		next.tick(3090 + float64(100*i))
		next.wantFailure("")
	}
}

func throughJSON(t *testing.T, s Saved) Saved {
	t.Helper()
	data, err := json.Marshal(s)
	if err != nil {
		t.Fatal(err)
	}
	var out Saved
	if err := json.Unmarshal(data, &out); err != nil {
		t.Fatal(err)
	}
	return out
}

// Errors are counted once the startup is final, and once for all runs of the
// daemon.
func TestErrorsAreCountedOnce(t *testing.T) {
	cause := ErrorKey{Class: "gpu_oom_weights", Verdict: triage.Cause}
	s := newScript(t)
	s.dies(lineOOM, lineDied)
	if n := s.target().Counters.Errors[cause]; n != 0 {
		t.Errorf("%d are counted while they may change", n)
	}
	s.tick(32)
	want := s.target().Counters.Errors
	if want[cause] != 1 || len(want) != 2 {
		t.Fatalf("counted %v", want)
	}
	s.tick(60)
	s.host.Drain()
	if got := s.target().Counters.Errors; fmt.Sprint(got) != fmt.Sprint(want) {
		t.Errorf("counted %v, later %v", want, got)
	}

	next := newScript(t)
	next.host.Restore(throughJSON(t, s.host.Save()))
	for _, ev := range replayOf(lineVersion, lineLoad, lineOOM, lineDied) {
		next.host.Apply(ev)
	}
	next.tick(60)
	if got := next.target().Counters.Errors; fmt.Sprint(got) != fmt.Sprint(want) {
		t.Errorf("counted %v, after a restart of the daemon %v", want, got)
	}
	if f := next.target().Startup.Findings; len(f) != 2 || f[0].Verdict != triage.Cause {
		t.Errorf("rebuilt: %+v", f)
	}
}

// replayOf are the entries of a start that an earlier run has seen to its end.
func replayOf(lines ...string) []event.Event {
	var out []event.Event
	for i, text := range lines {
		out = append(out, event.Event{At: at(float64(20 + i)), Target: unit, Replayed: true, Data: &event.Line{Text: text, Invocation: first, Origin: event.OriginUnit, PID: 100}})
	}
	return append(out, event.Event{At: at(30), Target: unit, Replayed: true, Data: &event.UnitMessage{
		Message: event.ProcessExit, Invocation: first, Command: "ExecStart", ExitCode: "exited", ExitStatus: "1",
	}})
}

// Each startup is handed on once when it is final, and one that served once more
// when its service has ended.
func TestFinishedOnce(t *testing.T) {
	s := newScript(t)
	over := s.finishes()
	s.dies(lineOOM)
	s.restart()
	s.tick(40)
	s.message(45, event.UnitMessage{Message: event.Stopping})
	s.exit(46, "killed", "TERM")
	s.tick(60)
	s.inv = third
	s.goodStart(100)
	s.tick(1000)
	s.message(2000, event.UnitMessage{Message: event.Stopping})
	s.exit(2001, "killed", "TERM")
	s.tick(2100)
	s.host.Drain()
	var got []string
	for _, st := range *over {
		got = append(got, fmt.Sprintf("%c %s final=%v %s", st.Invocation[0], st.Outcome, st.Final, st.ServingEndReason))
	}
	want := []string{"1 failed final=true ", "2 stopped final=true ", "3 serving final=true ", "3 serving final=true stopped"}
	if strings.Join(got, "\n") != strings.Join(want, "\n") {
		t.Errorf("handed on:\n%s\nwant:\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
}

// A startup that is over is judged by what history knew then: its own record would
// make its errors old.
func TestBaselineIsThatOfTheStart(t *testing.T) {
	s := newScript(t)
	s.apply(0, &event.Baseline{Good: 3})
	s.dies(lineUnknown)
	before := s.startup()
	if before.NewErrors == nil || *before.NewErrors != 1 || !before.Findings[0].New {
		t.Fatalf("new errors are %v of %+v", before.NewErrors, before.Findings)
	}
	s.tick(40)
	seen := map[string]event.Seen{before.Findings[0].Fingerprint: {Good: 3}}
	s.apply(41, &event.Baseline{Good: 3, Bad: 1, Errors: seen})
	if after := s.startup(); *after.NewErrors != 1 || !after.Findings[0].New {
		t.Errorf("its own record made it old: %+v", after.Findings)
	}
	s.restart()
	s.line(50, lineUnknown)
	if now := s.startup(); *now.NewErrors != 0 || now.Findings[0].Verdict != triage.Benign || *now.Findings[0].Good != 3 {
		t.Errorf("in the next one: %+v", now.Findings)
	}
}

// What a startup publishes does not change with what comes later.
func TestPublishedStartupIsImmutable(t *testing.T) {
	s := newScript(t)
	s.dies(lineOOM, lineDied)
	before := s.startup()
	was := fmt.Sprintf("%+v %+v %v %v", before.Findings, *before.RootCause, before.Errors, before.LastLine)
	s.line(30.5, lineUnknown)
	s.restart()
	s.tick(60)
	if is := fmt.Sprintf("%+v %+v %v %v", before.Findings, *before.RootCause, before.Errors, before.LastLine); is != was {
		t.Errorf("was %s\nis  %s", was, is)
	}
}
