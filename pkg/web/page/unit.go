package page

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/startupd/startupd/pkg/event"
	"github.com/startupd/startupd/pkg/phases"
	"github.com/startupd/startupd/pkg/web/api"
)

// unitView is one unit on the page. A text is "" where nothing is known.
type unitView struct {
	Name, ID string
	// Rank orders the units, Group names those of a rank.
	Rank  int
	Group string
	// Mark is the badge's class: one of the states, or stalled. Badge is its text.
	Mark, Badge string
	// Unfolded says that its details are shown without asking for them.
	Unfolded bool
	// Lead is what its state has lasted, Second a word on the start before it.
	Lead, Second leadView
	// Starting says that progress and an estimate are to be expected.
	Starting bool
	// Expected is the moment of serving, Left how far away that is.
	Expected               string
	Left                   duration
	Engine, Version, Model string
	Step                   string
	StepFor                duration
	// Percent is "" when progress is not known; Progress is 0 to 1.
	Percent, ProgressNote string
	Progress              float64
	Notes                 []noteView
	// Causes are why the present start failed or hangs, Before why an earlier one
	// did.
	Causes, Before []causeView
	Bar            barView
	Phases         []phaseView
	Errors         []errorsView
	// Gaps are what is missing from the evidence.
	Gaps  []string
	GPUs  []gpuView
	Plot  bool
	Ready []fact
	Facts []fact
	Steps []stepView
	// Whys are the evidence for each phase.
	Whys    []fact
	Known   []factGroup
	History historyView
}

// leadView is a duration with the words before it.
type leadView struct {
	Before string
	For    duration
}

// noteView is a sentence on the state.
type noteView struct {
	// Mark is bad, warn or "".
	Mark, Label, Text string
}

// fact is a name and what is known of it. Mark is good, bad or "".
type fact struct{ Name, Text, Mark string }

// factGroup is a list of facts under a heading.
type factGroup struct {
	Title string
	Facts []fact
}

// builder makes the view of one unit.
type builder struct {
	page   *page
	status *api.Status
	unit   *api.Unit
}

func starting(state string) bool { return phases.State(state).Starting() }

func (b *builder) view(ctx context.Context) unitView {
	u := b.unit
	v := unitView{
		Name: u.Unit, ID: identifier(u.Unit), Mark: u.State, Badge: cmp.Or(u.State, "unknown"), Starting: starting(u.State),
		Plot: b.page.opt.Memory != nil && u.Startup != nil, Errors: b.errors(), Ready: readiness(u), Facts: b.facts(),
		Notes: b.notes(), GPUs: grouped(b.gpus()), History: b.history(ctx),
	}
	v.Causes, v.Before = b.causes()
	v.Rank, v.Group = rank(u)
	v.Unfolded = v.Rank <= rankDoubt || len(b.status.Units) == 1
	b.lead(&v)
	s := u.Startup
	if s == nil {
		return v
	}
	if s.Outcome == api.Stalled {
		v.Mark, v.Badge = api.Stalled, v.Badge+", stalled"
	} else if s.Slow && v.Starting {
		v.Badge += ", slow"
	}
	v.Engine, v.Version, v.Model = s.Engine, s.Version, s.Model
	v.Bar, v.Phases = timeline(s, b.status.At)
	for _, p := range v.Phases {
		if p.Why != "" {
			v.Whys = append(v.Whys, fact{p.Name, p.Why, ""})
		}
	}
	v.Gaps = gapTexts(s)
	v.Steps = b.steps(s)
	v.Known = known(s)
	if v.Starting {
		b.progress(&v, s)
	}
	return v
}

// lead says in a line how long the unit has been in its state.
func (b *builder) lead(v *unitView) {
	u, s := b.unit, b.unit.Startup
	since := ago(u.Since, b.status.At)
	var start *float64
	if s != nil {
		start = s.Seconds
	}
	switch {
	case v.Starting && start != nil:
		v.Lead = leadView{"starting for", upwards(start)}
	case v.Starting:
		v.Lead = leadView{Before: "starting; since when is not known"}
	case since == nil:
		v.Lead = leadView{Before: "since when is not known"}
	case u.State == api.Serving:
		v.Lead = leadView{"serving for", upwards(since)}
	case u.State == api.Failed || u.State == api.Stopped:
		// The badge beside it has the word.
		v.Lead.For = duration{took(*since) + " ago", "ago", *since}
	default:
		v.Lead = leadView{"for", upwards(since)}
	}
	if start == nil || v.Starting {
		return
	}
	switch s.Outcome {
	case u.State:
		v.Second = leadView{map[string]string{api.Serving: "start-up took", api.Failed: "after", api.Stopped: "after"}[u.State], over(start)}
	default:
		said := map[string]string{api.Serving: "served", api.Failed: "failed", api.Stopped: "was stopped"}[s.Outcome]
		if said != "" {
			v.Second = leadView{"its last start " + said + " after", over(start)}
		}
	}
}

// progress fills in how far the start is and when it will serve.
func (b *builder) progress(v *unitView, s *api.Startup) {
	v.Step, v.ProgressNote = s.Step, s.ProgressNote
	if since := ago(s.StepBegan, b.status.At); since != nil {
		v.StepFor = upwards(since)
	}
	if s.Progress != nil {
		v.Progress = min(max(*s.Progress, 0), 1)
		v.Percent = fmt.Sprintf("%.0f %%", v.Progress*100)
	}
	if !s.ExpectedServing.IsZero() && !b.status.At.IsZero() {
		v.Expected = clockTime(s.ExpectedServing, b.status.At, b.page.opt.Zone)
		v.Left = left(s.ExpectedServing.Sub(b.status.At).Seconds())
	}
}

// notes are what is to be said of a unit's state, the most important first.
func (b *builder) notes() []noteView {
	u, s := b.unit, b.unit.Startup
	var ns []noteView
	add := func(mark, label, text string) { ns = append(ns, noteView{mark, label, text}) }
	if u.RestartLoop {
		text := "its last starts have all failed."
		if u.Restarts != nil {
			text = fmt.Sprintf("its last starts have all failed; systemd has restarted it %s.", counted(*u.Restarts, "time", "times"))
		}
		add("bad", "It restarts in a loop", text)
	}
	if u.Disagreement != "" {
		add("warn", "Sources disagree", u.Disagreement)
	}
	if s == nil {
		if phases.State(u.State) == phases.Unknown {
			mark, text := b.blind()
			add(mark, "Why", text)
		}
		return ns
	}
	switch {
	case s.Outcome == api.Stalled:
		add("bad", "Stalled", cmp.Or(s.Reason, "why is not told."))
	case s.Slow && starting(u.State):
		add("warn", "Slow, not stalled", "the step is quiet for longer than its budget, and its processes are busy.")
	}
	if s.Reason != "" && (s.Outcome == api.Failed || s.Outcome == api.Stopped) {
		add("", "It "+map[string]string{api.Failed: "failed", api.Stopped: "was stopped"}[s.Outcome], s.Reason)
	}
	if s.ServingEndReason != "" {
		add("warn", "It no longer serves", "it "+api.EndOfServing(s.ServingEndReason)+b.at(" at ", s))
	}
	if s.AttachedLate {
		add("warn", "Attached late", "the beginning of this start was not seen.")
	}
	if n := s.NewErrors; n != nil && *n > 0 {
		add("warn", "New errors", counted(*n, "kind", "kinds")+" that no good start before has had.")
	}
	return ns
}

// blind says why nothing is known of the unit.
func (b *builder) blind() (mark, text string) {
	for _, s := range b.status.Sources {
		if !s.Up && s.Source == event.SourceJournal && (s.Unit == "" || s.Unit == b.unit.Unit) {
			return "bad", "the journal can't be read: " + cmp.Or(s.Reason, s.State)
		}
	}
	return "", "nothing of this unit has been seen; `systemctl status " + b.unit.Unit + "` tells whether it is there."
}

func (b *builder) at(before string, s *api.Startup) string {
	if s.ServingEnded.IsZero() {
		return ""
	}
	return before + clockTime(s.ServingEnded, b.status.At, b.page.opt.Zone)
}

// readiness is what each source says; that one says no matters only of a unit
// that should serve.
func readiness(u *api.Unit) []fact {
	one := func(name string, says *bool) fact {
		switch {
		case says == nil:
			return fact{name, "not looked at", ""}
		case *says:
			return fact{name, "ready", "good"}
		case starting(u.State):
			return fact{name, "not ready yet", ""}
		}
		return fact{name, "not ready", "bad"}
	}
	r := u.Ready
	return []fact{one("log", r.Log), one("port", r.Port), one("health", r.Health)}
}

// facts are the vital signs and counters of the unit.
func (b *builder) facts() []fact {
	u := b.unit
	fs := []fact{
		{"main process", unknownZero(u.MainPID, "PID %d"), ""},
		{"control group", cmp.Or(u.ControlGroup, "not known"), ""},
		{"restarts by systemd", "not known", ""},
		{"journal is behind", tookOr(u.JournalLagSeconds, "not known"), ""},
		{"journal lines", fmt.Sprintf("%d read, %d of an older start, %d known to no rule", u.JournalLines, u.JournalStale, u.JournalUnmatched), ""},
	}
	if u.Restarts != nil {
		fs[2].Text = fmt.Sprint(*u.Restarts)
	}
	s := u.Startup
	if s == nil {
		return fs
	}
	if s.Began.IsZero() {
		fs = append(fs, fact{"start began", "not known", ""})
	} else {
		fs = append(fs, fact{"start began", moment(s.Began, b.page.opt.Zone), ""})
	}
	id := cmp.Or(s.Invocation, "not known")
	if s.Generation > 0 {
		id += fmt.Sprintf(", start %d in it", s.Generation+1)
	}
	fs = append(fs, fact{"invocation", id, ""})
	if s.Outcome == api.Serving && s.Reason != "" {
		fs = append(fs, fact{"counts as serving by", s.Reason, ""})
	}
	if s.Port != 0 {
		fs = append(fs, fact{"serves at", fmt.Sprintf("%s port %d", cmp.Or(s.Host, "any address"), s.Port), ""})
	}
	if s.WeightBytes != nil {
		fs = append(fs, fact{"weights on one GPU", bytesText(*s.WeightBytes), ""})
	}
	return fs
}

func unknownZero(n int, format string) string {
	if n == 0 {
		return "not known"
	}
	return fmt.Sprintf(format, n)
}

// known are what the log told of the startup.
func known(s *api.Startup) []factGroup {
	var gs []factGroup
	for _, g := range []struct {
		title string
		m     map[string]string
	}{{"Last line of each process", s.LastLines}, {"Arguments", s.Arguments}, {"Versions", s.Versions}} {
		if len(g.m) > 0 {
			gs = append(gs, factGroup{g.title, factsOf(g.m)})
		}
	}
	return gs
}

func factsOf(m map[string]string) []fact {
	var fs []fact
	for _, name := range slices.Sorted(maps.Keys(m)) {
		fs = append(fs, fact{name, m[name], ""})
	}
	return fs
}

// gapTexts adds up the holes in the evidence by kind.
func gapTexts(s *api.Startup) []string {
	type sum struct{ times, lines int }
	sums := map[string]sum{}
	for _, g := range s.Gaps {
		sums[g.Kind] = sum{sums[g.Kind].times + 1, sums[g.Kind].lines + g.Lines}
	}
	var out []string
	for _, k := range slices.Sorted(maps.Keys(sums)) {
		text := fmt.Sprintf("%s, %s", strings.ReplaceAll(k, "_", " "), counted(sums[k].times, "time", "times"))
		if n := sums[k].lines; n > 0 {
			text += ", " + counted(n, "line", "lines")
		}
		out = append(out, text)
	}
	if n := s.GapCount - len(s.Gaps); n > 0 {
		out = append(out, counted(n, "gap", "gaps")+" of a kind not told")
	}
	return out
}
