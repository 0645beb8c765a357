package watch

import (
	"fmt"
	"strings"
	"time"

	"github.com/startupd/startupd/pkg/web/api"
)

// began is when the starts of the fixtures began.
func began() time.Time { return time.Date(2026, 3, 4, 23, 37, 31, 0, time.UTC) }

func after(seconds float64) time.Time {
	return began().Add(time.Duration(seconds * float64(time.Second)))
}

func ptr[T any](v T) *T { return &v }

const gibi = 1 << 30

// status is a whole status at some seconds after the start began.
func status(seconds float64, units ...api.Unit) *api.Status {
	s := &api.Status{
		Schema: api.StatusSchema, At: after(seconds), Version: "0.0.0", Units: units,
		Sources: []api.Source{{Source: "journal", Up: true, State: "up"}, {Source: "gpu", Up: true, State: "up"}},
	}
	return s
}

// gpus adds n GPUs of which the unit holds own bytes each.
func gpus(s *api.Status, n int, own, foreign uint64) *api.Status {
	for i := range n {
		s.GPUs = append(s.GPUs, api.GPU{
			GPU: i, Name: "GPU of a test", UsedBytes: ptr(own + foreign), TotalBytes: ptr(uint64(96 * gibi)), ForeignBytes: ptr(foreign), UnattributedBytes: ptr(uint64(0)),
		})
		for j := range s.Units {
			if s.Units[j].GPUMemory == nil {
				s.Units[j].GPUMemory = map[int]uint64{}
			}
			s.Units[j].GPUMemory[i] = own
		}
	}
	return s
}

// phase is an entered phase; the last of a list is the one that runs.
func phase(name string, from, seconds float64, done bool, text string) api.Phase {
	return api.Phase{Phase: name, Entered: after(from), Seconds: &seconds, Done: done, Evidence: &api.Evidence{Source: "log", Text: text}}
}

func goodStart() *api.Startup {
	return &api.Startup{
		Unit: "vllm.service", Invocation: "0f0e", Began: after(-86400), Outcome: api.Serving, Seconds: ptr(792.0), Phase: api.Serving,
		Phases: []api.Phase{
			phase("spawn", -86400, 21, true, ""), phase("load", -86379, 551, true, ""), phase("compile", -85828, 187, true, ""),
			phase("cudagraph", -85641, 33, true, ""), phase("serving", -85608, 85000, false, ""),
		},
		PlateauBytes: map[int]uint64{0: 79134984192, 1: 79134984192, 2: 79134984192, 3: 79134984192}, Final: true,
	}
}

func loading() api.Unit {
	return api.Unit{
		Unit: "vllm.service", State: "load", Since: after(21), LastOutcome: api.Serving, Restarts: ptr(0), MainPID: 4711,
		Ready: api.Ready{Log: ptr(false), Port: ptr(false), Health: ptr(false)}, JournalLines: 1234, JournalStale: 3, JournalLagSeconds: ptr(0.04),
		Last: goodStart(),
		Startup: &api.Startup{
			Unit: "vllm.service", Invocation: "1f1e", Began: began(), Seconds: ptr(252.0), Outcome: api.Starting, Phase: "load", Step: "weights",
			StepBegan: after(22), Progress: ptr(0.42), ProgressNote: "50/119 shards", ExpectedServing: after(800),
			Engine: "vllm", Version: "0.16.0", Model: "/models/example-70b", Host: "0.0.0.0", Port: 8000,
			Phases: []api.Phase{phase("spawn", 0, 21, true, "first line"), phase("load", 21, 231, false, "Starting to load model /models/example-70b...")},
			Steps:  []api.Step{{Phase: "load", Step: "start", Entered: after(21), Seconds: ptr(1.0)}, {Phase: "load", Step: "weights", Entered: after(22), Seconds: ptr(230.0)}},
			Findings: []api.Finding{
				{Verdict: "benign", Class: "unknown", Message: "Failed to import a thing that is not needed", Process: "APIServer", At: after(12), Count: 9, Good: ptr(4), Bad: ptr(0)},
				{Verdict: "benign", Class: "unknown", Message: "Reducing parallelism", Process: "EngineCore_DP0", At: after(13), Count: 7, Good: ptr(4), Bad: ptr(0)},
				{Verdict: "suspect", Class: "unknown", Exception: "OSError", Message: "OSError: [Errno 5] Input/output error: '/models/example-70b/model-00050.safetensors'", Process: "Worker_TP3", At: after(250), Count: 2, New: true, Good: ptr(0), Bad: ptr(0)},
				{Verdict: "suspect", Class: "config", Message: "a value is out of range", Process: "APIServer", At: after(5), Count: 1, Good: ptr(1), Bad: ptr(0)},
			},
			Errors: map[string]int{"benign": 16, "suspect": 3}, NewErrors: ptr(1),
		},
	}
}

func compiling() api.Unit {
	u := loading()
	u.State, u.Since = "compile", after(572)
	s := u.Startup
	s.Phase, s.Step, s.Progress, s.ProgressNote, s.Seconds = "compile", "inductor", nil, "", ptr(600.0)
	s.Slow, s.Findings, s.NewErrors = true, nil, nil
	s.Phases = append(s.Phases[:0], phase("spawn", 0, 21, true, "first line"), phase("load", 21, 551, true, "Starting to load model /models/example-70b..."),
		phase("compile", 572, 28, false, "Model loading took 73.7 GiB"))
	s.Phases[2].Evidence.Provisional = true
	s.PlateauBytes = map[int]uint64{0: 79134984192, 1: 79134984192, 2: 79134984192, 3: 79134984192}
	return u
}

func stalled() api.Unit {
	u := loading()
	s := u.Startup
	s.Outcome, s.Step, s.ExpectedServing, s.Phase = api.Stalled, "distributed_init", time.Time{}, "spawn"
	s.Phases, s.Steps, s.Progress, s.ProgressNote = []api.Phase{phase("spawn", 0, 900, false, "first line")}, nil, nil, ""
	s.Reason = "spawn/distributed_init: no sign of progress for longer than its budget of 10m0s; the last one was: a step began"
	s.Seconds, u.State, u.Since = ptr(900.0), "spawn", began()
	s.RootCause = &api.RootCause{
		Class: "nccl_hang", Message: "waiting for all ranks to join", Process: "Worker_TP0", At: after(31), Provisional: true,
		NotArrived: []string{"Worker_TP5"}, Retry: ptr(true), Remediation: "see whether the process that is missing is in state D, and why",
	}
	s.Findings = nil
	u.Disagreement = "the log says that it is not ready, health answers 200"
	return u
}

func failed() api.Unit {
	u := loading()
	u.State, u.Since, u.Restarts, u.RestartLoop, u.LastOutcome = "failed", after(23), ptr(7), true, api.Failed
	s := u.Startup
	s.Outcome, s.Phase, s.Step, s.Progress, s.Ended, s.Seconds, s.Final = api.Failed, "spawn", "import", nil, after(23), ptr(23.0), true
	s.Reason, s.ExpectedServing = "exited, status 1", time.Time{}
	// The core calls a phase done also where the start has ended in it.
	s.Phases, s.Steps = []api.Phase{phase("spawn", 0, 23, true, "first line")}, nil
	s.RootCause = &api.RootCause{
		Class: "package_mismatch", Exception: "RuntimeError", Message: "RuntimeError: one-package version (0.6.3) does not match another-package version (0.6.4). Please install the same version of both.",
		Process: "Worker_TP3", At: after(22), Fingerprint: "v1:aa", Cursor: "s=abc;i=1f;b=00", Retry: ptr(false),
		Remediation: "install the same version of both packages into the environment of the unit",
	}
	s.Findings = []api.Finding{
		{Verdict: "cause", Class: "package_mismatch", Fingerprint: "v1:aa", Message: s.RootCause.Message, Process: "Worker_TP3", At: after(22), Count: 8, New: true, Good: ptr(0), Bad: ptr(6)},
		{Verdict: "symptom", Class: "worker_failed", Message: "WorkerProc initialization failed", Process: "EngineCore_DP0", At: after(22.5), Count: 3},
		{Verdict: "benign", Class: "unknown", Message: "Failed to import a thing that is not needed", At: after(12), Count: 9},
	}
	s.Gaps, s.GapCount = []api.Gap{{Kind: "suppressed", Lines: 812, Detail: "journald's rate limit", At: after(20)}}, 1
	return u
}

func serving() api.Unit {
	u := loading()
	u.State, u.Since, u.LastOutcome = "serving", after(792), api.Serving
	u.Ready = api.Ready{Log: ptr(true), Port: ptr(true), Health: ptr(true)}
	s := u.Startup
	s.Outcome, s.Phase, s.Step, s.Progress, s.Ended, s.Seconds, s.Final = api.Serving, "serving", "", nil, after(792), ptr(792.0), true
	s.ExpectedServing, s.Findings, s.NewErrors = time.Time{}, s.Findings[:2], ptr(0)
	cuda := phase("cudagraph", 0, 0, true, "")
	cuda.Skipped = true
	s.Phases = []api.Phase{phase("spawn", 0, 21, true, "first line"), phase("load", 21, 551, true, "Starting to load model"),
		phase("compile", 572, 220, true, "Model loading took 73.7 GiB"), cuda, phase("serving", 792, 7500, false, "Application startup complete.")}
	s.PlateauBytes = map[int]uint64{0: 79134984192, 1: 79134984192}
	u.Last = nil
	return u
}

func servedThenDied() api.Unit {
	u := serving()
	u.State, u.Since, u.Ready = api.Failed, after(8292), api.Ready{Log: ptr(true), Port: ptr(false), Health: ptr(false)}
	s := u.Startup
	s.ServingEnded, s.ServingEndReason = after(8292), "killed"
	s.Phases[len(s.Phases)-1].Done = true
	return u
}

func unknown() *api.Status {
	s := status(0, api.Unit{Unit: "vllm.service", State: "unknown"})
	s.Sources = []api.Source{
		{Source: "journal", State: "not_permitted", Reason: "the journal of other users can't be read; join group systemd-journal", Since: after(-60)},
		{Source: "gpu", State: "no_driver", Reason: "libnvidia-ml.so.1 was not found", Since: after(-60)},
		{Source: "health", Unit: "vllm.service", State: "no_url", Reason: "no health URL is known"},
	}
	return s
}

// hostile is a failed start whose every text tries to get out of its place.
func hostile() api.Unit {
	u := failed()
	evil := "\x1b[2J\x1b]0;owned\a\r\nfake line \u202eright to left\u202c\t漢字漢字漢字 🙂🙂 e" + strings.Repeat("\u0301", 40) + " " + strings.Repeat("x", 5000) + "\x9b31m\xff"
	u.Unit = "vllm-" + evil
	s := u.Startup
	s.Model, s.Version, s.Step, s.Reason, s.ProgressNote, s.Host = evil, evil, evil, evil, evil, evil
	s.RootCause.Message, s.RootCause.Exception, s.RootCause.Process = evil, evil, evil
	s.RootCause.Cursor = "'; rm -rf ~; '"
	s.RootCause.LastLines = map[string]string{evil: evil}
	s.RootCause.DiedIn, s.RootCause.ExitStatus, s.RootCause.Remediation = evil, evil, evil
	s.RootCause.NotArrived = []string{evil, evil}
	for i := range s.Findings {
		s.Findings[i].Message, s.Findings[i].Process, s.Findings[i].Class = evil, evil, evil
	}
	s.Gaps[0].Detail = evil
	u.Disagreement = evil
	return u
}

// many are 20 units, in every condition.
func many() *api.Status {
	var units []api.Unit
	for i := range 20 {
		u := []func() api.Unit{serving, serving, loading, serving, failed, compiling, stalled, serving}[i%8]()
		u.Unit = fmt.Sprintf("vllm-model-%02d.service", i)
		if u.State == api.Serving {
			u.Since = after(-3600 * float64(i+1))
		}
		units = append(units, u)
	}
	units = append(units, api.Unit{Unit: "vllm-stopped.service", State: "stopped", Since: after(-3600)})
	return gpus(status(300, units...), 4, 3*gibi, 0)
}

// scenes are what the goldens show, by name.
func scenes() map[string]*api.Status {
	lost := gpus(status(252, loading()), 4, 31*gibi, 12*gibi)
	lost.GPUs[2] = api.GPU{GPU: 2, Lost: "GPU is lost", Xids: []api.Xid{{Xid: 79, Count: 2, Last: after(200)}}}
	delete(lost.Units[0].GPUMemory, 2)
	return map[string]*api.Status{
		"loading":   gpus(status(252, loading()), 4, 31*gibi, 0),
		"foreign":   lost,
		"compiling": gpus(status(600, compiling()), 4, 76*gibi, 0),
		"stalled":   gpus(status(900, stalled()), 2, 0, 0),
		"failed":    gpus(status(300, failed()), 4, 0, 0),
		"serving":   gpus(status(8292, serving()), 2, 86*gibi, 0),
		"eight":     gpus(status(252, loading()), 8, 31*gibi, 0),
		"died":      gpus(status(8400, servedThenDied()), 2, 0, 0),
		"unknown":   unknown(),
		"hostile":   gpus(status(300, hostile()), 1, 0, 0),
		"many":      many(),
		"none":      status(0),
	}
}
