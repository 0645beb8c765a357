package phases

import (
	"encoding/json"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/startupd/startupd/pkg/event"
)

// TestExemplars: each bucket knows the last startup that fell into it, and so
// does each outcome.
func TestExemplars(t *testing.T) {
	s := newScript(t)
	s.goodStart(0)
	s.tick(800)
	c := s.target().Counters
	want := map[State]map[int]Exemplar{
		// Spawn takes 21 s, load up to the line at 540 s, compile to 660 s.
		Spawn:     {4: {first, 21, at(792).Real}},
		Load:      {8: {first, 519, at(792).Real}},
		Compile:   {6: {first, 120, at(792).Real}},
		CUDAGraph: {7: {first, 132, at(792).Real}},
	}
	got := map[State]map[int]Exemplar{}
	for phase, h := range c.PhaseSeconds {
		got[phase] = h.Exemplars
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
	if diff := cmp.Diff(map[Outcome]Exemplar{OutcomeServing: {first, 1, at(792).Real}}, c.Ended); diff != "" {
		t.Error(diff)
	}

	before := s.target()
	s.inv = other
	s.goodStart(2000)
	s.tick(2800)
	if got := s.target().Counters; got.PhaseSeconds[Load].Exemplars[8].Invocation != other || got.Ended[OutcomeServing].Invocation != other {
		t.Errorf("after the next start: %+v %+v", got.PhaseSeconds[Load].Exemplars, got.Ended)
	}
	if before.Counters.PhaseSeconds[Load].Exemplars[8].Invocation != first || before.Counters.Ended[OutcomeServing].Invocation != first {
		t.Error("a snapshot has changed behind its reader's back")
	}
	s.restarted()
}

// TestExemplarBeyondTheLastBucket: +Inf has one, too.
func TestExemplarBeyondTheLastBucket(t *testing.T) {
	c := newCounters()
	c.observe(Load, Exemplar{first, 4000, epoch})
	c.observe(Load, Exemplar{other, 0, epoch})
	want := map[int]Exemplar{len(PhaseBuckets()): {first, 4000, epoch}, 0: {other, 0, epoch}}
	if diff := cmp.Diff(want, c.PhaseSeconds[Load].Exemplars); diff != "" {
		t.Error(diff)
	}
}

// TestTextHasNoExemplars: there is no invocation to lead to.
func TestTextHasNoExemplars(t *testing.T) {
	s := newScript(t, func(c *Config) { c.Text = true })
	s.inv = ""
	s.goodStart(0)
	s.tick(800)
	c := s.target().Counters
	if c.Startups[OutcomeServing] != 1 || len(c.Ended) != 0 {
		t.Errorf("counted %v, exemplars %v", c.Startups, c.Ended)
	}
	for phase, h := range c.PhaseSeconds {
		if h.Count != 1 || h.Exemplars != nil {
			t.Errorf("%s: %+v", phase, h)
		}
	}
}

// TestStateWithoutExemplars loads what a version before them has written.
func TestStateWithoutExemplars(t *testing.T) {
	const old = `{"targets":{"llm.service":{"startups":{"serving":2},"serving_ended":{},"phase_seconds":{"load":{"Count":1,"Sum":3,"Buckets":[0,0,1,1,1,1,1,1,1,1,1,1],"Native":{"13":1},"Zero":0}},"gaps":{},"errors":null,"lines":7,"stale":0,"unmatched":0,"counted":[],"past":[],"failure":{"Class":"port_in_use","Message":"port 8000\nis in use"}}}}`
	var saved Saved
	if err := json.Unmarshal([]byte(old), &saved); err != nil {
		t.Fatal(err)
	}
	s := newScript(t)
	s.host.Restore(saved)
	got := s.target()
	if got.Counters.Startups[OutcomeServing] != 2 || len(got.Counters.Ended) != 0 || got.Counters.PhaseSeconds[Load].Exemplars != nil {
		t.Errorf("%+v", got.Counters)
	}
	if got.FailureMessage != "port 8000 is in use" {
		t.Errorf("message %q", got.FailureMessage)
	}
	s.goodStart(0)
	s.apply(800, &event.Tick{})
	if got := s.target().Counters; got.Startups[OutcomeServing] != 3 || got.PhaseSeconds[Load].Exemplars[8].Invocation != first {
		t.Errorf("goes on with %+v", got)
	}
}

// TestCountersBegin: they were 0 when the target was first heard of, and not before
// anything was counted.
func TestCountersBegin(t *testing.T) {
	for _, tt := range []struct {
		name              string
		from, first, want event.Stamp
	}{
		{name: "a unit that comes later", from: at(-5000), first: at(10), want: at(10)},
		{name: "one that had begun before", from: at(100), first: at(10), want: at(100)},
		{name: "a recording", first: at(10), want: at(10)},
		{name: "a text"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			s := newScript(t, func(c *Config) { c.CountFrom = tt.from })
			if got := s.target().Counters.Since; !got.IsZero() {
				t.Errorf("before the first event: %v", got)
			}
			for _, at := range []event.Stamp{tt.first, at(50)} {
				s.host.Apply(event.Event{At: at, Target: unit, Data: &event.Line{Text: lineVersion, Invocation: s.inv}})
				if tt.want.IsZero() {
					break
				}
			}
			if got := s.target().Counters.Since; !got.Equal(tt.want.Real) {
				t.Errorf("since %v, want %v", got, tt.want.Real)
			}
			if got := s.restarted().target().Counters.Since; !got.Equal(tt.want.Real) {
				t.Errorf("after a restart: %v", got)
			}
		})
	}
}
