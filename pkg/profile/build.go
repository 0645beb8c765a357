package profile

import (
	"errors"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"
	"time"
)

// knownPhases are the phases of a start, in order. Metrics and alerts rely on
// them, so a profile can leave some out and add none.
func knownPhases() []string { return []string{"spawn", "load", "compile", "cudagraph", "serving"} }

// build makes a profile of a document, on top of base where there is one. own
// are the document's own rules within the profile.
func build(file string, doc *document, base *Profile, shared *document) (p *Profile, own []*Rule, err error) {
	p = &Profile{Engine: doc.Engine, File: file, steps: map[string]StepInfo{}, Classes: map[string]Class{}}
	if base != nil {
		err = p.inherit(doc, base)
	} else {
		err = p.describe(doc)
	}
	if err != nil {
		return nil, nil, err
	}
	if err := errors.Join(p.setDetect(doc), p.setHealth(doc), p.setSteps(doc), p.setPreflight(doc)); err != nil {
		return nil, nil, err
	}
	if err := errors.Join(p.addClasses(shared), p.addClasses(doc)); err != nil {
		return nil, nil, err
	}
	own, err = p.addRules(doc, base)
	if err != nil {
		return nil, nil, err
	}
	if base == nil {
		if err := p.addShared(shared); err != nil {
			return nil, nil, err
		}
	}
	if err := p.checkReferences(own); err != nil {
		return nil, nil, err
	}
	return p, own, p.buildIndexes()
}

// inherit takes over what an extending file can't change.
func (p *Profile) inherit(doc *document, base *Profile) error {
	if doc.Line != nil || doc.Phases != nil || doc.Processes != nil || doc.Titles != nil {
		return fmt.Errorf("extends %q and so can't set line, phases, processes or titles; leave extends out and write a whole profile", doc.Extends)
	}
	p.Phases, p.DefaultPort, p.Health, p.Preflight = base.Phases, base.DefaultPort, base.Health, base.Preflight
	p.detect, p.titles, p.processes, p.roles, p.quiet = base.detect, base.titles, base.processes, base.roles, base.quiet
	p.steps, p.Classes = maps.Clone(base.steps), maps.Clone(base.Classes)
	g := *base.grammar
	g.headers = slices.Clone(g.headers)
	p.grammar = &g
	return nil
}

// describe reads what a whole profile must tell.
func (p *Profile) describe(doc *document) error {
	if doc.Line == nil {
		return fmt.Errorf("has no line:, the form of the engine's lines; add one, or extends: ENGINE")
	}
	if len(doc.Phases) == 0 {
		return fmt.Errorf("has no phases:; list those the engine has, of %s", quoted(knownPhases()))
	}
	for _, phase := range doc.Phases {
		if !slices.Contains(knownPhases(), phase) {
			return fmt.Errorf("phases: unknown phase %q; use %s", phase, quoted(knownPhases()))
		}
	}
	p.Phases = doc.Phases
	p.roles = slices.Sorted(maps.Keys(doc.Processes))
	for _, role := range p.roles {
		for _, prefix := range doc.Processes[role] {
			p.processes = append(p.processes, processRole{prefix: prefix, role: role})
		}
	}
	// The longest name first: it is the most special one.
	slices.SortStableFunc(p.processes, func(a, b processRole) int { return len(b.prefix) - len(a.prefix) })
	var err error
	if p.titles, err = parseTemplates(doc.Titles); err != nil {
		return fmt.Errorf("titles: %w", err)
	}
	if p.grammar, err = newGrammar(doc.Line); err != nil {
		return fmt.Errorf("line: %w", err)
	}
	return nil
}

func newGrammar(doc *lineDoc) (*grammar, error) {
	g := &grammar{levels: map[string]Level{}}
	for word, name := range doc.Levels {
		level, ok := parseLevel(name)
		if !ok {
			return nil, fmt.Errorf("levels: %s: unknown level %q; use debug, info, warning, error or critical", word, name)
		}
		g.levels[word] = level
	}
	for _, text := range doc.Resync {
		if text == "" {
			return nil, fmt.Errorf("resync: an empty text; remove it")
		}
		g.resync = append(g.resync, newNeedle(text))
	}
	var err1, err2, err3 error
	g.outer, err1 = parseTemplates(doc.Outer)
	g.prefixes, err2 = parseTemplates(doc.Prefix)
	g.suffixes, err3 = parseTemplates(doc.Suffix)
	if err := errors.Join(err1, err2, err3); err != nil {
		return nil, err
	}
	for _, t := range slices.Concat(g.outer, g.prefixes, g.suffixes) {
		if t.lead == "" {
			return nil, fmt.Errorf("template %q must begin with a fixed text", t.source)
		}
	}
	for _, h := range doc.Headers {
		if h.Kind == "" || h.Kind == KindRaw || h.Kind == kindTraceback || h.Kind == kindAny {
			return nil, fmt.Errorf("headers: kind %q: give the header a name of its own", h.Kind)
		}
		t, err := parseTemplate(h.Shape)
		if err != nil {
			return nil, err
		}
		shape := headerShape{kind: h.Kind, shape: t}
		if h.Anywhere && !shape.anywhere() {
			return nil, fmt.Errorf("headers: %q can't be found anywhere; it must begin with {level} and a text that holds more than digits and spaces", h.Shape)
		}
		g.headers = append(g.headers, shape)
	}
	return g, nil
}

func parseTemplates(sources []string) ([]*template, error) {
	var out []*template
	for _, source := range sources {
		t, err := parseTemplate(source)
		if err != nil {
			return nil, err
		}
		out = append(out, t)
	}
	return out, nil
}

func parseLevel(name string) (Level, bool) {
	switch strings.ToLower(name) {
	case "debug":
		return LevelDebug, true
	case "info":
		return LevelInfo, true
	case "warning":
		return LevelWarning, true
	case "error":
		return LevelError, true
	case "critical":
		return LevelCritical, true
	}
	return LevelNone, false
}

func (p *Profile) setDetect(doc *document) error {
	var own []*regexp.Regexp
	for _, source := range doc.Detect {
		re, err := compile(source)
		if err != nil {
			return fmt.Errorf("detect: %w", err)
		}
		own = append(own, re)
	}
	p.detect = append(own, p.detect...)
	return nil
}

func (p *Profile) setHealth(doc *document) error {
	if doc.Port < 0 || doc.Port > 65535 {
		return fmt.Errorf("port %d is none; use 1 to 65535", doc.Port)
	}
	if doc.Port != 0 {
		p.DefaultPort = doc.Port
	}
	if doc.Health == nil {
		return nil
	}
	h := doc.Health
	if !strings.HasPrefix(h.Path, "/") || len(h.Ready) == 0 {
		return fmt.Errorf("health: needs a path that begins with / and the statuses that mean ready")
	}
	p.Health = Health{Path: h.Path, Ready: h.Ready, NotReady: h.NotReady, Closed: h.Closed}
	return nil
}

func (p *Profile) setSteps(doc *document) error {
	if doc.Quiet != 0 {
		p.quiet = time.Duration(doc.Quiet)
	}
	for name, step := range doc.Steps {
		phase, _, _ := strings.Cut(name, "/")
		if !p.HasPhase(phase) {
			return fmt.Errorf("steps: %s: unknown phase %q; use %s", name, phase, quoted(p.Phases))
		}
		p.steps[name] = StepInfo{Quiet: time.Duration(step.Quiet), NoStretch: step.NoStretch}
	}
	return nil
}

// buildIndexes gives every kind of record the indexes of the rules that it can
// match.
func (p *Profile) buildIndexes() error {
	kinds := map[string][]*Rule{}
	for i, r := range p.Rules {
		r.index = i
		kinds[r.Kind] = append(kinds[r.Kind], r)
	}
	built := map[string]*index{}
	for kind, rules := range kinds {
		x, err := newIndex(rules)
		if err != nil {
			return err
		}
		built[kind] = x
	}
	pick := func(kinds ...string) (out []*index) {
		for _, kind := range kinds {
			if x := built[kind]; x != nil {
				out = append(out, x)
			}
		}
		return out
	}
	g := p.grammar
	g.raw = pick(KindRaw, kindTraceback, kindAny)
	p.kernel = pick(KindKernel)
	for i := range g.headers {
		h := &g.headers[i]
		h.plain, h.failing = pick(h.kind, kindAny), pick(h.kind, kindTraceback, kindAny)
	}
	return nil
}
