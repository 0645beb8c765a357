package main

import (
	"context"
	"fmt"
	"io"
	"net"
	"os"
	"os/signal"
	"slices"
	"strconv"
	"syscall"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/startupd/startupd/test/engine/scenario"
)

// actor is one process of the engine, as it plays its own part.
type actor struct {
	config
	plan *scenario.Plan
	me   *scenario.Actor
	by   scenario.Writer
}

func newActor(c config) (*actor, error) {
	plan, err := c.file.Plan(c.start)
	if err != nil {
		return nil, err
	}
	i := slices.IndexFunc(plan.Actors, func(a scenario.Actor) bool { return a.Name == c.actor || a.Main && c.actor == "" })
	if i < 0 {
		return nil, fmt.Errorf("start %d has no process %q", c.start, c.actor)
	}
	a := &actor{config: c, plan: plan, me: &plan.Actors[i], by: scenario.Writer{PID: os.Getpid()}}
	if a.me.Title != "" {
		// The kernel cuts it, as it does the real server's.
		if err := os.WriteFile("/proc/self/comm", []byte(a.me.Title), 0o644); err != nil {
			return nil, fmt.Errorf("process title: %w", err)
		}
	}
	if _, port, err := net.SplitHostPort(c.listen); err == nil {
		a.by.Port, _ = strconv.Atoi(port)
	}
	return a, nil
}

// play prints the part until it is over, or until ctx ends. It reports whether
// it came to its end.
func (a *actor) play(ctx context.Context, writes []scenario.Write) (bool, error) {
	for _, w := range writes {
		if !a.until(ctx, w.At) {
			return false, nil
		}
		if _, err := os.Stdout.Write(a.plan.Bytes(w, a.by, time.Now())); err != nil {
			return false, err
		}
	}
	return true, nil
}

// stop plays the reaction to SIGTERM, and says how the process ends by it.
func (a *actor) stop(serving bool) (*scenario.Exit, error) {
	s, writes := a.plan.Start.Stop, a.me.Stop
	if serving {
		s, writes = a.plan.Start.StopServing, a.me.StopServing
	}
	if s == nil {
		return &scenario.Exit{Signal: "TERM"}, nil
	}
	// The reaction's times count from the signal.
	r := *a
	r.began = monotonic()
	if _, err := r.play(context.Background(), writes); err != nil {
		return nil, err
	}
	if !a.me.Main {
		return &scenario.Exit{}, nil
	}
	r.until(context.Background(), time.Duration(s.Exit.At))
	return &s.Exit, nil
}

// serving says that the start has come to its end.
func (a *actor) serving() bool {
	ready := time.Duration(a.plan.Start.Ready)
	return ready > 0 && a.at() >= ready
}

// child is the life of a process that the main one started. Its parent holds
// the other end of standard input: when that closes, the parent is gone.
func child(ctx context.Context, c config) (int, error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	orphan := make(chan struct{})
	go func() {
		defer close(orphan)
		_, _ = io.Copy(io.Discard, os.Stdin)
		cancel()
	}()
	a, err := newActor(c)
	if err != nil {
		return 0, err
	}
	done, err := a.play(ctx, a.me.Writes)
	if err != nil {
		return 0, err
	}
	if done && a.me.End != nil && a.until(ctx, time.Duration(a.me.End.At)) {
		return end(*a.me.End)
	}
	<-ctx.Done()
	select {
	case <-orphan:
		return 1, nil
	default:
	}
	exit, err := a.stop(a.serving())
	if err != nil {
		return 0, err
	}
	return end(*exit)
}

// end returns the exit status, or dies of the signal.
func end(e scenario.Exit) (int, error) {
	switch {
	case e.Allocate > 0:
		return 0, exhaust(int(e.Allocate))
	case e.Signal == "":
		return e.Code, nil
	}
	sig := unix.SignalNum("SIG" + e.Signal)
	if sig == 0 {
		return 0, fmt.Errorf("exit: no signal %q", e.Signal)
	}
	signal.Reset(sig)
	// Go's runtime has its own handlers for faults: the default action again. A
	// zeroed sigaction is that on every Linux.
	var action [64]byte
	_, _, _ = unix.RawSyscall6(unix.SYS_RT_SIGACTION, uintptr(sig), uintptr(unsafe.Pointer(&action[0])), 0, 8, 0, 0)
	if e.Fault {
		return 0, fault()
	}
	if err := syscall.Kill(os.Getpid(), sig); err != nil {
		return 0, err
	}
	select {}
}
