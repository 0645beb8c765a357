package main

import (
	"context"
	"fmt"
	"io"
	"net"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/alecthomas/kingpin/v2"
	"github.com/prometheus/exporter-toolkit/web"
	"github.com/prometheus/exporter-toolkit/web/kingpinflag"

	"github.com/startupd/startupd/internal/app"
	"github.com/startupd/startupd/internal/demo"
	"github.com/startupd/startupd/pkg/event"
	"github.com/startupd/startupd/pkg/history"
	"github.com/startupd/startupd/pkg/phases"
)

// demoHistory is how many startups the demo's history keeps.
const demoHistory = 20

type demoFlags struct {
	speed  float64
	exit   bool
	socket string
	web    *web.FlagConfig
	log    logFlags
	std    streams
}

func demoCommand(cli *kingpin.Application, log logFlags, std streams) command {
	f := &demoFlags{log: log, std: std}
	cmd := cli.Command("demo", "Play a recorded restart through the real pipeline: no GPU, no systemd, no root.")
	cmd.Flag("speed", "How many times faster than recorded.").Default("20").Float64Var(&f.speed)
	cmd.Flag("exit-after-end", "End when the recording ends, instead of at Ctrl-C.").BoolVar(&f.exit)
	cmd.Flag("api.socket", "Unix socket for watch, wait and status; in a new temporary directory by default.").PlaceHolder("FILE").StringVar(&f.socket)
	f.web = kingpinflag.AddFlags(cmd, defaultAddress)
	return command{name: cmd.FullCommand(), run: f.run}
}

func (f *demoFlags) run(ctx context.Context) error {
	// Nobody is left to see it once its terminal is closed.
	ctx, end := signal.NotifyContext(ctx, syscall.SIGHUP)
	defer end()
	clock, err := app.SystemClock()
	if err != nil {
		return err
	}
	src, err := demo.New(demo.Options{Speed: f.speed, Clock: clock, Linger: !f.exit})
	if err != nil {
		return &exitError{exitUsage, err}
	}
	log, err := f.log.logger(f.std.err, f.quiet())
	if err != nil {
		return err
	}
	dir, err := os.MkdirTemp("", "startupd-demo-")
	if err != nil {
		return fmt.Errorf("no place for the socket and the history: %w; name another by TMPDIR", err)
	}
	defer os.RemoveAll(dir)
	f.socket = or(f.socket, filepath.Join(dir, "api.sock"))
	v, r := build()
	show := narrator{out: f.std.out, last: map[string]string{}}
	info := src.Info()
	a, err := app.New(app.Options{
		Units: info.Targets, Web: f.web, Log: log, Clock: clock, Version: v, Revision: r,
		APISocket: f.socket, APISocketRequired: true,
		// The demo's history begins with it and ends with it.
		StateDir: dir, History: history.Limits{MaxStartups: demoHistory},
		Feeds: []app.Feed{{Name: event.SourceJournal, Run: func(ctx context.Context, emit app.Emit) error {
			err := src.Run(ctx, emit)
			if err == nil && f.exit {
				end()
			}
			return err
		}}},
		Started: func(addrs []net.Addr) { f.greet(info, src.Duration(), addrs) },
		Changed: show.changed,
	})
	if err != nil {
		return err
	}
	return runApp(ctx, a, nil)
}

// quiet keeps the listeners' messages from between the phases.
func (f *demoFlags) quiet() string {
	if *f.log.level == "info" {
		return "warn"
	}
	return *f.log.level
}

func (f *demoFlags) greet(info demo.Info, takes time.Duration, addrs []net.Addr) {
	fmt.Fprintf(f.std.out, "%s: %s\nAt speed %g it takes %s. Meanwhile, in another terminal:\n\n", info.Name, info.Summary, f.speed, takes.Round(time.Second))
	fmt.Fprintf(f.std.out, "  %s watch --api.socket=%s\n", program(), f.socket)
	for _, a := range addrs {
		base := "http://" + reachable(a)
		fmt.Fprintf(f.std.out, "  curl -s %s/metrics | grep ^startupd_\n  curl -s %s/startupz\n  open %s/ in a browser\n", base, base, base)
	}
	if !f.exit {
		fmt.Fprint(f.std.out, "\nCtrl-C ends it.")
	}
	fmt.Fprint(f.std.out, "\n\n")
}

// program is how this program can be called again: one that was built by hand is
// not on the PATH.
func program() string {
	if strings.ContainsRune(os.Args[0], '/') {
		return os.Args[0]
	}
	return "startupd"
}

// reachable is an address that this host's clients can use.
func reachable(a net.Addr) string {
	host, port, err := net.SplitHostPort(a.String())
	if err != nil {
		return a.String()
	}
	if ip := net.ParseIP(host); ip != nil && ip.IsUnspecified() {
		host = "localhost"
	}
	return net.JoinHostPort(host, port)
}

// narrator prints a line whenever a phase or step changes.
type narrator struct {
	out  io.Writer
	last map[string]string
}

func (n *narrator) changed(snap *phases.Snapshot) {
	for _, t := range snap.Targets {
		s := t.Startup
		if s == nil {
			continue
		}
		text := string(t.State)
		if t.State.Starting() && s.Step != "" {
			text += "/" + s.Step
		}
		if n.last[t.Name] == text {
			continue
		}
		n.last[t.Name] = text
		line := fmt.Sprintf("%s  %s  %-22s %s", snap.At.Real.Local().Format(time.TimeOnly), t.Name, text, strings.Join(details(s), ", "))
		fmt.Fprintln(n.out, strings.TrimRight(line, " "))
	}
}

// details are what is worth reading beside the phase.
func details(s *phases.Startup) []string {
	var parts []string
	switch {
	case s.RootCause != nil:
		parts = append(parts, s.RootCause.Class+": "+s.RootCause.Message)
	case s.Reason != "":
		parts = append(parts, s.Reason)
	}
	if s.Stalled {
		parts = append(parts, s.StalledReason)
	}
	if s.ProgressNote != "" && s.Outcome == phases.OutcomeNone {
		parts = append(parts, s.ProgressNote)
	}
	if s.Outcome == phases.OutcomeServing {
		parts = append(parts, fmt.Sprintf("took %s", s.Ended.Sub(s.Began).Round(100*time.Millisecond)))
	}
	return parts
}
