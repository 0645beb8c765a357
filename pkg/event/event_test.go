package event

import (
	"bytes"
	"errors"
	"io"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

var (
	noon  = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	first = Stamp{Real: noon, Boot: "a", Mono: time.Hour}
)

func TestStampMeasuresByTheMonotonicClock(t *testing.T) {
	jumped := Stamp{Real: noon.Add(-24 * time.Hour), Boot: "a", Mono: time.Hour + 5*time.Second}
	rebooted := Stamp{Real: noon.Add(time.Minute), Boot: "b", Mono: time.Second}
	text := Stamp{Real: noon.Add(2 * time.Minute)}
	for _, c := range []struct {
		name string
		s, o Stamp
		want time.Duration
	}{
		{"the wall clock jumped", jumped, first, 5 * time.Second},
		{"across boots by the wall clock", rebooted, first, time.Minute},
		{"text has only a wall clock", text, first, 2 * time.Minute},
		{"unknown tells nothing", Stamp{}, first, 0},
		{"later minus earlier", first, jumped, -5 * time.Second},
	} {
		if got := c.s.Sub(c.o); got != c.want {
			t.Errorf("%s: %v, want %v", c.name, got, c.want)
		}
	}
	if got := first.Add(time.Second); got.Sub(first) != time.Second || got.Real.Sub(first.Real) != time.Second {
		t.Errorf("Add moved to %+v", got)
	}
	if got := (Stamp{}).Add(time.Second); !got.IsZero() {
		t.Errorf("an unknown moment became %+v", got)
	}
}

func TestCodecRoundTrip(t *testing.T) {
	n, u, f := 3, uint64(1<<40), 0.5
	events := []Event{
		{At: first, Target: "llm.service", Data: &Line{Text: "a <b> \u2588 \x00", Cursor: "c", No: 2, Invocation: "i", PID: 7, Origin: OriginUnit, Bar: true}},
		{At: first, Target: "llm.service", Replayed: true, Data: &UnitMessage{Message: ProcessExit, ExitCode: "killed", ExitStatus: "KILL", Restarts: &n}},
		{At: first, Data: &UnitState{Loaded: true, ActiveState: "active", InactiveExit: first}},
		{At: first, Data: &Gap{Gap: GapLost, Lines: 4}},
		{At: first, Data: &GPUSample{GPUs: []GPU{{Index: 1, UsedBytes: &u, UtilizationRatio: &f, Processes: []GPUProcess{}}, {Index: 2, Lost: "GPU is lost"}}}},
		{At: first, Data: &HealthSample{Status: HealthReady, Code: 200}},
		{At: first, Data: &HostSample{CPUSeconds: &f, Compilers: &n}},
		{At: first, Data: &SourceState{Source: SourceGPU, State: "hung", Reason: "r"}},
		{At: first, Data: &Watermark{}},
		{At: first, Data: &Tick{}},
		{At: first, Target: "vllm.service", Data: &Baseline{Good: 14, Bad: 2, Errors: map[string]Seen{"v1:00": {Good: 14}}}},
	}
	var b bytes.Buffer
	enc := NewEncoder(&b)
	for _, ev := range events {
		if err := enc.Encode(ev); err != nil {
			t.Fatal(err)
		}
	}
	dec := NewDecoder(&b)
	for _, want := range events {
		got, err := dec.Decode()
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Error(diff)
		}
	}
	if _, err := dec.Decode(); !errors.Is(err, io.EOF) {
		t.Errorf("after the last event: %v, want EOF", err)
	}
}

func TestDecoderNamesTheLine(t *testing.T) {
	for bad, want := range map[string]string{
		"{":                               "line 2: not an event",
		`{"kind":"dream","data":{}}`:      `line 2: unknown kind "dream"`,
		`{"kind":"line","data":{"no":""}`: "line 2: not an event",
		`{"kind":"line","data":[]}`:       "line 2: line: ",
	} {
		dec := NewDecoder(strings.NewReader("\n" + bad + "\n"))
		_, err := dec.Decode()
		if err == nil || !strings.HasPrefix(err.Error(), want) {
			t.Errorf("%s: %v, want %s", bad, err, want)
		}
	}
}
