package profile

import (
	"errors"
	"fmt"
	"regexp"
	"regexp/syntax"
	"slices"
	"strings"
	"sync"
)

const (
	maxRules = 2000
	// maxRegex bounds an expression's text; a list of alternatives that is
	// longer is better written as several rules.
	maxRegex = 1500
)

// addRules reads the document's rules and puts them before those of base. A
// rule with the id of one of base's takes its place.
func (p *Profile) addRules(doc *document, base *Profile) (own []*Rule, err error) {
	if len(doc.Rules) > maxRules {
		return nil, fmt.Errorf("has %d rules; %d are the most", len(doc.Rules), maxRules)
	}
	lines := map[string]int{}
	for i := range doc.Rules {
		d := &doc.Rules[i]
		r, err := p.newRule(d)
		if err == nil && lines[r.ID] != 0 {
			err = fmt.Errorf("line %d has a rule of the same id; give each its own", lines[r.ID])
		}
		if err != nil {
			return nil, d.fault(err)
		}
		lines[r.ID] = r.line
		own = append(own, r)
	}
	p.Rules = slices.Clone(own)
	if base == nil {
		return own, nil
	}
	for _, old := range base.Rules {
		if lines[old.ID] == 0 {
			// A copy, as its place in this profile is another one.
			r := *old
			p.Rules = append(p.Rules, &r)
		}
	}
	return own, nil
}

func (d *ruleDoc) fault(err error) error {
	return fmt.Errorf("line %d: rule %q: %w", d.line, d.ID, err)
}

func (r *Rule) fault(format string, args ...any) error {
	return fmt.Errorf("line %d: rule %q: %w", r.line, r.ID, fmt.Errorf(format, args...))
}

func (p *Profile) newRule(d *ruleDoc) (*Rule, error) {
	r := &Rule{
		ID: d.ID, Role: d.Role, Phase: d.Phase, Step: d.Step, Class: d.Class, ClassIn: d.ClassIn,
		Process: d.Process, From: d.From,
		Fatal: d.Fatal, Banner: d.Banner, RevokesReady: d.RevokesReady, Waits: d.Waits, Skips: d.Skips, ReadyIf: d.ReadyIf,
		Weights: d.Weights, FramePhase: d.FramePhase, Weak: d.Weak, Exception: d.Exception,
		Frame: d.Frame, ExampleFrame: d.ExampleFrame, CauseIf: d.CauseIf, ElseClass: d.ElseClass, Hang: d.Hang,
		Remedy: d.Remedy, Retry: d.Retry, Kind: d.Kind, Since: d.Since, Until: d.Until,
		Source: d.Source, Note: d.Note, Regex: d.Regex, Extract: d.Extract, Example: d.Example, Examples: d.Examples,
		want: d.Captures, line: max(d.line, 1),
	}
	if d.Await != nil {
		r.Await = &Await{Rules: d.Await.Rules, Seen: d.Await.Seen, Phase: d.Await.Phase, Step: d.Await.Step}
	}
	if r.Process == "" {
		r.Process = kindAny
	}
	if r.Kind == "" {
		r.Kind = kindAny
	}
	if d.Level != "" {
		level, ok := parseLevel(d.Level)
		if !ok {
			return nil, fmt.Errorf("unknown level %q; use debug, info, warning, error or critical", d.Level)
		}
		r.Level = level
	}
	if r.Regex == "" && len(r.Exception) > 0 {
		r.Regex = `^(?:[\w.]+\.)?(?:` + strings.Join(r.Exception, "|") + `)(?::|$)`
	}
	if err := errors.Join(p.checkRule(r), r.setRegex(d.Unfiltered), r.setFrame()); err != nil {
		return nil, err
	}
	return r, errors.Join(p.checkMeaning(r), p.checkTriage(r))
}

// checkRule checks the names in a rule.
func (p *Profile) checkRule(r *Rule) error {
	if r.ID == "" || strings.Trim(r.ID, "abcdefghijklmnopqrstuvwxyz0123456789_") != "" {
		return fmt.Errorf("the id must be of a-z, 0-9 and _")
	}
	switch r.Role {
	case RoleEnter, RoleEnd, RoleFact, RoleProgress, RoleHeartbeat, RoleReady,
		RoleCause, RoleWrapper, RoleCascade, RoleTeardown, RoleBenign, RoleStop:
	default:
		return fmt.Errorf("unknown role %q; use enter, end, fact, progress, heartbeat, ready, cause, wrapper, cascade, teardown, benign or stop", r.Role)
	}
	phases := append([]string{r.Phase, r.FramePhase}, r.Skips...)
	if r.Await != nil {
		phases = append(phases, r.Await.Phase)
	}
	for phase := range r.ClassIn {
		phases = append(phases, phase)
	}
	for _, phase := range phases {
		if phase != "" && !p.HasPhase(phase) {
			return fmt.Errorf("unknown phase %q; the engine has %s", phase, quoted(p.Phases))
		}
	}
	if !p.hasKind(r.Kind) {
		return fmt.Errorf("unknown kind %q; use the kind of a header, or raw, traceback, kernel or any", r.Kind)
	}
	for _, role := range append([]string{r.Process}, r.From...) {
		if role != kindAny && role != noProcess && !slices.Contains(p.roles, role) {
			return fmt.Errorf("unknown process %q; it must be one of processes:, any, or in from: none", role)
		}
	}
	if r.Example == "" {
		return fmt.Errorf("has no example; add a message that selects it")
	}
	return nil
}

func (p *Profile) hasKind(kind string) bool {
	if kind == KindRaw || kind == KindKernel || kind == kindTraceback || kind == kindAny {
		return true
	}
	return slices.ContainsFunc(p.grammar.headers, func(h headerShape) bool { return h.kind == kind })
}

// checkMeaning checks that a rule has what its role needs.
func (p *Profile) checkMeaning(r *Rule) error {
	has := func(name string) bool { return slices.Contains(r.Captures, name) }
	switch {
	case r.Role == RoleEnter && r.Phase == "" && r.Step == "":
		return fmt.Errorf("enters nothing; give it a phase or a step, or role fact")
	case r.Role == RoleProgress && !has("pct") && !(has("done") && has("total")):
		return fmt.Errorf("is progress and so needs the captures done and total, or pct")
	case r.Role == RoleCause && r.Class == "":
		return fmt.Errorf("is a cause and so needs a class")
	case r.Weights != "" && !has(r.Weights):
		return fmt.Errorf("has no capture %q to hold the weights' size", r.Weights)
	case r.Weights != "" && unitFactor(nameUnit(r.Weights)) == 1 && !has(r.Weights+"_unit"):
		return fmt.Errorf("weights capture %q has no unit; name it ..._gib, _gb, _mib or add a capture %s_unit", r.Weights, r.Weights)
	case r.Await != nil && (len(r.Await.Rules) == 0 || r.Await.Phase == ""):
		return fmt.Errorf("await needs rules and a phase")
	}
	return nil
}

// compile compiles an expression from a file.
func compile(source string) (*regexp.Regexp, error) {
	if len(source) > maxRegex {
		return nil, fmt.Errorf("regex of %d bytes; %d are the most, so write several", len(source), maxRegex)
	}
	re, err := regexp.Compile(source)
	if err != nil {
		return nil, fmt.Errorf("%w (RE2 syntax)", err)
	}
	return re, nil
}

// setRegex checks the rule's expressions and finds their texts and captures. It
// leaves their compilation to the first use.
func (r *Rule) setRegex(unfiltered bool) error {
	if r.Regex == "" {
		return fmt.Errorf("has no regex")
	}
	sources := append([]string{r.Regex}, r.Extract...)
	for i, source := range sources {
		if len(source) > maxRegex {
			return fmt.Errorf("regex of %d bytes; %d are the most, so write several rules", len(source), maxRegex)
		}
		re, err := syntax.Parse(source, syntax.Perl)
		if err != nil {
			return fmt.Errorf("%w (RE2 syntax)", err)
		}
		for _, name := range re.CapNames() {
			if name != "" && !slices.Contains(r.Captures, name) {
				r.Captures = append(r.Captures, name)
			}
		}
		if i == 0 {
			r.literals = required(re)
		}
	}
	if slices.Contains(r.Captures, "addr") {
		for _, name := range []string{"host", "port"} {
			if !slices.Contains(r.Captures, name) {
				r.Captures = append(r.Captures, name)
			}
		}
	}
	if len(r.literals.set) == 0 && !unfiltered {
		return fmt.Errorf("its regex needs no text of %d or more characters, so it would run on every line; put a fixed text into every alternative (not in (?i)), or set unfiltered: true", minLiteral)
	}
	r.re = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(r.Regex) })
	r.expressions = sync.OnceValue(func() []*regexp.Regexp {
		out := []*regexp.Regexp{r.re()}
		for _, source := range r.Extract {
			out = append(out, regexp.MustCompile(source))
		}
		return out
	})
	return nil
}

// checkReferences checks that the rules that others name exist.
func (p *Profile) checkReferences(own []*Rule) error {
	ids := map[string]bool{}
	for _, r := range p.Rules {
		ids[r.ID] = true
	}
	for _, r := range own {
		names := slices.Concat(r.ReadyIf, r.CauseIf)
		if r.Await != nil {
			names = slices.Concat(names, r.Await.Rules, r.Await.Seen)
		}
		for _, name := range names {
			if !ids[name] {
				return r.fault("names rule %q, which does not exist; correct the name or add the rule", name)
			}
		}
	}
	return nil
}
