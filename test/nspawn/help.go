package nspawn

import (
	"bytes"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"
)

// Output collects what a command prints, to be read while it runs.
type Output struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

func (o *Output) Write(b []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.buf.Write(b)
}

func (o *Output) String() string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.buf.String()
}

// Put writes a file and the folders above it.
func Put(tb testing.TB, path, text string) {
	tb.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		tb.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
		tb.Fatal(err)
	}
}

// Copy copies a file with its mode.
func Copy(tb testing.TB, from, to string) {
	tb.Helper()
	text, err := os.ReadFile(from)
	if err != nil {
		tb.Fatal(err)
	}
	info, err := os.Stat(from)
	if err != nil {
		tb.Fatal(err)
	}
	Put(tb, to, string(text))
	if err := os.Chmod(to, info.Mode()); err != nil {
		tb.Fatal(err)
	}
}

// Eventually calls check until it returns nil, and fails the test with its
// last error when time is up.
func Eventually(tb testing.TB, within time.Duration, check func() error) {
	tb.Helper()
	Poll(tb, 100*time.Millisecond, within, check)
}

// Poll is Eventually for a check that wants to be called in its own rhythm.
func Poll(tb testing.TB, every, within time.Duration, check func() error) {
	tb.Helper()
	tick := time.NewTicker(every)
	defer tick.Stop()
	deadline := time.After(within)
	for {
		err := check()
		if err == nil {
			return
		}
		select {
		case <-deadline:
			tb.Fatalf("not within %v: %v", within, err)
		case <-tick.C:
		}
	}
}
