// Command startupd tells which phase an LLM server's start is in. This package
// owns flags, signals, texts for people and exit codes; everything else is
// done by internal/app, which it must not bypass.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/alecthomas/kingpin/v2"

	"github.com/startupd/startupd/internal/app"
)

// The exit codes that scripts may rely on.
const (
	// exitOK: serving, or the command did what it should.
	exitOK = 0
	// exitFailed: the start failed or was stopped, or the command failed.
	exitFailed = 1
	// exitUsage: a flag, an argument or the configuration is wrong.
	exitUsage = 2
	// exitStalled: the start is stalled.
	exitStalled = 4
	// exitUnknown: the start still runs, or the input tells nothing.
	exitUnknown = 5
)

// exitError is an error with an exit code of its own. A nil err prints nothing.
type exitError struct {
	code int
	err  error
}

func (e *exitError) Error() string {
	if e.err == nil {
		return fmt.Sprintf("exit %d", e.code)
	}
	return e.err.Error()
}

func (e *exitError) Unwrap() error { return e.err }

// streams are the standard streams of a command.
type streams struct {
	in       io.Reader
	out, err io.Writer
}

// command is a sub-command: run is called when it is chosen.
type command struct {
	name string
	run  func(context.Context) error
}

func main() {
	os.Exit(run(os.Args[1:], streams{in: os.Stdin, out: os.Stdout, err: os.Stderr}))
}

// run parses the command line, runs the command and returns the exit code.
func run(args []string, std streams) int {
	cli := kingpin.New("startupd", "Watches LLM servers start: which phase, how far, how long, and why not.")
	// Without this kingpin ends the process itself, with 1 for usage errors.
	ended := false
	cli.Terminate(func(int) { ended = true })
	cli.UsageWriter(std.out)
	cli.ErrorWriter(std.err)
	cli.HelpFlag.Short('h')
	cli.Version(buildText())
	log := addLogFlags(cli)

	commands := []command{
		serveCommand(cli, log, std),
		explainCommand(cli, std),
		waitCommand(cli, std),
		historyCommand(cli, std),
		watchCommand(cli, std),
		statusCommand(cli, std),
		demoCommand(cli, log, std),
		preflightCommand(cli, std),
		checkCommand(cli, plain(args), log, std),
		completionCommand(cli, std),
		manCommand(cli, std),
		versionCommand(cli, std),
		journalReaderCommand(cli, std),
		gpuReaderCommand(cli, std),
	}
	commands = append(commands, rulesCommands(cli, std)...)
	name, err := cli.Parse(plain(args))
	if ended {
		return exitOK
	}
	if err != nil {
		fmt.Fprintf(std.err, "startupd: %v; try `startupd --help`\n", err)
		return exitUsage
	}
	for _, c := range commands {
		if c.name == name {
			return exitCode(c.run(context.Background()), std.err)
		}
	}
	return exitUsage
}

// plain rewrites what kingpin can't read: a lone dash, which it takes for an
// empty argument, becomes the file that it stands for; the negative number
// after --invocation, which it takes for a flag, is joined with =.
func plain(args []string) []string {
	out := make([]string, 0, len(args))
	for i, a := range args {
		switch {
		case a == "-":
			out = append(out, stdin)
		case i > 0 && args[i-1] == "--invocation" && strings.HasPrefix(a, "-"):
			out[len(out)-1] += "=" + a
		default:
			out = append(out, a)
		}
	}
	return out
}

// exitCode prints err in one line and returns the code that it stands for.
func exitCode(err error, w io.Writer) int {
	if err == nil {
		return exitOK
	}
	code := exitFailed
	if ee := (*exitError)(nil); errors.As(err, &ee) {
		code = ee.code
		if ee.err == nil {
			return code
		}
	} else if errors.Is(err, app.ErrConfig) {
		code = exitUsage
	}
	fmt.Fprintf(w, "startupd: %s\n", strings.ReplaceAll(err.Error(), "\n", "; "))
	return code
}
