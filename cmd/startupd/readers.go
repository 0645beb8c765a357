package main

import (
	"context"
	"os/signal"
	"syscall"

	"github.com/alecthomas/kingpin/v2"

	"github.com/startupd/startupd/pkg/gpu"
	"github.com/startupd/startupd/pkg/journal"
)

// The readers are this same program in a process of its own: what the system's
// libraries do there cannot end the daemon. They end when their standard input
// does; Ctrl-C in a terminal goes to the whole group, and is the daemon's.

func journalReaderCommand(cli *kingpin.Application, std streams) command {
	cmd := cli.Command("journal-reader", "Read the journal for a startupd that started this process.").Hidden()
	return command{name: cmd.FullCommand(), run: func(ctx context.Context) error {
		signal.Ignore(syscall.SIGINT)
		return journal.RunReader(ctx, std.in, std.out)
	}}
}

func gpuReaderCommand(cli *kingpin.Application, std streams) command {
	cmd := cli.Command("gpu-reader", "Read NVML for a startupd that started this process.").Hidden()
	library := cmd.Flag("gpu.nvml-library", "Path of libnvidia-ml.so.1.").String()
	return command{name: cmd.FullCommand(), run: func(ctx context.Context) error {
		signal.Ignore(syscall.SIGINT)
		return gpu.RunReader(ctx, gpu.ReaderOptions{Library: *library}, std.in, std.out)
	}}
}
