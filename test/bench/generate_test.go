//go:build bench

package bench

import (
	"bufio"
	"bytes"
	"cmp"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

const (
	unit       = "llm-bench.service"
	corpus     = "../../testdata/corpus/"
	goodStart  = corpus + "058-serving-triton-sparsematrix-errors/log.txt"
	failedRun  = corpus + "001-free-mem-leftover-tp2/log.txt"
	bootID     = "5d6a3c1f0b7e4f6e9d2c8a4b1e0f3a72"
	machineID  = "0a1b2c3d4e5f60718293a4b5c6d7e8f9"
	msgStarted = "39f53479d3a045ac8e11786248231fbf"
	msgExit    = "98e322203f7a4ed290d09fe03c09fe15"
	msgFailed  = "d9b373ed55a64feb8242e02dbe79a49c"
	msgRestart = "5eb03494b6584870a536b337290809b3"
)

// sink takes the entries of a generated log.
type sink interface {
	// own is a line that a process of the unit writes.
	own(invocation int, text string)
	// manager is what systemd says of the unit.
	manager(invocation int, id, text string, fields ...string)
}

// served writes a start that works and then requests, n lines in all.
func served(n int, s sink) error {
	start, err := lines(goodStart)
	if err != nil {
		return err
	}
	request, err := requests()
	if err != nil {
		return err
	}
	s.manager(1, msgStarted, "Started "+unit+" - Language model server.")
	for _, l := range start {
		s.own(1, l)
	}
	for range n - 1 - len(start) {
		s.own(1, request())
	}
	return nil
}

// loop writes starts that fail and are restarted, n lines or a few more.
func loop(n int, s sink) error {
	start, err := lines(failedRun)
	if err != nil {
		return err
	}
	for i, done := 1, 0; done < n; i++ {
		s.manager(i, msgStarted, "Started "+unit+" - Language model server.")
		for _, l := range start {
			s.own(i, l)
		}
		s.manager(i, msgExit, unit+": Main process exited, code=exited, status=1/FAILURE",
			"COMMAND=ExecStart", "EXIT_CODE=exited", "EXIT_STATUS=1")
		s.manager(i, msgFailed, unit+": Failed with result 'exit-code'.", "UNIT_RESULT=exit-code")
		s.manager(i, msgRestart, fmt.Sprintf("%s: Scheduled restart job, restart counter is at %d.", unit, i),
			fmt.Sprintf("N_RESTARTS=%d", i))
		done += len(start) + 4
	}
	return nil
}

// errs writes one start that never ends and prints errors only, n lines or a few
// more: the failed run's tracebacks again and again, of ever other processes and
// with ever other words.
func errs(n int, s sink) error {
	start, err := lines(failedRun)
	if err != nil {
		return err
	}
	s.manager(1, msgStarted, "Started "+unit+" - Language model server.")
	var again []string
	for _, l := range start {
		s.own(1, l)
		if strings.Contains(l, "ERROR ") && !strings.Contains(l, "failed to start") {
			again = append(again, l)
		}
	}
	for i, done := 0, len(start); done < n; i++ {
		for _, l := range again {
			l = strings.NewReplacer("pid=", fmt.Sprintf("pid=%d", i), "ValueError: ", fmt.Sprintf("acme.Fault%dError: part-%c%c ", i, 'a'+i%26, 'a'+i/26%26)).Replace(l)
			s.own(1, l)
		}
		s.own(1, fmt.Sprintf("NCCL WARN part %d of %d is gone", i, 3*i))
		done += len(again) + 1
	}
	return nil
}

// lines reads a recorded log.
func lines(path string) ([]string, error) {
	b, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	return strings.Split(strings.TrimSuffix(string(b), "\n"), "\n"), nil
}

// requests returns a function that makes a server's request lines from the
// templates of testdata/requests.txt, the same ones in each run.
func requests() (func() string, error) {
	templates, err := lines(filepath.Join("testdata", "requests.txt"))
	if err != nil {
		return nil, err
	}
	r := rand.New(rand.NewPCG(1, 2))
	return func() string {
		return strings.NewReplacer(
			"{b}", fmt.Sprint(1+r.IntN(250)),
			"{port}", fmt.Sprint(1024+r.IntN(60000)),
			"{n}", fmt.Sprint(r.IntN(9000)),
			"{d}", fmt.Sprint(r.IntN(10)),
			"{mm}", fmt.Sprintf("%02d", r.IntN(60)),
			"{ss}", fmt.Sprintf("%02d", r.IntN(60)),
		).Replace(templates[r.IntN(len(templates))])
	}, nil
}

// text writes the unit's own lines as a plain log.
type text struct{ w *bufio.Writer }

func (t text) own(_ int, line string)                 { t.w.WriteString(line); t.w.WriteByte('\n') }
func (t text) manager(int, string, string, ...string) {}

// export writes entries in the Journal Export Format with the fields that
// journald gives them, among them some of another unit.
type export struct {
	w *bufio.Writer
	n int
	// of is the unit that writes; "" is unit.
	of string
	// live stamps entries with this machine's clocks, no two alike; last is the
	// newest stamp.
	live bool
	last int
}

func (e *export) unit() string { return cmp.Or(e.of, unit) }

func (e *export) own(invocation int, line string) {
	e.head("stdout")
	fmt.Fprintf(e.w, `PRIORITY=6
SYSLOG_FACILITY=3
SYSLOG_IDENTIFIER=python3
_STREAM_ID=%032x
_PID=8820
_UID=990
_GID=990
_COMM=python3
_EXE=/opt/llm/bin/python3
_CMDLINE=/opt/llm/bin/python3 /opt/llm/bin/serve --model /srv/models/acme
_CAP_EFFECTIVE=0
_SYSTEMD_CGROUP=/system.slice/%s
_SYSTEMD_UNIT=%s
_SYSTEMD_SLICE=system.slice
_SYSTEMD_INVOCATION_ID=%032x
`, invocation, e.unit(), e.unit(), invocation)
	e.message(line)
	if e.n%20 == 0 {
		e.stranger()
	}
}

func (e *export) manager(invocation int, id, line string, fields ...string) {
	e.head("journal")
	fmt.Fprintf(e.w, `PRIORITY=6
SYSLOG_FACILITY=3
SYSLOG_IDENTIFIER=systemd
_PID=1
_UID=0
_GID=0
_COMM=systemd
_EXE=/usr/lib/systemd/systemd
_CMDLINE=/sbin/init
_SYSTEMD_CGROUP=/init.scope
_SYSTEMD_UNIT=init.scope
UNIT=%s
INVOCATION_ID=%032x
MESSAGE_ID=%s
`, e.unit(), invocation, id)
	for _, f := range fields {
		e.w.WriteString(f + "\n")
	}
	e.message(line)
}

// stranger is an entry of a unit that nobody watches.
func (e *export) stranger() {
	e.head("syslog")
	e.w.WriteString(`PRIORITY=6
SYSLOG_IDENTIFIER=cron
_PID=777
_UID=0
_GID=0
_COMM=cron
_SYSTEMD_CGROUP=/system.slice/cron.service
_SYSTEMD_UNIT=cron.service
_SYSTEMD_INVOCATION_ID=000000000000000000000000000000ff
`)
	e.message("(root) CMD (true)")
}

// head begins an entry, 10 ms after the one before.
func (e *export) head(transport string) {
	e.n++
	const began, step = 1_769_902_651_000_000, 10_000
	real, mono, boot := began+e.n*step, 60_000_000+e.n*step, bootID
	if e.live {
		real, mono, boot = clocks()
		ahead := max(0, e.last+1-mono)
		real, mono = real+ahead, mono+ahead
		e.last = mono
	}
	fmt.Fprintf(e.w, `__REALTIME_TIMESTAMP=%d
__MONOTONIC_TIMESTAMP=%d
_BOOT_ID=%s
_MACHINE_ID=%s
_HOSTNAME=gpu-host
_TRANSPORT=%s
`, real, mono, boot, machineID, transport)
}

// clocks are this machine's wall clock and monotonic clock in microseconds, and
// its boot ID.
func clocks() (real, mono int, boot string) {
	var ts unix.Timespec
	_ = unix.ClockGettime(unix.CLOCK_MONOTONIC, &ts)
	b, _ := os.ReadFile("/proc/sys/kernel/random/boot_id")
	return int(time.Now().UnixMicro()), int(ts.Nano() / 1000), strings.ReplaceAll(strings.TrimSpace(string(b)), "-", "")
}

// message ends an entry. A text with control characters is a binary field.
func (e *export) message(line string) {
	if strings.ContainsFunc(line, func(r rune) bool { return r < ' ' && r != '\t' }) {
		e.w.WriteString("MESSAGE\n")
		size := uint64(len(line))
		for range 8 {
			e.w.WriteByte(byte(size))
			size >>= 8
		}
		e.w.WriteString(line + "\n\n")
		return
	}
	e.w.WriteString("MESSAGE=" + line + "\n\n")
}

// mix writes n lines of one kind of log.
type mix func(n int, s sink) error

// writeText makes a plain log of a mix.
func writeText(w io.Writer, n int, m mix) error {
	b := bufio.NewWriter(w)
	if err := m(n, text{b}); err != nil {
		return err
	}
	return b.Flush()
}

// writeExport makes a mix in the Journal Export Format.
func writeExport(w io.Writer, n int, m mix) error {
	b := bufio.NewWriterSize(w, 1<<16)
	if err := m(n, &export{w: b}); err != nil {
		return err
	}
	return b.Flush()
}

// textOf returns a plain log of a mix.
func textOf(n int, m mix) ([]byte, error) {
	var b bytes.Buffer
	err := writeText(&b, n, m)
	return b.Bytes(), err
}
