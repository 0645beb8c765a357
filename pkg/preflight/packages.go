package preflight

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	pep440 "github.com/aquasecurity/go-pep440-version"

	"github.com/startupd/startupd/pkg/profile"
)

// packages checks the versions of packages that must fit each other, as the
// engine's own environment has them.
func (l *look) packages() []Result {
	p := l.cmd.profile.Preflight
	if len(p.Equal)+len(p.Pins) == 0 {
		return nil
	}
	if k := l.cmd.container; k != nil {
		return []Result{{Check: CheckPackages, Status: Unknown, What: "the packages are inside the container, and are not looked at"}}
	}
	env, in, err := l.environment()
	if err != nil {
		return []Result{{Check: CheckPackages, Status: Unknown, What: err.Error()}}
	}
	c := packageCheck{in: in, env: environment{python: env.version, machine: l.sys.Machine}, vars: l.cmd.env}
	for _, e := range p.Equal {
		c.equal(e)
	}
	for _, name := range p.Pins {
		c.pins(normal(name), p.Pins)
	}
	c.damage()
	if len(c.results) > 0 {
		return c.results
	}
	if len(in.dists) == 0 {
		return []Result{{Check: CheckPackages, Status: Unknown, What: fmt.Sprintf("none of the engine's packages is in %s", strings.Join(env.sites, ", "))}}
	}
	return []Result{{Check: CheckPackages, Status: OK, What: fmt.Sprintf("%s fit each other (Python %s, %s): %s",
		counted(len(in.dists), "package"), env.version, env.interpreter, c.list())}}
}

// environment finds and reads the engine's Python environment, once.
func (l *look) environment() (*python, *installed, error) {
	p := l.cmd.profile.Preflight
	env, err := findPython(&l.sys, l.cmd)
	if err != nil {
		return nil, nil, fmt.Errorf("the engine's Python environment is not known: %w", err)
	}
	wanted := map[string]bool{normal(p.Package): true}
	for _, name := range p.Pins {
		wanted[normal(name)] = true
	}
	for _, e := range p.Equal {
		for _, name := range e.Packages {
			wanted[normal(name)] = true
		}
	}
	in, err := scan(&l.sys, env.sites, wanted)
	if err != nil {
		return nil, nil, fmt.Errorf("the packages of %s: %w", env.interpreter, err)
	}
	return env, in, nil
}

// packageCheck collects what does not fit.
type packageCheck struct {
	in      *installed
	env     environment
	vars    map[string]string
	results []Result
}

// maxPackageResults bounds what is said of packages.
const maxPackageResults = 30

func (c *packageCheck) add(status Status, do, format string, args ...any) {
	r := Result{Check: CheckPackages, Status: status, What: fmt.Sprintf(format, args...), Do: do}
	again := slices.ContainsFunc(c.results, func(o Result) bool { return o.What == r.What })
	if again || len(c.results) >= maxPackageResults && status != Fail {
		return
	}
	if status == Fail {
		r.Class = "package_mismatch"
	}
	c.results = append(c.results, r)
}

// equal compares a group's versions with the first of them that is installed.
func (c *packageCheck) equal(e profile.EqualPackages) {
	var first dist
	for _, name := range e.Packages {
		d, ok := c.in.dists[normal(name)]
		if !ok {
			continue
		}
		if first.name == "" {
			first = d
			continue
		}
		if same(first.version, d.version, e.Exact) {
			continue
		}
		status, note, do := Fail, "", fmt.Sprintf("Install %s==%s.", d.name, public(first.version))
		if e.Reason != "" {
			note = ": " + e.Reason
		}
		switch {
		case e.Unless != "" && c.vars[e.Unless] != "":
			status, note = Warning, fmt.Sprintf(" (%s= keeps the engine from comparing them)", e.Unless)
		case e.Unless != "":
			do += fmt.Sprintf(" If the engine is known to run so, set %s=1: then neither it nor this check insists.", e.Unless)
		}
		c.add(status, do, "%s %s does not match %s %s%s", d.name, d.version, first.name, first.version, note)
	}
}

func same(a, b string, exact bool) bool {
	if exact {
		return a == b
	}
	return public(a) == public(b)
}

// public is a version without its local suffix (+cu129).
func public(v string) string {
	v, _, _ = strings.Cut(v, "+")
	return v
}

// pins compares the exact requirements of a package on others of the list. An
// engine may run with others all the same, so this is a warning.
func (c *packageCheck) pins(name string, list []string) {
	d, ok := c.in.dists[name]
	if !ok {
		return
	}
	for _, text := range d.requires {
		r, err := parseRequirement(text)
		if err != nil || !slices.ContainsFunc(list, func(n string) bool { return normal(n) == r.name }) {
			continue
		}
		pin := r.exact()
		if pin == "" {
			continue
		}
		switch c.env.eval(r.marker) {
		case isFalse:
			continue
		case unsure:
			c.unsure(d, r, pin)
			continue
		case isTrue:
		}
		have, ok := c.in.dists[r.name]
		do := fmt.Sprintf("Install %s==%s, or the release of %s that was built for what is there.", r.name, pin, d.name)
		switch {
		case !ok:
			c.add(Warning, do, "%s %s requires %s==%s, which is not installed", d.name, d.version, r.name, pin)
		case fits(have.version, pin) == isFalse:
			c.add(Warning, do, "%s %s requires %s==%s, and %s is installed", d.name, d.version, r.name, pin, have.version)
		}
	}
}

// unsure says that a requirement depends on what is not known, where it would
// not be met.
func (c *packageCheck) unsure(d dist, r requirement, pin string) {
	if have, ok := c.in.dists[r.name]; ok && fits(have.version, pin) == isFalse {
		c.add(Unknown, "", "%s %s requires %s==%s where %s, which is not known; %s is installed", d.name, d.version, r.name, pin, cutText(r.marker, 80), have.version)
	}
}

// fits compares an installed version with a pinned one: a pin without a local
// suffix takes any (PEP 440, version matching).
func fits(have, pin string) truth {
	if !strings.Contains(pin, "+") {
		have = public(have)
	}
	a, err := pep440.Parse(have)
	if err != nil {
		return unsure
	}
	b, err := pep440.Parse(pin)
	if err != nil {
		return unsure
	}
	return is(a.Equal(b))
}

// damage tells of installations that are not whole.
func (c *packageCheck) damage() {
	for _, name := range slices.Sorted(maps.Keys(c.in.doubles)) {
		c.add(Warning, fmt.Sprintf("Uninstall %s twice and install it again.", name), "%s is installed twice in one folder, in versions %s: which one is imported is chance",
			name, strings.Join(c.in.doubles[name], " and "))
	}
	for _, b := range c.in.broken {
		c.add(Unknown, "", "%s", b)
	}
}

// list is what is installed, for people.
func (c *packageCheck) list() string {
	var out []string
	for _, name := range slices.Sorted(maps.Keys(c.in.dists)) {
		out = append(out, name+" "+c.in.dists[name].version)
	}
	return cutText(strings.Join(out, ", "), 300)
}
