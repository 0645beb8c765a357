package explain

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/startupd/startupd/pkg/event"
	"github.com/startupd/startupd/pkg/phases"
)

func startupsOf(ids ...string) []*phases.Startup {
	var all []*phases.Startup
	for i, id := range ids {
		s := started(1, phases.OutcomeFailed)
		s.Invocation, s.Began = id, at(time.Duration(i)*time.Minute)
		all = append(all, s)
	}
	return all
}

func TestChoose(t *testing.T) {
	const a, b, c = "aaaaaaaa11111111", "aaaaaaaa22222222", "cccccccc33333333"
	journal, pasted := startupsOf(a, b, b, c), startupsOf("", "", "")
	for _, tt := range []struct {
		all    []*phases.Startup
		wanted string
		want   span
	}{
		{journal, "", span{0, 4}},
		{journal, "0", span{3, 4}},
		{journal, "-1", span{1, 3}},
		{journal, "-2", span{0, 1}},
		{journal, b, span{1, 3}},
		{journal, "cccccc", span{3, 4}},
		{pasted, "0", span{2, 3}},
		{pasted, "-2", span{0, 1}},
		{nil, "", span{0, 0}},
	} {
		got, err := choose(tt.all, tt.wanted, "in")
		if err != nil || got != tt.want {
			t.Errorf("choose(%d startups, %q) = %v, %v; want %v", len(tt.all), tt.wanted, got, err, tt.want)
		}
	}
	for _, wanted := range []string{"-3", "1", "12", "aaaaaaaa", "ccccc", "dddddddd", "-99999999999999999999", "x y"} {
		_, err := choose(journal, wanted, "in")
		if !errors.As(err, new(*NoInvocationError)) {
			t.Errorf("choose(%q) = %v", wanted, err)
			continue
		}
		want := fmt.Sprintf("no invocation %q in in, which holds 3: choose 0 or cccccccc33333333 (failed, began 2026-03-01 12:03:00 UTC); "+
			"-1 or aaaaaaaa22222222 (failed, began 2026-03-01 12:02:00 UTC); -2 or aaaaaaaa11111111 (failed, began 2026-03-01 12:00:00 UTC)", wanted)
		if diff := cmp.Diff(want, err.Error()); diff != "" {
			t.Error(diff)
		}
	}
	if _, err := choose(nil, "0", "in.log"); err == nil || !strings.Contains(err.Error(), "which holds 0: is it the log of an LLM server") {
		t.Errorf("error %v", err)
	}
	if _, err := choose(startupsOf(make([]string, 25)...), "-30", "in"); err == nil || !strings.HasSuffix(err.Error(), "; and 15 before them") {
		t.Errorf("error %v", err)
	}
}

func TestRunChooses(t *testing.T) {
	src := from([]event.Event{
		message(event.Starting, "01", 0), message(event.FailureResult, "01", time.Second),
		message(event.Starting, "02", 2*time.Second), message(event.FailureResult, "02", 3*time.Second),
		message(event.Starting, "03", 4*time.Second),
	})
	r, err := Run(t.Context(), Options{Source: src, Profiles: profiles(t), Invocation: "-1"})
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]string{"02=failed"}, outcomes(r)); diff != "" {
		t.Error(diff)
	}
	if title := r.Startups[0].title(); !strings.HasPrefix(title, "startup 2 of 3, ") {
		t.Errorf("title %q", title)
	}
	_, err = Run(t.Context(), Options{Source: src, Profiles: profiles(t), Invocation: "-7"})
	if !errors.As(err, new(*NoInvocationError)) || !strings.Contains(err.Error(), "a.service, which holds 3") {
		t.Errorf("error %v", err)
	}
}

// TestKeepsEachOnce: a startup that comes again takes its own place.
func TestKeepsEachOnce(t *testing.T) {
	a, b := started(1, phases.OutcomeFailed), started(5, phases.OutcomeServing)
	b.Generation = 1
	again := *a
	again.Reason = "clearer"
	var h shelf
	for _, s := range []*phases.Startup{a, b, &again} {
		h.put(s)
	}
	if list := h.list; len(list) != 2 || list[0].Reason != "clearer" || list[1] != b {
		t.Errorf("%+v", list)
	}
}
