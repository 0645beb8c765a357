package journal

import (
	"bytes"
	"context"
	"encoding/json"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/startupd/startupd/pkg/event"
)

func mapEntries(t *testing.T, specs []TargetSpec, recs ...rec) []event.Event {
	t.Helper()
	m, err := NewMapper(specs)
	if err != nil {
		t.Fatal(err)
	}
	var out []event.Event
	d := NewDecoder(bytes.NewReader(export(t, recs...)))
	for range recs {
		e, err := d.Decode()
		if err != nil {
			t.Fatal(err)
		}
		out = m.Map(out, e)
	}
	return out
}

// PID 1 tells of a limit without a MESSAGE_ID.
func TestMapperTimeout(t *testing.T) {
	says := func(text string) rec {
		return rec{5, []string{"_PID=1", "_UID=0", "UNIT=" + unitA, "INVOCATION_ID=" + invA, "MESSAGE=" + text}}
	}
	got := mapEntries(t, unitTargets(unitA), says(unitA+": start operation timed out. Terminating."))
	if len(got) != 1 || got[0].Data.(*event.UnitMessage).Message != event.TimedOut {
		t.Errorf("got %v, want one that it timed out", texts(got))
	}
	if got := mapEntries(t, unitTargets(unitA), says(unitA+": Consumed 3min CPU time.")); len(got) != 0 {
		t.Errorf("got %v, want nothing", texts(got))
	}
}

func TestMapperMessages(t *testing.T) {
	seven := 7
	pid1 := func(id string, more ...string) rec { return manager(5, unitA, invA, id, "text", more...) }
	for _, tc := range []struct {
		name string
		rec  rec
		want *event.UnitMessage
	}{
		{"starting", pid1("7d4958e842da4a758f6c1cdc7b36dcc5"), &event.UnitMessage{Message: event.Starting}},
		{"started", pid1(idStarted), &event.UnitMessage{Message: event.Started}},
		{"start failed", pid1("be02cf6855d2428ba40df7e9d022f03d"), &event.UnitMessage{Message: event.StartFailed}},
		{"stopping", pid1("de5b426a63be47a7b6ac3eaac82e2f6f"), &event.UnitMessage{Message: event.Stopping}},
		{"stopped", pid1(idStopped), &event.UnitMessage{Message: event.Stopped}},
		{"succeeded", pid1("7ad2d189f7e94e70a38c781354912448"), &event.UnitMessage{Message: event.Succeeded}},
		{"exit", pid1(idExit, "COMMAND=ExecStart", "EXIT_CODE=killed", "EXIT_STATUS=9"), &event.UnitMessage{Message: event.ProcessExit, Command: "ExecStart", ExitCode: "killed", ExitStatus: "9"}},
		{"result", pid1("d9b373ed55a64feb8242e02dbe79a49c", "UNIT_RESULT=oom-kill"), &event.UnitMessage{Message: event.FailureResult, Result: "oom-kill"}},
		{"restart", pid1("5eb03494b6584870a536b337290809b3", "N_RESTARTS=7"), &event.UnitMessage{Message: event.RestartScheduled, Restarts: &seven}},
		{"oom", pid1("fe6faa94e7774663a0da52717891d8ef"), &event.UnitMessage{Message: event.OutOfMemory}},
		{"oomd", pid1("d989611b15e44c9dbf31e3c81256e4ed"), &event.UnitMessage{Message: event.OOMDKill}},
		{"of no interest", pid1("ae8f7b866b0347b9af31fe1c80b127c0"), nil},
		{"of another unit", manager(5, "other.service", invA, idStarted, "text"), nil},
		{"forged by the unit itself", rec{5, []string{"_PID=4711", "UNIT=" + unitA, "MESSAGE_ID=" + idStopped, "_SYSTEMD_UNIT=other.service", "MESSAGE=text"}}, nil},
		{"forged core dump", rec{5, []string{"_PID=4711", "_UID=990", "COREDUMP_UNIT=" + unitA, "MESSAGE_ID=" + idCoredump, "MESSAGE=text"}}, nil},
	} {
		t.Run(tc.name, func(t *testing.T) {
			got := mapEntries(t, unitTargets(unitA), tc.rec)
			if tc.want == nil {
				if len(got) != 0 {
					t.Errorf("got %v, want nothing", texts(got))
				}
				return
			}
			tc.want.Invocation, tc.want.Text, tc.want.Cursor = invA, "text", cursorOf(0, tc.rec)
			if len(got) != 1 || got[0].Target != unitA {
				t.Fatalf("got %v, want one message of %s", texts(got), unitA)
			}
			if d := cmp.Diff(event.Data(tc.want), got[0].Data); d != "" {
				t.Errorf("(-want +got):\n%s", d)
			}
		})
	}
}

func TestMapperLines(t *testing.T) {
	container := func(name, more string) rec {
		return rec{5, []string{"_SYSTEMD_UNIT=docker.service", "_SYSTEMD_CGROUP=/system.slice/docker.service", "CONTAINER_NAME=" + name, "CONTAINER_ID=abc", "CONTAINER_ID_FULL=abcdef", more, "MESSAGE=m"}}
	}
	for _, tc := range []struct {
		name string
		spec TargetSpec
		rec  rec
		want []string
	}{
		{"own line", TargetSpec{Unit: unitA}, line(5, unitA, invA, "m"), []string{"llm.service m"}},
		{"renamed target", TargetSpec{Name: "kimi", Unit: unitA}, line(5, unitA, invA, "m"), []string{"kimi m"}},
		{"other unit", TargetSpec{Unit: unitA}, line(5, "web.service", invA, "m"), nil},
		{"glob", TargetSpec{Unit: "llm@*.service"}, line(5, "llm@3.service", invA, "m"), []string{"llm@3.service m"}},
		{"glob with an escaped name", TargetSpec{Unit: `llm\x2dbig@*.service`}, line(5, `llm\x2dbig@3.service`, invA, "m"), []string{`llm\x2dbig@3.service m`}},
		{"longer name", TargetSpec{Unit: "llm.service"}, line(5, "llm.service.service", invA, "m"), nil},
		{"glob of another", TargetSpec{Unit: "llm@*.service"}, line(5, "llm.service", invA, "m"), nil},
		{"container", TargetSpec{Container: "box"}, container("box", "X=1"), []string{"box m"}},
		{"other container", TargetSpec{Container: "box"}, container("bux", "X=1"), nil},
		{"control group", TargetSpec{Name: "pod", Cgroup: "/kubepods.slice/pod7"}, rec{5, []string{"_SYSTEMD_CGROUP=/kubepods.slice/pod7/c1.scope", "MESSAGE=m"}}, []string{"pod m"}},
		{"control group itself", TargetSpec{Name: "pod", Cgroup: "/kubepods.slice/pod7/"}, rec{5, []string{"_SYSTEMD_CGROUP=/kubepods.slice/pod7", "MESSAGE=m"}}, []string{"pod m"}},
		{"control group with a longer name", TargetSpec{Name: "pod", Cgroup: "/kubepods.slice/pod7"}, rec{5, []string{"_SYSTEMD_CGROUP=/kubepods.slice/pod77/c1.scope", "MESSAGE=m"}}, nil},
		{"our own, by identifier", TargetSpec{Unit: unitA}, rec{5, []string{"_SYSTEMD_UNIT=" + unitA, "SYSLOG_IDENTIFIER=startupd", "MESSAGE=m"}}, nil},
		{"our own, replaced on disk", TargetSpec{Unit: unitA}, rec{5, []string{"_SYSTEMD_UNIT=" + unitA, "_EXE=/usr/bin/startupd (deleted)", "MESSAGE=m"}}, nil},
		{"our own, under another's identifier", TargetSpec{Unit: unitA}, rec{5, []string{"_SYSTEMD_UNIT=" + unitA, "SYSLOG_IDENTIFIER=llm", "MESSAGE=startupd: ERROR m"}}, nil},
		{"a line about us", TargetSpec{Unit: unitA}, rec{5, []string{"_SYSTEMD_UNIT=" + unitA, "MESSAGE=see startupd: m"}}, []string{"llm.service see startupd: m"}},
		{"pid change", TargetSpec{Unit: unitA}, rec{5, []string{"_SYSTEMD_UNIT=" + unitA, "_LINE_BREAK=pid-change", "MESSAGE=m"}}, []string{"llm.service m", "llm.service gap pid_change 1"}},
		{"end of a stream is no gap", TargetSpec{Unit: unitA}, rec{5, []string{"_SYSTEMD_UNIT=" + unitA, "_LINE_BREAK=eof", "MESSAGE=m"}}, []string{"llm.service m"}},
		{"unreadable entries", TargetSpec{Unit: unitA}, rec{5, []string{"__STARTUPD_UNREADABLE=3"}}, []string{" gap corrupt 3"}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			if d := cmp.Diff(tc.want, texts(mapEntries(t, []TargetSpec{tc.spec}, tc.rec))); d != "" {
				t.Errorf("(-want +got):\n%s", d)
			}
		})
	}
}

// TestSyntheticCursor: a line whose entry had no cursor gets one that names its
// place by the clocks, for journalctl --cursor.
func TestSyntheticCursor(t *testing.T) {
	var b bytes.Buffer
	enc := NewEncoder(&b)
	line(5, unitA, invA, "m").encode(enc, "")
	if err := enc.End(); err != nil {
		t.Fatal(err)
	}
	e, err := NewDecoder(&b).Decode()
	if err != nil {
		t.Fatal(err)
	}
	m, err := NewMapper(unitTargets(unitA))
	if err != nil {
		t.Fatal(err)
	}
	got := m.Map(nil, e)[0].Data.(*event.Line)
	want := &event.Line{Text: "m", Cursor: "b=" + testBoot + ";m=5;t=e9326dd03c005", Invocation: invA, PID: 4711, Origin: event.OriginUnit}
	if d := cmp.Diff(want, got); d != "" {
		t.Errorf("(-want +got):\n%s", d)
	}
	if p, err := parsePlace(got.Cursor); err != nil || p.mono != 5 {
		t.Errorf("the cursor can't be read back: %+v, %v", p, err)
	}
}

func TestPlaces(t *testing.T) {
	at := func(seq string, i int, mono int64, hash string) place {
		return place{seqnumID: seq, seqnum: uint64(i), boot: testBoot, mono: uint64(mono), real: uint64(baseReal + mono), hash: hash}
	}
	a := at("s1", 5, 100, "h")
	for _, tc := range []struct {
		name        string
		b           place
		same, after bool // of b against a
	}{
		{"itself", a, true, false},
		{"same stamp, next entry", at("s1", 6, 100, "h2"), false, true},
		{"same stamp, entry before", at("s1", 4, 100, "h0"), false, false},
		{"moved to another file", at("s2", 900, 100, "h"), true, false},
		{"later, other file", at("s2", 1, 101, "h"), false, true},
		{"earlier boot", place{boot: "f", mono: 1 << 40, real: 5}, false, false},
		{"later boot", place{boot: "f", mono: 1, real: baseReal * 2}, false, true},
	} {
		if tc.b.same(a) != tc.same || tc.b.after(a) != tc.after {
			t.Errorf("%s: same %v, after %v; want %v, %v", tc.name, tc.b.same(a), tc.b.after(a), tc.same, tc.after)
		}
	}
	for _, bad := range []string{"", "x", "s=1", "i=zz;b=1;t=1", "b=" + testBoot} {
		if _, err := parsePlace(bad); err == nil {
			t.Errorf("%q was taken for a cursor", bad)
		}
	}
}

func TestTargetSpecValidate(t *testing.T) {
	for _, s := range []TargetSpec{
		{}, {Unit: "a.service", Container: "b"}, {Unit: "a"}, {Unit: "a["}, {Name: "x", Unit: "a*.service"},
	} {
		if err := s.Validate(); err == nil {
			t.Errorf("%+v was taken", s)
		}
	}
	if _, err := New(Options{Targets: []TargetSpec{{Unit: "a"}}}); err == nil {
		t.Error("New took a bad target")
	}
	if _, err := New(Options{Reader: Reader{Kind: "fast"}}); err == nil {
		t.Error("New took an unknown reader")
	}
}

func TestPositionIsJSON(t *testing.T) {
	p := Position{Cursor: cursorOf(1, line(5, unitA, invA, "m")), At: event.Stamp{Boot: testBoot, Mono: 5000}}
	b, err := json.Marshal(p)
	if err != nil {
		t.Fatal(err)
	}
	var got Position
	if err := json.Unmarshal(b, &got); err != nil || got != p {
		t.Errorf("%s came back as %+v, %v", b, got, err)
	}
}

// TestRunReaderRefusesStrangers: whoever starts the hidden command by hand is
// told what it is.
func TestRunReaderRefusesStrangers(t *testing.T) {
	for _, in := range []string{"", "hello\n"} {
		err := RunReader(context.Background(), bytes.NewReader([]byte(in)), &bytes.Buffer{})
		if err == nil || !bytes.Contains([]byte(err.Error()), []byte("startupd starts this command itself")) {
			t.Errorf("input %q: %v", in, err)
		}
	}
}

// TestStampsThatJSONCannotHold: a stamp behind the year 9999 is not known.
func TestStampsThatJSONCannotHold(t *testing.T) {
	r := inBoot(testBoot, 253_402_300_800_000_000-baseReal-5, line(5, unitA, invA, "m"))
	ev := mapEntries(t, unitTargets(unitA), r)[0]
	if !ev.At.Real.IsZero() || ev.At.Mono != 5*time.Microsecond {
		t.Errorf("stamp %+v, want the monotonic clock alone", ev.At)
	}
	if _, err := json.Marshal(ev.At); err != nil {
		t.Error(err)
	}
}
