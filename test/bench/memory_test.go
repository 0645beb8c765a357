//go:build bench

package bench

import (
	"bytes"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/startupd/startupd/test/nspawn"
)

// mega is what the bounds count in: 10^6 bytes.
const mega = 1e6

// usage is the anonymous memory of a program, in bytes.
type usage struct{ own, tree float64 }

// anonymous reads the memory that a process and its descendants hold for
// themselves (RssAnon); pages of files, such as the journal's, are not theirs.
func anonymous(pid int) (usage, error) {
	own, err := rssAnon(pid)
	if err != nil {
		return usage{}, err
	}
	u := usage{own: own, tree: own}
	for _, child := range nspawn.Children(pid) {
		// A child that has ended since holds nothing.
		if c, err := anonymous(child); err == nil {
			u.tree += c.tree
		}
	}
	return u, nil
}

func rssAnon(pid int) (float64, error) { return status(pid, "RssAnon:") }

// status is a size in a process's /proc/PID/status, in bytes.
func status(pid int, field string) (float64, error) {
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		return 0, err
	}
	_, rest, ok := strings.Cut(string(b), field)
	if !ok {
		return 0, fmt.Errorf("process %d has no %s", pid, field)
	}
	kib, err := strconv.ParseFloat(strings.Fields(rest)[0], 64)
	return kib * 1024, err
}

// peaks follows a program's memory; progress (0 to 1) tells how far its input
// is. The program's first third is warm-up: growth is what the last third has
// over the second.
type peaks struct {
	own, tree    float64
	second, last float64
}

func (p *peaks) add(u usage, progress float64) {
	p.own, p.tree = max(p.own, u.own), max(p.tree, u.tree)
	switch {
	case progress > 2.0/3:
		p.last = max(p.last, u.tree)
	case progress > 1.0/3:
		p.second = max(p.second, u.tree)
	}
}

func (p *peaks) report(b *testing.B, ownBound float64) {
	b.ReportMetric(0, "ns/op")
	atMost(b, "own-MB", p.own/mega, ownBound)
	atMost(b, "all-MB", p.tree/mega, 40)
	atMost(b, "growth-MB", (p.last-p.second)/mega, 2)
}

// BenchmarkMemoryText follows the memory of `explain` over a log that is piped
// into it.
func BenchmarkMemoryText(b *testing.B) {
	for _, log := range []struct {
		name string
		mix  mix
	}{{"served", served}, {"errors", errs}} {
		b.Run(log.name, func(b *testing.B) { memoryText(b, log.mix) })
	}
}

func memoryText(b *testing.B, log mix) {
	b.Helper()
	n := sized(3_000_000, 100_000)
	cmd := exec.Command(program(b), "explain", "--format=json", "-")
	cmd.Stderr = os.Stderr
	in, err := cmd.StdinPipe()
	if err != nil {
		b.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		b.Fatal(err)
	}
	sent := &counter{w: in}
	done := make(chan error, 1)
	go func() {
		defer in.Close()
		done <- writeText(sent, n, log)
	}()
	p := follow(b, cmd.Process.Pid, done, func() float64 { return sent.progress(n) })
	if err := cmd.Wait(); err != nil && cmd.ProcessState.ExitCode() < 0 {
		b.Fatal(err)
	}
	p.report(b, 40)
}

// follow samples memory until done answers.
func follow(b *testing.B, pid int, done <-chan error, progress func() float64) *peaks {
	b.Helper()
	var p peaks
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for {
		select {
		case err := <-done:
			if err != nil {
				b.Fatal(err)
			}
			return &p
		case <-tick.C:
			u, err := anonymous(pid)
			if err != nil {
				b.Fatal(err)
			}
			p.add(u, progress())
		}
	}
}

// counter counts the lines that pass through it.
type counter struct {
	w     io.Writer
	lines atomic.Int64
}

func (c *counter) Write(b []byte) (int, error) {
	n, err := c.w.Write(b)
	c.lines.Add(int64(bytes.Count(b[:n], []byte{'\n'})))
	return n, err
}

func (c *counter) progress(of int) float64 { return float64(c.lines.Load()) / float64(of) }
