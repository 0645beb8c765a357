package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"os/user"
	"slices"
	"strconv"
	"syscall"
	"time"

	"github.com/alecthomas/kingpin/v2"
	"go.uber.org/zap"

	"github.com/startupd/startupd/internal/app/fitness"
)

// defaultsFile is where the packaged unit takes the daemon's arguments from.
const defaultsFile = "/etc/default/startupd"

type checkFlags struct {
	// serve are the daemon's.
	serve            *serveFlags
	format, defaults string
	strict, brief    bool
	// identity is set in the process that has taken on the daemon's rights.
	identity, from, words string
	// own says which flags are check's; given that any of the daemon's was.
	own   map[string]bool
	given bool
	// args are the arguments as typed, behind the command's name.
	args []string
	std  streams
}

func checkCommand(cli *kingpin.Application, args []string, log logFlags, std streams) command {
	f, cmd := addCheck(cli, log, std)
	if i := slices.Index(args, "check"); i >= 0 {
		f.args = slices.Concat(args[:i], args[i+1:])
	}
	return command{name: cmd.FullCommand(), run: f.run}
}

// addCheck adds the command with its flags: the daemon's, and its own.
func addCheck(cli *kingpin.Application, log logFlags, std streams) (*checkFlags, *kingpin.CmdClause) {
	f := &checkFlags{std: std, own: map[string]bool{}}
	cmd := cli.Command("check", "Check whether startupd can do its work on this host: rights, journal, units, GPUs, files. It takes the flags of serve; without any, those of --defaults.file.")
	flag := func(name, help string) *kingpin.FlagClause {
		f.own[name] = true
		return cmd.Flag(name, help)
	}
	flag("defaults.file", "File with ARGS=, read where no flag of the daemon is given; empty reads none.").Default(defaultsFile).StringVar(&f.defaults)
	flag("strict", "Warnings count as failures.").BoolVar(&f.strict)
	flag("brief", "Leave out what is all right.").BoolVar(&f.brief)
	flag("format", "text for people, json for programs.").Default("text").EnumVar(&f.format, "text", "json")
	flag("identity", "Whose rights this process has.").Hidden().StringVar(&f.identity)
	flag("arguments-from", "Where the daemon's flags are from.").Hidden().StringVar(&f.from)
	flag("arguments", "The daemon's flags as JSON.").Hidden().StringVar(&f.words)
	f.serve = addServeFlags(cmd, log, std)
	cmd.PreAction(func(c *kingpin.ParseContext) error {
		for _, e := range c.Elements {
			if fl, ok := e.Clause.(*kingpin.FlagClause); ok && !f.own[fl.Model().Name] && fl.Model().Name != "log.level" && fl.Model().Name != "log.format" {
				f.given = true
			}
		}
		return nil
	})
	return f, cmd
}

func (f *checkFlags) run(ctx context.Context) error {
	words, err := f.fromDefaults()
	if err != nil {
		return err
	}
	if os.Geteuid() == 0 && f.identity == "" {
		if done, err := f.asDaemon(ctx, words); done || err != nil {
			return err
		}
	}
	o, err := f.options(words)
	if err != nil {
		return err
	}
	r := fitness.Run(ctx, o)
	if err := f.write(r); err != nil {
		return err
	}
	return f.verdict(r)
}

// fromDefaults reads the daemon's flags from the defaults file where none was
// given, and returns its words; nil where they are not used.
func (f *checkFlags) fromDefaults() ([]string, error) {
	if f.from == "" {
		f.from = "the command line"
	}
	if f.words != "" {
		var words []string
		err := json.Unmarshal([]byte(f.words), &words)
		return words, err
	}
	if f.given || f.defaults == "" || f.identity != "" {
		return nil, nil
	}
	text, err := os.ReadFile(f.defaults)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, &exitError{exitUsage, fmt.Errorf("%w; give the daemon's flags, or --defaults.file= for none", err)}
	}
	words, err := fitness.Arguments(string(text))
	if err != nil {
		return nil, &exitError{exitUsage, fmt.Errorf("%s: %w", f.defaults, err)}
	}
	cli := kingpin.New("startupd", "").Terminate(nil)
	other, _ := addCheck(cli, addLogFlags(cli), f.std)
	if _, err := cli.Parse(append([]string{"check"}, words...)); err != nil {
		return nil, &exitError{exitUsage, fmt.Errorf("%s: ARGS: %w; `startupd serve --help` lists the flags", f.defaults, err)}
	}
	f.serve, f.from = other.serve, f.defaults
	return words, nil
}

// asDaemon runs this command again with the rights of the daemon's user; done is
// false where there is no such user, and root's own rights are tried.
func (f *checkFlags) asDaemon(ctx context.Context, words []string) (done bool, err error) {
	short, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	bus, err := fitness.SystemBus(short)
	if err != nil {
		return false, nil // the check of the bus says so
	}
	id, err := fitness.DaemonUser(short, bus, "")
	if err != nil {
		return false, &exitError{exitFailed, fmt.Errorf("the daemon's user: %w", err)}
	}
	if id == nil || id.UID == 0 {
		if id != nil {
			f.identity = id.Name
		}
		return false, nil
	}
	args := append([]string{"check", "--identity=" + id.Name, "--arguments-from=" + f.from}, f.args...)
	if words != nil {
		b, err := json.Marshal(words)
		if err != nil {
			return false, err
		}
		args = append(args, "--arguments="+string(b))
	}
	cmd := exec.CommandContext(ctx, "/proc/self/exe", append(args, words...)...)
	cmd.Args[0] = "startupd"
	if words != nil {
		cmd.Dir = "/" // as the daemon's
	}
	cmd.Env = append(os.Environ(), id.Env...)
	cmd.Stdout, cmd.Stderr = f.std.out, f.std.err
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: id.UID, Gid: id.GID, Groups: id.Groups}}
	err = cmd.Run()
	if ee := (*exec.ExitError)(nil); errors.As(err, &ee) && ee.ExitCode() > 0 {
		return true, &exitError{ee.ExitCode(), nil}
	}
	if err != nil {
		return true, fmt.Errorf("check with the rights of %s: %w", id.Name, err)
	}
	return true, nil
}

func (f *checkFlags) options(words []string) (fitness.Options, error) {
	a, err := f.serve.options()
	if err != nil {
		return fitness.Options{}, err
	}
	a.Log, a.Notify = zap.NewNop(), nil
	o := fitness.Options{App: a, User: f.identity, Daemon: f.identity != "", Arguments: f.from}
	o.DaemonArgs = words
	if o.User == "" {
		o.User = "user " + strconv.Itoa(os.Geteuid())
		if u, err := user.Current(); err == nil {
			o.User = "user " + u.Username
		}
	}
	return o, nil
}

func (f *checkFlags) write(r *fitness.Report) error {
	if f.format == "json" {
		enc := json.NewEncoder(f.std.out)
		enc.SetEscapeHTML(false)
		enc.SetIndent("", "  ")
		return enc.Encode(r)
	}
	width, color := terminal(f.std.out)
	return r.WriteText(f.std.out, fitness.TextOptions{Width: width, Color: color, All: !f.brief})
}

// verdict is the exit code.
func (f *checkFlags) verdict(r *fitness.Report) error {
	switch {
	case r.Fit == nil:
		return &exitError{exitUnknown, nil}
	case r.BadConfig():
		return &exitError{exitUsage, nil}
	case !*r.Fit, f.strict && r.Counts[fitness.Warning] > 0:
		return &exitError{exitFailed, nil}
	}
	return nil
}
