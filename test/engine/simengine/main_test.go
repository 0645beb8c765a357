package main

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"
)

// TestMain lets the test's own binary be the simulated engine.
func TestMain(m *testing.M) {
	if os.Getenv("SIMENGINE_SCENARIO") != "" {
		main()
	}
	os.Exit(m.Run())
}

const script = `
name: test
format: {prefix: "({name} pid={pid}) ", log: "{level} [{src}] {text}", time: "15:04"}
gpus: {count: 1, name: G, total: 8GiB, idle: 1MiB}
starts:
  - name: bad
    processes:
      - {name: Main, main: true}
      - {name: Child, title: "SIM::Child", begin: 10s, end: {at: 20s, code: 3}}
    exit: {at: 30s, code: 4}
    script:
      - {at: 20s, by: Child, say: "cause"}
      - {at: 20s, by: Main, say: "effect"}
  - name: good
    processes:
      - {name: Main, main: true}
      - {name: Child, title: "SIM::Child", begin: 0s}
    ready: 20s
    memory: [{by: Child, used: [{at: 0s, bytes: 2GiB}]}]
    script:
      - {at: 10s, by: Child, say: "port {port}"}
      - {at: 30s, by: Main, say: "serving"}
    stop_serving: {exit: {at: 0s, code: 0}, script: [{at: 0s, by: Main, say: "bye"}]}
  - name: endless
    processes: [{name: Main, main: true}]
    script: [{at: 0s, by: Main, say: "begun"}]
    stop: {exit: {at: 1s, signal: INT}, script: [{at: 0s, by: Main, say: "stopped"}]}
  - name: signal
    processes: [{name: Main, main: true}]
    exit: {at: 1s, signal: SEGV}
  - name: fault
    processes: [{name: Main, main: true}]
    exit: {at: 1s, signal: BUS, fault: true}
  - name: memory
    processes: [{name: Main, main: true}]
    exit: {at: 1s, signal: KILL, allocate: 1MiB}
  - name: address
    processes: [{name: Main, main: true}]
    ready: 1s
    script: [{at: 0s, by: Main, say: "begun"}]
    taken: {exit: {at: 2s, code: 5}, script: [{at: 1s, by: Main, say: "{port} is taken"}]}
`

// sim returns a function that makes commands of one simulated engine.
func sim(t *testing.T) (func() *exec.Cmd, string) {
	t.Helper()
	dir := t.TempDir()
	path := filepath.Join(dir, "test.yaml")
	if err := os.WriteFile(path, []byte(script), 0o644); err != nil {
		t.Fatal(err)
	}
	return func() *exec.Cmd {
		cmd := exec.CommandContext(t.Context(), os.Args[0], "serve", "a-model")
		cmd.Env = append(os.Environ(), "SIMENGINE_SCENARIO="+path, "SIMENGINE_SPEED=100",
			"SIMENGINE_STATE="+dir, "SIMENGINE_NVML="+filepath.Join(dir, "nvml"), "SIMENGINE_LISTEN=127.0.0.1:47391")
		return cmd
	}, dir
}

func status(t *testing.T, err error) syscall.WaitStatus {
	t.Helper()
	var exit *exec.ExitError
	if err == nil {
		return 0
	}
	if !errors.As(err, &exit) {
		t.Fatal(err)
	}
	return exit.Sys().(syscall.WaitStatus)
}

// TestStarts plays one start after the other, as a unit that restarts would.
func TestStarts(t *testing.T) {
	start, dir := sim(t)

	out, err := start().Output()
	if s := status(t, err); !s.Exited() || s.ExitStatus() != 4 {
		t.Errorf("first start ended with %v", err)
	}
	if ok, _ := regexp.Match(`^\(Child pid=\d+\) cause\n\(Main pid=\d+\) effect\n$`, out); !ok {
		t.Errorf("first start printed %q", out)
	}

	t.Run("good", func(t *testing.T) { good(t, start(), dir) })

	cmd := start()
	lines := pipe(t, cmd)
	<-lines
	if err := cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	if got := <-lines; !strings.HasSuffix(got, ") stopped") {
		t.Errorf("stopped with %q", got)
	}
	if s := status(t, cmd.Wait()); s.Signal() != syscall.SIGINT {
		t.Errorf("a stopped start ended with %v", s)
	}

	if s := status(t, start().Run()); s.Signal() != syscall.SIGSEGV {
		t.Errorf("a start that is killed ended with %v", s)
	}
	if s := status(t, start().Run()); s.Signal() != syscall.SIGBUS {
		t.Errorf("a start with a fault ended with %v", s)
	}
	// Without a limit the kernel has no reason.
	out, err = start().CombinedOutput()
	if s := status(t, err); s.ExitStatus() != 70 || !strings.Contains(string(out), "limit the memory of its control group") {
		t.Errorf("a start that the kernel lets live ended with %v: %s", err, out)
	}
	t.Run("taken", func(t *testing.T) { taken(t, start()) })
}

// taken holds the engine's address.
func taken(t *testing.T, cmd *exec.Cmd) {
	l, err := net.Listen("tcp4", "127.0.0.1:47391")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = l.Close() }()
	out, err := cmd.Output()
	if s := status(t, err); s.ExitStatus() != 5 || !strings.HasSuffix(string(out), ") 47391 is taken\n") {
		t.Errorf("a start whose address is taken ended with %v: %q", err, out)
	}
}

func good(t *testing.T, cmd *exec.Cmd, dir string) {
	lines := pipe(t, cmd)
	var pid int
	if _, err := fmt.Sscanf(<-lines, "(Child pid=%d) port 47391", &pid); err != nil {
		t.Fatal(err)
	}
	title, err := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", pid))
	if err != nil || string(bytes.TrimRight(title, "\x00")) != "SIM::Child" {
		t.Errorf("child's title is %q, %v", title, err)
	}
	if resp, err := http.Get("http://127.0.0.1:47391/health"); err == nil {
		_ = resp.Body.Close()
		t.Error("it listens before it serves")
	}
	<-lines
	state, err := os.ReadFile(filepath.Join(dir, "nvml"))
	if want := fmt.Sprintf("proc 0 pid=%d used=%d", pid, 2<<30); err != nil || !strings.Contains(string(state), want) {
		t.Errorf("fake NVML says %q, %v, want %q in it", state, err, want)
	}
	resp, err := http.Get("http://127.0.0.1:47391/health")
	if err != nil {
		t.Fatal(err)
	}
	_ = resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		t.Errorf("/health says %s", resp.Status)
	}
	if err := cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	if got := <-lines; !strings.HasSuffix(got, ") bye") {
		t.Errorf("stopped with %q", got)
	}
	if err := cmd.Wait(); err != nil {
		t.Error(err)
	}
	state, err = os.ReadFile(filepath.Join(dir, "nvml"))
	if err != nil || strings.Contains(string(state), "proc") {
		t.Errorf("fake NVML says %q, %v at the end", state, err)
	}
}

// pipe starts cmd and gives its lines.
func pipe(t *testing.T, cmd *exec.Cmd) <-chan string {
	t.Helper()
	out, err := cmd.StdoutPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		t.Fatal(err)
	}
	lines := make(chan string)
	go func() {
		defer close(lines)
		for s := bufio.NewScanner(out); s.Scan(); {
			lines <- s.Text()
		}
	}()
	return lines
}

func TestHold(t *testing.T) {
	start, dir := sim(t)
	cmd := start()
	cmd.Env = append(cmd.Env, "SIMENGINE_HOLD=0=1.5GiB")
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	want := fmt.Sprintf("proc 0 pid=%d used=%d", cmd.Process.Pid, 3<<29)
	deadline := time.After(10 * time.Second)
	for held := false; !held; {
		state, err := os.ReadFile(filepath.Join(dir, "nvml"))
		held = err == nil && strings.Contains(string(state), want)
		select {
		case <-deadline:
			t.Fatalf("fake NVML says %q, %v", state, err)
		case <-time.After(10 * time.Millisecond):
		}
	}
	if err := cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	if err := cmd.Wait(); err != nil {
		t.Error(err)
	}
}

func TestRefused(t *testing.T) {
	start, dir := sim(t)
	for env, want := range map[string]string{
		"SIMENGINE_SCENARIO=" + dir + "/none.yaml": "none.yaml: no such file",
		"SIMENGINE_SPEED=fast":                     "must be a number above 0",
		"SIMENGINE_LISTEN=nowhere":                 "SIMENGINE_LISTEN: address nowhere: missing port",
		"SIMENGINE_HOLD=4GiB":                      "write it like 0=4GiB,1=2GiB",
	} {
		cmd := start()
		cmd.Env = append(cmd.Env, env)
		out, err := cmd.CombinedOutput()
		if s := status(t, err); s.ExitStatus() != 70 || !strings.Contains(string(out), want) {
			t.Errorf("%s: %v, %s, want %q", env, err, out, want)
		}
	}
}
