package observe

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net/http"
	"slices"
	"syscall"
	"time"

	"github.com/cenkalti/backoff/v5"

	"github.com/startupd/startupd/pkg/web/api"
	"github.com/startupd/startupd/pkg/web/client"
)

const (
	// answerWithin is how long the daemon may take for an answer.
	answerWithin = 3 * time.Second
	// backWithin is how long a daemon that is gone may take to come back.
	backWithin = 3 * time.Second
	// silentAfter is how long the stream may tell nothing until the daemon is asked
	// whether it is there: a process that is stopped closes no connection.
	silentAfter = 2 * time.Second
	// deadAfter is how long a stream may be without even a sign of life.
	deadAfter = 40 * time.Second
	// gather is how long findings are collected until they are fetched.
	gather = 250 * time.Millisecond
	// endEvery is the pause between two looks at a failed start whose process is not
	// gone yet, endWithin how long that is looked for: its end is no event.
	endEvery  = 100 * time.Millisecond
	endWithin = 10 * time.Second
	// late is how much older than the last view one may be that was made before it
	// and comes after it. What is older still is new, and the clock was set.
	late = time.Second
)

// unusable says why the daemon can't tell of the units however often it is
// asked.
type unusable struct{ why string }

func (e *unusable) Error() string { return e.why }

var (
	errSilent = errors.New("the daemon sends no sign of life")
	errLate   = fmt.Errorf("the daemon does not answer within %s", answerWithin)
	errSlow   = errors.New("the daemon has dropped this client, as it read too slowly")
)

// daemon tells what the daemon does, over its restarts too. It returns why the
// daemon is of no more use; the error is see's or ctx's.
func (r *run) daemon(ctx context.Context) (why string, err error) {
	wait := backoff.NewExponentialBackOff()
	wait.InitialInterval, wait.MaxInterval = 100*time.Millisecond, 500*time.Millisecond
	for {
		s := &session{run: r}
		err := s.follow(ctx)
		var seen *seeError
		var cannot *unusable
		switch {
		case errors.As(err, &seen):
			return "", seen.err
		case ctx.Err() != nil:
			return "", ctx.Err()
		case errors.As(err, &cannot):
			return cannot.why, nil
		case errors.Is(err, errSilent), errors.Is(err, errLate):
			// It hangs: asking again costs as long each time.
			return err.Error(), nil
		case r.last == nil:
			return absent(err), nil
		}
		if !s.began.IsZero() {
			wait.Reset()
			r.gone = time.Now()
		}
		left := backWithin - time.Since(r.gone)
		if left <= 0 {
			return "the daemon is gone and does not come back: " + absent(err), nil
		}
		select {
		case <-ctx.Done():
			return "", ctx.Err()
		case <-time.After(min(wait.NextBackOff(), left)):
		}
	}
}

// absent says in a sentence why the daemon was not reached.
func absent(err error) string {
	switch {
	case errors.Is(err, fs.ErrNotExist), errors.Is(err, syscall.ECONNREFUSED):
		return "no daemon runs here"
	case errors.Is(err, fs.ErrPermission):
		return "no right to ask the daemon: join the group startupd, or run as root"
	}
	return err.Error()
}

// session is one stream of events, with the questions beside it.
type session struct {
	*run
	// began is when the first view came; zero before it.
	began time.Time
	// heard is when the stream last showed a sign of life.
	heard time.Time
	// due is when findings are fetched; nil when none are new.
	due <-chan time.Time
	// settled says that the daemon has read the past.
	settled bool
	// dark is since when it can't read the journal; zero while it can.
	dark time.Time
}

func (s *session) follow(ctx context.Context) error {
	ctx, cancel := context.WithCancel(ctx)
	events, ended := make(chan client.Event), make(chan error, 1)
	defer func() {
		cancel()
		<-ended
	}()
	go func() {
		defer close(ended)
		ended <- s.client.Events(ctx, client.EventsOptions{Units: s.names()}, func(ev client.Event) error {
			select {
			case events <- ev:
				return nil
			case <-ctx.Done():
				return ctx.Err()
			}
		})
	}()
	s.heard = time.Now()
	silence := time.NewTimer(answerWithin)
	defer silence.Stop()
	for {
		var err error
		select {
		case ev := <-events:
			s.heard = time.Now()
			silence.Reset(silentAfter)
			err = s.take(ctx, ev)
		case err = <-ended:
			err = refused(err)
		case <-s.due:
			s.due = nil
			err = s.fetch(ctx)
		case <-silence.C:
			silence.Reset(silentAfter)
			err = s.listen(ctx)
		}
		if err != nil {
			return err
		}
	}
}

// refused tells an answer that will not change from one that may.
func refused(err error) error {
	var status *client.StatusError
	switch {
	case errors.Is(err, fs.ErrPermission):
		return &unusable{absent(err)}
	case !errors.As(err, &status):
		return err
	case status.Code == http.StatusNotFound && status.Foreign:
		return &unusable{"what answers at the daemon's socket has no events: is it of another version?"}
	case status.Code == http.StatusNotFound:
		return &unusable{"the daemon does not watch the unit"}
	case status.Code < http.StatusInternalServerError && status.Code != http.StatusTooManyRequests:
		return &unusable{err.Error()}
	}
	return err
}

// listen is called when the stream has been silent.
func (s *session) listen(ctx context.Context) error {
	switch {
	case s.began.IsZero():
		return errLate
	case time.Since(s.heard) >= deadAfter:
		return errSilent
	}
	return s.fetch(ctx)
}

// take handles an event. What changes the verdict is fetched at once: updates
// come a few times a second only, and without findings.
func (s *session) take(ctx context.Context, ev client.Event) error {
	switch ev.Type {
	case api.EventSnapshot, api.EventUpdate:
		status, err := ev.Status()
		if err != nil {
			return &unusable{err.Error()}
		}
		if ev.Type == api.EventUpdate {
			keepFindings(status, s.last)
		}
		return s.view(status)
	case api.EventTransition, api.EventOutcome, api.EventRootCause, api.EventStall:
		return s.fetch(ctx)
	case api.EventFinding:
		if s.due == nil {
			s.due = time.After(gather)
		}
	case api.EventDropped:
		return errSlow
	}
	return nil
}

// fetch asks for the whole present state.
func (s *session) fetch(ctx context.Context) error {
	asked, cancel := context.WithTimeoutCause(ctx, answerWithin, errLate)
	defer cancel()
	status, err := s.client.Status(asked, s.names()...)
	switch {
	case err == nil:
		return s.view(status)
	case ctx.Err() != nil:
		return ctx.Err()
	case asked.Err() != nil:
		return errLate
	}
	return refused(err)
}

// view hands a view on, unless a newer one was told already.
func (s *session) view(status *api.Status) error {
	if old := s.last; old != nil && !s.began.IsZero() {
		if by := old.At.Sub(status.At); by > 0 && by < late {
			return nil
		}
	}
	wanted := *status
	wanted.Units = nil
	for _, u := range status.Units {
		if s.matches(u.Unit) {
			wanted.Units = append(wanted.Units, u)
		}
	}
	if unit := s.missing(&wanted); unit != "" {
		return &unusable{"the daemon does not watch " + unit}
	}
	src := journal(status)
	if s.blind(src) {
		return &unusable{"the daemon can't read the journal (" + src.Reason + ")"}
	}
	if s.began.IsZero() {
		s.began = time.Now()
	}
	s.last = &wanted
	if s.due == nil && ending(&wanted) {
		s.due = time.After(endEvery)
	}
	// One that plays a recording has no journal, and no past to read.
	s.settled = s.settled || src != nil && src.Up || len(status.Sources) == 0 && len(wanted.Units) > 0
	return s.tell(Update{Status: &wanted, Daemon: true, Settled: s.settled})
}

// blind says that the daemon does not see the journal: at the first view, or for
// so long that its reader will not come back by itself.
func (s *session) blind(src *api.Source) bool {
	switch {
	case src == nil || src.Up:
		s.dark = time.Time{}
		return false
	case s.began.IsZero():
		return true
	case s.dark.IsZero():
		s.dark = time.Now()
	}
	// Nobody else can tell more where the journal is not followed here.
	return s.opts.Own != nil && len(s.opts.Units) > 0 && time.Since(s.dark) >= blindFor
}

// ending says that the process of a failed start is about to end.
func ending(s *api.Status) bool {
	return slices.ContainsFunc(s.Units, func(u api.Unit) bool {
		return u.Startup != nil && u.Startup.Outcome == api.Failed && !u.Startup.Exited && s.At.Sub(u.Startup.Ended) < endWithin
	})
}

// keepFindings gives an update, which has none, the findings that are known of
// the same startups.
func keepFindings(now, before *api.Status) {
	if before == nil {
		return
	}
	for i := range now.Units {
		u := &now.Units[i]
		old := before.Find(u.Unit)
		if old == nil {
			continue
		}
		for _, s := range []*api.Startup{u.Startup, u.Last} {
			for _, o := range []*api.Startup{old.Startup, old.Last} {
				if s != nil && o != nil && s.Findings == nil && s.Invocation == o.Invocation && s.Generation == o.Generation {
					s.Findings = o.Findings
				}
			}
		}
	}
}
