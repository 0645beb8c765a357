package journal

import (
	"time"

	"github.com/startupd/startupd/pkg/event"
)

// Entry is one journal entry: the fields that startupd uses. It points into
// its Decoder's buffer and is valid until the next call of Decode.
type Entry struct {
	buf  []byte
	span [numFields]span
	has  uint64
	// Cut counts the fields whose end was left out because they are longer than
	// the decoder's limit.
	Cut int
}

// span is a field's value, relative to the entry's first byte.
type span struct{ from, to int }

// Has says that the entry has the field.
func (e *Entry) Has(f Field) bool { return e.has&(1<<f) != 0 }

// Bytes returns the field's value; nil when the entry does not have it.
func (e *Entry) Bytes(f Field) []byte {
	if !e.Has(f) {
		return nil
	}
	s := e.span[f]
	return e.buf[s.from:s.to:s.to]
}

// String returns a copy of the field's value; "" when the entry does not have
// it.
func (e *Entry) String(f Field) string { return string(e.Bytes(f)) }

// Is says that the entry has the field with that value.
func (e *Entry) Is(f Field, value string) bool { return e.Has(f) && string(e.Bytes(f)) == value }

// Uint returns the field's value as a number; false when the entry does not
// have it, or it is none.
func (e *Entry) Uint(f Field) (uint64, bool) { return parseUint(e.Bytes(f)) }

// Int is Uint for a small number; 0 when there is none.
func (e *Entry) Int(f Field) int {
	n, ok := e.Uint(f)
	if !ok || n > 1<<53 {
		return 0
	}
	return int(n)
}

// At is when journald received the entry.
func (e *Entry) At() event.Stamp { return e.at("") }

// at is At with a boot ID that the caller has seen before, to save the copy.
func (e *Entry) at(boot string) event.Stamp {
	var s event.Stamp
	if us, ok := e.Uint(Realtime); ok && us < maxReal {
		s.Real = time.UnixMicro(int64(us)).UTC()
	}
	b := e.Bytes(BootID)
	us, ok := e.Uint(Monotonic)
	if !ok || len(b) == 0 || us > uint64(maxMono/time.Microsecond) {
		return s
	}
	if string(b) != boot {
		boot = string(b)
	}
	s.Boot, s.Mono = boot, time.Duration(us)*time.Microsecond
	return s
}

// maxReal is the year 10000 in µs, which JSON has no stamp for.
const maxReal = 253_402_300_800_000_000

// maxMono is the longest uptime that a time.Duration holds.
const maxMono = time.Duration(1<<63 - 1)

func parseUint(b []byte) (uint64, bool) {
	if len(b) == 0 || len(b) > 19 {
		return 0, false
	}
	var n uint64
	for _, c := range b {
		if c < '0' || c > '9' {
			return 0, false
		}
		n = n*10 + uint64(c-'0')
	}
	return n, true
}
