package gpu

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"github.com/startupd/startupd/pkg/event"
	"github.com/startupd/startupd/test/fakenvml"
)

// The test binary is also the reader process: with envReader set it runs
// RunReader on the library and the procfs that the environment names.
const (
	envReader  = "TEST_GPU_READER"
	envLibrary = "TEST_GPU_LIBRARY"
	envProc    = "TEST_GPU_PROC"
	// envBuilt and envBuiltOld are the libraries built for this run.
	envBuilt    = "TEST_GPU_BUILT"
	envBuiltOld = "TEST_GPU_BUILT_OLD"
)

func TestMain(m *testing.M) {
	if os.Getenv(envReader) != "" {
		err := RunReader(context.Background(), ReaderOptions{
			Library: os.Getenv(envLibrary), ProcRoot: os.Getenv(envProc),
		}, os.Stdin, os.Stdout)
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		return
	}
	os.Exit(withLibraries(m))
}

// withLibraries builds the fake driver, once for all tests, and runs them.
func withLibraries(m *testing.M) int {
	dir, err := os.MkdirTemp("", "fakenvml")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer os.RemoveAll(dir)
	for env, build := range map[string]func(string) (string, error){
		envBuilt: fakenvml.Build, envBuiltOld: fakenvml.BuildOld,
	} {
		sub := filepath.Join(dir, env)
		if err := os.Mkdir(sub, 0o755); err != nil {
			fmt.Fprintln(os.Stderr, err)
			return 1
		}
		lib, err := build(sub)
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
			return 1
		}
		os.Setenv(env, lib)
	}
	return m.Run()
}

// bench is a source over a real reader process and a fake driver.
type bench struct {
	t      *testing.T
	source *Source
	events chan event.Event
	// pids tells of each reader process that was started.
	pids  chan int
	state string
	ended chan error
}

// begin runs a source whose driver says st.
func begin(t *testing.T, lib string, st fakenvml.State, o Options) *bench {
	t.Helper()
	b := &bench{
		t: t, events: make(chan event.Event, 64), pids: make(chan int, 64),
		state: filepath.Join(t.TempDir(), "state"), ended: make(chan error, 1),
	}
	b.set(st)
	t.Setenv(envReader, "1")
	t.Setenv(envLibrary, lib)
	t.Setenv(fakenvml.EnvState, b.state)
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	o.Command = []string{self}
	o.Clock = func() event.Stamp { return event.Stamp{Boot: "b", Mono: time.Second} }
	if o.Interval == 0 {
		o.Interval = 20 * time.Millisecond
	}
	b.source = New(o)
	start := b.source.start
	b.source.start = func() (*child, error) {
		c, err := start()
		if err == nil {
			b.pids <- c.pid
		}
		return c, err
	}
	b.run()
	return b
}

func (b *bench) run() {
	ctx, cancel := context.WithCancel(b.t.Context())
	go func() {
		b.ended <- b.source.Run(ctx, func(ctx context.Context, evs []event.Event) error {
			for _, ev := range evs {
				select {
				case b.events <- ev:
				case <-ctx.Done():
				}
			}
			return nil
		})
	}()
	b.t.Cleanup(func() {
		cancel()
		if err := <-b.ended; err != context.Canceled {
			b.t.Errorf("Run ended with %v, want the context's error", err)
		}
	})
}

func (b *bench) set(st fakenvml.State) {
	b.t.Helper()
	if err := fakenvml.WriteFile(b.state, st); err != nil {
		b.t.Fatal(err)
	}
}

// await returns the first event that match accepts.
func await[T event.Data](b *bench, what string, match func(T) bool) T {
	b.t.Helper()
	deadline := time.After(time.Minute)
	var last event.Data
	for {
		select {
		case ev := <-b.events:
			if d, ok := ev.Data.(T); ok {
				if match(d) {
					return d
				}
				last = d
			}
		case err := <-b.ended:
			b.t.Fatalf("no %s: the source ended: %v", what, err)
		case <-deadline:
			b.t.Fatalf("no %s within a minute; the last was %+v", what, last)
		}
	}
}

func (b *bench) awaitState(name string) *event.SourceState {
	b.t.Helper()
	return await(b, "state "+name, func(s *event.SourceState) bool { return s.State == name })
}

func (b *bench) awaitSample() *event.GPUSample {
	b.t.Helper()
	return await(b, "sample", func(*event.GPUSample) bool { return true })
}

func (b *bench) signal(sig syscall.Signal) {
	b.t.Helper()
	if err := syscall.Kill(<-b.pids, sig); err != nil {
		b.t.Fatal(err)
	}
}

func ptr[T any](v T) *T { return &v }
