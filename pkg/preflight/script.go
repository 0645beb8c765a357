package preflight

import (
	"bytes"
	"fmt"
	"io"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"mvdan.cc/sh/v3/expand"
	"mvdan.cc/sh/v3/syntax"

	"github.com/startupd/startupd/pkg/profile"
)

const (
	// maxScript bounds a script: its parser goes as deep as its brackets.
	maxScript = 64 << 10
	// maxWords bounds the words of a command in a script.
	maxWords = 4096
	// maxValue bounds a variable: a script that doubles one grows no further.
	maxValue = 8 << 10
)

// shells are the interpreters whose scripts are read.
func isShell(program string) bool {
	return slices.Contains([]string{"sh", "bash", "dash", "ash", "ksh", "zsh"}, path.Base(program))
}

// fromScript looks for the engine's command in the shell script, or the text
// behind -c, that the command runs. Nothing is executed: assignments that are
// simple are followed, a command substitution stays empty.
func (c *command) fromScript(s *System, profiles []*profile.Profile) {
	text, name, params, err := c.scriptText(s)
	if err != nil {
		c.problems = append(c.problems, err.Error())
		return
	}
	if text != nil {
		c.search(profiles, text, name, params)
	}
}

// search looks for the engine's command in a script's text.
func (c *command) search(profiles []*profile.Profile, text []byte, name string, params []string) {
	file, err := syntax.NewParser(syntax.Variant(syntax.LangBash)).Parse(bytes.NewReader(text), name)
	if err != nil {
		c.problems = append(c.problems, fmt.Sprintf("the script %s can't be read: %v", name, err))
		return
	}
	r := &scriptReader{profiles: profiles, env: c.env, params: params}
	syntax.Walk(file, r.visit)
	if r.found == nil {
		c.problems = append(c.problems, fmt.Sprintf("the script %s holds no command of a known engine", name))
		return
	}
	c.argv, c.profile, c.args, c.script = r.found.argv, r.found.profile, r.found.args, name
	if r.opaque {
		c.problems = append(c.problems, fmt.Sprintf("the script %s computes words of the command: these are not known", name))
	}
}

// scriptText returns the script that the command runs; nil when it runs none.
func (c *command) scriptText(s *System) (text []byte, name string, params []string, err error) {
	argv := c.argv
	for len(argv) > 0 && (path.Base(argv[0]) == "env" || path.Base(argv[0]) == "exec" || strings.Contains(argv[0], "=")) {
		argv = argv[1:]
	}
	if len(argv) == 0 {
		return nil, "", nil, nil
	}
	if isShell(argv[0]) {
		rest := argv[1:]
		for len(rest) > 0 && strings.HasPrefix(rest[0], "-") {
			if strings.HasSuffix(rest[0], "c") && !strings.HasPrefix(rest[0], "--") && len(rest) > 1 {
				return []byte(rest[1]), "the text behind " + rest[0], rest[min(3, len(rest)):], nil
			}
			rest = rest[1:]
		}
		if len(rest) == 0 {
			return nil, "", nil, nil
		}
		argv = rest
		name = argv[0]
		if !filepath.IsAbs(name) {
			name = filepath.Join(c.dir, name)
		}
	} else if name = s.lookPath(argv[0], c.env["PATH"], c.dir); name == "" {
		return nil, "", nil, fmt.Errorf("%s is not in the PATH", argv[0])
	}
	head, err := s.head(name, 256)
	if err != nil {
		return nil, "", nil, fmt.Errorf("%s: %s", name, why(err))
	}
	if line, ok := shebang(head); !isShell(c.argv[0]) && (!ok || !slices.ContainsFunc(strings.Fields(line), isShell)) {
		return nil, "", nil, nil
	}
	text, err = s.read(name, maxScript)
	if err != nil {
		return nil, "", nil, fmt.Errorf("the script %s: %s", name, why(err))
	}
	return text, name, argv[1:], nil
}

// shebang returns the rest of a #! line.
func shebang(head []byte) (string, bool) {
	rest, ok := bytes.CutPrefix(head, []byte("#!"))
	line, _, _ := bytes.Cut(rest, []byte("\n"))
	return strings.TrimSpace(string(line)), ok
}

// scriptReader walks a script in its order.
type scriptReader struct {
	profiles []*profile.Profile
	env      map[string]string
	// params are $1 and on.
	params []string
	arrays map[string][]string
	found  *command
	// opaque is true when a word of the found command could not be told.
	opaque bool
}

func (r *scriptReader) visit(n syntax.Node) bool {
	if r.found != nil {
		return false
	}
	switch n := n.(type) {
	case *syntax.Assign:
		r.assign(n)
	case *syntax.CallExpr:
		if len(n.Args) == 0 {
			return true
		}
		words, opaque := r.words(n.Args)
		for i, w := range words {
			if i > 0 || w != "exec" {
				words = words[i:]
				break
			}
		}
		found := &command{argv: words}
		if len(words) <= maxWords && found.detect(r.profiles) {
			for _, a := range n.Assigns {
				r.assign(a)
			}
			r.found, r.opaque = found, opaque
			return false
		}
	}
	return true
}

// assign follows NAME=word and NAME=(words).
func (r *scriptReader) assign(a *syntax.Assign) {
	if a.Name == nil || a.Index != nil {
		return
	}
	if a.Array != nil {
		var words []*syntax.Word
		for _, e := range a.Array.Elems {
			if e.Value != nil {
				words = append(words, e.Value)
			}
		}
		if r.arrays == nil {
			r.arrays = map[string][]string{}
		}
		list, _ := r.words(words)
		if a.Append {
			list = append(r.arrays[a.Name.Value], list...)
		}
		r.arrays[a.Name.Value] = list
		return
	}
	if a.Value == nil {
		return
	}
	value, err := expand.Literal(r.config(nil), a.Value)
	if err != nil || len(value) > maxValue {
		return
	}
	if a.Append {
		value = r.env[a.Name.Value] + value
	}
	r.env[a.Name.Value] = value
}

// words expands words; opaque says that one of them holds what only a shell that
// runs can tell.
func (r *scriptReader) words(list []*syntax.Word) (out []string, opaque bool) {
	if slices.ContainsFunc(list, hasRange) {
		return nil, true
	}
	fields, err := expand.Fields(r.config(&opaque), list...)
	if err != nil {
		return nil, true
	}
	return fields, opaque
}

// hasRange says that a word may hold {1..N}, which is a word for each.
func hasRange(w *syntax.Word) bool {
	return slices.ContainsFunc(w.Parts, func(p syntax.WordPart) bool {
		lit, ok := p.(*syntax.Lit)
		return ok && strings.Contains(lit.Value, "{") && strings.Contains(lit.Value, "..")
	})
}

func (r *scriptReader) config(opaque *bool) *expand.Config {
	return &expand.Config{
		Env: scriptEnv{r},
		CmdSubst: func(io.Writer, *syntax.CmdSubst) error {
			if opaque != nil {
				*opaque = true
			}
			return nil
		},
	}
}

// scriptEnv is the script's variables as the expander asks for them.
type scriptEnv struct{ r *scriptReader }

func (e scriptEnv) Get(name string) expand.Variable {
	if list, ok := e.r.arrays[name]; ok {
		return expand.Variable{Set: true, Kind: expand.Indexed, List: list}
	}
	switch name {
	case "@", "*":
		return expand.Variable{Set: true, Kind: expand.Indexed, List: e.r.params}
	case "#":
		return expand.Variable{Set: true, Kind: expand.String, Str: strconv.Itoa(len(e.r.params))}
	case "IFS":
		return expand.Variable{Set: true, Kind: expand.String, Str: " \t\n"}
	}
	if n, ok := number(name); ok && n > 0 {
		if n > len(e.r.params) {
			return expand.Variable{}
		}
		return expand.Variable{Set: true, Kind: expand.String, Str: e.r.params[n-1]}
	}
	v, ok := e.r.env[name]
	return expand.Variable{Set: ok, Exported: true, Kind: expand.String, Str: v}
}

func (e scriptEnv) Each(f func(string, expand.Variable) bool) {
	for name, v := range e.r.env {
		if !f(name, expand.Variable{Set: true, Exported: true, Kind: expand.String, Str: v}) {
			return
		}
	}
}

// trampoline is the second line by which installers get around the kernel's
// limit on the length of a #! line.
var trampoline = regexp.MustCompile(`(?m)^'''exec' "?([^"\n]+?)"? "\$0" "\$@"`)
