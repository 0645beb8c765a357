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
	// maxSourced bounds the further files that a script reads.
	maxSourced = 8
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
		c.search(s, profiles, text, name, params)
	}
}

// search looks for the engine's command in a script's text.
func (c *command) search(s *System, profiles []*profile.Profile, text []byte, name string, params []string) {
	file, err := syntax.NewParser(syntax.Variant(syntax.LangBash)).Parse(bytes.NewReader(text), name)
	if err != nil {
		c.problems = append(c.problems, fmt.Sprintf("the script %s can't be read: %v", name, err))
		return
	}
	r := &scriptReader{profiles: profiles, env: c.env, params: params}
	r.read = func(file string) ([]byte, error) { return s.read(c.abs(file), maxScript) }
	syntax.Walk(file, r.visit)
	if r.found == nil {
		c.problems = append(c.problems, fmt.Sprintf("the script %s holds no command of a known engine", name))
		return
	}
	c.argv, c.profile, c.args, c.script = r.found.argv, r.found.profile, r.found.args, name
	if r.opaque {
		c.uncertain(fmt.Sprintf("the script %s computes words of the command: these are not known", name))
	}
	if r.several {
		c.uncertain(fmt.Sprintf("the script %s holds several commands of an engine: the first is looked at, and which one runs is not known", name))
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
	// opaque is true when a word of the found command, or a variable that it is
	// sensitive to, could not be told.
	opaque bool
	// several is true when the script holds further, other commands of an engine.
	several bool
	// open says of each node that is being walked whether it runs under a condition.
	open []bool
	// vague are variables whose value depends on what only a shell that runs can
	// tell; "@" stands for the parameters, and "*" for each that is not in sure.
	vague, sure map[string]bool
	// read reads another file for the script; sourced counts them.
	read    func(file string) ([]byte, error)
	sourced int
}

func (r *scriptReader) visit(n syntax.Node) bool {
	if n == nil {
		r.open = r.open[:len(r.open)-1]
		return true
	}
	switch n := n.(type) {
	case *syntax.Assign:
		if r.found == nil {
			r.assign(n)
		}
	case *syntax.CallExpr:
		if len(n.Args) > 0 && r.call(n) {
			return false
		}
	}
	conditional := r.conditional()
	switch n.(type) {
	case *syntax.IfClause, *syntax.CaseClause, *syntax.FuncDecl, *syntax.BinaryCmd, *syntax.ForClause:
		conditional = true
	}
	r.open = append(r.open, conditional)
	return true
}

// conditional says that what is being walked may not run, or run again.
func (r *scriptReader) conditional() bool { return len(r.open) > 0 && r.open[len(r.open)-1] }

// call looks at a command; true when it is the engine's.
func (r *scriptReader) call(n *syntax.CallExpr) bool {
	words, opaque := r.words(n.Args)
	for i, w := range words {
		if i > 0 || w != "exec" {
			words = words[i:]
			break
		}
	}
	found := &command{argv: words}
	if len(words) > maxWords || !found.detect(r.profiles) {
		if r.found == nil {
			r.effect(words)
		}
		return false
	}
	if r.found != nil {
		r.several = r.several || !slices.Equal(r.found.argv, words)
		return true
	}
	for _, a := range n.Assigns {
		r.assign(a)
	}
	r.found, r.opaque = found, opaque || r.vague["PATH"]
	if p := found.profile.Preflight; p != nil {
		r.opaque = r.opaque || slices.ContainsFunc(p.VisibleGPUs, r.isVague)
	}
	return true
}

// effect follows what other commands do to the variables: a virtual environment
// is entered, and what another file, read or shift change is not known.
func (r *scriptReader) effect(words []string) {
	if len(words) == 0 {
		return
	}
	switch words[0] {
	case ".", "source":
		if len(words) > 1 && strings.HasSuffix(words[1], "/bin/activate") && !r.conditional() {
			r.env["PATH"] = path.Dir(words[1]) + ":" + r.env["PATH"]
			return
		}
		if len(words) != 2 || !r.source(words[1]) {
			r.doubt("*")
		}
	case "eval":
		r.doubt("*")
	case "read", "getopts":
		for _, w := range words[1:] {
			r.doubt(w)
		}
	case "shift", "set":
		if words[0] == "shift" || slices.Contains(words, "--") {
			r.doubt("@")
		}
	}
}

// source walks another file as part of the script; false where that is not
// possible.
func (r *scriptReader) source(name string) bool {
	if r.sourced++; r.sourced > maxSourced || !strings.Contains(name, "/") {
		return false
	}
	text, err := r.read(name)
	if err != nil {
		return false
	}
	file, err := syntax.NewParser(syntax.Variant(syntax.LangBash)).Parse(bytes.NewReader(text), name)
	if err != nil {
		return false
	}
	syntax.Walk(file, r.visit)
	return true
}

// doubt marks a variable as not known; "*" is every one.
func (r *scriptReader) doubt(name string) {
	if r.vague == nil {
		r.vague = map[string]bool{}
	}
	r.vague[name] = true
	if name == "*" {
		r.sure = nil
	}
	delete(r.sure, name)
}

// settle marks a variable as known.
func (r *scriptReader) settle(name string) {
	delete(r.vague, name)
	if r.sure == nil {
		r.sure = map[string]bool{}
	}
	r.sure[name] = true
}

// isVague says that a variable's value is not known. Some are the running
// shell's own.
func (r *scriptReader) isVague(name string) bool {
	if slices.Contains([]string{"HOSTNAME", "PWD", "RANDOM", "UID", "EUID", "0", "BASH_SOURCE", "?", "$"}, name) {
		_, ok := r.env[name]
		return !ok
	}
	if _, isNumber := number(name); isNumber || name == "*" || name == "#" {
		name = "@"
	}
	return r.vague[name] || r.vague["*"] && name != "@" && name != "IFS" && !r.sure[name]
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
		list, opaque := r.words(words)
		switch {
		case opaque || r.conditional():
			r.doubt(a.Name.Value)
		case !a.Append:
			r.settle(a.Name.Value)
		}
		if a.Append {
			list = append(r.arrays[a.Name.Value], list...)
		}
		r.arrays[a.Name.Value] = list
		return
	}
	if a.Value == nil {
		return
	}
	var opaque bool
	value, err := expand.Literal(r.config(&opaque), a.Value)
	if err != nil || len(value) > maxValue {
		r.doubt(a.Name.Value)
		return
	}
	switch {
	case opaque || r.asksVague(a.Value) || r.conditional():
		r.doubt(a.Name.Value)
	case !a.Append:
		r.settle(a.Name.Value)
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
	return fields, opaque || slices.ContainsFunc(list, r.asksVague)
}

// asksVague says that a word asks for a variable that is not known.
func (r *scriptReader) asksVague(w *syntax.Word) bool {
	vague := false
	syntax.Walk(w, func(n syntax.Node) bool {
		if p, ok := n.(*syntax.ParamExp); ok && p.Param != nil {
			vague = vague || r.isVague(p.Param.Value)
		}
		return true
	})
	return vague
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
