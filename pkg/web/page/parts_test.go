package page

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/startupd/startupd/pkg/web/api"
)

func TestTook(t *testing.T) {
	for seconds, want := range map[float64]string{
		-1: "0.0s", 0: "0.0s", 0.26: "0.3s", 9.94: "9.9s", 9.96: "10s", 59.4: "59s", 59.6: "1m 00s", 792: "13m 12s", 3599.6: "1h 00m", 7384: "2h 03m", 1e20: "277777777h 46m",
	} {
		if got := took(seconds); got != want {
			t.Errorf("took(%v) is %q, want %q", seconds, got, want)
		}
	}
}

func TestBytesText(t *testing.T) {
	for n, want := range map[uint64]string{0: "0 B", 1023: "1023 B", 1024: "1.0 KiB", 79134982963: "73.7 GiB", 1<<40 - 1: "1.0 TiB", 1 << 63: "8.0 EiB"} {
		if got := bytesText(n); got != want {
			t.Errorf("bytesText(%d) is %q, want %q", n, got, want)
		}
	}
}

func TestVisible(t *testing.T) {
	for text, want := range map[string]string{
		"plain": "plain", "a\nb\tc": "a\nb\tc", "a\x1b[1m": `a\x1b[1m`, "a\u202eb": `a\u202eb`, "\xff": `\xff`, "مرحبا 好": "مرحبا 好",
		"a\u00a0b": "a b", "\u200b": `\u200b`, "\r": `\r`, strings.Repeat("é", maxText+2): strings.Repeat("é", maxText) + "… (4 bytes more)",
	} {
		if got := visible(text); got != want {
			t.Errorf("visible(%q) is %q, want %q", text, got, want)
		}
	}
}

func TestIdentifier(t *testing.T) {
	if got := identifier(`vllm@a\x2d1.service`); got != "u-vllm_40a_5cx2d1_2eservice" {
		t.Error(got)
	}
	if identifier("a_2e") == identifier("a.") {
		t.Error("two names have one id")
	}
}

const gibBytes = uint64(1) << 30

func gpus() []api.GPU {
	return []api.GPU{
		{GPU: 0, UsedBytes: p(60 * gibBytes), TotalBytes: p(100 * gibBytes), ForeignBytes: p(5 * gibBytes), UnattributedBytes: p(uint64(0)), UtilizationRatio: p(0.5)},
		{GPU: 1, UsedBytes: p(60 * gibBytes), TotalBytes: p(100 * gibBytes), Lost: "it fell off the bus", Xids: []api.Xid{{Xid: 79, Count: 1}}},
		{GPU: 2, UsedBytes: p(90 * gibBytes), TotalBytes: p(100 * gibBytes)},
	}
}

func TestGPUMemory(t *testing.T) {
	u := loading()
	u.GPUMemory = map[int]uint64{0: 40 * gibBytes, 1: 50 * gibBytes}
	u.Startup.PlateauBytes = map[int]uint64{0: 30 * gibBytes}
	other := api.Unit{Unit: "b.service", State: api.Serving, GPUMemory: map[int]uint64{0: 10 * gibBytes}}
	body := words(pageWith(t, Options{}, &api.Status{At: at(time.Minute), Units: []api.Unit{u, other}, GPUs: gpus()}))
	wants(t, body, "GPU 0 · 60.0 GiB used of 100.0 GiB · busy 50 % this unit 40.0 GiB other watched units 10.0 GiB other processes 5.0 GiB driver and rest 5.0 GiB free 40.0 GiB weights resident at 30.0 GiB",
		"✖ can't be read: it fell off the bus", "this unit 50.0 GiB whose is not known 10.0 GiB free 40.0 GiB other processes: not known owner not told: not known",
		"watched units 50.0 GiB", "Xid 79, once", "GPUs: 3, 1 with errors")

	// A start that holds nothing yet is shown who holds the rest.
	u.GPUMemory, u.Startup.PlateauBytes = nil, nil
	wants(t, words(pageWith(t, Options{}, &api.Status{Units: []api.Unit{u}, GPUs: gpus()})), "GPU 2 · 90.0 GiB used", "this unit: not known")
}

// TestGPUsThatAreAlike: the ranks of a model are one bar.
func TestGPUsThatAreAlike(t *testing.T) {
	u := loading()
	u.GPUMemory = map[int]uint64{}
	var all []api.GPU
	for i := range 8 {
		held := 40*gibBytes + uint64(i)<<26
		if i == 5 {
			held = 70 * gibBytes
		}
		u.GPUMemory[i] = held
		all = append(all, api.GPU{GPU: i, Name: "Card", UsedBytes: &held, TotalBytes: p(100 * gibBytes), ForeignBytes: p(uint64(0)), UnattributedBytes: p(uint64(0))})
	}
	body := words(pageWith(t, Options{}, &api.Status{Units: []api.Unit{u}, GPUs: all}))
	wants(t, body, "GPUs 0-4, 6-7 each about alike; the numbers are GPU 7&#39;s · Card · 40.4 GiB used", "GPU 5 · Card · 70.0 GiB used")
}

func TestPlot(t *testing.T) {
	series := func(n int, first, step uint64) []*uint64 {
		var out []*uint64
		for i := range n {
			out = append(out, p(first+uint64(i)*step))
		}
		return out
	}
	const n = 700
	m := &api.Memory{Invocation: "01"}
	for i := range n {
		m.At = append(m.At, 1000+float64(i))
	}
	for gpu := range 3 {
		m.GPUs = append(m.GPUs, api.MemorySeries{GPU: gpu, TotalBytes: p(100 * gibBytes), Unit: series(n, gibBytes, 100<<20), Foreign: series(n, 0, 0), PlateauBytes: p(60 * gibBytes), PlateauAt: p(1400.0)})
	}
	m.GPUs[2].Unit, m.GPUs[2].Foreign = make([]*uint64, n), series(n, 5*gibBytes, 0)
	got := newPlot(m)
	if len(got.X) > maxPlotted || got.X[len(got.X)-1] != n-1 || got.Total != 100 {
		t.Errorf("%d samples, the last at %v, total %v", len(got.X), got.X[len(got.X)-1], got.Total)
	}
	if len(got.Lines) != 2 || got.Lines[0].Label != "this unit on GPU 0-1" || got.Lines[1].Label != "other processes on GPU 2" || len(got.Lines[0].Y) != len(got.X) {
		t.Errorf("lines %+v", got.Lines)
	}
	if len(got.Levels) != 1 || *got.Levels[0].From != 400 || got.Levels[0].Y != 60 {
		t.Errorf("levels %+v", got.Levels)
	}
	wants(t, got.Text, "this unit on GPU 0-1: now 69.3 GiB", "weights resident: 60.0 GiB")

	for _, tt := range []struct {
		m    *api.Memory
		want string
	}{
		{nil, "No sample"}, {&api.Memory{}, "No sample"}, {&api.Memory{At: []float64{1}, GPUs: []api.MemorySeries{{Unit: []*uint64{nil}}}}, "not known"},
		{&api.Memory{At: []float64{1, 2}, GPUs: []api.MemorySeries{{GPU: 4, Unit: []*uint64{nil}, Used: series(2, gibBytes, 0)}}}, "all processes on GPU 4: now 1.0 GiB"},
	} {
		if got := newPlot(tt.m); !strings.Contains(got.Text, tt.want) {
			t.Errorf("%q, want %q", got.Text, tt.want)
		}
	}
}

// good is a start that served, as the history keeps it.
func good(n int, load float64) api.Startup {
	return api.Startup{
		Unit: "a.service", Invocation: fmt.Sprintf("g%d", n), Began: at(-time.Duration(n) * time.Hour), Ended: at(-time.Duration(n)*time.Hour + time.Minute),
		Seconds: p(10 + load), Outcome: api.Serving, Version: "1.1", Final: true, Arguments: map[string]string{"dtype": "auto"},
		Phases:       []api.Phase{{Phase: "spawn", Seconds: p(10.0), Done: true}, {Phase: "load", Seconds: &load, Done: true}, {Phase: "serving"}},
		PlateauBytes: map[int]uint64{0: 60 * gibBytes, 1: 61 * gibBytes}, ServingEndReason: "killed",
	}
}

func TestHistory(t *testing.T) {
	u := failedUnit()
	u.Startup.Version, u.Startup.Arguments, u.Startup.Gaps, u.Startup.GapCount = "1.2", map[string]string{"dtype": "half"}, nil, 0
	u.Startup.Findings = []api.Finding{
		{Verdict: "benign", Class: "import_failed", Fingerprint: "v1:old", Count: 1}, {Verdict: "cause", Class: "package_mismatch", Message: "never seen", Fingerprint: "v1:new", Count: 1, New: true},
	}
	var asked int
	o := Options{Startups: func(_ context.Context, unit string, limit int) ([]api.Startup, error) {
		asked++
		if unit != "a.service" || limit < maxHistory {
			return nil, fmt.Errorf("asked for %d of %s", limit, unit)
		}
		list := []api.Startup{*u.Startup}
		for n := 1; n <= 15; n++ {
			list = append(list, good(n, 90))
		}
		return list, nil
	}}
	s := &api.Status{At: at(time.Minute), Units: []api.Unit{u}}
	o.Status = func() *api.Status { return s }
	h := newPage(t, o)
	body := ask(t, h, "/").Body.String()
	if n := strings.Count(body, `<li id="u-a_2eservice-start-`); n != maxHistory {
		t.Errorf("%d starts, want %d", n, maxHistory)
	}
	wants(t, words(body), "✖ failed 4.0s 2026-03-01 12:00:00 UTC, the present one", "● serving 1m 40s 2026-03-01 11:00:00 UTC", "weights 60.0 GiB to 61.0 GiB on 2 GPUs", "served, then was killed",
		"new since the last good start before it: 3", "version 1.1 → 1.2", "argument dtype: auto → half", "cause package_mismatch: never seen")

	// It is read again when a start has ended, and after a while.
	ask(t, h, "/page/units")
	if asked != 1 {
		t.Errorf("read %d times within a second", asked)
	}
	u.Startup.Final = true
	ask(t, h, "/page/units")
	s = &api.Status{At: at(time.Minute + historyAge), Units: []api.Unit{u}}
	ask(t, h, "/page/units")
	if asked != 3 {
		t.Errorf("read %d times, want 3", asked)
	}
}

// TestLockedHistory: a history that can't be read does not keep the page waiting.
func TestLockedHistory(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var units []api.Unit
		for i := range 20 {
			units = append(units, api.Unit{Unit: fmt.Sprintf("m%02d.service", i), State: "stopped"})
		}
		o := Options{
			Status: func() *api.Status { return &api.Status{At: at(0), Units: units} },
			Startups: func(ctx context.Context, _ string, _ int) ([]api.Startup, error) {
				<-ctx.Done()
				return nil, errors.New("the history is locked")
			},
		}
		h := newPage(t, o)
		began := time.Now()
		body := ask(t, h, "/page/units").Body.String()
		if took := time.Since(began); took > historyWithin || strings.Count(body, "Not complete: <bdi>the history is locked") != 20 {
			t.Errorf("the page took %s, %d units say that their history is not complete", took, strings.Count(body, "Not complete"))
		}
		// Nor does it try at once again.
		began = time.Now()
		ask(t, h, "/page/units")
		if took := time.Since(began); took > 0 {
			t.Errorf("the second page took %s", took)
		}
	})
}
