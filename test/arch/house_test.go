package arch

import (
	"fmt"
	"go/ast"
	"go/token"
	"slices"
	"strings"
	"testing"
)

// The limits of size. The targets are 40 lines a function and 400 a file.
const (
	maxFuncLines = 60
	maxFileLines = 500
	maxMethods   = 3
)

func size(files []*source) []string {
	var problems []string
	for _, s := range files {
		if n := s.lines(); n > maxFileLines {
			problems = append(problems, fmt.Sprintf("%s has %d lines, more than %d: split it by what it owns", s.path, n, maxFileLines))
		}
		ast.Inspect(s.ast, func(n ast.Node) bool {
			switch n := n.(type) {
			case *ast.FuncDecl:
				if l := s.fset.Position(n.End()).Line - s.fset.Position(n.Pos()).Line + 1; l > maxFuncLines && !isTable(n) {
					problems = append(problems, fmt.Sprintf("%s: %s has %d lines, more than %d", s.at(n), n.Name.Name, l, maxFuncLines))
				}
			case *ast.InterfaceType:
				if l := n.Methods.NumFields(); l > maxMethods {
					problems = append(problems, fmt.Sprintf("%s: an interface of %d methods, more than %d: its consumer needs fewer", s.at(n), l, maxMethods))
				}
			}
			return true
		})
	}
	return problems
}

// isTable says that a function is a table in the form of a switch, each of
// whose cases only returns: it reads like data, however long.
func isTable(f *ast.FuncDecl) bool {
	if f.Body == nil || len(f.Body.List) == 0 {
		return false
	}
	sw, ok := f.Body.List[0].(*ast.SwitchStmt)
	if !ok || len(f.Body.List) > 2 {
		return false
	}
	for _, s := range append(sw.Body.List, f.Body.List[1:]...) {
		if c, ok := s.(*ast.CaseClause); ok {
			if len(c.Body) != 1 {
				return false
			}
			s = c.Body[0]
		}
		if _, ok := s.(*ast.ReturnStmt); !ok {
			return false
		}
	}
	return true
}

func TestSize(t *testing.T) { report(t, size(product(tree(t)))) }

func TestSizeCanFail(t *testing.T) {
	long := "package a\nfunc f() {\n" + strings.Repeat("_ = 0\n", maxFuncLines) + "}\n"
	wantProblem(t, size, "pkg/gpu/a.go", long, "f has 62 lines")
	wantNone(t, size, "pkg/gpu/a.go", "package a\nfunc f(n int) int {\nswitch n {\n"+strings.Repeat("case 1:\nreturn 2\n", maxFuncLines)+"}\nreturn 0\n}\n")
	wantProblem(t, size, "pkg/gpu/a.go", "package a\n"+strings.Repeat("// x\n", maxFileLines), "lines, more than 500")
	wantProblem(t, size, "pkg/gpu/a.go", "package a\ntype i interface{ A(); B(); C(); D() }", "interface of 4 methods")
}

// globals finds state and start-up work that a reader of main can't see.
func globals(files []*source) []string {
	var problems []string
	for _, s := range files {
		for _, d := range s.ast.Decls {
			switch d := d.(type) {
			case *ast.FuncDecl:
				if d.Recv == nil && d.Name.Name == "init" {
					problems = append(problems, s.at(d)+": init(): let main call it, so that order and tests own it")
				}
			case *ast.GenDecl:
				for _, v := range mutable(s, d) {
					problems = append(problems, fmt.Sprintf("%s: package variable %s is state: put it in a struct", s.at(v), v.Name))
				}
			}
		}
		ast.Inspect(s.ast, func(n ast.Node) bool {
			if sel, ok := n.(*ast.SelectorExpr); ok && globalLogger(sel) {
				problems = append(problems, s.at(sel)+": a global logger: take one as a parameter")
			}
			return true
		})
	}
	return problems
}

// mutable returns the package variables of a declaration that hold no
// sentinel, no compiled or literal table, no embedded file and no assertion
// that a type satisfies an interface.
func mutable(s *source, d *ast.GenDecl) []*ast.Ident {
	if d.Tok != token.VAR {
		return nil
	}
	var out []*ast.Ident
	for _, spec := range d.Specs {
		v := spec.(*ast.ValueSpec)
		if embedded(d.Doc) || embedded(v.Doc) {
			continue
		}
		for i, name := range v.Names {
			if name.Name == "_" || linked(s, name.Name) || (i < len(v.Values) && constant(v.Values[i])) {
				continue
			}
			out = append(out, name)
		}
	}
	return out
}

// embedded says that a comment fills its variable by go:embed.
func embedded(c *ast.CommentGroup) bool {
	return c != nil && slices.ContainsFunc(c.List, func(c *ast.Comment) bool { return strings.HasPrefix(c.Text, "//go:embed ") })
}

// linked says that the linker sets the variable (-X).
func linked(s *source, name string) bool {
	return s.ast.Name.Name == "main" && (name == "version" || name == "revision")
}

// constant says that an initial value is one nobody has a reason to change.
func constant(e ast.Expr) bool {
	switch e := e.(type) {
	case *ast.CompositeLit:
		return true
	case *ast.UnaryExpr:
		_, lit := e.X.(*ast.CompositeLit)
		return e.Op == token.AND && lit
	case *ast.CallExpr:
		sel, ok := e.Fun.(*ast.SelectorExpr)
		if !ok {
			return false
		}
		pkg, _ := sel.X.(*ast.Ident)
		return pkg != nil && slices.Contains([]string{
			"errors.New", "fmt.Errorf", "regexp.MustCompile", "strings.NewReplacer", "template.Must", "sync.OnceValue",
		}, pkg.Name+"."+sel.Sel.Name)
	}
	return false
}

// globalLogger says that a selector names a logger that belongs to nobody.
func globalLogger(sel *ast.SelectorExpr) bool {
	name := sel.Sel.Name
	switch {
	case isName(sel.X, "zap"):
		return name == "L" || name == "S" || name == "ReplaceGlobals"
	case isName(sel.X, "log"):
		return strings.HasPrefix(name, "Print") || strings.HasPrefix(name, "Fatal") || strings.HasPrefix(name, "Panic")
	case isName(sel.X, "slog"):
		return slices.Contains([]string{"Debug", "Info", "Warn", "Error", "Default", "SetDefault"}, name)
	}
	return false
}

func TestNoGlobals(t *testing.T) { report(t, globals(product(tree(t)))) }

func TestNoGlobalsCanFail(t *testing.T) {
	for _, tt := range []struct{ text, want string }{
		{`package a; func init() {}`, "init()"},
		{`package a; var n int`, "package variable n is state"},
		{`package a; import "sync"; var once sync.Once`, "package variable once is state"},
		{`package a; var m = make(map[string]int)`, "package variable m is state"},
		{`package a; import "go.uber.org/zap"; func f() { zap.L().Info("x") }`, "a global logger"},
		{`package a; import "log"; func f() { log.Fatal("x") }`, "a global logger"},
	} {
		wantProblem(t, globals, "pkg/gpu/a.go", tt.text, tt.want)
	}
	wantNone(t, globals, "pkg/gpu/a.go", `package a
import ("errors"; "embed"; "io")
var errX = errors.New("x")
var _ io.Reader = (*r)(nil)
//go:embed x.yaml
var files embed.FS
var table = []string{"a"}
type r struct{ io.Reader }
func (r) init() {}`)
}

func packageDocs(files []*source) []string {
	documented := map[string]bool{}
	for _, s := range files {
		documented[s.dir] = documented[s.dir] || s.ast.Doc != nil
	}
	var problems []string
	for dir, ok := range documented {
		if !ok {
			problems = append(problems, dir+": no package comment: say what it owns and what it must not do")
		}
	}
	return problems
}

func TestPackageDocs(t *testing.T) { report(t, packageDocs(tree(t))) }

func TestPackageDocsCanFail(t *testing.T) {
	wantProblem(t, packageDocs, "pkg/gpu/a.go", `package a`, "pkg/gpu: no package comment")
	wantNone(t, packageDocs, "pkg/gpu/a.go", "// Package a is here.\npackage a")
}

// honest finds tests that pass by not running, or that wait by the clock.
func honest(files []*source) []string {
	var problems []string
	for _, s := range files {
		if !s.test {
			continue
		}
		simulated := map[ast.Node]bool{}
		ast.Inspect(s.ast, func(n ast.Node) bool {
			markSimulated(n, simulated)
			sel, ok := n.(*ast.SelectorExpr)
			if !ok {
				return true
			}
			switch {
			case isSleep(sel) && !simulated[sel]:
				problems = append(problems, s.at(sel)+": time.Sleep in a test: wait for a channel, or use testing/synctest")
			case slices.Contains([]string{"Skip", "Skipf", "SkipNow"}, sel.Sel.Name) && slices.ContainsFunc([]string{"t", "b", "f", "tb"}, func(name string) bool { return isName(sel.X, name) }):
				problems = append(problems, s.at(sel)+": a skipped test proves nothing: let the Makefile install what it needs, or use a build tag")
			}
			return true
		})
	}
	return problems
}

func isSleep(sel *ast.SelectorExpr) bool { return sel.Sel.Name == "Sleep" && isName(sel.X, "time") }

// markSimulated notes the sleeps that take no time: those inside a function that
// synctest.Test runs, and those right before a synctest.Wait, which panics
// anywhere else.
func markSimulated(n ast.Node, simulated map[ast.Node]bool) {
	mark := func(n ast.Node) {
		ast.Inspect(n, func(n ast.Node) bool {
			if sel, ok := n.(*ast.SelectorExpr); ok && isSleep(sel) {
				simulated[sel] = true
			}
			return true
		})
	}
	switch n := n.(type) {
	case *ast.CallExpr:
		if isSynctest(n, "Test") {
			mark(n)
		}
	case *ast.BlockStmt:
		for i, s := range n.List[:max(0, len(n.List)-1)] {
			if next, ok := n.List[i+1].(*ast.ExprStmt); ok && isSynctest(next.X, "Wait") {
				mark(s)
			}
		}
	}
}

// isSynctest says that e calls a function of testing/synctest.
func isSynctest(e ast.Expr, name string) bool {
	call, ok := e.(*ast.CallExpr)
	if !ok {
		return false
	}
	sel, ok := call.Fun.(*ast.SelectorExpr)
	return ok && sel.Sel.Name == name && isName(sel.X, "synctest")
}

func TestHonestTests(t *testing.T) { report(t, honest(tree(t))) }

func TestHonestTestsCanFail(t *testing.T) {
	wantProblem(t, honest, "pkg/gpu/a_test.go", `package a; import "time"; func f() { time.Sleep(1) }`, "time.Sleep in a test")
	wantProblem(t, honest, "pkg/gpu/a_test.go", `package a; import "testing"; func TestX(t *testing.T) { t.Skip() }`, "a skipped test")
	wantNone(t, honest, "pkg/gpu/a_test.go", `package a; import ("testing/synctest"; "time"); func f() { synctest.Test(t, func(t *testing.T) { time.Sleep(1) }) }`)
	wantNone(t, honest, "pkg/gpu/a_test.go", `package a; import ("testing/synctest"; "time"); func f() { time.Sleep(1); synctest.Wait() }`)
	wantNone(t, honest, "pkg/gpu/a.go", `package a; import "time"; func f() { time.Sleep(1) }`)
}
