package journal

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
)

// Names of the journal source's states, as in event.SourceState.
const (
	stateUp           = "up"
	stateNotPermitted = "not_permitted"
	stateNoJournal    = "no_journal"
	stateReaderFailed = "reader_failed"
)

// accessError says why no journal can be read, and what to do.
type accessError struct{ state, reason string }

func (e *accessError) Error() string { return e.reason }

// systemDirs are where journald keeps the system's journal.
func systemDirs() []string { return []string{"/var/log/journal", "/run/log/journal"} }

// checkAccess looks whether journal files can be read at all: libsystemd and
// journalctl pass over a file that they may not open, and then show nothing.
// It returns the files that can be opened but are broken.
func checkAccess(dir string) (broken []string, err error) {
	dirs := systemDirs()
	if dir != "" {
		if _, err := os.ReadDir(dir); err != nil {
			return nil, dirError(dir, err)
		}
		dirs = []string{dir}
	}
	readable, denied := 0, ""
	for _, f := range journalFiles(dirs) {
		ok, err := checkFile(f)
		switch {
		case dir == "" && !strings.HasPrefix(filepath.Base(f), "system"):
			// A user's own journal is readable by that user and tells nothing of
			// the system's units.
		case errors.Is(err, fs.ErrPermission):
			denied = f
		case errors.Is(err, fs.ErrNotExist): // vacuumed just now
		case err != nil || !ok:
			broken = append(broken, f)
		default:
			readable++
		}
	}
	switch {
	case readable > 0 || len(broken) > 0 && denied == "":
		return broken, nil
	case denied != "":
		return broken, &accessError{stateNotPermitted, fmt.Sprintf(
			"no right to read %s: add the user to the group systemd-journal (SupplementaryGroups=systemd-journal in startupd.service), or run as root", denied)}
	case dir != "":
		return nil, &accessError{stateNoJournal, fmt.Sprintf("no journal files (*.journal) in %s: name the directory that holds them", dir)}
	}
	return nil, &accessError{stateNoJournal, fmt.Sprintf(
		"no journal in %s: is systemd-journald running, and is the directory mounted here?", strings.Join(dirs, " or "))}
}

func dirError(dir string, err error) error {
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return &accessError{stateNoJournal, fmt.Sprintf("no directory %s: name one that holds journal files", dir)}
	case errors.Is(err, fs.ErrPermission):
		return &accessError{stateNotPermitted, fmt.Sprintf("no right to read the directory %s: run as a user who may", dir)}
	}
	return &accessError{stateNoJournal, fmt.Sprintf("%v: name a directory that holds journal files (--journal.dir)", err)}
}

// journalFiles returns the journal files in the directories and one level
// below, where the machine's ID is the directory's name.
func journalFiles(dirs []string) []string {
	var files []string
	for _, d := range dirs {
		for _, pattern := range []string{"*.journal", "*/*.journal"} {
			m, err := filepath.Glob(filepath.Join(globQuote(d), pattern))
			if err == nil { // the pattern is ours and valid
				files = append(files, m...)
			}
		}
	}
	return files
}

func globQuote(s string) string {
	return strings.NewReplacer("*", `\*`, "?", `\?`, "[", `\[`, `\`, `\\`).Replace(s)
}

// checkFile says whether a file is a whole journal file: it has the signature, is
// as long as its header claims, and has the last object that the header names
// (https://systemd.io/JOURNAL_FILE_FORMAT/#header). A file that was cut is soon
// as long as before, as journald sets its length again, but with zeros.
func checkFile(path string) (ok bool, err error) {
	f, err := os.Open(path)
	if err != nil {
		return false, err
	}
	defer f.Close()
	return checkOpen(f)
}

// checkOpen is checkFile of an open file.
func checkOpen(f *os.File) (ok bool, err error) {
	var h [144]byte
	if _, err := f.ReadAt(h[:], 0); err != nil {
		return false, nil
	}
	st, err := f.Stat()
	if err != nil {
		return false, err
	}
	number := binary.LittleEndian.Uint64
	headerSize, arenaSize, tail := number(h[88:]), number(h[96:]), number(h[136:])
	if string(h[:8]) != journalMagic || headerSize+arenaSize > uint64(st.Size()) {
		return false, nil
	}
	if tail == 0 {
		return true, nil // just made
	}
	var object [1]byte
	_, err = f.ReadAt(object[:], int64(tail))
	return err == nil && object[0] != objectUnused, nil
}

const (
	journalMagic = "LPKSHHRH"
	// objectUnused is the type of an object that was never written.
	objectUnused = 0
)
