package watch

import (
	"fmt"
	"strings"
	"time"

	"github.com/startupd/startupd/pkg/phases"
	"github.com/startupd/startupd/pkg/web/api"
)

// maxFull is how many units are shown in full without being asked for.
const maxFull = 3

// Text draws a status once, as seen at now: each unit in full, or in a line each
// where there are more than three and full is false.
func Text(s *api.Status, now time.Time, full bool, o Options) string {
	us := subjects(s, now)
	if len(us) == 0 {
		return "no unit is watched\n"
	}
	p := newPage(o)
	if !full && len(us) > maxFull {
		p.list(s, us, -1)
		p.sources(s, now)
		return strings.Join(p.lines, "\n") + "\n"
	}
	for i, u := range us {
		if i > 0 {
			p.lines = append(p.lines, "", strings.Repeat(p.rule, p.width), "")
		}
		p.lines = append(p.lines, detail(u, o)...)
	}
	return strings.Join(p.lines, "\n") + "\n"
}

// sources names what can't be seen, under a list.
func (p *page) sources(s *api.Status, now time.Time) {
	var down []string
	for _, src := range s.Sources {
		if !src.Up && src.Unit == "" {
			down = append(down, fmt.Sprintf("%s can't see: %s", src.Source, or(src.Reason, src.State)))
		}
	}
	if len(down) > 0 {
		p.space()
	}
	for _, d := range down {
		p.para("  ", plain, p.clean(d), 3)
	}
}

// Health is the worst of several units' conditions.
type Health int

// From best to worst.
const (
	// Serving: all serve.
	Serving Health = iota
	// Unsure: one is starting, or cannot be told; also of no unit at all.
	Unsure
	// Stalled: one is stalled.
	Stalled
	// Failed: one has failed or is stopped.
	Failed
)

// Worst is the worst condition among a status's units.
func Worst(s *api.Status) Health {
	if len(s.Units) == 0 {
		return Unsure
	}
	worst := Serving
	for _, u := range subjects(s, s.At) {
		h := Unsure
		switch word, _ := u.verdict(); word {
		case api.Serving:
			h = Serving
		case api.Failed, string(phases.Stopped):
			h = Failed
		case api.Stalled:
			h = Stalled
		}
		worst = max(worst, h)
	}
	return worst
}
