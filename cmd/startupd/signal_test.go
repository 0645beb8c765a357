package main

import (
	"bufio"
	"encoding/json"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
)

// process is a startupd in a process of its own.
type process struct {
	t   *testing.T
	cmd *exec.Cmd
	log *bufio.Scanner
	// read are the lines that no await has asked for yet.
	read []map[string]any
}

func startProcess(t *testing.T, args ...string) *process {
	t.Helper()
	// This test's own program is startupd when it is called so.
	cmd := exec.CommandContext(t.Context(), os.Args[0])
	cmd.Args = append([]string{"startupd"}, args...)
	stderr, err := cmd.StderrPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	return &process{t: t, cmd: cmd, log: bufio.NewScanner(stderr)}
}

// await waits for a message that begins so, and returns its fields. Parts of the
// daemon begin at the same time: messages may come in any order.
func (p *process) await(msg string) map[string]any {
	p.t.Helper()
	for i := 0; ; i++ {
		if i == len(p.read) && !p.next() {
			p.t.Fatalf("the log ended before %q", msg)
		}
		if text, _ := p.read[i]["msg"].(string); strings.HasPrefix(text, msg) {
			line := p.read[i]
			p.read = slices.Delete(p.read, i, i+1)
			return line
		}
	}
}

// next reads one line.
func (p *process) next() bool {
	p.t.Helper()
	if !p.log.Scan() {
		return false
	}
	var line map[string]any
	if err := json.Unmarshal(p.log.Bytes(), &line); err != nil {
		p.t.Fatalf("no JSON: %s", p.log.Text())
	}
	p.read = append(p.read, line)
	return true
}

func (p *process) signal(s syscall.Signal) {
	p.t.Helper()
	if err := p.cmd.Process.Signal(s); err != nil {
		p.t.Fatal(err)
	}
}

// startupz returns the body of /startupz.
func startupz(t *testing.T, addr string) string {
	t.Helper()
	r, err := http.Get("http://" + addr + "/startupz")
	if err != nil {
		t.Fatal(err)
	}
	defer r.Body.Close()
	b, err := io.ReadAll(r.Body)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

func TestServeFollowsSignals(t *testing.T) {
	dir := t.TempDir()
	config := filepath.Join(dir, "startupd.yml")
	write := func(text string) {
		t.Helper()
		if err := os.WriteFile(config, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write("targets:\n  - unit: a\n")
	p := startProcess(t, "serve", "--config.file", config, "--journal.dir", dir, "--state.dir", filepath.Join(dir, "none"),
		"--no-gpu", "--api.socket=", "--web.listen-address=127.0.0.1:0", "--log.format=json")
	p.await("startupd begins")
	addr, _ := p.await("Listening on")["address"].(string)
	// An empty directory is a state of the source, not an end.
	p.await("A source is down: no journal files (*.journal) in " + dir)
	if body := startupz(t, addr); !strings.Contains(body, `"a.service"`) {
		t.Errorf("body %s", body)
	}

	write("targets: nonsense\n")
	p.signal(syscall.SIGHUP)
	if why, _ := p.await("Reload refused")["error"].(string); !strings.Contains(why, config+":1") {
		t.Errorf("reason %q", why)
	}
	write("targets:\n  - unit: b\n")
	p.signal(syscall.SIGHUP)
	p.await("Configuration reloaded")
	if body := startupz(t, addr); !strings.Contains(body, `"b.service"`) || strings.Contains(body, `"a.service"`) {
		t.Errorf("body %s", body)
	}

	p.signal(syscall.SIGTERM)
	for p.log.Scan() {
		if strings.Contains(p.log.Text(), `"level":"error"`) && !strings.Contains(p.log.Text(), "can't be saved") {
			t.Errorf("at the end: %s", p.log.Text())
		}
	}
	if err := p.cmd.Wait(); err != nil {
		t.Errorf("exit: %v", err)
	}
}

// TestDemoEndsWithItsTerminal: its port is free again, and nothing is left behind.
func TestDemoEndsWithItsTerminal(t *testing.T) {
	tmp := t.TempDir()
	t.Setenv("TMPDIR", tmp)
	p := startProcess(t, "demo", "--speed=50", "--web.listen-address=127.0.0.1:0", "--log.format=json", "--log.level=debug")
	p.await("Listening on")
	p.signal(syscall.SIGHUP)
	for p.log.Scan() {
		if strings.Contains(p.log.Text(), `"level":"error"`) {
			t.Errorf("at the end: %s", p.log.Text())
		}
	}
	if err := p.cmd.Wait(); err != nil {
		t.Errorf("exit: %v", err)
	}
	if left, err := os.ReadDir(tmp); err != nil || len(left) > 0 {
		t.Errorf("left behind: %v, %v", left, err)
	}
}
