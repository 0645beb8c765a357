package main

import (
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/startupd/startupd/internal/app/explain"
	"github.com/startupd/startupd/pkg/journal"
	"github.com/startupd/startupd/pkg/preflight"
)

// textStyle is how text is laid out.
type textStyle struct {
	// width is 0 where lines are not broken: no terminal reads them.
	width int
	color bool
	// own puts our name before each line.
	own bool
}

func visible(text string) string { return explain.Visible(text) }

// writePreflight writes a line a check, with what is behind it below, and the
// verdict at the end, where `systemctl status` shows it.
func writePreflight(w io.Writer, r *preflight.Report, s textStyle) error {
	var b strings.Builder
	label := 0
	for i := range r.Checks {
		label = max(label, len(r.Checks[i].Label()))
	}
	for i := range r.Checks {
		c := &r.Checks[i]
		word := map[preflight.Status]string{
			preflight.OK: "ok", preflight.Warning: "warning", preflight.Fail: "FAIL", preflight.Unknown: "not known",
		}[c.Status]
		lead := fmt.Sprintf("%-9s  %-*s  ", word, label, c.Label())
		s.para(&b, lead, word, statusColor(c.Status), visible(c.What))
		indent := strings.Repeat(" ", len(lead))
		for j := range c.Holders {
			s.para(&b, indent+"- ", "", "", visible(holderText(&c.Holders[j])))
		}
		if c.Do != "" {
			s.para(&b, indent, "", "", visible(c.Do))
		}
	}
	name := "preflight"
	if r.Unit != "" {
		name += " of " + visible(r.Unit)
	}
	s.para(&b, "", "", "", name+": "+visible(r.Summary()))
	text := b.String()
	if s.own {
		// Our lines in a unit's journal must be known as ours.
		text = strings.ReplaceAll(journal.OwnPrefix+strings.TrimSuffix(text, "\n"), "\n", "\n"+journal.OwnPrefix) + "\n"
	}
	_, err := io.WriteString(w, text)
	return err
}

func statusColor(st preflight.Status) string {
	switch st {
	case preflight.OK:
		return "1;32"
	case preflight.Fail:
		return "1;31"
	case preflight.Warning, preflight.Unknown:
	}
	return "1;33"
}

// holderText names a process, with all that is known of it.
func holderText(h *preflight.Holder) string {
	var parts []string
	add := func(format string, v any) {
		if s := fmt.Sprint(v); s != "" && s != "0" {
			parts = append(parts, fmt.Sprintf(format, v))
		}
	}
	if h.Bytes != nil {
		parts = append(parts, fmt.Sprintf("%.1f GiB", float64(*h.Bytes)/(1<<30)))
	}
	add("PID %d", h.PID)
	add("%s", h.Role)
	add("%s", h.Unit)
	if h.Container != "" {
		parts = append(parts, "container "+h.Container[:min(12, len(h.Container))])
	}
	add("user %s", h.User)
	add("state %s", h.State)
	if !h.Since.IsZero() {
		parts = append(parts, "since "+h.Since.Format(time.DateTime)+" UTC")
	}
	text := strings.Join(parts, ", ")
	if h.Command != "" {
		text += ": " + h.Command
	}
	switch {
	case text == "":
		text = h.StateMeaning
	case h.StateMeaning != "":
		text += " (" + h.StateMeaning + ")"
	}
	return text
}

// para writes text behind a lead, with further lines below the text. word is the
// part of the lead that is coloured.
func (s textStyle) para(b *strings.Builder, lead, word, color, text string) {
	lines := []string{text}
	if room := s.width - len(lead); s.width > 0 {
		lines = fold(text, max(room, 20))
	}
	for i, l := range lines {
		head := lead
		if i > 0 {
			head = strings.Repeat(" ", len(lead))
		} else if s.color && word != "" {
			head = "\x1b[" + color + "m" + word + "\x1b[0m" + strings.TrimPrefix(lead, word)
		}
		b.WriteString(strings.TrimRight(head+l, " ") + "\n")
	}
}

// fold breaks text at spaces; a longer word stands alone.
func fold(text string, width int) []string {
	var out []string
	line := ""
	for word := range strings.FieldsSeq(text) {
		if line != "" && len([]rune(line))+1+len([]rune(word)) > width {
			out, line = append(out, line), ""
		}
		if line != "" {
			line += " "
		}
		line += word
	}
	return append(out, line)
}
