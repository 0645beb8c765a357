package health

import (
	"context"
	"errors"
	"net"
	"net/http"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"

	"github.com/startupd/startupd/pkg/event"
)

func clock() event.Stamp { return event.Stamp{Real: time.Now()} }

// watcher keeps what a Source emits, with the seconds since it began.
type watcher struct {
	*Source
	began time.Time
	mu    sync.Mutex
	got   []string
	stop  func()
}

// watch runs a Source in a synctest bubble. Sockets that don't exist are the
// endpoints there: a connection attempt to them ends at once.
func watch(t *testing.T, opts Options, targets ...Target) *watcher {
	t.Helper()
	opts.Clock = clock
	w := &watcher{Source: New(opts), began: time.Now()}
	if err := w.SetTargets(targets); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- w.Run(ctx, w.emit) }()
	w.stop = func() {
		cancel()
		if err := <-done; !errors.Is(err, context.Canceled) {
			t.Errorf("Run returned %v", err)
		}
	}
	return w
}

func (w *watcher) emit(_ context.Context, events []event.Event) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, e := range events {
		w.got = append(w.got, e.At.Real.Sub(w.began).String()+" "+e.Target+" "+describe(e))
	}
	return nil
}

func (w *watcher) expect(t *testing.T, want ...string) {
	t.Helper()
	synctest.Wait()
	w.mu.Lock()
	defer w.mu.Unlock()
	if diff := cmp.Diff(want, w.got); diff != "" {
		t.Errorf("emitted (-want +got):\n%s", diff)
	}
	w.got = nil
}

// advance lets a bubble's time pass.
func advance(d time.Duration) { <-time.After(d) }

func missing(t *testing.T, name string) Target {
	return Target{Name: name, URL: "unix:" + filepath.Join(t.TempDir(), "none.sock") + ":/health"}
}

func TestUnchangedAnswerIsRepeated(t *testing.T) {
	target := missing(t, "a")
	synctest.Test(t, func(t *testing.T) {
		w := watch(t, Options{}, target)
		w.expect(t, "0s a source up", "0s a closed")
		advance(31 * time.Second)
		w.expect(t, "15s a closed", "30s a closed")
		w.stop()
	})
}

func TestIntervals(t *testing.T) {
	target := missing(t, "a")
	synctest.Test(t, func(t *testing.T) {
		// With a Repeat this short, every probe is told.
		w := watch(t, Options{Repeat: time.Nanosecond}, target)
		advance(1500 * time.Millisecond)
		w.expect(t, "0s a source up", "0s a closed", "1s a closed")
		w.SetInterval("a", 10*time.Second)
		advance(10 * time.Second)
		w.expect(t, "11s a closed")
		// A shorter interval counts from the last probe on, not from the next.
		w.SetInterval("a", 2*time.Second)
		advance(4 * time.Second)
		w.expect(t, "13s a closed", "15s a closed")
		w.SetInterval("unwatched", time.Second)
		w.SetInterval("a", 0)
		advance(2 * time.Second)
		w.expect(t, "17s a closed")
		w.stop()
	})
}

func TestSetTargets(t *testing.T) {
	a, b := missing(t, "a"), missing(t, "b")
	synctest.Test(t, func(t *testing.T) {
		w := watch(t, Options{Interval: 4 * time.Second, Repeat: time.Nanosecond}, a)
		advance(time.Second)
		w.expect(t, "0s a source up", "0s a closed")
		err := w.SetTargets([]Target{a, b, {Name: "off"}, {Name: "bad", URL: "gopher://x"}})
		if err == nil || !strings.Contains(err.Error(), "health URL of bad") {
			t.Errorf("SetTargets returned %v", err)
		}
		advance(4 * time.Second)
		w.expect(t, "1s b source up", "1s b closed", "4s a closed", "5s b closed")
		// a goes, b is asked elsewhere: a new prober begins.
		if err := w.SetTargets([]Target{{Name: "b", URL: a.URL}}); err != nil {
			t.Fatal(err)
		}
		advance(3 * time.Second)
		w.expect(t, "5s b source up", "5s b closed")
		if err := w.SetTargets(nil); err != nil {
			t.Fatal(err)
		}
		advance(time.Minute)
		w.expect(t)
		w.stop()
	})
}

// TestStart follows an endpoint through a whole start over a real socket:
// closed, not ready, ready, mute, closed.
func TestStart(t *testing.T) {
	socket := filepath.Join(t.TempDir(), "engine.sock")
	core, logs := observer.New(zap.WarnLevel)
	s := New(Options{Clock: clock, Logger: zap.New(core), Interval: time.Millisecond, Timeout: 50 * time.Millisecond, Repeat: time.Hour})
	target := Target{Name: "engine", URL: "unix:" + socket + ":/health", NotReadyCodes: []int{503}}
	if err := s.SetTargets([]Target{target}); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	events := make(chan event.Event)
	done := make(chan error, 1)
	go func() {
		done <- s.Run(ctx, func(ctx context.Context, batch []event.Event) error {
			for _, e := range batch {
				select {
				case events <- e:
				case <-ctx.Done():
					return ctx.Err()
				}
			}
			return nil
		})
	}()
	next := func(want string) {
		t.Helper()
		if got := describe(<-events); got != want {
			t.Fatalf("got %s, want %s", got, want)
		}
	}
	next("source up")
	next("closed")
	e := newEngine(t, socket)
	next("not_ready")
	e.set(http.StatusOK)
	next("ready")
	e.set(0)
	next("source no_answer")
	next("unknown")
	e.close()
	// The probe in flight may see its connection break first.
	for got := describe(<-events); got != "source up"; got = describe(<-events) {
		if got != "source no_answer" && got != "unknown" {
			t.Fatalf("got %s before the port was seen closed", got)
		}
	}
	next("closed")
	cancel()
	if err := <-done; !errors.Is(err, context.Canceled) {
		t.Errorf("Run returned %v", err)
	}
	if logs.FilterMessageSnippet("no answer within 50ms").Len() != 1 {
		t.Errorf("the log does not tell of the time-out once: %v", logs.All())
	}
}

func describe(e event.Event) string {
	switch d := e.Data.(type) {
	case *event.SourceState:
		return "source " + d.State
	case *event.HealthSample:
		return string(d.Status)
	}
	return "nothing of a health source"
}

// engine answers with a status that tests set; 0 is no answer at all.
type engine struct {
	mu   sync.Mutex
	code int
	srv  *http.Server
}

func newEngine(t *testing.T, socket string) *engine {
	t.Helper()
	ln, err := net.Listen("unix", socket)
	if err != nil {
		t.Fatal(err)
	}
	e := &engine{code: http.StatusServiceUnavailable}
	e.srv = &http.Server{Handler: e}
	go func() { _ = e.srv.Serve(ln) }()
	t.Cleanup(e.close)
	return e
}

func (e *engine) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	e.mu.Lock()
	code := e.code
	e.mu.Unlock()
	if code == 0 {
		<-r.Context().Done()
		return
	}
	w.WriteHeader(code)
}

func (e *engine) set(code int) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.code = code
}

func (e *engine) close() { _ = e.srv.Close() }

func TestRunEndsWithTheConsumer(t *testing.T) {
	s := New(Options{Clock: clock})
	if err := s.SetTargets([]Target{missing(t, "a"), missing(t, "b")}); err != nil {
		t.Fatal(err)
	}
	full := errors.New("consumer is full")
	if err := s.Run(t.Context(), func(context.Context, []event.Event) error { return full }); err != full {
		t.Errorf("Run returned %v, want the consumer's error", err)
	}
}
