package explain

import (
	"fmt"
	"io"
	"strings"
	"text/tabwriter"
	"time"
)

// WriteText writes the report for people: the last startup in full and the ones
// before it in a line each, unless the options ask for all.
func (r *Report) WriteText(w io.Writer, o TextOptions) error {
	p := &page{opts: o}
	p.capped("", "", r.title(), 2)
	last := len(r.Startups) - 1
	if !o.All && last > 0 {
		p.earlier(r.Startups[:last])
	}
	for i := range r.Startups {
		if o.All || i == last {
			p.line("")
			p.startup(&r.Startups[i])
		}
	}
	_, err := io.WriteString(w, p.String())
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
	return Visible(strings.Join(parts, ", "))
}

func (p *page) startup(s *Startup) {
	p.capped("", "", s.title(), 3)
	p.verdict(s)
	if s.RootCause != nil {
		p.card(s)
	}
	p.findings(s)
	p.diff(s.Diff)
	p.gaps(s.Gaps)
	p.table(s.Phases)
}

func (s *Startup) title() string {
	t := fmt.Sprintf("startup %d of %d", s.number, s.of)
	if s.number == 0 {
		t = "startup" // the only one that was looked at
	}
	if s.Began != nil {
		t += ", began " + s.Began.Format(time.DateTime) + " UTC"
	}
	if s.Invocation != nil {
		t += ", invocation " + Visible(*s.Invocation)
	}
	return t
}

// verdict writes the outcome, coloured, with what is known of it.
func (p *page) verdict(s *Startup) {
	color := map[string]string{Serving: green, Failed: red, Stalled: red, Starting: yellow, Stopped: yellow}[s.Outcome]
	p.sentence(color, strings.ToUpper(s.Outcome), s.verdict())
}

// verdict is what follows the outcome in a sentence.
func (s *Startup) verdict() string {
	var t string
	switch s.Outcome {
	case Serving:
		t = s.after(" after %s") + s.later()
	case Starting:
		t = s.after(" for %s") + " in " + s.where()
	default:
		t = " in " + s.where() + s.after(" after %s")
	}
	// The line that ended a failed start is as a rule not why it failed.
	if s.Reason != nil && s.ServingEndReason == nil && (s.RootCause == nil || s.Outcome != Failed) {
		// A stall's reason names its step, too.
		t += ": " + Visible(strings.TrimPrefix(*s.Reason, s.where()+": "))
	}
	return t
}

// later says how an engine that served has ended; "" when it has not.
func (s *Startup) later() string {
	if s.ServingEndReason == nil {
		return ""
	}
	t := ", later " + Visible(*s.ServingEndReason)
	if s.ServingEnded != nil {
		t += " at " + s.ServingEnded.Format(time.DateTime) + " UTC"
	}
	return t
}

// where is the last phase, with its step.
func (s *Startup) where() string {
	if s.Step != nil {
		return Visible(s.Phase + "/" + *s.Step)
	}
	return s.Phase
}

// took is how long the startup took, in seconds: the phases before serving add
// up to it. ok is false when no time is known.
func (s *Startup) took() (sum float64, ok bool) {
	for _, p := range s.Phases {
		if p.Seconds == nil {
			return 0, false
		}
		if p.Phase != Serving {
			sum += *p.Seconds
		}
	}
	return sum, true
}

// after formats how long the startup took; "" when no time is known.
func (s *Startup) after(format string) string {
	sum, ok := s.took()
	if !ok {
		return ""
	}
	return fmt.Sprintf(format, brief(sum))
}

// columns are when a phase was entered and how long it took, for people; "-" is
// not known.
func (p *Phase) columns() (entered, took string) {
	entered, took = "-", "-"
	if p.Entered != nil {
		entered = p.Entered.Format(time.TimeOnly)
	}
	switch {
	case p.Skipped:
		took = "skipped"
	case p.Seconds != nil:
		took = seconds(*p.Seconds)
	}
	return entered, took
}

func (p *page) table(phases []Phase) {
	w := tabwriter.NewWriter(p, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "  PHASE\tENTERED\tTOOK\tEVIDENCE")
	for _, ph := range phases {
		entered, took := ph.columns()
		fmt.Fprintf(w, "  %s\t%s\t%s\t%s\n", ph.Phase, entered, took, cut(ph.Evidence.text(), p.opts.width()-evidenceAt))
	}
	// A strings.Builder takes everything.
	_ = w.Flush()
}

// evidenceAt is the widest that stands before a table's last column.
const evidenceAt = 34

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
	return Visible(t)
}

// maxGaps bounds the gaps that a page lists.
const maxGaps = 5

func (p *page) gaps(gaps []Gap) {
	texts := gapTexts(gaps)
	for i, t := range texts {
		if i == maxGaps {
			p.line("  and %s", plural(len(texts)-i, "more gap"))
			return
		}
		p.para("  gap in the evidence: ", yellow, t)
	}
}

// gapTexts tells gaps that are alike once, with their number.
func gapTexts(gaps []Gap) []string {
	var texts []string
	number := map[string]int{}
	for i := range gaps {
		t := gaps[i].text()
		if number[t]++; number[t] == 1 {
			texts = append(texts, t)
		}
	}
	for i, t := range texts {
		if n := number[t]; n > 1 {
			texts[i] = fmt.Sprintf("%s (%d times)", t, n)
		}
	}
	return texts
}

func (g *Gap) text() string {
	t := g.Kind
	if g.Lines != nil {
		t += ", " + plural(*g.Lines, "line")
	}
	if g.Detail != nil {
		t += ", " + *g.Detail
	}
	return Visible(t)
}

// plural counts things.
func plural(n int, thing string) string {
	if n == 1 {
		return "1 " + thing
	}
	return fmt.Sprintf("%d %ss", n, thing)
}

// seconds prints a duration for a table: to the tenth below a minute, to the
// second above.
func seconds(s float64) string {
	d := time.Duration(s * float64(time.Second))
	if d < time.Minute {
		return fmt.Sprintf("%.1fs", s)
	}
	return d.Round(time.Second).String()
}

// brief prints a duration for a sentence.
func brief(s float64) string {
	d := time.Duration(s * float64(time.Second)).Round(time.Second)
	switch {
	case s < 9.95:
		return fmt.Sprintf("%.1f s", s)
	case d < time.Minute:
		return fmt.Sprintf("%d s", int(d.Seconds()))
	}
	return d.String()
}
