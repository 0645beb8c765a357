package watch

import (
	"fmt"
	"strings"

	"github.com/startupd/startupd/pkg/phases"
	"github.com/startupd/startupd/pkg/web/api"
)

// maxGaps bounds the gaps in the evidence that are told.
const maxGaps = 3

// vitals tells what else is known of the unit, and how far that can be trusted.
func (p *page) vitals(u subject) {
	p.title("VITAL SIGNS", "")
	p.field("ready", readiness(u), dim)
	p.field("journal", journal(u.Unit), dim)
	p.field("systemd", p.clean(service(u)), dim)
	if s := u.Startup; s != nil && s.Port > 0 {
		p.field("port", p.clean(fmt.Sprintf("%s:%d", or(s.Host, "*"), s.Port)), dim)
	}
	p.gaps(u.Startup)
	p.down(u)
}

// readiness says what each source says of the present state.
func readiness(u subject) string {
	var parts []string
	for _, r := range []struct {
		name string
		is   *bool
	}{{"log", u.Ready.Log}, {"port", u.Ready.Port}, {"health", u.Ready.Health}} {
		switch {
		case r.is == nil:
		case *r.is:
			parts = append(parts, r.name+" yes")
		default:
			parts = append(parts, r.name+" no")
		}
	}
	if len(parts) == 0 {
		return "nobody has looked"
	}
	return strings.Join(parts, ", ")
}

func journal(u *api.Unit) string {
	var parts []string
	// Those from before the daemon began to watch are not counted.
	if u.JournalLines > 0 {
		parts = append(parts, plural(int(u.JournalLines), "line"))
	}
	if u.JournalStale > 0 {
		parts = append(parts, fmt.Sprintf("%d of an older start", u.JournalStale))
	}
	switch lag := u.JournalLagSeconds; {
	case lag == nil:
	case *lag < 1:
		parts = append(parts, "up to date")
	default:
		parts = append(parts, brief(*lag)+" behind")
	}
	return strings.Join(parts, ", ")
}

func service(u subject) string {
	var parts []string
	if u.Restarts != nil {
		parts = append(parts, plural(*u.Restarts, "restart"))
	}
	if u.MainPID > 0 && u.State != string(phases.Stopped) {
		parts = append(parts, fmt.Sprintf("main process %d", u.MainPID))
	}
	return strings.Join(parts, ", ")
}

// gaps tells the holes in the startup's evidence.
func (p *page) gaps(s *api.Startup) {
	if s == nil || s.GapCount == 0 {
		return
	}
	for i, g := range s.Gaps {
		if i == maxGaps {
			break
		}
		lines := ""
		if g.Lines > 0 {
			lines = plural(g.Lines, "line")
		}
		p.para("  ! ", warn, "gap in the evidence: "+p.clean(join(", ", g.Kind, lines, g.Detail)), 2)
	}
	if n := s.GapCount - min(len(s.Gaps), maxGaps); n > 0 {
		p.line("  " + p.paint(warn, "!") + " " + plural(n, "gap") + " more in the evidence")
	}
}

// down names the sources that can't see, and why.
func (p *page) down(u subject) {
	for _, s := range u.status.Sources {
		if s.Up || s.Unit != "" && s.Unit != u.Unit.Unit {
			continue
		}
		since := ""
		if !s.Since.IsZero() {
			since = " (since " + p.moment(s.Since, u.now) + ")"
		}
		p.para("  ! ", warn, p.clean(s.Source+" can't see: "+or(s.Reason, s.State))+since, 4)
	}
}
