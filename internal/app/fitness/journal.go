package fitness

import (
	"context"
	"fmt"
	"math"
	"os/exec"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/startupd/startupd/internal/app"
	"github.com/startupd/startupd/pkg/event"
	"github.com/startupd/startupd/pkg/journal"
)

func checkJournalRight(ctx context.Context, h *host) outcome {
	dir := h.o.App.Journal.Dir
	files, err := journal.LookAtFiles(dir)
	if err != nil {
		return fail("no entry can be read: "+err.Error(), "")
	}
	detail := fmt.Sprintf("%s can be read", count(files.Readable, "file"))
	if len(files.Broken) > 0 {
		return warn(fmt.Sprintf("%s; %s no whole journal file", detail, strings.Join(files.Broken, ", ")), "look at it with journalctl --verify; journald puts it aside by itself")
	}
	if files.Denied > 0 {
		return warn(fmt.Sprintf("%s, %d can't", detail, files.Denied), "add the user to group systemd-journal")
	}
	e, err := journal.NewExaminer(h.o.App.Journal)
	if err != nil || dir != "" {
		return outcome{status: OK, detail: detail} // the reader has its own check
	}
	span, err := e.Manager(ctx)
	switch {
	case err != nil:
		return unknown(fmt.Sprintf("the journal's entries: %v", err), "see the check of its reader")
	case span.Last.IsZero():
		return fail("the files can be opened, and hold no entry of systemd's", "is it this host's journal? Is systemd-journald running?")
	}
	return outcome{status: OK, detail: detail + ", with entries of other units than one's own"}
}

func checkReader(ctx context.Context, h *host) outcome {
	e, err := journal.NewExaminer(h.o.App.Journal)
	if err != nil {
		return fail(err.Error(), "choose another with --journal.reader")
	}
	if _, out := h.examiner(); out.status != "" {
		return unknown(fmt.Sprintf("%s is there; whether it reads can't be told", e.Kind()), out.do)
	}
	if _, err := e.Span(ctx, journal.TargetSpec{}); err != nil {
		return fail(fmt.Sprintf("%s does not read: %v", e.Kind(), err), "choose another with --journal.reader")
	}
	detail := string(e.Kind()) + " reads"
	if e.Kind() == journal.ReaderJournalctl {
		if v := firstLine(ctx, "journalctl", "--version"); v != "" {
			detail += ", " + v
		}
		if h.o.App.Journal.Kind != journal.ReaderJournalctl {
			detail += fmt.Sprintf("; sdjournal, which is faster, can't: %v", journal.Available())
		}
	}
	return outcome{status: OK, detail: detail}
}

// firstLine is the first line that a command prints; "" when it fails.
func firstLine(ctx context.Context, argv ...string) string {
	out, err := exec.CommandContext(ctx, argv[0], argv[1:]...).Output()
	if err != nil {
		return ""
	}
	line, _, _ := strings.Cut(string(out), "\n")
	return line
}

// short is a reach of the journal in which a slow start and the one before it may
// not both be.
const short = 24 * time.Hour

// checkStorage tells where the journal is kept, and how far back it reaches.
func checkStorage(ctx context.Context, h *host) outcome {
	if h.elsewhere() {
		return outcome{}
	}
	conf, err := h.journald()
	if err != nil {
		return unknown(err.Error(), "mend the file")
	}
	storage := conf["Storage"]
	if storage == "none" {
		return fail("journald keeps nothing (Storage=none)", "set Storage=persistent in /etc/systemd/journald.conf and restart systemd-journald")
	}
	files, err := journal.LookAtFiles("")
	if err != nil {
		return unknown("nothing of it can be read", "see the check of the right to the journal")
	}
	e, err := journal.NewExaminer(h.o.App.Journal)
	if err != nil {
		return unknown(err.Error(), "")
	}
	span, err := e.Span(ctx, journal.TargetSpec{})
	if err != nil {
		return unknown(err.Error(), "see the check of the journal's reader")
	}
	reach := h.o.Now().Sub(span.First.Real)
	detail := fmt.Sprintf("%s, back to %s (%s)", size(files.Bytes), wall(span.First), age(reach))
	if !files.Persistent {
		return withFile(warn(detail+", in memory: a reboot loses it",
			"keep it on disk: write the file, and systemctl restart systemd-journald; systemctl kill --signal=SIGUSR1 systemd-journald"),
			"/etc/systemd/journald.conf.d/startupd-storage.conf", "[Journal]\nStorage=persistent\n")
	}
	limit, known := maxUse(conf, h.path("/var/log/journal"))
	if known && reach < short && float64(files.Bytes) > 0.8*float64(limit) {
		return withFile(warn(fmt.Sprintf("%s, of %s allowed: the start before the present one may be gone already", detail, size(limit)),
			"let it keep more: write the file, and systemctl restart systemd-journald"),
			"/etc/systemd/journald.conf.d/startupd-size.conf", "[Journal]\nSystemMaxUse="+gib(4*limit)+"\n")
	}
	return outcome{status: OK, detail: detail + ", on disk"}
}

func withFile(o outcome, path, text string) outcome {
	o.write = []File{{Path: path, Text: text}}
	return o
}

// maxUse is how much journald keeps on disk: as configured, else a tenth of the
// file system and at most 4 GiB.
func maxUse(conf journald, dir string) (limit uint64, known bool) {
	if v, ok := conf["SystemMaxUse"]; ok {
		n, err := parseBytes(v)
		return n, err == nil
	}
	var fs unix.Statfs_t
	if err := unix.Statfs(dir, &fs); err != nil {
		return 0, false
	}
	return min(fs.Blocks*uint64(fs.Bsize)/10, 4<<30), true
}

func gib(n uint64) string { return fmt.Sprintf("%dG", max(1, (n+1<<30-1)>>30)) }

func checkLineMax(_ context.Context, h *host) outcome {
	if h.elsewhere() {
		return outcome{}
	}
	conf, err := h.journald()
	if err != nil {
		return unknown(err.Error(), "mend the file")
	}
	n, err := conf.lineMax()
	if err != nil {
		return unknown("journald.conf: LineMax: "+err.Error(), "mend the file")
	}
	if n < defaultLineMax {
		return withFile(warn(fmt.Sprintf("journald cuts lines at %s: a long traceback or list of arguments is lost", size(n)), "raise it: write the file, and systemctl restart systemd-journald"),
			"/etc/systemd/journald.conf.d/startupd-line.conf", "[Journal]\nLineMax=48K\n")
	}
	return ok("journald cuts lines at %s", size(n))
}

// examiner opens the journal. Where no entry of it can be read, other checks have
// said so, and the outcome is not empty.
func (h *host) examiner() (*journal.Examiner, outcome) {
	if _, err := journal.LookAtFiles(h.o.App.Journal.Dir); err != nil {
		return nil, unknown("no entry of the journal can be read", "see the check of the right to the journal")
	}
	e, err := journal.NewExaminer(h.o.App.Journal)
	if err != nil {
		return nil, unknown("the journal can't be read", "see the check of its reader")
	}
	return e, outcome{}
}

func checkKernel(ctx context.Context, h *host) outcome {
	e, out := h.examiner()
	if e == nil {
		return out
	}
	span, err := e.Kernel(ctx)
	switch {
	case err != nil:
		return unknown(err.Error(), "see the check of the journal's reader")
	case span.Last.IsZero():
		return warn("the journal holds no line of the kernel's: an OOM kill, a segfault or an Xid is not seen",
			"in a container, read the host's journal (mount /var/log/journal, /run/log/journal and /etc/machine-id); else see that ReadKMsg= is not off in journald.conf")
	}
	return ok("the newest is of %s", wall(span.Last))
}

// spec says which entries are a unit's log.
func spec(t app.Target, unit string) journal.TargetSpec {
	if t.Container != "" {
		return journal.TargetSpec{Container: t.Container}
	}
	return journal.TargetSpec{Unit: unit}
}

func checkEntries(ctx context.Context, h *host, name string) outcome {
	e, out := h.examiner()
	if e == nil {
		return out
	}
	t := h.target(name)
	span, err := e.Span(ctx, spec(t, name))
	if err != nil {
		return unknown(err.Error(), "see the check of the journal's reader")
	}
	if !span.First.IsZero() {
		return ok("from %s to %s", wall(span.First), wall(span.Last))
	}
	if t.Container != "" {
		return warn(fmt.Sprintf("the journal has no line of container %s", t.Container), "run it with the log driver journald (docker run --log-driver=journald)")
	}
	p, _ := h.properties(ctx, name)
	if p.text("ActiveState") == "active" && !h.elsewhere() {
		return fail("it runs, and the journal has no line of it", "see the check of its output")
	}
	return unknown("its log: the journal has no line of it; it has not run, or its lines are gone", "")
}

// lowRate is a limit, in lines a second, that a start of many processes can reach:
// journald's own default.
const lowRate = float64(defaultBurst) / 30

// recently is for how long lines that were lost count.
const recently = 7 * 24 * time.Hour

// checkRate looks at the limit of lines, and whether it was hit.
func checkRate(ctx context.Context, h *host, name string) outcome {
	if h.elsewhere() || h.target(name).Container != "" {
		return outcome{}
	}
	p, out := h.loaded(ctx, name)
	if out.status != "" {
		return out
	}
	conf, err := h.journald()
	if err != nil {
		return unknown(err.Error(), "mend the file")
	}
	limit, err := conf.rate()
	if err != nil {
		return unknown(err.Error(), "mend the file")
	}
	text := limit.String() + ", journald's"
	// 0 does not lift journald's limit: systemd does not pass it on.
	interval, _ := p.span("LogRateLimitIntervalUSec")
	if burst, _ := p.number("LogRateLimitBurst"); interval > 0 && burst > 0 {
		limit = rate{interval, burst}
		text = limit.String() + ", its own"
	}
	e, out := h.examiner()
	if e == nil {
		return unknown(fmt.Sprintf("whether lines were dropped (%s): %s", text, out.detail), out.do)
	}
	sum, err := e.Suppressed(ctx, name, h.o.Now().Add(-recently))
	if err != nil {
		return unknown(fmt.Sprintf("whether lines were dropped (%s): %v", text, err), "see the check of the journal's reader")
	}
	return judgeRate(name, limit, text, sum)
}

func judgeRate(name string, limit rate, text string, sum journal.Suppressed) outcome {
	o := outcome{
		status: Warning, do: "allow it more: write the file, systemctl daemon-reload, and restart the unit when that is convenient",
		write: dropIn(name, "rate-limit", "[Service]", "LogRateLimitIntervalSec=1s", "LogRateLimitBurst=100000"),
	}
	switch {
	case sum.Times > 0:
		o.detail = fmt.Sprintf("journald has dropped %s in the last week, last at %s (%s)", count(sum.Lines, "line"), wall(sum.Last), text)
	case !limit.off() && limit.perSecond() < math.Floor(lowRate):
		o.detail = text + ": a start of many processes writes more at times, and lines would be lost"
	default:
		return ok("%s; nothing was dropped in the last week", text)
	}
	return o
}

func wall(s event.Stamp) string {
	if s.IsZero() {
		return "never"
	}
	return s.Real.Local().Format(time.DateTime)
}

// age is a duration as people say it.
func age(d time.Duration) string {
	switch {
	case d >= 48*time.Hour:
		return fmt.Sprintf("%d days", int(d.Hours()/24))
	case d >= 2*time.Hour:
		return fmt.Sprintf("%d hours", int(d.Hours()))
	}
	return d.Round(time.Second).String()
}

// size is a number of bytes as people say it.
func size(n uint64) string {
	const units = "KMGTPE"
	if n < 1<<10 {
		return fmt.Sprintf("%d B", n)
	}
	v, i := float64(n)/1024, 0
	for v >= 1024 && i < len(units)-1 {
		v, i = v/1024, i+1
	}
	return fmt.Sprintf("%.1f %ciB", v, units[i])
}
