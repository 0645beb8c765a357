package profile

import (
	"fmt"
	"strings"
)

// A template is a fixed line shape, interpreted by hand-written code: a regular
// expression costs a microsecond where this costs some ten nanoseconds, and it
// runs on every line. Its language:
//
//	#        one digit
//	~        one or more spaces
//	{name}   a field, up to the text that follows it in the template
//	         {name:int} digits, {name:words} a name that may hold spaces
//	         (letters, digits, _ . = -), {name:word} anything but spaces
//	         (the default)
//	{level}  one of the line grammar's level words
//	{msg}    the rest of the line; it comes last
//
// anything else stands for itself. Spaces at the end of a template, or just
// before {msg}, may be missing at the end of the line. The fields process, pid
// and level are used; others only have to be there.
type template struct {
	source string
	tokens []token
	// must is the longest text without # and ~ in it: a cheap test whether a
	// line can hold the shape at all.
	must needle
	// lead is the text that it begins with; "" when it begins otherwise.
	lead string
}

type tokenKind int

const (
	tokText tokenKind = iota
	tokLevel
	tokInt
	tokWord
	tokWords
	tokMsg
)

type token struct {
	kind  tokenKind
	text  string // of tokText
	field string
}

// maxField bounds a field's length, so that a search stays linear.
const maxField = 512

// header is what a template took from a line.
type header struct {
	process string
	pid     int
	level   Level
	// end is where the text after the template begins.
	end int
}

func parseTemplate(source string) (*template, error) {
	t := &template{source: source}
	if source == "" {
		return nil, fmt.Errorf("an empty template; remove it")
	}
	rest := source
	for rest != "" {
		open := strings.IndexByte(rest, '{')
		if open != 0 {
			text := rest
			if open > 0 {
				text = rest[:open]
			}
			t.tokens = append(t.tokens, token{kind: tokText, text: text})
			rest = rest[len(text):]
			continue
		}
		end := strings.IndexByte(rest, '}')
		if end < 0 {
			return nil, fmt.Errorf("template %q: a { has no }", source)
		}
		tok, err := parseField(rest[1:end])
		if err != nil {
			return nil, fmt.Errorf("template %q: %w", source, err)
		}
		t.tokens = append(t.tokens, tok)
		rest = rest[end+1:]
	}
	return t, t.check()
}

func parseField(spec string) (token, error) {
	name, class, typed := strings.Cut(spec, ":")
	if name == "" {
		return token{}, fmt.Errorf("a field has no name")
	}
	if !typed {
		class = map[string]string{"level": "level", "msg": "msg", "pid": "int", "process": "words"}[name]
	}
	switch class {
	case "level":
		return token{kind: tokLevel, field: name}, nil
	case "msg":
		return token{kind: tokMsg, field: name}, nil
	case "int":
		return token{kind: tokInt, field: name}, nil
	case "words":
		return token{kind: tokWords, field: name}, nil
	case "word", "":
		return token{kind: tokWord, field: name}, nil
	}
	return token{}, fmt.Errorf("field %q: unknown class %q; use int, word or words", name, class)
}

func (t *template) check() error {
	for i, tok := range t.tokens {
		last := i == len(t.tokens)-1
		switch {
		case tok.kind == tokMsg && !last:
			return fmt.Errorf("template %q: {msg} must come last", t.source)
		case tok.kind == tokText:
			for part := range strings.FieldsFuncSeq(tok.text, func(r rune) bool { return r == '#' || r == '~' }) {
				if len(part) > len(t.must.text) {
					t.must = newNeedle(part)
				}
			}
		case !last && tok.kind != tokMsg && t.tokens[i+1].kind != tokText:
			return fmt.Errorf("template %q: two fields need text between them", t.source)
		}
	}
	if first := t.tokens[0]; first.kind == tokText {
		lead, _, _ := strings.Cut(first.text, "#")
		t.lead, _, _ = strings.Cut(lead, "~")
	}
	if t.must.text == "" {
		return fmt.Errorf("template %q: no fixed text in it", t.source)
	}
	return nil
}

// parse matches s from its beginning. It writes the fields it finds into h,
// also when it fails.
func (t *template) parse(s string, h *header) bool {
	return t.parseWith(s, nil, h)
}

func (t *template) parseWith(s string, levels map[string]Level, h *header) bool {
	pos := 0
	for i := range t.tokens {
		tok := &t.tokens[i]
		if tok.kind == tokMsg {
			break
		}
		if tok.kind == tokText {
			n := matchText(tok.text, s[pos:], t.endsAt(i))
			if n < 0 {
				return false
			}
			pos += n
			continue
		}
		next := ""
		if i+1 < len(t.tokens) && t.tokens[i+1].kind == tokText {
			next = t.tokens[i+1].text
		}
		n := tok.fieldLen(s[pos:], next, t.endsAt(i+1))
		if n < 1 || !h.set(tok, s[pos:pos+n], levels) {
			return false
		}
		pos += n
	}
	h.end = pos
	return true
}

// endsAt says whether nothing but {msg} follows token i.
func (t *template) endsAt(i int) bool {
	return i >= len(t.tokens)-1 || t.tokens[i+1].kind == tokMsg
}

func (h *header) set(tok *token, value string, levels map[string]Level) bool {
	switch tok.field {
	case "level":
		level, ok := levels[value]
		h.level = level
		return ok
	case "process":
		h.process = value
	case "pid":
		n := 0
		for i := range len(value) {
			if n = n*10 + int(value[i]-'0'); n > 1<<31 {
				return false
			}
		}
		h.pid = n
	}
	return true
}

// fieldLen returns the length of a field at the beginning of s: the shortest
// that the text next follows. It is -1 when there is none.
func (tok *token) fieldLen(s, next string, last bool) int {
	for i := 0; i <= len(s) && i <= maxField; i++ {
		if i > 0 && next != "" && (i == len(s) || couldBegin(next[0], s[i])) && matchText(next, s[i:], last) >= 0 {
			return i
		}
		if i == len(s) || !tok.allows(s[i], i) {
			if next == "" {
				return i
			}
			return -1
		}
	}
	return -1
}

func couldBegin(pattern, c byte) bool {
	return pattern == c || pattern == '#' || pattern == '~'
}

func (tok *token) allows(c byte, at int) bool {
	digit := c >= '0' && c <= '9'
	letter := c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c == '_'
	switch tok.kind {
	case tokLevel:
		return letter
	case tokInt:
		return digit && at < 19
	case tokWords:
		return letter || at > 0 && (digit || c == ' ' || c == '=' || c == '.' || c == '-')
	}
	return c != ' '
}

// matchText returns how many bytes of s the fixed text takes, -1 for no match.
// last allows the text's trailing spaces to be missing at the end of s.
func matchText(text, s string, last bool) int {
	pos := 0
	for i := range len(text) {
		if pos == len(s) {
			if last && strings.Trim(text[i:], " ~") == "" {
				return pos
			}
			return -1
		}
		switch c := text[i]; {
		case c == '#':
			if s[pos] < '0' || s[pos] > '9' {
				return -1
			}
		case c == '~':
			if s[pos] != ' ' {
				return -1
			}
			for pos+1 < len(s) && s[pos+1] == ' ' {
				pos++
			}
		case c != s[pos]:
			return -1
		}
		pos++
	}
	return pos
}
