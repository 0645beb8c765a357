package triage

import (
	"maps"
	"slices"
	"time"

	"github.com/startupd/startupd/pkg/event"
	"github.com/startupd/startupd/pkg/profile"
)

// Weight is how much a witness's word counts.
type Weight int

// The weights.
const (
	// Last counts where nothing else is known (the main process got a signal).
	Last Weight = iota
	// Late is told at the end of a startup, of what went before: an earlier cause
	// of a known kind explains it.
	Late
	// Decisive beats the text that it set off (the kernel killed a process).
	Decisive
)

// Witness is evidence that is no line of the engine.
type Witness struct {
	// Process is "kernel" or "systemd".
	Process string
	Class   string
	Message string
	Weight  Weight
	Rule    *profile.Rule
	// Capture gives the rule's captures; nil without a rule.
	Capture func(string) string
	Place   Place
}

// decisiveWithin is how much earlier than the kernel's line the text that it set
// off may be stamped: two writers' clocks differ by their queues.
const decisiveWithin = 2 * time.Second

// Witness takes evidence of the kernel or systemd.
func (t *Tracker) Witness(p *profile.Profile, w Witness) {
	t.seq++
	t.cache = nil
	f := &finding{seq: t.seq, tier: tierLast, witness: true}
	switch w.Weight {
	case Decisive:
		f.tier = tierEvidence
	case Late:
		f.tier = tierWeak
	case Last:
	}
	f.pub = Finding{
		Class: w.Class, Message: Clip(w.Message, maxMessage), Process: w.Process, Processes: []string{w.Process},
		Cursor: w.Place.Cursor, At: w.Place.At, Count: 1,
	}
	if w.Place.Line > 0 {
		f.pub.Lines = []int{w.Place.Line}
	}
	if w.Rule != nil {
		f.pub.Rule = w.Rule.ID
		t.saw(w.Rule)
	}
	if p != nil {
		f.remedy, f.retry = p.Advise(w.Rule, w.Class, w.Capture)
		f.remedy = Clip(f.remedy, maxMessage)
	}
	t.keep(f)
}

// Stopped notes that somebody ends the startup from outside: what comes after is
// its consequence.
func (t *Tracker) Stopped() {
	if t.stopped == 0 {
		t.seq++
		t.stopped, t.cache = t.seq, nil
	}
}

// givenUpBefore is how much earlier than the service manager's own line the
// consequences of its stop may be stamped.
const givenUpBefore = time.Second

// GivenUp notes that the service manager stops the start as a command that waited
// for it has failed: nobody stops it from outside.
func (t *Tracker) GivenUp(at event.Stamp) {
	t.Stopped()
	t.givenUp, t.cache = at, nil
}

// byGivingUp says that a finding tells of the stop that followed.
func (t *Tracker) byGivingUp(f *finding) bool {
	return f.tier == tierLast && !t.givenUp.IsZero() && t.givenUp.Sub(f.pub.At) < givenUpBefore
}

// Baseline takes what history knows of earlier startups; nil for nothing.
func (t *Tracker) Baseline(b *event.Baseline) { t.baseline, t.cache = b, nil }

// Question is what a Tracker is asked for.
type Question struct {
	// Failed, Stalled and Served say how it stands with the startup; at most one is
	// true, none while it starts or when it was stopped on purpose.
	Failed, Stalled, Served bool
	// Hung says that a failed startup hung when it was given up.
	Hung bool
	// Phase is the phase that it is in, or ended in.
	Phase string
	// ExitStatus is what systemd told of the main process; "" when nothing.
	ExitStatus string
	// Final is true once the evidence is complete.
	Final bool
	// Blind says that no line of the log could be read.
	Blind bool
	// LastLines are the last lines of each process.
	LastLines func() map[string]string
}

// ErrorKey is a class and a verdict.
type ErrorKey struct {
	Class   string
	Verdict Verdict
}

// Judgement is a Tracker's answer. It is immutable.
type Judgement struct {
	// Root is nil unless the startup failed or stalls.
	Root     *RootCause
	Findings []Finding
	// Errors counts the findings' records.
	Errors map[ErrorKey]int
	// New counts records that no good start has had; nil when no good start is known.
	New *int
}

// Judge weighs what is known by now. p advises; nil for none.
func (t *Tracker) Judge(p *profile.Profile, q Question) *Judgement {
	lines := q.LastLines
	q.LastLines = nil
	if t.cache != nil && t.asked.same(q) {
		return t.cache
	}
	found := t.present()
	var root *finding
	var rc *RootCause
	switch {
	case q.Failed:
		root = t.choose(found)
		switch {
		case q.Hung && (root == nil || t.candidate(root) <= tierLast):
			root, rc = nil, t.hang.root()
			rc.Remediation, rc.Retry = advise(p, rc.Class)
		case root != nil:
			rc = root.root()
		default:
			rc = &RootCause{Class: ClassUnknown, Message: "no line of the log names a cause"}
			if q.Blind {
				rc.Message = "the log could not be read"
			}
			rc.Remediation, rc.Retry = advise(p, rc.Class)
		}
	case q.Stalled:
		if root = t.choose(found); root != nil && t.candidate(root) > tierLast {
			rc = root.root()
		} else {
			root, rc = nil, t.hang.root()
			rc.Remediation, rc.Retry = advise(p, rc.Class)
		}
	}
	if rc != nil {
		rc.Provisional = !q.Final
		if rc.Class == ClassUnknown {
			rc.DiedIn, rc.ExitStatus = q.Phase, q.ExitStatus
			if lines != nil {
				rc.LastLines = lines()
			}
		}
	}
	j := &Judgement{Root: rc, Errors: map[ErrorKey]int{}}
	t.publish(j, found, root, q)
	t.cache, t.asked = j, q
	return j
}

// Touch drops what was judged, as the last lines have changed since.
func (t *Tracker) Touch() { t.cache = nil }

func advise(p *profile.Profile, class string) (string, *bool) {
	if p == nil {
		return "", nil
	}
	return p.Advise(nil, class, nil)
}

func (q Question) same(o Question) bool {
	return q.Failed == o.Failed && q.Hung == o.Hung && q.Stalled == o.Stalled && q.Served == o.Served &&
		q.Blind == o.Blind && q.Phase == o.Phase && q.ExitStatus == o.ExitStatus && q.Final == o.Final
}

// present returns the findings as if every open record ended now.
func (t *Tracker) present() []*finding {
	if len(t.open) == 0 {
		return t.findings
	}
	now := Tracker{rules: t.rules, seq: t.seq, wrappers: t.wrappers, memo: t.memo, index: maps.Clone(t.index), findings: slices.Clone(t.findings)}
	for _, key := range t.order {
		f := t.open[key].finding(key)
		if f == nil {
			continue
		}
		if old := now.index[f.id(t.memo)]; old != nil {
			// A copy, as the record is still open.
			c := *old
			c.pub.Processes, c.pub.Lines = slices.Clone(c.pub.Processes), slices.Clone(c.pub.Lines)
			c.origins = slices.Clone(c.origins)
			now.findings[slices.Index(now.findings, old)] = &c
			now.index[f.id(t.memo)] = &c
		}
		now.keep(f)
	}
	return now.findings
}

// choose picks the finding that the startup failed of; nil when the evidence
// holds none.
func (t *Tracker) choose(found []*finding) *finding {
	var best, decisive, other *finding
	for _, f := range found {
		c := t.candidate(f)
		switch {
		case c == tierEvidence:
			if decisive == nil {
				decisive = f
			}
		case c == tierNone:
		case c == tierSymptom:
			if other == nil && f.elseClass != "" && !t.afterStop(f) {
				other = f
			}
		case best == nil || c.level() > t.candidate(best).level():
			best = f
		}
	}
	if decisive != nil && (best == nil || t.candidate(best) == tierHint || !best.before(decisive)) {
		return decisive
	}
	if other != nil && (best == nil || t.candidate(best) == tierHint || t.candidate(best) == tierLast && other.seq < best.seq) {
		return other.instead()
	}
	return best
}

// candidate is the tier that a finding counts with.
func (t *Tracker) candidate(f *finding) tier {
	switch {
	case f.benign:
		for _, id := range f.causeIf {
			if t.rules[id] > f.seq {
				return tierStrong
			}
		}
		return tierNone
	case f.cleared, t.harmless(f), t.byGivingUp(f):
		return tierNone
	case f.tier.level() == tierFallback && !f.witness && t.afterStop(f):
		return tierNone
	case f.tier.level() == tierFallback && f.logged && !f.waits && !t.deadly(f):
		return tierHint
	}
	return f.tier
}

// deadlyWithin is how soon after an error that ends its process another one
// reports it.
const deadlyWithin = 30 * time.Second

// deadly says whether an error ended its process: nobody caught it, or somebody
// reports a failure right after it.
func (t *Tracker) deadly(f *finding) bool {
	return f.uncaught || slices.ContainsFunc(t.wrappers, func(w wrapper) bool {
		return w.seq >= f.seq && w.at.Sub(f.pub.At) <= deadlyWithin
	})
}

func (t *Tracker) afterStop(f *finding) bool { return t.stopped > 0 && f.seq > t.stopped }

// harmless says that history knows the error from good starts.
func (t *Tracker) harmless(f *finding) bool {
	if t.baseline == nil || t.baseline.Good == 0 || f.tier != tierNone && f.tier != tierFallback {
		return false
	}
	n := t.baseline.Errors[f.pub.Fingerprint].Good
	return n >= minGood && 2*n >= t.baseline.Good
}

// minGood is how many good starts must have had an error for it to be harmless.
const minGood = 2

// before says that a finding is too early to be set off by decisive evidence.
func (f *finding) before(decisive *finding) bool {
	if f.seq > decisive.seq {
		return false
	}
	return f.pub.At.IsZero() || decisive.pub.At.Sub(f.pub.At) > decisiveWithin
}

// instead is a symptom that is the best evidence there is.
func (f *finding) instead() *finding {
	c := *f
	c.pub.Class, c.remedy, c.retry = f.elseClass, f.elseRemedy, f.elseRetry
	return &c
}

func (f *finding) root() *RootCause {
	rc := &RootCause{
		Class: f.pub.Class, Exception: f.pub.Exception, Message: f.pub.Message, Process: f.pub.Process, Rule: f.pub.Rule,
		Cursor: f.pub.Cursor, At: f.pub.At, Fingerprint: f.pub.Fingerprint, Remediation: f.remedy, Retry: f.retry,
	}
	if len(f.pub.Lines) > 0 {
		rc.Line = f.pub.Lines[0]
	}
	return rc
}

// publish lists the findings with their verdicts.
func (t *Tracker) publish(j *Judgement, found []*finding, root *finding, q Question) {
	fresh := 0
	for _, f := range found {
		pub := f.pub
		pub.Processes, pub.Lines = slices.Clone(f.pub.Processes), slices.Clone(f.pub.Lines)
		pub.Verdict = t.verdict(f, root)
		if pub.Verdict == Cause {
			pub.Class = root.pub.Class
		}
		if b := t.baseline; b != nil {
			seen := b.Errors[pub.Fingerprint]
			pub.Good, pub.Bad = &seen.Good, &seen.Bad
			pub.New = b.Good > 0 && seen.Good == 0 && pub.Verdict != Benign
			if pub.New {
				fresh += pub.Count
			}
		}
		pub.AfterReady = t.ready > 0 && f.seq > t.ready
		j.Findings = append(j.Findings, pub)
		j.Errors[ErrorKey{pub.Class, pub.Verdict}] += pub.Count
	}
	if t.baseline != nil && t.baseline.Good > 0 {
		j.New = &fresh
	}
}

func (t *Tracker) verdict(f, root *finding) Verdict {
	switch {
	case root != nil && f.seq == root.seq:
		return Cause
	case f.benign, t.harmless(f):
		return Benign
	case f.tier == tierSymptom:
		return Symptom
	case root != nil && f.seq > root.seq && f.tier > tierNone && !f.cleared:
		return Symptom
	}
	return Suspect
}
