package gpu

import (
	"bytes"
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/startupd/startupd/pkg/event"
)

func TestParseCgroup(t *testing.T) {
	const id = container
	other := strings.Repeat("f", 64)
	pod := "/kubepods.slice/kubepods-burstable.slice/kubepods-burstable-pod1a2b.slice"
	for name, tc := range map[string]struct{ text, path, unit, container string }{
		"unit":                {"0::/system.slice/llm.service\n", "/system.slice/llm.service", "llm.service", ""},
		"instance":            {"0::/system.slice/system-llm.slice/llm@8000.service", "/system.slice/system-llm.slice/llm@8000.service", "llm@8000.service", ""},
		"below a unit":        {"0::/system.slice/llm.service/payload\n", "/system.slice/llm.service/payload", "llm.service", ""},
		"user unit":           {"0::/user.slice/user-1000.slice/user@1000.service/app.slice/llm.service\n", "/user.slice/user-1000.slice/user@1000.service/app.slice/llm.service", "llm.service", ""},
		"session":             {"0::/user.slice/user-0.slice/session-3.scope\n", "/user.slice/user-0.slice/session-3.scope", "session-3.scope", ""},
		"escaped":             {"0::/system.slice/_cpu.service\n", "/system.slice/_cpu.service", "cpu.service", ""},
		"docker, systemd":     {"0::/system.slice/docker-" + id + ".scope\n", "/system.slice/docker-" + id + ".scope", "docker-" + id + ".scope", id},
		"docker, cgroupfs":    {"12:memory:/docker/" + id + "\n1:name=systemd:/docker/" + id + "\n0::/\n", "/docker/" + id, "", id},
		"containerd":          {"0::" + pod + "/cri-containerd-" + id + ".scope\n", pod + "/cri-containerd-" + id + ".scope", "cri-containerd-" + id + ".scope", id},
		"cri-o":               {"0::" + pod + "/crio-" + id + ".scope\n", pod + "/crio-" + id + ".scope", "crio-" + id + ".scope", id},
		"podman":              {"0::/machine.slice/libpod-" + id + ".scope/container\n", "/machine.slice/libpod-" + id + ".scope/container", "libpod-" + id + ".scope", id},
		"podman in a unit":    {"0::/system.slice/llm.service/libpod-payload-" + id + "\n", "/system.slice/llm.service/libpod-payload-" + id, "llm.service", id},
		"pod, cgroupfs":       {"0::/kubepods/burstable/pod1a2b/" + id + "\n", "/kubepods/burstable/pod1a2b/" + id, "", id},
		"pod, mixed":          {"0::/system.slice/containerd.service/kubepods-pod1a2b.slice:cri-containerd:" + id + "\n", "/system.slice/containerd.service/kubepods-pod1a2b.slice:cri-containerd:" + id, "containerd.service", id},
		"monitor":             {"0::/machine.slice/libpod-conmon-" + id + ".scope\n", "/machine.slice/libpod-conmon-" + id + ".scope", "libpod-conmon-" + id + ".scope", ""},
		"nested":              {"0::/docker/" + other + "/kubelet/cri-containerd-" + id + ".scope\n", "/docker/" + other + "/kubelet/cri-containerd-" + id + ".scope", "cri-containerd-" + id + ".scope", id},
		"hybrid":              {"9:name=systemd:/system.slice/llm.service\n4:memory:/\n0::/\n", "/system.slice/llm.service", "llm.service", ""},
		"hybrid, unified":     {"9:name=systemd:/a.service\n0::/b.service\n", "/b.service", "b.service", ""},
		"v1 memory alone":     {"4:memory:/docker/" + id + "\n0::/\n", "/docker/" + id, "", id},
		"root":                {"9:name=systemd:/\n0::/\n", "/", "", ""},
		"slice alone":         {"0::/custom.slice\n", "/custom.slice", "", ""},
		"slice, v1":           {"9:name=systemd:/custom.slice\n0::/\n", "/custom.slice", "", ""},
		"outside a namespace": {"0::/../../system.slice/llm.service\n", "/../../system.slice/llm.service", "llm.service", ""},
		"short id":            {"0::/docker/0123456789ab\n", "/docker/0123456789ab", "", ""},
		"colon in a path":     {"0::/system.slice/a:b.service\n", "/system.slice/a:b.service", "a:b.service", ""},
		"empty":               {"", "", "", ""},
		"no colons":           {"nonsense\n", "", "", ""},
		"bare suffix":         {"0::/.service\n", "/.service", "", ""},
	} {
		t.Run(name, func(t *testing.T) {
			if got, want := parseCgroup(tc.text), (cgroup{tc.path, tc.unit, tc.container}); got != want {
				t.Errorf("got %+v\nwant %+v", got, want)
			}
		})
	}
}

func TestOwnerWithoutProc(t *testing.T) {
	got := owner(t.TempDir(), 1)
	if got.Cgroup != "" || got.Unit != "" || got.Container != "" || got.Title != "" {
		t.Errorf("got %+v of a process that is not there, want nothing", got)
	}
}

func TestTitle(t *testing.T) {
	root := t.TempDir()
	dir := filepath.Join(root, "7")
	if err := os.Mkdir(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	// The cut falls into a character of two bytes.
	line := strings.Repeat("a", titleBytes-1) + "é" + strings.Repeat("b", 10)
	if err := os.WriteFile(filepath.Join(dir, "cmdline"), []byte(line), 0o644); err != nil {
		t.Fatal(err)
	}
	if got, want := owner(root, 7).Title, strings.Repeat("a", titleBytes-1); got != want {
		t.Errorf("title %q, want %q", got, want)
	}
	if got, want := parseTitle([]byte("\x00a\x00b c\x00\x00")), "a b c"; got != want {
		t.Errorf("title %q, want %q", got, want)
	}
}

func TestReaderCommands(t *testing.T) {
	run := func(stdin string) (string, error) {
		var out bytes.Buffer
		err := RunReader(context.Background(), ReaderOptions{Library: "/no/such/library"}, strings.NewReader(stdin), &out)
		return out.String(), err
	}
	if out, err := run("sample\nsample\n"); err != nil || strings.Count(out, `"state":"no_driver"`) != 2 {
		t.Errorf("two commands: %q, %v", out, err)
	}
	if out, err := run(""); err != nil || out != "" {
		t.Errorf("no command: %q, %v", out, err)
	}
	if _, err := run("smaple\n"); err == nil || !strings.Contains(err.Error(), `unknown command "smaple"`) {
		t.Errorf("a wrong command: %v", err)
	}
}

func TestGravestConditionNamesTheState(t *testing.T) {
	mem := ptr(gib)
	fine := look{gpu: event.GPU{UsedBytes: mem}}
	mig := look{gpu: event.GPU{UsedBytes: mem, MIG: true}}
	blind := look{}
	failing := look{gpu: event.GPU{UsedBytes: mem}, problems: []string{"call: Unknown Error"}}
	lost := look{gpu: event.GPU{Lost: "GPU is lost"}}
	for _, tc := range []struct {
		looks []look
		want  string
	}{
		{nil, StateNoGPU},
		{[]look{fine, fine}, StateUp},
		{[]look{fine, mig}, StateMIG},
		{[]look{mig, blind}, StateNotSupported},
		{[]look{blind, mig, failing}, StateDegraded},
		{[]look{failing, fine, lost, blind, mig}, StateGPULost},
	} {
		r := sum(tc.looks)
		if r.State != tc.want || len(r.GPUs) != len(tc.looks) || (r.Reason == "") != (tc.want == StateUp) {
			t.Errorf("%d looks: %+v, want %s", len(tc.looks), r, tc.want)
		}
	}
}
