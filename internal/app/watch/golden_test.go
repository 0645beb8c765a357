package watch

import (
	"flag"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
	"unicode"

	tea "charm.land/bubbletea/v2"
	"github.com/charmbracelet/x/ansi"
	"github.com/google/go-cmp/cmp"

	"github.com/startupd/startupd/internal/app/observe"
	"github.com/startupd/startupd/pkg/web/api"
)

var update = flag.Bool("update", false, "rewrite the golden files")

// screen is one size and kind of terminal.
type screen struct {
	width, height int
	color, ascii  bool
}

func (s screen) String() string {
	text := fmt.Sprintf("%dx%d", s.width, s.height)
	if s.color {
		text += " color"
	}
	if s.ascii {
		text += " ascii"
	}
	return text
}

// draw returns the screen as the live view draws it.
func draw(s *api.Status, on screen) string {
	m := newModel(Options{Color: on.color, ASCII: on.ascii, Zone: time.UTC}, func() time.Time { return s.At })
	m.Update(tea.WindowSizeMsg{Width: on.width, Height: on.height})
	m.Update(updateMsg(observe.Update{Status: s, Daemon: true, Settled: true}))
	return m.frame()
}

func TestGoldenScreens(t *testing.T) {
	screens := []screen{{80, 24, false, false}, {80, 24, true, false}, {120, 40, false, false}, {40, 15, false, false}, {40, 15, true, false}, {200, 40, false, false}, {80, 24, false, true}}
	for name, s := range scenes() {
		t.Run(name, func(t *testing.T) {
			var b strings.Builder
			for _, on := range screens {
				fmt.Fprintf(&b, "-- %s --\n%s\n", on, draw(s, on))
			}
			golden(t, name+".screens.txt", visible(b.String()))
		})
	}
}

func TestGoldenTexts(t *testing.T) {
	for name, s := range scenes() {
		t.Run(name, func(t *testing.T) {
			text := Text(s, s.At, false, Options{Width: 100, Zone: time.UTC})
			golden(t, name+".status.txt", text)
			if ansi.Strip(Text(s, s.At, false, Options{Width: 100, Zone: time.UTC, Color: true})) != text {
				t.Error("colours change the text")
			}
		})
	}
}

// visible makes escape sequences readable in a golden file.
func visible(text string) string { return strings.ReplaceAll(text, "\x1b", "␛") }

func golden(t *testing.T, name, got string) {
	t.Helper()
	path := filepath.Join("testdata", name)
	if *update {
		if err := os.WriteFile(path, []byte(got), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(want), got); diff != "" {
		t.Errorf("%s is not as drawn (-update rewrites it):\n%s", path, diff)
	}
}

// TestScreensFit draws everything at many sizes: as many lines as the screen
// has, none wider, and no character that the terminal would obey.
func TestScreensFit(t *testing.T) {
	for _, name := range slices.Sorted(maps.Keys(scenes())) {
		s := scenes()[name]
		for width := 20; width <= 220; width += 17 {
			for _, height := range []int{3, 10, 24, 60} {
				for _, ascii := range []bool{false, true} {
					on := screen{width, height, ascii, ascii}
					checkFit(t, name, draw(s, on), on)
				}
			}
		}
	}
}

func checkFit(t *testing.T, name, frame string, on screen) {
	t.Helper()
	lines := strings.Split(frame, "\n")
	if len(lines) != on.height {
		t.Errorf("%s at %s has %d lines", name, on, len(lines))
	}
	for i, l := range lines {
		if w := ansi.StringWidth(l); w > on.width {
			t.Errorf("%s at %s: line %d has %d columns: %q", name, on, i, w, l)
		}
		bare := l
		if on.color {
			bare = sgr(t, l)
		}
		for _, r := range bare {
			if !unicode.IsPrint(r) || on.ascii && r > '~' {
				t.Errorf("%s at %s: line %d holds %q: %q", name, on, i, r, l)
				break
			}
		}
	}
}

// sgr removes the colours, and nothing else, from a line.
func sgr(t *testing.T, line string) string {
	t.Helper()
	var b strings.Builder
	for {
		before, after, found := strings.Cut(line, "\x1b[")
		b.WriteString(before)
		if !found {
			return b.String()
		}
		end := strings.IndexFunc(after, func(r rune) bool { return r != ';' && !unicode.IsDigit(r) })
		if end < 0 || after[end] != 'm' {
			t.Errorf("a sequence that is no colour: %q", line)
			return b.String()
		}
		line = after[end+1:]
	}
}

func TestTextFits(t *testing.T) {
	for name, s := range scenes() {
		for width := 20; width <= 220; width += 13 {
			for _, full := range []bool{false, true} {
				for _, l := range strings.Split(Text(s, s.At, full, Options{Width: width}), "\n") {
					if w := ansi.StringWidth(l); w > width {
						t.Errorf("%s at %d: %d columns: %q", name, width, w, l)
					}
				}
			}
		}
	}
}
