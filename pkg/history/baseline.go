package history

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"io/fs"
	"slices"
	"strconv"

	"github.com/startupd/startupd/pkg/event"
	"github.com/startupd/startupd/pkg/phases"
)

// baselineStartups is how many of a target's newest startups a Baseline tells of.
const baselineStartups = 100

// maxFingerprints bounds a Baseline. Those of older startups are left out first.
const maxFingerprints = 10_000

// Baseline counts a target's newest startups, and how many of the good and of
// the failed ones had each error. A startup that was stopped says nothing about
// either, nor does one whose errors were
// told apart by another version of fingerprints than the newest. Where no file is yet, nothing is counted, and that is no error.
func (s Store) Baseline(ctx context.Context, target string) (event.Baseline, error) {
	values, err := s.newest(ctx, target, baselineStartups)
	if errors.Is(err, fs.ErrNotExist) {
		return event.Baseline{}, nil
	}
	if err != nil {
		return event.Baseline{}, err
	}
	c := counter{Baseline: event.Baseline{Errors: map[string]event.Seen{}}}
	for i, v := range slices.Backward(values) {
		var r counted
		if err := json.Unmarshal(v, &r); err != nil {
			return event.Baseline{}, s.wrap(damaged("a record: %v", err))
		}
		if c.add(r) && i == len(values)-1 {
			c.Newest = r.known()
		}
	}
	return c.Baseline, nil
}

// counted is what a Baseline needs of a record.
type counted struct {
	Invocation string `json:"invocation"`
	Generation int    `json:"generation"`
	Outcome    string `json:"outcome"`
	Findings   []struct {
		Fingerprint string `json:"fingerprint"`
	} `json:"findings"`
}

type counter struct {
	event.Baseline
	// version is that of the newest fingerprints; "" before there are any.
	version string
}

// foreign says that a record's fingerprints are not comparable.
func (c *counter) foreign(r counted) bool {
	for _, f := range r.Findings {
		if f.Fingerprint == "" {
			continue
		}
		v := fingerprintVersion(f.Fingerprint)
		c.version = cmp.Or(c.version, v)
		if v != c.version {
			return true
		}
	}
	return false
}

// known is the record as a Baseline names it.
func (r *counted) known() *event.Known {
	k := &event.Known{Key: r.Invocation + "/" + strconv.Itoa(r.Generation), Good: phases.Outcome(r.Outcome) == phases.OutcomeServing}
	for _, f := range r.Findings {
		if f.Fingerprint != "" && !slices.Contains(k.Errors, f.Fingerprint) {
			k.Errors = append(k.Errors, f.Fingerprint)
		}
	}
	return k
}

// add counts a record, and says whether it did.
func (c *counter) add(r counted) bool {
	if c.foreign(r) {
		return false
	}
	var one event.Seen
	switch phases.Outcome(r.Outcome) {
	case phases.OutcomeServing:
		one.Good = 1
	case phases.OutcomeFailed:
		one.Bad = 1
	}
	c.Good += one.Good
	c.Bad += one.Bad
	if one == (event.Seen{}) {
		return false
	}
	seen := map[string]bool{"": true}
	for _, f := range r.Findings {
		if seen[f.Fingerprint] {
			continue
		}
		seen[f.Fingerprint] = true
		n, known := c.Errors[f.Fingerprint]
		if !known && len(c.Errors) >= maxFingerprints {
			continue
		}
		c.Errors[f.Fingerprint] = event.Seen{Good: n.Good + one.Good, Bad: n.Bad + one.Bad}
	}
	return true
}
