package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/startupd/startupd/test/engine/scenario"
)

// patience bounds how long the main process waits at its end for children that
// should have ended before.
const patience = 10 * time.Second

// family is the main process's children.
type family struct {
	*actor
	// ended holds a channel for each child, closed at its end.
	ended map[string]chan struct{}

	mu sync.Mutex
	// pids holds the living children by their name.
	pids map[string]int
	errs []error
}

// engine is the life of the main process.
func engine(ctx context.Context, c config) (int, error) {
	var err error
	if c.start, err = nextStart(c.state); err != nil {
		return 0, err
	}
	a, err := newActor(c)
	if err != nil {
		return 0, err
	}
	door, err := bind(c.listen)
	if errors.Is(err, unix.EADDRINUSE) && a.plan.Start.Taken != nil {
		return a.refuse(ctx)
	}
	if err != nil {
		return 0, err
	}
	defer door.close()
	f := &family{actor: a, ended: map[string]chan struct{}{}, pids: map[string]int{}}
	for i := range a.plan.Actors[1:] {
		child, ended := &a.plan.Actors[i+1], make(chan struct{})
		f.ended[child.Name] = ended
		go func() {
			defer close(ended)
			f.note(f.raise(ctx, child))
		}()
	}
	if ready := time.Duration(a.plan.Start.Ready); ready > 0 {
		go func() {
			if a.until(ctx, ready) {
				f.note(door.open())
			}
		}()
	}
	board := publish(ctx, f)
	exit, err := f.live(ctx)
	board()
	if err := errors.Join(err, f.fault()); err != nil {
		return 0, err
	}
	return end(*exit)
}

// refuse plays a start whose address another process has.
func (a *actor) refuse(ctx context.Context) (int, error) {
	done, err := a.play(ctx, a.me.Taken)
	if err != nil {
		return 0, err
	}
	if t := a.plan.Start.Taken; done && a.until(ctx, time.Duration(t.Exit.At)) {
		return end(t.Exit)
	}
	return end(scenario.Exit{Signal: "TERM"})
}

// live plays the main process's own part to its end.
func (f *family) live(ctx context.Context) (*scenario.Exit, error) {
	for _, w := range f.me.Writes {
		if !f.reach(ctx, w.At) {
			return f.stop(f.serving())
		}
		if _, err := f.play(ctx, []scenario.Write{w}); err != nil {
			return nil, err
		}
	}
	if e := f.me.End; e != nil && f.reach(ctx, time.Duration(e.At)) {
		return e, nil
	}
	<-ctx.Done()
	return f.stop(f.serving())
}

// reach waits for a moment of the scenario and for the children that end by
// themselves before it: what they print stands before what follows from it. It
// reports false if ctx ends first.
func (f *family) reach(ctx context.Context, at time.Duration) bool {
	if !f.until(ctx, at) {
		return false
	}
	late := time.After(patience)
	for _, a := range f.plan.Actors[1:] {
		if a.End == nil || time.Duration(a.End.At) > at {
			continue
		}
		select {
		case <-f.ended[a.Name]:
		case <-late:
			return true
		case <-ctx.Done():
			return false
		}
	}
	return true
}

// raise starts a child when its time has come and waits for its end. The child
// ends when its standard input does, so with this process at the latest.
func (f *family) raise(ctx context.Context, a *scenario.Actor) error {
	if !f.until(ctx, a.Begin) {
		return nil
	}
	self, err := os.Executable()
	if err != nil {
		return err
	}
	cmd := exec.Command(self)
	if a.Title != "" {
		// The whole command line becomes the title, as setproctitle makes it.
		cmd.Args = []string{a.Title}
	}
	cmd.Env = append(os.Environ(), envActor+"="+a.Name, envStart+"="+strconv.Itoa(f.start),
		envBegan+"="+strconv.FormatInt(int64(f.began), 10))
	cmd.Stdout, cmd.Stderr = os.Stdout, os.Stderr
	if _, err = cmd.StdinPipe(); err == nil {
		err = cmd.Start()
	}
	if err != nil {
		return fmt.Errorf("process %s: %w", a.Name, err)
	}
	f.set(a.Name, cmd.Process.Pid)
	_ = cmd.Wait()
	f.set(a.Name, 0)
	return nil
}

func (f *family) set(name string, pid int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.pids[name] = pid
}

// pid is 0 for a child that does not live.
func (f *family) pid(name string) int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.pids[name]
}

func (f *family) note(err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if err != nil {
		f.errs = append(f.errs, err)
	}
}

// fault is what went wrong beside the script.
func (f *family) fault() error {
	f.mu.Lock()
	defer f.mu.Unlock()
	return errors.Join(f.errs...)
}

// nextStart counts the starts in a folder, from 0. Without a folder it is
// always the first.
func nextStart(dir string) (int, error) {
	if dir == "" {
		return 0, nil
	}
	path := filepath.Join(dir, "starts")
	b, err := os.ReadFile(path)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return 0, err
	}
	n := 0
	if err == nil {
		if n, err = strconv.Atoi(strings.TrimSpace(string(b))); err != nil {
			return 0, fmt.Errorf("%s: %w", path, err)
		}
	}
	return n, os.WriteFile(path, []byte(strconv.Itoa(n+1)), 0o644)
}
