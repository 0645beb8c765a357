package preflight

import (
	"context"
	"strings"
	"testing"

	"github.com/startupd/startupd/pkg/event"
)

func TestGPUMemory(t *testing.T) {
	h := newHost(t)
	for _, c := range []struct {
		name   string
		gpus   []event.GPU
		argv   []string
		status Status
		text   string
	}{
		{"enough", cards(1, 1, 80), []string{"--gpu-memory-utilization", "0.9"}, OK, "needs 0.90 x 80.0 GiB = 72.0 GiB (--gpu-memory-utilization), 79.0 GiB free"},
		{"as a pair, with _", cards(1, 1, 80), []string{"--gpu_memory_utilization=0.5"}, OK, "needs 0.50 x 80.0 GiB = 40.0 GiB"},
		{"the last flag counts", cards(1, 1, 80), []string{"--gpu-memory-utilization=0.5", "--gpu-memory-utilization=0.6"}, OK, "0.60 x"},
		{"too little", cards(1, 10, 80), []string{"--gpu-memory-utilization", "0.9"}, Fail, "GPU 0 needs 0.90 x 80.0 GiB = 72.0 GiB (--gpu-memory-utilization), 70.0 GiB free"},
		{"hardly enough", cards(1, 7.5, 80), []string{"--gpu-memory-utilization", "0.9"}, Warning, "72.5 GiB free"},
		{"any default is enough", cards(1, 1, 80), nil, OK, "0.90 or 0.92 (default, by a version that is not known)"},
		{"no default is enough", cards(1, 20, 80), nil, Fail, "60.0 GiB free"},
		{"between the defaults", cards(1, 7, 80), nil, Unknown, "73.0 GiB free"},
		{"no number", cards(1, 1, 80), []string{"--gpu-memory-utilization", "lots"}, Unknown, `"lots"`},
		{"no share", cards(1, 1, 80), []string{"--gpu-memory-utilization", "1.5"}, Unknown, `"1.5"`},
		{"partitioned", []event.GPU{{MIG: true, Name: "x"}}, nil, Unknown, "MIG"},
		{"unified memory", []event.GPU{{Name: "x"}}, nil, Unknown, "unified memory"},
	} {
		t.Run(c.name, func(t *testing.T) {
			r := Run(t.Context(), h.options(c.gpus, append([]string{"vllm", "serve", "m"}, c.argv...)...))
			got := want(t, r, CheckGPUMemory, c.status, c.text)
			if (c.status == Fail) != (got.Class == "gpu_memory_occupied") {
				t.Errorf("class %q", got.Class)
			}
			if (r.Verdict == NotFit) != (c.status == Fail) {
				t.Errorf("verdict %s: %s", r.Verdict, r.Summary())
			}
		})
	}
}

// Good GPUs share a line, and the bad ones have one each.
func TestGPUsTogether(t *testing.T) {
	h := newHost(t)
	gpus := cards(8, 1, 80)
	gpus[3] = card(3, 40, 80)
	r := Run(t.Context(), h.options(gpus, "vllm", "serve", "m", "-tp", "8", "--gpu-memory-utilization=0.9"))
	got := of(r, CheckGPUMemory)
	if len(got) != 2 || !strings.HasPrefix(got[0].What, "GPUs 0-2, 4-7: the tightest needs") || got[1].GPU == nil || *got[1].GPU != 3 {
		t.Errorf("%+v", got)
	}
	// A start that takes fewer of them does not need the fourth.
	r = Run(t.Context(), h.options(gpus, "vllm", "serve", "m", "-tp", "2", "--gpu-memory-utilization=0.9"))
	if r.Verdict != Fit {
		t.Errorf("%s", r.Summary())
	}
}

func TestGPUCount(t *testing.T) {
	h := newHost(t)
	mixed := cards(2, 1, 80)
	mixed[1].Name = "Other"
	lost := cards(2, 1, 80)
	lost[1] = event.GPU{Index: 1, Name: "Card", Lost: "GPU is lost"}
	for _, c := range []struct {
		name   string
		gpus   []event.GPU
		env    string
		argv   string
		status Status
		text   string
	}{
		{"one by default", cards(4, 1, 80), "", "", OK, "needs 1 GPU, sees 4 GPUs of this host's 4"},
		{"sizes multiply", cards(8, 1, 80), "", "-tp 4 --pipeline_parallel_size=2", OK, "needs 8 GPUs (tensor-parallel 4 x pipeline-parallel 2)"},
		{"data parallel", cards(2, 1, 80), "", "-tp 2 --data-parallel-size 2", Fail, "needs 4 GPUs (tensor-parallel 2 x data-parallel 2), and sees 2 GPUs"},
		{"data parallel, some here", cards(2, 1, 80), "", "-tp 2 -dp 8 -dpl 1", OK, "needs 2 GPUs"},
		{"one of the data-parallel parts", cards(1, 1, 80), "", "-dp 8 --data-parallel-rank 3", OK, "needs 1 GPU"},
		{"one of them, on some GPU", cards(8, 1, 80), "", "-dp 8 --data-parallel-rank 3", Unknown, "which of them this part of several takes"},
		{"parts elsewhere", cards(1, 1, 80), "", "-dp 8 --data-parallel-backend ray", Unknown, "other hosts"},
		{"too few are visible", cards(8, 1, 80), "CUDA_VISIBLE_DEVICES=0,1", "-tp 4", Fail, "sees 2 GPUs of this host's 8 by CUDA_VISIBLE_DEVICES=0,1"},
		{"by UUID", cards(8, 1, 80), "CUDA_VISIBLE_DEVICES=GPU-00000007", "", OK, "1 GPU of this host's 8"},
		{"none is visible", cards(8, 1, 80), "CUDA_VISIBLE_DEVICES=", "", Fail, "sees 0 GPUs"},
		{"what CUDA does not know ends the list", cards(8, 1, 80), "CUDA_VISIBLE_DEVICES=0,-1,1", "-tp 2", Fail, "sees 1 GPU"},
		{"a MIG device", cards(1, 1, 80), "CUDA_VISIBLE_DEVICES=MIG-1", "", Unknown, "MIG device"},
		{"numbers of different GPUs", mixed, "CUDA_VISIBLE_DEVICES=1", "", Unknown, "CUDA_DEVICE_ORDER"},
		{"several hosts", cards(8, 1, 80), "", "-tp 8 --nnodes 2 -pp 2", OK, "needs 8 GPUs"},
		{"workers elsewhere", cards(1, 1, 80), "", "-tp 8 --distributed-executor-backend ray", Unknown, "other hosts"},
		{"no number", cards(1, 1, 80), "", "-tp eight", Unknown, `the tensor-parallel size "eight"`},
		{"nonsense", cards(1, 1, 80), "", "-tp 1000000 -pp 1000000 -dp 1000000", Unknown, "do not fit"},
		{"one is lost", lost, "", "-tp 2", Fail, "GPU 1: GPU is lost"},
		{"one is lost that is not needed", lost, "", "", OK, "needs 1 GPU"},
	} {
		t.Run(c.name, func(t *testing.T) {
			o := h.options(c.gpus, append([]string{"vllm", "serve", "m"}, strings.Fields(c.argv)...)...)
			if c.env != "" {
				o.Environ = []string{c.env}
			}
			want(t, Run(t.Context(), o), CheckGPUs, c.status, c.text)
		})
	}
}

// What can't be seen is not good: without a driver the engine can't start, but a
// look that was not possible says nothing.
func TestNoGPUs(t *testing.T) {
	h := newHost(t)
	for dir, version := range map[string]string{"/opt/venv": "0.16.0", "/opt/cpu": "0.16.0+cpu"} {
		h.file(dir+"/pyvenv.cfg", "version = 3.12.3\n")
		h.file(dir+"/bin/vllm", "#!"+dir+"/bin/python\n")
		h.file(dir+"/lib/python3.12/site-packages/vllm-"+version+".dist-info/METADATA", "Name: vllm\nVersion: "+version+"\n")
	}
	for _, c := range []struct {
		name   string
		look   GPULook
		argv   []string
		status Status
	}{
		{"no driver", GPULook{State: "no_driver", Reason: "can't load it", NoDriver: true}, []string{"/opt/venv/bin/vllm", "serve", "m"}, Fail},
		{"no GPU", GPULook{State: "no_gpu", Reason: "lists no GPU"}, []string{"vllm", "serve", "m"}, Fail},
		{"no driver, and no known build", GPULook{State: "no_driver", Reason: "can't load it", NoDriver: true}, []string{"vllm", "serve", "m"}, Unknown},
		{"a build for CPUs", GPULook{State: "no_driver", Reason: "0.16.0+cpu is a build for no GPU", NoDriver: true}, []string{"/opt/cpu/bin/vllm", "serve", "m"}, Unknown},
		{"a build that can't look", GPULook{State: "no_driver", Reason: "built without cgo", Blind: true}, []string{"vllm", "serve", "m"}, Unknown},
		{"an unknown engine", GPULook{State: "no_driver", Reason: "can't load it"}, []string{"other", "run"}, Unknown},
	} {
		t.Run(c.name, func(t *testing.T) {
			o := h.options(nil, c.argv...)
			o.GPUs = func(context.Context) GPULook { return c.look }
			r := Run(t.Context(), o)
			want(t, r, CheckGPUs, c.status, c.look.Reason)
			if c.argv[0] == "other" && r.Verdict != CannotTell {
				t.Errorf("verdict %s", r.Verdict)
			}
		})
	}
}

func TestHolders(t *testing.T) {
	h := newHost(t)
	h.process(proc{pid: 1, argv: []string{"/sbin/init"}})
	h.process(proc{pid: 41, parent: 1, uid: 1000, argv: []string{"ollama", "runner", "--api-key", "sk-abcdefghijklmnop"}, cgroup: "/system.slice/ollama.service"})
	h.process(proc{pid: 42, parent: 1, argv: []string{"VLLM::Worker_TP0"}, cgroup: "/user.slice/session-3.scope"})
	h.process(proc{pid: 43, parent: 44, state: "Z", cgroup: "/system.slice/llm.service (deleted)"})
	h.process(proc{pid: 44, parent: 1, argv: []string{"/usr/bin/wrapper"}})
	h.process(proc{pid: 45, parent: 1, state: "D", argv: []string{"python"}, cgroup: "/system.slice/llm.service"})
	h.process(proc{pid: 46, parent: 9, state: "Z", threads: []string{"D", "S"}})
	h.process(proc{pid: 47, parent: 1, argv: []string{"python"}, environ: "A=b\x00MEMORY_PRESSURE_WATCH=/sys/fs/cgroup/system.slice/llm.service/memory.pressure\x00"})
	h.process(proc{pid: 48, parent: 1, state: "T", argv: []string{"python"}})
	box := strings.Repeat("a", 64)
	boxed := holding(49, 1, "docker-"+box+".scope")
	boxed.Container = box
	gpus := []event.GPU{card(0, 75, 80, holding(41, 30, "ollama.service"), holding(42, 9, "session-3.scope"), holding(43, 8, ""), holding(45, 7, "llm.service"),
		holding(46, 6, ""), holding(47, 5, ""), holding(48, 4, ""), boxed)}
	r := Run(t.Context(), h.options(gpus, "vllm", "serve", "m").withUnit(Unit{}))
	got := map[int]Holder{}
	for _, x := range want(t, r, CheckGPUMemory, Fail, "5.0 GiB free").Holders {
		got[x.PID] = x
	}
	for _, c := range []struct {
		pid                       int
		role, unit, user, meaning string
	}{
		{41, "", "ollama.service", "llm", ""},
		{42, RoleOrphan, "session-3.scope", "root", ""},
		{43, RoleLeftOver, "llm.service", "root", "its parent, PID 44 (wrapper), to reap it"},
		{45, RoleLeftOver, "llm.service", "root", "can't be killed"},
		{46, "", "", "root", "1 thread of it still waits inside the kernel (D)"},
		{47, RoleLeftOver, "", "root", ""},
		{48, "", "", "root", "it is stopped"},
	} {
		x := got[c.pid]
		if x.Role != c.role || x.Unit != c.unit || x.User != c.user || !strings.Contains(x.StateMeaning, c.meaning) || (c.meaning == "") != (x.StateMeaning == "") {
			t.Errorf("%d: %+v; want role %q of %q, user %s, state %q", c.pid, x, c.role, c.unit, c.user, c.meaning)
		}
	}
	if x := got[49]; x.Container != box || x.Bytes == nil {
		t.Errorf("container: %+v", x)
	}
	if x := got[49]; !strings.Contains(x.StateMeaning, "not in /proc") {
		t.Errorf("a process that is gone: %+v", x)
	}
	if x := got[0]; bytesOf(x.Bytes) != 5*gibi || !strings.Contains(x.StateMeaning, "no process is listed") {
		t.Errorf("what nobody seems to hold: %+v", x)
	}
	if x := got[41]; x.Since.Unix() != 1700000000+3600 || !strings.HasPrefix(x.Command, "ollama runner --api-key ") || strings.Contains(x.Command, "abcdefgh") || x.State != "S" {
		t.Errorf("%+v", x)
	}
}

// A unit that runs gives its memory and its port back before it starts again.
func TestRunningUnit(t *testing.T) {
	h := newHost(t)
	h.process(proc{pid: 50, parent: 1, argv: []string{"python"}, cgroup: "/system.slice/llm.service", socket: 99})
	h.sockets("00000000:1F40 0A 0 99")
	gpus := []event.GPU{card(0, 75, 80, holding(50, 74, "llm.service"))}
	o := h.options(gpus, "vllm", "serve", "m", "--gpu-memory-utilization", "0.9")
	r := Run(t.Context(), o.withUnit(Unit{MainPID: 50, ActiveState: "active"}))
	want(t, r, CheckUnit, Warning, "llm.service runs (main PID 50)")
	want(t, r, CheckGPUMemory, OK, "79.0 GiB free once the running unit has given back its 74.0 GiB")
	want(t, r, CheckPort, OK, "is the running unit's own")
	// Left over from a start before, it holds them.
	r = Run(t.Context(), o.withUnit(Unit{ActiveState: "activating", SubState: "start-pre"}))
	want(t, r, CheckPort, Fail, "0.0.0.0:8000 is taken")
	if x := want(t, r, CheckGPUMemory, Fail, "5.0 GiB free"); len(x.Holders) == 0 || x.Holders[0].Role != RoleLeftOver || !strings.Contains(x.Do, "kill 50") {
		t.Errorf("%+v", x)
	}
}

func TestWeights(t *testing.T) {
	h := newHost(t)
	h.file("/models/m/a-1.safetensors", strings.Repeat("x", 1000))
	h.file("/models/m/a-2.safetensors", strings.Repeat("x", 500))
	h.file("/models/m/readme.txt", "no weights")
	big := uint64(75 * gibi)
	for _, c := range []struct {
		name   string
		weight *uint64
		argv   string
		status Status
		text   string
	}{
		{"of files", nil, "-tp 2", OK, "1500 bytes of files / 2"},
		{"told", &big, "", OK, "weights of 75.0 GiB on each GPU (expected_weights)"},
		{"too big", &big, "--gpu-memory-utilization 0.9", Fail, "do not fit into the 72.0 GiB"},
		{"some stay in memory", &big, "--gpu-memory-utilization 0.9 --cpu-offload-gb 10", Unknown, "part stays in the host's memory"},
	} {
		t.Run(c.name, func(t *testing.T) {
			argv := append([]string{"vllm", "serve", "/models/m"}, strings.Fields(c.argv)...)
			if c.argv == "" {
				argv = append(argv, "--gpu-memory-utilization", "0.95")
			}
			o := h.options(cards(2, 1, 80), argv...)
			o.WeightBytes, o.WeightsFrom = c.weight, "expected_weights"
			want(t, Run(t.Context(), o), CheckWeights, c.status, c.text)
		})
	}
	// Files alone may shrink when they are loaded: they only warn.
	o := h.options(cards(1, 0, 1.0/(1<<20)), "vllm", "serve", "/models/m", "--gpu-memory-utilization", "0.9")
	want(t, Run(t.Context(), o), CheckWeights, Warning, "do not fit")
	// So does an earlier start, whose arguments may have been others; of another
	// model it tells nothing.
	o = h.options(cards(1, 1, 80), "vllm", "serve", "acme/one", "--gpu-memory-utilization", "0.5")
	o.LastWeights = &Weights{Bytes: 75 * gibi, Model: "acme/one", From: "the start of 2026-03-01"}
	want(t, Run(t.Context(), o), CheckWeights, Warning, "(the start of 2026-03-01) do not fit into the 40.0 GiB")
	o.LastWeights.Model = "acme/big"
	if found := of(Run(t.Context(), o), CheckWeights); found != nil {
		t.Errorf("another model's weights: %+v", found)
	}
	// With a cache of a fixed size the share bounds no weights.
	o = h.options(cards(1, 1, 80), "vllm", "serve", "acme/one", "--gpu-memory-utilization", "0.5", "--kv-cache-memory-bytes", "1G")
	o.WeightBytes, o.WeightsFrom = &big, "expected_weights"
	want(t, Run(t.Context(), o), CheckWeights, OK, "in the 80.0 GiB that the GPU has")
}

// Before a certain version a model that is too big went to other hosts by itself.
func TestOtherHosts(t *testing.T) {
	h := newHost(t)
	for version, status := range map[string]Status{"0.10.2": Unknown, "0.16.0": Fail} {
		dir := "/opt/" + version
		h.file(dir+"/pyvenv.cfg", "version = 3.12.3\n")
		h.file(dir+"/bin/vllm", "#!"+dir+"/bin/python\n")
		h.file(dir+"/lib/python3.12/site-packages/vllm-"+version+".dist-info/METADATA", "Name: vllm\nVersion: "+version+"\n")
		want(t, Run(t.Context(), h.options(cards(1, 1, 80), dir+"/bin/vllm", "serve", "m", "-tp", "2")), CheckGPUs, status, "needs 2 GPUs")
		want(t, Run(t.Context(), h.options(cards(2, 1, 80), dir+"/bin/vllm", "serve", "m", "-tp", "2")), CheckGPUs, OK, "needs 2 GPUs")
	}
}
