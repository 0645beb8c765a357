package arch

import (
	"fmt"
	"go/ast"
	"slices"
	"strings"
	"testing"
)

// core says that dir belongs to the part that is a function of its events.
func core(dir string) bool {
	return slices.Contains([]string{"pkg/event", "pkg/profile", "pkg/triage", "pkg/phases"}, owner(dir))
}

// impure maps what the core must not import to the reason.
func impure(imp string) string {
	first, _, _ := strings.Cut(imp, "/")
	switch {
	case first == "os", first == "net", first == "syscall", imp == "io/ioutil":
		return "it does I/O; sources do that and send events"
	case first == "log", strings.HasPrefix(imp, "go.uber.org/zap"):
		return "it logs; what is worth saying belongs in the snapshot"
	case imp == "math/rand", imp == "math/rand/v2", imp == "crypto/rand":
		return "it is random; a replay must give the same verdict"
	}
	return ""
}

// clockCalls are the functions of package time that read or wait for a clock.
func clockCalls() []string {
	return []string{"Now", "Since", "Until", "Sleep", "After", "AfterFunc", "Tick", "NewTimer", "NewTicker"}
}

func purity(files []*source) []string {
	var problems []string
	for _, s := range files {
		if !core(s.dir) {
			continue
		}
		for imp, node := range s.imports() {
			if why := impure(imp); why != "" {
				problems = append(problems, fmt.Sprintf("%s: the core must not import %s: %s", s.at(node), imp, why))
			}
		}
		ast.Inspect(s.ast, func(n ast.Node) bool {
			switch n := n.(type) {
			case *ast.GoStmt:
				problems = append(problems, s.at(n)+": a go statement in the core: its order would not be the events'")
			case *ast.SelectorExpr:
				if slices.Contains(clockCalls(), n.Sel.Name) && isName(n.X, "time") {
					problems = append(problems, fmt.Sprintf("%s: time.%s in the core: time comes with the events", s.at(n), n.Sel.Name))
				}
			}
			return true
		})
	}
	return problems
}

// isName says that e is the plain identifier name.
func isName(e ast.Expr, name string) bool {
	id, ok := e.(*ast.Ident)
	return ok && id.Name == name
}

func TestPureCore(t *testing.T) { report(t, purity(product(tree(t)))) }

func TestPureCoreCanFail(t *testing.T) {
	for _, tt := range []struct{ text, want string }{
		{`package phases; import "os"; var _ = os.Args`, "must not import os"},
		{`package phases; import "net/http"; var _ = http.Get`, "must not import net/http"},
		{`package phases; import "log/slog"; var _ = slog.Info`, "must not import log/slog"},
		{`package phases; import "go.uber.org/zap"; var _ = zap.L`, "must not import go.uber.org/zap"},
		{`package phases; import "time"; func f() { _ = time.Now() }`, "time.Now in the core"},
		{`package phases; func f() { go f() }`, "a go statement in the core"},
	} {
		wantProblem(t, purity, "pkg/phases/a.go", tt.text, tt.want)
	}
	wantNone(t, purity, "pkg/phases/a.go", `package phases; import "time"; const d = time.Second`)
	wantNone(t, purity, "pkg/gpu/a.go", `package gpu; import "os"; var _ = os.Args`)
}
