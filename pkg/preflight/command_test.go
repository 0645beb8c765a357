package preflight

import (
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/startupd/startupd/pkg/profile"
)

// found finds the command of a unit on the host.
func (h *host) found(u Unit) *command {
	h.t.Helper()
	c := find(&h.sys, []*profile.Profile{engine(h.t)}, &u, nil, nil, "")
	if c.profile != nil {
		c.readConfig(&h.sys)
	}
	return c
}

func TestSettings(t *testing.T) {
	h := newHost(t)
	h.file("/etc/llm.env", "# a comment\nPORT=8001\nMODEL=\"acme/one\"\nARGS=--tensor-parallel-size 2 --host 127.0.0.1\nexport X='y z'\nLONG=a\\\nb\n")
	h.file("/etc/engine.yaml", "model: acme/two\nport: 9000\ntensor_parallel_size: 4\nlist: [1]\n")
	h.file("/srv/bad.yaml", "- 1\n")
	for _, c := range []struct {
		name string
		unit Unit
		want string // model port tp host
	}{
		{"flags", Unit{Argv: []string{"/opt/bin/vllm", "serve", "acme/one", "--port=8001", "-tp", "2"}}, "acme/one 8001 2 0.0.0.0"},
		{"module", Unit{Argv: []string{"python3", "-m", "vllm.entrypoints.openai.api_server", "--model", "acme/one"}}, "acme/one 8000 1 0.0.0.0"},
		{"model by flag wins over none", Unit{Argv: []string{"vllm", "serve", "--model", "acme/one"}}, "acme/one 8000 1 0.0.0.0"},
		{"variables", Unit{Argv: []string{"vllm", "serve", "${MODEL}", "--port", "${PORT}", "$ARGS"}, EnvironmentFiles: []EnvironmentFile{{Path: "/etc/llm.env"}}}, "acme/one 8001 2 127.0.0.1"},
		{"a file wins over Environment=", Unit{Argv: []string{"vllm", "serve", "${MODEL}"}, Environment: []string{"MODEL=acme/zero"}, EnvironmentFiles: []EnvironmentFile{{Path: "/etc/llm.env"}}}, "acme/one 8000 1 0.0.0.0"},
		{"configuration", Unit{Argv: []string{"vllm", "serve", "--config", "engine.yaml"}, WorkingDirectory: "/etc"}, "acme/two 9000 4 0.0.0.0"},
		{"flags win over it", Unit{Argv: []string{"vllm", "serve", "acme/one", "--config", "/etc/engine.yaml", "--port", "1"}}, "acme/one 1 4 0.0.0.0"},
		{"env in front", Unit{Argv: []string{"/usr/bin/env", "A=b", "vllm", "serve", "acme/one"}}, "acme/one 8000 1 0.0.0.0"},
		{"a flag without its value", Unit{Argv: []string{"vllm", "serve", "acme/one", "--port"}}, "acme/one  1 0.0.0.0"},
	} {
		t.Run(c.name, func(t *testing.T) {
			got := h.found(c.unit)
			var words []string
			for _, s := range []string{profile.SettingModel, profile.SettingPort, profile.SettingTensorParallel, profile.SettingHost} {
				words = append(words, got.setting(s).value)
			}
			if text := strings.Join(words, " "); text != c.want || len(got.problems) > 0 {
				t.Errorf("%q, problems %q; want %q", text, got.problems, c.want)
			}
		})
	}
}

// What can't be read is said.
func TestCommandProblems(t *testing.T) {
	h := newHost(t)
	h.file("/bin/empty.sh", "#!/bin/sh\necho nothing\n")
	h.file("/bin/broken.sh", "#!/bin/sh\nif then (\n")
	h.file("/bin/big.sh", "#!/bin/sh\n"+strings.Repeat("#", maxScript))
	h.file("/bin/loop.sh", "#!/bin/sh\nexec vllm serve $(cat /etc/model) --port 1\n")
	h.file("/etc/bad.yaml", "- 1\n")
	h.link("/bin/round", "/bin/round")
	for _, c := range []struct {
		name string
		unit Unit
		want string
	}{
		{"missing environment", Unit{Argv: []string{"vllm", "serve", "m"}, EnvironmentFiles: []EnvironmentFile{{Path: "/etc/none"}}}, "EnvironmentFile=/etc/none: it does not exist"},
		{"missing and optional", Unit{Argv: []string{"vllm", "serve", "m"}, EnvironmentFiles: []EnvironmentFile{{Path: "/etc/none", Optional: true}}}, ""},
		{"unknown user", Unit{Argv: []string{"vllm", "serve", "m"}, User: "nobody-here"}, "the home of user nobody-here is not known"},
		{"no such program", Unit{Argv: []string{"start-llm"}}, "start-llm is not in the PATH"},
		{"no such file", Unit{Argv: []string{"/opt/start"}}, "/opt/start: it does not exist"},
		{"a script without it", Unit{Argv: []string{"/bin/empty.sh"}}, "holds no command of a known engine"},
		{"a broken script", Unit{Argv: []string{"/bin/broken.sh"}}, "the script /bin/broken.sh can't be read"},
		{"a big script", Unit{Argv: []string{"/bin/big.sh"}}, "is too big"},
		{"a computed word", Unit{Argv: []string{"/bin/loop.sh"}}, "computes words of the command"},
		{"a link to itself", Unit{Argv: []string{"/bin/round"}}, "/bin/round: "},
		{"no mapping", Unit{Argv: []string{"vllm", "serve", "m", "--config", "/etc/bad.yaml"}}, "no YAML mapping"},
		{"systemctl's word", Unit{Argv: []string{"vllm", "serve", "m"}, Split: true}, "may be misread"},
	} {
		t.Run(c.name, func(t *testing.T) {
			got := h.found(c.unit)
			if text := strings.Join(got.problems, "; "); !strings.Contains(text, c.want) || (c.want == "") != (text == "") {
				t.Errorf("problems %q, want %q", text, c.want)
			}
		})
	}
}

func TestScripts(t *testing.T) {
	h := newHost(t)
	h.dir("/opt/bin")
	for _, c := range []struct{ name, text, want string }{
		{"exec", "exec vllm serve acme/one --port 8001", "vllm serve acme/one --port 8001"},
		{"variables", "MODEL=acme/one\nPORT=${PORT:-8001}\nexport TP=2\nexec vllm serve \"$MODEL\" --port $PORT -tp $TP", "vllm serve acme/one --port 8001 -tp 2"},
		{"an array", "ARGS=(--port 8001)\nARGS+=(-tp 2)\nvllm serve acme/one \"${ARGS[@]}\"", "vllm serve acme/one --port 8001 -tp 2"},
		{"parameters", "exec vllm serve \"$1\" \"${@:2}\"", "vllm serve first second third"},
		{"all parameters", "shift_not=1; exec vllm serve \"$@\"", "vllm serve first second third"},
		{"continued lines", "set -e\nvllm serve acme/one \\\n  --port 8001 2>&1 | tee /var/log/x", "vllm serve acme/one --port 8001"},
		{"a loop", "while true; do\n  vllm serve acme/one || sleep 1\ndone", "vllm serve acme/one"},
		{"a venv", "source /opt/venv/bin/activate\nexec python -m vllm.entrypoints.openai.api_server --model acme/one", "python -m vllm.entrypoints.openai.api_server --model acme/one"},
		{"in front of it", "CUDA_VISIBLE_DEVICES=1 numactl -N 0 vllm serve acme/one", "numactl -N 0 vllm serve acme/one"},
	} {
		t.Run(c.name, func(t *testing.T) {
			h.file("/opt/bin/start", "#!/usr/bin/env bash\n"+c.text+"\n")
			for _, argv := range [][]string{{"/opt/bin/start", "first", "second", "third"}, {"/bin/bash", "-e", "/opt/bin/start", "first", "second", "third"}} {
				got := h.found(Unit{Argv: argv})
				if text := strings.Join(got.argv, " "); text != c.want || got.profile == nil || got.script != "/opt/bin/start" {
					t.Errorf("%q: %q from %q, problems %q; want %q", argv, text, got.script, got.problems, c.want)
				}
				if c.name == "in front of it" && got.env["CUDA_VISIBLE_DEVICES"] != "1" {
					t.Errorf("its variable is lost: %v", got.env)
				}
			}
		})
	}
	got := h.found(Unit{Argv: []string{"/bin/sh", "-c", "exec vllm serve acme/one --port 7"}})
	if got.setting(profile.SettingPort).value != "7" {
		t.Errorf("behind -c: %q, problems %q", got.argv, got.problems)
	}
}

// A script that would grow without end grows to a bound, and no further.
func TestHostileScripts(t *testing.T) {
	h := newHost(t)
	for name, text := range map[string]string{
		"doubling": "X=aaaaaaaaaaaaaaaa\n" + strings.Repeat("X=$X$X\n", 60) + "vllm serve m",
		"range":    "vllm serve {1..1000000000}",
		"replace":  "X=aaaaaaaa\n" + strings.Repeat("X=${X//a/$X}\n", 20) + "vllm serve m",
		"deep":     strings.Repeat("(", maxScript-100),
		"nul":      "vllm\x00serve m",
	} {
		t.Run(name, func(t *testing.T) {
			h.file("/opt/bin/start", "#!/bin/sh\n"+text+"\n")
			got := h.found(Unit{Argv: []string{"/opt/bin/start"}})
			if len(got.argv) > maxWords {
				t.Errorf("%d words", len(got.argv))
			}
		})
	}
}

func TestContainer(t *testing.T) {
	h := newHost(t)
	argv := strings.Fields("/usr/bin/docker run --rm --gpus device=1,2 -e CUDA_X=1 --env=HF_HUB_OFFLINE=1 -p 127.0.0.1:9000:8000/tcp -v /a:/b vllm/vllm-openai:v0.16.0 --model acme/one -tp 2")
	o := h.options(cards(4, 1, 80), argv...)
	r := Run(t.Context(), o)
	want(t, r, CheckCommand, OK, "in a container of docker")
	want(t, r, CheckGPUs, OK, "sees 2 GPUs of this host's 4 by --gpus device=1,2")
	want(t, r, CheckGPUMemory, OK, "GPUs 1, 2")
	want(t, r, CheckPort, OK, "127.0.0.1:9000 is free")
	want(t, r, CheckSharedMemory, Warning, "docker's default (64 MiB, if nobody changed it)")
	want(t, r, CheckPackages, Unknown, "inside the container")
	want(t, r, CheckDisk, Unknown, "inside the container")
	for _, c := range []struct {
		flag   string
		status Status
		text   string
	}{{"--ipc=host", OK, "50.0 GiB free"}, {"--shm-size=8g", Unknown, "its own, of 8g"}, {"--ipc=container:box", Unknown, "shares that of --ipc=container:box"}} {
		r := Run(t.Context(), h.options(cards(4, 1, 80), slices.Insert(slices.Clone(argv), 2, c.flag)...))
		want(t, r, CheckSharedMemory, c.status, c.text)
	}
	// With the host's network the port is the host's.
	r = Run(t.Context(), h.options(cards(4, 1, 80), strings.Fields("podman run --network=host vllm/vllm-openai --model m --port 7")...))
	want(t, r, CheckPort, OK, "0.0.0.0:7 is free")
	r = Run(t.Context(), h.options(cards(4, 1, 80), strings.Fields("podman run vllm/vllm-openai --model m")...))
	want(t, r, CheckPort, Unknown, "the container's own")
}

// The GPUs that a container gets, however it is told, and what may change them.
func TestContainerGPUs(t *testing.T) {
	h := newHost(t)
	busy := cards(4, 1, 80)
	busy[0] = card(0, 70, 80)
	h.process(proc{pid: 7, argv: []string{"python"}})
	for _, c := range []struct {
		name, flags, env string
		status           Status
		text             string
		verdict          Verdict
	}{
		{"all", "--gpus all", "", OK, "sees 4 GPUs", NotFit},
		{"quoted", `--gpus "device=1"`, "", OK, "by --gpus device=1", Fit},
		{"by CDI", "--device nvidia.com/gpu=1", "", OK, "by --device gpu=1", Fit},
		{"all by CDI", "--device=nvidia.com/gpu=all", "", OK, "sees 4 GPUs", NotFit},
		{"another device", "--device /dev/fuse --gpus device=1", "", OK, "by --gpus device=1", Fit},
		{"by the runtime's variable", "-e NVIDIA_VISIBLE_DEVICES=1", "", OK, "by NVIDIA_VISIBLE_DEVICES=1", Fit},
		{"a number within the container", "--gpus device=2,3 -e CUDA_VISIBLE_DEVICES=0", "", Unknown, "counts the GPUs of the container", Fit},
		{"a variable that is passed on", "-e CUDA_VISIBLE_DEVICES", "CUDA_VISIBLE_DEVICES=1", OK, "by CUDA_VISIBLE_DEVICES=1", Fit},
		{"variables of a file", "--env-file /etc/llm.env", "", OK, "sees 4 GPUs", Fit},
	} {
		t.Run(c.name, func(t *testing.T) {
			o := h.options(busy, strings.Fields("podman run --ipc=host "+c.flags+" vllm/vllm-openai --model m --gpu-memory-utilization 0.9")...)
			o.Environ = []string{c.env}
			r := Run(t.Context(), o)
			want(t, r, CheckGPUs, c.status, c.text)
			if r.Verdict != c.verdict {
				t.Errorf("verdict %s: %s", r.Verdict, r.Summary())
			}
		})
	}
	// What holds it may be the running unit's own container.
	o := h.options(busy, strings.Fields("docker run --ipc=host vllm/vllm-openai --model m --gpu-memory-utilization 0.9")...)
	r := Run(t.Context(), o.withUnit(Unit{MainPID: 7}))
	want(t, r, CheckGPUMemory, Warning, "the running unit's own container may hold it")
}

// Where the start's own command may be another one, nothing that fails is
// certain.
func TestDoubt(t *testing.T) {
	h := newHost(t)
	h.file("/etc/share.env", "SHARE=0.9\n")
	h.file("/etc/loop.env", ". /etc/loop.env\n")
	for _, c := range []struct {
		name, text string
		certain    bool
	}{
		{"plain", "vllm serve m --gpu-memory-utilization 0.9", true},
		{"a default", "vllm serve m --gpu-memory-utilization ${SHARE:-0.9}", true},
		{"one of two commands", "if [ $MODE = x ]; then\nvllm serve m --gpu-memory-utilization 0.9\nelse\nvllm serve m --gpu-memory-utilization 0.3\nfi", false},
		{"the same twice", "vllm serve m --gpu-memory-utilization 0.9 || vllm serve m --gpu-memory-utilization 0.9", true},
		{"a value under a condition", "SHARE=0.9\nif [ -n \"$SMALL\" ]; then SHARE=0.3; fi\nvllm serve m --gpu-memory-utilization $SHARE", false},
		{"another's value under a condition", "if true; then X=1; fi\nvllm serve m --gpu-memory-utilization 0.9", true},
		{"set again", "if true; then SHARE=0.3; fi\nSHARE=0.9\nvllm serve m --gpu-memory-utilization $SHARE", true},
		{"a computed value", "SHARE=$(cat /etc/share)\nvllm serve m --gpu-memory-utilization 0.9 $SHARE", false},
		{"of another file", ". /etc/none.env\nvllm serve m --gpu-memory-utilization ${SHARE:-0.9}", false},
		{"set before another file", "SHARE=0.9\n. /etc/none.env\nvllm serve m --gpu-memory-utilization $SHARE", false},
		{"set behind it", ". /etc/none.env\nSHARE=0.9 CUDA_VISIBLE_DEVICES=0\nvllm serve m --gpu-memory-utilization $SHARE", true},
		{"another file that is read", "SHARE=0.3\nset -a\n. /etc/share.env\nvllm serve m --gpu-memory-utilization $SHARE", true},
		{"a file that reads itself", ". /etc/loop.env\nvllm serve m --gpu-memory-utilization 0.9", false},
		{"GPUs under a condition", "[ -e /x ] && export CUDA_VISIBLE_DEVICES=0\nvllm serve m --gpu-memory-utilization 0.9", false},
		{"parameters that move", "shift\nvllm serve m --gpu-memory-utilization $1", false},
		{"the host's name", "vllm serve m --gpu-memory-utilization 0.9 --served-model-name $HOSTNAME", false},
		{"options", "while [ $# -gt 0 ]; do case $1 in --share) SHARE=$2;; esac; shift; done\nvllm serve m --gpu-memory-utilization ${SHARE:-0.9}", false},
	} {
		t.Run(c.name, func(t *testing.T) {
			h.file("/opt/bin/start", "#!/bin/bash\n"+c.text+"\n")
			r := Run(t.Context(), h.options(cards(1, 60, 80), "/opt/bin/start", "0.9"))
			verdict, command := NotFit, OK
			if !c.certain {
				verdict, command = Fit, Unknown
			}
			want(t, r, CheckCommand, command, "")
			if r.Verdict != verdict {
				t.Errorf("verdict %s: %s; %+v", r.Verdict, r.Summary(), of(r, CheckCommand))
			}
		})
	}
	o := h.options(cards(1, 60, 80), "vllm", "serve", "m", "--gpu-memory-utilization", "0.9").withUnit(Unit{EnvironmentFiles: []EnvironmentFile{{Path: "/etc/none"}}})
	want(t, Run(t.Context(), o), CheckGPUMemory, Warning, "it is not certain, as EnvironmentFile=/etc/none: it does not exist")
}

// A virtual environment that a script enters is where its programs are.
func TestActivate(t *testing.T) {
	h := newHost(t)
	h.file("/opt/bin/start", "#!/bin/bash\nsource /opt/venv/bin/activate\nexec vllm serve m\n")
	got := h.found(Unit{Argv: []string{"/opt/bin/start"}})
	if !strings.HasPrefix(got.env["PATH"], "/opt/venv/bin:") || got.doubt != "" {
		t.Errorf("PATH %q, doubt %q", got.env["PATH"], got.doubt)
	}
}

func TestUnitForms(t *testing.T) {
	limit, most := uint64(1024), uint64(1<<30)
	want := &Unit{
		Name: "llm.service", Loaded: true, ActiveState: "active", SubState: "running", MainPID: 7, ControlGroup: "/system.slice/llm.service",
		Argv: []string{"/opt/vllm", "serve", "m"}, Environment: []string{"A=b", "C=d e"},
		EnvironmentFiles: []EnvironmentFile{{"/etc/a", true}, {"/etc/b", false}},
		User:             "llm", WorkingDirectory: "/srv", Files: []string{"/etc/systemd/system/llm.service", "/etc/systemd/system/llm.service.d/a.conf"},
		OpenFiles: &limit, MemoryMax: &most, Limited: "it runs with PrivateNetwork=yes",
	}
	got := UnitFromProperties("llm.service", map[string]any{
		"LoadState": "loaded", "ActiveState": "active", "SubState": "running", "MainPID": uint32(7), "ControlGroup": "/system.slice/llm.service",
		"ExecStart":   [][]any{{"/opt/vllm", []string{"/opt/vllm", "serve", "m"}, false}},
		"Environment": []string{"A=b", "C=d e"}, "EnvironmentFiles": [][]any{{"/etc/a", true}, {"/etc/b", false}},
		"User": "llm", "WorkingDirectory": "!/srv", "FragmentPath": "/etc/systemd/system/llm.service",
		"DropInPaths": []string{"/etc/systemd/system/llm.service.d/a.conf"}, "LimitNOFILE": uint64(1024), "MemoryMax": uint64(1 << 30), "PrivateNetwork": true,
	})
	if d := cmp.Diff(want, got); d != "" {
		t.Errorf("properties (-want +got):\n%s", d)
	}
	want.Split = true
	got = UnitFromShow("llm.service", `LoadState=loaded
ActiveState=active
SubState=running
MainPID=7
ControlGroup=/system.slice/llm.service
ExecStart={ path=/opt/vllm ; argv[]=/opt/vllm serve m ; ignore_errors=no ; start_time=[n/a] ; stop_time=[n/a] ; pid=0 ; code=(null) ; status=0/0 }
Environment=A=b "C=d e"
EnvironmentFiles=/etc/a (ignore_errors=yes)
EnvironmentFiles=/etc/b (ignore_errors=no)
User=llm
WorkingDirectory=!/srv
FragmentPath=/etc/systemd/system/llm.service
DropInPaths=/etc/systemd/system/llm.service.d/a.conf
LimitNOFILE=1024
MemoryMax=1073741824
PrivateNetwork=yes
`)
	if d := cmp.Diff(want, got); d != "" {
		t.Errorf("show (-want +got):\n%s", d)
	}
	if u := UnitFromShow("x", "LoadState=not-found\nMemoryMax=infinity\n"); u.Loaded || u.MemoryMax != nil {
		t.Errorf("not found: %+v", u)
	}
	if u := UnitFromProperties("x", map[string]any{"LoadState": 1, "ExecStart": "x", "MainPID": "7", "EnvironmentFiles": 3}); u.Loaded || u.Argv != nil {
		t.Errorf("wrong types: %+v", u)
	}
}

func TestExpand(t *testing.T) {
	env := map[string]string{"A": "one two", "B": "", "C": "$A"}
	for _, c := range []struct{ in, want string }{
		{"x $A y", "x|one|two|y"}, {"x ${A} y", "x|one two|y"}, {"x a${A}b", "x|aone twob"}, {"x $B y", "x|y"}, {"x ${NONE}", "x|"},
		{"x $$A", "x|$A"}, {"x ${C}", "x|$A"}, {"x ${", "x|${"}, {"x $1", "x|$1"}, {"x $", "x|$"}, {"$A x", "$A|x"},
	} {
		if got := strings.Join(expandArgv(strings.Split(c.in, " "), env), "|"); got != c.want {
			t.Errorf("%s: %q, want %q", c.in, got, c.want)
		}
	}
}
