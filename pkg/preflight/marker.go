package preflight

import (
	"errors"
	"fmt"
	"strings"

	pep440 "github.com/aquasecurity/go-pep440-version"
)

// truth is what a marker comes to: it may depend on what is not known.
type truth int

const (
	isFalse truth = iota
	isTrue
	unsure
)

func (t truth) and(o truth) truth {
	switch {
	case t == isFalse || o == isFalse:
		return isFalse
	case t == unsure || o == unsure:
		return unsure
	}
	return isTrue
}

func (t truth) or(o truth) truth {
	switch {
	case t == isTrue || o == isTrue:
		return isTrue
	case t == unsure || o == unsure:
		return unsure
	}
	return isFalse
}

// requirement is one Requires-Dist (PEP 508).
type requirement struct {
	// name is normalised.
	name string
	// spec is its version specifiers, such as ==2.9.1; "" for any version.
	spec string
	// marker is the condition behind ;, "" for none.
	marker string
}

var errRequirement = errors.New("is no requirement")

// parseRequirement reads `name[extra] (==1.0) ; marker`. A requirement by URL has
// no specifier.
func parseRequirement(text string) (requirement, error) {
	text, marker, _ := strings.Cut(text, ";")
	text = strings.TrimSpace(text)
	end := strings.IndexFunc(text, func(r rune) bool {
		return (r < 'a' || r > 'z') && (r < 'A' || r > 'Z') && (r < '0' || r > '9') && r != '-' && r != '_' && r != '.'
	})
	if end < 0 {
		end = len(text)
	}
	name, rest := text[:end], strings.TrimSpace(text[end:])
	if name == "" {
		return requirement{}, fmt.Errorf("%q %w", cutText(text, 80), errRequirement)
	}
	if strings.HasPrefix(rest, "[") {
		_, after, ok := strings.Cut(rest, "]")
		if !ok {
			return requirement{}, fmt.Errorf("%q %w", cutText(text, 80), errRequirement)
		}
		rest = strings.TrimSpace(after)
	}
	if strings.HasPrefix(rest, "@") {
		rest = ""
	}
	rest = strings.TrimSuffix(strings.TrimPrefix(rest, "("), ")")
	return requirement{normal(name), strings.TrimSpace(rest), strings.TrimSpace(marker)}, nil
}

// exact is the version that the requirement pins; "" when it pins none.
func (r requirement) exact() string {
	for part := range strings.SplitSeq(r.spec, ",") {
		part = strings.TrimSpace(part)
		for _, op := range []string{"===", "=="} {
			if v, ok := strings.CutPrefix(part, op); ok && !strings.HasSuffix(v, "*") {
				return strings.TrimSpace(v)
			}
		}
	}
	return ""
}

// environment is what markers are compared with. "" is not known.
type environment struct{ python, machine string }

// variable returns a marker's variable; known is false where we can't tell.
func (e environment) variable(name string) (value string, known bool) {
	switch name {
	case "python_version":
		return e.python, e.python != ""
	case "platform_machine":
		return e.machine, e.machine != ""
	case "sys_platform":
		return "linux", true
	case "platform_system":
		return "Linux", true
	case "os_name":
		return "posix", true
	case "implementation_name":
		return "cpython", true
	case "platform_python_implementation":
		return "CPython", true
	case "extra":
		// Which extras were asked for is written nowhere; without them it is "".
		return "", true
	}
	return "", false
}

// eval reads a marker. What it can't read, or does not know, is unsure.
func (e environment) eval(marker string) truth {
	if marker == "" {
		return isTrue
	}
	p := markerParser{env: e, tokens: tokens(marker)}
	t := p.or(0)
	if p.failed || len(p.tokens) > 0 {
		return unsure
	}
	return t
}

// tokens splits a marker into words, quoted texts (with their quotes), operators
// and brackets.
func tokens(s string) []string {
	var out []string
	for s = strings.TrimSpace(s); s != ""; s = strings.TrimSpace(s) {
		n := 1
		switch c := s[0]; {
		case c == '\'' || c == '"':
			end := strings.IndexByte(s[1:], c)
			if end < 0 {
				return append(out, "?")
			}
			n = end + 2
		case strings.IndexByte("<>=!~", c) >= 0:
			for n < len(s) && strings.IndexByte("<>=!~", s[n]) >= 0 {
				n++
			}
		case c == '(' || c == ')':
		default:
			if n = strings.IndexAny(s, " \t()<>=!~'\""); n <= 0 {
				n = len(s)
			}
		}
		out, s = append(out, s[:n]), s[n:]
	}
	return out
}

// markerParser reads by recursive descent.
type markerParser struct {
	env    environment
	tokens []string
	failed bool
}

// maxDepth bounds brackets within brackets.
const maxDepth = 50

func (p *markerParser) next() string {
	if len(p.tokens) == 0 {
		p.failed = true
		return ""
	}
	t := p.tokens[0]
	p.tokens = p.tokens[1:]
	return t
}

func (p *markerParser) at(word string) bool { return len(p.tokens) > 0 && p.tokens[0] == word }

func (p *markerParser) or(depth int) truth {
	t := p.and(depth)
	for p.at("or") {
		p.next()
		t = t.or(p.and(depth))
	}
	return t
}

func (p *markerParser) and(depth int) truth {
	t := p.atom(depth)
	for p.at("and") {
		p.next()
		t = t.and(p.atom(depth))
	}
	return t
}

func (p *markerParser) atom(depth int) truth {
	if p.at("(") {
		p.next()
		if depth > maxDepth {
			p.failed = true
			return unsure
		}
		t := p.or(depth + 1)
		if p.next() != ")" {
			p.failed = true
		}
		return t
	}
	left, op := p.next(), p.next()
	if op == "not" && p.at("in") {
		p.next()
		op = "not in"
	}
	return p.compare(left, op, p.next())
}

// compare compares a variable with a text; a text with a variable is the same
// thing for == and !=, and else unsure.
func (p *markerParser) compare(left, op, right string) truth {
	if quotedText(left) && !quotedText(right) && (op == "==" || op == "!=") {
		left, right = right, left
	}
	if !quotedText(right) || quotedText(left) {
		return unsure
	}
	have, known := p.env.variable(left)
	if !known {
		return unsure
	}
	want := right[1 : len(right)-1]
	if left == "python_version" && op != "in" && op != "not in" {
		return matches(have, op+want)
	}
	switch op {
	case "==":
		return is(have == want)
	case "!=":
		return is(have != want)
	case "in":
		return is(strings.Contains(want, have))
	case "not in":
		return is(!strings.Contains(want, have))
	}
	return unsure
}

func quotedText(s string) bool { return len(s) > 1 && (s[0] == '"' || s[0] == '\'') }

func is(b bool) truth {
	if b {
		return isTrue
	}
	return isFalse
}

// matches compares a version with specifiers (PEP 440).
func matches(version, spec string) truth {
	v, err := pep440.Parse(version)
	if err != nil {
		return unsure
	}
	s, err := pep440.NewSpecifiers(spec)
	if err != nil {
		return unsure
	}
	return is(s.Check(v))
}
