package fitness

import (
	"context"
	"time"
)

// check is one look. Exactly one of host and unit is set; one that does not apply
// returns the zero outcome.
type check struct {
	// code is stable, title is for people.
	code, title string
	host        func(context.Context, *host) outcome
	unit        func(context.Context, *host, string) outcome
	// deadline is a longer one than Options.Deadline; 0 is that.
	deadline time.Duration
}

// table are all checks, in the order in which they are shown.
func table() []check {
	return []check{
		{code: "user", title: "user", host: checkUser},
		{code: "config", title: "configuration", host: checkConfig},
		{code: "profiles", title: "profiles", host: checkProfiles},
		{code: "daemon", title: "daemon", host: checkDaemon},
		{code: "arguments", title: "daemon's arguments", host: checkArguments},
		{code: "journal_right", title: "right to the journal", host: checkJournalRight},
		{code: "journal_reader", title: "reader of the journal", host: checkReader},
		{code: "journal_storage", title: "storage of the journal", host: checkStorage},
		{code: "journal_line", title: "longest line", host: checkLineMax},
		{code: "kernel_lines", title: "kernel's lines", host: checkKernel},
		{code: "bus", title: "system bus", host: checkBus},
		{code: "gpu", title: "GPUs", host: checkGPU, deadline: gpuTime + time.Second},
		{code: "processes", title: "processes of others", host: checkProcesses},
		{code: "cgroup", title: "control groups", host: checkCgroup},
		{code: "state", title: "state directory", host: checkState},
		{code: "history", title: "history", host: checkHistory},
		{code: "web_config", title: "TLS and password", host: checkWebConfig},
		{code: "listen", title: "address", host: checkListen},
		{code: "clock", title: "clock", host: checkClock},
		{code: "boot", title: "boot ID", host: checkBoot},
		{code: "descriptors", title: "open files", host: checkDescriptors},

		{code: "unit", title: "unit", unit: checkUnit},
		{code: "unit_output", title: "output", unit: checkOutput},
		{code: "unit_entries", title: "entries", unit: checkEntries},
		{code: "unit_rate_limit", title: "rate limit", unit: checkRate},
		{code: "unit_timeout", title: "start's time-out", unit: checkTimeout},
		{code: "unit_vitals", title: "vital signs", unit: checkVitals},
	}
}
