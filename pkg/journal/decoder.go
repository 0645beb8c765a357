package journal

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"os"
)

const (
	// fieldLimit bounds the memory that one field may take. journald cuts lines
	// at 48 KiB (LineMax); only its native protocol brings more.
	fieldLimit = 1 << 20
	// nameLimit is more than the 64 bytes that journald allows.
	nameLimit = 256
	readSize  = 64 << 10
)

// TruncatedError says that a stream ended inside an entry.
type TruncatedError struct {
	// Offset is the length of the stream.
	Offset int64
	// Field is the one that was cut; "" when the stream ended between two
	// fields, before the empty line that ends an entry.
	Field string
}

func (e *TruncatedError) Error() string {
	if e.Field == "" {
		return fmt.Sprintf("journal export: stream ends at byte %d before the end of an entry", e.Offset)
	}
	return fmt.Sprintf("journal export: stream ends at byte %d inside field %q", e.Offset, e.Field)
}

// FormatError says that bytes are not in the Journal Export Format.
type FormatError struct {
	// Offset counts the bytes before the fault.
	Offset int64
	Reason string
}

func (e *FormatError) Error() string {
	return fmt.Sprintf("journal export: byte %d: %s; is the input made by journalctl -o export?", e.Offset, e.Reason)
}

// Decoder reads the Journal Export Format
// (https://systemd.io/JOURNAL_EXPORT_FORMATS/). Its memory is bounded by the
// fields in use times the field limit, whatever the input.
type Decoder struct {
	r        io.Reader
	limit    int
	buf      []byte
	start    int // of the entry in buf
	pos, end int
	read     int64 // bytes taken from r
	err      error // of r; nil until it ends
	entry    Entry
}

// NewDecoder returns a Decoder on r. Fields longer than 1 MiB are cut.
func NewDecoder(r io.Reader) *Decoder {
	return &Decoder{r: r, limit: fieldLimit, buf: make([]byte, readSize)}
}

// Buffered is how many bytes were read and not decoded yet.
func (d *Decoder) Buffered() int { return d.end - d.pos }

// more reads if nothing is buffered. Between two entries a read may be given up
// (os.ErrDeadlineExceeded) and tried again.
func (d *Decoder) more() error {
	if d.Buffered() > 0 {
		return nil
	}
	d.start = d.pos
	err := d.fill()
	if errors.Is(err, os.ErrDeadlineExceeded) {
		d.err = nil
	}
	return err
}

// Decode returns the next entry, which is valid until the next call. At the
// end it returns io.EOF. With a *TruncatedError it returns what there is of
// the last entry. After a *FormatError the next call goes on behind the next
// empty line.
func (d *Decoder) Decode() (*Entry, error) {
	e := &d.entry
	e.has, e.Cut, e.buf = 0, 0, nil
	d.start = d.pos
	fields := 0
	for {
		name, err := d.name()
		if err == io.EOF && fields > 0 {
			err = &TruncatedError{Offset: d.offset()}
		}
		if err != nil {
			return d.fail(err)
		}
		if name.blank {
			if fields > 0 {
				e.buf = d.buf[d.start:d.pos]
				return e, nil
			}
			d.start = d.pos
			continue
		}
		fields++
		if err := d.value(name); err != nil {
			return d.fail(err)
		}
	}
}

// fail returns what was read of the entry with a truncation, and makes the
// next call start behind the entry after a format error.
func (d *Decoder) fail(err error) (*Entry, error) {
	var format *FormatError
	if errors.As(err, &format) {
		d.resync()
		return nil, err
	}
	var trunc *TruncatedError
	if errors.As(err, &trunc) {
		d.entry.buf = d.buf[d.start:d.pos]
		d.pos = d.end // nothing whole comes behind
		return &d.entry, err
	}
	return nil, err
}

// offset is the position in the stream of the next byte to decode.
func (d *Decoder) offset() int64 { return d.read - int64(d.end-d.pos) }

// fieldName is what stands before a value.
type fieldName struct {
	field  Field
	binary bool
	blank  bool // an empty line: the entry's end
}

// name reads up to the = of a text field or the newline of a binary one.
func (d *Decoder) name() (fieldName, error) {
	n := 0
	for {
		// No further than the limit, so that a name's fate does not hang on how much
		// of it is there.
		for i, c := range d.buf[d.pos+n : min(d.end, d.pos+nameLimit+1)] {
			if isFieldByte(c) {
				continue
			}
			p := d.pos + n + i
			size := p - d.pos
			f := noField
			switch {
			case c == '=' && size > 0:
				f = lookupField(d.buf[d.pos:p])
			case c == '\n':
				f = lookupField(d.buf[d.pos:p])
			default:
				return fieldName{}, d.format(p, "%q in a field's name", c)
			}
			d.pos = p + 1
			return fieldName{field: f, binary: c == '\n' && size > 0, blank: size == 0}, nil
		}
		n = d.end - d.pos
		if n > nameLimit {
			return fieldName{}, d.format(d.pos, "a field's name of more than %d bytes", nameLimit)
		}
		if err := d.fill(); err != nil {
			if err == io.EOF && n > 0 {
				err = &TruncatedError{Offset: d.read, Field: string(d.buf[d.pos:d.end])}
			}
			return fieldName{}, err
		}
	}
}

func isFieldByte(c byte) bool {
	return c >= 'A' && c <= 'Z' || c == '_' || c >= '0' && c <= '9'
}

func (d *Decoder) format(p int, reason string, args ...any) error {
	return &FormatError{Offset: d.read - int64(d.end-p), Reason: fmt.Sprintf(reason, args...)}
}

func (d *Decoder) value(n fieldName) error {
	if n.binary {
		return d.binaryValue(n.field)
	}
	return d.textValue(n.field)
}

func (d *Decoder) textValue(f Field) error {
	from := d.pos - d.start
	seen := 0 // bytes after from that hold no newline
	for {
		at := d.start + from
		if i := bytes.IndexByte(d.buf[at+seen:d.end], '\n'); i >= 0 {
			d.set(f, from, seen+i)
			d.pos = at + seen + i + 1
			return nil
		}
		seen = d.end - at
		if d.room(f) <= seen {
			return d.skipText(f, from, seen)
		}
		if err := d.fill(); err != nil {
			return d.cutShort(err, f)
		}
	}
}

// skipText drops the rest of a text value that is unused or too long.
func (d *Decoder) skipText(f Field, from, seen int) error {
	d.keep(f, from, seen)
	for {
		if err := d.fill(); err != nil {
			return d.cutShort(err, f)
		}
		if i := bytes.IndexByte(d.buf[d.pos:d.end], '\n'); i >= 0 {
			d.pos += i + 1
			return nil
		}
		d.end = d.pos
	}
}

func (d *Decoder) binaryValue(f Field) error {
	for d.end-d.pos < 8 {
		if err := d.fill(); err != nil {
			return d.cutShort(err, f)
		}
	}
	size := binary.LittleEndian.Uint64(d.buf[d.pos:])
	if size > 1<<40 {
		return d.format(d.pos, "field %s claims %d bytes", f, size)
	}
	d.pos += 8
	from := d.pos - d.start
	keep := min(int(size), d.room(f))
	for d.end-d.start-from < keep {
		if err := d.fill(); err != nil {
			return d.cutShort(err, f)
		}
	}
	if rest := int(size) - (d.end - d.start - from); rest >= 0 && keep < int(size) {
		d.keep(f, from, keep)
		if err := d.discard(rest); err != nil {
			return d.cutShort(err, f)
		}
	} else {
		d.set(f, from, int(size))
		d.pos = d.start + from + int(size)
	}
	return d.newline(f)
}

// newline takes the newline behind a binary value.
func (d *Decoder) newline(f Field) error {
	for d.pos == d.end {
		if err := d.fill(); err != nil {
			return d.cutShort(err, f)
		}
	}
	if d.buf[d.pos] != '\n' {
		return d.format(d.pos, "no newline behind the binary field %s", f)
	}
	d.pos++
	return nil
}

// room is how much of the field's value is kept.
func (d *Decoder) room(f Field) int {
	if f == noField {
		return 0
	}
	return d.limit
}

// set notes a value that lies in the buffer. Of a field that comes twice the
// first value counts.
func (d *Decoder) set(f Field, from, size int) {
	if f == noField || d.entry.Has(f) {
		return
	}
	if size > d.limit {
		size = d.limit
		d.entry.Cut++
	}
	d.entry.span[f] = span{from, from + size}
	d.entry.has |= 1 << f
}

// keep notes the beginning of a value whose rest will be dropped, and makes
// the buffer end there.
func (d *Decoder) keep(f Field, from, size int) {
	size = min(size, d.room(f))
	if f != noField {
		d.set(f, from, size)
		d.entry.Cut++
	}
	d.pos = d.start + from + size
	d.end = d.pos
}

// discard drops n bytes of the stream; the buffer is empty behind pos.
func (d *Decoder) discard(n int) error {
	for n > 0 {
		if err := d.fill(); err != nil {
			return err
		}
		k := min(n, d.end-d.pos)
		n -= k
		if n > 0 {
			d.end = d.pos
			continue
		}
		d.pos += k
	}
	return nil
}

func (d *Decoder) cutShort(err error, f Field) error {
	if err != io.EOF {
		return err
	}
	return &TruncatedError{Offset: d.read, Field: f.String()}
}

// fill reads more behind end. It keeps the entry so far and may move it to the
// buffer's front.
func (d *Decoder) fill() error {
	if d.err != nil {
		return d.err
	}
	if d.start > 0 {
		copy(d.buf, d.buf[d.start:d.end])
		d.pos -= d.start
		d.end -= d.start
		d.start = 0
	}
	if len(d.buf)-d.end < readSize/4 {
		d.buf = append(d.buf, make([]byte, len(d.buf))...)
	}
	for range 100 {
		n, err := d.r.Read(d.buf[d.end:])
		d.end += n
		d.read += int64(n)
		d.err = err
		if n > 0 {
			return nil
		}
		if err != nil {
			return err
		}
	}
	return io.ErrNoProgress
}

// resync skips to behind the next empty line, or to the stream's end.
func (d *Decoder) resync() {
	newlines := 0
	for {
		for ; d.pos < d.end; d.pos++ {
			if d.buf[d.pos] != '\n' {
				newlines = 0
				continue
			}
			if newlines++; newlines == 2 {
				d.pos++
				return
			}
		}
		d.start = d.pos
		if d.fill() != nil {
			return
		}
	}
}
