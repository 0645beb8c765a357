package triage

import (
	"strings"
	"testing"
)

func TestMaskMessage(t *testing.T) {
	for _, test := range []struct{ name, text, want string }{
		{"url", "Failed to reach https://h.example:8443/v1?a=1, giving up.", "Failed to reach <url>, giving up."},
		{"url of a socket", "bind ipc:///tmp/3f2a9c71-0000 (tcp://10.0.0.1:29500)", "bind <url> (<url>)"},
		{"path", "No such file: /data/models/m-7/config.json.", "No such file: <path>."},
		{"path, home and relative", "~/x/y ./run ../run src/app/a.py", "<path> <path> <path> <path>"},
		{"path with line", "at /opt/app/core.py:123", "at <path>:<num>"},
		{"quoted path", `File "/opt/my app/core.py", line 12`, `File <quoted>, line <num>`},
		{"model", "load org/model-7b-instruct now", "load <path> now"},
		{"no path", "and/or tokens/s N/A 3/4", "and/or tokens/s N/A <num>/<num>"},
		{"ip", "connect 10.0.0.1 and 10.0.0.1:29500 and [fe80::1]:80", "connect <addr> and <addr> and [<addr>]:<num>"},
		{"host and port", "node-7:29500 localhost:80 a.example.com:443", "<addr> <addr> <addr>"},
		{"no host", "core.py:123 cuda:0 line:12 worker.py:12345", "core.py:<num> cuda:<num> line:<num> worker.py:<num>"},
		{"pointer", "<a.B object at 0x7f01c2>", "<a.B object at <addr>>"},
		{"pci", "GPU 0000:3b:00.0 and 00000000:3B:00.0:", "GPU <addr> and <addr>:"},
		{"uuid", "GPU-8f6a1c22-0b1d-4e5f-9a3b-0123456789ab", "GPU-<uuid>"},
		{"time", "2025-11-30 20:24:11,123 11-30 20:24:11 2025-11-30T20:24:11.5Z", "<time> <num>-<num> <time> <time>"},
		{"hex", "commit 0a1b2c3d psm_1a2b3c4d deadbeef", "commit <hex> psm_<hex> deadbeef"},
		{"size", "Tried 12.30 GiB, 512MB, 16G, 5 bytes, 7B.", "Tried <size>, <size>, <size>, <size>, <size>."},
		{"duration", "after 3.2 s, 5m, 1h2m3s, 10 seconds, 600s", "after <duration>, <duration>, <duration>, <duration>, <duration>"},
		{"version", "0.6.13, 0.6.16.post3, v0.11.1rc2.dev313+g0a1b2c3d, 2.9+cu128, >=0.7.1,<0.8",
			"<version>, <version>, <version>, <version>, >=<version>,<<num>"},
		{"numbers", "rank 3 of 1,234 at -5 1e-05 85% x=7 1-2", "rank <num> of <num> at <num> <num> <num>% x=<num> <num>-<num>"},
		{"ranks", "Worker_TP3_EP12 EngineCore_DP0 EngineCore_0 rank3 gpu:2 model.layers.31.mlp",
			"Worker_TP<num>_EP<num> EngineCore_DP<num> EngineCore_<num> rank<num> gpu:<num> model.layers.<num>.mlp"},
		{"shards", "model-00001-of-00005.safetensors", "model-<num>-of-<num>.safetensors"},
		{"identifiers", "Qwen2ForCausalLM fp8_e4m3 H100 sm_90a sm_90 int8 --max-model-len VLLM_USE_V1 bf16 MI300X",
			"Qwen2ForCausalLM fp8_e4m3 H100 sm_90a sm_90 int8 --max-model-len VLLM_USE_V1 bf16 MI300X"},
		{"quoted name", "No module named 'flash_attn', 'max_model_len=5' \"cuda:0\"", "No module named 'flash_attn', 'max_model_len=<num>' \"cuda:<num>\""},
		{"quoted value", "invalid literal: 'a b c' and \"x, y\"", "invalid literal: <quoted> and <quoted>"},
		{"call", "RuntimeError('no room on rank 3'), more 'a b'", "RuntimeError('no room on rank <num>'), more <quoted>"},
		{"apostrophes", "can't read the workers' memory, don't", "can't read the workers' memory, don't"},
		{"open quote", "it is 'not closed 5", "it is 'not closed <num>"},
		{"quote over lines", "a 'b\nc' d", "a 'b\nc' d"},
		{"blanks", "  a \t b \n\n c ", "a b\nc"},
		{"masked", "<num> <path>:<num> '<num>'", "<num> <path>:<num> '<num>'"},
		{"unicode", "größe 5 µs ключ 7", "größe <duration> ключ <num>"},
		{"empty", "", ""},
	} {
		t.Run(test.name, func(t *testing.T) {
			got := MaskMessage(test.text)
			if got != test.want {
				t.Errorf("MaskMessage(%q)\n got %q\nwant %q", test.text, got, test.want)
			}
			if again := MaskMessage(got); again != got {
				t.Errorf("masked again: %q, want %q", again, got)
			}
		})
	}
}

// Pairs of reports of the same error by other hosts, ranks, times and versions.
func TestFingerprintOfTheSameError(t *testing.T) {
	for _, pair := range [][2]string{
		{"CUDA out of memory. Tried to allocate 2.50 GiB. GPU 0 has a total capacity of 79.19 GiB of which 1.06 GiB is free.",
			"CUDA out of memory. Tried to allocate 512.00 MiB. GPU 7 has a total capacity of 139.80 GiB of which 31.00 MiB is free."},
		{"Worker proc VllmWorker-0 died unexpectedly", "Worker proc VllmWorker-13 died unexpectedly"},
		{"Engine core initialization failed. Failed core proc(s): {'EngineCore_DP0': 1}", "Engine core initialization failed. Failed core proc(s): {'EngineCore_DP5': 1}"},
		{"flashinfer 0.6.13 needs cubins of 0.6.13", "flashinfer 0.6.16.post3 needs cubins of 0.6.14"},
		{"[Errno 98] address ('10.0.0.1', 8000) is in use", "[Errno 98] address ('10.9.8.7', 8001) is in use"},
		{"The server socket has failed to listen on node-1:29500", "The server socket has failed to listen on node-22:31999"},
		{"Cannot open /data/a/model-00001-of-00004.safetensors", "Cannot open /mnt/weights/b/model-00003-of-00008.safetensors"},
		{"Watchdog caught collective operation timeout: WorkNCCL(SeqNum=12, OpType=ALLREDUCE) ran for 600001 milliseconds",
			"Watchdog caught collective operation timeout: WorkNCCL(SeqNum=99, OpType=ALLREDUCE) ran for 600042 milliseconds"},
		{"<vllm.Core object at 0x7f01c2> is not ready after 5 s", "<vllm.Core object at 0x55aa01> is not ready after 12.5 s"},
		{"KeyError: 'model.layers.0.self_attn.qkv_proj.weight'", "KeyError: 'model.layers.61.self_attn.qkv_proj.weight'"},
		{"max seq len (131072) is larger than the 65,536 tokens of the KV cache (12.3 GiB)", "max seq len (8192) is larger than the 4,096 tokens of the KV cache (0.9 GiB)"},
		{"api_key='one' was refused", "api_key='two' was refused"},
		{"Xid (PCI:0000:3b:00): 79", "Xid (PCI:0000:5e:00): 79"},
	} {
		a, b := Fingerprint("RuntimeError", nil, pair[0]), Fingerprint("RuntimeError", nil, pair[1])
		if a != b {
			t.Errorf("differ:\n%q\n%q", MaskMessage(pair[0]), MaskMessage(pair[1]))
		}
	}
}

// Pairs of reports that are alike and of different errors.
func TestFingerprintOfDifferentErrors(t *testing.T) {
	frames := []Frame{{"/x/site-packages/vllm/a.py", "f"}, {"/x/site-packages/vllm/b.py", "g"}}
	type report struct {
		exception string
		frames    []Frame
		message   string
	}
	for _, pair := range [][2]report{
		{{"ModuleNotFoundError", nil, "No module named 'flash_attn'"}, {"ModuleNotFoundError", nil, "No module named 'xformers'"}},
		{{"ValueError", nil, "Qwen2ForCausalLM is not supported"}, {"ValueError", nil, "Qwen3ForCausalLM is not supported"}},
		{{"ValueError", nil, "--max-model-len is too large"}, {"ValueError", nil, "--max-num-seqs is too large"}},
		{{"ValueError", nil, "no room"}, {"RuntimeError", nil, "no room"}},
		{{"RuntimeError", nil, "CUDA error: an illegal memory access was encountered"}, {"RuntimeError", nil, "CUDA error: unspecified launch failure"}},
		{{"EngineError", nil, "failed: ValueError('no such quantization')"}, {"EngineError", nil, "failed: ValueError('no such device')"}},
		{{"ValueError", nil, "fp8 is not supported on sm_80"}, {"ValueError", nil, "fp4 is not supported on sm_80"}},
		{{"ValueError", frames, "x"}, {"ValueError", frames[:1], "x"}},
		{{"ValueError", frames, "x"}, {"ValueError", []Frame{frames[1], frames[0]}, "x"}},
		{{"ValueError", frames, "x"}, {"ValueError", []Frame{frames[0], {frames[1].File, "h"}}, "x"}},
		{{"ab", nil, "c"}, {"a", nil, "bc"}},
		{{"a", []Frame{{"message", "x"}}, "y"}, {"a", nil, "x"}},
		{{"a", []Frame{{"b", "c"}}, ""}, {"a", []Frame{{"c", "b"}}, ""}},
		{{"AttributeError", nil, "module 'a' has no attribute 'b'"}, {"AttributeError", nil, "module 'a' has no attribute 'c'"}},
	} {
		a := Fingerprint(pair[0].exception, pair[0].frames, pair[0].message)
		b := Fingerprint(pair[1].exception, pair[1].frames, pair[1].message)
		if a == b {
			t.Errorf("same: %+v and %+v", pair[0], pair[1])
		}
	}
}

// The first is frozen: a failure here is a change of the rules, and needs a new
// version.
func TestFingerprintIsFrozen(t *testing.T) {
	got := Fingerprint("torch.OutOfMemoryError", []Frame{
		{"/opt/venv/lib/python3.12/site-packages/vllm/v1/worker/gpu_worker.py", "load_model"},
	}, "CUDA out of memory. Tried to allocate 2.50 GiB.")
	if want := "v1:168a54584d826d1c"; got != want {
		t.Errorf("Fingerprint = %s, want %s", got, want)
	}
	if got := Fingerprint("", nil, ""); len(got) != len("v1:")+16 {
		t.Errorf("Fingerprint of nothing = %q", got)
	}
}

func TestFingerprintOfFrames(t *testing.T) {
	frame := func(files ...string) []Frame {
		var frames []Frame
		for _, file := range files {
			frames = append(frames, Frame{file, "run"})
		}
		return frames
	}
	base := Fingerprint("vllm.v1.engine.exceptions.EngineDeadError", frame("/usr/lib/python3/dist-packages/vllm/v1/core.py", "/usr/lib/python3.12/asyncio/runners.py"), "m")
	for _, same := range []string{
		Fingerprint("EngineDeadError", frame("/opt/venv/lib/python3.11/site-packages/vllm/v1/core.py", "/root/python/lib/python3.11/asyncio/runners.py"), "m"),
		Fingerprint("EngineDeadError:", frame("/src/vllm/vllm/v1/core.py", "asyncio/runners.py"), "m"),
		Fingerprint("c10::EngineDeadError", frame("/src/vllm-fork/vllm/v1/core.py", "asyncio/runners.py", "asyncio/runners.py"), "m"),
	} {
		if same != base {
			t.Errorf("Fingerprint = %s, want %s", same, base)
		}
	}
}

func TestFrameFile(t *testing.T) {
	for file, want := range map[string]string{
		"/opt/venv/lib/python3.12/site-packages/vllm/v1/core.py":      "vllm/v1/core.py",
		"/a/site-packages/x/site-packages/torch/nn/modules/module.py": "torch/nn/modules/module.py",
		"/sgl/sglang/python/sglang/srt/server.py":                     "sglang/srt/server.py",
		"/usr/lib/python3.12/multiprocessing/process.py":              "multiprocessing/process.py",
		"<frozen importlib._bootstrap>":                               "<frozen importlib._bootstrap>",
		"core.py":                                                     "core.py",
		"":                                                            "",
		"/":                                                           "",
		"/tmp/torchinductor_root/4y/c4y7k2mzq5x3w6v7t2s4r5p6n7l2k3j4h5g6f7d2s3a4q5w6e7r2.py": "<hex>.py",
		"/pytorch/torch/csrc/distributed/c10d/ProcessGroupNCCL.cpp":                          "c10d/ProcessGroupNCCL.cpp",
	} {
		if got := frameFile(file); got != want {
			t.Errorf("frameFile(%q) = %q, want %q", file, got, want)
		}
	}
}

func TestFingerprintIsBounded(t *testing.T) {
	head := strings.Repeat("dump of a scheduler ", 1000)
	if Fingerprint("E", nil, head+"a") != Fingerprint("E", nil, head+"b") {
		t.Error("what is behind the limit counts")
	}
}

// A hostile text must not take time by the square of its length.
func TestMaskMessageOfLongTexts(t *testing.T) {
	const size = 256 << 10
	for _, part := range []string{"a-", "a.", "a/", "a'", "'a ", "f('", "f(\"x 'y", "1", "1.", "1m", "0x", "a:", "::", "<", "a_", "/", "~", "v1.", "1,234"} {
		text := strings.Repeat(part, size/len(part))
		if got := MaskMessage(text); len(got) > 5*len(text) {
			t.Errorf("of %q: %d bytes", part, len(got))
		}
	}
}

func BenchmarkMaskMessage(b *testing.B) {
	text := "CUDA out of memory. Tried to allocate 2.50 GiB. GPU 0 has a total capacity of 79.19 GiB of which 1.06 GiB is free. Process 4242 has 78.1 GiB in use (/opt/venv/bin/python)."
	b.ReportAllocs()
	b.SetBytes(int64(len(text)))
	for b.Loop() {
		MaskMessage(text)
	}
}

func BenchmarkFingerprint(b *testing.B) {
	var frames []Frame
	for range 20 {
		frames = append(frames, Frame{"/opt/venv/lib/python3.12/site-packages/vllm/v1/worker/gpu_worker.py", "load_model"},
			Frame{"/usr/lib/python3.12/multiprocessing/process.py", "run"})
	}
	b.ReportAllocs()
	for b.Loop() {
		Fingerprint("torch.OutOfMemoryError", frames, "CUDA out of memory. Tried to allocate 2.50 GiB.")
	}
}
