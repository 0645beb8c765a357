package explain

import (
	"fmt"
	"io"
	"strings"
	"text/tabwriter"
	"time"
)

// WriteText writes the report for people.
func (r *Report) WriteText(w io.Writer) error {
	var b strings.Builder
	b.WriteString(r.title())
	for i, s := range r.Startups {
		fmt.Fprintf(&b, "\n%s\n", s.title(i+1, len(r.Startups)))
		fmt.Fprintf(&b, "  %s\n", s.verdict())
		s.table(&b)
		for _, g := range s.Gaps {
			fmt.Fprintf(&b, "  gap in the evidence: %s\n", g.text())
		}
	}
	_, err := io.WriteString(w, b.String())
	return err
}

func (r *Report) title() string {
	parts := []string{r.Target}
	if r.Engine != nil {
		engine := *r.Engine
		if r.EngineVersion != nil {
			engine += " " + *r.EngineVersion
		}
		parts = append(parts, engine)
	}
	if r.Model != nil {
		parts = append(parts, *r.Model)
	}
	return strings.Join(parts, ", ") + "\n"
}

func (s *Startup) title(n, of int) string {
	t := fmt.Sprintf("startup %d of %d", n, of)
	if s.Invocation != nil {
		t += ", invocation " + *s.Invocation
	}
	if s.Began != nil {
		t += ", began " + s.Began.Format(time.DateTime) + " UTC"
	}
	return t
}

// verdict is the outcome in a sentence.
func (s *Startup) verdict() string {
	where := s.Phase
	if s.Step != nil && s.Outcome != Serving {
		where += "/" + *s.Step
	}
	var t string
	switch s.Outcome {
	case Serving:
		t = "SERVING" + s.after(" after %s")
	case Starting:
		t = "STARTING" + s.after(" for %s") + ", in " + where
	default:
		t = strings.ToUpper(s.Outcome) + s.after(" after %s") + " in " + where
	}
	if s.Reason != nil {
		t += ": " + *s.Reason
	}
	return t
}

// after formats how long the startup took: the phases before serving add up to
// it. It is "" when no time is known.
func (s *Startup) after(format string) string {
	var sum float64
	for _, p := range s.Phases {
		if p.Seconds == nil {
			return ""
		}
		if p.Phase != Serving {
			sum += *p.Seconds
		}
	}
	return fmt.Sprintf(format, seconds(sum))
}

func (s *Startup) table(b *strings.Builder) {
	w := tabwriter.NewWriter(b, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "  PHASE\tENTERED\tTOOK\tEVIDENCE")
	for _, p := range s.Phases {
		entered, took := "-", "-"
		if p.Entered != nil {
			entered = p.Entered.Format(time.TimeOnly)
		}
		if p.Seconds != nil {
			took = seconds(*p.Seconds)
		}
		if p.Skipped {
			took = "skipped"
		}
		fmt.Fprintf(w, "  %s\t%s\t%s\t%s\n", p.Phase, entered, took, p.Evidence.text())
	}
	// A strings.Builder takes everything.
	_ = w.Flush()
}

// maxEvidence keeps a row of the table on a terminal's line, in runes.
const maxEvidence = 100

func (e *Evidence) text() string {
	t := e.Source
	if e.Line != nil {
		t = fmt.Sprintf("line %d", *e.Line)
	}
	if e.Text != nil {
		if t != "" {
			t += ": "
		}
		t += *e.Text
	}
	if t == "" {
		return "-"
	}
	t = strings.Map(func(r rune) rune {
		if r < ' ' {
			return ' '
		}
		return r
	}, t)
	if r := []rune(t); len(r) > maxEvidence {
		t = string(r[:maxEvidence-3]) + "..."
	}
	return t
}

func (g *Gap) text() string {
	t := g.Kind
	switch {
	case g.Lines == nil:
	case *g.Lines == 1:
		t += ", 1 line"
	default:
		t += fmt.Sprintf(", %d lines", *g.Lines)
	}
	if g.Detail != nil {
		t += ", " + *g.Detail
	}
	return t
}

// seconds prints a duration: to the tenth below a minute, to the second above.
func seconds(s float64) string {
	d := time.Duration(s * float64(time.Second))
	if d < time.Minute {
		return fmt.Sprintf("%.1fs", s)
	}
	return d.Round(time.Second).String()
}
