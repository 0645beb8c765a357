package preflight

import (
	"cmp"
	"fmt"
	"maps"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	pep440 "github.com/aquasecurity/go-pep440-version"
	"go.yaml.in/yaml/v3"

	"github.com/startupd/startupd/pkg/profile"
)

// setting is a value and where it is from.
type setting struct {
	value string
	// from is "--port", "PORT=", "config.yaml" or "default"; "" when nothing sets
	// it.
	from string
}

// setting returns what holds for a name of the profile's. With several flags the
// last one counts, as argparse has it.
func (c *command) setting(name string) setting {
	s, ok := c.spec(name)
	if !ok {
		return setting{}
	}
	if v, flag := c.flag(s); flag != "" {
		return setting{v, flag}
	}
	for _, f := range s.Flags {
		if v, ok := c.file[plainFlag(f)]; ok {
			return setting{v, "the configuration file"}
		}
	}
	for _, v := range s.Variables {
		if value, ok := c.env[v]; ok && value != "" {
			return setting{value, v + "="}
		}
	}
	if v, ok := c.otherwise(s); ok {
		return setting{v, "default"}
	}
	return setting{}
}

func (c *command) spec(name string) (profile.Setting, bool) {
	if c.profile == nil || c.profile.Preflight == nil {
		return profile.Setting{}, false
	}
	s, ok := c.profile.Preflight.Settings[name]
	return s, ok
}

// flag looks a setting up in the arguments.
func (c *command) flag(s profile.Setting) (value, flag string) {
	for i, arg := range c.args {
		if s.First && i == 0 && !strings.HasPrefix(arg, "-") {
			value, flag = arg, "the first argument"
			continue
		}
		name, v, paired := strings.Cut(arg, "=")
		if !strings.HasPrefix(name, "-") || !slices.ContainsFunc(s.Flags, func(f string) bool { return plainFlag(f) == plainFlag(name) && dashes(f) == dashes(name) }) {
			continue
		}
		if !paired {
			if v = ""; i+1 < len(c.args) {
				v = c.args[i+1]
			}
		}
		value, flag = v, name
	}
	return value, flag
}

func dashes(flag string) int { return len(flag) - len(strings.TrimLeft(flag, "-")) }

// plainFlag is a flag without its dashes, with - for _.
func plainFlag(flag string) string {
	return strings.ReplaceAll(strings.TrimLeft(flag, "-"), "_", "-")
}

// otherwise returns the default of the engine's version; false when there is
// none, or it depends on a version that is not known.
func (c *command) otherwise(s profile.Setting) (string, bool) {
	all := c.defaults(s)
	if len(all) != 1 {
		return "", false
	}
	return all[0], true
}

// defaults returns the values that may hold where nothing is set, sorted.
func (c *command) defaults(s profile.Setting) []string {
	var exact, any []string
	version, err := pep440.Parse(cmp.Or(c.version, "?"))
	for _, d := range s.Defaults {
		any = append(any, d.Value)
		if err == nil && between(version, d.Since, d.Before) {
			exact = append(exact, d.Value)
		}
	}
	if exact == nil {
		exact = any
	}
	slices.Sort(exact)
	return slices.Compact(exact)
}

// atLeast says that the engine's version is known to be at least so new.
func (c *command) atLeast(since string) bool {
	v, err := pep440.Parse(c.version)
	return since == "" || err == nil && between(v, since, "")
}

func between(v pep440.Version, since, before string) bool {
	if low, err := pep440.Parse(since); since != "" && (err != nil || v.LessThan(low)) {
		return false
	}
	high, err := pep440.Parse(before)
	return before == "" || err == nil && v.LessThan(high)
}

// count reads a setting that is a number from 1 on; ok is false when it is set
// to anything else.
func (c *command) count(name string) (n int, ok bool) {
	s := c.setting(name)
	if s.from == "" {
		return 1, true
	}
	n, err := strconv.Atoi(s.value)
	return n, err == nil && n > 0 && n < 1<<20
}

// readConfig reads the engine's own configuration file, a YAML mapping of flags
// to values.
func (c *command) readConfig(s *System) {
	at := c.setting(profile.SettingConfig)
	if at.from == "" || c.container != nil {
		return
	}
	file := c.abs(at.value)
	data, err := s.read(file, 1<<20)
	if err != nil {
		c.uncertain(fmt.Sprintf("the engine's configuration %s: %s", file, why(err)))
		return
	}
	var doc map[string]any
	if err := yaml.Unmarshal(data, &doc); err != nil {
		// The error quotes the file, which its reader here may not have a right to.
		c.uncertain(fmt.Sprintf("the engine's configuration %s is no YAML mapping", file))
		return
	}
	c.file = map[string]string{}
	for key, v := range doc {
		switch v := v.(type) {
		case string, int, float64, bool:
			c.file[plainFlag(key)] = fmt.Sprint(v)
		}
	}
}

// directory is where a directory of the profile's lies; false when a variable or
// the home that it needs is not known.
func (c *command) directory(d profile.Directory) (string, bool) {
	for _, p := range d.Paths {
		out, ok := c.expandPath(p)
		if ok {
			return filepath.Clean(out), true
		}
	}
	return "", false
}

func (c *command) expandPath(p string) (string, bool) {
	if strings.HasPrefix(p, "~") {
		if c.home == "" {
			return "", false
		}
		p = c.home + p[1:]
	}
	for {
		at := strings.IndexByte(p, '{')
		if at < 0 {
			return c.abs(p), true
		}
		end := strings.IndexByte(p[at:], '}')
		if end < 0 {
			return "", false
		}
		name, value := p[at+1:at+end], ""
		if at > 0 && p[at-1] == '$' {
			at, end, value = at-1, end+1, c.env[name]
		} else {
			value = c.setting(name).value
		}
		if value == "" || strings.ContainsAny(value, "{}") {
			return "", false
		}
		p = p[:at] + value + p[at+end+1:]
	}
}

// arguments are the settings that a person may want to see, sorted.
func (c *command) arguments() []string {
	var out []string
	if c.profile == nil || c.profile.Preflight == nil {
		return nil
	}
	for _, name := range slices.Sorted(maps.Keys(c.profile.Preflight.Settings)) {
		if s := c.setting(name); s.from != "" && s.from != "default" && name != profile.SettingModel {
			text := strings.ReplaceAll(name, "_", " ")
			if name != profile.SettingNoPort && !strings.HasPrefix(s.value, "-") { // else a flag without a value
				text += " " + s.value
			}
			out = append(out, text)
		}
	}
	return out
}
