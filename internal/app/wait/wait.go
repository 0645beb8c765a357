package wait

import (
	"context"
	"errors"
	"fmt"
	"os"
	"syscall"
	"time"

	"github.com/startupd/startupd/internal/app/observe"
	"github.com/startupd/startupd/pkg/phases"
	"github.com/startupd/startupd/pkg/web/api"
)

// Options say what is waited for, and how it is learned.
type Options struct {
	// Unit is the unit's full name, For the phase to wait for.
	Unit string
	For  phases.State
	// Invocation is the one to wait for; "" means the present one.
	Invocation string
	// Inside says that this process is one of the unit's own commands. A SIGTERM is
	// then systemd's, as the main process has died.
	Inside bool
	// Timeout bounds the wait; 0 is no bound. StartTimeout bounds it while the unit
	// does not run.
	Timeout, StartTimeout time.Duration
	// Observe calls see with each new view of the unit until ctx ends.
	Observe func(ctx context.Context, see func(observe.Update) error) error
	// Manager asks systemd; nil where there is none to ask (the journal is a copy).
	Manager func(ctx context.Context) Unit
	// Past looks the newest start of an invocation up that is over; nil, or a nil
	// startup, when nothing is known of it.
	Past func(ctx context.Context, invocation string) (*api.Startup, error)
	// Signals end the wait.
	Signals <-chan os.Signal
	// Progress shows where it stands; nil shows nothing.
	Progress Progress
	// Tell gives systemd a status text; nil tells none.
	Tell func(text string)
}

// Progress shows where a wait stands.
type Progress interface {
	// Show is called a few times a second; startup is nil until one is seen.
	Show(startup *api.Startup, now time.Time)
}

const (
	// lookEvery is how often the time is looked at, and manageEvery how often systemd
	// is asked while it is not known which invocation is meant.
	lookEvery   = 50 * time.Millisecond
	manageEvery = 200 * time.Millisecond
	// knownEvery is how often it is asked once it has told which.
	knownEvery = time.Second
	// tellEvery is the least time between two status texts.
	tellEvery = time.Second
	// askWithin bounds a question to systemd or to the journal.
	askWithin = 10 * time.Second
)

// Run waits for the verdict.
func Run(ctx context.Context, o Options) *Result {
	ctx, cancel := context.WithCancel(ctx)
	w := &waiter{
		Options: o, views: make(chan observe.Update), blind: make(chan error, 1),
		units: make(chan Unit), found: make(chan found, 1),
	}
	now := time.Now()
	w.judge = judge{unit: o.Unit, want: o.For, began: now, timeout: o.Timeout, startTimeout: o.StartTimeout, pinned: o.Invocation}
	done := make(chan struct{})
	go func() {
		defer close(done)
		w.blind <- o.Observe(ctx, func(u observe.Update) error {
			select {
			case w.views <- u:
				return nil
			case <-ctx.Done():
				return ctx.Err()
			}
		})
	}()
	if w.pinned == "" {
		go w.askManager(ctx)
	}
	r := w.loop(ctx)
	if w.Tell != nil {
		w.Tell(r.Status())
	}
	cancel()
	// A core in this process ends its readers; what hangs is left to end with us.
	select {
	case <-done:
	case <-time.After(endWithin):
	}
	return r
}

// endWithin is how long the observer may take to end.
const endWithin = time.Second

type waiter struct {
	Options
	judge
	views chan observe.Update
	// blind gets the observer's end.
	blind chan error
	units chan Unit
	found chan found
	// told is the last status text, of toldAt.
	told   string
	toldAt time.Time
}

// found is an answer of Past.
type found struct {
	startup *api.Startup
	err     error
}

func (w *waiter) loop(ctx context.Context) *Result {
	tick := time.NewTicker(lookEvery)
	defer tick.Stop()
	for {
		select {
		case u := <-w.views:
			w.see(u, time.Now())
		case u := <-w.units:
			w.manager(u, time.Now())
			if w.view != nil {
				// It may hold what is meant since now.
				w.see(*w.view, time.Now())
			}
		case f := <-w.found:
			w.recall(f, time.Now())
		case s := <-w.Signals:
			w.signal(ctx, s, time.Now())
		case err := <-w.blind:
			return w.dark(err, time.Now())
		case <-ctx.Done():
			w.stop("the wait was ended", 0, time.Now())
		case <-tick.C:
		}
		now := time.Now()
		if r := w.decide(now); r != nil {
			return r
		}
		if w.Past != nil && w.ask(now) {
			go w.lookUp(ctx, w.pinned)
		}
		w.show(now)
	}
}

// show tells where it stands.
func (w *waiter) show(now time.Time) {
	if w.Progress != nil {
		w.Progress.Show(w.startup, now)
	}
	if w.Tell == nil || w.startup == nil || now.Sub(w.toldAt) < tellEvery {
		return
	}
	if text := StatusOf(w.startup); text != w.told {
		w.told, w.toldAt = text, now
		w.Tell(text)
	}
}

// askManager asks systemd again and again, as what it is about to do changes.
func (w *waiter) askManager(ctx context.Context) {
	if w.Manager == nil {
		w.send(ctx, Unit{})
		return
	}
	for {
		asked, cancel := context.WithTimeout(ctx, askWithin)
		u := w.Manager(asked)
		cancel()
		if !w.send(ctx, u) {
			return
		}
		pause := manageEvery
		if u.which() == present {
			pause = knownEvery
		}
		select {
		case <-ctx.Done():
			return
		case <-time.After(pause):
		}
	}
}

func (w *waiter) send(ctx context.Context, u Unit) bool {
	select {
	case w.units <- u:
		return true
	case <-ctx.Done():
		return false
	}
}

func (w *waiter) lookUp(ctx context.Context, invocation string) {
	asked, cancel := context.WithTimeout(ctx, askWithin)
	defer cancel()
	s, err := w.Past(asked, invocation)
	select {
	case w.found <- found{s, err}:
	default: // an older answer was not taken yet
	}
}

// recall takes what the journal or the history knows of a start that the view
// does not hold any more.
func (w *waiter) recall(f found, now time.Time) {
	if s := f.startup; f.err == nil && s != nil && !w.missingSince.IsZero() && s.Outcome != api.Starting && s.Outcome != api.Stalled {
		// Another start has taken its place: this one is over.
		s.Final, s.Exited = true, true
		w.take(s, now)
	}
}

func (w *waiter) signal(ctx context.Context, s os.Signal, now time.Time) {
	if s == syscall.SIGTERM && w.Inside {
		w.stop("systemd has ended the wait by SIGTERM", stopGrace, now)
		if w.Manager != nil {
			// Nobody else asks: the invocation is known.
			go func() { w.send(ctx, w.Manager(ctx)) }()
		}
		return
	}
	w.stop(fmt.Sprintf("the wait was ended by a signal (%v)", s), 0, now)
}

// dark is the result where nothing can be observed any more.
func (w *waiter) dark(err error, now time.Time) *Result {
	if r := w.decide(now); r != nil {
		return r
	}
	reason := err.Error()
	if errors.Is(err, context.Canceled) {
		reason = "the wait was ended"
	}
	if w.systemd.which() == over {
		return w.result(Failed, "systemd has failed it ("+w.systemd.Result+"), and of its log "+reason, now)
	}
	return w.result(Unknown, reason, now)
}
