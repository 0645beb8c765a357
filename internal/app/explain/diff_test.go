package explain

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/startupd/startupd/pkg/event"
	"github.com/startupd/startupd/pkg/history"
	"github.com/startupd/startupd/pkg/phases"
	"github.com/startupd/startupd/pkg/triage"
)

// good is a start that served an hour before the others begin.
func good(version string) *phases.Startup {
	s := started(5, phases.OutcomeServing)
	s.Invocation, s.Began, s.Engine.Version = "9", at(-time.Hour), version
	return s
}

func TestCompare(t *testing.T) {
	kept := history.FromStartup(target, good("0.16.0rc2.dev313"))
	past := func(context.Context, string) ([]history.Record, error) { return []history.Record{kept}, nil }
	asked := func(context.Context, string) ([]history.Record, error) {
		t.Error("history was asked although the input holds a good start")
		return nil, nil
	}
	broken := errors.New("the file is damaged")
	damaged := func(context.Context, string) ([]history.Record, error) { return nil, broken }
	const known = "new since the last good start (2026-03-01 11:00:00 UTC):"
	const none = "what is new can't be told: no earlier good start is known"
	for _, tt := range []struct {
		name   string
		before []*phases.Startup
		past   Past
		want   []string
		err    error
	}{
		{"from the input", []*phases.Startup{good("0.15.0"), unknown()}, asked, []string{known, "0.15.0 -> 0.16.0rc2.dev344"}, nil},
		{"from the history", []*phases.Startup{unknown()}, past, []string{known, "0.16.0rc2.dev313 -> 0.16.0rc2.dev344", "package_mismatch in EngineCore"}, nil},
		{"nothing kept", nil, nil, []string{none}, nil},
		{"damaged", nil, damaged, []string{none}, broken},
	} {
		d, err := compare(t.Context(), target, tt.before, crashed(), tt.past)
		if !errors.Is(err, tt.err) {
			t.Errorf("%s: error %v", tt.name, err)
		}
		got := strings.Join(diffText(d), "\n")
		for _, want := range tt.want {
			if !strings.Contains(got, want) {
				t.Errorf("%s lacks %q:\n%s", tt.name, want, got)
			}
		}
	}
}

func TestRunCompares(t *testing.T) {
	src := from([]event.Event{
		message(event.Starting, "01", 0), message(event.FailureResult, "01", time.Second), message(event.Starting, "02", 2*time.Second),
	})
	var askedFor string
	o := Options{Source: src, Profiles: profiles(t), Diff: true, Past: func(_ context.Context, target string) ([]history.Record, error) {
		askedFor = target
		return []history.Record{history.FromStartup(target, good("0.15.0"))}, nil
	}}
	r, err := Run(t.Context(), o)
	if err != nil || r.Trouble != nil {
		t.Fatal(err, r.Trouble)
	}
	if askedFor != "a.service" || r.Startups[0].Diff != nil || r.Startups[1].Diff == nil || r.Startups[1].Diff.Good == nil {
		t.Errorf("asked for %q; %+v", askedFor, r.Startups)
	}
	o.Past = func(context.Context, string) ([]history.Record, error) { return nil, errors.New("no right") }
	if r, err = Run(t.Context(), o); err != nil || r.Trouble == nil || r.Trouble.Error() != "--diff: no right" {
		t.Errorf("error %v, trouble %v", err, r.Trouble)
	}
	o.Diff = false
	if r, err = Run(t.Context(), o); err != nil || r.Trouble != nil || r.Startups[1].Diff != nil {
		t.Errorf("not asked for, but: %v, %v, %v", err, r.Trouble, r.Startups[1].Diff)
	}
}

// TestDiffIsInert: a comparison holds text of the log, too.
func TestDiffIsInert(t *testing.T) {
	now := crashed()
	now.Findings = []triage.Finding{{Verdict: triage.Suspect, Class: "unknown", Message: nasty, Process: nasty, Count: 1, Fingerprint: "v1:00"}}
	now.Arguments = map[string]string{nasty: nasty}
	before := good(nasty)
	before.Arguments = map[string]string{}
	d, err := compare(t.Context(), target, []*phases.Startup{before}, now, nil)
	if err != nil {
		t.Fatal(err)
	}
	r := reportOf([]*phases.Startup{now})
	r.Startups[0].Diff = d
	p := parse(t, markdownText(t, r, false))
	if len(p.fences) < 2 || !strings.Contains(p.fences[1], "new since the last good start") {
		t.Errorf("fences: %q", p.fences)
	}
	got := text(t, r, TextOptions{Width: 80})
	for line := range strings.Lines(got) {
		line = strings.TrimSuffix(line, "\n")
		if Visible(line) != line || columns(line) > 80 && !strings.Contains(line, "journalctl") {
			t.Errorf("%q", line)
		}
	}
}
