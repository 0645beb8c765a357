package explain

import (
	"cmp"
	"fmt"
	"io"
	"maps"
	"path"
	"slices"
	"strings"
	"time"
)

// maxRows bounds the findings and gaps of a Markdown table.
const maxRows = 50

// WriteMarkdown writes the report to be pasted into an issue, in the form of
// GitHub: the last startup in full and a line for each before it, unless all are
// asked for. Text of the log stands in code spans and fences, where it can
// neither format, nor mention anyone, nor link.
func (r *Report) WriteMarkdown(w io.Writer, all bool) error {
	m := &markdown{}
	last := len(r.Startups) - 1
	for i := range r.Startups {
		if all || i == last {
			m.startup(r, &r.Startups[i])
		}
	}
	if !all && last > 0 {
		m.earlier(r.Startups[:last])
	}
	_, err := io.WriteString(w, m.String())
	return err
}

type markdown struct{ strings.Builder }

func (m *markdown) line(format string, args ...any) { fmt.Fprintf(m, format+"\n", args...) }

func (m *markdown) startup(r *Report, s *Startup) {
	if m.Len() > 0 {
		m.line("")
	}
	// A path tells more of a host than a reader of the issue needs.
	title := path.Base(r.Target) + ": " + s.Outcome
	if s.Outcome != Serving {
		title += " in " + s.Phase
	}
	title += s.after(" after %s")
	title = escape(title)
	if s.RootCause != nil {
		title += " (" + code(s.RootCause.Class) + ")"
	}
	m.line("# %s", title)
	m.line("")
	m.facts(r, s)
	if s.RootCause != nil {
		m.cause(s)
	}
	m.findings(s.Findings)
	if lines := diffText(s.Diff); lines != nil {
		m.line("\n## Since the last good start\n")
		m.fence(strings.Join(lines, "\n"))
	}
	m.phases(s.Phases)
	m.gaps(s.Gaps)
	m.arguments(s.Arguments)
}

// facts writes what was started, where and when.
func (m *markdown) facts(r *Report, s *Startup) {
	m.line("- Engine: %s %s", codeOf(r.Engine), codeOf(r.EngineVersion))
	m.line("- Model: %s", codeOf(r.Model))
	if len(s.Versions) > 0 {
		var parts []string
		for _, name := range slices.Sorted(maps.Keys(s.Versions)) {
			parts = append(parts, code(name+" "+s.Versions[name]))
		}
		m.line("- Versions: %s", strings.Join(parts, ", "))
	}
	t := fmt.Sprintf("- Startup: %d of %d", s.number, s.of)
	if s.Began != nil {
		t += ", began " + s.Began.Format(time.DateTime) + " UTC"
	}
	if s.Invocation != nil {
		t += ", invocation " + code(*s.Invocation)
	}
	m.line("%s", t)
	outcome := s.Outcome
	if s.Outcome != Serving {
		outcome += " in " + code(s.where())
	}
	m.line("- Outcome: %s", outcome+s.after(" after %s")+s.later())
	if s.Reason != nil && s.ServingEndReason == nil && (s.RootCause == nil || s.Outcome != Failed) {
		m.line("- Reason: %s", code(*s.Reason))
	}
}

// cause writes the root cause with its line in a fence.
func (m *markdown) cause(s *Startup) {
	c := s.RootCause
	title := "Root cause"
	if c.Provisional {
		title += " so far"
	}
	m.line("\n## %s: %s\n", title, code(c.Class))
	switch {
	case c.Message == nil:
	case !c.quotes():
		m.line("%s\n", escape(*c.Message))
	default:
		m.fence(*c.Message)
		m.line("")
	}
	m.item("Exception", c.Exception)
	m.item("Process", c.Process)
	if c.At != nil {
		m.line("- Time: %s UTC", c.At.Format(time.DateTime))
	}
	if c.Line != nil {
		m.line("- Line: %d", *c.Line)
	}
	m.item("Cursor", c.Cursor)
	m.item("Died in", c.DiedIn)
	m.item("Main process", c.ExitStatus)
	if len(c.NotArrived) > 0 {
		m.line("- Not arrived: %s", code(names(c.NotArrived)))
	}
	if c.Remediation != nil {
		m.line("- What to do: %s", escape(*c.Remediation))
	}
	if c.Retry != nil {
		m.line("- Restart: %s", retry(*c.Retry))
	}
	if f := s.causeFinding(); f != nil && f.New != nil {
		m.line("- Known: %s", f.known())
	}
	if len(c.LastLines) == 0 {
		return
	}
	var lines []string
	for _, name := range slices.Sorted(maps.Keys(c.LastLines)) {
		lines = append(lines, processName(name)+": "+Visible(c.LastLines[name]))
	}
	m.line("\nLast line of each process:\n")
	m.fence(strings.Join(lines, "\n"))
}

func (m *markdown) findings(list []Finding) {
	if len(list) == 0 {
		return
	}
	m.line("\n## Findings\n")
	m.line("| verdict | class | records | process | where | known | message |")
	m.line("|---|---|---|---|---|---|---|")
	for i := range list {
		if i == maxRows {
			m.line("\nand %d more", len(list)-i)
			return
		}
		f := &list[i]
		m.line("| %s | %s | %d | %s | %s | %s | %s |", f.Verdict, cell(code(f.Class)), f.Count, cell(codeOf(f.Process)),
			cmp.Or(f.place(), "-"), cmp.Or(f.known(), "-"), cell(code(f.text())))
	}
}

func (m *markdown) phases(list []Phase) {
	m.line("\n## Phases\n")
	m.line("| phase | entered (UTC) | took | evidence |")
	m.line("|---|---|---|---|")
	for _, p := range list {
		entered, took := p.columns()
		evidence := p.Evidence.text()
		if evidence != "-" {
			evidence = cell(code(evidence))
		}
		m.line("| %s | %s | %s | %s |", p.Phase, entered, took, evidence)
	}
}

func (m *markdown) gaps(list []Gap) {
	if len(list) == 0 {
		return
	}
	m.line("\n## Gaps in the evidence\n")
	texts := gapTexts(list)
	for i, t := range texts {
		if i == maxRows {
			m.line("- and %d more", len(texts)-i)
			return
		}
		m.line("- %s", code(t))
	}
}

func (m *markdown) arguments(args map[string]string) {
	if len(args) == 0 {
		return
	}
	var lines []string
	for _, name := range slices.Sorted(maps.Keys(args)) {
		lines = append(lines, Visible(name+"="+args[name]))
	}
	m.line("\n## Arguments\n")
	m.fence(strings.Join(lines, "\n"))
}

func (m *markdown) earlier(startups []Startup) {
	m.line("\n## Earlier startups\n")
	runs := alike(startups)
	if more := len(runs) - maxRows; more > 0 {
		runs = runs[more:]
		m.line("- the first %d are left out", runs[0][0].number-1)
	}
	for _, r := range runs {
		m.line("- %s", code(brieflyAll(r)))
	}
}

func (m *markdown) item(name string, value *string) {
	if value != nil {
		m.line("- %s: %s", name, code(*value))
	}
}

// fence writes text as a code block whose fence no line of it can end.
func (m *markdown) fence(text string) {
	lines := strings.Split(text, "\n")
	for i := range lines {
		lines[i] = Visible(lines[i])
	}
	text = strings.Join(lines, "\n")
	mark := strings.Repeat("`", max(3, ticks(text)+1))
	m.line("%stext\n%s\n%s", mark, text, mark)
}

// ticks is the length of the longest run of backticks.
func ticks(text string) int {
	longest, n := 0, 0
	for _, r := range text {
		if n++; r != '`' {
			n = 0
		}
		longest = max(longest, n)
	}
	return longest
}

// codeOf is a value as a code span, or - when it is not known.
func codeOf(value *string) string {
	if value == nil {
		return "-"
	}
	return code(*value)
}

// code makes a code span of text of unknown origin. Nothing in it can end it.
func code(text string) string {
	text = strings.TrimSpace(Visible(text))
	if text == "" {
		return "-"
	}
	mark := strings.Repeat("`", ticks(text)+1)
	if text[0] == '`' || text[len(text)-1] == '`' {
		text = " " + text + " "
	}
	return mark + text + mark
}

// cell makes Markdown fit for a cell of a table: a bar ends one in code too.
func cell(text string) string { return strings.ReplaceAll(text, "|", `\|`) }

// escape makes prose of text of unknown origin: no markup, no HTML, no link,
// nobody mentioned.
func escape(text string) string {
	var b strings.Builder
	for _, r := range Visible(text) {
		switch r {
		case '&':
			b.WriteString("&amp;")
		case '<':
			b.WriteString("&lt;")
		case '>':
			b.WriteString("&gt;")
		case '@':
			// An empty comment, as an escaped @ still mentions.
			b.WriteString("@<!-- -->")
		case '\\', '`', '*', '_', '[', ']', '|', '~', '#', '$', '!':
			b.WriteByte('\\')
			b.WriteRune(r)
		default:
			b.WriteRune(r)
		}
	}
	// Addresses become links by themselves.
	return strings.NewReplacer("://", "&#58;//", "www.", "www&#46;").Replace(b.String())
}
