package explain

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/startupd/startupd/pkg/triage"
)

const (
	// maxQuoted bounds the lines that a quoted line of log may take.
	maxQuoted = 6
	// maxLast bounds the processes whose last line is shown.
	maxLast = 12
	// maxNames bounds the processes that are named one by one.
	maxNames = 8
)

// card writes the root cause: what it is, where it stands, what to do.
func (p *page) card(s *Startup) {
	c := s.RootCause
	p.line("")
	title := c.Class
	if c.Exception != nil {
		title += ", " + *c.Exception
	}
	label := "  CAUSE  "
	if c.Provisional {
		label = "  CAUSE SO FAR  "
	}
	if c.Message != nil && !c.quotes() {
		title += ": " + *c.Message
	}
	p.para(label, red, Visible(title))
	if c.Message != nil && c.quotes() {
		p.capped("    > ", dim, Visible(*c.Message), maxQuoted)
	}
	p.where(c)
	if len(c.NotArrived) > 0 {
		p.para("    missing  ", dim, Visible(names(c.NotArrived))+" "+haveNot(len(c.NotArrived)))
	}
	if c.Remediation != nil {
		p.para("    do       ", bold, Visible(*c.Remediation))
	}
	if c.Retry != nil {
		p.para("    restart  ", dim, retry(*c.Retry))
	}
	if f := s.causeFinding(); f != nil && f.New != nil {
		p.para("    known    ", dim, f.known())
	}
	p.lastLines(c.LastLines)
	p.line("")
}

// quotes says that the message is a line of the log. Of an unknown cause it can
// be a sentence of ours.
func (c *RootCause) quotes() bool {
	return c.Class != triage.ClassUnknown || c.Line != nil || c.Cursor != nil
}

// where writes who told the cause, when, and where that line stands.
func (p *page) where(c *RootCause) {
	var parts []string
	if c.Process != nil {
		parts = append(parts, Visible(*c.Process))
	}
	if c.At != nil {
		parts = append(parts, c.At.Format(time.TimeOnly)+" UTC")
	}
	if c.Line != nil {
		parts = append(parts, fmt.Sprintf("line %d", *c.Line))
	}
	if len(parts) > 0 {
		p.para("    at       ", dim, strings.Join(parts, ", "))
	}
	if c.DiedIn != nil || c.ExitStatus != nil {
		p.para("    died     ", dim, died(c))
	}
	if c.Cursor != nil {
		p.line("    %s%s", p.paint(dim, "see      "), jump(*c.Cursor, p.opts.JournalDir))
	}
}

func died(c *RootCause) string {
	var parts []string
	if c.DiedIn != nil {
		parts = append(parts, "in "+Visible(*c.DiedIn))
	}
	if c.ExitStatus != nil {
		parts = append(parts, "main process "+Visible(*c.ExitStatus))
	}
	return strings.Join(parts, "; ")
}

// jump is the command that shows a journal from an entry on. A cursor that could
// mean something to a shell is only named.
func jump(cursor, dir string) string {
	const inCursor = "0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ=;"
	if strings.Trim(cursor, inCursor) != "" {
		return "cursor " + Visible(cursor)
	}
	if dir != "" {
		dir = " --directory=" + shellQuote(dir)
	}
	return fmt.Sprintf("journalctl%s --cursor='%s' -n 20", dir, cursor)
}

func shellQuote(s string) string {
	const plain = "0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ/._-+:@%"
	if s = Visible(s); strings.Trim(s, plain) == "" {
		return s
	}
	return "'" + strings.ReplaceAll(s, "'", `'\''`) + "'"
}

// names lists processes, with a count of those that are too many to name.
func names(list []string) string {
	if len(list) <= maxNames {
		return strings.Join(list, ", ")
	}
	return fmt.Sprintf("%s and %d more", strings.Join(list[:maxNames], ", "), len(list)-maxNames)
}

func haveNot(n int) string {
	if n == 1 {
		return "has not arrived"
	}
	return "have not arrived"
}

func retry(helps bool) string {
	if helps {
		return "starting again can help"
	}
	return "starting again does not help"
}

// causeFinding is the finding that the root cause rests on; nil when there is
// none.
func (s *Startup) causeFinding() *Finding {
	for i := range s.Findings {
		if f := &s.Findings[i]; f.Verdict == string(triage.Cause) && s.isCause(f) {
			return f
		}
	}
	return nil
}

// isCause says that the card tells of a finding.
func (s *Startup) isCause(f *Finding) bool {
	c := s.RootCause
	if c == nil {
		return false
	}
	if c.Fingerprint != nil && f.Fingerprint != nil {
		return *c.Fingerprint == *f.Fingerprint
	}
	return c.Class == f.Class
}

// known says in how many earlier startups a finding was.
func (f *Finding) known() string {
	switch {
	case f.New == nil:
		return ""
	case *f.New:
		return "new: no good start has had it" + f.failed(", %s had it")
	case f.Good != nil && *f.Good > 0:
		return plural(*f.Good, "good start") + " had it too"
	}
	return "no good start is known" + f.failed("; %s had it")
}

// failed counts the failed startups that had the finding; "" for none.
func (f *Finding) failed(format string) string {
	if f.Bad == nil || *f.Bad == 0 {
		return ""
	}
	return fmt.Sprintf(format, plural(*f.Bad, "failed start"))
}

// lastLines writes each process's last line, one line each.
func (p *page) lastLines(lines map[string]string) {
	if len(lines) == 0 {
		return
	}
	processes := slices.Sorted(maps.Keys(lines))
	more := len(processes) - maxLast
	if more > 0 {
		processes = processes[:maxLast]
	}
	wide := 0
	for _, name := range processes {
		wide = max(wide, min(columns(Visible(processName(name))), 20))
	}
	p.line("    %s", p.paint(dim, "last line of each process"))
	for _, name := range processes {
		label := cut(Visible(processName(name)), 20)
		pad := strings.Repeat(" ", max(wide-columns(label), 0))
		p.line("      %s%s  %s", label, pad, cut(Visible(lines[name]), p.opts.width()-wide-8))
	}
	if more > 0 {
		p.line("      and %d more", more)
	}
}

// processName stands for the process that no line names, too.
func processName(name string) string { return cmp.Or(name, "(unnamed)") }
