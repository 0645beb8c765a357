package arch

import (
	"fmt"
	"go/ast"
	"go/token"
	"regexp/syntax"
	"slices"
	"strconv"
	"strings"
	"testing"
	"unicode"

	"github.com/startupd/startupd/pkg/profile"
)

// What makes a rule's text distinctive: less is found in anybody's sentences
// ("is not supported").
const (
	minWords   = 3
	minLetters = 16
)

// vocabulary is what only an engine's profile may say.
type vocabulary struct {
	// names are lower-case engine names, wording is text that an engine prints.
	names, wording []string
}

// engineWords takes the names and the wording from the profiles themselves.
func engineWords(t *testing.T) vocabulary {
	t.Helper()
	set, err := profile.Builtin()
	if err != nil {
		t.Fatal(err)
	}
	var v vocabulary
	for _, p := range set.Profiles() {
		v.names = append(v.names, strings.ToLower(p.Engine))
		for _, r := range p.Rules {
			if r.Shared {
				continue
			}
			for _, expr := range append([]string{r.Regex}, r.Extract...) {
				v.wording = append(v.wording, distinctive(t, expr)...)
			}
		}
	}
	if len(v.names) == 0 || len(v.wording) < 50 {
		t.Fatalf("%d engine names and %d phrases: the profiles are not read", len(v.names), len(v.wording))
	}
	return v
}

// distinctive returns the literal texts of an expression that nobody else says.
func distinctive(t *testing.T, expr string) []string {
	t.Helper()
	re, err := syntax.Parse(expr, syntax.Perl)
	if err != nil {
		t.Fatal(err)
	}
	var out []string
	for _, text := range literals(re) {
		words := strings.FieldsFunc(text, func(r rune) bool { return !unicode.IsLetter(r) })
		words = slices.DeleteFunc(words, func(w string) bool { return len(w) < 2 })
		if len(words) >= minWords && len(strings.Join(words, "")) >= minLetters {
			out = append(out, strings.TrimSpace(text))
		}
	}
	return out
}

// literals returns the longest runs of literal text in an expression.
func literals(re *syntax.Regexp) []string {
	if re.Op == syntax.OpLiteral {
		return []string{string(re.Rune)}
	}
	var out []string
	for _, sub := range re.Sub {
		out = append(out, literals(sub)...)
	}
	return out
}

// check finds engine names and wording in identifiers and string literals.
// Comments may name an engine: a reason often has to.
func (v vocabulary) check(files []*source) []string {
	var problems []string
	for _, s := range files {
		ast.Inspect(s.ast, func(n ast.Node) bool {
			switch n := n.(type) {
			case *ast.Ident:
				if name := v.name(n.Name); name != "" {
					problems = append(problems, fmt.Sprintf("%s: %s names the engine %s: what is known of an engine is data in a profile", s.at(n), n.Name, name))
				}
			case *ast.BasicLit:
				if n.Kind == token.STRING {
					problems = append(problems, v.literal(s, n)...)
				}
			}
			return true
		})
	}
	return problems
}

func (v vocabulary) literal(s *source, n *ast.BasicLit) []string {
	text, err := strconv.Unquote(n.Value)
	if err != nil {
		return []string{s.at(n) + ": " + err.Error()}
	}
	var problems []string
	if name := v.name(text); name != "" {
		problems = append(problems, fmt.Sprintf("%s: %.60q names the engine %s: what is known of an engine is data in a profile", s.at(n), text, name))
	}
	for _, w := range v.wording {
		if strings.Contains(text, w) {
			problems = append(problems, fmt.Sprintf("%s: %q is an engine's wording: it belongs in a profile", s.at(n), w))
		}
	}
	return problems
}

// name returns the engine named in a text; "" for none.
func (v vocabulary) name(text string) string {
	lower := strings.ToLower(text)
	for _, name := range v.names {
		if strings.Contains(lower, name) {
			return name
		}
	}
	return ""
}

// TestEngineNeutral also looks at the simulated engine: its wording is in its
// scenario files.
func TestEngineNeutral(t *testing.T) {
	files := slices.DeleteFunc(tree(t), func(s *source) bool { return s.test })
	report(t, engineWords(t).check(files))
}

func TestEngineNeutralCanFail(t *testing.T) {
	v := engineWords(t)
	name, phrase := v.names[0], v.wording[0]
	for _, tt := range []struct{ text, want string }{
		{"package a; const " + name + "Port = 8000", "names the engine " + name},
		{"package a; const x = " + strconv.Quote("is it "+strings.ToUpper(name)+"?"), "names the engine " + name},
		{"package a; const x = " + strconv.Quote("... "+phrase+" ..."), "is an engine's wording"},
	} {
		wantProblem(t, v.check, "pkg/gpu/a.go", tt.text, tt.want)
	}
	wantNone(t, v.check, "pkg/gpu/a.go", "package a\n// like "+name+"\nconst x = \"spawn\"")
}
