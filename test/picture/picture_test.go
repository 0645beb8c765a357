package main

import (
	"encoding/xml"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/charmbracelet/x/vt"
)

func TestDraw(t *testing.T) {
	e := vt.NewEmulator(20, 3)
	if _, err := e.WriteString("\x1b[1;31mbad\x1b[m <&>\r\n\x1b[32m██\x1b[m\x1b[2m░\x1b[m \x1b[7mx \x1b[m\r\n漢字"); err != nil {
		t.Fatal(err)
	}
	got := draw(e, 20, 3)
	for _, want := range []string{
		`fill="#ef6b73" opacity="1.00" font-weight="bold">bad</text>`, `>&lt;&amp;&gt;</text>`,
		`width="16.8" height="14" fill="#8cc265" opacity="1.00"/>`, `opacity="0.20"/>`, `fill="#16181d" opacity="1.00">x </text>`,
		`textLength="33.6" xml:space="preserve" fill="#d5d8df" opacity="1.00">漢字</text>`,
	} {
		if !strings.Contains(got, want) {
			t.Errorf("the picture lacks %s:\n%s", want, got)
		}
	}
	d := xml.NewDecoder(strings.NewReader(got))
	for {
		if _, err := d.Token(); errors.Is(err, io.EOF) {
			return
		} else if err != nil {
			t.Fatalf("no XML: %v", err)
		}
	}
}

func TestRun(t *testing.T) {
	out := filepath.Join(t.TempDir(), "a.svg")
	o := options{command: []string{"sh", "-c", "echo begin; printf 'shown\\033[2m%s' here; read x"}, columns: 40, rows: 5, patience: time.Minute}
	if err := run(o, "shownhere", out); err != nil {
		t.Fatal(err)
	}
	b, err := os.ReadFile(out)
	if err != nil || !strings.Contains(string(b), ">here</text>") {
		t.Errorf("%v: %s", err, b)
	}
	o.command = []string{"echo", "other"}
	if err := run(o, "shownhere", out); err == nil || !strings.Contains(err.Error(), "other") {
		t.Errorf("a program that shows something else: %v", err)
	}
	if err := run(options{}, ".", ""); err == nil {
		t.Error("nothing to draw is no error")
	}
}
