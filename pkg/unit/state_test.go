package unit

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	sd "github.com/coreos/go-systemd/v22/dbus"
	"github.com/google/go-cmp/cmp"

	"github.com/startupd/startupd/pkg/event"
)

// TestUnitState reads the types that godbus makes of systemd's properties.
func TestUnitState(t *testing.T) {
	got := unitState(map[string]any{
		"LoadState": "loaded", "ActiveState": "activating", "SubState": "start", "Result": "success",
		"InvocationID": []byte{0x0a, 0xff, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15},
		"MainPID":      uint32(4711), "NRestarts": uint32(3), "ControlGroup": "/system.slice/engine.service",
		"ExecStart": [][]any{{
			"/usr/bin/engine", []string{"/usr/bin/engine", "serve", "--api-key", "hidden", "--hf-token=hidden", "-e", "X_TOKEN=hidden", "--tokenizer", "t"},
			false, uint64(0), uint64(0), uint64(0), uint64(0), uint32(0), int32(0), int32(0),
		}},
		"ActiveEnterTimestamp": uint64(0), "ActiveEnterTimestampMonotonic": uint64(0),
		"InactiveExitTimestamp": uint64(1772408251000123), "InactiveExitTimestampMonotonic": uint64(1000000456),
	}, "b007")
	want := event.UnitState{
		Loaded: true, ActiveState: "activating", SubState: "start", Result: "success",
		Invocation: "0aff02030405060708090a0b0c0d0e0f", MainPID: 4711, Restarts: 3, ControlGroup: "/system.slice/engine.service",
		ExecStart: "/usr/bin/engine serve --api-key *** --hf-token=*** -e X_TOKEN=*** --tokenizer t",
		InactiveExit: event.Stamp{
			Real: time.UnixMicro(1772408251000123), Boot: "b007", Mono: 1000*time.Second + 456*time.Microsecond,
		},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

// TestUnitStateOfStrangeTypes: a property of another type is not known.
func TestUnitStateOfStrangeTypes(t *testing.T) {
	got := unitState(map[string]any{
		"LoadState": "loaded", "ActiveState": 7, "InvocationID": make([]byte, 16), "MainPID": "x",
		"ExecStart": [][]any{{}}, "InactiveExitTimestamp": int8(1),
	}, "")
	if want := (event.UnitState{Loaded: true}); got != want {
		t.Errorf("got %+v, want %+v", got, want)
	}
}

// TestPump: a slow consumer loses no unit and blocks no signal.
func TestPump(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		c := &busConn{changes: make(chan string), dirty: make(map[string]bool)}
		updates, overflow := make(chan *sd.PropertiesUpdate), make(chan error)
		go c.pump(ctx, signals{updates, overflow, func(u string) bool { return u != "other.service" }})
		for range 100 {
			updates <- &sd.PropertiesUpdate{UnitName: "a.service"}
			updates <- &sd.PropertiesUpdate{UnitName: "b.service"}
			updates <- &sd.PropertiesUpdate{UnitName: "other.service"}
		}
		overflow <- errors.New("update channel is full")
		got := map[string]int{}
		for range 3 {
			got[<-c.changes]++
		}
		if diff := cmp.Diff(map[string]int{"a.service": 1, "b.service": 1, "": 1}, got); diff != "" {
			t.Errorf("(-want +got):\n%s", diff)
		}
		cancel()
		if u, ok := <-c.changes; ok {
			t.Errorf("a change %q after the end", u)
		}
	})
}
