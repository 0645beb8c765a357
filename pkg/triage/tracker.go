package triage

import (
	"slices"
	"strings"

	"github.com/startupd/startupd/pkg/event"
	"github.com/startupd/startupd/pkg/profile"
)

const (
	maxOpen     = 128
	maxFindings = 200
	maxLines    = 16
	maxNames    = 256
)

// Tracker collects what one startup's log says of failures. The zero value is
// ready to use. It is not safe for concurrent use.
type Tracker struct {
	open  map[streamKey]*record
	order []streamKey
	// names are the processes by their pid in the journal: lines of native code
	// carry no prefix.
	names map[int]string
	// findings are in the order of their first record; index finds equal ones.
	findings []*finding
	index    map[string]*finding
	// rules are those that have matched, with the order of their last match.
	rules map[string]int
	seq   int
	// wrappers are the first reports of a failure; bounded.
	wrappers []wrapper
	// ready is the order of the moment when the startup served; 0 before.
	ready int
	// stopped is the order of the first sign that somebody else ends the startup; 0
	// for none. What comes after it is its consequence.
	stopped int
	// givenUp is when the service manager ended a start that one of its commands
	// had given up; zero when it did not.
	givenUp  event.Stamp
	hang     hang
	baseline *event.Baseline
	// cache is the last Judgement; nil when something has changed since.
	cache *Judgement
	asked Question
	// memo is shared by Trackers; nil for none.
	memo *Memo
}

// Share makes the Tracker use a Memo that others use too.
func (t *Tracker) Share(m *Memo) { t.memo = m }

// streamKey tells the streams of lines apart.
type streamKey struct {
	prefix, proc string
	pid          int
	raw          bool
}

// finding is a Finding with what the choice needs.
type finding struct {
	pub     Finding
	tier    tier
	seq     int
	remedy  string
	retry   *bool
	causeIf []string
	// elseClass, elseRemedy and elseRetry are what it stands for where nothing names
	// a cause.
	elseClass, elseRemedy string
	elseRetry             *bool
	benign                bool
	// witness: the kernel's or systemd's word, which no stop sets off.
	witness bool
	// origins are the processes that may have died of it; cleared: each of them
	// went on. more says that there were too many to follow.
	origins       []origin
	more, cleared bool
	// uncaught: a traceback that nobody logged. logged: a record with a header.
	uncaught, logged bool
	waits            bool
	frames           []Frame
	key              string
}

// origin is a process that told an error.
type origin struct {
	stream streamKey
	pid    int
	// uncaught: by a traceback that nobody logged.
	uncaught bool
}

// maxOrigins bounds the processes that are followed for one finding.
const maxOrigins = 16

// Add takes one record's line. phase is the phase that the startup is in.
func (t *Tracker) Add(p *profile.Profile, r *profile.Record, at Place, phase string) {
	key := t.key(r, at)
	if len(t.open) == 0 && !begins(r) {
		return
	}
	t.unhead(key, r)
	rec := t.open[key]
	weigh := func(r *profile.Record, frames []Frame) *hit { return t.weigh(p, r, frames, at, phase) }
	if rec != nil && rec.interrupts(r) {
		t.aside(key, r, at, weigh)
		return
	}
	if rec != nil && !rec.continues(r) {
		t.close(key)
		rec = nil
	}
	if rec == nil && r.Header != "" {
		// A logged line ends a raw message of the same process, not its frames.
		raw := key
		raw.raw = true
		if other := t.open[raw]; other != nil && other.state != inFrames {
			t.close(raw)
		}
	}
	if rec == nil {
		if !begins(r) {
			return
		}
		rec = t.begin(key, r, at)
	}
	t.cache = nil
	rec.take(r, weigh)
}

// unhead makes a logged traceback a raw one where its frames come without a
// header: its logger puts that on the first line only.
func (t *Tracker) unhead(key streamKey, r *profile.Record) {
	if _, ok := parseFrame(r.Message); !ok || !key.raw {
		return
	}
	logged := key
	logged.raw = false
	rec, raw := t.open[logged], t.open[key]
	if rec == nil || rec.state != inFrames || len(rec.frames) > 0 || raw != nil && raw.state == inFrames {
		return
	}
	if raw != nil {
		t.close(key)
	}
	rec.header = ""
	delete(t.open, logged)
	own := &t.order[slices.Index(t.order, logged)]
	own.raw = true
	t.open[*own] = rec
}

// aside takes a line that is a record of its own amid another one.
func (t *Tracker) aside(key streamKey, r *profile.Record, at Place, weigh func(*profile.Record, []Frame) *hit) {
	t.seq++
	rec := &record{level: r.Level, first: at, process: t.process(r, at), seq: t.seq}
	rec.take(r, weigh)
	if f := rec.finding(key.clone()); f != nil {
		t.cache = nil
		t.keep(f)
	}
}

func (k streamKey) clone() streamKey {
	k.prefix, k.proc = strings.Clone(k.prefix), strings.Clone(k.proc)
	return k
}

func (t *Tracker) key(r *profile.Record, at Place) streamKey {
	key := streamKey{prefix: r.Prefix, proc: at.Proc, raw: r.Header == ""}
	if r.Prefix == "" || r.Process == "" {
		key.pid = at.PID
	}
	if r.Process != "" && at.PID != 0 && t.names[at.PID] != r.Process && (t.names[at.PID] != "" || len(t.names) < maxNames) {
		if t.names == nil {
			t.names = map[int]string{}
		}
		t.names[at.PID] = strings.Clone(Clip(r.Process, maxName))
	}
	return key
}

func (t *Tracker) begin(key streamKey, r *profile.Record, at Place) *record {
	if len(t.order) == maxOpen {
		t.close(t.order[0])
	}
	key = key.clone()
	t.seq++
	rec := &record{
		header: strings.Clone(strings.TrimRight(r.Header, " ")), level: r.Level, first: at, process: t.process(r, at), seq: t.seq,
	}
	if t.open == nil {
		t.open = map[streamKey]*record{}
	}
	t.open[key] = rec
	t.order = append(t.order, key)
	return rec
}

func (t *Tracker) process(r *profile.Record, at Place) string {
	switch {
	case r.Process != "":
		return Clip(r.Process, maxName)
	case t.names[at.PID] != "":
		return t.names[at.PID]
	}
	return Clip(at.Proc, maxName)
}

// maxName bounds a process's name, in bytes.
const maxName = 64

// weigh says what a line means by the catalogue; nil for nothing.
func (t *Tracker) weigh(p *profile.Profile, r *profile.Record, frames []Frame, at Place, phase string) *hit {
	rule := r.Rule
	for _, c := range r.Conditional {
		if slices.ContainsFunc(frames, func(f Frame) bool { return c.TakesFrame(f.File + ":" + f.Func) }) {
			rule = c
			break
		}
	}
	if rule != nil && !troublesome(rule) {
		rule = nil
	}
	if rule == nil && r.Exception == "" && !(frames != nil && endsTraceback(r)) {
		return nil
	}
	t.seq++
	h := &hit{
		rule: rule, tier: tierFallback, class: ClassUnknown, exception: Clip(r.Exception, maxName), message: Clip(strings.TrimSpace(r.Message), maxMessage),
		process: t.process(r, at), place: at, seq: t.seq, frames: frames,
	}
	if rule == nil {
		if strings.HasSuffix(h.exception, "ExceptionGroup") {
			h.tier = tierSymptom // of its members
		}
		h.remedy, h.retry = p.Advise(nil, h.class, nil)
		return h
	}
	t.saw(rule)
	if class := rule.ClassFor(phase); class != "" {
		h.class = class
	}
	m := r
	if rule != r.Rule {
		m = r.As(rule)
	}
	h.remedy, h.retry = p.Advise(rule, h.class, m.Capture)
	h.remedy = Clip(h.remedy, maxMessage)
	if h.elseClass = rule.ElseClass; h.elseClass != "" {
		h.elseRemedy, h.elseRetry = p.Advise(rule, h.elseClass, m.Capture)
		h.elseRemedy = Clip(h.elseRemedy, maxMessage)
	}
	if rule.Role == profile.RoleWrapper {
		t.wrapped(at.At)
	}
	h.tier, h.benign = tierOf(rule, h.class)
	return h
}

func tierOf(rule *profile.Rule, class string) (t tier, benign bool) {
	switch {
	case rule.Role == profile.RoleBenign:
		return tierNone, true
	case rule.Role == profile.RoleStop:
		return tierLast, false
	case rule.Role != profile.RoleCause:
		return tierSymptom, false
	case class == ClassUnknown:
		return tierFallback, false
	case rule.Weak:
		return tierWeak, false
	}
	return tierStrong, false
}

// saw notes that a rule has matched.
func (t *Tracker) saw(rule *profile.Rule) {
	if t.rules == nil {
		t.rules = map[string]int{}
	}
	t.rules[rule.ID] = t.seq
}

// wrapped notes that a process reports the failure of another one, or its own.
func (t *Tracker) wrapped(at event.Stamp) {
	if len(t.wrappers) < maxLines*maxLines {
		t.wrappers = append(t.wrappers, wrapper{seq: t.seq, at: at})
	}
}

type wrapper struct {
	seq int
	at  event.Stamp
}

// close ends a record and keeps what it found.
func (t *Tracker) close(key streamKey) {
	rec := t.open[key]
	delete(t.open, key)
	if i := slices.Index(t.order, key); i >= 0 {
		key = t.order[i]
		t.order = slices.Delete(t.order, i, i+1)
	}
	t.cache = nil
	if f := rec.finding(key); f != nil {
		t.keep(f)
	}
}
