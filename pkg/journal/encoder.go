package journal

import (
	"encoding/binary"
	"io"
)

// Encoder writes the Journal Export Format.
type Encoder struct {
	w   io.Writer
	buf []byte
}

// NewEncoder returns an Encoder on w.
func NewEncoder(w io.Writer) *Encoder { return &Encoder{w: w} }

// Field adds a field to the present entry, as text where that is possible.
func (e *Encoder) Field(name string, value []byte) {
	e.buf = append(e.buf, name...)
	if isText(value) {
		e.buf = append(e.buf, '=')
	} else {
		e.buf = append(e.buf, '\n')
		e.buf = binary.LittleEndian.AppendUint64(e.buf, uint64(len(value)))
	}
	e.buf = append(e.buf, value...)
	e.buf = append(e.buf, '\n')
}

// End ends the present entry and writes it.
func (e *Encoder) End() error {
	_, err := e.w.Write(append(e.buf, '\n'))
	e.buf = e.buf[:0]
	return err
}

// isText says that a value needs no length: the format's readers take
// everything up to the newline.
func isText(b []byte) bool {
	for _, c := range b {
		if c < ' ' && c != '\t' {
			return false
		}
	}
	return true
}
