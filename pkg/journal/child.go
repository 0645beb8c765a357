package journal

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

// readCloser is a pipe from a reader child, or a net.Pipe in a test.
type readCloser interface {
	io.ReadCloser
	SetReadDeadline(time.Time) error
}

// child is a running reader.
type child interface {
	// command sends a line to the reader; readers without commands ignore it.
	command(line string)
	// wait returns why a reader whose output has ended failed; nil when it did
	// not.
	wait() error
	// kill ends the reader, which has nothing to save.
	kill()
}

// launcher starts reader children.
type launcher interface {
	// start returns the reader and its output in the Journal Export Format.
	start(ctx context.Context, q *request) (child, readCloser, error)
	// watermarks says that the children tell by themselves that they are idle.
	watermarks() bool
	// followsBoot says that a following child sees the present boot only.
	followsBoot() bool
}

// newLauncher chooses the reader.
func newLauncher(r Reader) (launcher, error) {
	switch r.Kind {
	case ReaderSDJournal:
		if err := Available(); err != nil {
			return nil, err
		}
	case ReaderAuto, "":
		if Available() != nil {
			return newJournalctl(r)
		}
	case ReaderJournalctl:
		return newJournalctl(r)
	default:
		return nil, fmt.Errorf("unknown journal reader %q: use auto, sdjournal or journalctl", r.Kind)
	}
	argv := r.Child
	if len(argv) == 0 {
		argv = []string{"/proc/self/exe", "journal-reader"}
	}
	return &sdjournalLauncher{dir: r.Dir, argv: argv}, nil
}

type sdjournalLauncher struct {
	dir  string
	argv []string
}

func (l *sdjournalLauncher) watermarks() bool  { return true }
func (l *sdjournalLauncher) followsBoot() bool { return false }

func (l *sdjournalLauncher) start(ctx context.Context, q *request) (child, readCloser, error) {
	q.Dir = l.dir
	line, err := json.Marshal(q)
	if err != nil {
		return nil, nil, fmt.Errorf("journal request: %w", err)
	}
	p, err := startProcess(ctx, l.argv, true)
	if err != nil {
		return nil, nil, err
	}
	p.command(string(line))
	return p, p.out, nil
}

type journalctlLauncher struct{ dir, path string }

func newJournalctl(r Reader) (launcher, error) {
	full, err := journalctl(r.Journalctl)
	if err != nil {
		return nil, fmt.Errorf("journal reader: %w; install systemd's journalctl or build with libsystemd's headers", err)
	}
	return &journalctlLauncher{dir: r.Dir, path: full}, nil
}

// journalctl finds the program. The system's own comes first: as a command of a
// unit with + this runs as root, and the PATH is the unit's.
func journalctl(path string) (string, error) {
	if path != "" {
		return exec.LookPath(path)
	}
	for _, dir := range []string{"/usr/bin", "/bin"} {
		if full, err := exec.LookPath(filepath.Join(dir, "journalctl")); err == nil {
			return full, nil
		}
	}
	return exec.LookPath("journalctl")
}

func (l *journalctlLauncher) watermarks() bool  { return false }
func (l *journalctlLauncher) followsBoot() bool { return true }

func (l *journalctlLauncher) start(ctx context.Context, q *request) (child, readCloser, error) {
	p, err := startProcess(ctx, append([]string{l.path}, l.args(q)...), false)
	if err != nil {
		return nil, nil, err
	}
	return p, p.out, nil
}

// args says everything explicitly that has a default: --follow would show
// only the last ten lines. --cursor is inclusive; --after-cursor would skip a
// good entry where the cursor's own is gone.
func (l *journalctlLauncher) args(q *request) []string {
	names := fieldNames()
	a := []string{"--output=export", "--no-pager", "--quiet",
		"--output-fields=" + strings.Join(names[BootID:], ",")}
	if l.dir != "" {
		a = append(a, "--directory="+l.dir)
	}
	if q.From != "" {
		a = append(a, "--cursor="+q.From)
	}
	if q.Reverse {
		a = append(a, "--reverse")
	}
	if q.Follow {
		a = append(a, "--follow", "--no-tail")
	}
	for i, all := range q.Matches {
		if i > 0 {
			a = append(a, "+")
		}
		a = append(a, all...)
	}
	return a
}

// process is a reader as a child process.
type process struct {
	cmd    *exec.Cmd
	out    *os.File
	stderr *opening
	done   func() error

	mu    sync.Mutex // guards stdin
	stdin io.WriteCloser
}

// pipeSize lets the reader run ahead by some thousand lines.
const pipeSize = 1 << 20

func startProcess(ctx context.Context, argv []string, stdin bool) (*process, error) {
	p := &process{cmd: exec.CommandContext(ctx, argv[0], argv[1:]...), stderr: &opening{}}
	p.cmd.Stderr = p.stderr
	p.cmd.WaitDelay = time.Second
	p.cmd.Env = append(os.Environ(), "LC_ALL=C.UTF-8", "SYSTEMD_COLORS=0")
	if stdin {
		in, err := p.cmd.StdinPipe()
		if err != nil {
			return nil, fmt.Errorf("journal reader: %w", err)
		}
		p.stdin = in
	}
	out, w, err := os.Pipe()
	if err != nil {
		return nil, fmt.Errorf("journal reader: %w", err)
	}
	// Refused where the user has too many pipes; the default size works too.
	_, _ = unix.FcntlInt(w.Fd(), unix.F_SETPIPE_SZ, pipeSize)
	p.out, p.cmd.Stdout = out, w
	err = p.cmd.Start()
	_ = w.Close()
	if err != nil {
		_ = out.Close()
		return nil, fmt.Errorf("journal reader: %w", err)
	}
	p.done = sync.OnceValue(p.cmd.Wait)
	return p, nil
}

func (p *process) command(line string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.stdin != nil {
		// A reader that is gone is noticed by its output.
		_, _ = io.WriteString(p.stdin, line+"\n")
	}
}

func (p *process) wait() error {
	// A process that has closed its output and lives on is of no use.
	t := time.AfterFunc(time.Second, func() { _ = p.cmd.Process.Kill() })
	defer t.Stop()
	_ = p.out.Close()
	err := p.done()
	if err == nil {
		return nil
	}
	if msg := p.stderr.String(); msg != "" {
		return fmt.Errorf("journal reader: %w: %s", err, msg)
	}
	return fmt.Errorf("journal reader: %w", err)
}

func (p *process) kill() {
	_ = p.cmd.Process.Kill()
	_ = p.out.Close()
	_ = p.done()
}

// opening keeps the beginning of what a process says on standard error: a
// crashing one names its fault there, before its stack.
type opening struct {
	mu  sync.Mutex
	buf []byte
}

const stderrLimit = 2 << 10

func (o *opening) Write(p []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.buf = append(o.buf, p[:min(len(p), stderrLimit-len(o.buf))]...)
	return len(p), nil
}

func (o *opening) String() string {
	o.mu.Lock()
	defer o.mu.Unlock()
	first, _, _ := bytes.Cut(bytes.TrimSpace(o.buf), []byte("\n"))
	return string(first)
}
