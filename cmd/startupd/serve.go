package main

import (
	"context"
	"errors"
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"runtime/debug"
	"strings"
	"syscall"
	"time"

	"github.com/alecthomas/kingpin/v2"
	"github.com/coreos/go-systemd/v22/daemon"
	journald "github.com/coreos/go-systemd/v22/journal"
	"github.com/prometheus/exporter-toolkit/web"
	"github.com/prometheus/exporter-toolkit/web/kingpinflag"
	"go.uber.org/zap"

	"github.com/startupd/startupd/internal/app"
	"github.com/startupd/startupd/pkg/history"
	"github.com/startupd/startupd/pkg/journal"
)

// defaultAddress is where metrics are served.
const defaultAddress = ":10944"

// logFlags are the flags of startupd's own log.
type logFlags struct{ level, format *string }

func addLogFlags(cli *kingpin.Application) logFlags {
	return logFlags{
		level: cli.Flag("log.level", "Least level of startupd's own log: debug, info, warn or error.").Default("info").HintOptions("debug", "info", "warn", "error").String(),
		format: cli.Flag("log.format", "Form of startupd's own log: console, json, journal (journald adds level and time), or auto: journal where journald reads it, else console.").
			Default("auto").HintOptions("auto", "console", "json", "journal").String(),
	}
}

// logger returns a logger of the chosen form that writes to w.
func (f logFlags) logger(w io.Writer, level string) (*zap.Logger, error) {
	format := *f.format
	if format == "auto" {
		format = "console"
		// An error says that it can't be told.
		if toJournal, err := journald.StderrIsJournalStream(); err == nil && toJournal && w == os.Stderr {
			format = "journal"
		}
	}
	return app.NewLogger(w, level, format)
}

type serveFlags struct {
	units            []string
	config, profiles string
	journal          journalFlags
	state, socket    string
	socketSet, gpu   bool
	nvml             string
	history          history.Limits
	lifecycle        bool
	message          bool
	web              *web.FlagConfig
	log              logFlags
	std              streams
}

// journalFlags say how the journal is read; serve and explain share them.
type journalFlags struct{ reader, dir *string }

func addJournalFlags(cmd *kingpin.CmdClause) journalFlags {
	return journalFlags{
		reader: cmd.Flag("journal.reader", "Reader of the journal: sdjournal is fastest, journalctl needs no library, auto takes the best there is.").
			Default(string(journal.ReaderAuto)).Enum(string(journal.ReaderAuto), string(journal.ReaderSDJournal), string(journal.ReaderJournalctl)),
		dir: cmd.Flag("journal.dir", "Directory of journal files to read, such as a copy from another host; the system's own journal by default.").String(),
	}
}

func (f journalFlags) reading(self string) journal.Reader {
	return journal.Reader{Kind: journal.ReaderKind(*f.reader), Dir: *f.dir, Child: []string{self, "journal-reader"}}
}

func serveCommand(cli *kingpin.Application, log logFlags, std streams) command {
	cmd := cli.Command("serve", "Watch units and serve metrics (the default).").Default()
	f := addServeFlags(cmd, log, std)
	return command{name: cmd.FullCommand(), run: f.run}
}

// addServeFlags adds the daemon's flags; serve and check share them.
func addServeFlags(cmd *kingpin.CmdClause, log logFlags, std streams) *serveFlags {
	f := &serveFlags{log: log, std: std}
	cmd.Flag("unit", "Unit to watch; repeatable, globs allowed.").PlaceHolder("UNIT").StringsVar(&f.units)
	cmd.Flag("config.file", "YAML file of targets; re-read on SIGHUP.").PlaceHolder("FILE").StringVar(&f.config)
	cmd.Flag("profile.dir", "Directory of YAML profiles that add to the built-in ones.").PlaceHolder("DIR").StringVar(&f.profiles)
	f.journal = addJournalFlags(cmd)
	cmd.Flag("state.dir", "Directory that keeps counters, the journal's position and the history of startups; empty keeps nothing.").
		Default(firstOf("STATE_DIRECTORY", "/var/lib/startupd")).StringVar(&f.state)
	addHistoryFlags(cmd, &f.history)
	cmd.Flag("gpu", "Watch GPUs over NVML.").Default("true").BoolVar(&f.gpu)
	cmd.Flag("gpu.nvml-library", "Path of libnvidia-ml.so.1, where the dynamic loader does not find it.").PlaceHolder("FILE").StringVar(&f.nvml)
	f.web = kingpinflag.AddFlags(cmd, defaultAddress)
	cmd.Flag("web.enable-lifecycle", "Let POST /-/reload re-read the configuration.").BoolVar(&f.lifecycle)
	cmd.Flag("metrics.root-cause-message", "Export what the log says of a root cause, for alerts to quote.").Default("true").BoolVar(&f.message)
	cmd.Flag("api.socket", "Unix socket for the command line on this host; empty opens none.").
		Default(filepath.Join(firstOf("RUNTIME_DIRECTORY", "/run/startupd"), "api.sock")).IsSetByUser(&f.socketSet).StringVar(&f.socket)
	return f
}

// firstOf returns the first directory that the service manager names in a
// variable.
func firstOf(variable, otherwise string) string {
	dir, _, _ := strings.Cut(os.Getenv(variable), ":")
	return or(dir, otherwise)
}

func (f *serveFlags) run(ctx context.Context) error {
	o, err := f.options()
	if err != nil {
		return err
	}
	// The daemon's memory is small and so is its work: the rest is the engine's.
	collectAt(25)
	a, err := app.New(o)
	if err != nil {
		return err
	}
	debug.FreeOSMemory() // what was needed to read the profiles
	o.Log.Info("startupd begins", zap.String("version", o.Version), zap.String("revision", o.Revision))
	return runApp(ctx, a, a.Reload)
}

// collectAt sets how much the heap grows, in percent, before garbage is collected,
// unless the user has said so by GOGC.
func collectAt(percent int) {
	if os.Getenv("GOGC") == "" {
		debug.SetGCPercent(percent)
	}
}

func (f *serveFlags) options() (app.Options, error) {
	log, err := f.log.logger(f.std.err, *f.log.level)
	if err != nil {
		return app.Options{}, err
	}
	clock, err := app.SystemClock()
	if err != nil {
		return app.Options{}, err
	}
	self, err := os.Executable()
	if err != nil {
		return app.Options{}, err
	}
	watchdog, err := daemon.SdWatchdogEnabled(false)
	if err != nil {
		return app.Options{}, err
	}
	reader := []string{self, "gpu-reader"}
	if f.nvml != "" {
		reader = append(reader, "--gpu.nvml-library="+f.nvml)
	}
	v, r := build()
	return app.Options{
		Units: f.units, ConfigFile: f.config, ProfileDir: f.profiles, Journal: f.journal.reading(self),
		StateDir: f.state, History: f.history, NoGPU: !f.gpu, GPUReader: reader,
		Web: f.web, Lifecycle: f.lifecycle, NoRootCauseMessage: !f.message, APISocket: f.socket, APISocketRequired: f.socketSet,
		Log: log, Clock: clock, Watchdog: watchdog, Version: v, Revision: r,
		Notify: func(state string) error { _, err := daemon.SdNotify(false, state); return err },
	}, nil
}

// secondSignal is how long after a signal to stop another one is taken for the
// same: timeout(1) and shells send it to a process and to its group.
const secondSignal = 500 * time.Millisecond

// runApp runs until a signal to stop; a second one ends the process at once. A
// SIGHUP reloads; where reload is nil, nobody listens to it here.
func runApp(ctx context.Context, a *app.App, reload func(context.Context) error) error {
	ctx, stop := signal.NotifyContext(ctx, syscall.SIGINT, syscall.SIGTERM)
	defer stop()
	context.AfterFunc(ctx, func() { time.AfterFunc(secondSignal, stop) })

	hup := make(chan os.Signal, 1)
	if reload != nil {
		signal.Notify(hup, syscall.SIGHUP)
		defer signal.Stop(hup)
	}
	reloads := make(chan struct{})
	go func() {
		defer close(reloads)
		for {
			select {
			case <-ctx.Done():
				return
			case <-hup:
				// The app has logged why it refused.
				_ = reload(ctx)
			}
		}
	}()
	err := a.Run(ctx)
	stop()
	<-reloads
	if errors.Is(err, context.Canceled) {
		return nil
	}
	return err
}
