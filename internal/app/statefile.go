package app

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/startupd/startupd/pkg/event"
	"github.com/startupd/startupd/pkg/journal"
	"github.com/startupd/startupd/pkg/phases"
)

// stateFormat is the version of the state file. A file of a later one is
// neither read nor overwritten.
const stateFormat = 1

// errNewerState means that a later version of startupd wrote the state file.
var errNewerState = errors.New("written by a newer startupd")

// state is what a restart of the daemon must not lose.
type state struct {
	Format int `json:"format"`
	// Installed is when the state directory was first used. Starts that were
	// over before it are not counted.
	Installed event.Stamp `json:"installed"`
	// Position is the last entry of the journal that Saved has counted.
	Position journal.Position `json:"position"`
	Saved    phases.Saved     `json:"saved"`
}

// stateFile keeps a state in one file of a directory.
type stateFile struct{ dir string }

func (f stateFile) path() string { return filepath.Join(f.dir, "state.json") }

// load returns the state, or nil when there is none yet. It fails with
// errNewerState, or when the file can't be read or decoded.
func (f stateFile) load() (*state, error) {
	b, err := os.ReadFile(f.path())
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	var head struct {
		Format int `json:"format"`
	}
	if err := json.Unmarshal(b, &head); err != nil {
		return nil, fmt.Errorf("%s is no JSON: %w", f.path(), err)
	}
	if head.Format > stateFormat {
		return nil, fmt.Errorf("%s has format %d, known is %d: %w", f.path(), head.Format, stateFormat, errNewerState)
	}
	var s state
	if err := json.Unmarshal(b, &s); err != nil {
		return nil, fmt.Errorf("%s: %w", f.path(), err)
	}
	if s.Format < 1 || s.Installed.IsZero() {
		return nil, fmt.Errorf("%s lacks its format or the time of installation", f.path())
	}
	return &s, nil
}

// setAside renames a file that can't be used, so that it can be looked at, and
// returns its new name.
func (f stateFile) setAside() (string, error) {
	bad := f.path() + ".bad"
	return bad, os.Rename(f.path(), bad)
}

// write replaces the file: after a crash either the old or the new one is
// there, whole.
func (f stateFile) write(b []byte) (err error) {
	tmp, err := os.CreateTemp(f.dir, ".state-*.json")
	if err != nil {
		return err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, os.Remove(tmp.Name()))
		}
	}()
	_, err = tmp.Write(b)
	if err == nil {
		err = tmp.Sync()
	}
	if err = errors.Join(err, tmp.Close()); err != nil {
		return err
	}
	if err = os.Rename(tmp.Name(), f.path()); err != nil {
		return err
	}
	return syncDir(f.dir)
}

// syncDir makes a rename in dir outlast a power cut.
func syncDir(dir string) error {
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	return errors.Join(d.Sync(), d.Close())
}
