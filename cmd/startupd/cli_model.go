package main

import (
	"slices"
	"strings"

	"github.com/alecthomas/kingpin/v2"
)

// valueKind says where a shell finds the values of a flag or an argument.
type valueKind string

const (
	// kindNone: a switch, which takes no value.
	kindNone valueKind = ""
	// kindAny: nothing is known that could be offered.
	kindAny         valueKind = "any"
	kindOptions     valueKind = "options"
	kindUnits       valueKind = "units"
	kindFiles       valueKind = "files"
	kindDirectories valueKind = "directories"
)

// cliValue is the value of a flag, or an argument.
type cliValue struct {
	Kind valueKind
	// Label stands for the value in texts: UNIT.
	Label string
	// Options are all the values there are, for kindOptions.
	Options []string
	// Many: it may be given more than once.
	Many bool
}

// cliFlag is a flag that is not hidden.
type cliFlag struct {
	cliValue
	Name, Short, Help string
	// Default is what holds without the flag; empty for a switch that is off.
	Default []string
	// On: a switch that is on by default, which --no-NAME switches off.
	On bool
}

// cliArg is an argument of a command.
type cliArg struct {
	cliValue
	Help     string
	Required bool
}

// cliCommand is the program, or one of its commands that is not hidden.
type cliCommand struct {
	// Path is empty for the program itself, else as typed: "rules list".
	Path, Name, Help, Long string
	// Flags are the command's own, Inherited those of what is above it. The
	// program inherits those of its default command.
	Flags, Inherited []cliFlag
	Args             []cliArg
	Commands         []cliCommand
}

// All are the flags that can be given to the command.
func (c cliCommand) All() []cliFlag { return slices.Concat(c.Flags, c.Inherited) }

// Flat is the command and all below it.
func (c cliCommand) Flat() []cliCommand {
	out := []cliCommand{c}
	for _, sub := range c.Commands {
		out = append(out, sub.Flat()...)
	}
	return out
}

// completer is what kingpin tells of the values of a command's flags and of its
// first argument.
type completer interface {
	FlagCompletion(name, value string) ([]string, bool, bool)
	CmdCompletion(*kingpin.ParseContext) []string
	GetCommand(name string) *kingpin.CmdClause
}

// modelOf describes the command line to shells and to the manual.
func modelOf(cli *kingpin.Application) cliCommand {
	m := cli.Model()
	root := cliCommand{Name: m.Name, Help: m.Help, Flags: flagsOf(m.FlagGroupModel, cli)}
	root.Commands = commandsOf(m.CmdGroupModel, cli, root.Flags)
	for _, c := range m.Commands {
		if c.Default {
			root.Inherited = flagsOf(c.FlagGroupModel, cli.GetCommand(c.Name))
		}
	}
	return root
}

func commandsOf(group *kingpin.CmdGroupModel, parent completer, inherited []cliFlag) []cliCommand {
	var out []cliCommand
	for _, m := range group.Commands {
		if m.Hidden {
			continue
		}
		clause := parent.GetCommand(m.Name)
		c := cliCommand{
			Path: pathOf(m), Name: m.Name, Help: m.Help, Long: m.HelpLong,
			Flags: flagsOf(m.FlagGroupModel, clause), Inherited: inherited, Args: argsOf(m, clause),
		}
		c.Commands = commandsOf(m.CmdGroupModel, clause, c.All())
		out = append(out, c)
	}
	for i, c := range out {
		if c.Path == helpCommand {
			out[i].Args = []cliArg{{cliValue: cliValue{Kind: kindOptions, Label: "COMMAND", Options: namesOf(out)}, Help: "The command."}}
		}
	}
	return out
}

// helpCommand is kingpin's own: a command that stands for --help of another.
const helpCommand = "help"

func namesOf(list []cliCommand) []string {
	var out []string
	for _, c := range list {
		out = append(out, c.Name)
	}
	return out
}

// pathOf is a command's name with those above it; kingpin appends arguments.
func pathOf(m *kingpin.CmdModel) string {
	return strings.Join(strings.Fields(m.FullCommand)[:m.Depth], " ")
}

func flagsOf(group *kingpin.FlagGroupModel, c completer) []cliFlag {
	var out []cliFlag
	for _, m := range group.Flags {
		if m.Hidden {
			continue
		}
		f := cliFlag{Name: m.Name, Help: m.Help, Default: m.Default}
		if m.Short != 0 {
			f.Short = string(m.Short)
		}
		if m.IsBoolFlag() {
			f.On, f.Default = slices.Equal(m.Default, []string{"true"}), nil
		} else {
			options, _, _ := c.FlagCompletion(m.Name, "")
			f.cliValue = valueOf(m.Name, m.PlaceHolder, options, m.Value)
		}
		out = append(out, f)
	}
	return out
}

func argsOf(m *kingpin.CmdModel, c completer) []cliArg {
	var out []cliArg
	for i, a := range m.Args {
		if a.Hidden {
			continue
		}
		var options []string
		if i == 0 { // kingpin tells those of the first one only
			options = c.CmdCompletion(&kingpin.ParseContext{})
		}
		label := strings.ToUpper(or(a.PlaceHolder, a.Name))
		out = append(out, cliArg{cliValue: valueOf(label, label, options, a.Value), Help: a.Help, Required: a.Required})
	}
	return out
}

// valueOf tells by the names that all commands share what a value is.
func valueOf(name, label string, options []string, v kingpin.Value) cliValue {
	out := cliValue{Kind: kindAny, Label: label, Options: options}
	if many, ok := v.(interface{ IsCumulative() bool }); ok {
		out.Many = many.IsCumulative()
	}
	switch {
	case len(options) > 1: // a single one is an example
		out.Kind = kindOptions
	case strings.HasPrefix(label, "UNIT"):
		out.Kind = kindUnits
	case label == "FILE" || label == "LOG" || strings.HasSuffix(name, ".file") || strings.HasSuffix(name, ".socket"):
		out.Kind = kindFiles
	case label == "DIR" || strings.HasSuffix(name, ".dir"):
		out.Kind = kindDirectories
	}
	if out.Kind != kindOptions {
		out.Options = nil
	}
	if label == "" {
		out.Label = strings.ToUpper(name[strings.LastIndexAny(name, ".-")+1:])
	}
	return out
}
