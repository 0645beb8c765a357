package profile

import (
	"math/bits"
	"slices"
	"strings"
)

// Kinds of record besides the names of a profile's headers.
const (
	// KindRaw is a record without a header.
	KindRaw = "raw"
	// KindKernel is a line of the kernel's own log.
	KindKernel = "kernel"
	// kindTraceback, for rules: a record without a header, or with the level of
	// an error or above, or with a header that tells no level.
	kindTraceback = "traceback"
	// kindAny, for rules: every record.
	kindAny = "any"
	// noProcess, in Rule.From: a record that names no process.
	noProcess = "none"
)

// Record is one record of log on a physical line, and what the profile knows of
// it.
type Record struct {
	// Text is the record as printed, Message what is left of it after wrappers,
	// prefixes and header.
	Text, Message string
	// Process and PID are told by the record's own prefix, the last one where
	// they nest; "" and 0 when it has none.
	Process string
	PID     int
	Level   Level
	// Kind is the header's name in the profile, or KindRaw.
	Kind string
	// Known is true when the record has a header or a prefix of the engine.
	Known bool
	// Prefix is what stood before the header: it tells the streams of processes
	// apart. "" when there is none.
	Prefix string
	// Header is what stood between the prefixes and the message: the lines of one
	// record have the same. "" when there is none.
	Header string
	// Exception is the exception's type where the message reads like the last line
	// of a traceback, with its module; "" for other messages.
	Exception string
	// Rule is the rule that the message matches; nil for none.
	Rule *Rule
	// Conditional are the rules before Rule that the message matches too, and that
	// hold only with a certain frame in the traceback.
	Conditional []*Rule
	// Done and Total are the numbers of a progress record, in its own units;
	// meaningful only with HasProgress.
	Done, Total float64
	HasProgress bool

	// found are the places of the rule's captures; nil until asked for. memo keeps
	// them for the next record with the same message; nil when it is not kept.
	found [][]int
	memo  *memoEntry
}

// Scanner reads lines by a profile. It must not be used by two goroutines at a
// time.
type Scanner struct {
	p    *Profile
	rec  Record
	head header
	bits []uint64
	memo memo
}

// NewScanner returns a Scanner of the profile.
func (p *Profile) NewScanner() *Scanner {
	return &Scanner{p: p, bits: make([]uint64, (len(p.Rules)+63)/64), memo: newMemo()}
}

// Scan takes one physical line, already without ANSI sequences, and yields the
// records on it in order: more than one where a process wrote into another's
// line. It yields records without a rule too. The Record is used again: it is
// valid only inside yield (a copy of it stays valid).
func (s *Scanner) Scan(text string, yield func(*Record)) {
	for {
		s.head = header{}
		pos, known := s.p.grammar.skipPrefixes(text, &s.head)
		end := s.p.grammar.split(text, pos)
		s.scanRecord(text[:end], pos, known)
		yield(&s.rec)
		if end == len(text) {
			return
		}
		text = text[end:]
	}
}

// Match returns the records of a line with their rules, for tests and tools.
func (p *Profile) Match(text string) []Record {
	var out []Record
	p.NewScanner().Scan(text, func(r *Record) { out = append(out, *r) })
	return out
}

func (s *Scanner) scanRecord(text string, pos int, known bool) {
	g := s.p.grammar
	s.rec = Record{Text: text, Prefix: text[:pos], Process: s.head.process, PID: s.head.pid, Kind: KindRaw, Known: known}
	message, indexes := text[pos:], g.raw
	for i := range g.headers {
		h := &g.headers[i]
		s.head = header{}
		at := h.find(message, g.levels, &s.head)
		if at < 0 {
			continue
		}
		s.rec.Header = message[at : at+s.head.end]
		message = message[at+s.head.end:]
		s.rec.Kind, s.rec.Level, s.rec.Known = h.kind, s.head.level, true
		if s.head.process != "" {
			s.rec.Process, s.rec.PID = s.head.process, s.head.pid
		}
		indexes = h.indexes(s.head.level)
		break
	}
	s.rec.Message = g.cutSuffix(message)
	raw := s.rec.Kind == KindRaw || s.rec.Level >= LevelError
	if raw {
		s.rec.Message = ungroup(s.rec.Message)
	}
	known, keep := s.memo.recall(&s.rec, s.p.ProcessRole(s.rec.Process))
	if known {
		return
	}
	if raw {
		s.rec.Exception = exceptionType(s.rec.Message)
	}
	s.pick(indexes)
	s.rec.readProgress()
	if keep != nil {
		keep.store(&s.rec)
	}
}

// indexes returns those of the rules that a record of this kind can match.
func (h *headerShape) indexes(level Level) []*index {
	if level == LevelNone || level >= LevelError {
		return h.failing
	}
	return h.plain
}

// pick sets the record's rule: the first one in the profile's order whose kind,
// process and expression fit.
func (s *Scanner) pick(indexes []*index) {
	marked := false
	for _, x := range indexes {
		if x.mark(s.rec.Message, s.bits) {
			marked = true
		}
	}
	if !marked {
		return
	}
	for word, set := range s.bits {
		s.bits[word] = 0
		for ; set != 0 && s.rec.Rule == nil; set &= set - 1 {
			rule := s.p.Rules[word<<6+bits.TrailingZeros64(set)]
			if s.p.from(rule, s.rec.Process) {
				s.rec.try(rule)
			}
		}
	}
}

// ScanKernel matches a line of the kernel's log. The Record is used again.
func (s *Scanner) ScanKernel(text string) *Record {
	s.rec = Record{Text: text, Message: text, Kind: KindKernel}
	s.pick(s.p.kernel)
	return &s.rec
}

// As returns a copy of the record that matches another of its rules.
func (r *Record) As(rule *Rule) *Record {
	c := *r
	c.Rule, c.Conditional, c.found, c.memo = rule, nil, nil, nil
	return &c
}

// try sets the record's rule if its expression matches.
func (r *Record) try(rule *Rule) {
	if rule.Exception != nil && !names(rule.Exception, r.Exception) {
		return
	}
	if rule.frame != nil {
		if rule.re().MatchString(r.Message) {
			r.Conditional = append(r.Conditional, rule)
		}
		return
	}
	if rule.Role != RoleProgress {
		if rule.re().MatchString(r.Message) {
			r.Rule = rule
		}
		return
	}
	// The numbers are needed anyway: one run of the expression instead of two.
	r.Rule = rule
	if r.findCaptures(); r.found[0] == nil {
		r.Rule, r.found = nil, nil
	}
}

// from says whether a rule takes records of a process.
func (p *Profile) from(r *Rule, process string) bool {
	if r.From == nil {
		return true
	}
	role := noProcess
	if process != "" {
		role = p.ProcessRole(process)
	}
	return slices.Contains(r.From, role)
}

// Capture returns what the rule captured under a name, in its expression or in
// one of its extracts; "" when it did not, or when there is no rule. Commas
// between thousands are left out. The names host and port are also read from a
// capture addr (a URL or host:port).
func (r *Record) Capture(name string) string {
	value := r.capture(name)
	if value == "" && (name == "host" || name == "port") {
		host, port := splitAddr(r.capture("addr"))
		if name == "host" {
			return host
		}
		return port
	}
	return withoutCommas(value)
}

func (r *Record) capture(name string) string {
	if r.Rule == nil || len(r.Rule.Captures) == 0 {
		return ""
	}
	r.findCaptures()
	for i, re := range r.Rule.expressions() {
		loc := r.found[i]
		if loc == nil {
			continue
		}
		if n := re.SubexpIndex(name); n >= 0 && loc[2*n] >= 0 && loc[2*n] < loc[2*n+1] {
			return r.Message[loc[2*n]:loc[2*n+1]]
		}
	}
	return ""
}

// findCaptures runs the rule's expressions once a record, when a capture is
// first asked for: most records are asked for none.
func (r *Record) findCaptures() {
	if r.found != nil {
		return
	}
	for _, re := range r.Rule.expressions() {
		r.found = append(r.found, re.FindStringSubmatchIndex(r.Message))
	}
	if r.memo != nil {
		r.memo.found = r.found
	}
}

// readProgress sets the numbers of a progress record: done of total, or a
// percentage.
func (r *Record) readProgress() {
	if r.Rule == nil || r.Rule.Role != RoleProgress {
		return
	}
	done, ok1 := scaled(r.Capture("done"), r.Capture("done_unit"))
	total, ok2 := scaled(r.Capture("total"), r.Capture("total_unit"))
	if !ok1 || !ok2 {
		done, ok1 = scaled(r.Capture("pct"), "")
		total, ok2 = 100, true
	}
	if ok1 && ok2 && total > 0 && done <= total {
		r.Done, r.Total, r.HasProgress = done, total, true
	}
}

// splitAddr splits a URL or host:port; both parts are "" when it is neither
// (a Unix socket).
func splitAddr(addr string) (host, port string) {
	if _, rest, ok := strings.Cut(addr, "://"); ok {
		addr, _, _ = strings.Cut(rest, "/")
	}
	at := strings.LastIndexByte(addr, ':')
	if at < 0 || at == len(addr)-1 || strings.Trim(addr[at+1:], "0123456789") != "" {
		return "", ""
	}
	return strings.Trim(addr[:at], "[]"), addr[at+1:]
}
