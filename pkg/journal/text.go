package journal

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"io"
	"time"

	"github.com/startupd/startupd/pkg/event"
)

// textReader makes events of a plain text's lines.
type textReader struct {
	target  string
	wraps   []wrapper
	years   yearGuess
	manager managerText
	clean   Cleaner
	scratch []byte
	no      int
	last    textHead
	indent  int // width of what stood before the last line
}

// textHead is what the wrappers around a line tell.
type textHead struct {
	at    time.Time
	proc  string
	ident string
	pid   int
}

func readText(ctx context.Context, r *bufio.Reader, head []byte, o FileOptions, b *batcher) error {
	t := &textReader{target: o.Target, wraps: findWrappers(head), years: yearGuess{now: o.Now}}
	if t.target == "" {
		t.target = o.Path
	}
	if t.years.now.IsZero() {
		t.years.now = time.Now()
	}
	t.manager.unit = o.Unit
	lines := newLineReader(r)
	for {
		line, err := lines.next()
		if err == io.EOF {
			return nil
		}
		if err != nil {
			return fmt.Errorf("read %s: %w", o.Path, err)
		}
		t.no = lines.no
		b.events = t.line(b.events, line)
		if b.full() {
			if err := b.flush(ctx); err != nil {
				return err
			}
		}
	}
}

// line appends the events of one line.
func (t *textReader) line(dst []event.Event, l rawLine) []event.Event {
	text := l.text
	if t.no == 1 {
		text = bytes.TrimPrefix(text, []byte("\ufeff"))
	}
	if !isClean(text) {
		// The wrapper's own colours must go before it can be recognised.
		t.scratch = appendClean(t.scratch[:0], text)
		text = t.scratch
	}
	text, head := t.unwrap(text)
	at := event.Stamp{Real: head.at}
	switch {
	case head.isManager():
		if msg, ok := t.manager.parse(string(text)); ok {
			msg.No = t.no
			dst = append(dst, event.Event{At: at, Target: t.target, Data: msg})
		}
		return dst
	case head.ident == ownName, bytes.HasPrefix(text, []byte(OwnPrefix)):
		return dst
	case len(t.wraps) > 0 && isJournalctlNote(text):
		return dst
	}
	origin, target := event.OriginText, t.target
	if head.ident == "kernel" {
		origin, target = event.OriginKernel, ""
	}
	cut := l.cut
	for _, c := range t.clean.Lines(text) {
		cut = cut || c.Cut
		dst = append(dst, event.Event{At: at, Target: target, Data: &event.Line{
			Text: c.Text, No: t.no, PID: head.pid, Proc: head.proc, Origin: origin, Bar: c.Bar,
		}})
	}
	if cut {
		dst = append(dst, event.Event{At: at, Target: target, Data: &event.Gap{
			Gap: event.GapOversize, Lines: 1, Detail: fmt.Sprintf("line %d is longer than %d bytes", t.no, LineLimit),
		}})
	}
	return dst
}

// unwrap takes off what stands before the line. A line that has no stamp or
// writer of its own (the second line of a message) has those of the line
// before.
func (t *textReader) unwrap(text []byte) ([]byte, textHead) {
	whole := len(text)
	head := textHead{}
	found := false
	for _, w := range t.wraps {
		rest, h, ok := w.parse(text)
		if !ok {
			continue
		}
		found = true
		text = rest
		if h.proc != "" {
			head.proc = h.proc
		}
		if h.ident != "" {
			head.ident, head.pid = h.ident, h.pid
		}
		if !h.stamp.isZero() {
			head.at = t.years.date(h.stamp)
		}
	}
	switch {
	case found:
		t.indent = whole - len(text)
		if head.at.IsZero() {
			head.at = t.last.at
		}
		t.last = head
	case len(t.wraps) > 0:
		head = t.last
		// journalctl indents the further lines of a message.
		if t.indent > 0 && len(text) > t.indent && len(bytes.TrimLeft(text[:t.indent], " ")) == 0 {
			text = text[t.indent:]
		}
	}
	return text, head
}

// isManager says that PID 1 wrote the line. journalctl -o with-unit names the
// manager's scope instead of its identifier.
func (h textHead) isManager() bool {
	return h.pid == 1 && (h.ident == "systemd" || h.ident == "init.scope")
}

// isJournalctlNote says that journalctl itself speaks ("-- Boot ... --").
func isJournalctlNote(b []byte) bool {
	return bytes.HasPrefix(b, []byte("-- ")) && (bytes.HasSuffix(b, []byte(" --")) ||
		bytes.HasPrefix(b, []byte("-- Logs begin")) || bytes.HasPrefix(b, []byte("-- Journal begins")))
}

// rawLine is a line without its newline.
type rawLine struct {
	text []byte
	cut  bool // it was longer than textLimit
}

// textLimit leaves room for what stands before a line.
const textLimit = LineLimit + 1024

// lineReader reads lines in bounded memory.
type lineReader struct {
	r        io.Reader
	buf      []byte
	pos, end int
	no       int  // of the last line, from 1
	part     bool // the line at pos was given out in part
	skip     bool // the rest of the line at pos is to be dropped
}

func newLineReader(r io.Reader) *lineReader {
	return &lineReader{r: r, buf: make([]byte, 2*textLimit)}
}

// next returns the next line, valid until the next call; io.EOF behind the
// last one. A line too long is cut at the limit; if it is a bar that redraws
// itself it comes in parts instead, each ending with a whole state.
func (l *lineReader) next() (rawLine, error) {
	for {
		if i := bytes.IndexByte(l.buf[l.pos:l.end], '\n'); i >= 0 {
			if line, ok := l.take(i, i+1); ok {
				l.part = false
				return line, nil
			}
			continue
		}
		if l.skip {
			l.pos = l.end
		}
		if n := l.end - l.pos; n >= textLimit {
			return l.long(), nil
		}
		if err := l.fill(); err != nil {
			if l.end > l.pos {
				if line, ok := l.take(l.end-l.pos, l.end-l.pos); ok {
					return line, nil
				}
			}
			return rawLine{}, err
		}
	}
}

// take returns n bytes as a line and moves on by step; false for the rest of a
// line that is dropped.
func (l *lineReader) take(n, step int) (rawLine, bool) {
	text := bytes.TrimSuffix(l.buf[l.pos:l.pos+n], []byte{'\r'})
	l.pos += step
	if l.skip {
		l.skip = false
		return rawLine{}, false
	}
	if !l.part {
		l.no++
	}
	return rawLine{text: text}, true
}

func (l *lineReader) long() rawLine {
	if i := bytes.LastIndexByte(l.buf[l.pos:l.end], '\r'); i > 0 {
		line, _ := l.take(i, i+1)
		l.part = true
		return line
	}
	line, _ := l.take(textLimit, l.end-l.pos)
	l.part, l.skip, line.cut = false, true, true
	return line
}

func (l *lineReader) fill() error {
	copy(l.buf, l.buf[l.pos:l.end])
	l.end -= l.pos
	l.pos = 0
	for range 100 {
		n, err := l.r.Read(l.buf[l.end:])
		l.end += n
		if n > 0 {
			return nil
		}
		if err != nil {
			return err
		}
	}
	return io.ErrNoProgress
}
