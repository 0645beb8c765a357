package wait

import (
	"cmp"
	"fmt"
	"io"
	"strings"

	"github.com/startupd/startupd/internal/app/explain"
	"github.com/startupd/startupd/pkg/journal"
	"github.com/startupd/startupd/pkg/triage"
	"github.com/startupd/startupd/pkg/web/api"
)

// WriteText writes the result for a terminal: what came out, and the report of
// the start as explain gives it.
func (r *Result) WriteText(w io.Writer, o explain.TextOptions) error {
	if text := r.sentence(); r.Startup == nil || r.Reason != "" {
		if _, err := fmt.Fprintln(w, explain.Visible(text)); err != nil {
			return err
		}
	}
	if r.Startup == nil {
		return nil
	}
	return explain.Of(r.Startup).WriteText(w, o)
}

// maxLine bounds a line of the log, in columns: systemctl status cuts them at
// the terminal's edge.
const maxLine = 160

// WriteLines writes the result for a log, in few and short lines, as systemctl
// status shows the last ten of the unit's journal with systemd's own.
func (r *Result) WriteLines(w io.Writer) error {
	var b strings.Builder
	for _, l := range r.lines() {
		b.WriteString(journal.OwnPrefix + explain.Cut(explain.Visible(l), maxLine) + "\n")
	}
	_, err := io.WriteString(w, b.String())
	return err
}

// lines are at most six, of which the last ones tell the cause: what the server
// says while it ends comes behind them.
func (r *Result) lines() []string {
	s := r.Startup
	if s == nil {
		return []string{r.sentence()}
	}
	var lines []string
	if took := spent(s); took != "" {
		lines = append(lines, r.Unit+" took "+took)
	}
	if r.Verdict != Reached && s.Invocation != "" {
		lines = append(lines, fmt.Sprintf("more: startupd explain --unit %s --invocation %s", s.Unit, s.Invocation))
	}
	lines = append(lines, r.sentence())
	if c := s.RootCause; c != nil {
		lines = append(lines, causeLines(c)...)
		if r.Reason != "" {
			lines = append(lines, "  "+r.Reason)
		}
	}
	return lines
}

// Status is the result in a line for `systemctl status`.
func (r *Result) Status() string {
	text := r.sentence()
	if c := r.cause(); c != nil && message(c) != "" {
		text += ": " + message(c)
	}
	return explain.Cut(explain.Visible(text), maxLine)
}

func (r *Result) cause() *api.RootCause {
	if r.Startup == nil {
		return nil
	}
	return r.Startup.RootCause
}

// StatusOf is where a start stands, in a line for `systemctl status`.
func StatusOf(s *api.Startup) string {
	text := where(s)
	if s.Progress != nil {
		text += fmt.Sprintf(", %.0f %%", 100**s.Progress)
	}
	if s.ProgressNote != "" {
		text += " (" + s.ProgressNote + ")"
	}
	return explain.Cut(explain.Visible(text), maxLine)
}

// sentence is the result in one line, the cause's class included.
func (r *Result) sentence() string {
	s := r.Startup
	if s == nil {
		return r.Unit + " " + strings.ToUpper(r.word()) + ": " + r.Reason
	}
	text := r.Unit + " " + strings.ToUpper(r.word())
	if r.Verdict != Reached || s.Phase != api.Serving {
		text += " in " + where(s)
	}
	if s.Seconds != nil {
		text += " after " + explain.Brief(*s.Seconds)
	}
	why := r.Reason
	switch c := s.RootCause; {
	case c != nil && c.Class == triage.ClassUnknown:
		why = "cause unknown"
	case c != nil:
		why = c.Class
	case why == "" && r.Verdict != Reached:
		why = s.Reason
	}
	if s.RootCause != nil && s.RootCause.Provisional && r.Verdict == Failed {
		why += " (so far)"
	}
	if why != "" {
		text += ": " + why
	}
	return text
}

// word is the verdict for people.
func (r *Result) word() string {
	switch r.Verdict {
	case Reached:
		if r.Startup != nil && r.Startup.Outcome == api.Serving {
			return "serving"
		}
		return "on its way"
	case TimedOut:
		return "not ready"
	case NoUnit:
		return "unknown"
	case Unknown:
		if r.Startup != nil {
			return r.Startup.Outcome
		}
	}
	return string(r.Verdict)
}

// message is what a root cause says; "" when nothing.
func message(c *api.RootCause) string {
	text := cmp.Or(c.Message, c.Exception)
	if c.Exception != "" && !strings.Contains(text, c.Exception) {
		text = c.Exception + ": " + text
	}
	return text
}

// causeLines tell a root cause: who says what, who is missing, what to do.
func causeLines(c *api.RootCause) []string {
	var lines []string
	text := message(c)
	if c.Process != "" {
		text = c.Process + ": " + text
	}
	if c.ExitStatus != "" {
		text += " (main process " + c.ExitStatus + ")"
	}
	if text != "" {
		lines = append(lines, "  "+text)
	}
	if len(c.NotArrived) > 0 {
		lines = append(lines, "  not arrived: "+strings.Join(c.NotArrived, " "))
	}
	if c.Remediation != "" {
		lines = append(lines, "  do: "+c.Remediation)
	}
	return lines
}

// spent is how long each phase before serving took.
func spent(s *api.Startup) string {
	var parts []string
	for i := range s.Phases {
		p := &s.Phases[i]
		if p.Seconds != nil && !p.Skipped && p.Phase != api.Serving {
			parts = append(parts, p.Phase+" "+explain.Brief(*p.Seconds))
		}
	}
	return strings.Join(parts, ", ")
}
