package main

import (
	"net"
	"os"
	"strconv"
	"testing"
	"time"

	"github.com/rogpeppe/go-internal/testscript"

	"github.com/startupd/startupd/test/fakenvml"
)

func TestMain(m *testing.M) {
	testscript.Main(m, map[string]func(){"startupd": main})
}

func TestScripts(t *testing.T) {
	// An address that every script may find in use.
	taken, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	nvml, err := fakenvml.Build(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	// The scripts run in parallel, after this function has returned.
	t.Cleanup(func() { taken.Close() })
	testscript.Run(t, testscript.Params{
		Dir: "testdata/script",
		// A command that should have ended must not hold the suite up.
		Deadline:      time.Now().Add(5 * time.Minute),
		UpdateScripts: os.Getenv("UPDATE_SCRIPTS") != "",
		Setup: func(e *testscript.Env) error {
			e.Setenv("TAKEN", taken.Addr().String())
			e.Setenv("TAKEN_PORT", strconv.Itoa(taken.Addr().(*net.TCPAddr).Port))
			e.Setenv("NVML", nvml)
			return nil
		},
		// exits runs startupd and compares its exit code: exits CODE ARG...
		Cmds: map[string]func(*testscript.TestScript, bool, []string){"exits": exits},
	})
}
