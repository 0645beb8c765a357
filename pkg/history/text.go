package history

import (
	"cmp"
	"fmt"
	"io"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/startupd/startupd/pkg/phases"
	"github.com/startupd/startupd/pkg/triage"
)

// maxText keeps a message on a terminal's line or two, in runes.
const maxText = 160

// maxNewErrors is how many new errors are written out for people.
const maxNewErrors = 5

// WriteText writes what is new for people, one line for each difference.
func (d Diff) WriteText(w io.Writer) error {
	var b strings.Builder
	switch {
	case d.Good == nil:
		b.WriteString("what is new can't be told: no earlier good start is known\n")
	case d.Empty():
		fmt.Fprintf(&b, "nothing new since the last good start%s\n", d.Good.when())
	default:
		fmt.Fprintf(&b, "new since the last good start%s:\n", d.Good.when())
		d.errorLines(&b)
		d.changeLines(&b)
	}
	if len(d.NotCompared) > 0 {
		fmt.Fprintf(&b, "  not compared, because the two do not tell it alike: %s\n", strings.Join(d.NotCompared, ", "))
	}
	if d.Incomplete {
		b.WriteString("  the log of one of both has gaps: what looks new may have been lost before\n")
	}
	_, err := io.WriteString(w, b.String())
	return err
}

func (r *Ref) when() string {
	if r.Began.IsZero() {
		return ""
	}
	return " (" + r.Began.UTC().Format(time.DateTime) + " UTC)"
}

func item(b *strings.Builder, label, format string, args ...any) {
	fmt.Fprintf(b, "  %-9s %s\n", label, fmt.Sprintf(format, args...))
}

// errorLines writes causes and suspects, and counts what follows from them and
// what is known to be harmless.
func (d *Diff) errorLines(b *strings.Builder) {
	shown, symptoms, benign := 0, 0, 0
	more := 0
	for _, e := range d.Errors {
		switch {
		case e.Verdict == string(triage.Symptom):
			symptoms++
		case e.Verdict == string(triage.Benign):
			benign++
		case shown == maxNewErrors:
			more++
		default:
			shown++
			item(b, "error", "%s", e.text())
		}
	}
	for _, n := range []struct {
		label, text string
		count       int
	}{
		{"errors", "and %d more", more}, {"symptoms", "%d new, set off by a failure", symptoms}, {"benign", "%d new, known to be harmless", benign},
	} {
		if n.count > 0 {
			item(b, n.label, n.text, n.count)
		}
	}
}

func (e *NewError) text() string {
	t := e.Class
	if e.Process != "" {
		t += " in " + e.Process
	}
	m := line(e.Message)
	if e.Exception != "" && !strings.HasPrefix(m, e.Exception) {
		t += ": " + e.Exception
	}
	if m != "" {
		t += ": " + m
	}
	if e.Count > 1 {
		t += fmt.Sprintf(" (%d times)", e.Count)
	}
	return t
}

func (d *Diff) changeLines(b *strings.Builder) {
	for _, c := range d.Engine {
		item(b, c.Name, "%s -> %s", line(c.From), line(c.To))
	}
	for _, c := range d.Packages {
		item(b, "package", "%s %s -> %s", c.Name, line(c.From), line(c.To))
	}
	for _, c := range d.Arguments {
		switch {
		case c.From == nil:
			item(b, "argument", "%s added: %s", c.Name, line(*c.To))
		case c.To == nil:
			item(b, "argument", "%s removed, was %s", c.Name, line(*c.From))
		default:
			item(b, "argument", "%s %s -> %s", c.Name, line(*c.From), line(*c.To))
		}
	}
	if c := d.WeightBytes; c != nil {
		item(b, "weights", "%s -> %s on each GPU", gib(c.From), gib(c.To))
	}
	for _, l := range plateauLines(d.GPUPlateauBytes) {
		item(b, "memory", "%s", l)
	}
	for _, c := range d.Phases {
		item(b, c.Phase, "%s -> %s", took(&c.FromSeconds), took(&c.ToSeconds))
	}
}

// plateauLines folds GPUs that changed alike.
func plateauLines(changes []BytesChange) []string {
	var texts []string
	gpus := map[string][]string{}
	for _, c := range changes {
		t := gib(c.From) + " -> " + gib(c.To)
		if gpus[t] == nil {
			texts = append(texts, t)
		}
		gpus[t] = append(gpus[t], fmt.Sprint(*c.GPU))
	}
	for i, t := range texts {
		texts[i] = fmt.Sprintf("%s held once the weights were loaded, on GPU %s", t, strings.Join(gpus[t], ", "))
	}
	return texts
}

func gib(n uint64) string { return fmt.Sprintf("%.1f GiB", float64(n)/(1<<30)) }

// line is the first line of a text, without control characters, cut to a length.
func line(s string) string {
	s, _, _ = strings.Cut(strings.TrimSpace(s), "\n")
	s = strings.Map(func(r rune) rune {
		if r < ' ' || r == 0x7f {
			return ' '
		}
		return r
	}, s)
	if r := []rune(s); len(r) > maxText {
		return string(r[:maxText-3]) + "..."
	}
	return s
}

// took prints a duration: to the tenth below a minute, to the second above.
func took(s *float64) string {
	if s == nil {
		return "-"
	}
	if *s < 60 {
		return fmt.Sprintf("%.1fs", *s)
	}
	return (time.Duration(*s * float64(time.Second))).Round(time.Second).String()
}

// Listing is the finished startups of some targets.
type Listing struct {
	Schema  string          `json:"schema"`
	Targets []TargetListing `json:"targets"`
}

// TargetListing is the startups of one target, the newest last.
type TargetListing struct {
	Target   string  `json:"target"`
	Startups []Entry `json:"startups"`
}

// Entry is a startup with what was new in it.
type Entry struct {
	Record
	// New compares with the last good start before it.
	New Diff `json:"new"`
}

// NewListing lists the newest startups of a target whose records are in order;
// limit 0 is all. What is new is told from all of them.
func NewListing(target string, records []Record, limit int) TargetListing {
	l := TargetListing{Target: target, Startups: []Entry{}}
	first := 0
	if limit > 0 {
		first = max(0, len(records)-limit)
	}
	for i := first; i < len(records); i++ {
		e := Entry{Record: records[i]}
		e.New = Since(records[:i], &e.Record)
		l.Startups = append(l.Startups, e)
	}
	return l
}

// WriteText writes the startups for people: a table, and under each failed one,
// and each other one in which something was new, what that was.
func (l *Listing) WriteText(w io.Writer) error {
	var b strings.Builder
	for i, t := range l.Targets {
		if i > 0 {
			b.WriteString("\n")
		}
		b.WriteString(t.Target + "\n")
		t.write(&b)
	}
	_, err := io.WriteString(w, b.String())
	return err
}

func (l *TargetListing) write(b *strings.Builder) {
	// The columns are set first: what stands between the rows must not move them.
	var table strings.Builder
	w := tabwriter.NewWriter(&table, 0, 0, 2, ' ', 0)
	starts := slices.DeleteFunc(phases.Phases(), func(p phases.State) bool { return p == phases.Serving })
	head := []string{"BEGAN (UTC)", "OUTCOME", "TOOK"}
	for _, p := range starts {
		head = append(head, strings.ToUpper(string(p)))
	}
	fmt.Fprintf(w, "  %s\n", strings.Join(append(head, "VERSION", "ROOT CAUSE"), "\t"))
	for _, e := range l.Startups {
		row := []string{e.Began.Format(time.DateTime), e.outcome(), took(e.Seconds)}
		for _, p := range starts {
			row = append(row, e.took(string(p)))
		}
		fmt.Fprintf(w, "  %s\n", strings.Join(append(row, cmp.Or(e.Version, "-"), e.cause()), "\t"))
	}
	// A strings.Builder takes everything.
	_ = w.Flush()
	lines := strings.SplitAfter(table.String(), "\n")
	b.WriteString(lines[0])
	for i, e := range l.Startups {
		b.WriteString(lines[i+1])
		// To a failure belongs also that nothing is new.
		if !e.Failed() && e.New.Empty() {
			continue
		}
		var text strings.Builder
		_ = e.New.WriteText(&text)
		for part := range strings.Lines(text.String()) {
			b.WriteString("      " + part)
		}
	}
}

// outcome tells also how the serving ended.
func (e *Entry) outcome() string {
	if e.ServingEndReason == "" {
		return e.Outcome
	}
	return e.Outcome + ", " + e.ServingEndReason
}

func (e *Entry) took(phase string) string {
	for _, p := range e.Phases {
		if p.Phase == phase && p.Skipped {
			return "skipped"
		}
	}
	return took(e.seconds(phase))
}

func (e *Entry) cause() string {
	if e.RootCause == nil {
		return "-"
	}
	return e.RootCause.Class
}
