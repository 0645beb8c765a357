package history

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"time"

	"go.etcd.io/bbolt"
)

// FileName is the history's name in the state directory.
const FileName = "history.db"

// maxTargets bounds the targets of a file: a glob may match units that are ever new.
const maxTargets = 1000

// Limits bound what is kept, of at most 1000 targets.
type Limits struct {
	// MaxStartups is how many startups are kept of each target, the newest; 0 or
	// less keeps none.
	MaxStartups int
	// MaxAge is how long ago a kept startup may have begun; 0 is no limit.
	MaxAge time.Duration
}

// Store is the file of a state directory. Each call opens and closes it, and
// waits for another process's lock until its ctx ends. The errors to tell apart
// are ErrDamaged, ErrNewer and ErrBusy; with any error the file is as it was.
type Store struct {
	Path   string
	Limits Limits
}

// In returns the store of a state directory.
func In(dir string, l Limits) Store { return Store{Path: filepath.Join(dir, FileName), Limits: l} }

// Put keeps a startup, in the place of what is kept of it already, and drops
// what the limits no longer allow at the moment now. changed is false when the
// same was kept before. The file is made where there is none.
func (s Store) Put(ctx context.Context, now time.Time, r Record) (changed bool, err error) {
	if r.Began.IsZero() {
		return false, s.wrap(fmt.Errorf("a startup of %s has no time of beginning, and can't be kept", r.Target))
	}
	if s.Limits.MaxStartups <= 0 {
		return false, nil
	}
	d, err := open(ctx, s.Path, false, false)
	if errors.Is(err, fs.ErrNotExist) {
		e, err := newEntry(r)
		if err != nil {
			return false, s.wrap(err)
		}
		return true, s.wrap(create(ctx, s.Path, e.put))
	}
	if err != nil {
		return false, s.wrap(err)
	}
	changed, err = s.replace(d, now, r)
	return changed, s.wrap(errors.Join(err, d.close()))
}

func (s Store) wrap(err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("history %s: %w", s.Path, err)
}

func (s Store) replace(d *database, now time.Time, r Record) (changed bool, err error) {
	if err := d.check(); err != nil {
		return false, err
	}
	oldKey, old, err := d.find(r.Target, r.identity())
	if err != nil {
		return false, err
	}
	if old != nil {
		earlier, err := decode(old)
		if err != nil {
			return false, err
		}
		r = merge(earlier, r)
	}
	e, err := newEntry(r)
	if err != nil || bytes.Equal(old, e.value) {
		return false, err
	}
	return true, d.update(func(tx *bbolt.Tx) error {
		if b := target(tx, r.Target); b != nil && oldKey != nil {
			if err := b.Delete(oldKey); err != nil {
				return err
			}
		}
		if err := e.put(tx); err != nil {
			return err
		}
		return s.prune(tx, now)
	})
}

// entry is a record as it lies in the file.
type entry struct {
	target     string
	key, value []byte
}

func newEntry(r Record) (entry, error) {
	value, err := encode(r)
	return entry{target: r.Target, key: append(timeKey(r.Began), r.identity()...), value: value}, err
}

// timeKey begins the key of a startup, so that keys are in the order of time.
func timeKey(t time.Time) []byte {
	return binary.BigEndian.AppendUint64(nil, uint64(max(0, t.UnixMilli())))
}

const timeKeySize = 8

func (e entry) put(tx *bbolt.Tx) error {
	all, err := tx.CreateBucketIfNotExists([]byte(targetsBucket))
	if err != nil {
		return err
	}
	b, err := all.CreateBucketIfNotExists([]byte(e.target))
	if err != nil {
		return err
	}
	return b.Put(e.key, e.value)
}

// target returns a target's bucket; nil when there is none.
func target(tx *bbolt.Tx, name string) *bbolt.Bucket {
	all := tx.Bucket([]byte(targetsBucket))
	if all == nil {
		return nil
	}
	return all.Bucket([]byte(name))
}

// find returns the key and value of a startup; nil when it is not kept.
func (d *database) find(name, identity string) (key, value []byte, err error) {
	err = d.view(func(tx *bbolt.Tx) error {
		b := target(tx, name)
		if b == nil {
			return nil
		}
		c := b.Cursor()
		for k, v := c.First(); k != nil; k, v = c.Next() {
			if len(k) >= timeKeySize && string(k[timeKeySize:]) == identity {
				key, value = bytes.Clone(k), bytes.Clone(v)
			}
		}
		return nil
	})
	return key, value, err
}

// prune drops what the limits no longer allow, of every target: one that is no
// longer watched must not stay for ever. Of too many targets, those with a single
// startup go first, and of these the oldest.
func (s Store) prune(tx *bbolt.Tx, now time.Time) error {
	all := tx.Bucket([]byte(targetsBucket))
	var empty [][]byte
	var kept []newest
	err := all.ForEachBucket(func(name []byte) error {
		b := all.Bucket(name)
		keys := keysOf(b)
		n := max(0, len(keys)-s.Limits.MaxStartups)
		if s.Limits.MaxAge > 0 {
			oldest := timeKey(now.Add(-s.Limits.MaxAge))
			for n < len(keys) && bytes.Compare(keys[n], oldest) < 0 {
				n++
			}
		}
		for _, k := range keys[:n] {
			if err := b.Delete(k); err != nil {
				return err
			}
		}
		if n == len(keys) {
			empty = append(empty, bytes.Clone(name))
		} else {
			kept = append(kept, newest{target: bytes.Clone(name), key: keys[len(keys)-1], several: len(keys)-n > 1})
		}
		return nil
	})
	slices.SortFunc(kept, newest.compare)
	for _, k := range kept[:max(0, len(kept)-maxTargets)] {
		empty = append(empty, k.target)
	}
	for _, name := range empty {
		err = errors.Join(err, all.DeleteBucket(name))
	}
	return err
}

// newest is the newest startup of a target.
type newest struct {
	target, key []byte
	// several says that the target has others.
	several bool
}

// compare orders targets by which goes first. A unit that comes again and again is
// worth more than one whose name was used once.
func (a newest) compare(b newest) int {
	if a.several != b.several {
		if a.several {
			return 1
		}
		return -1
	}
	return bytes.Compare(a.key, b.key)
}

func keysOf(b *bbolt.Bucket) [][]byte {
	var keys [][]byte
	c := b.Cursor()
	for k, _ := c.First(); k != nil; k, _ = c.Next() {
		keys = append(keys, bytes.Clone(k))
	}
	return keys
}

// Targets returns the names of the targets that have a startup, sorted. Without
// a file it fails with fs.ErrNotExist.
func (s Store) Targets(ctx context.Context) ([]string, error) {
	var names []string
	err := s.read(ctx, func(tx *bbolt.Tx) error {
		all := tx.Bucket([]byte(targetsBucket))
		if all == nil {
			return nil
		}
		return all.ForEachBucket(func(name []byte) error {
			names = append(names, string(name))
			return nil
		})
	})
	slices.Sort(names)
	return names, err
}

// List returns the newest startups of a target, the newest last; limit 0 is all.
// Without a file it fails with fs.ErrNotExist.
func (s Store) List(ctx context.Context, name string, limit int) ([]Record, error) {
	values, err := s.newest(ctx, name, limit)
	if err != nil {
		return nil, err
	}
	var out []Record
	for _, v := range values {
		r, err := decode(v)
		if err != nil {
			return nil, s.wrap(err)
		}
		out = append(out, r)
	}
	return out, nil
}

// newest returns copies of the newest records, the newest last.
func (s Store) newest(ctx context.Context, name string, limit int) ([][]byte, error) {
	var values [][]byte
	err := s.read(ctx, func(tx *bbolt.Tx) error {
		b := target(tx, name)
		if b == nil {
			return nil
		}
		c := b.Cursor()
		for k, v := c.Last(); k != nil && (limit == 0 || len(values) < limit); k, v = c.Prev() {
			values = append(values, bytes.Clone(v))
		}
		return nil
	})
	slices.Reverse(values)
	return values, err
}

func (s Store) read(ctx context.Context, f func(tx *bbolt.Tx) error) error {
	d, err := open(ctx, s.Path, true, false)
	if err != nil {
		return s.wrap(err)
	}
	err = d.check()
	if err == nil {
		err = d.view(f)
	}
	return s.wrap(errors.Join(err, d.close()))
}

// maxDamaged is how many damaged files are kept to be looked at.
const maxDamaged = 3

// SetAside renames a file that can't be used, and returns its new name. Of those
// set aside before only the newest stay.
func (s Store) SetAside(now time.Time) (kept string, err error) {
	kept = s.Path + ".damaged-" + now.UTC().Format("20060102T150405Z")
	if err := os.Rename(s.Path, kept); err != nil {
		return "", s.wrap(err)
	}
	// The names sort by time. The pattern is of our own making, but for the path.
	entries, err := os.ReadDir(filepath.Dir(s.Path))
	var old []string
	for _, e := range entries {
		if bytes.HasPrefix([]byte(e.Name()), []byte(filepath.Base(s.Path)+".damaged-")) {
			old = append(old, filepath.Join(filepath.Dir(s.Path), e.Name()))
		}
	}
	for _, name := range old[:max(0, len(old)-maxDamaged)] {
		err = errors.Join(err, os.Remove(name))
	}
	return kept, s.wrap(err)
}
