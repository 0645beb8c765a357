// Command picture runs a program in a terminal and draws the screen as SVG,
// once it shows what is waited for. The pictures of the README are made by it
// (scripts/pictures).
//
//	go run ./test/picture -await 'SERVING' -o watch.svg startupd watch
package main

import (
	"context"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"regexp"
	"time"

	"github.com/charmbracelet/x/vt"
	"github.com/creack/pty"
)

func main() {
	var o options
	flag.IntVar(&o.columns, "columns", 100, "columns of the terminal")
	flag.IntVar(&o.rows, "rows", 30, "rows of the terminal")
	await := flag.String("await", ".", "expression that the screen's text must match")
	flag.DurationVar(&o.patience, "patience", 20*time.Minute, "how long to wait for it")
	out := flag.String("o", "", "picture to write (.svg)")
	flag.Parse()
	o.command = flag.Args()
	if err := run(o, *await, *out); err != nil {
		fmt.Fprintln(os.Stderr, "picture:", err)
		os.Exit(1)
	}
}

// options are a program and its terminal.
type options struct {
	command       []string
	columns, rows int
	await         *regexp.Regexp
	patience      time.Duration
}

func run(o options, await, out string) (err error) {
	if len(o.command) == 0 || out == "" {
		return fmt.Errorf("name a program, and a picture by -o")
	}
	if o.await, err = regexp.Compile(await); err != nil {
		return fmt.Errorf("-await: %w", err)
	}
	screen, err := o.play()
	if err != nil {
		return err
	}
	return os.WriteFile(out, []byte(draw(screen, o.columns, o.rows)), 0o644)
}

// play runs the program until the screen shows what is waited for.
func (o options) play() (*vt.Emulator, error) {
	ctx, stop := context.WithTimeout(context.Background(), o.patience)
	defer stop()
	cmd := exec.CommandContext(ctx, o.command[0], o.command[1:]...)
	cmd.Env = append(os.Environ(), "TERM=xterm-256color", "LC_ALL=C.UTF-8", "TZ=UTC", "NO_COLOR=")
	file, err := pty.StartWithSize(cmd, &pty.Winsize{Cols: uint16(o.columns), Rows: uint16(o.rows)})
	if err != nil {
		return nil, err
	}
	defer func() {
		stop()
		file.Close()
		_ = cmd.Wait()
	}()
	screen := vt.NewEmulator(o.columns, o.rows)
	// What the terminal answers to what the program asks.
	go func() { _, _ = io.Copy(file, screen) }()
	b := make([]byte, 4096)
	for {
		n, err := file.Read(b)
		_, _ = screen.Write(b[:n])
		if o.await.MatchString(screen.String()) {
			return screen, nil
		}
		if err != nil {
			return nil, fmt.Errorf("the program ended, or %s were over, before the screen matched %s:\n%s", o.patience, o.await, screen)
		}
	}
}
