package main

import (
	"bytes"
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
)

// fakeSystemctl answers as systemctl does: units that are loaded, one of them
// not to be found, and files, with a template that can't be started.
const fakeSystemctl = `#!/bin/bash
case $1 in
list-units) units=('vllm@qwen.service loaded active running An LLM server' 'vllm-kimi.service loaded failed failed An LLM server') ;;
list-unit-files) units=('vllm@.service disabled enabled' 'vllm-kimi.service enabled enabled' 'nginx.service enabled enabled') ;;
esac
pattern=${@: -1}
[[ $pattern == *'*' ]] || pattern='*'
for unit in "${units[@]}"; do
	[[ ${unit%% *} == $pattern ]] && echo "$unit"
done
exit 0
`

// shells are how a line is completed in each shell; the script to be tested is
// in $SCRIPT, the line in $LINE. Each prints a candidate a line.
const (
	inBash = `
compopt() { :; }
source "$SCRIPT"
COMP_WORDBREAKS=$' \t\n"\'@><=;|&(:'
COMP_LINE=$LINE COMP_POINT=${#LINE}
_startupd startupd
printf '%s\n' "${COMPREPLY[@]}"
`
	inZsh = `
zmodload zsh/zpty
zpty shell zsh -f -i
zpty -w shell 'PROMPT= PS2= TERM=dumb; unsetopt zle_bracketed_paste; autoload -U compinit; compinit -u -d $DUMP; source $SCRIPT'
zpty -w shell 'zstyle ":completion:*" list-prompt ""; LISTMAX=1000; bindkey "^I" complete-word
function compadd() {
	if [[ ${@[1,(i)(-|--)]} == *-(O|A|D)* ]]; then builtin compadd "$@"; return $?; fi
	local -a hits; builtin compadd -A hits "$@"; print -rl -- $hits >>$TMPDIR/hits; builtin compadd "$@"
}
function finished() { : >$TMPDIR/done }
zle -N finished; bindkey "^X" finished; : >$TMPDIR/ready'
until [[ -e $TMPDIR/ready ]]; do zpty -r -t shell text; zselect -t 2; done
zpty -w -n shell "$LINE"$'\t\x18'
until [[ -e $TMPDIR/done ]]; do zpty -r -t shell text; zselect -t 2; done
cat $TMPDIR/hits 2>/dev/null
zpty -d shell
`
	inFish = `
source $SCRIPT
complete -C "$LINE" | string replace -r '\t.*' ''
true
`
)

type shellRun struct{ name, program string }

func shellRuns() []shellRun {
	return []shellRun{{"bash", inBash}, {"zsh", "zmodload zsh/zselect\n" + inZsh}, {"fish", inFish}}
}

// complete asks a shell for what can follow a line, in the folder dir.
func (s shellRun) complete(t *testing.T, dir, line string) []string {
	t.Helper()
	tmp := t.TempDir()
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, s.name, "-c", s.program)
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), "LINE="+line, "SCRIPT="+filepath.Join(dir, "script."+s.name), "TMPDIR="+tmp, "HOME="+tmp, "DUMP="+filepath.Join(dir, "dump"),
		"PATH="+filepath.Join(dir, "bin")+":"+os.Getenv("PATH"), "LC_ALL=C.UTF-8")
	var errs bytes.Buffer
	cmd.Stderr = &errs
	out, err := cmd.Output()
	if err != nil || errs.Len() > 0 {
		t.Fatalf("%s: %v: %s\nscripts/install-test-deps installs the shells", s.name, err, errs.String())
	}
	found := strings.Fields(string(out))
	slices.Sort(found)
	return slices.Compact(found)
}

// shellDir is a folder with the scripts, a systemctl, files and folders.
func shellDir(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	write := func(name, text string, mode os.FileMode) {
		path := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), mode); err != nil {
			t.Fatal(err)
		}
	}
	write("bin/systemctl", fakeSystemctl, 0o755)
	write("server.log", "", 0o644)
	write("service.d/x", "", 0o644)
	for _, s := range shellRuns() {
		var out, errs bytes.Buffer
		if code := run([]string{"completion", s.name}, streams{out: &out, err: &errs}); code != exitOK || errs.Len() > 0 {
			t.Fatalf("completion %s: exit %d: %s", s.name, code, errs.String())
		}
		write("script."+s.name, out.String(), 0o644)
	}
	return dir
}

func TestCompletion(t *testing.T) {
	dir := shellDir(t)
	units := []string{"nginx.service", "vllm-kimi.service", "vllm@qwen.service"}
	for _, tt := range []struct {
		name, line string
		// want are the candidates; with some, those that must be among them; not
		// are those that must not.
		want, some, not []string
	}{
		{name: "commands", line: "startupd ", some: []string{"serve", "explain", "rules", "completion"}, not: []string{"man", "gpu-reader", "journal-reader", "server.log"}},
		{name: "a command", line: "startupd expl", want: []string{"explain"}},
		{name: "a command below a command", line: "startupd rules t", want: []string{"test"}},
		{name: "the default command's flag", line: "startupd --config.fi", want: []string{"--config.file"}},
		{name: "a flag", line: "startupd explain --inv", want: []string{"--invocation"}},
		{name: "a flag behind a value", line: "startupd explain --unit=vllm@qwen.service --f", want: []string{"--format"}},
		{name: "a flag behind a word", line: "startupd explain --unit vllm@qwen.service --all --f", want: []string{"--format"}},
		{name: "a flag that is on", line: "startupd serve --no-g", want: []string{"--no-gpu"}},
		{name: "a common flag behind the command", line: "startupd explain --log.l", want: []string{"--log.level"}},
		{name: "words of a flag", line: "startupd explain --format ", want: []string{"json", "markdown", "text"}},
		{name: "words after the command's own flag of another", line: "startupd history --format ", want: []string{"json", "text"}},
		{name: "a word of a common flag", line: "startupd --log.level d", want: []string{"debug"}},
		{name: "words of an argument", line: "startupd completion ", want: []string{"bash", "fish", "zsh"}},
		{name: "commands as an argument", line: "startupd help hist", want: []string{"history"}},
		{name: "units", line: "startupd explain --unit ", want: units},
		{name: "a flag's value that is a command's name", line: "startupd --unit rules --config.fi", want: []string{"--config.file"}},
		{name: "the second argument", line: "startupd rules test server.log serv", some: []string{"server.log"}},
		{name: "a file", line: "startupd explain serve", want: []string{"server.log"}},
		{name: "nothing after the last argument", line: "startupd explain server.log ser", want: []string{}},
	} {
		for _, s := range shellRuns() {
			t.Run(s.name+"/"+tt.name, func(t *testing.T) {
				t.Parallel()
				checkCandidates(t, s.complete(t, dir, tt.line), tt.want, tt.some, tt.not)
			})
		}
	}
}

func checkCandidates(t *testing.T, got, want, some, not []string) {
	t.Helper()
	for i, g := range got { // bash and zsh mark a flag that takes a value
		if strings.HasPrefix(g, "--") {
			got[i] = strings.TrimSuffix(g, "=")
		}
	}
	if some == nil && !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
	for _, s := range some {
		if !slices.Contains(got, s) {
			t.Errorf("got %q, want also %q", got, s)
		}
	}
	for _, n := range not {
		if slices.Contains(got, n) {
			t.Errorf("got %q, with %q", got, n)
		}
	}
}

// TestCompletionOfWordParts: bash replaces only what follows the last of its
// word breaks, and = @ : are some; @ belongs to what follows.
func TestCompletionOfWordParts(t *testing.T) {
	dir := shellDir(t)
	bash := shellRuns()[0]
	for line, want := range map[string][]string{
		"startupd explain --unit vllm":       {"vllm-kimi.service", "vllm@qwen.service"},
		"startupd explain --unit vllm@":      {"@qwen.service"},
		"startupd explain --unit=vllm@q":     {"@qwen.service"},
		"startupd explain --unit=vllm-":      {"vllm-kimi.service"},
		"startupd explain --format=":         {"json", "markdown", "text"},
		"startupd explain --format=j":        {"json"},
		"startupd explain --format=x":        {},
		"startupd serve --config.file=serve": {"server.log"},
		"startupd serve --profile.dir ser":   {"service.d"},
		"startupd explain --all --fo":        {"--format="},
	} {
		got := bash.complete(t, dir, line)
		if !slices.Equal(got, want) {
			t.Errorf("%s: got %q, want %q", line, got, want)
		}
	}
}
