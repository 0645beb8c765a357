package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/startupd/startupd/test/engine/scenario"
	"github.com/startupd/startupd/test/fakenvml"
)

// refresh is how often a process tells the fake NVML what it holds.
const refresh = 50 * time.Millisecond

// holding is the memory that a process holds of a GPU.
type holding struct {
	GPU     int    `json:"gpu"`
	PID     int    `json:"pid"`
	Bytes   uint64 `json:"bytes"`
	Percent int    `json:"percent"`
}

// board is the fake NVML's state file, shared by several engines and holders:
// each keeps a note of its own beside it, and whoever writes the file adds up
// the notes of those that live.
type board struct {
	path string
	gpus scenario.GPUs
	last string
}

// publish keeps the board up to date with an engine's children until the
// returned function is called; that removes them.
func publish(ctx context.Context, f *family) func() {
	if f.nvml == "" {
		return func() {}
	}
	b := &board{path: f.nvml, gpus: f.file.GPUs}
	ctx, cancel := context.WithCancel(context.WithoutCancel(ctx))
	done := make(chan struct{})
	go func() {
		defer close(done)
		for {
			f.note(b.post(f.holdings()))
			if !sleep(ctx, refresh) {
				return
			}
		}
	}()
	return func() {
		cancel()
		<-done
		f.note(b.post(nil))
	}
}

// holdings is what the living children hold now.
func (f *family) holdings() []holding {
	at := f.at()
	var hs []holding
	for i := range f.plan.Actors {
		a := &f.plan.Actors[i]
		pid := f.pid(a.Name)
		if a.Main {
			pid = os.Getpid()
		}
		if held := a.Held(at); pid != 0 && a.GPU >= 0 && held > 0 {
			hs = append(hs, holding{GPU: a.GPU, PID: pid, Bytes: held, Percent: a.Busy(at)})
		}
	}
	return hs
}

// hold is the life of a process that only holds memory. It keeps the board up
// to date for engines that were killed too.
func hold(ctx context.Context, c config) error {
	b := &board{path: c.nvml, gpus: c.file.GPUs}
	var hs []holding
	for part := range strings.SplitSeq(c.hold, ",") {
		gpu, size, _ := strings.Cut(part, "=")
		index, err := strconv.Atoi(gpu)
		if err != nil {
			return fmt.Errorf("SIMENGINE_HOLD=%s: write it like 0=4GiB,1=2GiB", c.hold)
		}
		n, err := scenario.ParseBytes(size)
		if err != nil {
			return fmt.Errorf("SIMENGINE_HOLD=%s: %w", c.hold, err)
		}
		hs = append(hs, holding{GPU: index, PID: os.Getpid(), Bytes: n})
	}
	for {
		if err := b.post(hs); err != nil {
			return err
		}
		if !sleep(ctx, refresh) {
			return b.post(nil)
		}
	}
}

// post replaces this process's note and writes the sum of all.
func (b *board) post(hs []holding) error {
	lock, err := os.OpenFile(b.path+".lock", os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return err
	}
	defer func() { _ = lock.Close() }()
	if err := unix.Flock(int(lock.Fd()), unix.LOCK_EX); err != nil {
		return fmt.Errorf("lock %s: %w", lock.Name(), err)
	}
	note, err := json.Marshal(hs)
	if err != nil {
		return err
	}
	if err := os.MkdirAll(b.notes(), 0o755); err != nil {
		return err
	}
	if err := os.WriteFile(filepath.Join(b.notes(), strconv.Itoa(os.Getpid())), note, 0o600); err != nil {
		return err
	}
	all, err := b.sum()
	if err != nil {
		return err
	}
	state := b.state(all)
	if state.String() == b.last && b.current() {
		return nil
	}
	b.last = state.String()
	return fakenvml.WriteFile(b.path, state)
}

// current says that the file still holds what this process wrote last.
func (b *board) current() bool {
	got, err := os.ReadFile(b.path)
	return err == nil && string(got) == b.last
}

func (b *board) notes() string { return b.path + ".d" }

// sum reads the notes, and drops those of processes that are gone.
func (b *board) sum() ([]holding, error) {
	entries, err := os.ReadDir(b.notes())
	if err != nil {
		return nil, err
	}
	var all []holding
	for _, e := range entries {
		path := filepath.Join(b.notes(), e.Name())
		if pid, err := strconv.Atoi(e.Name()); err != nil || errors.Is(syscall.Kill(pid, 0), syscall.ESRCH) {
			if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
				return nil, err
			}
			continue
		}
		note, err := os.ReadFile(path)
		if err != nil {
			return nil, err
		}
		var hs []holding
		if err := json.Unmarshal(note, &hs); err != nil {
			return nil, fmt.Errorf("%s: %w", path, err)
		}
		all = append(all, hs...)
	}
	return all, nil
}

func (b *board) state(all []holding) fakenvml.State {
	gpus := make([]fakenvml.GPU, b.gpus.Count)
	for i := range gpus {
		used, total, busy := uint64(b.gpus.Idle), uint64(b.gpus.Total), 0
		for _, h := range all {
			if h.GPU != i {
				continue
			}
			bytes := h.Bytes
			used, busy = used+bytes, min(busy+h.Percent, 100)
			gpus[i].Processes = append(gpus[i].Processes, fakenvml.Process{PID: h.PID, UsedBytes: &bytes})
		}
		gpus[i].UUID = scenario.UUID(i)
		gpus[i].Name = b.gpus.Name
		gpus[i].UsedBytes, gpus[i].TotalBytes, gpus[i].UtilizationPercent = &used, &total, &busy
	}
	return fakenvml.State{GPUs: gpus}
}
