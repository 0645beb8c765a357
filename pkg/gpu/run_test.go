package gpu

import (
	"context"
	"errors"
	"io"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/startupd/startupd/pkg/event"
)

// script is a source in a bubble of synctest whose readers are played by the
// test: its events, and how many readers were started.
type script struct {
	source *Source
	states []string
	// samples holds when each sample came, since the beginning.
	samples []time.Duration
	started int
	cancel  context.CancelFunc
	ended   chan error
}

// play runs a source; reader makes the n-th reader, counted from 1.
func play(o Options, reader func(n int) (*child, error)) *script {
	begun := time.Now()
	o.Clock = func() event.Stamp { return event.Stamp{Boot: "b", Mono: time.Since(begun)} }
	p := &script{source: New(o), ended: make(chan error, 1)}
	p.source.start = func() (*child, error) {
		p.started++
		return reader(p.started)
	}
	ctx, cancel := context.WithCancel(context.Background())
	p.cancel = cancel
	go func() {
		p.ended <- p.source.Run(ctx, func(_ context.Context, evs []event.Event) error {
			for _, ev := range evs {
				switch d := ev.Data.(type) {
				case *event.SourceState:
					p.states = append(p.states, d.State)
				case *event.GPUSample:
					p.samples = append(p.samples, ev.At.Mono)
				}
			}
			return nil
		})
	}()
	return p
}

// mute is a reader that never answers; it is gone once gone is closed.
func mute(gone chan struct{}) *child {
	return &child{
		pid: 4242, in: io.Discard, answers: make(chan answer), kill: func() {}, done: gone,
		exit: func() string { return "signal: killed" },
	}
}

// answering is a reader that gives an answer to each command at once.
func answering(rep report) *child {
	answers, gone := make(chan answer, 1), make(chan struct{})
	return &child{
		pid: 4242, answers: answers, done: gone,
		in:   writer(func() { answers <- answer{report: rep} }),
		kill: func() { close(gone) },
		exit: func() string { return "signal: killed" },
	}
}

type writer func()

func (w writer) Write(p []byte) (int, error) {
	w()
	return len(p), nil
}

func good() report { return report{State: StateUp, GPUs: []event.GPU{{Index: 0}}} }

func TestReaderThatCannotBeKilled(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		gone := make(chan struct{})
		p := play(Options{}, func(n int) (*child, error) {
			if n == 1 {
				return mute(gone), nil
			}
			return answering(good()), nil
		})
		<-time.After(24 * time.Hour)
		synctest.Wait()
		if p.started != 1 {
			t.Errorf("%d readers were started beside one that can't be killed, want none", p.started-1)
		}
		if want := []string{StateHung, StateHung}; !slices.Equal(p.states, want) {
			t.Errorf("states %v, want %v", p.states, want)
		}
		close(gone)
		<-time.After(time.Minute)
		synctest.Wait()
		if p.started != 2 || p.states[len(p.states)-1] != StateUp {
			t.Errorf("%d readers, states %v, want a second reader that works", p.started, p.states)
		}
		p.cancel()
		if err := <-p.ended; !errors.Is(err, context.Canceled) {
			t.Errorf("Run: %v", err)
		}
	})
}

func TestStopWhileReaderCannotBeKilled(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := play(Options{}, func(int) (*child, error) { return mute(make(chan struct{})), nil })
		<-time.After(time.Hour)
		p.cancel()
		if err := <-p.ended; !errors.Is(err, context.Canceled) {
			t.Errorf("Run: %v", err)
		}
	})
}

func TestIntervals(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := play(Options{Interval: 10 * time.Second}, func(int) (*child, error) { return answering(good()), nil })
		<-time.After(25 * time.Second)
		p.source.SetInterval(time.Second)
		p.source.SetInterval(time.Second)
		<-time.After(2500 * time.Millisecond)
		synctest.Wait()
		s := time.Second
		if want := []time.Duration{0, 10 * s, 20 * s, 25 * s, 26 * s, 27 * s}; !slices.Equal(p.samples, want) {
			t.Errorf("samples at %v, want %v", p.samples, want)
		}
		if want := []string{StateUp}; !slices.Equal(p.states, want) {
			t.Errorf("states %v, want it told once", p.states)
		}
		p.cancel()
		<-p.ended
	})
}

func TestRefusingDriverIsAskedLessAndLess(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		asked := 0
		p := play(Options{Interval: time.Second}, func(int) (*child, error) {
			c := answering(report{State: StateNoDriver, Reason: "none"})
			in := c.in
			c.in = writer(func() { asked++; _, _ = in.Write(nil) })
			return c, nil
		})
		<-time.After(time.Hour)
		synctest.Wait()
		// A wait is at most 45 s and at least 15 s once it has grown.
		if asked < 3600/45 || asked > 3600/15+20 {
			t.Errorf("asked %d times in an hour", asked)
		}
		if want := []string{StateNoDriver}; !slices.Equal(p.states, want) || p.samples != nil {
			t.Errorf("states %v and %d samples, want one state and no sample", p.states, len(p.samples))
		}
		p.cancel()
		<-p.ended
	})
}

func TestReaderThatCannotBeStarted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := play(Options{}, func(int) (*child, error) { return nil, errors.New("no such file") })
		<-time.After(time.Hour)
		synctest.Wait()
		if p.started < 3600/45 || p.started > 3600/15+20 {
			t.Errorf("started %d times in an hour", p.started)
		}
		p.cancel()
		<-p.ended
	})
}

func TestEmitErrorEndsRun(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		full := errors.New("full")
		s := New(Options{Clock: func() event.Stamp { return event.Stamp{} }})
		s.start = func() (*child, error) { return answering(good()), nil }
		err := s.Run(t.Context(), func(context.Context, []event.Event) error { return full })
		if !errors.Is(err, full) {
			t.Errorf("Run: %v, want emit's error", err)
		}
	})
}

func TestProcessThatIsNoReader(t *testing.T) {
	for name, tc := range map[string]struct {
		argv []string
		want string
	}{
		"nonsense":    {[]string{"echo", "nonsense"}, "it answered what is no report"},
		"ends":        {[]string{"sh", "-c", "echo symbol lookup error >&2; exit 127"}, "exit status 127: symbol lookup error"},
		"not there":   {[]string{"/no/such/program"}, "can't start the GPU reader: fork/exec /no/such/program"},
		"no command":  {nil, "no command was given"},
		"long answer": {[]string{"sh", "-c", "head -c 20000000 /dev/zero"}, "its answer can't be read"},
	} {
		t.Run(name, func(t *testing.T) {
			s := New(Options{Command: tc.argv, Clock: func() event.Stamp { return event.Stamp{} }})
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			var got *event.SourceState
			err := s.Run(ctx, func(_ context.Context, evs []event.Event) error {
				got = evs[0].Data.(*event.SourceState)
				cancel()
				return nil
			})
			if !errors.Is(err, context.Canceled) {
				t.Errorf("Run: %v", err)
			}
			if got.State != StateRestarting || got.Up || !strings.Contains(got.Reason, tc.want) {
				t.Errorf("state %+v, want %s with %q", got, StateRestarting, tc.want)
			}
		})
	}
}
