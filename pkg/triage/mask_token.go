package triage

import (
	"strings"
	"sync"
)

// secretLook is how far a decision looks ahead, in bytes: it keeps the work on a
// hostile line in proportion to its length.
const secretLook = 256

// secretReach is how far the end of a value is looked for, in bytes. A value that
// goes on is hidden to the end of the text.
const secretReach = 1 << 10

// secretForm is a kind of token that is known by how it begins.
type secretForm struct {
	prefix string
	// body is the alphabet behind the prefix.
	body func(byte) bool
	// long is how many bytes of body are a secret whatever they are; fewer, from 8
	// on (a token that the log cut), are one when they look random.
	long int
	// alone says that the prefix also ends common words (task-), so that a token
	// glued to a word has to look random.
	alone bool
}

var secretForms = [...]secretForm{
	{prefix: "hf_", body: isSecretAlnum, long: 20},
	{prefix: "api_org_", body: isSecretAlnum, long: 20},
	{prefix: "sk-", body: isKeyByte, long: 1 << 30, alone: true},
	{prefix: "gsk_", body: isSecretAlnum, long: 24, alone: true},
	{prefix: "AKIA", body: isUpperAlnum, long: 16},
	{prefix: "ASIA", body: isUpperAlnum, long: 16},
	{prefix: "ghp_", body: isSecretAlnum, long: 20},
	{prefix: "gho_", body: isSecretAlnum, long: 20},
	{prefix: "ghu_", body: isSecretAlnum, long: 20},
	{prefix: "ghs_", body: isSecretAlnum, long: 20},
	{prefix: "ghr_", body: isSecretAlnum, long: 20},
	{prefix: "github_pat_", body: isKeyByte, long: 20},
	{prefix: "glpat-", body: isSecretWord, long: 20},
	{prefix: "gldt-", body: isSecretWord, long: 20},
	{prefix: "glrt-", body: isSecretWord, long: 20},
	{prefix: "xoxb-", body: isKeyByte, long: 20},
	{prefix: "xoxp-", body: isKeyByte, long: 20},
	{prefix: "xoxa-", body: isKeyByte, long: 20},
	{prefix: "xoxe-", body: isKeyByte, long: 20},
	{prefix: "xoxe.", body: isSecretWord, long: 20},
	{prefix: "xoxr-", body: isKeyByte, long: 20},
	{prefix: "xoxs-", body: isKeyByte, long: 20},
	{prefix: "xapp-", body: isKeyByte, long: 20, alone: true},
	{prefix: "AIza", body: isKeyByte, long: 30},
	{prefix: "nvapi-", body: isKeyByte, long: 20},
}

func isKeyByte(c byte) bool { return isSecretAlnum(c) || c == '_' || c == '-' }

func isUpperAlnum(c byte) bool { return c >= '0' && c <= '9' || c >= 'A' && c <= 'Z' }

// secretToken returns the end of the token that begins at, 0 when there is none.
func secretToken(text string, at int) int {
	switch {
	case at+3 >= len(text):
		return 0
	case text[at] == 'e' && text[at+1] == 'y':
		return webToken(text, at)
	case !gateOfSecrets().forms[pairSlot(text[at], text[at+1])]:
		return 0
	}
	for i := range secretForms {
		form := &secretForms[i]
		if strings.HasPrefix(text[at:], form.prefix) && form.matches(text, at) {
			return bodyEnd(text, at+len(form.prefix), form.body)
		}
	}
	return 0
}

func (f *secretForm) matches(text string, at int) bool {
	from := at + len(f.prefix)
	window := text[from:min(len(text), from+secretLook)]
	body := window[:bodyEnd(window, 0, f.body)]
	if f.alone && !atBorder(text, at) {
		return randomRun(body, 16, true)
	}
	return len(body) >= f.long || len(body) >= 16 && randomRun(body, 10, false) || randomRun(body, 8, true)
}

// randomRun reports whether text has a run of least letters and digits that looks
// random: letters and digits, with all one kind of each.
func randomRun(text string, least int, all bool) bool {
	for len(text) > 0 {
		end := bodyEnd(text, 0, isSecretAlnum)
		var mix secretMix
		for i := range end {
			mix.add(text[i])
		}
		if end >= least && mix.digit && (mix.all() || !all) {
			return true
		}
		text = text[min(end+1, len(text)):]
	}
	return false
}

// webToken returns the end of the JSON web token, or other base64 of a JSON
// object, that begins at; 0 when there is none.
func webToken(text string, at int) int {
	if !strings.HasPrefix(text[at:], "eyJ") {
		return 0
	}
	window := text[at:min(len(text), at+4*secretLook)]
	run := window[:bodyEnd(window, 0, isSecretWord)]
	head, rest, dotted := strings.Cut(run, ".")
	switch {
	case dotted && strings.HasPrefix(rest, "eyJ"):
	case atBorder(text, at) && len(head) >= 16 && randomRun(head, 8, false):
	case len(head) >= 24 && randomRun(head, 20, true):
	default:
		return 0
	}
	return bodyEnd(text, at, isWebByte)
}

func isWebByte(c byte) bool { return isSecretWord(c) || c == '=' || c == '+' || c == '/' }

// bodyEnd returns the end of the run of bytes in alphabet that begins at from.
func bodyEnd(text string, from int, alphabet func(byte) bool) int {
	for from < len(text) && alphabet(text[from]) {
		from++
	}
	return from
}

// atBorder reports whether a word can begin at: after something that is no letter
// or digit, or after an escape: \n, %3D, a colour.
func atBorder(text string, at int) bool {
	if at == 0 || !isSecretAlnum(text[at-1]) {
		return true
	}
	before := text[max(0, at-12):at]
	if escape := strings.LastIndexAny(before, "\\%\x1b"); escape >= 0 {
		switch tail := before[escape+1:]; before[escape] {
		case '\\':
			return len(tail) == 1 || len(tail) == 5 && tail[0] == 'u'
		case '%':
			return len(tail) == 2
		default:
			return tail[0] == '[' && strings.Trim(tail[1:], "0123456789;m") == ""
		}
	}
	return false
}

// secretLiteral is a text that every secret of some kind comes with, in lower
// case; at is where in it the three bytes are that the gate looks for.
type secretLiteral struct {
	text string
	at   int
}

var secretLiterals = [...]secretLiteral{
	{"hf_", 0}, {"api_org_", 5}, {"sk-", 0}, {"gsk_", 1}, {"akia", 1}, {"asia", 1},
	{"ghp_", 0}, {"gho_", 0}, {"ghu_", 0}, {"ghs_", 0}, {"ghr_", 0}, {"github_pat_", 5},
	{"glpat-", 1}, {"gldt-", 1}, {"glrt-", 1}, {"xox", 0}, {"xapp-", 0}, {"aiza", 1}, {"nvapi-", 1}, {"eyj", 0},
	{"key", 0}, {"token", 1}, {"secret", 2}, {"passw", 2}, {"passphrase", 2}, {"pass", 1}, {"pwd", 0},
	{"bearer", 0}, {"authorization", 6}, {"signature", 2}, {"sig=", 1}, {"sig%3d", 1},
}

// pairSlot and tripleSlot map bytes to a slot of the gate's tables. Triples share
// slots, and both cases of a letter have the same.
func pairSlot(a, b byte) uint16 { return uint16(a) | uint16(b)<<8 }

func tripleSlot(a, b, c byte) uint { return uint(a&0x1f)<<10 | uint(b&0x1f)<<5 | uint(c&0x1f) }

// secretGate marks the three bytes of each literal, and both pairs in them; and
// the pairs that a form's prefix begins with.
type secretGate struct {
	pairs   [1 << 16]uint8
	triples [1 << 15]bool
	forms   [1 << 16]bool
}

// gateOfSecrets builds the gate when first needed.
var gateOfSecrets = sync.OnceValue(func() *secretGate {
	gate := &secretGate{}
	for _, l := range secretLiterals {
		a, b, c := l.text[l.at], l.text[l.at+1], l.text[l.at+2]
		gate.markPair(a, b)
		gate.markPair(b, c)
		gate.triples[tripleSlot(a, b, c)] = true
	}
	for _, f := range secretForms {
		gate.forms[pairSlot(f.prefix[0], f.prefix[1])] = true
	}
	return gate
})

// markPair marks two lower-case bytes, in every case.
func (g *secretGate) markPair(a, b byte) {
	for _, first := range [...]byte{a, upperByte(a)} {
		g.pairs[pairSlot(first, b)], g.pairs[pairSlot(first, upperByte(b))] = 1, 1
	}
}

func upperByte(c byte) byte {
	if c >= 'a' && c <= 'z' {
		return c &^ 0x20
	}
	return c
}

// mayHoldSecret is the cheap check of the hot path: false when text has none of
// the literals. Three bytes in a row have a pair at an even place, so that it
// looks at each second pair only, at four at once.
func mayHoldSecret(text string) bool {
	gate := gateOfSecrets()
	at := 0
	for ; at+8 <= len(text); at += 8 {
		t := text[at : at+8]
		if gate.pairs[pairSlot(t[0], t[1])]|gate.pairs[pairSlot(t[2], t[3])]|
			gate.pairs[pairSlot(t[4], t[5])]|gate.pairs[pairSlot(t[6], t[7])] != 0 && gate.literals(text, at, at+8) {
			return true
		}
	}
	if gate.literals(text, at, len(text)) {
		return true
	}
	at = strings.IndexByte(text, '@')
	return at >= 0 && strings.Contains(text, "://")
}

// literals reports whether a literal is at one of the pairs from from to to.
func (g *secretGate) literals(text string, from, to int) bool {
	for i := from; i+1 < to; i += 2 {
		if g.pairs[pairSlot(text[i], text[i+1])] != 0 && g.literal(text, i) {
			return true
		}
	}
	return false
}

// literal reports whether a literal is there whose three bytes have the pair.
func (g *secretGate) literal(text string, pair int) bool {
	if pair > 0 && g.triples[tripleSlot(text[pair-1], text[pair], text[pair+1])] && literalAt(text, pair-1) {
		return true
	}
	return pair+2 < len(text) && g.triples[tripleSlot(text[pair], text[pair+1], text[pair+2])] && literalAt(text, pair)
}

// literalAt reports whether a literal is there whose three bytes begin at triple.
func literalAt(text string, triple int) bool {
	for i := range secretLiterals {
		l := &secretLiterals[i]
		from := triple - l.at
		if from >= 0 && from+len(l.text) <= len(text) && equalLower(text[from:from+len(l.text)], l.text) {
			return true
		}
	}
	return false
}

// equalLower reports whether text is lower but for the case of ASCII letters.
func equalLower(text, lower string) bool {
	for i := range len(lower) {
		c := text[i]
		if c >= 'A' && c <= 'Z' {
			c |= 0x20
		}
		if c != lower[i] {
			return false
		}
	}
	return true
}
