package journal

import (
	"bytes"
	"encoding/binary"
	"strings"
	"unicode/utf8"
)

// LineLimit is the longest line that is kept, in bytes; the rest is cut and
// counted as a gap. journald's own limit is 48 KiB.
const LineLimit = 64 << 10

// CleanLine is one line of a message.
type CleanLine struct {
	Text string
	// Bar is set on the last state of a progress bar that redraws itself.
	Bar bool
	// Cut says that the line was longer than LineLimit.
	Cut bool
}

// Cleaner splits messages into clean lines: valid UTF-8, without ANSI
// sequences and control characters, split at newlines and carriage returns.
// Of a bar that redraws itself only the last state is kept. It reuses its
// memory; the zero value is ready for use.
type Cleaner struct {
	lines    []CleanLine
	scratch  []byte
	segments [][]byte
}

// Lines returns the message's lines that are not blank. The slice is valid
// until the next call, the texts are copies.
func (c *Cleaner) Lines(msg []byte) []CleanLine {
	c.lines = c.lines[:0]
	if isClean(msg) {
		c.add(msg, false)
		return c.lines
	}
	for len(msg) > 0 {
		line := msg
		if i := bytes.IndexByte(msg, '\n'); i >= 0 {
			line, msg = msg[:i], msg[i+1:]
		} else {
			msg = nil
		}
		c.line(line)
	}
	return c.lines
}

// add appends a line of which only the end may still need a trim.
func (c *Cleaner) add(b []byte, bar bool) {
	b = bytes.TrimRight(b, " \t")
	if len(b) == 0 {
		return
	}
	cut := len(b) > LineLimit
	if cut {
		n := LineLimit
		for n > 0 && !utf8.RuneStart(b[n]) {
			n--
		}
		b = b[:n]
	}
	c.lines = append(c.lines, CleanLine{Text: string(b), Bar: bar, Cut: cut})
}

// line cleans what stands between two newlines.
func (c *Cleaner) line(b []byte) {
	c.scratch = appendClean(c.scratch[:0], b)
	if bytes.IndexByte(c.scratch, '\r') < 0 {
		c.add(c.scratch, false)
		return
	}
	c.redrawn(c.scratch)
}

// redrawn takes apart a line with carriage returns: each state of a bar
// overwrites the one before, all else was meant to be read. What tells the
// process stands before the first state only, so it is carried to the others.
func (c *Cleaner) redrawn(b []byte) {
	c.segments = c.segments[:0]
	for seg := range bytes.SplitSeq(b, []byte{'\r'}) {
		if len(bytes.TrimSpace(seg)) > 0 {
			c.segments = append(c.segments, seg)
		}
	}
	if len(c.segments) == 0 {
		return
	}
	var prefix []byte
	if n := procPrefix(c.segments[0]); n > 0 {
		prefix = c.segments[0][:n:n]
	}
	for i, seg := range c.segments {
		bar := isBar(seg)
		if i == 0 && len(prefix) == len(seg) && len(c.segments) > 1 {
			continue
		}
		if bar && i+1 < len(c.segments) && sameBar(trimProc(seg), trimProc(c.segments[i+1])) {
			continue
		}
		if i > 0 && len(prefix) > 0 && procPrefix(seg) == 0 {
			seg = append(prefix, seg...)
		}
		c.add(seg, bar)
	}
}

// isClean says that the message is one line that needs no cleaning: printable
// ASCII and tabs, or valid UTF-8 without control characters.
func isClean(b []byte) bool {
	i := 0
	const ones = 0x0101010101010101
	for ; i+8 <= len(b); i += 8 {
		w := binary.LittleEndian.Uint64(b[i:])
		// Set in the top bit of a byte: its value is 0x80 or more, 0x7f, or
		// below 0x20.
		if (w|(w+ones)|(w-0x20*ones))&(0x80*ones) != 0 {
			break
		}
	}
	ascii := true
	for _, c := range b[i:] {
		if c < ' ' && c != '\t' || c == 0x7f {
			return false
		}
		ascii = ascii && c < utf8.RuneSelf
	}
	if !ascii && (!utf8.Valid(b) || hasC1(b)) {
		return false
	}
	return bytes.IndexByte(b, '#') < 0 || !bytes.Contains(b, []byte(escapedCSI))
}

// escapedCSI is ESC [ in the form that syslog daemons write.
const escapedCSI = "#033["

// hasC1 says that valid UTF-8 holds one of the control characters U+0080 to
// U+009F.
func hasC1(b []byte) bool {
	for i := 0; i+1 < len(b); i++ {
		if b[i] == 0xc2 && b[i+1] < 0xa0 {
			return true
		}
	}
	return false
}

// appendClean appends b without ANSI sequences, control characters (tab and
// carriage return apart), and with U+FFFD for what is no UTF-8.
func appendClean(dst, b []byte) []byte {
	for i := 0; i < len(b); {
		c := b[i]
		switch {
		case c == 0x1b:
			i += 1 + escapeLen(b[i+1:])
		case c == '#' && bytes.HasPrefix(b[i:], []byte(escapedCSI)):
			i += 4 + escapeLen(b[i+4:])
		case c == '\r' || c == '\t' || c >= ' ' && c < 0x7f:
			dst = append(dst, c)
			i++
		case c < utf8.RuneSelf:
			i++
		default:
			r, n := utf8.DecodeRune(b[i:])
			if r > 0x9f { // U+0080 to U+009F are control characters
				dst = utf8.AppendRune(dst, r)
			}
			i += n
		}
	}
	return dst
}

// escapeLen returns how many bytes behind an ESC belong to its sequence
// (ECMA-48: CSI, OSC and the other strings, two- and three-byte escapes).
func escapeLen(b []byte) int {
	if len(b) == 0 {
		return 0
	}
	switch c := b[0]; {
	case c == '[':
		for i := 1; i < len(b) && i < 64; i++ {
			if b[i] >= 0x40 && b[i] <= 0x7e {
				return i + 1
			}
			if b[i] < 0x20 || b[i] > 0x3f {
				return i
			}
		}
		return 1
	case c == ']' || c == 'P' || c == '_' || c == '^' || c == 'X':
		return stringLen(b)
	case c >= 0x20 && c <= 0x2f:
		return min(2, len(b))
	case c >= 0x30 && c <= 0x7e:
		return 1
	}
	return 0
}

// stringLen is escapeLen of a sequence that ends with BEL or ESC \.
func stringLen(b []byte) int {
	for i := 1; i < len(b); i++ {
		switch b[i] {
		case 0x07:
			return i + 1
		case 0x1b:
			if i+1 < len(b) && b[i+1] == '\\' {
				return i + 2
			}
			return i
		}
	}
	return 1
}

// procPrefix returns the length of what names the writing process at the
// line's beginning: one or more groups like "(Name pid=12) ".
func procPrefix(b []byte) int {
	n := 0
	for n < len(b) && b[n] == '(' {
		end := bytes.IndexByte(b[n:], ')')
		if end < 0 || end > 80 || !bytes.Contains(b[n:n+end], []byte("pid=")) {
			break
		}
		n += end + 1
		for n < len(b) && b[n] == ' ' {
			n++
		}
	}
	return n
}

func trimProc(b []byte) []byte { return b[procPrefix(b):] }

// isBar says that a segment looks like a state of a progress bar: a percentage
// with a bar or a count behind it, or a count with a rate.
func isBar(b []byte) bool {
	for i := 0; i < len(b); i++ {
		j := bytes.IndexByte(b[i:], '%')
		if j < 0 {
			break
		}
		i += j
		if i > 0 && b[i-1] >= '0' && b[i-1] <= '9' && bytes.ContainsAny(b[i:], "|[") {
			return true
		}
	}
	for _, rate := range []string{"it/s", "s/it", "B/s"} {
		if bytes.Contains(b, []byte(rate)) {
			return true
		}
	}
	return false
}

// sameBar says that b redraws a: both have the same label, up to the first
// digit.
func sameBar(a, b []byte) bool {
	return isBar(b) && strings.TrimSpace(label(a)) == strings.TrimSpace(label(b))
}

func label(b []byte) string {
	i := bytes.IndexAny(b, "0123456789%|")
	if i < 0 {
		i = len(b)
	}
	return string(b[:i])
}
