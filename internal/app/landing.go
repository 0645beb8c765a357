package app

import (
	"cmp"
	_ "embed"
	"fmt"
	"html/template"
	"net/http"
	"slices"
	"time"

	"github.com/startupd/startupd/pkg/event"
	"github.com/startupd/startupd/pkg/phases"
)

//go:embed landing.html
var landingHTML string

// refreshEvery is how often the page loads itself again, in seconds.
const refreshEvery = 5

// landingData is what the page shows. Texts out of a log are escaped by the
// template.
type landingData struct {
	Version string
	// Refresh is in seconds; 0 is never.
	Refresh int
	Units   []unitView
	Sources []phases.Source
}

// unitView is one unit on the page. A text is "" where nothing is known.
type unitView struct {
	Readiness
	// Label names the duration in Took.
	Label, Took string
	Engine      string
	// Notes are sentences on the state, the most important first.
	Notes  []string
	Phases []phaseView
	// Starting says that progress and an estimate are to be expected.
	Starting     bool
	Percent      string
	ProgressNote string
	// Expected is the moment of serving, Left how far away that is.
	Expected, Left string
	Causes         []causeView
	Errors         []errorsView
	// Gaps are what is missing from the evidence.
	Gaps []string
}

// phaseView is one phase as a part of the bar.
type phaseView struct {
	Name, Took string
	// Weight is the phase's width in the bar beside the others.
	Weight  float64
	Running bool
}

func newLanding() (*template.Template, error) {
	page, err := template.New("landing").Parse(landingHTML)
	if err != nil {
		return nil, fmt.Errorf("landing page: %w", err)
	}
	return page, nil
}

func (a *api) landing(w http.ResponseWriter, r *http.Request, page *template.Template) {
	snap := a.snapshot()
	d := landingData{Version: a.version, Sources: snap.Sources, Refresh: refreshEvery}
	// What a reader has unfolded is folded again by each load.
	if r.URL.Query().Get("refresh") == "off" {
		d.Refresh = 0
	}
	for i := range snap.Targets {
		d.Units = append(d.Units, a.unitView(&snap.Targets[i]))
	}
	w.Header().Set("Content-Type", "text/html; charset=utf-8")
	w.Header().Set("Content-Security-Policy", "default-src 'none'; style-src 'unsafe-inline'")
	w.Header().Set("Cache-Control", "no-store")
	// Half a page is what a client that went away gets.
	_ = page.Execute(w, d)
}

func (a *api) unitView(t *phases.Target) unitView {
	now := a.clock()
	v := unitView{Readiness: a.readiness(*t), Starting: t.State.Starting(), Notes: notes(t)}
	v.Causes, v.Errors = causesOf(t, now), errorsOf(t)
	s := t.Startup
	if s == nil {
		return v
	}
	if v.StartupSeconds != nil {
		v.Label, v.Took = "start-up took", took(*v.StartupSeconds)
		if s.Ended.IsZero() {
			v.Label = "starting for"
		}
	}
	v.Engine = engineText(s.Engine)
	v.Phases = phaseViews(s, now)
	v.Gaps = gapTexts(s.Gaps)
	if v.Starting {
		v.progress(s, now)
	}
	return v
}

// progress fills in how far the start is and when it will serve.
func (v *unitView) progress(s *phases.Startup, now event.Stamp) {
	v.ProgressNote = s.ProgressNote
	if s.Progress != nil {
		v.Percent = fmt.Sprintf("%.0f %%", *s.Progress*100)
	}
	if s.ExpectedServing.IsZero() {
		return
	}
	v.Expected = moment(s.ExpectedServing)
	if left := s.ExpectedServing.Sub(now).Seconds(); left >= 0 {
		v.Left = "in " + took(left)
	} else {
		v.Left = took(-left) + " overdue"
	}
}

// notes are what is to be said of a unit's state.
func notes(t *phases.Target) []string {
	var ns []string
	if t.RestartLoop {
		n := "It restarts in a loop: its last starts have all failed."
		if t.Restarts != nil {
			n = fmt.Sprintf("It restarts in a loop: its last starts have all failed; systemd has restarted it %d times.", *t.Restarts)
		}
		ns = append(ns, n)
	}
	if t.Disagreement != "" {
		ns = append(ns, t.Disagreement)
	}
	s := t.Startup
	if s == nil {
		return ns
	}
	if s.Stalled {
		ns = append(ns, s.StalledReason)
	} else if s.Slow {
		ns = append(ns, "The step is quiet for longer than its budget, and its processes are busy: slow, not stalled.")
	}
	if s.Reason != "" {
		ns = append(ns, s.Reason)
	}
	if s.AttachedLate {
		ns = append(ns, "The beginning of this start was not seen.")
	}
	if n := s.NewErrors; n != nil && *n > 0 {
		ns = append(ns, fmt.Sprintf("New errors, that no good start before has had: %d.", *n))
	}
	return ns
}

func engineText(e phases.Engine) string {
	t := e.Name
	if e.Version != "" {
		t = cmp.Or(t, "engine") + " " + e.Version
	}
	if e.Model != "" {
		t = cmp.Or(t, "engine") + ", " + e.Model
	}
	return t
}

// phaseViews are the phases before serving, up to now for one that runs.
func phaseViews(s *phases.Startup, now event.Stamp) []phaseView {
	var vs []phaseView
	for _, p := range s.Phases {
		if p.Phase == phases.Serving {
			continue
		}
		v := phaseView{Name: string(p.Phase), Running: !p.Done && s.Ended.IsZero()}
		seconds := p.Seconds
		if v.Running && !p.Entered.IsZero() {
			seconds = max(seconds, now.Sub(p.Entered).Seconds())
		}
		v.Weight, v.Took = max(seconds, 0), took(seconds)
		if p.Skipped {
			v.Took = "skipped"
		}
		vs = append(vs, v)
	}
	return vs
}

// gapTexts adds up the holes in the evidence by kind.
func gapTexts(gaps []phases.Gap) []string {
	type sum struct{ times, lines int }
	sums := map[event.GapKind]sum{}
	var kinds []event.GapKind
	for _, g := range gaps {
		s, ok := sums[g.Kind]
		if !ok {
			kinds = append(kinds, g.Kind)
		}
		sums[g.Kind] = sum{s.times + 1, s.lines + g.Lines}
	}
	slices.Sort(kinds)
	var out []string
	for _, k := range kinds {
		text := fmt.Sprintf("%s, %s", k, counted(sums[k].times, "time", "times"))
		if n := sums[k].lines; n > 0 {
			text += ", " + counted(n, "line", "lines")
		}
		out = append(out, text)
	}
	return out
}

func counted(n int, one, many string) string {
	if n == 1 {
		return "1 " + one
	}
	return fmt.Sprintf("%d %s", n, many)
}

// took formats a duration in seconds.
func took(seconds float64) string {
	d := time.Duration(seconds * float64(time.Second))
	if d < 10*time.Second {
		return d.Round(100 * time.Millisecond).String()
	}
	return d.Round(time.Second).String()
}

// moment formats a time in the host's zone, as journalctl does; "" when it is
// not known.
func moment(s event.Stamp) string {
	if s.Real.IsZero() {
		return ""
	}
	return s.Real.Local().Format("2006-01-02 15:04:05 MST")
}
