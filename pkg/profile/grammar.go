package profile

import "strings"

// grammar is how an engine builds its lines.
type grammar struct {
	// outer are wrappers that are stripped before anything else.
	outer []*template
	// prefixes name the process; they nest, and the last one counts.
	prefixes []*template
	headers  []headerShape
	// suffixes begin what is cut off at a message's end.
	suffixes []*template
	// resync are texts after which another record may begin on the same line
	// (a bar has no newline of its own).
	resync []needle
	levels map[string]Level
	// raw are the rules' indexes for a record without a header.
	raw []*index
}

// headerShape is one form of the header between prefix and message.
type headerShape struct {
	kind  string
	shape *template
	// after is the fixed text that follows a leading {level}, and anchor the
	// byte of it to look for, where the header is also found behind a text that
	// is glued to it; anchor is 0 elsewhere.
	after  string
	anchor byte
	// anchorAt is the anchor's place in after.
	anchorAt int
	// plain and failing are the rules' indexes for a record of this kind, below
	// and from the level of an error on.
	plain, failing []*index
}

// anywhere makes the header be found behind glued text. It reports false when
// the shape has nothing to look for.
func (h *headerShape) anywhere() bool {
	tokens := h.shape.tokens
	if len(tokens) < 2 || tokens[0].kind != tokLevel || tokens[1].kind != tokText {
		return false
	}
	h.after = tokens[1].text
	for i := range len(h.after) {
		if c := h.after[i]; c != '#' && c != '~' && c != ' ' {
			h.anchor, h.anchorAt = c, i
			// A ~ before the anchor has no fixed length.
			return !strings.Contains(h.after[:i], "~")
		}
	}
	return false
}

// find returns where in s the header begins, -1 if it is not there.
func (h *headerShape) find(s string, levels map[string]Level, out *header) int {
	if h.shape.parseWith(s, levels, out) {
		return 0
	}
	if h.anchor == 0 {
		return -1
	}
	for from := 0; ; {
		at := strings.IndexByte(s[from:], h.anchor)
		if at < 0 {
			return -1
		}
		from += at + 1
		begin := from - 1 - h.anchorAt
		if begin < 1 || matchText(h.after, s[begin:], false) < 0 {
			continue
		}
		if at := levelBefore(s[:begin], levels); at >= 0 && h.shape.parseWith(s[at:], levels, out) {
			return at
		}
	}
}

// levelBefore returns where a level word begins that ends s: the longest one,
// since text may be glued to it.
func levelBefore(s string, levels map[string]Level) int {
	found := -1
	for n := 1; n <= len(s) && n <= 16; n++ {
		if _, ok := levels[s[len(s)-n:]]; ok {
			found = len(s) - n
		}
	}
	return found
}

// skipPrefixes returns where the text behind outer wrappers and process prefixes
// begins. The last prefix that names a process is left in out.
func (g *grammar) skipPrefixes(s string, out *header) (pos int, known bool) {
	for _, t := range g.outer {
		var h header
		if strings.HasPrefix(s[pos:], t.lead) && t.parse(s[pos:], &h) {
			pos += h.end
		}
	}
	for again := true; again; {
		again = false
		for _, t := range g.prefixes {
			var h header
			if !strings.HasPrefix(s[pos:], t.lead) || !t.parse(s[pos:], &h) {
				continue
			}
			pos += h.end
			if h.process != "" {
				out.process, out.pid = h.process, h.pid
			}
			known, again = true, true
			break
		}
	}
	return pos, known
}

// split returns where the next record begins in s, looking from pos on;
// len(s) when s is one record.
func (g *grammar) split(s string, pos int) int {
	end := len(s)
	for _, t := range g.prefixes {
		if at := g.embedded(t, s[pos:end]); at > 0 {
			end = pos + at
		}
	}
	for _, text := range g.resync {
		for from := pos; ; {
			at := text.index(s[from:end])
			if at < 0 {
				break
			}
			from += at + len(text.text)
			if g.beginsRecord(s[from:]) {
				end = from
				break
			}
		}
	}
	return end
}

// embedded finds a process prefix behind the beginning of s; -1 for none. Only
// a prefix with a pid is trusted so far from its usual place.
func (g *grammar) embedded(t *template, s string) int {
	if t.lead == "" || t.must.index(s) < 0 || !t.has("pid") {
		return -1
	}
	for from := 1; from < len(s); from++ {
		at := strings.Index(s[from:], t.lead)
		if at < 0 {
			return -1
		}
		from += at
		var h header
		if t.parse(s[from:], &h) {
			return from
		}
	}
	return -1
}

func (t *template) has(field string) bool {
	for _, tok := range t.tokens {
		if tok.field == field {
			return true
		}
	}
	return false
}

func (g *grammar) beginsRecord(s string) bool {
	var h header
	if pos, known := g.skipPrefixes(s, &h); known && pos > 0 {
		return true
	}
	for i := range g.headers {
		if g.headers[i].shape.parseWith(s, g.levels, &h) {
			return true
		}
	}
	return false
}

// cutSuffix cuts what a log's collector has appended to a message.
func (g *grammar) cutSuffix(s string) string {
	for _, t := range g.suffixes {
		if t.must.index(s) < 0 {
			continue
		}
		var h header
		if at := strings.Index(s, t.lead); at >= 0 && t.parse(s[at:], &h) {
			return s[:at]
		}
	}
	return s
}
