package history

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/fnv"
	"io"
	"math"
)

// bbolt trusts the pages of its file: a pointer beyond the end is a fault that
// ends the process, a page that leads to itself overflows the stack. So the
// file is walked here first, with plain reads. The layout is that of bbolt's
// format 2.
const (
	boltMagic   = 0xED0CDAED
	boltVersion = 2

	pageHeader  = 16 // id u64, flags u16, count u16, overflow u32
	elementSize = 16
	metaSize    = 64
	metaSummed  = 56 // what the checksum behind it covers

	branchPage   = 0x01
	leafPage     = 0x02
	freelistPage = 0x10

	bucketElement = 0x01
	bucketHeader  = 16 // root u64, sequence u64
	noFreelist    = math.MaxUint64
)

// verify walks all pages that bbolt can come to. It fails with ErrDamaged or
// ErrNewer, or when the file can't be read.
func verify(r io.ReaderAt, size int64) error {
	m, err := findMeta(r, size)
	if err != nil {
		return err
	}
	w := walker{r: r, meta: m, seen: map[uint64]bool{}}
	if m.high > uint64(size)/m.pageSize {
		return damaged("it holds %d bytes, and %d pages of %d should be there", size, m.high, m.pageSize)
	}
	if err := w.bucket(m.root); err != nil {
		return err
	}
	if m.freelist == noFreelist {
		return nil
	}
	return w.free(m.freelist)
}

func damaged(format string, args ...any) error {
	return fmt.Errorf("%w: %s", ErrDamaged, fmt.Sprintf(format, args...))
}

// meta is where a transaction has left the file.
type meta struct {
	pageSize uint64
	// root and freelist are pages, high is the first page behind the used ones.
	root, freelist, high, txid uint64
}

// findMeta returns the newest of the two that is whole. The second lies on the
// second page, of a size that only the first tells for certain.
func findMeta(r io.ReaderAt, size int64) (meta, error) {
	var best meta
	var newer error
	try := func(at int64) bool {
		m, err := readMeta(r, at)
		if errors.Is(err, ErrNewer) {
			newer = err
		}
		if err != nil {
			return false
		}
		if best.pageSize == 0 || m.txid > best.txid {
			best = m
		}
		return true
	}
	if try(0) {
		try(int64(best.pageSize))
	} else {
		for at := int64(1024); at <= 1024<<14 && at < size && !try(at); at *= 2 {
		}
	}
	switch {
	case best.pageSize != 0:
		return best, nil
	case newer != nil:
		return best, newer
	}
	return best, damaged("it has no header")
}

func readMeta(r io.ReaderAt, at int64) (meta, error) {
	page := make([]byte, pageHeader+metaSize)
	if _, err := r.ReadAt(page, at); err != nil {
		return meta{}, err
	}
	b, n := page[pageHeader:], binary.NativeEndian
	if n.Uint32(b) != boltMagic {
		return meta{}, damaged("it has no header")
	}
	if v := n.Uint32(b[4:]); v > boltVersion {
		return meta{}, fmt.Errorf("%w: its bbolt format is %d, known is %d", ErrNewer, v, boltVersion)
	}
	sum := fnv.New64a()
	sum.Write(b[:metaSummed])
	m := meta{
		pageSize: uint64(n.Uint32(b[8:])), root: n.Uint64(b[16:]), freelist: n.Uint64(b[32:]), high: n.Uint64(b[40:]), txid: n.Uint64(b[48:]),
	}
	if sum.Sum64() != n.Uint64(b[metaSummed:]) || m.pageSize < 512 || m.pageSize > 1<<24 {
		return meta{}, damaged("its header is broken")
	}
	return m, nil
}

// walker visits pages, each once.
type walker struct {
	r io.ReaderAt
	meta
	seen map[uint64]bool
}

// page returns a page with those that it overflows into.
func (w *walker) page(id uint64) ([]byte, error) {
	if id < 2 || id >= w.high {
		return nil, damaged("it leads to page %d of %d", id, w.high)
	}
	head := make([]byte, pageHeader)
	if err := w.read(head, id); err != nil {
		return nil, err
	}
	self, overflow := binary.NativeEndian.Uint64(head), uint64(binary.NativeEndian.Uint32(head[12:]))
	if self != id || overflow >= w.high-id {
		return nil, damaged("page %d is none", id)
	}
	for i := id; i <= id+overflow; i++ {
		if w.seen[i] {
			return nil, damaged("two pages lead to page %d", i)
		}
		w.seen[i] = true
	}
	b := make([]byte, (overflow+1)*w.pageSize)
	return b, w.read(b, id)
}

func (w *walker) read(b []byte, id uint64) error {
	_, err := w.r.ReadAt(b, int64(id*w.pageSize))
	if errors.Is(err, io.EOF) {
		return damaged("it ends within page %d", id)
	}
	return err
}

// order checks that keys ascend within a bucket.
type order struct {
	// last is the last key, least what the branch above promises; nil at first.
	last, least []byte
}

func (o *order) key(k []byte) error {
	if o.last != nil && bytes.Compare(k, o.last) <= 0 || o.least != nil && bytes.Compare(k, o.least) < 0 {
		return damaged("its keys are out of order")
	}
	o.last = bytes.Clone(k)
	return nil
}

func (o *order) branch(k []byte) error {
	if o.last != nil && bytes.Compare(k, o.last) <= 0 {
		return damaged("its keys are out of order")
	}
	o.least = bytes.Clone(k)
	return nil
}

func (w *walker) bucket(root uint64) error { return w.tree(root, &order{}) }

func (w *walker) tree(id uint64, o *order) error {
	b, err := w.page(id)
	if err != nil {
		return err
	}
	flags, count, err := elements(b)
	switch {
	case err != nil:
		return err
	case flags == leafPage:
		return w.leaf(b, count, o)
	case flags != branchPage || count == 0:
		return damaged("page %d is neither branch nor leaf", id)
	}
	for i := range count {
		at := uint64(pageHeader + i*elementSize)
		n := binary.NativeEndian
		key, err := span(b, at+uint64(n.Uint32(b[at:])), uint64(n.Uint32(b[at+4:])), count)
		if err == nil {
			err = o.branch(key)
		}
		if err == nil {
			err = w.tree(n.Uint64(b[at+8:]), o)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

func (w *walker) leaf(b []byte, count int, o *order) error {
	n := binary.NativeEndian
	for i := range count {
		at := uint64(pageHeader + i*elementSize)
		flags, pos := n.Uint32(b[at:]), at+uint64(n.Uint32(b[at+4:]))
		size := uint64(n.Uint32(b[at+8:]))
		key, err := span(b, pos, size, count)
		if err != nil {
			return err
		}
		value, err := span(b, pos+size, uint64(n.Uint32(b[at+12:])), count)
		if err != nil {
			return err
		}
		if err := o.key(key); err != nil {
			return err
		}
		if flags&bucketElement != 0 {
			if err := w.nested(value); err != nil {
				return err
			}
		}
	}
	return nil
}

// nested visits the bucket that a value is: a small one lies within the value.
func (w *walker) nested(value []byte) error {
	if len(value) < bucketHeader {
		return damaged("a bucket is cut")
	}
	if root := binary.NativeEndian.Uint64(value); root != 0 {
		return w.bucket(root)
	}
	flags, count, err := elements(value[bucketHeader:])
	if err == nil && flags != leafPage {
		err = damaged("a small bucket is no leaf")
	}
	if err != nil {
		return err
	}
	return w.leaf(value[bucketHeader:], count, &order{})
}

// elements reads a page's header and checks that its table fits.
func elements(b []byte) (flags uint16, count int, err error) {
	if len(b) < pageHeader {
		return 0, 0, damaged("a page is cut")
	}
	flags, count = binary.NativeEndian.Uint16(b[8:]), int(binary.NativeEndian.Uint16(b[10:]))
	if pageHeader+count*elementSize > len(b) {
		err = damaged("a page's table is longer than the page")
	}
	return flags, count, err
}

// span returns a key or a value: size bytes at a place behind the table of
// count elements.
func span(b []byte, at, size uint64, count int) ([]byte, error) {
	if at < uint64(pageHeader+count*elementSize) || at+size > uint64(len(b)) {
		return nil, damaged("a key or value lies outside its page")
	}
	return b[at : at+size], nil
}

// free checks that the pages to be written next are in no use.
func (w *walker) free(id uint64) error {
	b, err := w.page(id)
	if err != nil {
		return err
	}
	n := binary.NativeEndian
	count, ids := uint64(n.Uint16(b[10:])), b[pageHeader:]
	if n.Uint16(b[8:]) != freelistPage {
		return damaged("page %d is no list of free pages", id)
	}
	if count == math.MaxUint16 {
		count, ids = n.Uint64(ids), ids[8:]
	}
	if count > uint64(len(ids)/8) {
		return damaged("its list of free pages is cut")
	}
	for ; count > 0; count, ids = count-1, ids[8:] {
		free := n.Uint64(ids)
		if free < 2 || free >= w.high || w.seen[free] {
			return damaged("page %d is free and in use", free)
		}
		w.seen[free] = true
	}
	return nil
}
