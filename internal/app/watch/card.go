package watch

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/startupd/startupd/pkg/triage"
	"github.com/startupd/startupd/pkg/web/api"
)

const (
	// maxQuoted bounds the lines that a quoted line of log may take.
	maxQuoted = 6
	// maxLast bounds the processes whose last line is shown.
	maxLast = 12
)

// card tells the root cause of the present startup, or in two lines that of the
// failed one before it.
func (p *page) card(u subject) {
	c := u.Failure
	if u.Startup != nil && u.Startup.RootCause != nil {
		p.cause(u, u.Startup.RootCause)
		return
	}
	if c == nil {
		return
	}
	p.space()
	p.sentence(bad, "last start failed", p.told(c)+": "+p.clean(join(": ", c.Class, spoken(c.Exception, c.Message))), 2)
}

func (p *page) told(c *api.RootCause) string {
	if c.At.IsZero() {
		return ""
	}
	return " at " + p.clock(c.At)
}

// spoken is a message with its exception, which many messages begin with.
func spoken(exception, message string) string {
	if strings.HasPrefix(message, exception) {
		return message
	}
	return join(": ", exception, message)
}

// cause is the whole card: what it is, who told it, what to do.
func (p *page) cause(u subject, c *api.RootCause) {
	p.space()
	label := "CAUSE  "
	if c.Provisional {
		label = "CAUSE SO FAR  "
	}
	title := p.clean(join(", ", c.Class, c.Exception))
	if c.Message != "" && !quotes(c) {
		title += ": " + p.clean(c.Message)
	}
	p.para(label, bad, title, maxQuoted)
	if c.Message != "" && quotes(c) {
		p.para("  > ", dim, p.clean(c.Message), maxQuoted)
	}
	at := p.clean(c.Process)
	if !c.At.IsZero() {
		at = join(", ", at, p.clock(c.At))
	}
	p.field("at", at, dim)
	p.field("died", p.clean(died(c)), dim)
	p.field("missing", p.clean(missing(c.NotArrived)), dim)
	p.field("do", p.clean(c.Remediation), bold)
	p.field("restart", restart(c.Retry), dim)
	p.field("known", known(u.causeFinding(c)), dim)
	p.field("see", p.jump(c.Cursor), dim)
	p.lastLines(c.LastLines)
}

// quotes says that the message is a line of the log. Of an unknown cause it can
// be a sentence of ours.
func quotes(c *api.RootCause) bool {
	return c.Class != triage.ClassUnknown || c.Line > 0 || c.Cursor != ""
}

func (p *page) field(name, text string, t tone) {
	if text != "" {
		p.para(fmt.Sprintf("  %-9s", name), t, text, 4)
	}
}

func died(c *api.RootCause) string {
	var parts []string
	if c.DiedIn != "" {
		parts = append(parts, "in "+c.DiedIn)
	}
	if c.ExitStatus != "" {
		parts = append(parts, "main process "+c.ExitStatus)
	}
	return strings.Join(parts, "; ")
}

// missing names the processes that a hang waits for.
func missing(names []string) string {
	const most = 8
	n := len(names)
	switch {
	case n == 0:
		return ""
	case n == 1:
		return names[0] + " has not arrived"
	case n > most:
		return fmt.Sprintf("%s and %d more have not arrived", strings.Join(names[:most], ", "), n-most)
	}
	return strings.Join(names, ", ") + " have not arrived"
}

func restart(helps *bool) string {
	switch {
	case helps == nil:
		return ""
	case *helps:
		return "starting again can help"
	}
	return "starting again does not help"
}

// causeFinding is the finding that the root cause rests on; nil when there is
// none.
func (u subject) causeFinding(c *api.RootCause) *api.Finding {
	if c == nil || u.Startup == nil {
		return nil
	}
	for i := range u.Startup.Findings {
		f := &u.Startup.Findings[i]
		if f.Verdict != string(triage.Cause) {
			continue
		}
		if c.Fingerprint == f.Fingerprint || (c.Fingerprint == "" || f.Fingerprint == "") && c.Class == f.Class {
			return f
		}
	}
	return nil
}

// known says in how many earlier startups a finding was.
func known(f *api.Finding) string {
	switch {
	case f == nil || f.Good == nil:
		return ""
	case f.New:
		return "new: no good start has had it" + failedToo(f, ", %s had it")
	case *f.Good > 0:
		return plural(*f.Good, "good start") + " had it too"
	}
	return "no good start is known" + failedToo(f, "; %s had it")
}

// failedToo counts the failed startups that had the finding; "" for none.
func failedToo(f *api.Finding, format string) string {
	if f.Bad == nil || *f.Bad == 0 {
		return ""
	}
	return fmt.Sprintf(format, plural(*f.Bad, "failed start"))
}

// jump is the command that shows the journal from an entry on; "" for a cursor
// that could mean something to a shell, and where the line is too narrow for a
// command that can be copied.
func (p *page) jump(cursor string) string {
	const inCursor = "0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ=;"
	text := "journalctl --cursor='" + cursor + "' -n 20"
	if cursor == "" || strings.Trim(cursor, inCursor) != "" || len(text) > p.width-11 {
		return ""
	}
	return text
}

// lastLines shows each process's last line, one line each.
func (p *page) lastLines(lines map[string]string) {
	if len(lines) == 0 {
		return
	}
	p.line("  " + p.paint(dim, "last line of each process"))
	names := slices.Sorted(maps.Keys(lines))
	for i, name := range names {
		if i == maxLast {
			p.line(fmt.Sprintf("    and %d more", len(names)-i))
			return
		}
		p.line("    " + p.paint(bold, p.clean(or(name, "-"))) + "  " + p.clean(lines[name]))
	}
}
