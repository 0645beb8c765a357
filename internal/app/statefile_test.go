package app

import (
	"errors"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
	"go.uber.org/zap/zaptest/observer"

	"github.com/startupd/startupd/pkg/event"
	"github.com/startupd/startupd/pkg/journal"
	"github.com/startupd/startupd/pkg/phases"
)

func at(d time.Duration) event.Stamp {
	return event.Stamp{
		Real: time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC).Add(d),
		Boot: "0123456789abcdef0123456789abcdef", Mono: time.Hour + d,
	}
}

func TestStateFileRoundTrip(t *testing.T) {
	f := stateFile{dir: t.TempDir()}
	if got, err := f.load(); got != nil || err != nil {
		t.Fatalf("fresh directory: %v, %v", got, err)
	}
	s := newSaver(f.dir, func() event.Stamp { return at(0) }, zap.NewNop())
	want := state{
		Format: stateFormat, Installed: at(0), Position: journal.Position{Cursor: "s=1", At: at(time.Second)},
		Saved: phases.Saved{Targets: map[string]phases.SavedTarget{"a.service": {
			Startups: map[phases.Outcome]uint64{phases.OutcomeFailed: 2}, Counted: []string{"x/0"}, LastOutcome: phases.OutcomeFailed,
		}}},
	}
	s.write(want)
	got, err := f.load()
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(want, *got); diff != "" {
		t.Error(diff)
	}
	names, err := filepath.Glob(filepath.Join(f.dir, "*"))
	if err != nil || len(names) != 1 {
		t.Errorf("left in the directory: %v, %v", names, err)
	}
	again := newSaver(f.dir, func() event.Stamp { return at(time.Hour) }, zap.NewNop())
	if diff := cmp.Diff(want, again.state); diff != "" {
		t.Errorf("second run: %s", diff)
	}
}

func TestStateFileCorrupt(t *testing.T) {
	for name, content := range map[string]string{
		"cut": `{"format":1,"installed":{"real":"2026-`, "other": `{"format":1}`, "type": `[]`, "empty": "",
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			f := stateFile{dir: dir}
			if err := os.WriteFile(f.path(), []byte(content), 0o600); err != nil {
				t.Fatal(err)
			}
			core, logs := observer.New(zapcore.InfoLevel)
			s := newSaver(dir, func() event.Stamp { return at(0) }, zap.New(core))
			if s.off || s.state.Installed != at(0) {
				t.Errorf("off %v, installed %v", s.off, s.state.Installed)
			}
			if logs.FilterMessageSnippet("corrupt").Len() != 1 {
				t.Errorf("log: %v", logs.All())
			}
			if kept, err := os.ReadFile(f.path() + ".bad"); err != nil || string(kept) != content {
				t.Errorf("set aside: %q, %v", kept, err)
			}
		})
	}
}

func TestStateFileOfNewerVersion(t *testing.T) {
	f := stateFile{dir: t.TempDir()}
	const content = `{"format":2,"what":"ever"}`
	if err := os.WriteFile(f.path(), []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := f.load(); !errors.Is(err, errNewerState) {
		t.Errorf("error %v", err)
	}
	core, logs := observer.New(zapcore.InfoLevel)
	s := newSaver(f.dir, func() event.Stamp { return at(0) }, zap.New(core))
	if !s.off || logs.Len() != 1 {
		t.Errorf("off %v, log %v", s.off, logs.All())
	}
	if b, err := os.ReadFile(f.path()); err != nil || string(b) != content {
		t.Errorf("file is now %q, %v", b, err)
	}
}

func TestStateDirUnusable(t *testing.T) {
	// A file where the directory should be: root may write everywhere else.
	dir := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(dir, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	core, logs := observer.New(zapcore.InfoLevel)
	s := newSaver(dir, func() event.Stamp { return at(0) }, zap.New(core))
	if !s.off || logs.FilterMessageSnippet("--state.dir").Len() != 1 {
		t.Errorf("off %v, log %v", s.off, logs.All())
	}
}

func TestStateWriteFailsAndRecovers(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "later")
	core, logs := observer.New(zapcore.InfoLevel)
	s := newSaver(dir, func() event.Stamp { return at(0) }, zap.New(core))
	s.write(s.state)
	s.write(s.state)
	if n := logs.FilterMessageSnippet("can't be saved").Len(); n != 1 {
		t.Errorf("told %d times, want once", n)
	}
	if err := os.Mkdir(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	s.write(s.state)
	if logs.FilterMessageSnippet("saved again").Len() != 1 {
		t.Errorf("log: %v", logs.All())
	}
	if got, err := s.file.load(); err != nil || got == nil {
		t.Errorf("load: %v, %v", got, err)
	}
}
