package app

import (
	"net"

	"go.uber.org/zap"

	"github.com/startupd/startupd/pkg/journal"
)

// greet logs what runs now: what is watched, how, and where it answers.
func (a *App) greet(addrs []net.Addr) {
	if a.live != nil {
		s := a.settings.Load()
		units := make([]string, 0, len(s.targets))
		for _, t := range s.targets {
			units = append(units, t.Unit)
		}
		fields := []zap.Field{zap.Strings("units", units), zap.String("journal_reader", a.reader())}
		if a.opt.Journal.Dir != "" {
			fields = append(fields, zap.String("journal_dir", a.opt.Journal.Dir))
		}
		a.said.Info("Watching", append(fields, zap.Bool("gpus", !a.opt.NoGPU), zap.String("state_dir", a.opt.StateDir))...)
	}
	for _, addr := range addrs {
		a.said.Info("Listening on", zap.Stringer("address", addr), zap.Bool("tls_or_password", *a.opt.Web.WebConfigFile != ""))
	}
}

// reader is the journal's reader that auto stands for here.
func (a *App) reader() string {
	kind := a.opt.Journal.Kind
	if kind == journal.ReaderAuto || kind == "" {
		kind = journal.ReaderSDJournal
		if journal.Available() != nil {
			kind = journal.ReaderJournalctl
		}
	}
	return string(kind)
}
