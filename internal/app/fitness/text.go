package fitness

import (
	"fmt"
	"io"
	"math"
	"strings"

	"github.com/charmbracelet/x/ansi"

	"github.com/startupd/startupd/internal/app/explain"
)

// TextOptions say how a report is written for people.
type TextOptions struct {
	// Width is the terminal's, in columns; 0 breaks no line.
	Width int
	Color bool
	// All shows also what is all right.
	All bool
}

// titleWidth is the widest title, and words are the statuses as they are shown.
const titleWidth = 22

func (s Status) word() string {
	if s == NotKnown {
		return "not known"
	}
	return string(s)
}

// paint colours a status's word as terminals do.
func (s Status) paint(text string, color bool) string {
	if !color {
		return text
	}
	code := map[Status]string{OK: "32", Warning: "33", Fail: "31;1", NotKnown: "36"}[s]
	return "\x1b[" + code + "m" + text + "\x1b[0m"
}

// WriteText writes the report for people: a line for each check, with what to do
// below it.
func (r *Report) WriteText(w io.Writer, o TextOptions) error {
	var b strings.Builder
	hang(&b, "", 0, fmt.Sprintf("startupd %s, with the rights of %s and the arguments of %s", r.Version, r.User, r.Arguments), o.Width)
	b.WriteString("\n")
	unit := ""
	for i := range r.Checks {
		c := &r.Checks[i]
		if !o.All && c.Status == OK {
			continue
		}
		if c.Unit != unit {
			unit = c.Unit
			fmt.Fprintf(&b, "\n%s\n", explain.Visible(unit))
		}
		c.write(&b, o)
	}
	fmt.Fprintf(&b, "\n%s\n", r.verdict())
	_, err := io.WriteString(w, b.String())
	return err
}

func (c *Result) write(b *strings.Builder, o TextOptions) {
	const indent = 10 + titleWidth + 2
	head := c.Status.paint(fmt.Sprintf("%-9s", c.Status.word()), o.Color) + " " + fmt.Sprintf("%-*s", titleWidth, c.Title) + "  "
	hang(b, head, indent, c.Detail, o.Width)
	if c.Do != "" {
		hang(b, strings.Repeat(" ", indent-4)+"do: ", indent, c.Do, o.Width)
	}
	for _, f := range c.Write {
		fmt.Fprintf(b, "%*s# %s\n", indent, "", f.Path)
		for line := range strings.Lines(f.Text) {
			fmt.Fprintf(b, "%*s%s\n", indent, "", explain.Visible(strings.TrimSuffix(line, "\n")))
		}
	}
}

// leastText is the least width of a column of text.
const leastText = 30

// hang writes text behind head, its further lines below its own beginning.
func hang(b *strings.Builder, head string, indent int, text string, width int) {
	room := math.MaxInt
	if width > 0 {
		room = width - indent
	}
	if room < leastText {
		// Beside its title it would not fit: below it does.
		if head = strings.TrimSpace(head); head == "do:" {
			text = head + " " + text
		} else {
			b.WriteString(head + "\n")
		}
		indent = 4
		head, room = strings.Repeat(" ", indent), max(width-indent, leastText)
	}
	for _, line := range wrap(explain.Visible(text), room) {
		b.WriteString(strings.TrimRight(head+line, " ") + "\n")
		head = strings.Repeat(" ", indent)
	}
}

// wrap breaks text at spaces only: commands and paths stay whole, so that they
// can be copied.
func wrap(text string, width int) []string {
	var lines []string
	line := ""
	for word := range strings.FieldsSeq(text) {
		if line != "" && ansi.StringWidth(line)+1+ansi.StringWidth(word) > width {
			lines, line = append(lines, line), ""
		}
		if line != "" {
			line += " "
		}
		line += word
	}
	return append(lines, line)
}

// verdict sums up in one line.
func (r *Report) verdict() string {
	parts := []string{
		fmt.Sprintf("%d ok", r.Counts[OK]), count(r.Counts[Warning], "warning"), count(r.Counts[Fail], "failure"), fmt.Sprintf("%d not known", r.Counts[NotKnown]),
	}
	text := strings.Join(parts, ", ") + ": "
	switch {
	case r.Fit == nil:
		return text + "nothing could be told"
	case *r.Fit && r.Counts[Warning] == 0:
		return text + "startupd is fit on this host"
	case *r.Fit:
		return text + "startupd works on this host, and may miss something"
	}
	return text + "startupd is not fit on this host"
}
