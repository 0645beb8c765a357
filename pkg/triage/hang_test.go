package triage

import (
	"strings"
	"testing"
)

func TestHangs(t *testing.T) {
	for _, c := range []struct{ name, text, class, message, missing string }{
		{"in the set-up of NCCL", `
(Worker_TP0 pid=30) INFO 12:00:00 [dist.py:1] Loading model m1
(Worker_TP0 pid=30) INFO 12:00:01 [dist.py:2] Joining the group of 2`, "nccl_hang", "Joining the group of 2", ""},
		{"not all have arrived", `
(Worker_TP0 pid=30) INFO 12:00:00 [dist.py:1] Loading model m1
(Worker_TP1 pid=31) INFO 12:00:00 [dist.py:1] Loading model m1
(Worker_TP2 pid=32) INFO 12:00:00 [dist.py:1] Loading model m1
(Core pid=20) INFO 12:00:00 [dist.py:1] Loading model m1
(Worker_TP0 pid=30) INFO 12:00:01 [dist.py:2] Joining the group of 3
(Worker_TP2 pid=32) INFO 12:00:01 [dist.py:2] Joining the group of 3`, "nccl_hang", "Joining the group of 3", "Worker_TP1"},
		{"in a capture", `
(Worker_TP0 pid=30) INFO 12:00:00 [dist.py:1] Loading model m1
(Worker_TP0 pid=30) Capturing graphs: 3/51`, "cudagraph_hang", "Capturing graphs: 3/51", ""},
		{"after a capture", `
(Worker_TP0 pid=30) Capturing graphs: 51/51`, ClassUnknownHang, "Capturing graphs: 51/51", ""},
		{"by the heartbeats", `
(Worker_TP0 pid=30) INFO 12:00:00 [dist.py:1] Loading model m1
(Core pid=20) INFO 12:01:00 [shm.py:1] No free block for 60 seconds
(Core pid=20) INFO 12:02:00 [shm.py:1] No free block for 60 seconds`, "distributed_deadlock", "Loading model m1", ""},
		{"one heartbeat proves nothing", `
(Worker_TP0 pid=30) INFO 12:00:00 [dist.py:1] Loading model m1
(Core pid=20) INFO 12:01:00 [shm.py:1] No free block for 60 seconds`, ClassUnknownHang, "Loading model m1", ""},
		{"heartbeats before progress prove nothing", `
(Core pid=20) INFO 12:01:00 [shm.py:1] No free block for 60 seconds
(Core pid=20) INFO 12:02:00 [shm.py:1] No free block for 60 seconds
(Worker_TP0 pid=30) INFO 12:03:00 [dist.py:1] Loading model m1`, ClassUnknownHang, "Loading model m1", ""},
		{"heartbeats alone", `
(Core pid=20) INFO 12:01:00 [shm.py:1] No free block for 60 seconds
(Core pid=20) INFO 12:02:00 [shm.py:1] No free block for 60 seconds`, "distributed_deadlock", "No free block for 60 seconds", ""},
		{"nothing at all", `
(Core pid=20) INFO 12:01:00 [shm.py:1] hello`, ClassUnknownHang, "", ""},
		{"the log says what it waits for", `
(Worker_TP0 pid=30) INFO 12:00:00 [dist.py:1] Loading model m1
(Core pid=20) INFO 12:00:01 [dist.py:1] Waiting for 9 GPUs of 8`, "bad_flag", "Waiting for 9 GPUs of 8", ""},
		{"an error before, which progress has cleared", `
(Worker_TP0 pid=30) torch.OutOfMemoryError: Tried to allocate 4GiB
(Worker_TP0 pid=30) INFO 12:00:01 [dist.py:2] Joining the group of 2`, "nccl_hang", "Joining the group of 2", ""},
		{"a stop is no hang's cause", `
(Worker_TP0 pid=30) INFO 12:00:01 [dist.py:2] Joining the group of 2
(Api pid=10) INFO 12:00:02 [api.py:1] received SIGTERM`, "nccl_hang", "Joining the group of 2", ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			root := newLog(t).read(c.text).stalled().Root
			if root.Class != c.class || root.Message != c.message || strings.Join(root.NotArrived, " ") != c.missing {
				t.Errorf("%s: %q, not arrived %v; want %s: %q, %q", root.Class, root.Message, root.NotArrived, c.class, c.message, c.missing)
			}
			if !root.Provisional {
				t.Error("a start that hangs may still go on")
			}
		})
	}
}

// A hang that was looked at before is another one after progress.
func TestHangMovesOn(t *testing.T) {
	l := newLog(t).read("(Worker_TP0 pid=30) INFO 12:00:01 [dist.py:2] Joining the group of 2")
	if got := l.stalled().Root.Class; got != "nccl_hang" {
		t.Fatalf("class %s", got)
	}
	l.read("(Worker_TP0 pid=30) Capturing graphs: 3/51")
	if got := l.stalled().Root.Class; got != "cudagraph_hang" {
		t.Errorf("class %s after progress, want cudagraph_hang", got)
	}
}
