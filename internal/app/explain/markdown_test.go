package explain

import (
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/yuin/goldmark"
	"github.com/yuin/goldmark/ast"
	"github.com/yuin/goldmark/extension"
	extast "github.com/yuin/goldmark/extension/ast"
	mdtext "github.com/yuin/goldmark/text"

	"github.com/startupd/startupd/pkg/phases"
)

// markdownKinds are the kinds of node that a report is made of.
func markdownKinds() []ast.NodeKind {
	return []ast.NodeKind{
		ast.KindDocument, ast.KindHeading, ast.KindParagraph, ast.KindTextBlock, ast.KindText, ast.KindString,
		ast.KindList, ast.KindListItem, ast.KindCodeSpan, ast.KindFencedCodeBlock,
		extast.KindTable, extast.KindTableHeader, extast.KindTableRow, extast.KindTableCell,
	}
}

// parsed is a report as a reader of GitHub's Markdown understands it.
type parsed struct {
	headings, fences, spans []string
	// cells are the numbers of cells in rows of tables.
	cells []int
}

func parse(t *testing.T, source string) parsed {
	t.Helper()
	var out parsed
	src := []byte(source)
	doc := goldmark.New(goldmark.WithExtensions(extension.GFM)).Parser().Parse(mdtext.NewReader(src))
	err := ast.Walk(doc, func(n ast.Node, entering bool) (ast.WalkStatus, error) {
		if !entering {
			return ast.WalkContinue, nil
		}
		switch n.Kind() {
		case ast.KindHeading:
			out.headings = append(out.headings, content(n, src))
		case ast.KindFencedCodeBlock:
			out.fences = append(out.fences, string(n.Lines().Value(src)))
		case ast.KindCodeSpan:
			out.spans = append(out.spans, content(n, src))
		case extast.KindTableRow, extast.KindTableHeader:
			out.cells = append(out.cells, n.ChildCount())
		case ast.KindRawHTML:
			if raw := string(n.(*ast.RawHTML).Segments.Value(src)); raw != "<!-- -->" {
				t.Errorf("HTML %q", raw)
			}
			return ast.WalkContinue, nil
		}
		if !slices.Contains(markdownKinds(), n.Kind()) {
			t.Errorf("a node of kind %v", n.Kind())
		}
		return ast.WalkContinue, nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// content is the text within a node.
func content(n ast.Node, src []byte) string {
	var b strings.Builder
	for c := n.FirstChild(); c != nil; c = c.NextSibling() {
		switch c := c.(type) {
		case *ast.Text:
			b.Write(c.Value(src))
		case *ast.String:
			b.Write(c.Value)
		default:
			b.WriteString(content(c, src))
		}
	}
	return b.String()
}

// TestMarkdownIsInert: whatever a log holds, a reader of GitHub's Markdown sees
// the report's own form, and the log's text as text.
func TestMarkdownIsInert(t *testing.T) {
	for name, all := range renderCases() {
		t.Run(name, func(t *testing.T) {
			p := parse(t, markdownText(t, reportOf(all), true))
			for _, h := range p.headings {
				ok := slices.Contains([]string{"Findings", "Phases", "Gaps in the evidence", "Arguments", "Earlier startups"}, h)
				if !ok && !strings.HasPrefix(h, "Root cause") && !strings.HasPrefix(h, target+": ") {
					t.Errorf("heading %q", h)
				}
			}
			for _, n := range p.cells {
				if n != 7 && n != 4 {
					t.Errorf("a row has %d cells", n)
				}
			}
		})
	}
	p := parse(t, markdownText(t, reportOf([]*phases.Startup{hostile()}), false))
	if want := fenceText(nasty); p.fences[0] != want {
		t.Errorf("the cause's line: %s", cmp.Diff(want, p.fences[0]))
	}
	if want := strings.TrimSpace(Visible(nasty)); !slices.Contains(p.spans, want) {
		t.Errorf("no code span holds %q, but these: %q", want, p.spans)
	}
}

// fenceText is what a code block shows of text.
func fenceText(s string) string {
	var lines []string
	for l := range strings.SplitSeq(s, "\n") {
		lines = append(lines, Visible(l))
	}
	return strings.Join(lines, "\n") + "\n"
}

func TestEscape(t *testing.T) {
	for in, want := range map[string]string{
		"Lower --gpu-memory-utilization.": "Lower --gpu-memory-utilization.",
		"a_b*c":                           `a\_b\*c`,
		"see https://h.example and www.h": "see https&#58;//h.example and www&#46;h",
		"@all <b>&":                       "@<!-- -->all &lt;b&gt;&amp;",
	} {
		if got := escape(in); got != want {
			t.Errorf("escape(%q) = %q, want %q", in, got, want)
		}
	}
}

func FuzzMarkdown(f *testing.F) {
	f.Add(nasty)
	f.Add("``` ` `` |\\| \\\\|")
	f.Add("    indented\n\ttab\n```")
	f.Fuzz(func(t *testing.T, s string) {
		st := crashed()
		st.RootCause.Message, st.RootCause.Remediation, st.Findings[2].Message, st.Phases[1].Evidence.Text = s, s, s, s
		st.Arguments = map[string]string{s: s}
		p := parse(t, markdownText(t, reportOf([]*phases.Startup{st}), false))
		if want := fenceText(s); s != "" && p.fences[0] != want {
			t.Errorf("the cause's line: %s", cmp.Diff(want, p.fences[0]))
		}
		want := []int{7, 7, 7, 7, 7, 7, 7, 4, 4, 4}
		if diff := cmp.Diff(want, p.cells); diff != "" {
			t.Errorf("cells: %s", diff)
		}
	})
}
