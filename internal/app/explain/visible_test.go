package explain

import (
	"strings"
	"testing"
	"unicode"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"
)

func TestVisible(t *testing.T) {
	for in, want := range map[string]string{
		"":                        "",
		"plain text":              "plain text",
		"größe 模型 ✓":              "größe 模型 ✓",
		"\x1b[31mred\x1b[0m":      `\x1b[31mred\x1b[0m`,
		"bell\a back\b del\x7f":   `bell\a back\b del\x7f`,
		"c1 \u009b31m":            `c1 \u009b31m`,
		"broken \xff\xc3(":        `broken \xff\xc3(`,
		"a\tb\nc\u00a0d":          "a b c d",
		"over\u202eride\u2066":    `over\u202eride\u2066`,
		"zero\u200bwidth\ufeff":   `zero\u200bwidth\ufeff`,
		"tag\U000e0041":           `tag\U000e0041`,
		"line\u2028sep\r":         `line\u2028sep\r`,
		"quoted 'a' \"b\" \\x1b ": "quoted 'a' \"b\" \\x1b ",
	} {
		if got := Visible(in); got != want {
			t.Errorf("Visible(%q) = %q, want %q", in, got, want)
		}
	}
}

func FuzzVisible(f *testing.F) {
	f.Add(nasty, 20)
	f.Add("模型模型 模型\u0301\u0301", 3)
	f.Fuzz(func(t *testing.T, s string, n int) {
		got := Visible(s)
		if !utf8.ValidString(got) || strings.ContainsFunc(got, func(r rune) bool { return !unicode.IsPrint(r) }) {
			t.Errorf("Visible(%q) = %q", s, got)
		}
		if again := Visible(got); again != got {
			t.Errorf("Visible(%q) = %q", got, again)
		}
		n = 4 + max(n, -n)%200
		if c := cut(got, n); n >= 0 && columns(c) > n {
			t.Errorf("cut(%q, %d) = %q", got, n, c)
		}
		lines := wrap(got, n)
		for _, l := range lines {
			if n >= 0 && columns(l) > n {
				t.Errorf("wrap(%q, %d) has %q", got, n, l)
			}
		}
		if joined := strings.Join(lines, ""); strings.ReplaceAll(joined, " ", "") != strings.Join(strings.Fields(got), "") {
			t.Errorf("wrap(%q, %d) = %q", got, n, lines)
		}
	})
}

func TestWrap(t *testing.T) {
	for _, tt := range []struct {
		text string
		n    int
		want []string
	}{
		{"", 10, []string{""}},
		{"one two three", 8, []string{"one two", "three"}},
		{"abcdefgh ij", 3, []string{"abc", "def", "gh", "ij"}},
		{"模型模型", 5, []string{"模型", "模型"}},
		{"a  b", 80, []string{"a b"}},
	} {
		if diff := cmp.Diff(tt.want, wrap(tt.text, tt.n)); diff != "" {
			t.Errorf("wrap(%q, %d): %s", tt.text, tt.n, diff)
		}
	}
}

func TestCut(t *testing.T) {
	for _, tt := range []struct {
		text string
		n    int
		want string
	}{
		{"short", 5, "short"},
		{"longer text", 8, "longe..."},
		{"模型模型模型", 8, "模型..."},
		{"ab", 1, "..."},
	} {
		if got := cut(tt.text, tt.n); got != tt.want {
			t.Errorf("cut(%q, %d) = %q, want %q", tt.text, tt.n, got, tt.want)
		}
	}
}
