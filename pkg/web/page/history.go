package page

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/startupd/startupd/pkg/history"
	"github.com/startupd/startupd/pkg/triage"
	"github.com/startupd/startupd/pkg/web/api"
)

const (
	// maxHistory is how many starts are listed, loadHistory how many are compared
	// with.
	maxHistory  = 10
	loadHistory = 20
	// maxNews bounds the differences told of one start.
	maxNews = 8
	// historyAge is how long a unit's history is not read again, unless a startup
	// has ended: many browsers may ask each second.
	historyAge = 5 * time.Second
	// maxShort bounds a message in the list, in bytes.
	maxShort = 240
	// historyWithin bounds the reading for one page: what happens now is not kept
	// waiting by a file that somebody has locked.
	historyWithin = time.Second
	// maxCached bounds the units whose history is kept.
	maxCached = 1000
)

// historyCache reads the history of units.
type historyCache struct {
	load func(ctx context.Context, unit string, limit int) ([]api.Startup, error)
	mu   sync.Mutex
	read map[string]historyRead
}

// historyRead is what was read of one unit.
type historyRead struct {
	// last is the startup that had ended last.
	last startupID
	at   time.Time
	list []api.Startup
	// err is why some are missing.
	err error
}

type startupID struct {
	invocation string
	generation int
	began      time.Time
	outcome    string
	final      bool
}

func idOf(s *api.Startup) startupID {
	id := startupID{invocation: s.Invocation, generation: s.Generation}
	if id.invocation == "" {
		id.began = s.Began
	}
	return id
}

func newHistoryCache(load func(context.Context, string, int) ([]api.Startup, error)) *historyCache {
	return &historyCache{load: load, read: map[string]historyRead{}}
}

// of returns the unit's startups, the newest first; some may come with an error.
func (c *historyCache) of(ctx context.Context, u *api.Unit, at time.Time) ([]api.Startup, error) {
	var last startupID
	for _, s := range []*api.Startup{u.Last, u.Startup} {
		if s != nil {
			last = idOf(s)
			last.outcome, last.final = s.Outcome, s.Final
		}
	}
	c.mu.Lock()
	r, ok := c.read[u.Unit]
	c.mu.Unlock()
	if age := at.Sub(r.at); ok && r.last == last && age >= 0 && age < historyAge {
		return r.list, r.err
	}
	list, err := c.load(ctx, u.Unit, loadHistory)
	// That one reader has gone is nothing to tell the others.
	if errors.Is(ctx.Err(), context.Canceled) {
		return list, err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.read) >= maxCached {
		clear(c.read)
	}
	c.read[u.Unit] = historyRead{last, at, list, err}
	return list, err
}

// historyView are the unit's starts beside each other.
type historyView struct {
	ID string
	// Kept is false where no history is kept.
	Kept bool
	// Trouble is why some of it is missing.
	Trouble string
	// Unfolded says that the list is shown without asking for it.
	Unfolded bool
	Rows     []historyRow
}

// historyRow is one start.
type historyRow struct {
	ID, When string
	Present  bool
	// Mark is the badge's class.
	Mark, Outcome string
	Took          duration
	Bar           barView
	// Phases are the durations in words.
	Phases                  []phaseView
	Version, Class, Message string
	End                     string
	Plateau                 string
	// News are the differences to the last good start before; NewsNote says in words
	// what they are worth.
	News     []string
	NewsNote string
}

func (b *builder) history(ctx context.Context) historyView {
	v := historyView{ID: identifier(b.unit.Unit) + "-history", Kept: b.page.opt.Startups != nil, Unfolded: len(b.status.Units) < manyUnits}
	var list []api.Startup
	if v.Kept {
		var err error
		// With an error comes what there is.
		if list, err = b.page.history.of(ctx, b.unit, b.status.At); err != nil {
			v.Trouble = err.Error()
		}
	}
	list = b.withPresent(list)
	longest := 0.0
	for i := range list[:min(len(list), maxHistory)] {
		longest = max(longest, sumOf(&list[i]))
	}
	for i := range list[:min(len(list), maxHistory)] {
		v.Rows = append(v.Rows, b.row(list, i, longest))
	}
	return v
}

// withPresent puts what the status knows on top of what the history has: it is
// newer, and the history may not be written yet.
func (b *builder) withPresent(list []api.Startup) []api.Startup {
	out := slices.Clone(list)
	for _, s := range []*api.Startup{b.unit.Last, b.unit.Startup} {
		if s == nil {
			continue
		}
		out = slices.DeleteFunc(out, func(old api.Startup) bool { return idOf(&old) == idOf(s) })
		out = slices.Insert(out, 0, *s)
	}
	return out
}

func sumOf(s *api.Startup) float64 {
	sum := 0.0
	for _, p := range s.Phases {
		if before(&p) {
			sum += *p.Seconds
		}
	}
	return sum
}

// row is the start at i of a list that has the newest first.
func (b *builder) row(list []api.Startup, i int, longest float64) historyRow {
	s := &list[i]
	r := historyRow{
		ID:   identifier(b.unit.Unit) + "-start-" + keyOf(s),
		When: cmp.Or(moment(s.Began, b.page.opt.Zone), "when is not known"), Present: b.unit.Startup != nil && idOf(b.unit.Startup) == idOf(s),
		Mark: cmp.Or(s.Outcome, api.Starting), Outcome: cmp.Or(s.Outcome, "not ended"), Took: over(s.Seconds),
		Bar: newBar(s, bar{longest: longest}), Version: s.Version, Plateau: plateaus(s.PlateauBytes),
	}
	if s.Ended.IsZero() && r.Present {
		r.Took = upwards(s.Seconds)
	}
	for _, p := range s.Phases {
		if p.Skipped || p.Phase != api.Serving {
			r.Phases = append(r.Phases, newPhaseView(s, p.Phase, &p))
		}
	}
	if c := s.RootCause; c != nil {
		r.Class, r.Message = c.Class, short(errorText(c.Exception, c.Message))
	}
	if s.ServingEndReason != "" {
		r.End = "served, then " + api.EndOfServing(s.ServingEndReason)
	}
	r.news(list, i)
	return r
}

// news compares the start with the good ones before it.
func (r *historyRow) news(list []api.Startup, i int) {
	var earlier []history.Record
	for _, s := range slices.Backward(list[i+1:]) {
		earlier = append(earlier, recordOf(&s))
	}
	now := recordOf(&list[i])
	d := history.Since(earlier, &now)
	if d.Good == nil {
		return
	}
	for _, c := range d.Engine {
		r.News = append(r.News, c.Name+" "+c.From+" → "+c.To)
	}
	for _, c := range d.Packages {
		r.News = append(r.News, "package "+c.Name+" "+c.From+" → "+c.To)
	}
	for _, c := range d.Arguments {
		r.News = append(r.News, "argument "+c.Name+": "+given(c.From)+" → "+given(c.To))
	}
	for _, f := range list[i].Findings {
		if f.New {
			r.News = append(r.News, f.Verdict+" "+f.Class+": "+short(errorText(f.Exception, f.Message)))
		}
	}
	r.News = append(r.News, sizes(&d)...)
	for _, p := range d.Phases {
		r.News = append(r.News, p.Phase+" took "+took(p.ToSeconds)+", before "+took(p.FromSeconds))
	}
	if n := len(r.News) - maxNews; n > 0 {
		r.News = append(r.News[:maxNews], counted(n, "more difference", "more differences"))
	}
	if d.Incomplete && len(r.News) > 0 {
		r.NewsNote = "the evidence of one of both has gaps"
	}
}

// short is a message where only a reminder is wanted.
func short(text string) string {
	if len(text) <= maxShort {
		return text
	}
	return triage.Clip(text, maxShort) + "…"
}

// given is an argument's value; nil is one that was not given.
func given(v *string) string {
	if v == nil {
		return "not given"
	}
	return *v
}

func sizes(d *history.Diff) []string {
	var out []string
	if c := d.WeightBytes; c != nil {
		out = append(out, "weights on one GPU "+bytesText(c.From)+" → "+bytesText(c.To))
	}
	for _, c := range d.GPUPlateauBytes {
		where := "memory with the weights resident"
		if c.GPU != nil {
			where += fmt.Sprintf(" on GPU %d", *c.GPU)
		}
		out = append(out, where+" "+bytesText(c.From)+" → "+bytesText(c.To))
	}
	return out
}

// recordOf is a startup in the form that the history compares. Errors are left
// out: a list may come without them, and then all would look new. The core has
// marked those that are.
func recordOf(s *api.Startup) history.Record {
	r := history.Record{
		Target: s.Unit, Invocation: s.Invocation, Generation: s.Generation, Began: s.Began, Ended: s.Ended, Seconds: s.Seconds,
		Outcome: s.Outcome, AttachedLate: s.AttachedLate, Engine: s.Engine, Version: s.Version, Model: s.Model,
		Arguments: s.Arguments, Versions: s.Versions, WeightBytes: s.WeightBytes, GPUPlateauBytes: s.PlateauBytes, Gaps: s.GapCount,
	}
	for _, p := range s.Phases {
		// Serving's time is no part of the start, and what runs has none yet.
		if !p.Done && s.Ended.IsZero() || p.Phase == api.Serving {
			p.Seconds = nil
		}
		r.Phases = append(r.Phases, history.Phase{Phase: p.Phase, Entered: p.Entered, Seconds: p.Seconds, Skipped: p.Skipped})
	}
	return r
}
