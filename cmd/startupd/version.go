package main

import (
	"context"
	"fmt"
	"runtime"
	"runtime/debug"

	"github.com/alecthomas/kingpin/v2"
)

// Set by the linker; empty in a plain `go build`.
var (
	version  string
	revision string
)

// build returns version and revision: the linker's, else those that the Go
// command noted.
func build() (v, r string) {
	v, r = version, revision
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return v, r
	}
	if v == "" {
		v = info.Main.Version
	}
	for _, s := range info.Settings {
		if s.Key == "vcs.revision" && r == "" {
			r = s.Value
		}
	}
	return v, r
}

func buildText() string {
	v, r := build()
	return fmt.Sprintf("startupd %s (revision %s, %s %s/%s)", or(v, "unknown"), or(r, "unknown"), runtime.Version(), runtime.GOOS, runtime.GOARCH)
}

func or(s, otherwise string) string {
	if s == "" {
		return otherwise
	}
	return s
}

func versionCommand(cli *kingpin.Application, std streams) command {
	cmd := cli.Command("version", "Print version, revision and Go version.")
	return command{name: cmd.FullCommand(), run: func(context.Context) error {
		_, err := fmt.Fprintln(std.out, buildText())
		return err
	}}
}
