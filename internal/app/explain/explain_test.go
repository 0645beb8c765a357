package explain

import (
	"context"
	"encoding/json"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/startupd/startupd/pkg/event"
	"github.com/startupd/startupd/pkg/profile"
)

func at(d time.Duration) event.Stamp {
	return event.Stamp{Real: time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC).Add(d), Boot: "0123456789abcdef0123456789abcdef", Mono: time.Hour + d}
}

func message(kind event.MessageKind, invocation string, d time.Duration) event.Event {
	return event.Event{At: at(d), Target: "a.service", Data: &event.UnitMessage{Message: kind, Invocation: invocation, Result: "exit-code"}}
}

func from(batches ...[]event.Event) Source {
	return func(ctx context.Context, emit func(context.Context, []event.Event) error) error {
		for _, b := range batches {
			if err := emit(ctx, b); err != nil {
				return err
			}
		}
		return nil
	}
}

func profiles(t *testing.T) []*profile.Profile {
	t.Helper()
	set, err := profile.Builtin()
	if err != nil {
		t.Fatal(err)
	}
	return set.Profiles()
}

// outcomes lists the startups of a report as invocation=outcome.
func outcomes(r *Report) []string {
	var out []string
	for _, s := range r.Startups {
		out = append(out, *s.Invocation+"="+s.Outcome)
	}
	return out
}

func TestRunReportsEveryStartup(t *testing.T) {
	crash := []event.Event{
		message(event.Starting, "01", 0), message(event.FailureResult, "01", time.Second),
		message(event.Starting, "02", 2*time.Second), message(event.FailureResult, "02", 3*time.Second),
		message(event.Starting, "03", 4*time.Second), message(event.Stopping, "03", 5*time.Second), message(event.Stopped, "03", 6*time.Second),
		message(event.Starting, "04", 7*time.Second),
	}
	want := []string{"01=failed", "02=failed", "03=stopped", "04=starting"}
	// Whole, or event by event: the report is the same.
	var single [][]event.Event
	for _, ev := range crash {
		single = append(single, []event.Event{ev})
	}
	for name, batches := range map[string][][]event.Event{"one batch": {crash}, "event by event": single} {
		r, err := Run(t.Context(), Options{Input: "in", Source: from(batches...), Profiles: profiles(t)})
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(want, outcomes(r)); diff != "" {
			t.Errorf("%s: %s", name, diff)
		}
		if r.Target != "a.service" || r.Last() != Starting {
			t.Errorf("%s: target %q, last %q", name, r.Target, r.Last())
		}
	}
}

func TestRunTakesTheFirstTarget(t *testing.T) {
	other := message(event.Starting, "09", time.Second)
	other.Target = "b.service"
	r, err := Run(t.Context(), Options{Source: from([]event.Event{message(event.Starting, "01", 0), other}), Profiles: profiles(t)})
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]string{"01=starting"}, outcomes(r)); diff != "" {
		t.Error(diff)
	}
}

func TestRunKeepsEarlyGaps(t *testing.T) {
	gap := event.Event{Data: &event.Gap{Gap: event.GapCorrupt, Detail: "a file"}}
	lost := event.Event{At: at(time.Second), Target: "a.service", Data: &event.Gap{Gap: event.GapSuppressed, Lines: 12}}
	r, err := Run(t.Context(), Options{Source: from([]event.Event{gap}, []event.Event{message(event.Starting, "01", 0), lost}), Profiles: profiles(t)})
	if err != nil {
		t.Fatal(err)
	}
	lines, detail, when := 12, "a file", at(time.Second).Real
	want := []Gap{{Kind: "corrupt", Detail: &detail}, {Kind: "suppressed", Lines: &lines, At: &when}}
	if diff := cmp.Diff(want, r.Startups[0].Gaps); diff != "" {
		t.Error(diff)
	}
	var text strings.Builder
	if err := r.WriteText(&text, TextOptions{}); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"gap in the evidence: corrupt, a file\n", "gap in the evidence: suppressed, 12 lines\n"} {
		if !strings.Contains(text.String(), want) {
			t.Errorf("the text lacks %q:\n%s", want, text.String())
		}
	}
	one := 1
	if got := (&Gap{Kind: "lost", Lines: &one}).text(); got != "lost, 1 line" {
		t.Errorf("a gap of one line is %q", got)
	}
}

func TestRunLetsTimePass(t *testing.T) {
	src := from([]event.Event{message(event.Starting, "01", 0)})
	for elapsed, want := range map[time.Duration]float64{0: 0, time.Minute: 60} {
		r, err := Run(t.Context(), Options{Source: src, Profiles: profiles(t), Elapsed: elapsed})
		if err != nil {
			t.Fatal(err)
		}
		if got := *r.Startups[0].Phases[0].Seconds; got != want {
			t.Errorf("elapsed %s: %v seconds in spawn, want %v", elapsed, got, want)
		}
	}
	// One profile is the engine's for certain, so that its budgets count.
	r, err := Run(t.Context(), Options{Source: src, Profiles: profiles(t)[:1], Elapsed: 24 * time.Hour})
	if err != nil {
		t.Fatal(err)
	}
	if r.Last() != Stalled || r.Startups[0].Reason == nil {
		t.Errorf("after a day of silence: %+v", r.Startups[0])
	}
}

func TestRunFailsWithItsSource(t *testing.T) {
	broken := errors.New("broken")
	_, err := Run(t.Context(), Options{Source: func(context.Context, func(context.Context, []event.Event) error) error { return broken }})
	if !errors.Is(err, broken) {
		t.Errorf("error %v", err)
	}
}

func TestNothingToTell(t *testing.T) {
	r, err := Run(t.Context(), Options{Input: "in.log", Source: from()})
	if err != nil {
		t.Fatal(err)
	}
	if why := r.Unknown(); !strings.Contains(why, "no start-up is told of in in.log") {
		t.Errorf("why %q", why)
	}
	b, err := json.Marshal(r)
	if err != nil {
		t.Fatal(err)
	}
	const want = `{"schema":"startupd.explain/v1","target":"in.log","engine":null,"engine_version":null,"model":null,"startups":[]}`
	if string(b) != want {
		t.Errorf("got  %s\nwant %s", b, want)
	}
}
