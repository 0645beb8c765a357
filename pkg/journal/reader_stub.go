//go:build !sdjournal

package journal

import "errors"

// Available says why the sdjournal reader can't be used here; nil when it can.
func Available() error {
	return errors.New("this program was built without libsystemd's headers: use --journal.reader=journalctl, or install libsystemd-dev and pkg-config and build again")
}

func openSD(*request) (sdJournal, func(), error) { return nil, nil, Available() }
