package journal

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"time"
)

// errIdle says that a reader has written nothing for a while.
var errIdle = errors.New("journal reader is idle")

// stream decodes what a reader child writes.
type stream struct {
	child child
	out   readCloser
	dec   *Decoder
	wait  time.Duration // for the reader to write something
}

func openStream(ctx context.Context, l launcher, q *request) (*stream, error) {
	c, out, err := l.start(ctx, q)
	if err != nil {
		return nil, err
	}
	s := &stream{child: c, out: out}
	s.dec = NewDecoder(s)
	return s, nil
}

// Read reads what the child writes, for its Decoder.
func (s *stream) Read(p []byte) (int, error) {
	if err := s.out.SetReadDeadline(time.Now().Add(s.wait)); err != nil {
		return 0, fmt.Errorf("journal reader: %w", err)
	}
	return s.out.Read(p)
}

// next returns the next entry; errIdle when none came for a while, io.EOF when
// the reader has done what it was asked for, and another error when it failed.
func (s *stream) next(wait time.Duration) (*Entry, error) {
	s.wait = wait
	if err := s.dec.more(); errors.Is(err, os.ErrDeadlineExceeded) {
		return nil, errIdle
	}
	// What has begun must go on: a reader may stop inside an entry.
	s.wait = muteAfter
	e, err := s.dec.Decode()
	if err == nil {
		return e, nil
	}
	if errors.Is(err, os.ErrDeadlineExceeded) {
		return nil, fmt.Errorf("the journal reader was mute for %v inside an entry", muteAfter)
	}
	var trunc *TruncatedError
	if err != io.EOF && !errors.As(err, &trunc) {
		return nil, err
	}
	if werr := s.child.wait(); werr != nil {
		return nil, werr
	}
	return nil, err
}

// found is an entry that a query was for.
type found struct {
	cursor     string
	invocation string // or the container's ID; "" when the entry tells none
}

// searchLimit is how many entries are looked at for one that tells something.
const searchLimit = 500

// search returns the first of at most q.Limit entries that is wanted; the zero
// value when there is none.
func search(ctx context.Context, l launcher, q request, wanted func(found) bool) (found, error) {
	q.Cursors = true
	s, err := openStream(ctx, l, &q)
	if err != nil {
		return found{}, err
	}
	defer s.child.kill()
	for range q.Limit {
		e, err := s.next(patience)
		if err == io.EOF {
			break
		}
		if err != nil {
			return found{}, err
		}
		f := found{cursor: e.String(Cursor), invocation: invocationOf(e)}
		if f.cursor != "" && wanted(f) {
			return f, nil
		}
	}
	return found{}, nil
}

// first returns a request's first entry; the zero value when there is none.
func first(ctx context.Context, l launcher, q request) (found, error) {
	q.Limit = 1
	return search(ctx, l, q, func(found) bool { return true })
}

func invocationOf(e *Entry) string {
	switch {
	case e.Is(PID, "1"):
		return e.String(Invocation)
	case e.Has(ContainerName):
		return containerID(e)
	}
	return e.String(SystemdInvocation)
}
