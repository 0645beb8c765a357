package journal

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/startupd/startupd/pkg/event"
)

// fakeJournal is a journal in memory whose readers can be made to die.
type fakeJournal struct {
	mu       sync.Mutex
	recs     []rec
	from     int           // how many entries were removed before recs
	grown    chan struct{} // closed and replaced with each append
	dieAfter []int         // bytes that the next followers write before they die
	starts   int
	commands []string
	last     *dyingWriter // of the present reader
	marks    bool
	mute     bool
	random   *rand.Rand // sizes of batches
}

func newFakeJournal(recs ...rec) *fakeJournal {
	return &fakeJournal{recs: recs, grown: make(chan struct{}), marks: true, random: rand.New(rand.NewPCG(1, 2))}
}

func (j *fakeJournal) append(recs ...rec) {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.recs = append(j.recs, recs...)
	close(j.grown)
	j.grown = make(chan struct{})
}

func (j *fakeJournal) watermarks() bool  { return j.marks }
func (j *fakeJournal) followsBoot() bool { return !j.marks }

type fakeChild struct {
	net.Conn
	journal *fakeJournal
	cancel  context.CancelFunc
	done    chan struct{} // closed once err is set
	err     error
}

// SetReadDeadline works on a closed pipe too, as with a process.
func (c *fakeChild) SetReadDeadline(t time.Time) error {
	_ = c.Conn.SetReadDeadline(t)
	return nil
}
func (c *fakeChild) wait() error { <-c.done; return c.err }
func (c *fakeChild) kill()       { c.cancel(); _ = c.Close() }
func (c *fakeChild) command(line string) {
	c.journal.mu.Lock()
	defer c.journal.mu.Unlock()
	c.journal.commands = append(c.journal.commands, line)
}

func (j *fakeJournal) start(ctx context.Context, q *request) (child, readCloser, error) {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.starts++
	r, w := net.Pipe()
	ctx, cancel := context.WithCancel(ctx)
	c := &fakeChild{Conn: r, journal: j, cancel: cancel, done: make(chan struct{})}
	out := &dyingWriter{w: w, left: 1 << 60, done: ctx.Done()}
	j.last = out
	if q.Follow && len(j.dieAfter) > 0 {
		out.left, j.dieAfter = j.dieAfter[0], j.dieAfter[1:]
	}
	context.AfterFunc(ctx, func() { _ = w.Close() })
	go func() {
		defer w.Close()
		defer close(c.done)
		c.err = j.serve(ctx, *q, out)
	}()
	return c, c, nil
}

// stopAfter makes the present reader stop for good once it has written n more
// bytes.
func (j *fakeJournal) stopAfter(n int) {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.last.stop.Store(int64(n))
}

// dyingWriter fails in the middle of a write once it has written enough.
type dyingWriter struct {
	w    net.Conn
	left int
	done <-chan struct{} // the reader is killed
	stop atomic.Int64    // bytes after which it stops for good; 0 is never
}

func (d *dyingWriter) Write(p []byte) (int, error) {
	if stop := int(d.stop.Load()); stop > 0 && stop < len(p) {
		if _, err := d.w.Write(p[:stop]); err != nil {
			return 0, err
		}
		<-d.done
		return stop, fmt.Errorf("signal: killed")
	}
	n := min(len(p), d.left)
	d.left -= n
	if _, err := d.w.Write(p[:n]); err != nil {
		return 0, err
	}
	if n < len(p) {
		return n, fmt.Errorf("signal: bus error")
	}
	return n, nil
}

// serve does what a reader child does: batches whose last entry has a cursor,
// a watermark at the tail.
func (j *fakeJournal) serve(ctx context.Context, q request, out *dyingWriter) error {
	if j.mute && q.Follow {
		<-ctx.Done()
		return nil
	}
	next, first, left := j.seek(q), true, q.Limit
	for {
		j.mu.Lock()
		recs, grown := j.recs, j.grown
		size := 1 + j.random.IntN(4)
		j.mu.Unlock()
		batch := j.batch(recs, q, &next, size)
		enc := NewEncoder(out)
		for i, at := range batch {
			r := recs[at]
			cursor := ""
			sameAsUntil := strings.Contains(q.Until, fmt.Sprintf(";m=%x;", r.at))
			if first || q.Cursors || i == len(batch)-1 || sameAsUntil || !j.marks {
				cursor = cursorOf(j.from+at, r)
			}
			first = false
			r.encode(enc, cursor)
			if err := enc.End(); err != nil {
				return err
			}
			if left--; left == 0 {
				return nil
			}
		}
		if len(batch) > 0 {
			continue
		}
		if !q.Follow {
			return nil
		}
		if j.marks {
			if err := writeWatermark(enc, event.Stamp{Real: time.Now(), Boot: testBoot, Mono: time.Hour}); err != nil {
				return err
			}
		}
		select {
		case <-ctx.Done():
			return nil
		case <-grown:
		case <-time.After(watermarkEvery):
		}
	}
}

func (j *fakeJournal) seek(q request) int {
	j.mu.Lock()
	defer j.mu.Unlock()
	if q.From != "" {
		want, err := parsePlace(q.From)
		if err != nil {
			panic(err)
		}
		for i, r := range j.recs {
			p, _ := parsePlace(cursorOf(j.from+i, r))
			if p.same(want) || p.after(want) {
				return i
			}
		}
		return len(j.recs)
	}
	if q.Reverse {
		return len(j.recs) - 1
	}
	return 0
}

func (j *fakeJournal) batch(recs []rec, q request, next *int, size int) []int {
	var out []int
	for *next >= 0 && *next < len(recs) && len(out) < size {
		if matches(recs[*next], q.Matches) {
			out = append(out, *next)
		}
		if q.Reverse {
			*next--
		} else {
			*next++
		}
	}
	return out
}

func matches(r rec, any [][]string) bool {
	if len(any) == 0 {
		return true
	}
	have := map[string]bool{}
	for _, f := range r.fields {
		have[f] = true
	}
	for _, all := range any {
		ok := true
		for _, m := range all {
			ok = ok && have[m]
		}
		if ok {
			return true
		}
	}
	return false
}

// collector is the receiver of a source's events.
type collector struct {
	mu     sync.Mutex
	events []event.Event
}

func (c *collector) emit(_ context.Context, ev []event.Event) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.events = append(c.events, ev...)
	return nil
}

func (c *collector) all() []event.Event {
	c.mu.Lock()
	defer c.mu.Unlock()
	return append([]event.Event(nil), c.events...)
}

func (c *collector) states() []event.SourceState {
	var out []event.SourceState
	for _, ev := range c.all() {
		if st, ok := ev.Data.(*event.SourceState); ok {
			out = append(out, *st)
		}
	}
	return out
}

func fakeSource(t *testing.T, j *fakeJournal, o Options) *Source {
	t.Helper()
	o.Reader.Kind, o.Reader.Journalctl = ReaderJournalctl, "/bin/true"
	if o.UnitsDir == "" {
		o.UnitsDir = t.TempDir()
	}
	o.Clock = func() event.Stamp { return event.Stamp{Real: time.Now(), Boot: testBoot, Mono: time.Hour} }
	s, err := New(o)
	if err != nil {
		t.Fatal(err)
	}
	s.launcher, s.access = j, func() error { return nil }
	s.watch = func(context.Context) {} // inotify would keep the bubble's time from passing
	return s
}

// run runs the source in the bubble and returns what stops it.
func run(t *testing.T, s *Source, emit Emit) (stop func()) {
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- s.Run(ctx, emit) }()
	return func() {
		cancel()
		if err := <-done; err != nil {
			t.Errorf("Run: %v", err)
		}
	}
}

// elapse lets the bubble's clock run on.
func elapse(d time.Duration) { <-time.After(d) }

func unitTargets(units ...string) []TargetSpec {
	var out []TargetSpec
	for _, u := range units {
		out = append(out, TargetSpec{Unit: u})
	}
	return out
}
