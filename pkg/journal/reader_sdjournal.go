//go:build sdjournal

package journal

// #cgo CFLAGS: -O3
// #cgo LDFLAGS: -ldl
// #include <stdlib.h>
// #include "sdjournal.h"
import "C"

import (
	"encoding/hex"
	"errors"
	"fmt"
	"slices"
	"syscall"
	"time"
	"unsafe"
)

// Available says why the sdjournal reader can't be used here; nil when it can.
func Available() error {
	if msg := C.jr_load(); msg != nil {
		return fmt.Errorf("the sdjournal reader can't load libsystemd: %s; install libsystemd0 or use --journal.reader=journalctl", C.GoString(msg))
	}
	return nil
}

// sdReader reads journal files by libsystemd. Its memory is C's, so that
// nothing of Go's is kept by C between calls.
type sdReader struct {
	r      *C.jr
	fields *C.jr_field
	buf    *C.char
	size   C.size_t
	from   string
}

const (
	batchSize    = 256 << 10
	batchEntries = 1000
)

func openSD(q *request) (j sdJournal, closeJournal func(), err error) {
	if err := Available(); err != nil {
		return nil, nil, err
	}
	s := &sdReader{size: batchSize, buf: (*C.char)(C.malloc(batchSize))}
	s.setFields(q)
	s.r = (*C.jr)(C.calloc(1, C.size_t(unsafe.Sizeof(C.jr{}))))
	s.r.fields, s.r.limit = s.fields, fieldLimit
	s.r.nfields = C.size_t(len(wantedFields(q)))
	s.r.reverse, s.r.cursors, s.r.follow = flag(q.Reverse), flag(q.Cursors), flag(q.Follow)
	if err := s.setUntil(q.Until); err != nil {
		s.close()
		return nil, nil, err
	}
	if err := s.open(q); err != nil {
		s.close()
		return nil, nil, err
	}
	return s, s.close, nil
}

func (s *sdReader) setUntil(cursor string) error {
	if cursor == "" {
		return nil
	}
	p, err := parsePlace(cursor)
	if err != nil {
		return err
	}
	boot, err := hex.DecodeString(p.boot)
	if err != nil || len(boot) != 16 {
		return fmt.Errorf("%q: %w", cursor, errCursor)
	}
	for i, b := range boot {
		s.r.until_boot[i] = C.uint8_t(b)
	}
	s.r.has_until, s.r.until_mono = 1, C.uint64_t(p.mono)
	return nil
}

func (s *sdReader) open(q *request) error {
	var dir *C.char
	if q.Dir != "" {
		dir = C.CString(q.Dir)
		defer C.free(unsafe.Pointer(dir))
	}
	if rc := C.jr_open(s.r, dir); rc < 0 {
		return fmt.Errorf("open journal %s: %w", q.Dir, syscall.Errno(-rc))
	}
	for _, all := range q.Matches {
		for _, m := range all {
			c := C.CString(m)
			rc := C.jr_match(s.r, c, C.size_t(len(m)))
			C.free(unsafe.Pointer(c))
			if rc < 0 {
				return fmt.Errorf("match %q: %w", m, syscall.Errno(-rc))
			}
		}
		if rc := C.jr_or(s.r); rc < 0 {
			return fmt.Errorf("match %q: %w", all, syscall.Errno(-rc))
		}
	}
	s.from = q.From
	if rc := s.seek(); rc < 0 {
		return fmt.Errorf("seek to %q: %w", q.From, syscall.Errno(-rc))
	}
	return nil
}

// read returns the next batch in export format, valid until the next call, and
// whether there is more at once.
func (s *sdReader) read(limit int) (batch, error) {
	for {
		var res C.jr_result
		C.jr_read(s.r, s.buf, s.size, C.uint64_t(min(limit, batchEntries)), &res)
		switch {
		case res.state < 0:
			return batch{}, fmt.Errorf("read journal: %w", syscall.Errno(-res.state))
		case res.state == C.JR_GROW:
			s.size *= 2
			s.buf = (*C.char)(C.realloc(unsafe.Pointer(s.buf), s.size))
			continue
		}
		return batch{
			data: unsafe.Slice((*byte)(unsafe.Pointer(s.buf)), int(res.used)), entries: int(res.entries),
			tail: res.state == C.JR_TAIL || res.state == C.JR_LATER, soon: res.state == C.JR_LATER, end: res.state == C.JR_UNTIL, bad: uint64(s.r.bad),
		}, nil
	}
}

// again makes the next read look anew for what is behind the last entry.
func (s *sdReader) again() error {
	var rc C.int
	if s.r.first != 0 {
		rc = s.seek()
	} else {
		rc = C.jr_again(s.r)
	}
	switch {
	case rc == -C.int(syscall.ESTALE):
		return errors.New("the last entry read is gone from the journal")
	case rc < 0:
		return fmt.Errorf("look at the journal's end again: %w", syscall.Errno(-rc))
	}
	return nil
}

func (s *sdReader) seek() C.int {
	var from *C.char
	if s.from != "" {
		from = C.CString(s.from)
		defer C.free(unsafe.Pointer(from))
	}
	return C.jr_seek(s.r, from)
}

// wait returns when the journal has changed, or after d. A file that came may
// begin behind entries of another one that libsystemd has passed over: they
// must be found before the reader is beyond them for good.
func (s *sdReader) wait(d time.Duration) error {
	switch rc := C.jr_wait(s.r, C.uint64_t(d.Microseconds())); {
	case rc < 0:
		return fmt.Errorf("wait for the journal: %w", syscall.Errno(-rc))
	case rc == C.JR_FILES:
		return s.again()
	}
	return nil
}

func (s *sdReader) close() {
	C.jr_close(s.r)
	for _, f := range unsafe.Slice(s.fields, int(s.r.nfields)) {
		C.free(unsafe.Pointer(f.name))
		C.free(unsafe.Pointer(f.value))
	}
	C.free(unsafe.Pointer(s.fields))
	C.free(unsafe.Pointer(s.buf))
	C.free(unsafe.Pointer(s.r))
}

func (s *sdReader) setFields(q *request) {
	wanted := wantedFields(q)
	slices.SortFunc(wanted, func(a, b wantedField) int { return len(a.name) - len(b.name) })
	s.fields = (*C.jr_field)(C.calloc(C.size_t(len(wanted)), C.size_t(unsafe.Sizeof(C.jr_field{}))))
	for i, w := range wanted {
		f := &unsafe.Slice(s.fields, len(wanted))[i]
		f.name, f.len = C.CString(w.name), C.size_t(len(w.name))
		f.always = flag(w.always)
		switch {
		case w.equals != "":
			f.full, f.value = C.JR_EQUALS, C.CString(w.equals)
		case w.ends != "":
			f.full, f.value = C.JR_ENDS, C.CString(w.ends)
		case w.present:
			f.full = C.JR_PRESENT
		}
	}
}

func flag(b bool) C.int {
	if b {
		return 1
	}
	return 0
}
