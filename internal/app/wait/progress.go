package wait

import (
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/startupd/startupd/internal/app/explain"
	"github.com/startupd/startupd/pkg/journal"
	"github.com/startupd/startupd/pkg/web/api"
)

// Lines shows progress for a log: a line for each phase, behind the prefix by
// which the journal's readers know that it is not the engine's.
type Lines struct {
	Out  io.Writer
	Unit string

	// key is the startup that is shown, phases how many of its phases were.
	key    string
	phases int
	slow   bool
}

// Note writes a sentence.
func (l *Lines) Note(text string) {
	fmt.Fprintf(l.Out, "%s%s: %s\n", journal.OwnPrefix, l.Unit, explain.Visible(text))
}

// Show implements Progress.
func (l *Lines) Show(s *api.Startup, _ time.Time) {
	if s == nil {
		return
	}
	if key := fmt.Sprint(s.Invocation, "/", s.Generation); key != l.key {
		if l.key != "" {
			l.Note("the engine was started again inside the same run of the unit")
		}
		l.key, l.phases, l.slow = key, 0, false
	}
	for ; l.phases < len(s.Phases); l.phases++ {
		p := s.Phases[l.phases]
		if !p.Skipped && p.Phase != api.Serving {
			l.Note(p.Phase + entered(s, &p))
		}
	}
	if s.Slow != l.slow {
		if l.slow = s.Slow; l.slow {
			l.Note("slow in " + where(s) + ": no progress for longer than usual, and its processes are busy")
		}
	}
}

// entered is how long after its beginning a startup entered a phase; "" for the
// first, or where no time is known.
func entered(s *api.Startup, p *api.Phase) string {
	if s.Began.IsZero() || p.Entered.IsZero() || !p.Entered.After(s.Began) {
		return ""
	}
	return " after " + explain.Brief(p.Entered.Sub(s.Began).Seconds())
}

// where is the phase with its step.
func where(s *api.Startup) string {
	if s.Step == "" {
		return s.Phase
	}
	return s.Phase + "/" + explain.Visible(s.Step)
}

// Bar shows progress in one line of a terminal, which it draws anew in place.
type Bar struct {
	Out  io.Writer
	Unit string
	// Width is how many columns the terminal has now.
	Width func() int
	// Color asks for SGR sequences.
	Color bool

	shown string
}

const (
	toStart = "\r\x1b[K"
	// barWidth is the columns between the brackets.
	barWidth = 24
)

// Note writes a sentence above the bar.
func (b *Bar) Note(text string) {
	fmt.Fprintf(b.Out, "%s%s\n", toStart, explain.Cut(explain.Visible(text), b.Width()-1))
	b.shown = ""
}

// Show implements Progress.
func (b *Bar) Show(s *api.Startup, now time.Time) {
	text := b.text(s, now)
	if text == b.shown {
		return
	}
	b.shown = text
	phase, rest := text, ""
	if s != nil && strings.HasPrefix(text, b.Unit+"  "+where(s)) {
		phase, rest = b.Unit+"  "+where(s), text[len(b.Unit)+2+len(where(s)):]
	}
	if b.Color {
		phase = "\x1b[1m" + phase + "\x1b[0m"
	}
	fmt.Fprint(b.Out, toStart, phase, rest)
}

// Clear takes the bar away.
func (b *Bar) Clear() {
	if b.shown != "" {
		fmt.Fprint(b.Out, toStart)
	}
	b.shown = ""
}

// text is as much of the line as fits; what matters least goes first.
func (b *Bar) text(s *api.Startup, now time.Time) string {
	if s == nil {
		return explain.Cut(b.Unit+"  waiting for its start", b.Width()-1)
	}
	head, elapsed := b.Unit+"  "+where(s), ""
	if !s.Began.IsZero() {
		elapsed = "  " + explain.Brief(now.Sub(s.Began).Truncate(time.Second).Seconds())
	}
	percent, bar, note, eta := "", "", "", ""
	if s.Progress != nil {
		full := int(min(max(*s.Progress, 0), 1)*barWidth + 0.5)
		bar = "  [" + strings.Repeat("#", full) + strings.Repeat("-", barWidth-full) + "]"
		percent = fmt.Sprintf("  %.0f %%", 100**s.Progress)
	}
	if s.ProgressNote != "" {
		note = "  " + explain.Visible(s.ProgressNote)
	}
	if s.ExpectedServing.After(now) {
		eta = ", about " + explain.Brief(s.ExpectedServing.Sub(now).Truncate(time.Second).Seconds()) + " to go"
	}
	if s.Slow {
		eta = ", slow"
	}
	for _, line := range []string{
		head + bar + percent + note + elapsed + eta,
		head + bar + percent + elapsed + eta,
		head + percent + elapsed + eta,
		head + percent + elapsed,
	} {
		if explain.Columns(line) < b.Width() {
			return line
		}
	}
	return explain.Cut(head+percent, b.Width()-1)
}
