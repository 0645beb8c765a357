package history

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime/debug"
	"time"

	"go.etcd.io/bbolt"
	bolterrors "go.etcd.io/bbolt/errors"
	"golang.org/x/sys/unix"
)

// The buckets of the file: metaBucket holds schemaKey, and targetsBucket one
// bucket for each target.
const (
	metaBucket    = "meta"
	schemaKey     = "schema"
	targetsBucket = "targets"
)

// The file is the daemon's; the group may read, as it may ask the API socket.
const fileMode = 0o640

// lockEvery is the pause between two tries to lock the file.
const lockEvery = 20 * time.Millisecond

// database is an open file. It is whole: verify has seen it under the lock.
type database struct {
	bolt *bbolt.DB
	// raw is bolt's file, for the case that bolt itself can't be used any more.
	raw *os.File
	// broken says that bolt has panicked, and that closing it would hang.
	broken bool
}

// open opens a file that is there; a fresh one is empty. It fails with
// fs.ErrNotExist, ErrBusy when ctx ends first, ErrDamaged or ErrNewer.
func open(ctx context.Context, path string, readOnly, fresh bool) (*database, error) {
	d := &database{}
	opts := &bbolt.Options{ReadOnly: readOnly, FreelistType: bbolt.FreelistMapType, NoStatistics: true}
	opts.OpenFile = func(path string, flag int, mode os.FileMode) (f *os.File, err error) {
		if f, err = os.OpenFile(path, flag&^os.O_CREATE, mode); err != nil {
			return nil, err
		}
		d.raw = f
		// bbolt locks it once more, which is granted at once.
		if err = lock(ctx, f, readOnly); err == nil && !fresh {
			err = verifyFile(f)
		}
		if err != nil {
			return nil, errors.Join(err, f.Close())
		}
		return f, nil
	}
	err := d.guard(func() (err error) {
		d.bolt, err = bbolt.Open(path, fileMode, opts)
		return err
	})
	if err != nil {
		if d.broken {
			err = errors.Join(err, d.abandon())
		}
		return nil, err
	}
	d.bolt.AllocSize = 1 << 20
	return d, nil
}

func lock(ctx context.Context, f *os.File, readOnly bool) error {
	how := unix.LOCK_EX
	if readOnly {
		how = unix.LOCK_SH
	}
	for {
		err := unix.Flock(int(f.Fd()), how|unix.LOCK_NB)
		switch {
		case err == nil:
			return nil
		case errors.Is(err, unix.EINTR):
			continue
		case !errors.Is(err, unix.EWOULDBLOCK):
			return fmt.Errorf("lock %s: %w", f.Name(), err)
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("%w (%w)", ErrBusy, context.Cause(ctx))
		case <-time.After(lockEvery):
		}
	}
}

func verifyFile(f *os.File) error {
	info, err := f.Stat()
	if err != nil {
		return err
	}
	return verify(f, info.Size())
}

// close releases the file and its lock.
func (d *database) close() error {
	if d.broken {
		return d.abandon()
	}
	return d.bolt.Close()
}

// abandon gives the lock back without bolt. Its map of the file stays, and would
// keep the lock if the file were only closed.
func (d *database) abandon() error {
	return errors.Join(unix.Flock(int(d.raw.Fd()), unix.LOCK_UN), d.raw.Close())
}

// guard runs what calls bbolt, and takes a panic, a fault on a mapped page and a
// bucket of the wrong kind for damage: a disk may fail after verify has seen the
// file, and verify does not know what the buckets are for.
func (d *database) guard(f func() error) (err error) {
	old := debug.SetPanicOnFault(true)
	defer debug.SetPanicOnFault(old)
	defer func() {
		if r := recover(); r != nil {
			d.broken = true
			err = damaged("%v", r)
		}
	}()
	err = f()
	for _, e := range []error{
		bolterrors.ErrInvalid, bolterrors.ErrVersionMismatch, bolterrors.ErrChecksum, bolterrors.ErrIncompatibleValue, bolterrors.ErrBucketNotFound,
	} {
		if errors.Is(err, e) {
			return damaged("%v", err)
		}
	}
	return err
}

func (d *database) view(f func(tx *bbolt.Tx) error) error {
	return d.guard(func() error { return d.bolt.View(f) })
}

func (d *database) update(f func(tx *bbolt.Tx) error) error {
	return d.guard(func() error { return d.bolt.Update(f) })
}

// check fails unless the file is a history of a known version.
func (d *database) check() error {
	schema := ""
	err := d.view(func(tx *bbolt.Tx) error {
		if b := tx.Bucket([]byte(metaBucket)); b != nil {
			schema = string(b.Get([]byte(schemaKey)))
		}
		return nil
	})
	if err != nil {
		return err
	}
	return checkSchema(schema)
}

// create makes a file with its first content, whole or not at all.
func create(ctx context.Context, path string, fill func(tx *bbolt.Tx) error) (err error) {
	f, err := os.CreateTemp(filepath.Dir(path), "."+filepath.Base(path)+"-*")
	if err != nil {
		return err
	}
	tmp := f.Name()
	defer func() {
		if err != nil {
			err = errors.Join(err, os.Remove(tmp))
		}
	}()
	if err := f.Close(); err != nil {
		return err
	}
	d, err := open(ctx, tmp, false, true)
	if err != nil {
		return err
	}
	err = d.update(func(tx *bbolt.Tx) error {
		b, err := tx.CreateBucketIfNotExists([]byte(metaBucket))
		if err != nil {
			return err
		}
		if err := b.Put([]byte(schemaKey), []byte(Schema)); err != nil {
			return err
		}
		return fill(tx)
	})
	if err == nil {
		// Whatever the umask says.
		err = d.raw.Chmod(fileMode)
	}
	if err = errors.Join(err, d.close()); err != nil {
		return err
	}
	if err = os.Rename(tmp, path); err != nil {
		return err
	}
	return syncDir(filepath.Dir(path))
}

// syncDir makes a rename in dir outlast a power cut.
func syncDir(dir string) error {
	f, err := os.Open(dir)
	if err != nil {
		return err
	}
	return errors.Join(f.Sync(), f.Close())
}
