package main

import (
	"bytes"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// output is what startupd prints for a command line that must work.
func output(t *testing.T, args ...string) string {
	t.Helper()
	var out, errs bytes.Buffer
	if code := run(args, streams{out: &out, err: &errs}); code != exitOK || errs.Len() > 0 {
		t.Fatalf("startupd %s: exit %d: %s", strings.Join(args, " "), code, errs.String())
	}
	return out.String()
}

// visible finds what the help lists, told from the help itself: the commands,
// and the flags of one of them.
func visibleCommands(help string) []string {
	_, list, _ := strings.Cut(help, "\nCommands:\n")
	var out []string
	for _, m := range regexp.MustCompile(`(?m)^([a-z]+(?: [a-z]+)*)\*?(?: |$)`).FindAllStringSubmatch(list, -1) {
		if m[1] != helpCommand {
			out = append(out, m[1])
		}
	}
	return out
}

func visibleFlags(help string) []string {
	var out []string
	for _, m := range regexp.MustCompile(`(?m)^  (?:-[a-z], |    )--(?:\[no-\])?([a-z.-]+)`).FindAllStringSubmatch(help, -1) {
		out = append(out, m[1])
	}
	return out
}

// plainPage is a page's text without roff's escapes.
func plainPage(page string) string {
	page = strings.NewReplacer(`\-`, "-", `\fB`, "", `\fP`, "").Replace(page)
	return strings.ReplaceAll(page, "--[no-]", "--")
}

func TestManTellsAll(t *testing.T) {
	commands := visibleCommands(output(t, "--help"))
	if !slices.Contains(commands, "serve") || !slices.Contains(commands, "rules test") || slices.Contains(commands, "man") {
		t.Fatalf("the help lists %q", commands)
	}
	program := plainPage(output(t, "man"))
	for _, path := range commands {
		words := strings.Fields(path)
		if !strings.Contains(program, "startupd-"+words[0]+"(1)") {
			t.Errorf("startupd(1) does not name %s", path)
		}
		page := plainPage(output(t, "man", words[0]))
		flags := visibleFlags(output(t, append(slices.Clone(words), "--help")...))
		if len(flags) < 4 {
			t.Fatalf("%s: the help lists the flags %q", path, flags)
		}
		for _, f := range flags {
			if !regexp.MustCompile(`(?m)^(-[a-z], )?--` + regexp.QuoteMeta(f) + `(=|$)`).MatchString(page) {
				t.Errorf("startupd-%s(1) has no --%s of `startupd %s`", words[0], f, path)
			}
		}
		if len(manTextOf(words[0]).examples) == 0 {
			t.Errorf("manTextOf has no example for %q", words[0])
		}
	}
}

// TestManLint has mandoc judge every page.
func TestManLint(t *testing.T) {
	t.Setenv("SOURCE_DATE_EPOCH", "1790000000")
	dir := filepath.Join(t.TempDir(), "man1")
	output(t, "man", "--dir", dir)
	pages, err := filepath.Glob(filepath.Join(dir, "*.1"))
	if err != nil || len(pages) < 5 || !slices.Contains(pages, filepath.Join(dir, "startupd-explain.1")) {
		t.Fatalf("pages %q: %v", pages, err)
	}
	out, err := exec.Command("mandoc", append([]string{"-T", "lint", "-W", "style"}, pages...)...).CombinedOutput()
	if err != nil || len(out) > 0 {
		t.Errorf("mandoc (of scripts/install-test-deps): %v\n%s", err, out)
	}
}

// TestManIsReproducible: a page has no time but the one that it is told.
func TestManIsReproducible(t *testing.T) {
	t.Setenv("SOURCE_DATE_EPOCH", "1790000000")
	page := output(t, "man", "serve")
	if !strings.HasPrefix(page, `.TH STARTUPD\-SERVE 1 "2026-09-21" "startupd`) {
		t.Errorf("got %.80q", page)
	}
	if again := output(t, "man", "serve"); again != page {
		t.Error("two runs differ")
	}
}

// TestManExamples has startupd parse each example; --help keeps it from being
// run.
func TestManExamples(t *testing.T) {
	for _, path := range append(visibleCommands(output(t, "--help")), "") {
		for _, e := range manTextOf(path).examples {
			for _, line := range e.lines {
				_, rest, ours := strings.Cut(line, "startupd ")
				if !ours || strings.HasPrefix(line, "curl") {
					continue
				}
				if i := strings.IndexAny(rest, "|>)"); i >= 0 {
					rest = rest[:i]
				}
				words, err := exec.Command("bash", "-c", "printf '%s\\0' "+rest).Output()
				if err != nil {
					t.Fatalf("%s: %v", line, err)
				}
				output(t, append(strings.Split(strings.TrimSuffix(string(words), "\x00"), "\x00"), "--help")...)
			}
		}
	}
}

func TestManRefuses(t *testing.T) {
	for _, tt := range []struct{ epoch, command, want string }{
		{"1790000000", "nonsense", "no command \"nonsense\"; `startupd --help` lists them"},
		{"yesterday", "serve", `SOURCE_DATE_EPOCH "yesterday" is no number of seconds since 1970`},
	} {
		t.Setenv("SOURCE_DATE_EPOCH", tt.epoch)
		var out, errs bytes.Buffer
		code := run([]string{"man", tt.command}, streams{out: &out, err: &errs})
		if code != exitUsage || out.Len() > 0 || !strings.Contains(errs.String(), tt.want) {
			t.Errorf("exit %d, %q, %q; want %q", code, out.String(), errs.String(), tt.want)
		}
	}
}

func TestRoff(t *testing.T) {
	for in, want := range map[string]string{
		"a `b c` d":              "a \\fBb c\\fP d\n",
		".a":                     "\\&.a\n",
		`it's "C:\x" ~^-`:        "it\\(aqs \\(dqC:\\ex\\(dq \\(ti\\(ha\\-\n",
		"One. Two":               "One.\nTwo\n",
		"a ` too many":           "a \\(ga too many\n",
		strings.Repeat("x ", 60): strings.TrimSpace(strings.Repeat("x ", 39)) + "\n" + strings.TrimSpace(strings.Repeat("x ", 21)) + "\n",
		"":                       "",
	} {
		if got := roffLines(in); got != want {
			t.Errorf("%q: got %q, want %q", in, got, want)
		}
	}
}
