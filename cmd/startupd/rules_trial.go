package main

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/alecthomas/kingpin/v2"
	"go.yaml.in/yaml/v3"

	"github.com/startupd/startupd/internal/app"
	"github.com/startupd/startupd/internal/app/explain"
	"github.com/startupd/startupd/pkg/event"
	"github.com/startupd/startupd/pkg/journal"
	"github.com/startupd/startupd/pkg/profile"
	"github.com/startupd/startupd/pkg/triage"
)

type rulesTestFlags struct {
	file, log, unit string
	std             streams
}

func rulesTestCommand(rules *kingpin.CmdClause, std streams) command {
	f := &rulesTestFlags{std: std}
	cmd := rules.Command("test", "Test a file of rules by its own examples, and show what they take of a log.")
	cmd.Arg("FILE", "YAML file: a profile, or a catalogue (schema startupd-catalogue/v1).").Required().StringVar(&f.file)
	cmd.Arg("LOG", "Log as plain text, or made by `journalctl -o export`; - is standard input.").StringVar(&f.log)
	cmd.Flag("unit", "Unit whose entries are read, from an export file that holds several.").PlaceHolder("UNIT").StringVar(&f.unit)
	return command{name: cmd.FullCommand(), run: f.run}
}

func (f *rulesTestFlags) run(ctx context.Context) error {
	t, err := f.load()
	if err != nil {
		return err
	}
	t.passed()
	if f.log == "" {
		return t.flush()
	}
	if err := f.read(ctx, t); err != nil {
		// What was found before stays of use.
		_ = t.flush()
		return &exitError{exitUnknown, err}
	}
	t.summary()
	return t.flush()
}

// load reads the file on top of the built-in rules, which runs its self-tests.
func (f *rulesTestFlags) load() (*trial, error) {
	dir, name := filepath.Split(f.file)
	if ext := filepath.Ext(name); ext != ".yaml" && ext != ".yml" {
		return nil, &exitError{exitUsage, fmt.Errorf("%s: name it *.yaml: of a profile directory only such files are read", f.file)}
	}
	data, err := os.ReadFile(f.file)
	if err != nil {
		return nil, unreadable("cannot read the rules: %w; name a readable file", err)
	}
	base, err := app.LoadProfiles("")
	if err != nil {
		return nil, err
	}
	set, err := base.Extend(oneFile{FS: os.DirFS(cmp.Or(dir, ".")), name: name})
	if err != nil {
		return nil, wrongRule(f.file + ": " + strings.TrimPrefix(err.Error(), "profile "+name+": "))
	}
	ids, err := ruleIDs(data)
	if err != nil {
		return nil, wrongRule(f.file + ": " + err.Error())
	}
	t := &trial{file: f.file, ids: ids, out: f.std.out, matched: map[string]int{}}
	for _, p := range set.Profiles() {
		if p == base.Profile(p.Engine) {
			continue
		}
		own := map[string]bool{}
		for _, id := range ids {
			own[id] = true
		}
		t.engines = append(t.engines, engineTrial{profile: p, scanner: p.NewScanner(), own: own})
	}
	return t, nil
}

// oneFile is a directory of which only one file is seen.
type oneFile struct {
	fs.FS
	name string
}

func (d oneFile) ReadDir(string) ([]fs.DirEntry, error) {
	info, err := fs.Stat(d.FS, d.name)
	if err != nil {
		return nil, err
	}
	return []fs.DirEntry{fs.FileInfoToDirEntry(info)}, nil
}

// ruleIDs returns the ids of a file's rules, in order. The file was read before
// by package profile, which has found no fault.
func ruleIDs(data []byte) ([]string, error) {
	var doc struct {
		Rules []struct {
			ID string `yaml:"id"`
		} `yaml:"rules"`
	}
	if err := yaml.Unmarshal(data, &doc); err != nil {
		return nil, err
	}
	var ids []string
	for _, r := range doc.Rules {
		ids = append(ids, r.ID)
	}
	return ids, nil
}

// read runs the log through the rules.
func (f *rulesTestFlags) read(ctx context.Context, t *trial) error {
	opts := journal.FileOptions{Path: f.log, R: f.std.in, Now: time.Now()}
	if f.log == stdin {
		opts.Path = "standard input"
	} else {
		file, err := os.Open(f.log)
		if err != nil {
			return fmt.Errorf("cannot read the log: %w; name a readable file, or - for standard input", err)
		}
		defer file.Close()
		opts.R = file
	}
	if f.unit != "" {
		opts.Unit = app.UnitName(f.unit)
	}
	return journal.ReadFile(ctx, opts, t.apply)
}

// trial shows what the rules of one file take of a log.
type trial struct {
	file    string
	ids     []string
	engines []engineTrial
	out     io.Writer
	text    strings.Builder
	// matched counts the records that each rule took, and lines all lines.
	matched map[string]int
	lines   int
}

// engineTrial is one engine's rules with those of the file.
type engineTrial struct {
	profile *profile.Profile
	scanner *profile.Scanner
	own     map[string]bool
}

// flushAt keeps a long log's answer out of memory.
const flushAt = 64 << 10

func (t *trial) flush() error {
	_, err := io.WriteString(t.out, t.text.String())
	t.text.Reset()
	return err
}

// passed says what the file holds.
func (t *trial) passed() {
	var names []string
	for _, e := range t.engines {
		names = append(names, e.profile.Engine)
	}
	fmt.Fprintf(&t.text, "%s: ok, %s for %s; each example selects its rule\n", t.file, counted(len(t.ids), "rule"), strings.Join(names, ", "))
}

func (t *trial) apply(ctx context.Context, events []event.Event) error {
	for _, ev := range events {
		l, ok := ev.Data.(*event.Line)
		if !ok {
			continue
		}
		t.lines++
		for i := range t.engines {
			t.engines[i].scan(t, l, ev.At)
		}
	}
	if t.text.Len() >= flushAt {
		if err := t.flush(); err != nil {
			return err
		}
	}
	return ctx.Err()
}

func (e *engineTrial) scan(t *trial, l *event.Line, at event.Stamp) {
	if l.Origin == event.OriginKernel {
		e.record(t, l, at, e.scanner.ScanKernel(l.Text))
		return
	}
	e.scanner.Scan(l.Text, func(r *profile.Record) { e.record(t, l, at, r) })
}

// record shows the file's rules that take a record. One with a frame takes it
// only if the traceback holds such a frame, which a line alone can't tell.
func (e *engineTrial) record(t *trial, l *event.Line, at event.Stamp, r *profile.Record) {
	for _, rule := range r.Conditional {
		if e.own[rule.ID] {
			e.show(t, l, at, r.As(rule))
		}
	}
	if r.Rule != nil && e.own[r.Rule.ID] {
		e.show(t, l, at, r)
	}
}

func (e *engineTrial) show(t *trial, l *event.Line, at event.Stamp, r *profile.Record) {
	rule, b := r.Rule, &t.text
	t.matched[rule.ID]++
	fmt.Fprintf(b, "\n%s  %s  %s", place(l, at), rule.ID, rule.Role)
	if rule.Class != "" {
		fmt.Fprintf(b, "  %s", rule.Class)
	}
	if len(t.engines) > 1 {
		fmt.Fprintf(b, "  (%s)", e.profile.Engine)
	}
	fmt.Fprintf(b, "\n  > %s\n", shown(r.Message))
	if rule.Frame != "" {
		fmt.Fprintf(b, "  only with a frame that matches %s\n", rule.Frame)
	}
	for _, phase := range slices.Sorted(maps.Keys(rule.ClassIn)) {
		fmt.Fprintf(b, "  in phase %s: %s\n", phase, rule.ClassIn[phase])
	}
	for _, name := range rule.Captures {
		if value := r.Capture(name); value != "" {
			fmt.Fprintf(b, "  %s = %s\n", name, shown(value))
		}
	}
	remedy, retry := e.profile.Advise(rule, rule.Class, r.Capture)
	if remedy != "" {
		fmt.Fprintf(b, "  do: %s\n", shown(remedy))
	}
	if retry != nil {
		fmt.Fprintf(b, "  restart: %s\n", helps(*retry))
	}
}

// place is where a line stands: its number in a text, its time in a journal.
func place(l *event.Line, at event.Stamp) string {
	if l.No > 0 {
		return fmt.Sprintf("line %d", l.No)
	}
	return at.Real.UTC().Format(time.DateTime) + " UTC"
}

// shown makes text of a log fit for a terminal, and for being pasted.
func shown(text string) string { return explain.Visible(triage.MaskSecrets(text)) }

func helps(retry bool) string {
	if retry {
		return "can help"
	}
	return "does not help"
}

// summary says how often each rule matched, and which never did.
func (t *trial) summary() {
	var hit, never []string
	for _, id := range t.ids {
		if n := t.matched[id]; n > 0 {
			hit = append(hit, fmt.Sprintf("%s %dx", id, n))
		} else {
			never = append(never, id)
		}
	}
	fmt.Fprintf(&t.text, "\n%s: %d of %s matched", counted(t.lines, "line"), len(hit), counted(len(t.ids), "rule"))
	if len(hit) > 0 {
		fmt.Fprintf(&t.text, ": %s", strings.Join(hit, ", "))
	}
	if len(never) > 0 {
		fmt.Fprintf(&t.text, "; never matched: %s", strings.Join(never, ", "))
	}
	t.text.WriteString("\n")
}

func counted(n int, thing string) string {
	if n == 1 {
		return "1 " + thing
	}
	return fmt.Sprintf("%d %ss", n, thing)
}
