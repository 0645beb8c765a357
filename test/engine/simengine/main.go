// Command simengine plays a scenario as if it were an LLM server: it starts
// real processes with the server's titles and prefixes, prints what they print
// when they print it, lets a fake NVML report their memory, serves /health from
// the moment that the scenario says, and ends as it says.
//
// Its command line is the real server's and means nothing to it; everything
// comes from the environment:
//
//	SIMENGINE_SCENARIO  scenario file (test/engine/scenarios/*.yaml)
//	SIMENGINE_SPEED     60 plays a minute in a second; default 1
//	SIMENGINE_STATE     folder that counts the starts: start n plays the nth
//	SIMENGINE_LISTEN    host:port of /health; none if empty
//	SIMENGINE_NVML      state file of test/fakenvml; none if empty
//	SIMENGINE_HOLD      "0=4GiB,1=2GiB": be no server, but a process that holds
//	                    that memory of these GPUs until it is killed
package main

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"strconv"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/startupd/startupd/test/engine/scenario"
)

// The variables that a parent sets for its children.
const (
	envActor = "SIMENGINE_ACTOR"
	envStart = "SIMENGINE_START"
	envBegan = "SIMENGINE_BEGAN"
)

type config struct {
	file   *scenario.File
	speed  float64
	state  string
	listen string
	nvml   string
	hold   string
	// actor is "" in the main process.
	actor string
	start int
	began time.Duration
}

func main() {
	code, err := run()
	if err != nil {
		fmt.Fprintln(os.Stderr, "simengine:", err)
		os.Exit(70)
	}
	os.Exit(code)
}

func run() (int, error) {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, syscall.SIGINT)
	defer stop()
	c, err := fromEnv()
	switch {
	case err != nil:
		return 0, err
	case c.hold != "":
		return 0, hold(ctx, c)
	case c.actor != "":
		return child(ctx, c)
	}
	return engine(ctx, c)
}

func fromEnv() (config, error) {
	c := config{
		speed: 1, state: os.Getenv("SIMENGINE_STATE"), listen: os.Getenv("SIMENGINE_LISTEN"),
		nvml: os.Getenv("SIMENGINE_NVML"), hold: os.Getenv("SIMENGINE_HOLD"), actor: os.Getenv(envActor), began: monotonic(),
	}
	path := os.Getenv("SIMENGINE_SCENARIO")
	if path == "" {
		return c, fmt.Errorf("SIMENGINE_SCENARIO is not set: it names a scenario file")
	}
	var err error
	if c.file, err = scenario.Load(path); err != nil {
		return c, err
	}
	if s := os.Getenv("SIMENGINE_SPEED"); s != "" {
		if c.speed, err = strconv.ParseFloat(s, 64); err != nil || !(c.speed > 0) {
			return c, fmt.Errorf("SIMENGINE_SPEED=%s: it must be a number above 0", s)
		}
	}
	if c.actor != "" {
		began, err := strconv.ParseInt(os.Getenv(envBegan), 10, 64)
		if err != nil {
			return c, fmt.Errorf("%s: %w", envBegan, err)
		}
		c.began = time.Duration(began)
		if c.start, err = strconv.Atoi(os.Getenv(envStart)); err != nil {
			return c, fmt.Errorf("%s: %w", envStart, err)
		}
	}
	return c, nil
}

// at is the scenario's time: how far the start has come.
func (c config) at() time.Duration {
	return time.Duration(float64(monotonic()-c.began) * c.speed)
}

// until waits for a moment of the scenario. It reports false if ctx ends first.
func (c config) until(ctx context.Context, at time.Duration) bool {
	return sleep(ctx, time.Duration(float64(at-c.at())/c.speed))
}

func sleep(ctx context.Context, d time.Duration) bool {
	t := time.NewTimer(max(d, 0))
	defer t.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-t.C:
		return true
	}
}

// monotonic is a clock that parent and children share.
func monotonic() time.Duration {
	var ts unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_MONOTONIC, &ts); err != nil {
		panic(err)
	}
	return time.Duration(ts.Nano())
}
