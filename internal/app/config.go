package app

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"unicode/utf8"

	"go.yaml.in/yaml/v3"

	"github.com/startupd/startupd/pkg/health"
)

// ErrConfig marks an error that the operator mends in flags or in the
// configuration file.
var ErrConfig = errors.New("bad configuration")

// configError says what is wrong with the configuration, where, and what to do.
type configError struct{ text string }

func (e *configError) Error() string   { return e.text }
func (e *configError) Is(t error) bool { return t == ErrConfig }

func badConfig(format string, args ...any) error {
	return &configError{text: fmt.Sprintf(format, args...)}
}

// Target is one watched unit, or every unit that a glob matches.
type Target struct {
	// Unit is a unit's full name, or a glob of such names.
	Unit string
	// Profile is the engine's name; "" means that it is told by the unit's
	// command line or log.
	Profile string
	// GPUs are the indices of the GPUs that the unit uses; empty means that they
	// are told by the processes that hold memory.
	GPUs []int
	// Health is how readiness is probed.
	Health Health
	// WeightBytes is the expected size of the weights on each GPU; nil when not
	// known.
	WeightBytes *uint64
	// Container is the name or ID of the container that the engine runs in; ""
	// when it runs in the unit itself.
	Container string
	// Cgroup is the control group's path that the engine runs in; "" when it is
	// the unit's.
	Cgroup string
	// where is the file and line, or the flag, that named the target.
	where string
}

// Health is how a target's readiness is probed.
type Health struct {
	// None turns the probe off.
	None bool
	// URL is probed; "" means that the engine's own log tells host and port.
	URL string
	// Insecure accepts any TLS certificate.
	Insecure bool
}

// Glob says that the target stands for all units that match its pattern.
func (t Target) Glob() bool { return strings.ContainsAny(t.Unit, "*?[") }

// matches says that the target's glob covers unit.
func (t Target) matches(unit string) bool {
	if !t.Glob() {
		return t.Unit == unit
	}
	ok, err := path.Match(t.Unit, unit)
	return err == nil && ok
}

type fileConfig struct {
	Targets []fileTarget `yaml:"targets"`
}

type fileTarget struct {
	Unit            string   `yaml:"unit"`
	Profile         string   `yaml:"profile"`
	GPUs            []int    `yaml:"gpus"`
	Health          Health   `yaml:"health"`
	ExpectedWeights byteSize `yaml:"expected_weights"`
	Container       string   `yaml:"container"`
	Cgroup          string   `yaml:"cgroup"`
}

// UnmarshalYAML reads `none`, or a mapping of url and insecure.
func (h *Health) UnmarshalYAML(n *yaml.Node) error {
	if n.Kind == yaml.ScalarNode && n.Value == "none" {
		h.None = true
		return nil
	}
	if n.Kind != yaml.MappingNode {
		return fmt.Errorf("line %d: health is either `none`, or a mapping with url and insecure", n.Line)
	}
	// A node's Decode does not inherit the decoder's strictness.
	for i := 0; i < len(n.Content); i += 2 {
		if k := n.Content[i]; k.Value != "url" && k.Value != "insecure" {
			return fmt.Errorf("line %d: field %s not found in type Health", k.Line, k.Value)
		}
	}
	var m struct {
		URL      string `yaml:"url"`
		Insecure bool   `yaml:"insecure"`
	}
	if err := n.Decode(&m); err != nil {
		return err
	}
	h.URL, h.Insecure = m.URL, m.Insecure
	return nil
}

// LoadTargets reads the units named by flags and those of the configuration
// file ("" when there is none), and checks them. engines are the names of the
// known profiles. An error is an ErrConfig that names file, line and remedy.
func LoadTargets(units []string, file string, engines []string) ([]Target, error) {
	var ts []Target
	for _, u := range units {
		ts = append(ts, Target{Unit: u, where: "--unit " + u})
	}
	if file != "" {
		f, err := os.Open(file)
		if err != nil {
			return nil, badConfig("cannot read the configuration: %v; name a readable file with --config.file", err)
		}
		defer f.Close()
		more, err := parseConfig(filepath.Clean(file), f)
		if err != nil {
			return nil, err
		}
		ts = append(ts, more...)
	}
	if len(ts) == 0 {
		return nil, badConfig("no unit to watch: name one with --unit llm.service (repeatable, globs allowed), or list targets in --config.file")
	}
	return ts, check(ts, engines)
}

// parseConfig reads a configuration such as
//
//	targets:
//	  - unit: llm.service
//	    gpus: [0, 1]
//	    health: {url: "http://127.0.0.1:8000/health"}
//	    expected_weights: 73.7GiB
func parseConfig(name string, r io.Reader) ([]Target, error) {
	b, err := io.ReadAll(r)
	if err != nil {
		return nil, badConfig("%s: %v", name, err)
	}
	var c fileConfig
	dec := yaml.NewDecoder(strings.NewReader(string(b)))
	dec.KnownFields(true)
	if err := dec.Decode(&c); err != nil {
		if errors.Is(err, io.EOF) {
			return nil, badConfig("%s: the file is empty; list units under `targets:`", name)
		}
		return nil, yamlError(name, err)
	}
	lines := targetLines(b)
	ts := make([]Target, 0, len(c.Targets))
	for i, t := range c.Targets {
		where := name
		if i < len(lines) {
			where = fmt.Sprintf("%s:%d", name, lines[i])
		}
		if t.Unit == "" {
			return nil, badConfig("%s: the target has no unit; add `unit: NAME.service`", where)
		}
		ts = append(ts, Target{
			Unit: t.Unit, Profile: t.Profile, GPUs: t.GPUs, Health: t.Health, WeightBytes: t.ExpectedWeights.bytes,
			Container: t.Container, Cgroup: t.Cgroup, where: where,
		})
	}
	return ts, nil
}

// targetLines returns the line at which each target begins. The decoder tells
// lines of its own errors only.
func targetLines(b []byte) []int {
	var doc struct {
		Targets []yaml.Node `yaml:"targets"`
	}
	if yaml.Unmarshal(b, &doc) != nil {
		return nil
	}
	lines := make([]int, len(doc.Targets))
	for i, n := range doc.Targets {
		lines[i] = n.Line
	}
	return lines
}

// yamlError puts the file's name and a remedy to what the YAML library says.
func yamlError(name string, err error) error {
	text := err.Error()
	if te := (*yaml.TypeError)(nil); errors.As(err, &te) && len(te.Errors) > 0 {
		text = te.Errors[0]
	}
	text = strings.TrimPrefix(text, "yaml: ")
	where := name
	if rest, ok := strings.CutPrefix(text, "line "); ok {
		if line, msg, ok := strings.Cut(rest, ": "); ok {
			where, text = name+":"+line, msg
		}
	}
	if field, ok := strings.CutPrefix(text, "field "); ok {
		if field, typ, ok := strings.Cut(field, " not found in type "); ok {
			return badConfig("%s: unknown field %q; known here: %s", where, field, knownFields(typ))
		}
	}
	return badConfig("%s: %s; docs/configuration.md describes the format", where, text)
}

func knownFields(typ string) string {
	switch {
	case strings.HasSuffix(typ, "fileConfig"):
		return "targets"
	case strings.HasSuffix(typ, "Health"):
		return "url, insecure"
	}
	return "unit, profile, gpus, health, expected_weights, container, cgroup"
}

// check completes unit names and refuses what cannot work.
func check(ts []Target, engines []string) error {
	seen := map[string]string{}
	for i := range ts {
		t := &ts[i]
		t.Unit = UnitName(t.Unit)
		if first, ok := seen[t.Unit]; ok {
			return badConfig("%s: unit %s is already named by %s; remove one of them", t.where, t.Unit, first)
		}
		seen[t.Unit] = t.where
		if err := t.check(engines); err != nil {
			return err
		}
	}
	return nil
}

func (t Target) check(engines []string) error {
	if _, err := path.Match(t.Unit, ""); err != nil {
		return badConfig("%s: %q is no valid glob: an opening [ needs its ]; * ? and [a-z] are understood", t.where, t.Unit)
	}
	if strings.ContainsAny(t.Unit, "/ \t\n") || !utf8.ValidString(t.Unit) {
		return badConfig("%s: %q is no unit's name; `systemctl list-units` shows them", t.where, t.Unit)
	}
	if len(t.Unit) > maxUnitName {
		return badConfig("%s: %.40q... is no unit's name: it is longer than %d bytes", t.where, t.Unit, maxUnitName)
	}
	if t.Profile != "" && !slices.Contains(engines, t.Profile) {
		return badConfig("%s: no profile for engine %q; known: %s; add one with --profile.dir", t.where, t.Profile, strings.Join(engines, ", "))
	}
	for _, g := range t.GPUs {
		if g < 0 {
			return badConfig("%s: GPU index %d; count from 0 as nvidia-smi does", t.where, g)
		}
	}
	if t.Glob() && (t.Container != "" || t.Cgroup != "" || t.Health.URL != "") {
		return badConfig("%s: container, cgroup and health.url belong to one unit, and %s is a glob; name the unit", t.where, t.Unit)
	}
	if t.Cgroup != "" && !strings.HasPrefix(t.Cgroup, "/") {
		return badConfig("%s: cgroup %q must begin with /, as in /proc/PID/cgroup", t.where, t.Cgroup)
	}
	if t.Health.URL != "" {
		if err := health.CheckURL(t.Health.URL); err != nil {
			return badConfig("%s: health.url: %v", t.where, err)
		}
	}
	return nil
}

// maxUnitName is the longest name, in bytes, that systemd gives a unit.
const maxUnitName = 255

// validUnit says that systemd could have a unit of that name.
func validUnit(name string) bool {
	const chars = "0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ:-_.\\@"
	return name != "" && len(name) <= maxUnitName && strings.Trim(name, chars) == ""
}

// unitTypes returns the suffixes that end a unit's name.
func unitTypes() []string {
	return []string{".service", ".scope", ".slice", ".socket", ".target", ".timer", ".mount", ".path", ".device", ".swap", ".automount"}
}

// UnitName completes a unit's name with .service, as systemctl does.
func UnitName(name string) string {
	for _, t := range unitTypes() {
		if strings.HasSuffix(name, t) {
			return name
		}
	}
	return name + ".service"
}
