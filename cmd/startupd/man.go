package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"runtime/debug"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/alecthomas/kingpin/v2"
)

// manItem is a term and what it means.
type manItem struct{ term, text string }

// manExample is what to type, and what for.
type manExample struct {
	text  string
	lines []string
}

// manPage is a page of the manual, for a command or for the program.
type manPage struct {
	command      cliCommand
	root         cliCommand
	date, source string
}

// manCommand makes the manual from the command line's own description, for
// packages. A page is always the same for the same program and date.
func manCommand(cli *kingpin.Application, std streams) command {
	var name, dir string
	cmd := cli.Command("man", "Print the manual page of a command, or of startupd.").Hidden()
	cmd.Arg("COMMAND", "The command.").StringVar(&name)
	cmd.Flag("dir", "Write all pages into this directory.").PlaceHolder("DIR").StringVar(&dir)
	return command{name: cmd.FullCommand(), run: func(context.Context) error {
		date, err := manDate()
		if err != nil {
			return &exitError{exitUsage, err}
		}
		v, _ := build()
		pages := manPages(modelOf(cli), date, "startupd "+or(v, "unknown"))
		if dir != "" {
			return writePages(dir, pages)
		}
		want := manName(name)
		for _, p := range pages {
			if p.name() == want {
				_, err := fmt.Fprint(std.out, p.String())
				return err
			}
		}
		return &exitError{exitUsage, fmt.Errorf("no command %q; `startupd --help` lists them", name)}
	}}
}

// manDate is the day that SOURCE_DATE_EPOCH names, else that of the commit that
// the program was built from; empty where that is not known.
func manDate() (string, error) {
	if s := os.Getenv("SOURCE_DATE_EPOCH"); s != "" {
		n, err := strconv.ParseInt(s, 10, 64)
		if err != nil {
			return "", fmt.Errorf("SOURCE_DATE_EPOCH %q is no number of seconds since 1970", s)
		}
		return time.Unix(n, 0).UTC().Format(time.DateOnly), nil
	}
	info, _ := debug.ReadBuildInfo()
	if info != nil {
		for _, s := range info.Settings {
			if s.Key == "vcs.time" {
				day, _, _ := strings.Cut(s.Value, "T")
				return day, nil
			}
		}
	}
	return "", nil
}

// manName is the name of a command's page; the program's where path is empty.
func manName(path string) string {
	return strings.TrimSuffix("startupd-"+strings.ReplaceAll(path, " ", "-"), "-")
}

// manPages are the program's page and one of each command. Commands of a command
// share its page.
func manPages(root cliCommand, date, source string) []manPage {
	pages := []manPage{{command: root, root: root, date: date, source: source}}
	for _, c := range documented(root) {
		pages = append(pages, manPage{command: c, root: root, date: date, source: source})
	}
	return pages
}

// documented are the commands that have a page of their own.
func documented(root cliCommand) []cliCommand {
	return slices.DeleteFunc(slices.Clone(root.Commands), func(c cliCommand) bool { return c.Path == helpCommand })
}

func writePages(dir string, pages []manPage) error {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	for _, p := range pages {
		if err := os.WriteFile(filepath.Join(dir, p.name()+".1"), []byte(p.String()), 0o644); err != nil {
			return err
		}
	}
	return nil
}

func (p manPage) name() string { return manName(p.command.Path) }

func (p manPage) String() string {
	r := &roff{}
	text := manTextOf(p.command.Path)
	r.title(p.name(), p.date, p.source)
	r.section("NAME")
	about, _, _ := strings.Cut(p.command.Help, ". ")
	r.text(p.name() + " - " + lowerFirst(strings.TrimSuffix(about, ".")))
	r.section("SYNOPSIS")
	p.synopses(r)
	r.section("DESCRIPTION")
	paragraphs := text.about
	if p.command.Long != "" {
		paragraphs = append([]string{p.command.Long}, paragraphs...)
	}
	if len(paragraphs) == 0 {
		paragraphs = []string{p.command.Help}
	}
	r.paragraphs(paragraphs...)
	p.operands(r)
	r.section(`"EXIT STATUS"`)
	r.items(exitStatuses())
	sections := []struct {
		name  string
		items []manItem
	}{{"SIGNALS", text.signals}, {"FILES", text.files}, {"ENVIRONMENT", text.environment}}
	for _, s := range sections {
		if len(s.items) > 0 {
			r.section(s.name)
			r.items(s.items)
		}
	}
	if len(text.examples) > 0 {
		r.section("EXAMPLES")
		for i, e := range text.examples {
			if i > 0 {
				r.b.WriteString(".PP\n")
			}
			r.example(e.text, e.lines)
		}
	}
	r.section(`"SEE ALSO"`)
	r.b.WriteString(p.references())
	return r.b.String()
}

func (p manPage) synopses(r *roff) {
	for i, c := range p.callable() {
		if i > 0 {
			r.b.WriteString(".br\n")
		}
		r.synopsis(strings.TrimSpace("startupd "+c.Path), manOperands(c))
	}
}

// callable are the commands that the page is about.
func (p manPage) callable() []cliCommand {
	if p.command.Path == "" || len(p.command.Commands) == 0 {
		return []cliCommand{p.command}
	}
	return p.command.Commands
}

// operands writes the arguments, commands and options.
func (p manPage) operands(r *roff) {
	if p.command.Path == "" {
		r.section("COMMANDS")
		r.items(manCommands(p.root))
		r.section("OPTIONS")
		r.text("These are understood by every command.")
		r.items(manFlags(p.command.Flags))
		return
	}
	for _, c := range p.callable() {
		if c.Path != p.command.Path {
			r.section(roffText(strings.ToUpper(c.Name)))
			r.text(c.Help)
		}
		if len(c.Args) > 0 {
			p.heading(r, c, "ARGUMENTS")
			r.items(manArgs(c.Args))
		}
		if len(c.Flags) > 0 {
			p.heading(r, c, "OPTIONS")
			r.items(manFlags(c.Flags))
		}
	}
	r.section(`"COMMON OPTIONS"`)
	r.items(manFlags(p.root.Flags))
}

// heading begins a part of a command; a section where the page has no other.
func (p manPage) heading(r *roff, c cliCommand, name string) {
	if c.Path == p.command.Path {
		r.section(name)
		return
	}
	r.subsection(name[:1] + strings.ToLower(name[1:]))
}

func manOperands(c cliCommand) string {
	if c.Path == "" {
		return "[OPTION...] COMMAND [ARGUMENT...]"
	}
	parts := []string{"[OPTION...]"}
	for _, a := range c.Args {
		name := a.Label
		if a.Many {
			name += "..."
		}
		if !a.Required {
			name = "[" + name + "]"
		}
		parts = append(parts, name)
	}
	return strings.Join(parts, " ")
}

func manCommands(root cliCommand) []manItem {
	var out []manItem
	for _, c := range documented(root) {
		out = append(out, manItem{"`startupd-" + c.Name + "`(1)", c.Help})
	}
	return append(out, manItem{"`" + helpCommand + "` [COMMAND]", "The help of a command, as `startupd COMMAND --help`."})
}

func manArgs(list []cliArg) []manItem {
	var out []manItem
	for _, a := range list {
		out = append(out, manItem{a.Label, a.Help + oneOf(a.cliValue, a.Help)})
	}
	return out
}

func manFlags(list []cliFlag) []manItem {
	var out []manItem
	for _, f := range list {
		term, text := "`--"+f.Name+"`", strings.TrimSuffix(f.Help, ".")+"."
		switch {
		case f.On:
			term, text = "`--[no-]"+f.Name+"`", text+" On by default."
		case f.Kind != kindNone:
			term += "=" + f.Label
			text += oneOf(f.cliValue, f.Help)
		}
		if f.Short != "" {
			term = "`-" + f.Short + "`, " + term
		}
		if d := strings.Join(f.Default, ", "); d != "" {
			text += " Default: `" + d + "`."
		}
		out = append(out, manItem{term, text})
	}
	return out
}

// oneOf lists the words that a value may be, unless the text has named them.
func oneOf(v cliValue, text string) string {
	for _, o := range v.Options {
		if !strings.Contains(text, o) {
			return " One of " + strings.Join(v.Options, ", ") + "."
		}
	}
	return ""
}

// references are the other pages.
func (p manPage) references() string {
	var pages []string
	if p.command.Path != "" {
		pages = append(pages, `\fBstartupd\fP(1)`)
	}
	for _, c := range documented(p.root) {
		if c.Path != p.command.Path {
			pages = append(pages, `\fB`+roffText("startupd-"+c.Name)+`\fP(1)`)
		}
	}
	pages = append(pages, `\fBsystemctl\fP(1)`, `\fBjournalctl\fP(1)`, `\fBsystemd.service\fP(5)`)
	return strings.Join(pages, ",\n") + "\n.PP\nThe documentation is in\n" + roffText("/usr/share/doc/startupd.") + "\n"
}

func lowerFirst(s string) string {
	if s == "" {
		return s
	}
	return strings.ToLower(s[:1]) + s[1:]
}
