package profile

import (
	"fmt"
	"maps"
	"slices"
	"strings"
)

// selfTest proves by their examples that rules select what they were written
// for, and capture what they say.
func (p *Profile) selfTest(rules []*Rule) error {
	s := p.NewScanner()
	for _, r := range rules {
		for i, text := range slices.Concat([]string{r.Example}, r.Examples) {
			rec := s.example(r, text)
			if slices.Contains(rec.Conditional, r) {
				rec = rec.As(r)
			}
			if rec.Rule == nil || rec.Rule.ID != r.ID {
				return r.fault("example %q selects %s; %s", text, selected(rec.Rule), advice(rec.Rule))
			}
			if r.Role == RoleProgress && !rec.HasProgress {
				return r.fault("example %q gives no progress; done and total must be numbers", text)
			}
			if i > 0 {
				continue
			}
			if got := rec.captures(); !maps.Equal(got, r.want) {
				return r.fault("example %q captures %s, but the rule says %s; correct captures or the regex", text, show(got), show(r.want))
			}
		}
	}
	return nil
}

// example matches a message as the kind of record that the rule is for.
func (s *Scanner) example(r *Rule, text string) *Record {
	s.rec = Record{Text: text, Message: text, Kind: r.Kind, Level: r.Level, Process: s.p.exampleProcess(r), Exception: exceptionType(text)}
	indexes := s.p.grammar.raw
	if r.Kind == KindKernel {
		indexes = s.p.kernel
	}
	for i := range s.p.grammar.headers {
		if h := &s.p.grammar.headers[i]; h.kind == r.Kind {
			indexes = h.plain
			if r.Level >= LevelError {
				indexes = h.failing
			}
			break
		}
	}
	s.pick(indexes)
	s.rec.readProgress()
	return &s.rec
}

// exampleProcess returns the name of a process that the rule takes.
func (p *Profile) exampleProcess(r *Rule) string {
	for _, pr := range p.processes {
		if len(r.From) > 0 && pr.role == r.From[0] {
			return pr.prefix
		}
	}
	return ""
}

// captures returns the captures that are not empty.
func (r *Record) captures() map[string]string {
	out := map[string]string{}
	for _, name := range r.Rule.Captures {
		if value := r.Capture(name); value != "" {
			out[name] = value
		}
	}
	return out
}

func selected(r *Rule) string {
	if r == nil {
		return "no rule"
	}
	return fmt.Sprintf("rule %q instead", r.ID)
}

func advice(r *Rule) string {
	if r == nil {
		return "correct the example, the regex or the kind"
	}
	return "put this rule before it, or make one of the two stricter"
}

func show(m map[string]string) string {
	if len(m) == 0 {
		return "nothing"
	}
	var parts []string
	for _, name := range slices.Sorted(maps.Keys(m)) {
		parts = append(parts, fmt.Sprintf("%s=%q", name, m[name]))
	}
	return strings.Join(parts, " ")
}

// SelfTest proves every rule by its examples, as is done with an operator's file
// when it is loaded. Its error names file, rule and what to do.
func (p *Profile) SelfTest() error { return p.selfTest(p.Rules) }
