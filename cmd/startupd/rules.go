package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"

	"github.com/alecthomas/kingpin/v2"

	"github.com/startupd/startupd/internal/app"
	"github.com/startupd/startupd/internal/app/explain"
	"github.com/startupd/startupd/pkg/profile"
)

// rulesSchema names the version of the JSON form of `rules list`.
const rulesSchema = "startupd.rules/v1"

type rulesListFlags struct {
	engine, class, profiles, format string
	std                             streams
}

// rulesCommands are the sub-commands of rules.
func rulesCommands(cli *kingpin.Application, std streams) []command {
	rules := cli.Command("rules", "Show what startupd knows of failures, and test rules of your own.")
	return []command{rulesListCommand(rules, std), rulesTestCommand(rules, std)}
}

func rulesListCommand(rules *kingpin.CmdClause, std streams) command {
	f := &rulesListFlags{std: std}
	cmd := rules.Command("list", "List the rules that tell causes, their consequences and harmless errors apart.")
	cmd.Flag("engine", "Only this engine's.").PlaceHolder("ENGINE").StringVar(&f.engine)
	cmd.Flag("class", "Only those of this class of failure.").PlaceHolder("CLASS").StringVar(&f.class)
	cmd.Flag("profile.dir", "Directory of YAML profiles that add to the built-in ones.").PlaceHolder("DIR").StringVar(&f.profiles)
	cmd.Flag("format", "text for people, json for programs.").Default("text").EnumVar(&f.format, "text", "json")
	return command{name: cmd.FullCommand(), run: f.run}
}

func (f *rulesListFlags) run(context.Context) error {
	set, err := app.LoadProfiles(f.profiles)
	if err != nil {
		return err
	}
	profiles := set.Profiles()
	if f.engine != "" {
		p := set.Profile(f.engine)
		if p == nil {
			return &exitError{exitUsage, fmt.Errorf("--engine %q is not known; known are %s", f.engine, engines(profiles))}
		}
		profiles = []*profile.Profile{p}
	}
	if f.class != "" && !slices.ContainsFunc(profiles, func(p *profile.Profile) bool { _, ok := p.Classes[f.class]; return ok }) {
		return &exitError{exitUsage, fmt.Errorf("--class %q is not known; known are %s", f.class, classes(profiles))}
	}
	list := catalogue(profiles, f.class)
	if f.format == "json" {
		enc := json.NewEncoder(f.std.out)
		enc.SetEscapeHTML(false)
		enc.SetIndent("", "  ")
		return enc.Encode(list)
	}
	return list.writeText(f.std.out)
}

func engines(profiles []*profile.Profile) string {
	var names []string
	for _, p := range profiles {
		names = append(names, p.Engine)
	}
	return strings.Join(names, ", ")
}

func classes(profiles []*profile.Profile) string {
	known := map[string]bool{}
	for _, p := range profiles {
		for name := range p.Classes {
			known[name] = true
		}
	}
	return strings.Join(slices.Sorted(maps.Keys(known)), ", ")
}

// ruleList is the JSON form of `rules list`. A null field is not known.
type ruleList struct {
	Schema string      `json:"schema"`
	Rules  []ruleEntry `json:"rules"`
}

// ruleEntry is one rule that tells something of failures.
type ruleEntry struct {
	Engine string `json:"engine"`
	ID     string `json:"id"`
	// Role is what a line means that the rule takes: cause, wrapper, cascade,
	// teardown or benign; another role where the line is a hang's last word.
	Role string `json:"role"`
	// Class is the class of failure, ClassIn that of a phase where it differs.
	Class   *string           `json:"class"`
	ClassIn map[string]string `json:"class_in"`
	// Meaning is the class's.
	Meaning *string `json:"meaning"`
	// Hang is the class of a hang whose last word the line is.
	Hang *string `json:"hang"`
	// Processes are the roles of the processes whose lines it takes; empty for all.
	Processes []string `json:"processes"`
	Kind      string   `json:"kind"`
	// Frame is an expression that a frame of the traceback must match.
	Frame  *string `json:"frame"`
	Regex  string  `json:"regex"`
	Source *string `json:"source"`
	// Remedy and Retry are the class's where the rule has none; {NAME} stands for
	// what the rule captures.
	Remedy  *string `json:"remedy"`
	Retry   *bool   `json:"retry"`
	Example string  `json:"example"`
}

// catalogue lists the rules of profiles that tell something of failures, in
// their order of precedence; class "" lists all.
func catalogue(profiles []*profile.Profile, class string) ruleList {
	list := ruleList{Schema: rulesSchema, Rules: []ruleEntry{}}
	for _, p := range profiles {
		for _, r := range p.Rules {
			if tells(r) && (class == "" || speaksOf(r, class)) {
				list.Rules = append(list.Rules, newRuleEntry(p, r))
			}
		}
	}
	return list
}

// tells says that a rule tells something of failures: others are milestones.
func tells(r *profile.Rule) bool {
	switch r.Role {
	case profile.RoleCause, profile.RoleWrapper, profile.RoleCascade, profile.RoleTeardown, profile.RoleBenign:
		return true
	}
	return r.Class != "" || r.Hang != "" || r.ElseClass != ""
}

func speaksOf(r *profile.Rule, class string) bool {
	return r.Class == class || r.Hang == class || r.ElseClass == class ||
		slices.Contains(slices.Collect(maps.Values(r.ClassIn)), class)
}

func newRuleEntry(p *profile.Profile, r *profile.Rule) ruleEntry {
	class := r.Class
	if class == "" {
		class = or(r.ElseClass, r.Hang)
	}
	e := ruleEntry{
		Engine: p.Engine, ID: r.ID, Role: string(r.Role), Class: some(or(r.Class, r.ElseClass)), ClassIn: r.ClassIn, Hang: some(r.Hang),
		Meaning: some(p.Classes[class].Meaning), Processes: append([]string{}, r.From...), Kind: r.Kind, Frame: some(r.Frame),
		Regex: r.Regex, Source: some(r.Source), Remedy: some(or(r.Remedy, p.Classes[class].Remedy)),
		Retry: p.Classes[class].Retry, Example: r.Example,
	}
	if r.Retry != nil {
		e.Retry = r.Retry
	}
	return e
}

func some(s string) *string {
	if s == "" {
		return nil
	}
	return &s
}

func (l ruleList) writeText(w io.Writer) error {
	var b strings.Builder
	for i := range l.Rules {
		if i > 0 {
			b.WriteString("\n")
		}
		l.Rules[i].write(&b)
	}
	if len(l.Rules) == 0 {
		b.WriteString("no rule tells of it\n")
	}
	_, err := io.WriteString(w, b.String())
	return err
}

func (e *ruleEntry) write(b *strings.Builder) {
	fmt.Fprintf(b, "%s  %s", e.ID, e.Role)
	if e.Class != nil {
		fmt.Fprintf(b, "  %s", *e.Class)
	}
	for _, phase := range slices.Sorted(maps.Keys(e.ClassIn)) {
		fmt.Fprintf(b, "  %s (in %s)", e.ClassIn[phase], phase)
	}
	if e.Hang != nil {
		fmt.Fprintf(b, "  %s (when it is the last word)", *e.Hang)
	}
	b.WriteString("\n")
	from := e.Engine + ", " + e.Kind
	if len(e.Processes) > 0 {
		from += ", process " + strings.Join(e.Processes, " or ")
	}
	if e.Source != nil {
		from += ", " + *e.Source
	}
	field(b, "from", from)
	if e.Frame != nil {
		field(b, "frame", *e.Frame)
	}
	if e.Remedy != nil {
		field(b, "do", *e.Remedy)
	}
	if e.Retry != nil {
		field(b, "restart", helps(*e.Retry))
	}
	field(b, "example", e.Example)
}

func field(b *strings.Builder, name, value string) {
	for i, l := range strings.Split(value, "\n") {
		if i > 0 {
			name = ""
		}
		fmt.Fprintf(b, "  %-8s %s\n", name, explain.Visible(l))
	}
}

// unreadable is an error about an input that can't be read.
func unreadable(format string, args ...any) error {
	return &exitError{exitUnknown, fmt.Errorf(format, args...)}
}

// wrongRule is an error about a rule.
func wrongRule(text string) error { return &exitError{exitFailed, errors.New(text)} }
