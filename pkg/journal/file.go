package journal

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/startupd/startupd/pkg/event"
)

// FileOptions is what ReadFile needs.
type FileOptions struct {
	// Path names the input in errors; "-" is standard input.
	Path string
	// R is the input.
	R io.Reader
	// Target is the target of all events; "" is the unit's name in an export
	// file, and Path in one that tells none and in a plain text.
	Target string
	// Unit selects one unit's entries of an export file; "" takes the only one.
	Unit string
	// Now bounds stamps that have no year; zero is the present time.
	Now time.Time
}

// peekSize is how much of an input decides what it is.
const peekSize = 64 << 10

// ReadFile reads an export file (journalctl -o export) or a plain text to its
// end; which of them it is it finds out. Other kinds of file are refused with
// what to do instead.
func ReadFile(ctx context.Context, o FileOptions, emit Emit) error {
	r := bufio.NewReaderSize(o.R, peekSize)
	head, err := r.Peek(peekSize)
	if err != nil && err != io.EOF {
		return fmt.Errorf("read %s: %w", o.Path, err)
	}
	if len(head) == 0 {
		return fmt.Errorf("%s is empty: give a log, or the output of journalctl -o export", o.Path)
	}
	if reason := refused(head); reason != "" {
		return fmt.Errorf("%s %s", o.Path, reason)
	}
	b := &batcher{emit: emit}
	if isExport(head) {
		err = readExport(ctx, r, o, b)
	} else {
		err = readText(ctx, r, head, o, b)
	}
	if err != nil {
		return err
	}
	return b.flush(ctx)
}

// refused says what an input is that is neither; "" when it may be one.
func refused(head []byte) string {
	for _, k := range []struct{ magic, reason string }{
		{journalMagic, "is a journal file: name its directory with --journal.dir DIR --unit UNIT"},
		{"\x1f\x8b", "is compressed: zcat FILE | startupd explain -"},
		{"\x28\xb5\x2f\xfd", "is compressed: zstdcat FILE | startupd explain -"},
		{"\xfd7zXZ", "is compressed: xzcat FILE | startupd explain -"},
		{"\xff\xfe", "is UTF-16: iconv -f UTF-16 -t UTF-8 FILE | startupd explain -"},
		{"\xfe\xff", "is UTF-16: iconv -f UTF-16 -t UTF-8 FILE | startupd explain -"},
	} {
		if bytes.HasPrefix(head, []byte(k.magic)) {
			return k.reason
		}
	}
	if head[0] == '{' && bytes.Contains(head, []byte(`"__REALTIME_TIMESTAMP"`)) {
		return "is journalctl's JSON: use journalctl -o export"
	}
	if bytes.HasPrefix(head, []byte(`{"log":"`)) {
		return "is Docker's own file of a container's log: docker logs -t CONTAINER 2>&1 | startupd explain -"
	}
	odd := 0
	for _, c := range head {
		if c < ' ' && c != '\n' && c != '\r' && c != '\t' && c != 0x1b && c != '\b' {
			odd++
		}
	}
	if odd > len(head)/10 && !isExport(head) {
		return "is a binary file: give a log, or the output of journalctl -o export"
	}
	return ""
}

// isExport says that the input begins with an entry in export format: fields
// up to an empty line, with the realtime stamp that each entry has.
func isExport(head []byte) bool {
	end := bytes.IndexAny(head, "=\n")
	if end <= 0 || end > nameLimit || !bytes.ContainsAny(head[:1], "_ABCDEFGHIJKLMNOPQRSTUVWXYZ") {
		return false
	}
	if bytes.IndexFunc(head[:end], func(r rune) bool {
		return r != '_' && (r < 'A' || r > 'Z') && (r < '0' || r > '9')
	}) >= 0 {
		return false
	}
	const stamp = "__REALTIME_TIMESTAMP="
	return bytes.HasPrefix(head, []byte(stamp)) || bytes.Contains(head, []byte("\n"+stamp))
}

// batcher collects events for emit.
type batcher struct {
	emit   Emit
	events []event.Event
}

func (b *batcher) full() bool { return len(b.events) >= emitAt }

func (b *batcher) flush(ctx context.Context) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	if len(b.events) == 0 {
		return nil
	}
	events := b.events
	b.events = make([]event.Event, 0, emitAt+64)
	return b.emit(ctx, events)
}

func readExport(ctx context.Context, r io.Reader, o FileOptions, b *batcher) error {
	m, err := fileMapper(o)
	if err != nil {
		return err
	}
	d := NewDecoder(r)
	entries, seen := 0, false
	for {
		e, err := d.Decode()
		if err == io.EOF {
			break
		}
		if e, err = mendExport(e, err, m, b); err != nil {
			return fmt.Errorf("read %s: %w", o.Path, err)
		}
		if e == nil {
			continue
		}
		entries++
		// A watermark in a file is a recording of ours, and no evidence.
		if !e.Has(Watermark) {
			n := len(b.events)
			b.events = m.Map(b.events, e)
			seen = seen || len(b.events) > n
		}
		if b.full() {
			if err := errors.Join(m.sole.err(o.Path), b.flush(ctx)); err != nil {
				return err
			}
		}
	}
	n := len(b.events)
	b.events = m.giveOut(b.events)
	seen = seen || len(b.events) > n
	if err := m.sole.err(o.Path); err != nil {
		return err
	}
	if !seen {
		return fmt.Errorf("%s: none of its %d entries belongs to unit %q: compare the name with the file's _SYSTEMD_UNIT fields", o.Path, entries, o.Unit)
	}
	return nil
}

// mendExport turns damage into gaps. It returns the entry if there is one that
// is whole, and an error that it can't mend.
func mendExport(e *Entry, err error, m *Mapper, b *batcher) (*Entry, error) {
	var (
		trunc  *TruncatedError
		format *FormatError
	)
	switch {
	case err == nil:
		return e, nil
	case errors.As(err, &trunc):
		b.events = append(b.events, event.Event{At: m.last, Data: &event.Gap{Gap: event.GapTruncated, Detail: err.Error()}})
		if trunc.Field == "" && e.Has(Message) && e.Has(Realtime) {
			return e, nil // only the empty line behind it is missing
		}
		return nil, nil
	case errors.As(err, &format):
		b.events = append(b.events, event.Event{At: m.last, Data: &event.Gap{Gap: event.GapCorrupt, Detail: err.Error()}})
		return nil, nil
	}
	return nil, err
}

func fileMapper(o FileOptions) (*Mapper, error) {
	if o.Unit != "" {
		return NewMapper([]TargetSpec{{Name: o.Target, Unit: o.Unit}})
	}
	m, err := NewMapper(nil)
	if err != nil {
		return nil, err
	}
	m.sole = &soleUnit{name: o.Target, path: o.Path, others: map[string]bool{}}
	return m, nil
}
