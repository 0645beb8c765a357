package gpu

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os/exec"
	"strings"
	"sync"
	"syscall"
	"time"
)

// maxAnswer bounds one report: hundreds of processes on each of many GPUs.
const maxAnswer = 16 << 20

// endError is why a reader is given up.
type endError struct {
	cause string
	// hung is true when no answer came within timeout.
	hung    bool
	timeout time.Duration
}

func (e *endError) Error() string { return e.cause }

// answer is a report, or why there is none.
type answer struct {
	report report
	err    error
}

// child is a running reader process, as its supervisor sees it.
type child struct {
	pid int
	in  io.Writer
	// answers is closed when the reader has closed its standard output.
	answers <-chan answer
	// kill ends the process and may be called again; it does not wait.
	kill func()
	// done is closed once the process is reaped; exit then says how it ended.
	done <-chan struct{}
	exit func() string
}

// ask has one sample taken. Its error is an *endError, or the context's.
func (c *child) ask(ctx context.Context, timeout time.Duration) (report, error) {
	// A command that can't be written shows as an answer that does not come.
	_, werr := io.WriteString(c.in, sampleCommand+"\n")
	t := time.NewTimer(timeout)
	defer t.Stop()
	select {
	case a, ok := <-c.answers:
		if !ok {
			return report{}, &endError{cause: "it closed its output"}
		}
		if a.err != nil {
			return report{}, &endError{cause: a.err.Error()}
		}
		return a.report, nil
	case <-t.C:
		if werr != nil {
			return report{}, &endError{cause: werr.Error()}
		}
		return report{}, &endError{cause: fmt.Sprintf("no answer within %v", timeout), hung: true, timeout: timeout}
	case <-ctx.Done():
		return report{}, ctx.Err()
	}
}

// startProcess starts the reader. One goroutine reads its answers and reaps it.
func startProcess(argv []string) (*child, error) {
	if len(argv) == 0 {
		return nil, errors.New("no command was given")
	}
	cmd := exec.Command(argv[0], argv[1:]...)
	stderr := &tail{}
	cmd.Stderr = stderr
	// A process of the driver's that outlives the reader may hold its stderr.
	cmd.WaitDelay = time.Second
	// A terminal's ^C is for the daemon; the reader ends with its input.
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	in, err := cmd.StdinPipe()
	if err != nil {
		return nil, err
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	answers, quit, done := make(chan answer), make(chan struct{}), make(chan struct{})
	exit := "exit status unknown"
	go func() {
		defer close(done)
		readAnswers(out, answers, quit)
		exit = exitText(cmd.Wait(), stderr.String())
	}()
	kill := sync.OnceFunc(func() {
		close(quit)
		_ = in.Close()
		// A process that is gone already needs no signal.
		_ = cmd.Process.Kill()
	})
	return &child{
		pid: cmd.Process.Pid, in: in, answers: answers, kill: kill, done: done,
		exit: func() string { return exit },
	}, nil
}

// readAnswers sends each line as an answer until out ends, or until quit; then
// it reads on to the end, so that the process never blocks on its output.
func readAnswers(out io.Reader, answers chan<- answer, quit <-chan struct{}) {
	defer func() { _, _ = io.Copy(io.Discard, out) }()
	defer close(answers)
	lines := bufio.NewScanner(out)
	lines.Buffer(nil, maxAnswer)
	for lines.Scan() {
		var a answer
		if err := json.Unmarshal(lines.Bytes(), &a.report); err != nil {
			a.err = fmt.Errorf("it answered what is no report: %w", err)
		}
		select {
		case answers <- a:
		case <-quit:
			return
		}
	}
	if err := lines.Err(); err != nil {
		select {
		case answers <- answer{err: fmt.Errorf("its answer can't be read: %w", err)}:
		case <-quit:
		}
	}
}

func exitText(err error, stderr string) string {
	text := "exit status 0"
	if err != nil {
		text = err.Error()
	}
	if s := strings.TrimSpace(stderr); s != "" {
		text += ": " + s
	}
	return text
}

// tail keeps the end of what is written to it.
type tail struct {
	mu  sync.Mutex
	buf []byte
}

// tailBytes is enough for a loader's message about a missing symbol.
const tailBytes = 1 << 10

func (t *tail) Write(p []byte) (int, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.buf = append(t.buf, p...)
	if n := len(t.buf) - tailBytes; n > 0 {
		t.buf = bytes.Clone(t.buf[n:])
	}
	return len(p), nil
}

func (t *tail) String() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	return strings.ToValidUTF8(string(t.buf), "")
}
