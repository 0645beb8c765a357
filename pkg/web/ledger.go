package web

import (
	"cmp"
	"hash/maphash"
	"slices"
	"time"

	"github.com/startupd/startupd/pkg/event"
	"github.com/startupd/startupd/pkg/phases"
	"github.com/startupd/startupd/pkg/triage"
	"github.com/startupd/startupd/pkg/web/api"
)

// maxAccounts is how many startups of a unit are compared with what was told: the
// present one, the one before, and those that become final after them.
const maxAccounts = 4

// news is an event that a startup gave rise to.
type news struct {
	kind string
	told api.Told
}

// ledger is what was told of a unit's startups, the newest last.
type ledger struct {
	seed     maphash.Seed
	accounts []*account
}

// account is what was told of one startup.
type account struct {
	of      attempt
	outcome phases.Outcome
	stalled bool
	cause   causeKey
	// final says that a final startup was compared: an older view of it, which can
	// come later, tells nothing.
	final bool
	// findings hold what each was told to be.
	findings map[uint64]judged
}

// attempt tells the startups of a unit apart.
type attempt struct {
	invocation string
	generation int
	// began is only set where there is no invocation.
	began time.Time
}

func attemptOf(s *phases.Startup) attempt {
	a := attempt{invocation: s.Invocation, generation: s.Generation}
	if a.invocation == "" {
		a.began = s.Began.Real
	}
	return a
}

// maxJudged is how many findings an account holds: one that is still being
// written is told again as it grows, and those of a long service make room for
// others.
const maxJudged = 1024

// prune forgets findings that the startup does not have any more.
func (a *account) prune(l *ledger, found []triage.Finding) {
	if len(a.findings) <= maxJudged {
		return
	}
	kept := make(map[uint64]judged, len(found))
	for i := range found {
		key := l.key(&found[i])
		kept[key] = a.findings[key]
	}
	a.findings = kept
}

type judged struct {
	verdict triage.Verdict
	class   string
}

// causeKey is what makes a root cause another one.
type causeKey struct {
	class, exception, message, process, diedIn, exit string
	provisional                                      bool
}

func keyOf(c *triage.RootCause) causeKey {
	if c == nil {
		return causeKey{}
	}
	return causeKey{c.Class, c.Exception, c.Message, c.Process, c.DiedIn, c.ExitStatus, c.Provisional}
}

// account returns what was told of a startup; a new one takes the place of the
// oldest.
func (l *ledger) account(of attempt) *account {
	for _, a := range l.accounts {
		if a.of == of {
			return a
		}
	}
	a := &account{of: of, findings: map[uint64]judged{}}
	if len(l.accounts) == maxAccounts {
		l.accounts = slices.Delete(l.accounts, 0, 1)
	}
	l.accounts = append(l.accounts, a)
	return a
}

// compare returns what is new of a startup since it was compared last: findings
// first, then why and how it ended.
func (l *ledger) compare(unit string, s *phases.Startup, now event.Stamp) []news {
	a := l.account(attemptOf(s))
	if a.final && !s.Final {
		return nil
	}
	a.final = s.Final
	base := api.Told{Unit: unit, Invocation: s.Invocation, Generation: s.Generation}
	var out []news
	for i := range s.Findings {
		f := &s.Findings[i]
		key, is := l.key(f), judged{f.Verdict, f.Class}
		if a.findings[key] == is {
			continue
		}
		a.findings[key] = is
		n := base
		n.At, n.Finding = wall(f.At), api.NewFinding(f)
		out = append(out, news{api.EventFinding, n})
	}
	a.prune(l, s.Findings)
	if c := keyOf(s.RootCause); c != a.cause && s.RootCause != nil {
		a.cause = c
		n := base
		n.At, n.RootCause = wall(now), api.NewRootCause(s.RootCause)
		out = append(out, news{api.EventRootCause, n})
	}
	return a.ending(s, base, now, out)
}

// ending adds the outcome and the stall where they are other than told. An
// outcome that is taken back becomes starting again.
func (a *account) ending(s *phases.Startup, base api.Told, now event.Stamp, out []news) []news {
	if s.Outcome != a.outcome {
		a.outcome = s.Outcome
		n := base
		n.At, n.Outcome, n.Reason = wall(s.Ended), cmp.Or(string(s.Outcome), api.Starting), s.Reason
		if s.Ended.IsZero() {
			n.At = wall(now)
		}
		out = append(out, news{api.EventOutcome, n})
	}
	if s.Stalled != a.stalled {
		a.stalled = s.Stalled
		stalled := s.Stalled
		n := base
		n.At, n.Stalled, n.Reason = wall(now), &stalled, s.StalledReason
		out = append(out, news{api.EventStall, n})
	}
	return out
}

// key tells the findings of a startup apart.
func (l *ledger) key(f *triage.Finding) uint64 {
	var h maphash.Hash
	h.SetSeed(l.seed)
	for _, text := range []string{f.Fingerprint, f.Exception, f.Message, f.Cursor} {
		_, _ = h.WriteString(text)
		_ = h.WriteByte(0)
	}
	return h.Sum64()
}

// wall returns the wall clock's time in UTC; zero when it is not known.
func wall(s event.Stamp) time.Time {
	if s.Real.IsZero() {
		return time.Time{}
	}
	return s.Real.Round(0).UTC()
}
