package journal

import (
	"context"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/startupd/startupd/pkg/event"
)

// part is a part of a line that Docker has split.
func part(at int64, name, id string, n int, last bool, msg string) rec {
	more := []string{"CONTAINER_PARTIAL_ID=" + id, fmt.Sprint("CONTAINER_PARTIAL_ORDINAL=", n), fmt.Sprint("CONTAINER_PARTIAL_LAST=", last)}
	if !last {
		more = append(more, "CONTAINER_PARTIAL_MESSAGE=true")
	}
	return docker(at, name, "id-"+name, msg, more...)
}

// conmon is a line that Podman writes, or a part of one.
func conmon(at int64, priority int, more bool, msg string) rec {
	f := []string{"_TRANSPORT=journal", fmt.Sprint("PRIORITY=", priority), "_SYSTEMD_UNIT=" + unitA, "_SYSTEMD_INVOCATION_ID=" + invA,
		"CONTAINER_NAME=box", "CONTAINER_ID_FULL=c1", "MESSAGE=" + msg}
	if more {
		f = append(f, "CONTAINER_PARTIAL_MESSAGE=true")
	}
	return rec{at, f}
}

func TestLongLinesAreJoined(t *testing.T) {
	const kib16 = 16 << 10
	x, y, z := strings.Repeat("x", kib16), strings.Repeat("y", kib16), strings.Repeat("z", kib16)
	for _, tc := range []struct {
		name string
		recs []rec
		want []string
	}{
		{"three parts", []rec{part(1, "box", "p", 1, false, x), part(2, "box", "p", 2, false, y), part(3, "box", "p", 3, true, "end")},
			[]string{"box " + x + y + "end"}},
		{"a character is split", []rec{part(1, "box", "p", 1, false, "caf\xc3"), part(2, "box", "p", 2, true, "\xa9")}, []string{"box caf\u00e9"}},
		{"others in between", []rec{
			part(1, "box", "p", 1, false, "a"), part(2, "web", "q", 1, false, "1"), docker(3, "box", "id-box", "whole"),
			part(4, "box", "r", 1, false, "A"), part(5, "web", "q", 2, true, "2"), part(6, "box", "p", 2, true, "b"), part(7, "box", "r", 2, true, "B"),
		}, []string{"box whole", "web 12", "box ab", "box AB"}},
		{"a part is lost", []rec{part(1, "box", "p", 1, false, "a"), part(2, "box", "p", 4, false, "d"), part(3, "box", "p", 5, true, "e")},
			[]string{"box a", "box gap lost 2", "box de"}},
		{"too long", []rec{part(1, "box", "p", 1, false, x), part(2, "box", "p", 2, false, x), part(3, "box", "p", 3, false, x), part(4, "box", "p", 4, false, x),
			part(5, "box", "p", 5, false, y), part(6, "box", "p", 6, true, z), docker(7, "box", "id-box", "next")},
			[]string{"box " + x + x + x + x, "box gap oversize 1", "box next"}},
		{"a bar without an end", bars(900), []string{"box (Worker pid=7) load:  94% | 854/900", "box (Worker pid=7) load: 100% | 900/900"}},
		{"the last part never comes", []rec{part(1, "box", "p", 1, false, "a"), docker(2, "box", "id-box", "next")}, []string{"box next", "box a"}},
		{"podman, two streams", []rec{conmon(1, 6, true, "out "), conmon(2, 3, true, "err "), conmon(3, 6, false, "1"), conmon(4, 6, false, "2"), conmon(5, 3, false, "3")},
			[]string{"llm.service out 1", "llm.service 2", "llm.service err 3"}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			m, err := NewMapper([]TargetSpec{{Name: "box", Container: "box"}, {Name: "web", Container: "web"}, {Unit: unitA}})
			if err != nil {
				t.Fatal(err)
			}
			if strings.HasPrefix(tc.name, "podman") {
				delete(m.containers, "box")
			}
			var got []event.Event
			d := NewDecoder(strings.NewReader(string(export(t, tc.recs...))))
			for range tc.recs {
				e, err := d.Decode()
				if err != nil {
					t.Fatal(err)
				}
				got = m.Map(got, e)
			}
			got = m.giveOut(got)
			if d := cmp.Diff(tc.want, texts(got)); d != "" {
				t.Errorf("(-want +got):\n%s", d)
			}
			if n := len(m.parts.open); n > 1 || n == 1 && tc.name != "the last part never comes" {
				t.Errorf("%d lines are still under way", n)
			}
		})
	}
}

// bars is a bar of that many states, split each 16 KiB.
func bars(states int) []rec {
	text := "(Worker pid=7) "
	for i := range states {
		text += fmt.Sprintf("\rload: %3d%% | %d/%d%s", 100*(i+1)/states, i+1, states, strings.Repeat(" ", 75))
	}
	var recs []rec
	for n := 1; len(text) > 0; n++ {
		size := min(len(text), 16<<10)
		recs = append(recs, part(int64(n), "box", "p", n, size == len(text), text[:size]))
		text = text[size:]
	}
	return recs
}

// TestJoinedLineHasTheLastCursor: and the last part's time.
func TestJoinedLineHasTheLastCursor(t *testing.T) {
	recs := []rec{part(1, "box", "p", 1, false, "a"), part(7, "box", "p", 2, true, "b")}
	got := mapEntries(t, []TargetSpec{{Container: "box"}}, recs...)
	if len(got) != 1 || got[0].At.Mono != 7*time.Microsecond {
		t.Fatalf("got %v at %v, want one line at 7µs", texts(got), got)
	}
	want := &event.Line{Text: "ab", Cursor: cursorOf(1, recs[1]), Invocation: "id-box", PID: 0, Origin: event.OriginUnit}
	if d := cmp.Diff(event.Data(want), got[0].Data); d != "" {
		t.Errorf("(-want +got):\n%s", d)
	}
}

// TestPartsAreBounded: lines of which the last part never comes don't pile up.
func TestPartsAreBounded(t *testing.T) {
	var recs []rec
	for i := range 200 {
		recs = append(recs, part(int64(i), "box", fmt.Sprint(i), 1, false, fmt.Sprint("line ", i)))
	}
	m, err := NewMapper([]TargetSpec{{Container: "box"}})
	if err != nil {
		t.Fatal(err)
	}
	var got []event.Event
	d := NewDecoder(strings.NewReader(string(export(t, recs...))))
	for range recs {
		e, err := d.Decode()
		if err != nil {
			t.Fatal(err)
		}
		got = m.Map(got, e)
	}
	if len(m.parts.open) != maxParts || len(got) != 200-maxParts {
		t.Errorf("%d lines under way, %d given out; want %d and %d", len(m.parts.open), len(got), maxParts, 200-maxParts)
	}
}

// TestKilledReadersAmongParts kills the reader at any place, also between the
// parts of a line, and starts the source anew: no line is lost, comes twice or
// in pieces.
func TestKilledReadersAmongParts(t *testing.T) {
	targets := []TargetSpec{{Container: "box"}, {Container: "web"}}
	for seed := range uint64(20) {
		synctest.Test(t, func(t *testing.T) {
			rnd := rand.New(rand.NewPCG(seed, 5))
			j := newFakeJournal(docker(1, "box", "id-box", "before"))
			for range 30 {
				j.dieAfter = append(j.dieAfter, rnd.IntN(4000))
			}
			var c collector
			s := fakeSource(t, j, Options{Targets: targets})
			stop := run(t, s, c.emit)
			elapse(time.Second)
			want := map[string][]string{}
			at := int64(2)
			for i := range 60 {
				name := []string{"box", "web"}[rnd.IntN(2)]
				n := 1 + rnd.IntN(4)
				text := ""
				for k := range n {
					at += int64(rnd.IntN(2))
					piece := fmt.Sprintf("line %d part %d. ", i, k+1)
					text += piece
					j.append(part(at, name, fmt.Sprint("p", i), k+1, k == n-1, piece))
					// Of the other container a whole line, in the middle.
					if rnd.IntN(3) == 0 {
						other := map[string]string{"box": "web", "web": "box"}[name]
						j.append(docker(at, other, "id-"+other, fmt.Sprint("whole ", i, " ", k)))
						want[other] = append(want[other], fmt.Sprint(other, " whole ", i, " ", k))
					}
					elapse(time.Duration(rnd.IntN(40)) * time.Millisecond)
				}
				want[name] = append(want[name], name+" "+strings.TrimSpace(text))
				if i%20 == 19 {
					stop()
					s = fakeSource(t, j, Options{Targets: targets, Resume: s.Applied()})
					stop = run(t, s, c.emit)
				}
			}
			elapse(10 * time.Minute)
			stop()
			for name, lines := range want {
				var got []string
				for _, l := range texts(c.all()) {
					if strings.HasPrefix(l, name) {
						got = append(got, l)
					}
				}
				if d := cmp.Diff(lines, got); d != "" {
					t.Errorf("seed %d, %s (-want +got):\n%s", seed, name, d)
				}
			}
		})
	}
}

// TestPartThatStops: a line that stops in the middle is given out after about a
// second, and watermarks then go on.
func TestPartThatStops(t *testing.T) {
	for _, marks := range []bool{true, false} {
		synctest.Test(t, func(t *testing.T) {
			j := newFakeJournal(docker(1, "box", "id-box", "before"))
			j.marks = marks
			var c collector
			s := fakeSource(t, j, Options{Targets: []TargetSpec{{Container: "box"}}})
			stop := run(t, s, c.emit)
			elapse(time.Second)
			j.append(part(2, "box", "p", 1, false, "begin"))
			elapse(3 * time.Second)
			if d := cmp.Diff([]string{"replayed box before", "box begin"}, texts(c.all())); d != "" {
				t.Errorf("watermarks %v (-want +got):\n%s", marks, d)
			}
			j.append(part(3, "box", "p", 2, true, "end"))
			elapse(3 * time.Second)
			stop()
			if d := cmp.Diff([]string{"replayed box before", "box begin", "box end"}, texts(c.all())); d != "" {
				t.Errorf("watermarks %v (-want +got):\n%s", marks, d)
			}
			ev := c.all()
			if _, ok := ev[len(ev)-1].Data.(*event.Watermark); !ok {
				t.Errorf("watermarks %v: the last event is %T, want a watermark", marks, ev[len(ev)-1].Data)
			}
		})
	}
}

// TestPartsInAFile: both readers pass the parts' fields on, and an export file
// has them too.
func TestPartsInAFile(t *testing.T) {
	recs := []rec{
		part(1000, "box", "p", 1, false, strings.Repeat("x", 16<<10)), part(1001, "web", "q", 1, false, "no"),
		part(1002, "box", "p", 2, true, "end"), docker(1003, "box", "id-box", "next"), part(1004, "box", "r", 1, false, "cut"),
	}
	want := []string{"box " + strings.Repeat("x", 16<<10) + "end", "box next", "box cut"}
	dir := t.TempDir()
	writeJournal(t, dir, "system.journal", recs...)
	for _, kind := range kinds() {
		got := readDir(t, DirOptions{Reader: testReader(t, kind, dir), Target: TargetSpec{Container: "box"}})
		if d := cmp.Diff(want, texts(got)); d != "" {
			t.Errorf("%s (-want +got):\n%s", kind, d)
		}
	}
	var got []event.Event
	err := ReadFile(context.Background(), FileOptions{Path: "x.export", Target: "box", R: strings.NewReader(string(export(t, recs[0], recs[2], recs[3], recs[4])))},
		func(_ context.Context, ev []event.Event) error { got = append(got, ev...); return nil })
	if err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff(want, texts(got)); d != "" {
		t.Errorf("file (-want +got):\n%s", d)
	}
}
