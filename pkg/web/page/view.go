package page

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/startupd/startupd/pkg/web/api"
)

// manyUnits is from how many units on the page begins with an overview.
const manyUnits = 4

// noUnit names no unit: systemd has none without a name.
const noUnit = ""

// pageView is what the templates show. A text is "" where nothing is known.
type pageView struct {
	Version, Build string
	// Title is the window's: on a phone it is all that is seen of the page beside
	// others.
	Title string
	// Refresh is in seconds; 0 is never.
	Refresh int
	// Known is false as long as there is no status at all.
	Known bool
	// At is the moment that the page tells of, Clock its time of day.
	At, Clock string
	Overview  []unitView
	Units     []unitView
	Sources   []sourceView
	GPUs      []gpuView
	// SourcesDown counts the sources that can't see.
	SourcesDown int
	// GPUTrouble counts the GPUs that are lost or have reported errors.
	GPUTrouble int
}

// duration is a span of time that may go on.
type duration struct {
	Text string
	// Kind tells the script how it goes on: up, left or ago; "" for one that is
	// over.
	Kind string
	// Base is its length in seconds at the page's moment.
	Base float64
}

func over(seconds *float64) duration { return duration{Text: tookOr(seconds, "not known")} }

func upwards(seconds *float64) duration {
	if seconds == nil {
		return over(nil)
	}
	return duration{Text: took(*seconds), Kind: "up", Base: *seconds}
}

// left counts down to a moment and past it.
func left(seconds float64) duration {
	if seconds < 0 {
		return duration{Text: took(-seconds) + " overdue", Kind: "left", Base: seconds}
	}
	return duration{Text: "in " + took(seconds), Kind: "left", Base: seconds}
}

// ago is how long before the page's moment t was; nil when one of both is not
// known.
func ago(t, at time.Time) *float64 {
	if t.IsZero() || at.IsZero() {
		return nil
	}
	s := max(at.Sub(t).Seconds(), 0)
	return &s
}

// sourceView is the health of one source.
type sourceView struct {
	Source, Unit, State, Reason, Since string
	Up                                 bool
	Restarts                           int
}

// view makes what is to be shown of the present status; of these units only,
// where some are named.
func (p *page) view(ctx context.Context, only ...string) pageView {
	s := p.opt.Status()
	v := pageView{Version: p.opt.Version, Build: p.files.build, Refresh: refreshEvery, Title: "startupd", At: "not known", Clock: "not known"}
	if s == nil {
		return v
	}
	v.Known = true
	ctx, cancel := context.WithTimeout(ctx, historyWithin)
	defer cancel()
	if !s.At.IsZero() {
		v.At, v.Clock = moment(s.At, p.opt.Zone), s.At.In(p.opt.Zone).Format("15:04:05 MST")
	}
	for i := range s.Units {
		u := &s.Units[i]
		if len(only) > 0 && !slices.Contains(only, u.Unit) {
			continue
		}
		b := builder{page: p, status: s, unit: u}
		v.Units = append(v.Units, b.view(ctx))
	}
	slices.SortStableFunc(v.Units, func(a, b unitView) int {
		return cmp.Or(cmp.Compare(a.Rank, b.Rank), cmp.Compare(a.Name, b.Name))
	})
	if len(v.Units) >= manyUnits {
		v.Overview = v.Units
	}
	v.Title = title(v.Units)
	v.sources(s, p.opt.Zone)
	v.gpus(s, p.opt.Zone)
	return v
}

func (v *pageView) sources(s *api.Status, zone *time.Location) {
	for _, src := range s.Sources {
		if !src.Up {
			v.SourcesDown++
		}
		v.Sources = append(v.Sources, sourceView{
			Source: src.Source, Unit: src.Unit, State: src.State, Reason: src.Reason,
			Since: moment(src.Since, zone), Up: src.Up, Restarts: src.Restarts,
		})
	}
}

// title counts the units by what they need, the worst first.
func title(units []unitView) string {
	if len(units) == 1 {
		return units[0].Badge + " · " + units[0].Name
	}
	var parts []string
	for i, u := range units {
		if i > 0 && units[i-1].Group == u.Group {
			continue
		}
		n := 0
		for _, other := range units {
			if other.Group == u.Group {
				n++
			}
		}
		parts = append(parts, fmt.Sprintf("%d %s", n, u.Group))
	}
	return strings.Join(append(parts, "startupd"), " · ")
}

// Ranks order the units: what needs a person comes first.
const (
	rankFailed = iota
	rankLoop
	rankStarting
	rankDoubt
	rankUnknown
	rankStopped
	rankServing
)

// rank returns a unit's place and the name of its group.
func rank(u *api.Unit) (int, string) {
	switch outcome := outcomeOf(u); {
	case u.State == api.Failed || outcome == api.Stalled:
		if outcome == api.Stalled {
			return rankFailed, "stalled"
		}
		return rankFailed, "failed"
	case starting(u.State) && u.RestartLoop:
		return rankLoop, "in a restart loop"
	case starting(u.State):
		return rankStarting, "starting"
	case u.State == api.Serving && u.Disagreement != "":
		return rankDoubt, "in doubt"
	case u.State == api.Serving:
		return rankServing, "serving"
	case u.State == api.Stopped:
		return rankStopped, "stopped"
	}
	return rankUnknown, "unknown"
}

// outcomeOf is that of the unit's startup; "" when it has none.
func outcomeOf(u *api.Unit) string {
	if u.Startup == nil {
		return ""
	}
	return u.Startup.Outcome
}
