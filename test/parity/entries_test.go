package parity

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/startupd/startupd/pkg/event"
	"github.com/startupd/startupd/pkg/journal"
	"github.com/startupd/startupd/pkg/profile"
)

const (
	bootID = "0123456789abcdef0123456789abcdef"
	// unknownWriter is the first _PID of processes that print none.
	unknownWriter = 650_000
	// tick is how far apart the entries of lines without times are.
	tick = time.Millisecond
)

// unitOf is the unit whose entries a recorded start becomes: the one that systemd
// speaks of in it, else one of its own.
func unitOf(c recorded) string {
	for _, ev := range c.events {
		if d, ok := ev.Data.(*event.UnitMessage); ok {
			if unit, _, found := strings.Cut(d.Text, ": "); found {
				return unit
			}
		}
	}
	return "start-" + c.name + ".service"
}

// journalled makes a start's events what they would be in a journal: each has a
// time, each start an invocation, each line the process that wrote it.
func journalled(t testing.TB, c recorded, offset time.Duration) []event.Event {
	t.Helper()
	p, w := newPlayer(t, true), newWriters(t)
	var out []event.Event
	last := event.Stamp{Real: firstTime(t, c)}
	for _, ev := range c.events {
		p.apply(ev)
		now := p.target(c.name)
		if now == nil || now.Startup == nil {
			t.Fatalf("%s: no startup after %+v", c.name, ev.Data)
		}
		at := ev.At
		if at.IsZero() {
			// What the engine's own stamps have told by now.
			at = p.host.Snapshot().At
		}
		if !at.After(last) {
			at = last.Add(tick)
		}
		last = at
		ev.At, ev.Data = at.Add(offset), w.belonging(ev.Data, invocation(c, now.Startup.Generation))
		out = append(out, ev)
	}
	return out
}

// firstTime is right before the first time that a start's text tells.
func firstTime(t testing.TB, c recorded) time.Time {
	t.Helper()
	if began := whole(t, c)[0].Began.Real; !began.IsZero() {
		return began.Add(-tick)
	}
	return written
}

// invocation is the ID of a start of a recorded log.
func invocation(c recorded, number int) string {
	sum := sha256.Sum256(fmt.Append(nil, c.name, number))
	return hex.EncodeToString(sum[:16])
}

// writers gives each line of a start the process that wrote it: by the ID that
// the engine prints, else one for each name that it prints.
type writers struct {
	scanner *profile.Scanner
	named   map[string]int
}

func newWriters(t testing.TB) *writers {
	t.Helper()
	set, err := builtin()
	if err != nil {
		t.Fatal(err)
	}
	return &writers{scanner: set.Profile("vllm").NewScanner(), named: map[string]int{}}
}

func (w *writers) pid(l *event.Line) int {
	pid, name := l.PID, l.Proc
	w.scanner.Scan(l.Text, func(r *profile.Record) {
		if pid == 0 {
			pid = r.PID
		}
		if r.Process != "" {
			name = r.Process
		}
	})
	if pid != 0 {
		return pid
	}
	if w.named[name] == 0 {
		w.named[name] = unknownWriter + len(w.named)
	}
	return w.named[name]
}

// belonging copies a payload for an invocation.
func (w *writers) belonging(data event.Data, invocation string) event.Data {
	switch d := data.(type) {
	case *event.Line:
		l := *d
		l.PID, l.Invocation, l.No = w.pid(d), invocation, 0
		return &l
	case *event.UnitMessage:
		m := *d
		m.Invocation = invocation
		return &m
	}
	return data
}

// messageID is a message's, of of systemd's sd-messages.h.
func messageID(kind event.MessageKind) string {
	return map[event.MessageKind]string{
		event.Starting:         "7d4958e842da4a758f6c1cdc7b36dcc5",
		event.Started:          "39f53479d3a045ac8e11786248231fbf",
		event.StartFailed:      "be02cf6855d2428ba40df7e9d022f03d",
		event.Stopping:         "de5b426a63be47a7b6ac3eaac82e2f6f",
		event.Stopped:          "9d1aaa27d60140bd96365438aad20286",
		event.Succeeded:        "7ad2d189f7e94e70a38c781354912448",
		event.ProcessExit:      "98e322203f7a4ed290d09fe03c09fe15",
		event.FailureResult:    "d9b373ed55a64feb8242e02dbe79a49c",
		event.RestartScheduled: "5eb03494b6584870a536b337290809b3",
		event.OutOfMemory:      "fe6faa94e7774663a0da52717891d8ef",
		event.OOMDKill:         "d989611b15e44c9dbf31e3c81256e4ed",
	}[kind]
}

// export writes events as journald and systemd would have, in the Journal
// Export Format.
func export(t testing.TB, c recorded, events []event.Event) []byte {
	t.Helper()
	var b bytes.Buffer
	enc := journal.NewEncoder(&b)
	for _, ev := range events {
		fields, message := entry(t, c, ev.Data)
		if fields == nil {
			continue
		}
		stamps := []string{
			"__REALTIME_TIMESTAMP=" + strconv.FormatInt(ev.At.Real.UnixMicro(), 10),
			"__MONOTONIC_TIMESTAMP=" + strconv.FormatInt(ev.At.Real.UnixMicro()-booted.UnixMicro(), 10),
			"_BOOT_ID=" + bootID,
		}
		for _, f := range append(stamps, fields...) {
			name, value, _ := strings.Cut(f, "=")
			enc.Field(name, []byte(value))
		}
		enc.Field("MESSAGE", []byte(message))
		if err := enc.End(); err != nil {
			t.Fatal(err)
		}
	}
	return b.Bytes()
}

// booted is when the host of the journal was.
var booted = time.Date(1999, 1, 1, 0, 0, 0, 0, time.UTC)

// entry returns the fields of an event's entry; nil for what is no entry.
func entry(t testing.TB, c recorded, data event.Data) (fields []string, message string) {
	t.Helper()
	switch d := data.(type) {
	case *event.Line:
		if d.Origin == event.OriginKernel {
			return []string{"_TRANSPORT=kernel", "SYSLOG_IDENTIFIER=kernel", "PRIORITY=3"}, d.Text
		}
		return []string{
			"_TRANSPORT=stdout", "_PID=" + strconv.Itoa(d.PID), "_UID=990", "_SYSTEMD_UNIT=" + unitOf(c),
			"_SYSTEMD_INVOCATION_ID=" + d.Invocation, "SYSLOG_IDENTIFIER=vllm", "PRIORITY=6",
		}, d.Text
	case *event.UnitMessage:
		fields = []string{
			"_TRANSPORT=journal", "_PID=1", "_UID=0", "_SYSTEMD_UNIT=init.scope", "SYSLOG_IDENTIFIER=systemd",
			"UNIT=" + unitOf(c), "INVOCATION_ID=" + d.Invocation,
		}
		if d.Message == event.TimedOut {
			return fields, d.Text // the one that has no MESSAGE_ID
		}
		id := messageID(d.Message)
		if id == "" {
			t.Fatalf("%s: no MESSAGE_ID for %q", c.name, d.Message)
		}
		fields = append(fields, "MESSAGE_ID="+id)
		for name, value := range map[string]string{
			"COMMAND": d.Command, "EXIT_CODE": d.ExitCode, "EXIT_STATUS": d.ExitStatus, "UNIT_RESULT": d.Result,
		} {
			if value != "" {
				fields = append(fields, name+"="+value)
			}
		}
		if d.Restarts != nil {
			fields = append(fields, "N_RESTARTS="+strconv.Itoa(*d.Restarts))
		}
		return fields, d.Text
	}
	return nil, ""
}
