// Package parity proves that a start is judged alike however its log comes: in
// one piece or in two, with the state looked at in between, from a recording,
// live with ticks, or through a real journal.
//
// It must not say what a verdict should be: package corpus does. Here a verdict
// is only compared with itself.
package parity

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"go.yaml.in/yaml/v3"

	"github.com/startupd/startupd/internal/app/explain"
	"github.com/startupd/startupd/pkg/event"
	"github.com/startupd/startupd/pkg/journal"
	"github.com/startupd/startupd/pkg/profile"
)

const corpusDir = "../../testdata/corpus"

// written is when the texts of the corpus were; it dates stamps without a year.
var written = time.Date(2026, 12, 31, 0, 0, 0, 0, time.UTC)

var builtin = sync.OnceValues(profile.Builtin)

// TestMain lets the test binary be the journal's reader child.
func TestMain(m *testing.M) {
	if len(os.Args) > 1 && os.Args[1] == "journal-reader" {
		if err := journal.RunReader(context.Background(), os.Stdin, os.Stdout); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	// Under the race detector each child would linger for a second.
	os.Setenv("GORACE", "atexit_sleep_ms=0")
	os.Exit(m.Run())
}

// recorded is one recorded start.
type recorded struct {
	name string
	text []byte
	// elapsed is how long after its beginning it is judged; 0 is at its end.
	elapsed time.Duration
	// events are those of the text; they are shared and must not be changed.
	events []event.Event
}

// corpus returns all recorded starts, those of this package's own testdata too.
func corpus(t testing.TB) []recorded {
	t.Helper()
	list, err := os.ReadFile(filepath.Join(corpusDir, "CASES.txt"))
	if err != nil {
		t.Fatal(err)
	}
	var out []recorded
	for _, name := range strings.Fields(string(list)) {
		out = append(out, load(t, filepath.Join(corpusDir, name)))
	}
	own, err := filepath.Glob("testdata/starts/*")
	if err != nil || len(own) == 0 {
		t.Fatalf("no starts in testdata/starts (%v)", err)
	}
	for _, dir := range own {
		out = append(out, load(t, dir))
	}
	return out
}

func load(t testing.TB, dir string) recorded {
	t.Helper()
	c := recorded{name: filepath.Base(dir)}
	var err error
	if c.text, err = os.ReadFile(filepath.Join(dir, "log.txt")); err != nil {
		t.Fatal(err)
	}
	about, err := os.ReadFile(filepath.Join(dir, "expect.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	var expect struct {
		ObservedAfter int `yaml:"observed_after_s"`
	}
	if err := yaml.Unmarshal(about, &expect); err != nil {
		t.Fatalf("%s: %v", dir, err)
	}
	c.elapsed = time.Duration(expect.ObservedAfter) * time.Second
	err = c.source(bytes.NewReader(c.text))(t.Context(), func(_ context.Context, events []event.Event) error {
		c.events = append(c.events, events...)
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// each runs f for every recorded start, several at a time.
func each(t *testing.T, f func(t *testing.T, c recorded)) {
	for _, c := range corpus(t) {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			f(t, c)
		})
	}
}

// TestExplainJudgesAsTheCore ties what this package compares to the program's
// own answer.
func TestExplainJudgesAsTheCore(t *testing.T) {
	each(t, func(t *testing.T, c recorded) {
		report, err := explain.Run(t.Context(), explainOptions(t, c, bytes.NewReader(c.text)))
		if err != nil {
			t.Fatal(err)
		}
		want := verdicts(whole(t, c))
		if len(report.Startups) != len(want) {
			t.Fatalf("explain tells of %d startups, the core of %d", len(report.Startups), len(want))
		}
		for i, s := range report.Startups {
			if diff := cmp.Diff(want[i], ofReport(s)); diff != "" {
				t.Errorf("startup %d: core (-), explain (+):\n%s", i, diff)
			}
		}
	})
}
