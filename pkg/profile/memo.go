package profile

import "hash/maphash"

const (
	// memoSize is how many messages a Scanner remembers.
	memoSize = 1024
	// maxMemo bounds a message that is worth to be remembered, in bytes.
	maxMemo = 4096
)

// memo remembers what messages mean: ranks and restarts say the same again and
// again. A message is kept when it comes for the second time, so that those that
// never come again (requests) cost one hash.
type memo struct {
	seed    maphash.Seed
	entries []memoEntry
}

// memoEntry is what the rules say of one message.
type memoEntry struct {
	hash uint64
	// kept says that what follows is known.
	kept                bool
	message, kind, role string
	failing             bool
	rule                *Rule
	conditional         []*Rule
	exception           string
	found               [][]int
	done, total         float64
	hasProgress         bool
}

func newMemo() memo { return memo{seed: maphash.MakeSeed(), entries: make([]memoEntry, memoSize)} }

// recall fills in the record if its message is known. Otherwise it returns the
// entry to keep it in; nil when it is not worth it.
func (m *memo) recall(r *Record, role string) (known bool, keep *memoEntry) {
	if len(r.Message) > maxMemo || len(m.entries) == 0 {
		return false, nil
	}
	h := maphash.String(m.seed, r.Message)
	e := &m.entries[h%memoSize]
	failing := r.Level == LevelNone || r.Level >= LevelError
	switch {
	case e.hash != h:
		*e = memoEntry{hash: h}
		return false, nil
	case !e.kept:
		e.kind, e.role, e.failing = r.Kind, role, failing
		return false, e
	case e.message != r.Message || e.kind != r.Kind || e.role != role || e.failing != failing:
		return false, nil
	}
	r.Rule, r.Conditional, r.Exception, r.found = e.rule, e.conditional, e.exception, e.found
	r.Done, r.Total, r.HasProgress = e.done, e.total, e.hasProgress
	r.memo = e
	return true, nil
}

// store remembers what a record's message means.
func (e *memoEntry) store(r *Record) {
	e.kept = true
	e.message = string([]byte(r.Message))
	e.exception = e.message[:len(r.Exception)]
	e.rule, e.conditional, e.found = r.Rule, r.Conditional, r.found
	e.done, e.total, e.hasProgress = r.Done, r.Total, r.HasProgress
}
