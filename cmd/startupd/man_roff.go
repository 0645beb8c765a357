package main

import (
	"fmt"
	"strings"
)

// manWidth is how wide lines of a page's source are.
const manWidth = 78

// breakable is the length beyond which a path or an address may be broken.
const breakable = 40

// roff writes a page in the man(7) language. Words between ` become bold.
type roff struct{ b strings.Builder }

func (r *roff) title(name, date, source string) {
	fmt.Fprintf(&r.b, ".TH %s 1 %q %q \"User Commands\"\n", roffText(strings.ToUpper(name)), date, source)
	// Neither stretched nor hyphenated: flags and paths are to be copied.
	r.b.WriteString(".nh\n.ad l\n")
}

func (r *roff) section(name string) { fmt.Fprintf(&r.b, ".SH %s\n", name) }

func (r *roff) subsection(name string) { fmt.Fprintf(&r.b, ".SS %s\n", roffText(name)) }

func (r *roff) text(text string) { r.b.WriteString(roffLines(text)) }

// paragraphs writes texts with space between them.
func (r *roff) paragraphs(texts ...string) {
	for i, t := range texts {
		if i > 0 {
			r.b.WriteString(".PP\n")
		}
		r.text(t)
	}
}

// items writes terms with what they mean.
func (r *roff) items(items []manItem) {
	for _, i := range items {
		r.b.WriteString(".TP\n")
		r.text(i.term)
		r.text(i.text)
	}
}

// synopsis writes how a command is called.
func (r *roff) synopsis(command, operands string) {
	fmt.Fprintf(&r.b, ".B %s\n%s", roffText(command), roffLines(operands))
}

// example writes what to type, after what it is for.
func (r *roff) example(text string, lines []string) {
	r.text(text)
	r.b.WriteString(".PP\n.RS 4\n.nf\n")
	for _, l := range lines {
		r.b.WriteString(roffGuard(roffText(l)) + "\n")
	}
	r.b.WriteString(".fi\n.RE\n")
}

// roffLines escapes a text and folds it, a sentence to a line.
func roffLines(text string) string {
	var b strings.Builder
	line := ""
	flush := func() {
		if line != "" {
			b.WriteString(roffGuard(line) + "\n")
		}
		line = ""
	}
	for _, word := range strings.Fields(roffBold(roffText(text))) {
		if len(word) > breakable {
			word = strings.ReplaceAll(word, "/", `/\:`) // the line may end here
		}
		if line != "" && len(line)+1+len(word) > manWidth {
			flush()
		}
		if line != "" {
			line += " "
		}
		line += word
		if strings.HasSuffix(word, ".") && !strings.HasSuffix(word, "...") {
			flush()
		}
	}
	flush()
	return b.String()
}

// roffText escapes what roff would take for its own. Every - is one that can be
// searched for and copied.
func roffText(s string) string {
	return strings.NewReplacer(`\`, `\e`, "-", `\-`, "'", `\(aq`, "^", `\(ha`, "~", `\(ti`, `"`, `\(dq`).Replace(s)
}

// roffGuard keeps a line from being taken for a request.
func roffGuard(line string) string {
	if strings.HasPrefix(line, ".") || strings.HasPrefix(line, "'") {
		return `\&` + line
	}
	return line
}

// roffBold turns `words` bold; each word on its own, as lines are folded.
func roffBold(s string) string {
	parts := strings.Split(s, "`")
	if len(parts)%2 == 0 { // a ` too many
		return strings.ReplaceAll(s, "`", `\(ga`)
	}
	for i := 1; i < len(parts); i += 2 {
		parts[i] = `\fB` + parts[i] + `\fP`
	}
	return strings.Join(parts, "")
}
