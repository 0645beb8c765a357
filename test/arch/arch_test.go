// Package arch tests the shape of the source: which package may import which,
// that the core stays pure, that no engine is named in code, and the house
// rules that a compiler does not know. It owns no product code.
package arch

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
)

const (
	module = "github.com/startupd/startupd"
	root   = "../.."
)

// source is one parsed Go file, whatever its build tags.
type source struct {
	// path and dir are relative to the module's root, with slashes.
	path, dir string
	test      bool
	fset      *token.FileSet
	ast       *ast.File
}

// at returns the place of a node as file:line.
func (s *source) at(n ast.Node) string {
	p := s.fset.Position(n.Pos())
	return s.path + ":" + strconv.Itoa(p.Line)
}

// lines returns how many lines the file has.
func (s *source) lines() int { return s.fset.File(s.ast.Pos()).LineCount() }

// imports returns the import paths of the file with their nodes.
func (s *source) imports() map[string]ast.Node {
	m := make(map[string]ast.Node, len(s.ast.Imports))
	for _, spec := range s.ast.Imports {
		m[strings.Trim(spec.Path.Value, `"`)] = spec
	}
	return m
}

// parse makes a source of a file's text.
func parse(name string, text []byte) (*source, error) {
	fset := token.NewFileSet()
	f, err := parser.ParseFile(fset, name, text, parser.ParseComments|parser.SkipObjectResolution)
	if err != nil {
		return nil, err
	}
	return &source{
		path: name, dir: path.Dir(name), test: strings.HasSuffix(name, "_test.go"),
		fset: fset, ast: f,
	}, nil
}

// tree parses every Go file of the module.
func tree(t *testing.T) []*source {
	t.Helper()
	var all []*source
	err := filepath.WalkDir(root, func(p string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if d.IsDir() {
			if name := d.Name(); p != root && (name == "testdata" || name == "bin" || strings.HasPrefix(name, ".")) {
				return filepath.SkipDir
			}
			return nil
		}
		if !strings.HasSuffix(p, ".go") {
			return nil
		}
		text, err := os.ReadFile(p)
		if err != nil {
			return err
		}
		rel, err := filepath.Rel(root, p)
		if err != nil {
			return err
		}
		s, err := parse(filepath.ToSlash(rel), text)
		if err != nil {
			return err
		}
		all = append(all, s)
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if len(all) < 20 {
		t.Fatalf("only %d Go files found under %s: the walk is broken", len(all), root)
	}
	return all
}

// product returns the files that are built into startupd or its packages.
func product(all []*source) []*source {
	var out []*source
	for _, s := range all {
		if !s.test && !strings.HasPrefix(s.dir, "test/") && s.dir != "test" {
			out = append(out, s)
		}
	}
	return out
}

// report fails the test for each problem.
func report(t *testing.T, problems []string) {
	t.Helper()
	for _, p := range problems {
		t.Error(p)
	}
}
