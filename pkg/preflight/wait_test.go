package preflight

import (
	"context"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/startupd/startupd/pkg/event"
)

// draining is a GPU whose memory becomes free after some time.
func draining(after time.Duration) func(context.Context) GPULook {
	began := time.Now()
	return func(context.Context) GPULook {
		if time.Since(began) < after {
			return GPULook{GPUs: []event.GPU{card(0, 70, 80, holding(7, 69, "old.service"))}}
		}
		return GPULook{GPUs: cards(1, 1, 80)}
	}
}

func TestWait(t *testing.T) {
	for _, c := range []struct {
		name    string
		drains  time.Duration
		wait    time.Duration
		argv    []string
		verdict Verdict
		took    time.Duration
		told    int
	}{
		{"fit at once", 0, time.Minute, nil, Fit, 0, 0},
		{"drains", 9 * time.Second, time.Minute, nil, Fit, 10 * time.Second, 1},
		{"does not drain in time", time.Hour, 31 * time.Second, nil, Held, 31 * time.Second, 1},
		{"no waiting", time.Hour, 0, nil, NotFit, 0, 0},
		{"waiting does not help", time.Hour, time.Minute, []string{"-tp", "4"}, NotFit, 0, 0},
	} {
		t.Run(c.name, func(t *testing.T) {
			h := newHost(t)
			synctest.Test(t, func(t *testing.T) {
				var told []string
				o := h.options(nil, append([]string{"vllm", "serve", "m"}, c.argv...)...)
				o.GPUs, o.Wait = draining(c.drains), c.wait
				o.Progress = func(s string) { told = append(told, s) }
				began := time.Now()
				r := Run(t.Context(), o)
				if r.Verdict != c.verdict || time.Since(began) != c.took || len(told) != c.told {
					t.Errorf("%s after %v, told %q; want %s after %v, told %d", r.Summary(), time.Since(began), told, c.verdict, c.took, c.told)
				}
				if c.told > 0 && !strings.Contains(told[0], "PID 7 of old.service") {
					t.Errorf("told %q", told)
				}
				if r.WaitedSeconds != c.took.Seconds() {
					t.Errorf("waited %v s", r.WaitedSeconds)
				}
			})
		})
	}
}

func TestWaitIsBrokenOff(t *testing.T) {
	h := newHost(t)
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithTimeout(t.Context(), 3*time.Second)
		defer cancel()
		o := h.options(nil, "vllm", "serve", "m")
		o.GPUs, o.Wait = draining(time.Hour), time.Hour
		if r := Run(ctx, o); r.Verdict != Held || r.WaitedSeconds != 3 {
			t.Errorf("%s after %v s", r.Verdict, r.WaitedSeconds)
		}
	})
}

// Progress is told on a change only.
func TestWaitTellsChanges(t *testing.T) {
	h := newHost(t)
	synctest.Test(t, func(t *testing.T) {
		n := 0
		o := h.options(nil, "vllm", "serve", "m")
		o.GPUs = func(context.Context) GPULook {
			n++
			used := 70.0
			if n > 5 {
				used = 50
			}
			if n > 8 {
				used = 1
			}
			return GPULook{GPUs: cards(1, used, 80)}
		}
		o.Wait = time.Minute
		var told []string
		o.Progress = func(s string) { told = append(told, s) }
		if r := Run(t.Context(), o); r.Verdict != Fit || len(told) != 2 {
			t.Errorf("%s, told %q", r.Verdict, told)
		}
	})
}
