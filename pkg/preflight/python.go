package preflight

import (
	"errors"
	"fmt"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
)

// python is a Python environment, found without running it.
type python struct {
	// interpreter is as the command names it.
	interpreter string
	// version is such as 3.12; "" when not known.
	version string
	// sites are the folders of packages, in the order in which they are searched.
	sites []string
}

var (
	pythonName = regexp.MustCompile(`^python([0-9](\.[0-9]+)?t?)?$`)
	libVersion = regexp.MustCompile(`/(?:lib|lib64)/python([0-9]+\.[0-9]+)t?(?:/|$)`)
)

// errNoPython is a command in which no Python program was found.
var errNoPython = errors.New("the command names no Python program that can be read")

// findPython finds the environment that the command's first Python program runs
// in.
func findPython(s *System, c *command) (*python, error) {
	var last error
	for _, w := range c.argv {
		if strings.HasPrefix(w, "-") {
			continue
		}
		p, err := c.interpreter(s, w)
		if err != nil {
			last = err
		}
		if p == "" {
			continue
		}
		env := &python{interpreter: p}
		if err := env.locate(s, c); err != nil {
			return nil, err
		}
		return env, nil
	}
	if last != nil {
		return nil, last
	}
	return nil, errNoPython
}

// interpreter returns the Python that a word of the command is, or that runs it;
// "" for neither.
func (c *command) interpreter(s *System, word string) (string, error) {
	file := s.lookPath(word, c.env["PATH"], c.dir)
	switch {
	case file == "":
		return "", nil
	case pythonName.MatchString(path.Base(file)):
		return file, nil
	}
	head, err := s.head(file, 4<<10)
	if err != nil {
		if strings.Contains(word, "/") && path.IsAbs(word) && word == c.argv[0] {
			return "", fmt.Errorf("%s: %s", file, why(err))
		}
		return "", nil
	}
	line, ok := shebang(head)
	words := strings.Fields(line)
	if !ok || len(words) == 0 {
		return "", nil
	}
	if m := trampoline.FindSubmatch(head); m != nil {
		return string(m[1]), nil
	}
	program := words[0]
	if path.Base(program) == "env" {
		rest := slices.DeleteFunc(words[1:], func(w string) bool { return strings.HasPrefix(w, "-") || strings.Contains(w, "=") })
		if len(rest) == 0 {
			return "", nil
		}
		program = s.lookPath(rest[0], c.env["PATH"], c.dir)
	}
	if !pythonName.MatchString(path.Base(program)) {
		return "", nil
	}
	return program, nil
}

// locate finds the folders of packages as site.py does.
func (p *python) locate(s *System, c *command) error {
	if c.env["PYTHONHOME"] != "" {
		return fmt.Errorf("PYTHONHOME=%s moves the environment", c.env["PYTHONHOME"])
	}
	for _, dir := range filepath.SplitList(c.env["PYTHONPATH"]) {
		if filepath.IsAbs(dir) {
			p.sites = append(p.sites, dir)
		}
	}
	real := s.resolve(p.interpreter)
	p.version = versionOf(real)
	prefix := filepath.Dir(filepath.Dir(p.interpreter))
	cfg, err := s.read(filepath.Join(prefix, "pyvenv.cfg"), 64<<10)
	if err == nil {
		return p.venv(s, c, prefix, parseConfig(string(cfg)))
	}
	if !s.isFile(real) {
		return fmt.Errorf("the interpreter %s does not exist", p.interpreter)
	}
	return p.base(s, c, filepath.Dir(filepath.Dir(real)))
}

// parseConfig reads pyvenv.cfg: key = value, as site.py does.
func parseConfig(text string) map[string]string {
	out := map[string]string{}
	for line := range strings.Lines(text) {
		if key, value, ok := strings.Cut(line, "="); ok {
			out[strings.ToLower(strings.TrimSpace(key))] = strings.TrimSpace(value)
		}
	}
	return out
}

func (p *python) venv(s *System, c *command, prefix string, cfg map[string]string) error {
	for _, key := range []string{"version", "version_info"} {
		if v := shortVersion(cfg[key]); v != "" {
			p.version = v
		}
	}
	if err := p.add(s, prefix, "site-packages"); err != nil {
		return err
	}
	if strings.EqualFold(cfg["include-system-site-packages"], "true") {
		if cfg["home"] == "" {
			return fmt.Errorf("%s/pyvenv.cfg does not tell its base", prefix)
		}
		return p.base(s, c, filepath.Dir(s.resolve(cfg["home"])))
	}
	return nil
}

// base adds the folders of an interpreter that is no virtual environment, with
// the user's own and Debian's.
func (p *python) base(s *System, c *command, prefix string) error {
	if p.version == "" {
		v, err := only(s, prefix)
		if err != nil {
			return err
		}
		p.version = v
	}
	lib := "python" + p.version
	if c.env["PYTHONNOUSERSITE"] == "" && c.home != "" {
		p.sites = append(p.sites, filepath.Join(c.home, ".local/lib", lib, "site-packages"))
	}
	if prefix == "/usr" || prefix == "/" {
		p.sites = append(p.sites, "/usr/local/lib/"+lib+"/dist-packages", "/usr/lib/python3/dist-packages")
	}
	p.sites = append(p.sites, filepath.Join(prefix, "lib", lib, "dist-packages"))
	return p.add(s, prefix, "site-packages")
}

// add adds a folder of packages under a prefix; it must be there.
func (p *python) add(s *System, prefix, name string) error {
	if p.version == "" {
		v, err := only(s, prefix)
		if err != nil {
			return err
		}
		p.version = v
	}
	for _, lib := range []string{"lib", "lib64"} {
		if dir := filepath.Join(prefix, lib, "python"+p.version, name); s.isDir(dir) {
			p.sites = append(p.sites, dir)
			if s.resolve(filepath.Join(prefix, "lib64")) == filepath.Join(prefix, "lib") {
				break
			}
		}
	}
	if !slices.ContainsFunc(p.sites, s.isDir) {
		return fmt.Errorf("%s has no packages for Python %s", prefix, p.version)
	}
	return nil
}

// only is the one version of Python that has packages under a prefix.
func only(s *System, prefix string) (string, error) {
	found, _ := filepath.Glob(s.path(filepath.Join(escapeGlob(prefix), "lib/python3.*")))
	var versions []string
	for _, f := range found {
		if v := versionOf(f + "/"); v != "" {
			versions = append(versions, v)
		}
	}
	if len(versions) != 1 {
		return "", fmt.Errorf("%s has packages for %d versions of Python: which one runs is not known", prefix, len(versions))
	}
	return versions[0], nil
}

// versionOf tells the version by a path's name (python3.12).
func versionOf(p string) string {
	if m := libVersion.FindStringSubmatch(p); m != nil {
		return m[1]
	}
	return shortVersion(strings.TrimPrefix(path.Base(p), "python"))
}

// shortVersion cuts 3.12.3 to 3.12; "" for anything else.
func shortVersion(v string) string {
	parts := strings.Split(v, ".")
	if len(parts) < 2 {
		return ""
	}
	for _, n := range parts[:2] {
		if _, ok := number(n); !ok {
			return ""
		}
	}
	return parts[0] + "." + parts[1]
}
