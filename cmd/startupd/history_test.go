package main

import (
	"bufio"
	"context"
	"encoding/json"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/rogpeppe/go-internal/testscript"
	"golang.org/x/sys/unix"

	"github.com/startupd/startupd/pkg/history"
)

func TestHistoryScripts(t *testing.T) {
	testscript.Run(t, testscript.Params{
		Dir: "testdata/history", Deadline: time.Now().Add(5 * time.Minute), UpdateScripts: os.Getenv("UPDATE_SCRIPTS") != "",
		Cmds: map[string]func(*testscript.TestScript, bool, []string){"exits": exits, "keep": keep, "lock": lock},
	})
}

// keep writes a file's records, one a line, into a state directory's history:
// keep DIR FILE.
func keep(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 2 {
		ts.Fatalf("usage: keep DIR FILE")
	}
	store := history.In(ts.MkAbs(args[0]), history.Limits{MaxStartups: 100})
	lines := bufio.NewScanner(strings.NewReader(ts.ReadFile(args[1])))
	for lines.Scan() {
		var r history.Record
		ts.Check(json.Unmarshal(lines.Bytes(), &r))
		_, err := store.Put(context.Background(), r.Began, r)
		ts.Check(err)
	}
}

// lock holds a state directory's history as a daemon that writes does, until the
// script ends: lock DIR.
func lock(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 1 {
		ts.Fatalf("usage: lock DIR")
	}
	f, err := os.OpenFile(history.In(ts.MkAbs(args[0]), history.Limits{}).Path, os.O_RDWR, 0)
	ts.Check(err)
	ts.Defer(func() { f.Close() })
	ts.Check(unix.Flock(int(f.Fd()), unix.LOCK_EX))
}
