package main

import (
	"context"
	"embed"
	"fmt"
	"io"
	"strings"
	"text/template"

	"github.com/alecthomas/kingpin/v2"
)

//go:embed completion/*.tmpl
var completionTemplates embed.FS

// completionCommand prints a script that completes the command line as it is
// when the script is asked for: it knows every command, flag and word. Units are
// asked of systemd at each completion.
func completionCommand(cli *kingpin.Application, std streams) command {
	var shell string
	cmd := cli.Command("completion", "Print the completion script of a shell: bash, zsh or fish.")
	cmd.Arg("SHELL", "The shell that is to complete startupd's command line.").Required().
		HintOptions("bash", "zsh", "fish").EnumVar(&shell, "bash", "zsh", "fish")
	return command{name: cmd.FullCommand(), run: func(context.Context) error {
		return writeCompletion(std.out, shell, modelOf(cli))
	}}
}

func writeCompletion(w io.Writer, shell string, root cliCommand) error {
	t := template.New("").Funcs(template.FuncMap{
		"quote":    quoteShell,
		"fish":     quoteFish,
		"zsh":      zshSpecs,
		"function": func(path string) string { return strings.NewReplacer(" ", "__", "-", "_").Replace(path) },
		"join":     strings.Join,
		"taking":   takingValues,
		"first":    firstSentence,
	})
	t, err := t.ParseFS(completionTemplates, "completion/*.tmpl")
	if err != nil {
		return err
	}
	return t.ExecuteTemplate(w, shell+".tmpl", root)
}

// quoteShell quotes for bash and zsh.
func quoteShell(s string) string { return "'" + strings.ReplaceAll(s, "'", `'\''`) + "'" }

func quoteFish(s string) string {
	return "'" + strings.NewReplacer(`\`, `\\`, `'`, `\'`).Replace(s) + "'"
}

// firstSentence is what a menu has room for.
func firstSentence(help string) string {
	for _, end := range []string{": ", "; ", ". "} {
		help, _, _ = strings.Cut(help, end)
	}
	return strings.TrimRight(help, ".")
}

// takingValues are the flags anywhere that take the next word as their value.
func takingValues(root cliCommand) []string {
	var out []string
	seen := map[string]bool{}
	for _, c := range root.Flat() {
		for _, f := range c.All() {
			if f.Kind != kindNone && !seen[f.Name] {
				seen[f.Name] = true
				out = append(out, "--"+f.Name)
			}
		}
	}
	return out
}

// zshSpecs are the arguments of zsh's _arguments for the flags of a command, and
// for its arguments where it has no commands of its own.
func zshSpecs(c cliCommand) []string {
	var out []string
	for _, f := range c.All() {
		out = append(out, zshFlag(f)...)
	}
	if len(c.Commands) > 0 {
		return out
	}
	for i, a := range c.Args {
		at := fmt.Sprintf("%d:", i+1)
		switch {
		case a.Many:
			at = "*:"
		case !a.Required:
			at += ":"
		}
		out = append(out, quoteShell(at+zshText(a.Label)+":"+zshAction(a.cliValue)))
	}
	return out
}

func zshFlag(f cliFlag) []string {
	about := "[" + zshText(firstSentence(f.Help)) + "]"
	switch {
	case f.On:
		return []string{quoteShell("(--" + f.Name + ")--no-" + f.Name + "[Not: " + about[1:])}
	case f.Kind == kindNone && f.Short != "":
		return []string{quoteShell("(-" + f.Short + " --" + f.Name + ")-" + f.Short + about), quoteShell("(-" + f.Short + " --" + f.Name + ")--" + f.Name + about)}
	case f.Kind == kindNone:
		return []string{quoteShell("--" + f.Name + about)}
	}
	many := ""
	if f.Many {
		many = "*"
	}
	return []string{quoteShell(many + "--" + f.Name + "=" + about + ":" + zshText(f.Label) + ":" + zshAction(f.cliValue))}
}

// zshText escapes what ends a part of a spec.
func zshText(s string) string {
	return strings.NewReplacer(`\`, `\\`, "[", `\[`, "]", `\]`, ":", `\:`).Replace(s)
}

func zshAction(v cliValue) string {
	switch v.Kind {
	case kindOptions:
		return "(" + strings.Join(v.Options, " ") + ")"
	case kindUnits:
		return "_startupd_units"
	case kindFiles:
		return "_files"
	case kindDirectories:
		return "_files -/"
	}
	return ""
}
