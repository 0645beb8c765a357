package fitness

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/startupd/startupd/pkg/history"
)

func checkUnit(ctx context.Context, h *host, name string) outcome {
	if h.elsewhere() {
		return outcome{}
	}
	p, err := h.properties(ctx, name)
	if err != nil {
		return unknown("systemd can't be asked", "see the check of the system bus")
	}
	switch state := p.text("LoadState"); state {
	case "loaded":
	case "not-found":
		return fail("systemd knows no such unit", "compare the name with `systemctl list-unit-files`; after a new file: systemctl daemon-reload")
	case "masked":
		return fail("the unit is masked: it can't start", "systemctl unmask "+name)
	default:
		return fail(fmt.Sprintf("its file can't be loaded (%s)", state), "systemctl status "+name+" says why")
	}
	kind := p.text("Type")
	if kind == "" {
		kind = "unknown"
	}
	detail := fmt.Sprintf("loaded, %s, Type=%s", p.text("ActiveState"), kind)
	if p.flag("NeedDaemonReload") {
		return warn(detail+"; its file has changed since", "systemctl daemon-reload")
	}
	return outcome{status: OK, detail: detail}
}

// checkOutput tells whether what the engine prints reaches the journal.
func checkOutput(ctx context.Context, h *host, name string) outcome {
	if h.elsewhere() {
		return outcome{}
	}
	p, out := h.loaded(ctx, name)
	if out.status != "" {
		return out
	}
	if ns := p.text("LogNamespace"); ns != "" {
		return fail(fmt.Sprintf("its log goes to a journal of its own (LogNamespace=%s), which startupd does not read", ns),
			"remove LogNamespace= from the unit, or watch it with --journal.dir=/var/log/journal/MACHINE-ID."+ns)
	}
	if o := checkFilters(p); o.status != "" {
		return o
	}
	stdout, stderr := p.text("StandardOutput"), p.text("StandardError")
	if stdout == "inherit" && p.text("StandardInput") == "null" {
		stdout = "null"
	}
	if stderr == "inherit" {
		stderr = stdout
	}
	file := dropIn(name, "output", "[Service]", "StandardOutput=journal", "StandardError=journal")
	const do = "write the file, systemctl daemon-reload, and restart the unit"
	lostOut, lostErr := !toJournal(stdout), !toJournal(stderr)
	var o outcome
	switch {
	case stdout == "":
		return unknown("where its output goes: systemd does not tell", "")
	case lostOut && lostErr:
		o = fail(fmt.Sprintf("what it prints never reaches the journal (StandardOutput=%s, StandardError=%s)", stdout, stderr), do)
	case lostOut:
		o = warn(fmt.Sprintf("its standard output does not reach the journal (StandardOutput=%s)", stdout), do)
	case lostErr:
		o = warn(fmt.Sprintf("its standard error does not reach the journal (StandardError=%s): tracebacks are lost", stderr), do)
	default:
		return ok("it goes to the journal")
	}
	o.write = file
	return o
}

func toJournal(output string) bool {
	to, _, _ := strings.Cut(output, "+")
	return to == "journal" || to == "syslog"
}

// checkFilters looks for what keeps lines out of the journal; the zero outcome is
// that nothing does.
func checkFilters(p properties) outcome {
	level, isSet := p["LogLevelMax"].(int32)
	own, known := p["SyslogLevel"].(int32)
	if !known {
		own = 6
	}
	if isSet && level >= 0 && level < own {
		return fail(fmt.Sprintf("LogLevelMax=%d keeps its lines out of the journal: they have level %d", level, own), "remove LogLevelMax= from the unit")
	}
	if patterns, _ := p["LogFilterPatterns"].([][]any); len(patterns) > 0 {
		return warn("LogFilterPatterns= keeps some of its lines out of the journal", "remove it from the unit, or see that no line of the engine's start is among them")
	}
	return outcome{}
}

// checkTimeout compares the time that systemd gives a start with what the good
// ones took.
func checkTimeout(ctx context.Context, h *host, name string) outcome {
	if h.elsewhere() {
		return outcome{}
	}
	p, out := h.loaded(ctx, name)
	if out.status != "" {
		return out
	}
	limit, known := p.span("TimeoutStartUSec")
	if !known {
		return outcome{} // no service
	}
	waits := slices.Contains([]string{"notify", "notify-reload", "forking", "dbus", "oneshot"}, p.text("Type")) || p.commands("ExecStartPost")
	switch {
	case !waits:
		return ok("systemd does not wait for the engine (Type=%s)", p.text("Type"))
	case limit == infinite || limit == 0:
		return ok("none (TimeoutStartSec=infinity)")
	}
	typical, longest, n := h.goodStarts(ctx, name)
	if n == 0 {
		return ok("%s; no good start is on record to compare it with", limit)
	}
	if need := longest + longest/2; limit < need {
		o := warn(fmt.Sprintf("systemd ends a start after %s; of %s the longest took %s", limit, count(n, "good start"), longest.Round(time.Second)),
			"give it more time: write the file, and systemctl daemon-reload")
		o.write = dropIn(name, "timeout", "[Service]", fmt.Sprintf("TimeoutStartSec=%d", int(max(2*longest, time.Minute).Seconds())))
		return o
	}
	return ok("%s; a good start takes %s, the longest of %d took %s", limit, typical.Round(time.Second), n, longest.Round(time.Second))
}

// goodStarts are the median and the longest of the starts that served, and how
// many there are.
func (h *host) goodStarts(ctx context.Context, name string) (typical, longest time.Duration, n int) {
	if h.o.App.StateDir == "" {
		return 0, 0, 0
	}
	records, err := history.In(h.path(h.o.App.StateDir), history.Limits{}).List(ctx, name, 0)
	if err != nil {
		return 0, 0, 0
	}
	var took []time.Duration
	for _, r := range records {
		if r.Outcome == "serving" && r.Seconds != nil && !r.AttachedLate {
			took = append(took, time.Duration(*r.Seconds*float64(time.Second)))
		}
	}
	if len(took) == 0 {
		return 0, 0, 0
	}
	slices.Sort(took)
	return took[len(took)/2], took[len(took)-1], len(took)
}
