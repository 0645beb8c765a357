package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/charmbracelet/x/vt"
	"github.com/creack/pty"

	"github.com/startupd/startupd/pkg/web/api"
)

// startDemo plays the demo at a speed, and returns its socket once it answers.
func startDemo(t *testing.T, speed string) (socket string, demo *exec.Cmd) {
	t.Helper()
	socket = filepath.Join(t.TempDir(), "api.sock")
	// Not ended with the test: it must end well when it is asked to.
	demo = self(context.WithoutCancel(t.Context()), "demo", "--speed="+speed, "--web.listen-address=127.0.0.1:0", "--api.socket="+socket)
	out, err := demo.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := demo.Start(); err != nil {
		t.Fatal(err)
	}
	greeted := make(chan bool, 1)
	go func() {
		lines := bufio.NewScanner(out)
		for lines.Scan() {
			if strings.Contains(lines.Text(), "startupd watch --api.socket="+socket) {
				greeted <- true
			}
		}
		close(greeted)
	}()
	t.Cleanup(func() { stopDemo(t, demo) })
	if !<-greeted {
		t.Fatal("the demo does not say how to watch it")
	}
	return socket, demo
}

// stopDemo ends the demo; once is enough.
func stopDemo(t *testing.T, demo *exec.Cmd) {
	t.Helper()
	if demo.ProcessState == nil {
		_ = demo.Process.Signal(syscall.SIGTERM)
		if err := demo.Wait(); err != nil {
			t.Errorf("the demo: %v", err)
		}
	}
}

func self(ctx context.Context, args ...string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, os.Args[0])
	cmd.Args = append([]string{"startupd"}, args...)
	return cmd
}

// screen is a terminal with a program in it.
type screen struct {
	t    *testing.T
	cmd  *exec.Cmd
	file *os.File
	// drawn is told when something was drawn; closed at the program's end.
	drawn chan struct{}

	mu  sync.Mutex // guards what follows
	vt  *vt.Emulator
	raw bytes.Buffer
}

const (
	screenWidth, screenHeight = 100, 30
	// patience bounds a test that waits for what never comes.
	patience = time.Minute
)

// inTerminal runs startupd in a terminal of 100x30.
func inTerminal(t *testing.T, env []string, args ...string) *screen {
	t.Helper()
	s := &screen{t: t, cmd: self(t.Context(), args...), drawn: make(chan struct{}, 1), vt: vt.NewEmulator(screenWidth, screenHeight)}
	s.cmd.Env = append(append(os.Environ(), "TERM=xterm-256color", "LC_ALL=C.UTF-8", "NO_COLOR="), env...)
	var err error
	if s.file, err = pty.StartWithSize(s.cmd, &pty.Winsize{Cols: screenWidth, Rows: screenHeight}); err != nil {
		t.Fatal(err)
	}
	go func() {
		// What the terminal answers to what the program asks; ends with Close.
		_, _ = io.Copy(s.file, s.vt)
	}()
	go s.draw()
	return s
}

func (s *screen) draw() {
	defer close(s.drawn)
	b := make([]byte, 4096)
	for {
		n, err := s.file.Read(b)
		s.mu.Lock()
		s.raw.Write(b[:n])
		_, _ = s.vt.Write(b[:n])
		s.mu.Unlock()
		if err != nil {
			return
		}
		select {
		case s.drawn <- struct{}{}:
		default:
		}
	}
}

// text is what the screen shows.
func (s *screen) text() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.vt.String()
}

// await waits until the screen shows a text.
func (s *screen) await(want string) {
	s.t.Helper()
	late := time.After(patience)
	for !strings.Contains(s.text(), want) {
		select {
		case _, ok := <-s.drawn:
			if !ok && !strings.Contains(s.text(), want) {
				s.t.Fatalf("the program ended without %q:\n%s", want, s.text())
			}
		case <-late:
			s.t.Fatalf("the screen does not show %q:\n%s", want, s.text())
		}
	}
}

func (s *screen) press(keys string) {
	s.t.Helper()
	if _, err := s.file.WriteString(keys); err != nil {
		s.t.Fatal(err)
	}
}

// ended waits for the program's end and returns its exit code.
func (s *screen) ended() int {
	s.t.Helper()
	for range s.drawn { // until it is closed
	}
	err := s.cmd.Wait()
	s.file.Close()
	// Not the emulator's own Close, which races with its Read.
	if c, ok := s.vt.InputPipe().(io.Closer); ok {
		c.Close()
	}
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		s.t.Fatal(err)
	}
	return s.cmd.ProcessState.ExitCode()
}

// checkLeft checks what stays when the view is over: the last state as text, on
// the screen that was there before.
func (s *screen) checkLeft(want string) {
	s.t.Helper()
	if s.vt.IsAltScreen() {
		s.t.Error("the alternate screen is left behind")
	}
	if s.vt.CursorHidden() {
		s.t.Error("the cursor is left hidden")
	}
	if text := s.text(); !strings.Contains(text, want) || strings.Contains(text, "q quit") {
		s.t.Errorf("what is left does not show %q:\n%s", want, text)
	}
}

// TestWatchInATerminal sees the demo through, from a crash to serving.
func TestWatchInATerminal(t *testing.T) {
	socket, demo := startDemo(t, "150")
	s := inTerminal(t, nil, "watch", "--api.socket="+socket)
	s.await("last start failed")
	s.await("GPU MEMORY")
	s.press("p")
	s.await("PAUSED")
	s.press("p?")
	s.await("SIGNS")
	s.press("?")
	if err := pty.Setsize(s.file, &pty.Winsize{Cols: 40, Rows: 15}); err != nil {
		t.Fatal(err)
	}
	s.await("q quit  j/k scroll  ?")
	if err := pty.Setsize(s.file, &pty.Winsize{Cols: screenWidth, Rows: screenHeight}); err != nil {
		t.Fatal(err)
	}
	s.await("SERVING since")
	stopDemo(t, demo)
	s.await("STALE since")
	s.await("trying again")
	s.press("q")
	if code := s.ended(); code != exitOK {
		t.Errorf("exit code %d", code)
	}
	s.checkLeft("SERVING since")
}

func TestWatchEndsBySignal(t *testing.T) {
	socket, _ := startDemo(t, "150")
	for _, sig := range []syscall.Signal{syscall.SIGTERM, syscall.SIGINT} {
		s := inTerminal(t, nil, "watch", "--api.socket="+socket)
		s.await("VITAL SIGNS")
		if err := s.cmd.Process.Signal(sig); err != nil {
			t.Fatal(err)
		}
		if code := s.ended(); code != exitOK {
			t.Errorf("%s: exit code %d", sig, code)
		}
		s.checkLeft("VITAL SIGNS")
	}
}

func TestWatchWithoutColour(t *testing.T) {
	socket, _ := startDemo(t, "150")
	s := inTerminal(t, []string{"NO_COLOR=1", "LC_ALL=C"}, "watch", "--api.socket="+socket)
	s.await("VITAL SIGNS")
	s.press("q")
	s.ended()
	for _, l := range strings.Split(s.text(), "\n") {
		for _, r := range l {
			if r > '~' {
				t.Fatalf("%q is no ASCII: %s", r, l)
			}
		}
	}
	if colour := regexp.MustCompile(`\x1b\[[1-9][0-9;]*m`).Find(s.raw.Bytes()); colour != nil {
		t.Errorf("%q is drawn in spite of NO_COLOR", colour)
	}
}

// TestWatchOnADumbTerminal: nothing there can be redrawn.
func TestWatchOnADumbTerminal(t *testing.T) {
	socket, _ := startDemo(t, "600")
	s := inTerminal(t, []string{"TERM=dumb"}, "watch", "--api.socket="+socket)
	s.await("serving")
	if err := s.cmd.Process.Signal(syscall.SIGINT); err != nil {
		t.Fatal(err)
	}
	s.ended()
	if i := bytes.IndexByte(s.raw.Bytes(), 0x1b); i >= 0 {
		t.Errorf("an escape sequence is sent: %q", s.raw.Bytes()[i:])
	}
}

func TestWatchWithoutAnything(t *testing.T) {
	s := inTerminal(t, nil, "watch", "--api.socket="+filepath.Join(t.TempDir(), "none.sock"))
	if code := s.ended(); code != exitUnknown {
		t.Errorf("exit code %d", code)
	}
	s.checkLeft("no daemon runs here; without a daemon, name a unit")
}

// TestStatusThroughTheSocket asks a daemon, as scripts do.
func TestStatusThroughTheSocket(t *testing.T) {
	socket, _ := startDemo(t, "600")
	s := inTerminal(t, nil, "watch", "--api.socket="+socket)
	s.await("SERVING since")
	s.press("q")
	s.ended()

	out, err := self(t.Context(), "status", "--api.socket="+socket, "--format=json").Output()
	if err != nil {
		t.Fatalf("status of a serving unit: %v", err)
	}
	var status api.Status
	if err := json.Unmarshal(out, &status); err != nil {
		t.Fatal(err)
	}
	if status.Schema != api.StatusSchema || len(status.Units) != 1 || status.Units[0].State != api.Serving || status.Version == "" {
		t.Errorf("not a status of one serving unit: %s", out)
	}
	text, err := self(t.Context(), "status", "--api.socket="+socket, "vllm*").Output()
	if err != nil {
		t.Fatalf("status of a glob: %v", err)
	}
	for _, want := range []string{"SERVING since", "PHASES", "GPU MEMORY", "plateau 73.7 GiB"} {
		if !bytes.Contains(text, []byte(want)) {
			t.Errorf("the text lacks %q:\n%s", want, text)
		}
	}
}
