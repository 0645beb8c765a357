//go:build bench

package bench

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/startupd/startupd/test/nspawn"
)

const (
	// streamRate is how many lines a second the unit writes.
	streamRate = 10_000
	// streamClients read events; one more does not read.
	streamClients = 9
	// linesPerStart is how many of them one start writes before it fails.
	linesPerStart = 2000
	// before is the invocation that runs before the clients come.
	before = 1
)

// BenchmarkStreams follows the memory of a daemon with ten clients on its stream
// of events, one of which does not read, while a unit writes 10,000 lines a
// second and fails and restarts five times a second. No client that reads may
// miss a change of state.
func BenchmarkStreams(b *testing.B) {
	n := sized(60*streamRate, 3*streamRate)
	dir := b.TempDir()
	files, state := filepath.Join(dir, "journal"), filepath.Join(dir, "state")
	for _, d := range []string{files, state} {
		if err := os.Mkdir(d, 0o755); err != nil {
			b.Fatal(err)
		}
	}
	journal, closeJournal := liveJournal(b, files)
	writer := &paced{export: export{w: bufio.NewWriter(journal), live: true}}
	writer.own(before, "a line from before startupd, which it does not count")
	writer.flush()
	writer.lines, writer.began = 0, time.Time{}
	addr := freeAddress(b)
	cmd := exec.Command(program(b), "serve", "--unit="+unit, "--journal.dir="+files, "--no-gpu", "--api.socket=",
		"--state.dir="+state, "--web.listen-address="+addr, "--log.level=warn")
	var log logged
	cmd.Stderr = &log
	if err := cmd.Start(); err != nil {
		b.Fatal(err)
	}
	defer func() {
		cmd.Process.Signal(os.Interrupt)
		cmd.Wait()
	}()
	url := "http://" + addr
	nspawn.Eventually(b, time.Minute, func() error {
		body, err := scrape(url + "/metrics")
		if err == nil && !strings.Contains(body, `startupd_source_up{source="journal",unit=""} 1`) {
			return errors.New("the journal has not been read")
		}
		return err
	})
	clients := follow10(b, addr)
	written := make(chan error, 1)
	go func() { written <- churn(n, writer) }()
	p, read := watchStreams(b, cmd.Process.Pid, url, n, written)
	closeJournal()
	// The first line is from before the daemon, which counts from its installation.
	held := held(b, files) - 1
	if body, err := scrape(url + "/metrics"); err == nil {
		b.Logf("%d lines written, %d in the journal, %.0f read; %g stale, %g gaps, %g restarts of the reader", writer.lines, held, read,
			value(body, "startupd_journal_stale_lines_total"), value(body, "startupd_journal_gaps_total"), value(body, "startupd_journal_reader_restarts_total"))
	}
	atMost(b, "lost-lines", max(0, float64(held)-read), 0)
	if read < float64(held) {
		b.Log(log.String())
	}
	starts := (n + linesPerStart - 1) / linesPerStart
	clients.report(b, log.String(), starts)
	atMost(b, "own-MB", p.own/mega, 30)
	atMost(b, "all-MB", p.tree/mega, 40)
	atMost(b, "growth-MB", (p.last-p.second)/mega, 2)
}

// watchStreams samples the daemon's memory until it has read all lines.
func watchStreams(b *testing.B, pid int, url string, n int, written <-chan error) (p *peaks, lines float64) {
	b.Helper()
	p = &peaks{}
	began, changed := time.Now(), time.Now()
	done := false
	nspawn.Poll(b, 50*time.Millisecond, 10*time.Minute, func() error {
		select {
		case err := <-written:
			if done = true; err != nil {
				b.Fatal(err)
			}
		default:
		}
		body, err := scrape(url + "/metrics")
		if err != nil {
			b.Fatal(err)
		}
		if now := value(body, "startupd_journal_lines_total"); now != lines {
			lines, changed = now, time.Now()
		}
		u, err := anonymous(pid)
		if err != nil {
			b.Fatal(err)
		}
		p.add(u, lines/float64(n))
		if !done || time.Since(changed) < 5*time.Second {
			return fmt.Errorf("%.0f lines so far", lines)
		}
		return nil
	})
	b.ReportMetric(0, "ns/op")
	b.ReportMetric(lines/changed.Sub(began).Seconds(), "lines/s")
	if rss, err := status(pid, "VmRSS:"); err == nil {
		b.ReportMetric(rss/mega, "rss-MB")
	}
	return p, lines
}

// held counts the unit's own lines in a journal.
func held(b *testing.B, dir string) int {
	b.Helper()
	out, err := exec.Command("journalctl", "-D", dir, "-o", "cat", "--output-fields=_PID", "_SYSTEMD_UNIT="+unit).Output()
	if err != nil {
		b.Fatal(err)
	}
	return bytes.Count(out, []byte{'\n'})
}

// churn writes starts that fail, n lines in all or some more.
func churn(n int, s *paced) error {
	failing, err := lines(failedRun)
	if err != nil {
		return err
	}
	request, err := requests()
	if err != nil {
		return err
	}
	for i := 1; (i-1)*linesPerStart < n; i++ {
		s.manager(i+1, msgStarted, "Started "+unit+" - Language model server.")
		for range linesPerStart - len(failing) {
			s.own(i+1, request())
		}
		for _, l := range failing {
			s.own(i+1, l)
		}
		s.manager(i+1, msgExit, unit+": Main process exited, code=exited, status=1/FAILURE", "COMMAND=ExecStart", "EXIT_CODE=exited", "EXIT_STATUS=1")
		s.manager(i+1, msgFailed, unit+": Failed with result 'exit-code'.", "UNIT_RESULT=exit-code")
	}
	s.flush()
	return nil
}

// paced writes own lines at streamRate.
type paced struct {
	export
	began time.Time
	lines int
}

func (p *paced) own(invocation int, line string) {
	if p.began.IsZero() {
		p.began = time.Now()
	}
	p.export.own(invocation, line)
	p.lines++
	if p.lines%100 != 0 {
		return
	}
	p.flush()
	if ahead := time.Until(p.began.Add(time.Duration(p.lines) * time.Second / streamRate)); ahead > 0 {
		<-time.After(ahead)
	}
}

func (p *paced) flush() { p.w.Flush() }

// liveJournal returns a pipe that systemd-journal-remote turns into a journal.
func liveJournal(b *testing.B, dir string) (w io.Writer, end func()) {
	b.Helper()
	cmd := exec.Command(journalRemote, "--split-mode=none", "--output="+filepath.Join(dir, "live.journal"), "-")
	cmd.Stderr = os.Stderr
	in, err := cmd.StdinPipe()
	if err != nil {
		b.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		b.Fatal(err)
	}
	end = sync.OnceFunc(func() {
		in.Close()
		cmd.Wait()
	})
	b.Cleanup(end)
	return in, end
}

// logged is a process's log.
type logged struct {
	mu   sync.Mutex
	text strings.Builder
}

func (l *logged) Write(b []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(b)
}

func (l *logged) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.String()
}

// streams are the clients of a daemon.
type streams struct {
	readers []*reader
	deaf    net.Conn
	wait    sync.WaitGroup
}

// reader is one client's view.
type reader struct {
	body        io.ReadCloser
	transitions []string
	failures    int
	// odd are events that say that something was missed.
	odd []string
}

// follow10 connects nine clients that read, and one that does not.
func follow10(b *testing.B, addr string) *streams {
	b.Helper()
	s := &streams{}
	for range streamClients {
		resp, err := http.Get("http://" + addr + "/api/v1/events")
		if err != nil || resp.StatusCode != http.StatusOK {
			b.Fatal(err, resp)
		}
		r := &reader{body: resp.Body}
		s.readers = append(s.readers, r)
		s.wait.Go(r.read)
	}
	conn, err := net.Dial("tcp", addr)
	if err != nil {
		b.Fatal(err)
	}
	_ = conn.(*net.TCPConn).SetReadBuffer(4 << 10)
	if _, err := io.WriteString(conn, "GET /api/v1/events HTTP/1.1\r\nHost: localhost\r\n\r\n"); err != nil {
		b.Fatal(err)
	}
	s.deaf = conn
	return s
}

func (r *reader) read() {
	in := bufio.NewReader(r.body)
	kind := ""
	for {
		line, err := in.ReadString('\n')
		if err != nil {
			return
		}
		if k, ok := strings.CutPrefix(line, "event: "); ok {
			kind = strings.TrimSpace(k)
		}
		data, ok := strings.CutPrefix(line, "data: ")
		switch {
		case !ok:
		case strings.Contains(data, fmt.Sprintf("%032x", before)): // may come before a client does
		case kind == "transition":
			r.transitions = append(r.transitions, data)
			if strings.Contains(data, `"to":"failed"`) {
				r.failures++
			}
		case kind == "dropped" || kind == "reset":
			r.odd = append(r.odd, kind+" "+data)
		}
	}
}

// report holds the clients' views against each other and against what happened.
func (s *streams) report(b *testing.B, log string, starts int) {
	b.Helper()
	// Of little data the buffers of the one that does not read hold everything.
	if given := strings.Count(log, "A stream of events is given up"); given > 1 || given == 0 && !*small {
		b.Errorf("%d streams were given up, want the one that does not read:\n%s", given, log)
	}
	s.deaf.Close()
	for _, r := range s.readers {
		r.body.Close()
	}
	s.wait.Wait()
	missed := 0
	for i, r := range s.readers {
		if len(r.odd) > 0 {
			b.Errorf("client %d: %v", i, r.odd)
		}
		missed += max(0, starts-r.failures)
		if strings.Join(r.transitions, "") != strings.Join(s.readers[0].transitions, "") {
			b.Errorf("clients 0 and %d have seen different changes", i)
		}
	}
	b.ReportMetric(float64(len(s.readers[0].transitions)), "transitions")
	atMost(b, "missed", float64(missed), 0)
	if missed > 0 {
		b.Errorf("%d of %d failures were missed in all:\n%s", missed, starts*len(s.readers), log)
	}
}
