package watch

import (
	"bytes"
	"context"
	"strings"
	"testing"

	"github.com/creack/pty"

	"github.com/startupd/startupd/internal/app/observe"
)

// tty is a terminal of the test's own, and what was sent to it.
type tty struct {
	Terminal
	// sent may be read once done is closed.
	sent bytes.Buffer
	done chan struct{}
}

func newTTY(t *testing.T) *tty {
	t.Helper()
	master, slave, err := pty.Open()
	if err != nil {
		t.Fatal(err)
	}
	if err := pty.Setsize(master, &pty.Winsize{Cols: 80, Rows: 24}); err != nil {
		t.Fatal(err)
	}
	d := &tty{
		Terminal: Terminal{In: slave, Out: slave, Env: []string{"TERM=xterm-256color", "LANG=C.UTF-8"}},
		done:     make(chan struct{}),
	}
	go func() {
		defer close(d.done)
		b := make([]byte, 4096)
		for !bytes.HasSuffix(d.sent.Bytes(), []byte(over)) {
			n, err := master.Read(b)
			if err != nil {
				return
			}
			d.sent.Write(b[:n])
		}
	}()
	return d
}

// over ends what a test sends. The terminal can't be closed instead: the
// library's reader may still wait for it.
const over = "the test is over"

// text is all that was sent, once the program is over.
func (d *tty) text(t *testing.T) string {
	t.Helper()
	if _, err := d.Out.WriteString(over); err != nil {
		t.Error(err)
	}
	<-d.done
	return d.sent.String()
}

const enterAlt, leaveAlt = "\x1b[?1049h", "\x1b[?1049l"

// TestPanicLeavesTheTerminalUsable: the observer's goroutine is not the
// library's to guard.
func TestPanicLeavesTheTerminalUsable(t *testing.T) {
	d := newTTY(t)
	defer func() {
		if r := recover(); r != "observer broke" {
			t.Errorf("the panic is lost: %v", r)
		}
		text := d.text(t)
		if in, out := strings.Index(text, enterAlt), strings.LastIndex(text, leaveAlt); in >= 0 && out < in {
			t.Errorf("the alternate screen is left behind: %q", text)
		}
	}()
	_ = Run(t.Context(), d.Terminal, func(_ context.Context, see func(observe.Update) error, _ func(string)) error {
		if err := see(observe.Update{Status: scenes()["loading"], Daemon: true, Settled: true}); err != nil {
			t.Error(err)
		}
		panic("observer broke")
	})
	t.Error("there was no panic")
}

// TestEndOfContext ends as a signal does, with the last state as text.
func TestEndOfContext(t *testing.T) {
	d := newTTY(t)
	ctx, stop := context.WithCancel(t.Context())
	err := Run(ctx, d.Terminal, func(ctx context.Context, see func(observe.Update) error, _ func(string)) error {
		if err := see(observe.Update{Status: scenes()["failed"], Daemon: true, Settled: true}); err != nil {
			return err
		}
		stop()
		return ctx.Err()
	})
	if err != nil {
		t.Errorf("an end that was asked for is an error: %v", err)
	}
	text := d.text(t)
	if after := text[strings.LastIndex(text, leaveAlt)+1:]; !strings.Contains(after, "package_mismatch") {
		t.Errorf("the last state is not left on the screen: %q", text)
	}
}
