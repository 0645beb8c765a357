package journal

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"math"
	"strconv"
	"sync/atomic"
	"time"

	"github.com/startupd/startupd/pkg/event"
)

const (
	// fastPoll: journald tells its readers of a lone entry after 276 to 427 ms,
	// but the entry can be read at once by whoever looks.
	fastPoll = 20 * time.Millisecond
	slowPoll = 250 * time.Millisecond
	// watermarkEvery bounds how often an idle reader says so.
	watermarkEvery = 250 * time.Millisecond
	// lookEvery bounds how long an entry can stay unseen that libsystemd passed
	// over (see jr_again).
	lookEvery = 100 * time.Millisecond
	// writeDelay is what journald may take from an entry's stamp to its place
	// in the file. It stamps at the start of its event loop's round.
	writeDelay = 50 * time.Millisecond
)

// batch is what one look at the journal gave.
type batch struct {
	data    []byte
	entries int
	tail    bool   // nothing more is there now
	soon    bool   // an entry is in the writing
	end     bool   // the last wanted entry was read
	bad     uint64 // entries that could not be read, since the beginning
}

// sdJournal is libsystemd's journal as the reader child uses it.
type sdJournal interface {
	read(limit int) (batch, error)
	// again makes the next read look anew at what seemed to be the end.
	again() error
	wait(time.Duration) error
}

// RunReader is the body of the reader child: it takes a request from the first
// line of stdin and writes entries to stdout in the Journal Export Format,
// until stdin ends. Source is its only client.
func RunReader(ctx context.Context, stdin io.Reader, stdout io.Writer) error {
	in := bufio.NewReader(stdin)
	line, err := in.ReadBytes('\n')
	if err != nil {
		return fmt.Errorf("journal-reader: no request on standard input: %w; startupd starts this command itself", err)
	}
	var q request
	if err := json.Unmarshal(line, &q); err != nil {
		return fmt.Errorf("journal-reader: bad request: %w; startupd starts this command itself", err)
	}
	j, closeJournal, err := openSD(&q)
	if err != nil {
		return fmt.Errorf("journal-reader: %w", err)
	}
	defer closeJournal()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	r := &readerLoop{journal: j, out: stdout, request: &q, clock: HostClock()}
	r.fast.Store(q.Fast)
	go func() {
		defer cancel()
		r.commands(in)
	}()
	return r.run(ctx)
}

type readerLoop struct {
	journal sdJournal
	out     io.Writer
	request *request
	clock   event.Clock
	fast    atomic.Bool
	marked  event.Stamp // the last watermark
	looked  event.Stamp // the last fresh look
	fresh   bool        // the present look is one
	bad     uint64      // entries told of by unreadable
}

// commands obeys the parent until its end of the pipe is closed.
func (r *readerLoop) commands(in *bufio.Reader) {
	for {
		line, err := in.ReadString('\n')
		if err != nil {
			return
		}
		switch line {
		case "fast\n":
			r.fast.Store(true)
		case "slow\n":
			r.fast.Store(false)
		}
	}
}

func (r *readerLoop) run(ctx context.Context) error {
	left := math.MaxInt
	if r.request.Limit > 0 {
		left = r.request.Limit
	}
	for ctx.Err() == nil {
		now := r.clock()
		b, err := r.journal.read(left)
		if err != nil {
			return err
		}
		if _, err := r.out.Write(b.data); err != nil {
			return fmt.Errorf("write entries: %w", err)
		}
		if err := r.unreadable(b.bad); err != nil {
			return err
		}
		left -= b.entries
		if b.end || left == 0 || b.tail && !r.request.Follow {
			return nil
		}
		if !b.tail {
			continue
		}
		if err := r.atTail(now, b.soon); err != nil {
			return err
		}
	}
	return nil
}

// atTail waits, or has the journal looked at anew: only a fresh look that found
// nothing more is worth a watermark.
func (r *readerLoop) atTail(now event.Stamp, soon bool) error {
	if !r.fresh && (r.looked.IsZero() || now.Sub(r.looked) >= lookEvery) {
		r.fresh, r.looked = true, now
		return r.journal.again()
	}
	if r.fresh {
		r.fresh = false
		if err := r.watermark(now); err != nil {
			return err
		}
	}
	return r.journal.wait(r.pause(soon))
}

// unreadable tells of entries that libsystemd could not read.
func (r *readerLoop) unreadable(total uint64) error {
	if total == r.bad {
		return nil
	}
	e := NewEncoder(r.out)
	e.Field(fieldNames()[Unreadable], strconv.AppendUint(nil, total-r.bad, 10))
	r.bad = total
	return e.End()
}

func (r *readerLoop) pause(soon bool) time.Duration {
	if soon || r.fast.Load() {
		return fastPoll
	}
	return slowPoll
}

// watermark says that everything up to now was written, where now was taken
// before the look that found nothing more.
func (r *readerLoop) watermark(now event.Stamp) error {
	if !r.marked.IsZero() && now.Sub(r.marked) < watermarkEvery {
		return nil
	}
	r.marked = now
	return writeWatermark(NewEncoder(r.out), now.Add(-writeDelay))
}

func writeWatermark(e *Encoder, at event.Stamp) error {
	names := fieldNames()
	e.Field(names[Realtime], strconv.AppendInt(nil, at.Real.UnixMicro(), 10))
	e.Field(names[Monotonic], strconv.AppendInt(nil, at.Mono.Microseconds(), 10))
	e.Field(names[BootID], []byte(at.Boot))
	e.Field(names[Watermark], []byte("1"))
	return e.End()
}
