// Package watch draws units in a terminal: live, and once as text. It owns the
// layout, the keys and what is left on the screen; what is drawn comes from
// internal/app/observe. It must not judge: every word on the screen stands for
// a field of the status, and what is not known is not drawn.
package watch

import (
	"context"
	"errors"
	"io"
	"os"
	"strings"
	"time"

	tea "charm.land/bubbletea/v2"
	"github.com/cenkalti/backoff/v5"
	"github.com/charmbracelet/colorprofile"

	"github.com/startupd/startupd/internal/app/observe"
	"github.com/startupd/startupd/pkg/web/api"
)

// Terminal is where a view is drawn.
type Terminal struct {
	In, Out *os.File
	// Env is the environment as os.Environ gives it: TERM, NO_COLOR, the locale.
	Env []string
}

// Options returns how to draw on the terminal: without colour where it has none
// or NO_COLOR is set, in ASCII where the locale is not UTF-8. Width is left
// open.
func (t Terminal) Options() Options {
	profile := colorprofile.Detect(t.Out, t.Env)
	return Options{Color: profile > colorprofile.ASCII, ASCII: !UTF8(t.Env)}
}

// Dumb says that the terminal can't move its cursor.
func (t Terminal) Dumb() bool {
	term := variable(t.Env, "TERM")
	return term == "" || term == "dumb"
}

// UTF8 says that the locale's characters are UTF-8, by the variables in
// their order of precedence.
func UTF8(env []string) bool {
	for _, name := range []string{"LC_ALL", "LC_CTYPE", "LANG"} {
		if v := strings.ToLower(variable(env, name)); v != "" {
			return strings.Contains(v, "utf-8") || strings.Contains(v, "utf8")
		}
	}
	return false
}

// variable is the last value of a name; "" when it is not set.
func variable(env []string, name string) string {
	value := ""
	for _, e := range env {
		if v, ok := strings.CutPrefix(e, name+"="); ok {
			value = v
		}
	}
	return value
}

// Observer calls see with each view, and note when the way of observing
// changes, until ctx ends or see returns an error.
type Observer func(ctx context.Context, see func(observe.Update) error, note func(string)) error

// Run draws live until the operator quits, a signal comes or ctx ends, and
// leaves the last state as text. It returns an error when there was nothing to
// see: the observer's.
func Run(ctx context.Context, t Terminal, observer Observer) error {
	if t.Dumb() {
		return lines(ctx, t.Out, t.Options(), observer)
	}
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	m := newModel(t.Options(), time.Now)
	program := tea.NewProgram(m, tea.WithInput(t.In), tea.WithOutput(t.Out), tea.WithEnvironment(t.Env))
	// A context of the library's would end it without waiting for its reader.
	defer context.AfterFunc(ctx, program.Quit)()
	done := make(chan any, 1)
	go func() {
		// A panic must not leave the terminal in the view's modes.
		defer func() {
			r := recover()
			if r != nil {
				program.Quit()
			}
			done <- r
		}()
		observeAgain(ctx, observer, program)
	}()
	_, err := program.Run()
	left := m.leave(t.Out, err)
	stop()
	if r := <-done; r != nil {
		panic(r)
	}
	return left
}

// leave writes what stays on the screen. It returns the observer's error when
// there was nothing to see.
func (m *model) leave(out io.Writer, err error) error {
	switch {
	case m.last.Status == nil && m.ended != nil:
		return m.ended
	case errors.Is(err, tea.ErrProgramPanic):
		return err
	case errors.Is(err, tea.ErrInterrupted):
		err = nil
	}
	_, werr := io.WriteString(out, parting(m.status(), m.moment(), m.options()))
	return errors.Join(err, werr)
}

// receiver takes messages for the view; tea.Program is one.
type receiver interface{ Send(tea.Msg) }

// observeAgain observes until ctx ends. One who watches a unit wants to see it
// again when the daemon is back; without any view there is nothing to wait for.
func observeAgain(ctx context.Context, observer Observer, view receiver) {
	wait := backoff.NewExponentialBackOff()
	wait.InitialInterval, wait.MaxInterval = time.Second, 10*time.Second
	ever := false
	for {
		err := observer(ctx,
			func(u observe.Update) error {
				ever = true
				wait.Reset()
				view.Send(updateMsg(u))
				return ctx.Err()
			},
			func(text string) { view.Send(noteMsg(text)) })
		if ctx.Err() == nil {
			view.Send(endMsg{err})
		}
		if !ever {
			return
		}
		select {
		case <-ctx.Done():
			return
		case <-time.After(wait.NextBackOff()):
		}
	}
}

// lines writes a line whenever a unit's state or step changes, for a terminal
// whose cursor can't be moved.
func lines(ctx context.Context, out io.Writer, o Options, observer Observer) error {
	l := &lister{out: out, opts: o, told: map[string]string{}}
	err := observer(ctx,
		func(u observe.Update) error { return l.tell(u.Status, time.Now()) },
		func(text string) { l.line(newInk(o).clean(text)) })
	if ctx.Err() != nil {
		return nil
	}
	return err
}

// lister writes lines.
type lister struct {
	out  io.Writer
	opts Options
	// told is what was written last of each unit.
	told map[string]string
}

func (l *lister) tell(s *api.Status, now time.Time) error {
	p := newPage(l.opts)
	us := subjects(s, now)
	names := p.names(us)
	for _, u := range us {
		word, _ := u.verdict()
		key := word
		if u.Startup != nil {
			key = join("/", word, u.Startup.Invocation, u.Startup.Phase, u.Startup.Step)
		}
		if l.told[u.Unit.Unit] == key {
			continue
		}
		l.told[u.Unit.Unit] = key
		if err := l.line(p.clock(now) + "  " + p.cut(p.row(u, names), p.width-10)); err != nil {
			return err
		}
	}
	return nil
}

func (l *lister) line(text string) error {
	_, err := io.WriteString(l.out, strings.TrimRight(text, " ")+"\n")
	return err
}
