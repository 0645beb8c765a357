package preflight

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestPort(t *testing.T) {
	h := newHost(t)
	h.process(proc{pid: 60, uid: 1000, argv: []string{"nginx"}, cgroup: "/system.slice/nginx.service", socket: 77})
	const v6 = "00000000000000000000000000000000"
	for _, c := range []struct {
		name, socket, argv string
		status             Status
		text               string
	}{
		{"free", "", "", OK, "0.0.0.0:8000 is free"},
		{"taken", "00000000:1F40 0A 1000 77", "", Fail, "0.0.0.0:8000 is taken"},
		{"taken over IPv6", v6 + ":1F40 0A 1000 77", "", Fail, "[::]:8000 is taken"},
		{"taken by what can't be seen", "00000000:1F40 0A 1000 78", "", Fail, "by a process of user llm that can't be seen"},
		{"at another address", "0100007F:1F40 0A 1000 77", "--host 127.0.0.2", OK, "127.0.0.2:8000 is free"},
		{"at the same address", "0100007F:1F40 0A 1000 77", "--host 127.0.0.1", Fail, "127.0.0.1:8000 is taken"},
		{"at one of all", "0100007F:1F40 0A 1000 77", "", Fail, "127.0.0.1:8000 is taken"},
		{"at IPv6's own", "00000000000000000000000001000000:1F40 0A 1000 77", "", OK, "0.0.0.0:8000 is free"},
		{"at one of all of IPv6", "0100007F:1F40 0A 1000 77", "--host ::", Fail, "127.0.0.1:8000 is taken"},
		{"localhost", "0200007F:1F40 0A 1000 77", "--host localhost", OK, "localhost:8000 is free"},
		{"localhost is taken", "0100007F:1F40 0A 1000 77", "--host localhost", Fail, "127.0.0.1:8000 is taken"},
		{"a name", "0200007F:1F40 0A 1000 77", "--host llm.example.com", Warning, "whether llm.example.com stands for that address is not known"},
		{"a name, where all is taken", "00000000:1F40 0A 1000 77", "--host llm.example.com", Fail, "0.0.0.0:8000 is taken"},
		{"a connection is no listener", "00000000:1F40 01 1000 77", "", OK, "is free"},
		{"another port", "00000000:1F40 0A 1000 77", "--port 8001", OK, "0.0.0.0:8001 is free"},
		{"no number", "", "--port http", Unknown, `"http"`},
		{"too big", "", "--port 80000", Unknown, `"80000"`},
	} {
		t.Run(c.name, func(t *testing.T) {
			h.sockets()
			if c.socket != "" {
				h.sockets(c.socket)
			}
			r := Run(t.Context(), h.options(cards(1, 1, 80), append([]string{"vllm", "serve", "m"}, strings.Fields(c.argv)...)...))
			got := want(t, r, CheckPort, c.status, c.text)
			if (c.status == Fail || c.status == Warning) != (got.Class == "port_in_use") {
				t.Errorf("class %q", got.Class)
			}
			if strings.HasSuffix(c.socket, " 77") && c.status == Fail && (len(got.Holders) != 1 || got.Holders[0].Unit != "nginx.service" || got.Holders[0].PID != 60) {
				t.Errorf("holders %+v", got.Holders)
			}
		})
	}
	h.file("/proc/net/tcp", "nonsense\nmore\n")
	want(t, Run(t.Context(), h.options(cards(1, 1, 80), "vllm", "serve", "m")), CheckPort, Unknown, "can't read the host's sockets")
	if found := of(Run(t.Context(), h.options(nil, "vllm", "serve", "m", "--uds", "/run/x")), CheckPort); found != nil {
		t.Errorf("a Unix socket has a port: %+v", found)
	}
	if found := of(Run(t.Context(), h.options(nil, "vllm", "serve", "m", "--headless")), CheckPort); found != nil {
		t.Errorf("a part without a server has a port: %+v", found)
	}
	o := h.options(nil, "vllm", "serve", "m").withUnit(Unit{Limited: "it runs with PrivateNetwork=yes"})
	want(t, Run(t.Context(), o), CheckPort, Unknown, "PrivateNetwork=yes")
}

func TestSharedMemory(t *testing.T) {
	for _, c := range []struct {
		name   string
		free   uint64
		argv   string
		status Status
	}{
		{"enough", 2 << 30, "-tp 2", OK},
		{"little", 512 << 20, "-tp 2", Warning},
		{"too little for some versions", 64 << 20, "-tp 2", Warning},
		{"none", 0, "-tp 2", Fail},
	} {
		t.Run(c.name, func(t *testing.T) {
			h := newHost(t)
			h.sys.Statfs = func(p string) (Space, error) {
				if strings.HasSuffix(p, "/dev/shm") {
					return Space{Size: 64 << 30, Free: c.free}, nil
				}
				return Space{Size: 1 << 40, Free: 1 << 40}, nil
			}
			want(t, Run(t.Context(), h.options(cards(2, 1, 80), append([]string{"vllm", "serve", "m"}, strings.Fields(c.argv)...)...)), CheckSharedMemory, c.status, "free of 64.0 GiB")
			// One process shares with nobody.
			if found := of(Run(t.Context(), h.options(cards(2, 1, 80), "vllm", "serve", "m")), CheckSharedMemory); found != nil {
				t.Errorf("%+v", found)
			}
		})
	}
	h := newHost(t)
	// Newer versions insist.
	h.sys.Statfs = func(string) (Space, error) { return Space{Size: 1 << 40, Free: 64 << 20}, nil }
	for version, status := range map[string]Status{"0.16.0": Warning, "0.30.1": Fail} {
		dir := "/opt/" + version
		h.file(dir+"/pyvenv.cfg", "version = 3.12.3\n")
		h.file(dir+"/bin/vllm", "#!"+dir+"/bin/python\n")
		h.file(dir+"/lib/python3.12/site-packages/vllm-"+version+".dist-info/METADATA", "Name: vllm\nVersion: "+version+"\n")
		want(t, Run(t.Context(), h.options(cards(2, 1, 80), dir+"/bin/vllm", "serve", "m", "-tp", "2")), CheckSharedMemory, status, "64 MiB free")
	}
	h.sys.Statfs = func(string) (Space, error) { return Space{}, errors.New("broken") }
	want(t, Run(t.Context(), h.options(cards(2, 1, 80), "vllm", "serve", "m", "-tp", "2")), CheckSharedMemory, Unknown, "broken")
}

func TestDisks(t *testing.T) {
	h := newHost(t)
	h.dir("/big/cache")
	space := map[string]Space{
		"/big":    {Size: 1 << 40, Free: 1 << 39, Files: 1e6, FreeFiles: 1e6},
		"/full":   {Size: 1 << 40, Free: 1 << 20, Files: 1e6, FreeFiles: 1e6},
		"/little": {Size: 1 << 40, Free: 1 << 30, Files: 1e6, FreeFiles: 1e6},
		"/inodes": {Size: 1 << 40, Free: 1 << 39, Files: 1e6},
		"/btrfs":  {Size: 1 << 40, Free: 1 << 39},
		"/ro":     {Size: 1 << 40, Free: 1 << 39, ReadOnly: true},
	}
	for dir := range space {
		h.dir(dir)
	}
	h.sys.Statfs = func(p string) (Space, error) {
		rel := strings.TrimPrefix(p, h.root)
		for dir, s := range space {
			if strings.HasPrefix(rel, dir) {
				return s, nil
			}
		}
		return Space{Size: 1 << 40, Free: 1 << 39}, nil
	}
	for _, c := range []struct {
		env    string
		status Status
		text   string
	}{
		{"VLLM_CACHE_ROOT=/big/cache/new", OK, "compile cache /big/cache/new: 512.0 GiB free"},
		{"VLLM_CACHE_ROOT=/btrfs", OK, "compile cache /btrfs: 512.0 GiB free"},
		{"VLLM_CACHE_ROOT=/little", Warning, "compile cache /little: 1.0 GiB free and 1000000 inodes; a first start may write 2.0 GiB"},
		{"VLLM_CACHE_ROOT=/full", Warning, "compile cache /full: 1 MiB free"},
		{"VLLM_CACHE_ROOT=/inodes", Warning, "and 0 inodes"},
		{"VLLM_CACHE_ROOT=/ro", Warning, "its file system is read-only"},
		{"HF_HOME=/big", OK, "model downloads /big/hub: 512.0 GiB free, for weights whose size is not known"},
		{"HF_HUB_CACHE=/big/x", OK, "model downloads /big/x: "},
		{"TORCHINDUCTOR_CACHE_DIR=/big/t", OK, "inductor cache /big/t: "},
		{"XDG_CACHE_HOME=/big", OK, "compile cache /big/vllm: "},
		{"HOME=/big", OK, "triton cache /big/.triton/cache: "},
	} {
		o := h.options(cards(1, 1, 80), "vllm", "serve", "acme/one")
		o.Environ = []string{c.env}
		want(t, Run(t.Context(), o), CheckDisk, c.status, c.text)
	}
	o := h.options(cards(1, 1, 80), "vllm", "serve", "acme/one", "--download-dir", "/full").withUnit(Unit{User: "llm"})
	want(t, Run(t.Context(), o), CheckDisk, Fail, "model downloads /full")
	want(t, Run(t.Context(), o), CheckDisk, OK, "compile cache /home/llm/.cache/vllm")
	// What is downloaded already needs no room, nor a file system that can be
	// written.
	h.file("/ro/hub/models--acme--one/snapshots/rev/a.safetensors", "1234")
	h.file("/full/hub/models--acme--one/snapshots/rev/a.safetensors", "1234")
	for _, dir := range []string{"/ro", "/full"} {
		o := h.options(cards(1, 1, 80), "vllm", "serve", "acme/one", "--gpu-memory-utilization", "0.9")
		o.Environ = []string{"HF_HOME=" + dir}
		r := Run(t.Context(), o)
		if want(t, r, CheckDisk, OK, "model downloads "+dir+"/hub"); r.Verdict != Fit {
			t.Errorf("%s", r.Summary())
		}
	}
	o = h.options(cards(1, 1, 80), "vllm", "serve", "acme/two")
	o.Environ = []string{"HF_HOME=/ro"}
	want(t, Run(t.Context(), o), CheckDisk, Fail, "model downloads /ro/hub: its file system is read-only")
}

func TestModel(t *testing.T) {
	h := newHost(t)
	hub := "/root/.cache/huggingface/hub/models--acme--one/"
	h.file(hub+"blobs/1", strings.Repeat("x", 300))
	h.link(hub+"snapshots/old/a.safetensors", "../../blobs/none")
	h.link(hub+"snapshots/rev/a.safetensors", "../../blobs/1")
	h.file(hub+"snapshots/rev/config.json", "{}")
	h.dir("/root/.cache/huggingface/hub/models--acme--begun/snapshots/rev")
	h.dir("/models/empty")
	h.file("/models/file", "x")
	h.file("/models/one.gguf", "12345")
	h.file("/models/both/a.safetensors", "123456")
	h.file("/models/both/a.bin", "1234")
	h.file("/root/.cache/huggingface/hub/models--acme--old/snapshots/rev/pytorch_model.bin", "1234")
	h.link("/models/torn/a.safetensors", "gone")
	h.link("/models/loop", "loop")
	for _, c := range []struct {
		model, env string
		status     Status
		text       string
	}{
		{"acme/one", "", OK, "acme/one is downloaded: 300 bytes in 1 file"},
		{"acme/two", "", Warning, "it will be downloaded"},
		{"acme/begun", "", Warning, "it will be downloaded"},
		{"acme/two", "HF_HUB_OFFLINE=1", Fail, "is told not to download it"},
		{"/models/none", "", Fail, "does not exist"},
		{"/models/empty", "", Unknown, "holds no weights of a form that is known"},
		{"/models/file", "", Unknown, "is no folder"},
		{"/models/one.gguf", "", OK, "/models/one.gguf: 5 bytes in 1 file"},
		{"acme/one-gguf/one.gguf", "", Unknown, "where it comes from is not known"},
		{"s3://acme/one", "", Unknown, "where it comes from is not known"},
		{"acme/old", "HF_HUB_OFFLINE=1", OK, "4 bytes in 1 file"},
		{"acme/begun", "HF_HUB_OFFLINE=1", Unknown, "holds no weights of a form that is known"},
		{"acme/two", "VLLM_USE_MODELSCOPE=True HF_HUB_OFFLINE=1", Unknown, "another hub"},
		{"/models/both", "", OK, "6 bytes in 1 file"},
		{"/models/torn", "", Unknown, "missing or can't be read"},
		{"/models/loop", "", Unknown, "too many levels"},
	} {
		o := h.options(cards(1, 1, 80), "vllm", "serve", c.model)
		o.Environ = strings.Fields(c.env)
		want(t, Run(t.Context(), o), CheckModel, c.status, c.text)
	}
	// A unit may see another /models.
	o := h.options(cards(1, 1, 80), "vllm", "serve", "/models/none").withUnit(Unit{OwnFiles: "the unit sees files of its own (BindPaths=)"})
	want(t, Run(t.Context(), o), CheckModel, Warning, "it is not certain, as the unit sees files of its own")
}

func TestMemoryAndLimits(t *testing.T) {
	h := newHost(t)
	h.file("/models/m/a.safetensors", strings.Repeat("x", 2000))
	h.file("/proc/meminfo", "MemTotal: 2 kB\nMemAvailable: 1 kB\n")
	o := h.options(cards(1, 1, 80), "vllm", "serve", "/models/m")
	want(t, Run(t.Context(), o), CheckMemory, Warning, "1024 bytes available, weights of 2000 bytes")
	h.file("/proc/meminfo", "MemTotal: 9000000 kB\nMemAvailable: 8388608 kB\n")
	want(t, Run(t.Context(), o), CheckMemory, OK, "8.0 GiB available")
	most, files := uint64(1000), uint64(1024)
	r := Run(t.Context(), o.withUnit(Unit{MemoryMax: &most, OpenFiles: &files}))
	want(t, r, CheckMemory, Warning, "1000 bytes allowed by MemoryMax=")
	want(t, r, CheckLimits, Warning, "LimitNOFILE= allows 1024 open files, the engine asks for 65535")
	if err := os.Remove(filepath.Join(h.root, "proc/meminfo")); err != nil {
		t.Fatal(err)
	}
	want(t, Run(t.Context(), o), CheckMemory, Unknown, "can't be read")
}
