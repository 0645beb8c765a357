package journal

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/startupd/startupd/pkg/event"
)

const (
	testBoot = "0123456789abcdef0123456789abcdef"
	testSeq  = "feedfacefeedfacefeedfacefeedface"
	invA     = "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa"
	invB     = "bbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbb"
	unitA    = "llm.service"
	// baseReal lies in the future, so that no watermark of the real clock seems
	// to have passed the entries.
	baseReal = 4_102_444_800_000_000
)

// rec is a journal entry in a test: its time in µs after the boot, and its
// fields.
type rec struct {
	at     int64
	fields []string // NAME=value
}

// line is a line of a unit.
func line(at int64, unit, inv, msg string) rec {
	return rec{at, []string{"_TRANSPORT=stdout", "PRIORITY=6", "_UID=990", "_PID=4711", "_SYSTEMD_UNIT=" + unit,
		"_SYSTEMD_INVOCATION_ID=" + inv, "SYSLOG_IDENTIFIER=serve", "MESSAGE=" + msg}}
}

// manager is a message of PID 1 about a unit.
func manager(at int64, unit, inv, id, msg string, more ...string) rec {
	return rec{at, append([]string{"_TRANSPORT=journal", "_PID=1", "_UID=0", "_SYSTEMD_UNIT=init.scope", "SYSLOG_IDENTIFIER=systemd",
		"UNIT=" + unit, "INVOCATION_ID=" + inv, "MESSAGE_ID=" + id, "MESSAGE=" + msg}, more...)}
}

// inBoot is an entry of another boot, whose wall clock is off by that much.
func inBoot(boot string, off int64, r rec) rec {
	return rec{r.at, append([]string{fmt.Sprint("__REALTIME_TIMESTAMP=", baseReal+r.at+off), "_BOOT_ID=" + boot}, r.fields...)}
}

// docker is a line that Docker writes for a container.
func docker(at int64, name, id, msg string, more ...string) rec {
	return rec{at, append([]string{"_TRANSPORT=journal", "_PID=50", "_UID=0", "PRIORITY=6", "_SYSTEMD_UNIT=docker.service", "_SYSTEMD_INVOCATION_ID=" + testSeq,
		"CONTAINER_NAME=" + name, "CONTAINER_ID_FULL=" + id, "MESSAGE=" + msg}, more...)}
}

const (
	idStarted = "39f53479d3a045ac8e11786248231fbf"
	idExit    = "98e322203f7a4ed290d09fe03c09fe15"
	idStopped = "9d1aaa27d60140bd96365438aad20286"
)

func (r rec) encode(e *Encoder, cursor string) {
	if cursor != "" {
		e.Field("__CURSOR", []byte(cursor))
	}
	if !strings.HasPrefix(r.fields[0], "__REALTIME_TIMESTAMP=") {
		e.Field("__REALTIME_TIMESTAMP", fmt.Append(nil, baseReal+r.at))
		e.Field("_BOOT_ID", []byte(testBoot))
	}
	e.Field("__MONOTONIC_TIMESTAMP", fmt.Append(nil, r.at))
	for _, f := range r.fields {
		name, value, _ := bytes.Cut([]byte(f), []byte("="))
		e.Field(string(name), value)
	}
}

func export(t testing.TB, recs ...rec) []byte {
	t.Helper()
	var b bytes.Buffer
	e := NewEncoder(&b)
	for i, r := range recs {
		r.encode(e, cursorOf(i, r))
		if err := e.End(); err != nil {
			t.Fatal(err)
		}
	}
	return b.Bytes()
}

func cursorOf(i int, r rec) string {
	return fmt.Sprintf("s=%s;i=%x;b=%s;m=%x;t=%x;x=%x", testSeq, i+1, testBoot, r.at, baseReal+r.at, i*7)
}

// writeJournal makes a real journal file with systemd-journal-remote.
func writeJournal(t testing.TB, dir, name string, recs ...rec) {
	t.Helper()
	cmd := exec.Command("/lib/systemd/systemd-journal-remote", "-o", filepath.Join(dir, name), "-")
	cmd.Stdin = bytes.NewReader(export(t, recs...))
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("systemd-journal-remote (package systemd-journal-remote): %v\n%s", err, out)
	}
}

// testReader is a reader whose child is this test binary.
func testReader(t testing.TB, kind ReaderKind, dir string) Reader {
	t.Helper()
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	return Reader{Kind: kind, Dir: dir, Child: []string{exe, "journal-reader"}}
}

// kinds are the readers that this build has.
func kinds() []ReaderKind {
	if Available() == nil {
		return []ReaderKind{ReaderSDJournal, ReaderJournalctl}
	}
	return []ReaderKind{ReaderJournalctl}
}

// texts renders events for comparison, watermarks and source states apart.
func texts(events []event.Event) []string {
	var out []string
	for _, ev := range events {
		mark := ""
		if ev.Replayed {
			mark = "replayed "
		}
		switch d := ev.Data.(type) {
		case *event.Line:
			out = append(out, fmt.Sprintf("%s%s %s", mark, ev.Target, d.Text))
		case *event.UnitMessage:
			out = append(out, fmt.Sprintf("%s%s <%s>", mark, ev.Target, d.Message))
		case *event.Gap:
			out = append(out, fmt.Sprintf("%s%s gap %s %d", mark, ev.Target, d.Gap, d.Lines))
		}
	}
	return out
}
