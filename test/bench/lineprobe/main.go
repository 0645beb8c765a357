// Command lineprobe plays a unit that startupd watches, for the benchmarks. It
// runs inside their container and must not know how its lines come to be
// metrics.
//
//	lineprobe latency N METRICS_URL RESULT_FILE
//	lineprobe flood N FIRST_FILE LOOP_FILE
//
// latency writes N lines, each as soon as /metrics shows the one before, and
// stores how long each took, in nanoseconds, one a line. flood writes N lines
// as fast as they are taken: those of FIRST_FILE, then those of LOOP_FILE over
// and over, and waits to be stopped.
package main

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/signal"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// family counts the lines that startupd has applied.
const family = "startupd_journal_lines_total{"

func main() {
	if err := run(os.Args[1:]); err != nil {
		fmt.Fprintf(os.Stderr, "lineprobe: %v\n", err)
		os.Exit(1)
	}
}

func run(args []string) error {
	if len(args) != 4 {
		return errors.New("usage: lineprobe latency N METRICS_URL RESULT_FILE | flood N FIRST_FILE LOOP_FILE")
	}
	n, err := strconv.Atoi(args[1])
	if err != nil {
		return err
	}
	switch args[0] {
	case "latency":
		return latency(n, args[2], args[3])
	case "flood":
		return flood(n, args[2], args[3])
	}
	return fmt.Errorf("unknown mode %q", args[0])
}

// latency measures n lines.
func latency(n int, url, result string) error {
	seen, err := settled(url)
	if err != nil {
		return err
	}
	var out bytes.Buffer
	for i := range n {
		// Lines come at all moments of a reader's cycle, not right after it.
		time.Sleep(time.Duration(50+i*37%101) * time.Millisecond)
		began := time.Now()
		fmt.Printf("probe %d\n", i)
		for now := seen; now <= seen; {
			if time.Since(began) > 30*time.Second {
				return fmt.Errorf("line %d is not on %s after 30 s", i, url)
			}
			time.Sleep(time.Millisecond)
			if now, err = applied(url); err != nil {
				return err
			}
			if now > seen {
				fmt.Fprintln(&out, time.Since(began).Nanoseconds())
				seen = now
				break
			}
		}
	}
	return os.WriteFile(result, out.Bytes(), 0o644)
}

// settled waits until the count of lines has been still for a second: systemd's
// own lines about the start have come.
func settled(url string) (float64, error) {
	last, since := -1.0, time.Now()
	for began := time.Now(); time.Since(began) < time.Minute; time.Sleep(50 * time.Millisecond) {
		now, err := applied(url)
		if err != nil || now != last {
			last, since = now, time.Now()
			continue
		}
		if time.Since(since) > time.Second {
			return now, nil
		}
	}
	return 0, fmt.Errorf("%s does not come to rest within a minute", url)
}

// applied reads the count of applied lines.
func applied(url string) (float64, error) {
	resp, err := http.Get(url)
	if err != nil {
		return 0, err
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		return 0, err
	}
	_, rest, ok := strings.Cut(string(body), "\n"+family)
	if !ok {
		return 0, fmt.Errorf("%s has no %s", url, family)
	}
	line, _, _ := strings.Cut(rest, "\n")
	return strconv.ParseFloat(line[strings.LastIndexByte(line, ' ')+1:], 64)
}

func flood(n int, first, loop string) error {
	w := bufio.NewWriterSize(os.Stdout, 1<<16)
	done, err := write(w, first, n)
	for err == nil && done < n {
		var wrote int
		wrote, err = write(w, loop, n-done)
		done += wrote
		if wrote == 0 {
			return fmt.Errorf("%s is empty", loop)
		}
	}
	if err == nil {
		err = w.Flush()
	}
	if err != nil {
		return err
	}
	stop := make(chan os.Signal, 1)
	signal.Notify(stop, syscall.SIGTERM)
	<-stop
	return nil
}

// write copies at most n lines of a file and returns how many.
func write(w io.Writer, file string, n int) (int, error) {
	text, err := os.ReadFile(file)
	if err != nil {
		return 0, err
	}
	done := 0
	for line := range bytes.Lines(text) {
		if done == n {
			break
		}
		if _, err := w.Write(line); err != nil {
			return done, err
		}
		done++
	}
	return done, nil
}
