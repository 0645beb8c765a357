package deploy

import (
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"unicode"
)

// runbooks are the pages' texts, by file name without .md.
func runbooks(t *testing.T) map[string]string {
	t.Helper()
	pages := map[string]string{}
	for _, file := range files(t, runbooksFolder+"/*.md") {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		pages[strings.TrimSuffix(filepath.Base(file), ".md")] = string(text)
	}
	return pages
}

// TestRunbooks proves that each alert has a page with the same parts, that the page
// begins with two commands, and that it says the same as the rule.
func TestRunbooks(t *testing.T) {
	pages, rules := runbooks(t), alerts(t)
	parts := []string{"What it means", "What it does not mean", "See more", "What to do", "When to silence"}
	index := pages["README"]
	delete(pages, "README")
	if got, want := slices.Sorted(maps.Keys(pages)), slices.Sorted(maps.Keys(rules)); !slices.Equal(got, want) {
		t.Errorf("pages %q, alerts %q", got, want)
	}
	for name, text := range pages {
		head, _, _ := strings.Cut(text, "\n## ")
		lines := strings.Split(head, "\n")
		if lines[0] != "# "+name {
			t.Errorf("%s.md begins with %q", name, lines[0])
		}
		severity := rules[name].Labels["severity"]
		if !strings.HasPrefix(lines[2], "`"+severity+"`") {
			t.Errorf("%s.md says %q, and the severity is %s", name, lines[2], severity)
		}
		if !strings.Contains(index, fmt.Sprintf("| [%s](%s.md) | %s |", name, name, severity)) {
			t.Errorf("README.md has no row of %s with severity %s", name, severity)
		}
		if n := len(commands(head)); n != 2 {
			t.Errorf("%s.md begins with %d commands, want the two to run first", name, n)
		}
		var got []string
		for _, h := range regexp.MustCompile(`(?m)^## (.*)$`).FindAllStringSubmatch(text, -1) {
			got = append(got, h[1])
		}
		if !slices.Equal(got, parts) {
			t.Errorf("%s.md has the parts %q, want %q", name, got, parts)
		}
		checkWait(t, name, lines[2], rules[name].For)
	}
}

// checkWait compares how long an alert waits with what its page says.
func checkWait(t *testing.T, name, line, wait string) {
	t.Helper()
	m := regexp.MustCompile(`after (\d+) minutes?`).FindStringSubmatch(line)
	switch {
	case wait == "" && m != nil, wait != "" && (m == nil || m[1]+"m" != wait):
		t.Errorf("%s.md says %q, and the rule waits for %q", name, line, wait)
	}
}

// commands are the lines of indented blocks that a shell takes.
func commands(text string) []string {
	var all []string
	for _, m := range regexp.MustCompile(`(?m)^ {4,}(\S.*)$`).FindAllStringSubmatch(text, -1) {
		all = append(all, m[1])
	}
	return all
}

// TestRunbookCommands proves that every startupd command has the flags that the
// pages give it.
func TestRunbookCommands(t *testing.T) {
	t.Parallel()
	program := filepath.Join(t.TempDir(), "startupd")
	build := exec.CommandContext(t.Context(), "go", "build", "-o", program, "./cmd/startupd")
	build.Dir = "../.."
	build.Env = append(os.Environ(), "CGO_CFLAGS="+strings.TrimSpace(os.Getenv("CGO_CFLAGS")+" -Wno-deprecated-declarations"))
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("go build: %v\n%s", err, out)
	}
	help := map[string]string{}
	seen := 0
	for name, text := range runbooks(t) {
		for _, m := range regexp.MustCompile("(?m)(?:^ +|`)startupd ((?:rules )?[a-z]+)( [^`|\\n]*)?(?:`|$)").FindAllStringSubmatch(text, -1) {
			seen++
			if _, ok := help[m[1]]; !ok {
				out, err := exec.CommandContext(t.Context(), program, append(strings.Fields(m[1]), "--help")...).CombinedOutput()
				if err != nil {
					t.Errorf("%s.md: startupd %s: %v: %s", name, m[1], err, out)
				}
				help[m[1]] = string(out)
			}
			for _, flag := range regexp.MustCompile(`--[a-z.-]+`).FindAllString(m[2], -1) {
				has := regexp.MustCompile(regexp.QuoteMeta(flag) + `(?:[ =\n]|$)`).MatchString(strings.ReplaceAll(help[m[1]], "[no-]", ""))
				if !has {
					t.Errorf("%s.md: startupd %s has no flag %s", name, m[1], flag)
				}
			}
		}
	}
	if seen < 30 {
		t.Errorf("%d commands of startupd in the pages: they are not read right", seen)
	}
}

// TestRunbookQueries has promtool parse every query of the pages.
func TestRunbookQueries(t *testing.T) {
	var rules []rule
	for _, text := range runbooks(t) {
		for _, block := range regexp.MustCompile("(?s)```promql\n(.*?)```").FindAllStringSubmatch(text, -1) {
			for line := range strings.Lines(block[1]) {
				rules = append(rules, rule{Record: fmt.Sprintf("page:query:%d", len(rules)), Expr: strings.TrimSpace(line)})
			}
		}
	}
	if len(rules) < 20 {
		t.Fatalf("%d queries in the pages: they are not read right", len(rules))
	}
	file := filepath.Join(t.TempDir(), "queries.yml")
	writeYAML(t, file, ruleGroups{[]ruleGroup{{"pages", rules}}})
	if out, err := promtool(t, "check", "rules", file); err != nil {
		t.Errorf("promtool check rules: %v\n%s", err, out)
	}
}

// TestRunbookLinks follows every link to a file of the repository, and to a heading
// in it.
func TestRunbookLinks(t *testing.T) {
	for name, text := range runbooks(t) {
		for _, m := range regexp.MustCompile(`\]\(([^)#\s]*)(#[^)\s]*)?\)`).FindAllStringSubmatch(text, -1) {
			target := filepath.Join(runbooksFolder, m[1])
			if m[1] == "" {
				target = filepath.Join(runbooksFolder, name+".md")
			}
			page, err := os.ReadFile(target)
			if err != nil {
				t.Errorf("%s.md: %v", name, err)
				continue
			}
			if m[2] != "" && !slices.Contains(anchors(string(page)), m[2]) {
				t.Errorf("%s.md: %s has no heading for %s", name, m[1], m[2])
			}
		}
	}
}

// anchors are the fragments that GitHub gives a page's headings.
func anchors(page string) []string {
	var all []string
	for _, m := range regexp.MustCompile(`(?m)^#+ (.*)$`).FindAllStringSubmatch(page, -1) {
		all = append(all, "#"+strings.Map(func(r rune) rune {
			switch {
			case r == ' ':
				return '-'
			case r == '-' || r == '_' || unicode.IsLetter(r) || unicode.IsDigit(r):
				return unicode.ToLower(r)
			}
			return -1
		}, m[1]))
	}
	return all
}
