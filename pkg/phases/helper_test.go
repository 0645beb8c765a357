package phases

import (
	"math"
	"sync"
	"testing"
	"time"

	"github.com/startupd/startupd/pkg/event"
	"github.com/startupd/startupd/pkg/profile"
)

const (
	unit  = "llm.service"
	first = "11111111111111111111111111111111"
	other = "22222222222222222222222222222222"
	boot  = "b0000000000000000000000000000000"
)

var epoch = time.Date(2026, 3, 1, 23, 30, 0, 0, time.UTC)

// at is a moment s seconds after the epoch.
func at(s float64) event.Stamp {
	d := time.Duration(s * float64(time.Second))
	return event.Stamp{Real: epoch.Add(d), Boot: boot, Mono: time.Hour + d}
}

// script drives a host with one target, as its sources would.
type script struct {
	t    *testing.T
	host *Host
	inv  string
	now  float64
}

var builtin = sync.OnceValues(profile.Builtin)

func newScript(t *testing.T, change ...func(*Config)) *script {
	t.Helper()
	set, err := builtin()
	if err != nil {
		t.Fatal(err)
	}
	cfg := Config{Name: unit, Profiles: set.Profiles()}
	for _, c := range change {
		c(&cfg)
	}
	return &script{t: t, host: NewHost(HostOptions{}, cfg), inv: first}
}

func (s *script) apply(sec float64, d event.Data) {
	s.now = sec
	s.host.Apply(event.Event{At: at(sec), Target: unit, Data: d})
}

func (s *script) hostWide(sec float64, d event.Data) {
	s.now = sec
	s.host.Apply(event.Event{At: at(sec), Data: d})
}

func (s *script) line(sec float64, text string) {
	s.apply(sec, &event.Line{Text: text, Invocation: s.inv, Origin: event.OriginUnit, PID: 100})
}

func (s *script) message(sec float64, d event.UnitMessage) {
	if d.Invocation == "" {
		d.Invocation = s.inv
	}
	s.apply(sec, &d)
}

func (s *script) tick(sec float64) { s.hostWide(sec, &event.Tick{}) }

// memory samples GPUs that all hold the same for the unit.
func (s *script) memory(sec float64, gpus int, gib float64) {
	used := uint64(gib * (1 << 30))
	sample := &event.GPUSample{}
	for i := range gpus {
		sample.GPUs = append(sample.GPUs, event.GPU{Index: i, UsedBytes: &used, Processes: []event.GPUProcess{
			{PID: 900 + i, UsedBytes: &used, Unit: unit, Cgroup: "/system.slice/" + unit},
		}})
	}
	s.hostWide(sec, sample)
}

func (s *script) target() Target {
	s.t.Helper()
	targets := s.host.Snapshot().Targets
	if len(targets) != 1 {
		s.t.Fatalf("%d targets, want 1", len(targets))
	}
	return targets[0]
}

func (s *script) startup() *Startup {
	s.t.Helper()
	st := s.target().Startup
	if st == nil {
		s.t.Fatal("no startup")
	}
	s.partition(st)
	return st
}

// partition checks what must hold of every startup: its phases add up.
func (s *script) partition(st *Startup) {
	s.t.Helper()
	end := st.Ended
	if end.IsZero() {
		end = s.host.Snapshot().At
	}
	sum := 0.0
	for i, p := range st.Phases {
		if p.Seconds < 0 {
			s.t.Errorf("%s lasts %v s", p.Phase, p.Seconds)
		}
		if i > 0 && p.Entered.Before(st.Phases[i-1].Entered) {
			s.t.Errorf("%s was entered before %s", p.Phase, st.Phases[i-1].Phase)
		}
		if p.Phase != Serving {
			sum += p.Seconds
		}
	}
	if want := end.Sub(st.Began).Seconds(); math.Abs(sum-want) > 1e-6 {
		s.t.Errorf("the phases add up to %v s, the startup lasted %v s", sum, want)
	}
}

func (s *script) wantState(want State) {
	s.t.Helper()
	if got := s.target().State; got != want {
		s.t.Fatalf("at %v s: state %s, want %s (%+v)", s.now, got, want, s.target().Startup)
	}
}

func (s *script) wantCounts(serving, failed, stopped uint64) {
	s.t.Helper()
	c := s.target().Counters.Startups
	if c[OutcomeServing] != serving || c[OutcomeFailed] != failed || c[OutcomeStopped] != stopped {
		s.t.Fatalf("counted %v, want serving %d, failed %d, stopped %d", c, serving, failed, stopped)
	}
}

func phasesOf(st *Startup) []State {
	var out []State
	for _, p := range st.Phases {
		out = append(out, p.Phase)
	}
	return out
}

// Lines of a good start, in order.
const (
	lineBanner   = "(APIServer pid=100)   █▄█▀ █     █     █     █  model   acme/moe-nvfp4"
	lineVersion  = "(APIServer pid=100)  ▄▄ ▄█ █     █     █ ▀▄▀ █  version 0.16.0rc2.dev344"
	lineInit     = "(EngineCore_DP0 pid=200) INFO 03-01 23:30:10 [core.py:98] Initializing a V1 LLM engine (v0.16.0rc2.dev344) with config: model='acme/moe-nvfp4', tensor_parallel_size=8"
	lineBenign   = "(Worker_TP0 pid=300) ERROR 03-01 23:30:15 [gpt_oss_triton_kernels_moe.py:61] Failed to import Triton kernels. Please make sure your triton version is compatible. Error: cannot import name 'SparseMatrix' from 'triton_kernels.tensor'"
	lineLoad     = "(Worker_TP0 pid=300) INFO 03-01 23:30:21 [gpu_model_runner.py:4124] Starting to load model acme/moe-nvfp4..."
	lineBar25    = "(Worker_TP0 pid=300) Loading safetensors checkpoint shards:  25% Completed | 1/4 [00:01<00:03,  1.10s/it]"
	lineBar50    = "(Worker_TP0 pid=300) Loading safetensors checkpoint shards:  50% Completed | 2/4 [00:02<00:02,  1.10s/it]"
	lineLoaded   = "(Worker_TP0 pid=300) INFO 03-01 23:39:00 [gpu_model_runner.py:4221] Model loading took 73.7 GiB memory and 520.0 seconds"
	lineDynamo   = "(Worker_TP0 pid=300) INFO 03-01 23:39:10 [backends.py:430] Dynamo bytecode transform time: 9.73 s"
	lineKV       = "(Worker_TP0 pid=300) INFO 03-01 23:40:00 [gpu_worker.py:298] Available KV cache memory: 11.22 GiB"
	lineCapture  = "(Worker_TP0 pid=300) Capturing CUDA graphs (mixed prefill-decode, PIECEWISE):  50%|█████     | 25/51 [00:04<00:04,  6.20it/s]"
	lineCaptured = "(Worker_TP0 pid=300) INFO 03-01 23:42:00 [gpu_model_runner.py:5360] Graph capturing finished in 14 secs, took 0.69 GiB"
	lineEngine   = "(EngineCore_DP0 pid=200) INFO 03-01 23:42:05 [core.py:282] init engine (profile, create kv cache, warmup model) took 43.05 seconds"
	lineListen   = "(APIServer pid=100) INFO 03-01 23:42:10 [api_server.py:500] Starting vLLM API server 0 on http://0.0.0.0:8000"
	lineReady    = "(APIServer pid=100) INFO:     Application startup complete."
	lineWrapper  = "(EngineCore_DP0 pid=200) ERROR 03-01 23:30:30 [core.py:708] EngineCore failed to start."
)

// goodStart plays a whole start from the given second on.
func (s *script) goodStart(from float64) {
	for _, l := range []struct {
		after float64
		text  string
	}{
		{0, lineVersion}, {0, lineBanner}, {10, lineInit}, {15, lineBenign}, {21, lineLoad}, {60, lineBar25}, {300, lineBar50},
		{540, lineLoaded}, {550, lineDynamo}, {600, lineKV}, {660, lineCapture}, {720, lineCaptured}, {725, lineEngine},
		{730, lineListen}, {792, lineReady},
	} {
		s.line(from+l.after, l.text)
	}
}
