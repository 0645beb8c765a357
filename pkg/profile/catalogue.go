package profile

import (
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"
	"sync"
)

// addClasses takes over the classes that a document declares.
func (p *Profile) addClasses(doc *document) error {
	if doc == nil {
		return nil
	}
	for name, c := range doc.Classes {
		if name == "" || strings.Trim(name, "abcdefghijklmnopqrstuvwxyz0123456789_") != "" {
			return fmt.Errorf("classes: the name %q must be of a-z, 0-9 and _", name)
		}
		if c.Meaning == "" {
			return fmt.Errorf("classes: %s has no meaning; say in one line what it stands for", name)
		}
		p.Classes[name] = Class(c)
	}
	return nil
}

// addShared puts the catalogue's rules behind the profile's own. A rule of the
// profile stands for the one of the same id.
func (p *Profile) addShared(shared *document) error {
	if shared == nil {
		return nil
	}
	ids := map[string]bool{}
	for _, r := range p.Rules {
		ids[r.ID] = true
	}
	for i := range shared.Rules {
		d := shared.Rules[i]
		if ids[d.ID] {
			continue
		}
		// An engine that lacks a phase can't fail in it.
		d.ClassIn = maps.Clone(d.ClassIn)
		maps.DeleteFunc(d.ClassIn, func(phase, _ string) bool { return !p.HasPhase(phase) })
		r, err := p.newRule(&d)
		if err != nil {
			return d.fault(err)
		}
		r.Shared = true
		p.Rules = append(p.Rules, r)
	}
	return nil
}

// setFrame checks the rule's condition on frames.
func (r *Rule) setFrame() error {
	if r.Frame == "" {
		return nil
	}
	re, err := compile(r.Frame)
	if err != nil {
		return fmt.Errorf("frame: %w", err)
	}
	if !re.MatchString(r.ExampleFrame) {
		return fmt.Errorf("example_frame %q does not match frame; give a frame (file:function) that does", r.ExampleFrame)
	}
	r.frame = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(r.Frame) })
	return nil
}

// checkTriage checks what a rule says of failures.
func (p *Profile) checkTriage(r *Rule) error {
	classes := []string{r.Class, r.ElseClass, r.Hang}
	classes = slices.AppendSeq(classes, maps.Values(r.ClassIn))
	for _, class := range classes {
		if _, ok := p.Classes[class]; class != "" && !ok {
			return fmt.Errorf("unknown class %q; use one of %s, or declare it in a list of classes", class, quoted(slices.Sorted(maps.Keys(p.Classes))))
		}
	}
	if len(r.CauseIf) > 0 && (r.Role != RoleBenign || r.Class == "") {
		return fmt.Errorf("has cause_if and so needs role benign and a class")
	}
	for _, name := range placeholders(r.Remedy) {
		if !slices.Contains(r.Captures, name) {
			return fmt.Errorf("remedy speaks of {%s}, which is no capture of the rule", name)
		}
	}
	return nil
}

// placeholders returns the names in braces.
func placeholders(text string) []string {
	var out []string
	for {
		_, rest, ok := strings.Cut(text, "{")
		name, after, closed := strings.Cut(rest, "}")
		if !ok || !closed {
			return out
		}
		out = append(out, name)
		text = after
	}
}

// Advise returns what to do about a rule's line in one sentence, with its
// captures filled in: the rule's own remedy where all that it speaks of was
// captured, else that of the class. retry is nil when it is not known whether
// starting again can help.
func (p *Profile) Advise(r *Rule, class string, capture func(name string) string) (remedy string, retry *bool) {
	c := p.Classes[class]
	remedy, retry = c.Remedy, c.Retry
	if r == nil {
		return remedy, retry
	}
	if r.Retry != nil {
		retry = r.Retry
	}
	own := r.Remedy
	for _, name := range placeholders(r.Remedy) {
		value := capture(name)
		if value == "" {
			return remedy, retry
		}
		own = strings.ReplaceAll(own, "{"+name+"}", value)
	}
	if own != "" {
		remedy = own
	}
	return remedy, retry
}
