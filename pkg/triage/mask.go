package triage

import (
	"slices"
	"strings"
	"unicode/utf8"
)

// secretMask stands in place of a secret.
const secretMask = "***"

// MaskSecrets returns text with *** in place of each secret: tokens and keys that
// are known by their form (Hugging Face, OpenAI, AWS, GitHub, GitLab, Slack,
// Google, NVIDIA, JWT, private keys), credentials in URLs, and whatever stands
// where a name says that it is secret: --api-key X, api_key=X, 'api_key': ['X'],
// HF_TOKEN=X, Authorization: Basic X. The name and what is around stay. Where the
// end of a secret is in doubt, more is masked rather than less.
//
// A text without a secret is returned as it is, without an allocation. Masking
// twice is masking once, and valid UTF-8 stays valid. Mask a text before it is
// cut (see Clip): half a secret may not be known as one.
func MaskSecrets(text string) string {
	if isKeyBody(text) {
		return secretMask
	}
	// A mask can show what was hidden by its neighbour. Each pass that changes
	// something leaves less that is not a mask, so this ends.
	for mayHoldSecret(text) {
		scan := secretScan{text: text}
		masked := scan.run()
		if masked == text {
			break
		}
		text = masked
	}
	return text
}

// Clip masks the secrets of text, then cuts it to at most limit bytes, at a rune
// border. A limit of 0 or less leaves nothing.
func Clip(text string, limit int) string {
	if limit <= 0 {
		return ""
	}
	text = MaskSecrets(text)
	if len(text) <= limit {
		// What is kept must not hold a line of 64 KiB in memory.
		return strings.Clone(text)
	}
	end := limit
	for end > 0 && limit-end < utf8.UTFMax && !utf8.RuneStart(text[end]) {
		end--
	}
	if limit-end == utf8.UTFMax { // not UTF-8: any border will do
		end = limit
	}
	return strings.Clone(text[:end])
}

// secretScan is one pass over a text. Each name and token is looked at, also within
// what another one hides: a quote that was open before it must not shield it.
type secretScan struct {
	text  string
	spans []secretSpan
}

// secretSpan is what to hide.
type secretSpan struct{ from, to int }

func (s *secretScan) run() string {
	for at := range len(s.text) {
		s.look(at)
	}
	if len(s.spans) == 0 {
		return s.text
	}
	slices.SortFunc(s.spans, func(a, b secretSpan) int { return a.from - b.from })
	var out strings.Builder
	done := 0
	for i := 0; i < len(s.spans); {
		span := s.spans[i]
		for i++; i < len(s.spans) && s.spans[i].from <= span.to; i++ {
			span.to = max(span.to, s.spans[i].to)
		}
		out.WriteString(s.text[done:span.from])
		out.WriteString(secretMask)
		done = span.to
	}
	out.WriteString(s.text[done:])
	return out.String()
}

// look finds the secret that begins, or whose name begins, at.
func (s *secretScan) look(at int) {
	switch c := s.text[at]; {
	case c == ':' && strings.HasPrefix(s.text[at:], "://"):
		s.userInfo(at + len("://"))
	case c == '-' && strings.HasPrefix(s.text[at:], keyBegin):
		s.privateKey(at)
	case isSecretWord(c):
		if end := secretToken(s.text, at); end > at {
			s.hide(at, end)
		}
		if at == 0 || !isSecretWord(s.text[at-1]) {
			s.named(at)
		}
	}
}

// hide notes text[from:to] as a secret. What is a mask already stays as it is.
func (s *secretScan) hide(from, to int) {
	if strings.Trim(s.text[from:to], "*") != "" {
		s.spans = append(s.spans, secretSpan{from, to})
	}
}

// userInfo hides the credentials of the URL whose authority begins at from: the
// password, or all of it when there is but one part.
func (s *secretScan) userInfo(from int) {
	rest := s.text[from:]
	end := strings.IndexAny(rest, " \t\r\n\"'`<>/?#")
	if end < 0 {
		end = len(rest)
	}
	at := strings.LastIndexByte(rest[:end], '@')
	if at < 0 {
		at = end + lateAt(rest[:end], rest[end:])
	}
	if at <= 0 || at >= len(rest) || rest[at] != '@' {
		return
	}
	switch colon := strings.IndexByte(rest[:at], ':'); {
	case colon < 0:
		s.hide(from, from+at)
	case colon+1 == at: // user:@host
		s.hide(from, from+colon)
	default:
		s.hide(from+colon+1, from+at)
	}
}

// lateAt finds the '@' of a password that holds a '/', '?' or '#', which it should
// not: head looks like user:word, where only a port could follow a host's colon.
// It returns the distance to the '@' in tail, or len(tail) when there is none.
func lateAt(head, tail string) int {
	_, port, found := strings.Cut(head, ":")
	if !found || port != "" && strings.Trim(port, "0123456789") == "" || strings.HasPrefix(head, "[") {
		return len(tail)
	}
	tail = tail[:min(len(tail), secretLook)]
	end := strings.IndexAny(tail, " \t\r\n\"'`<>@")
	if end < 0 || tail[end] != '@' {
		return len(tail)
	}
	return end
}

const (
	keyBegin = "-----BEGIN "
	keyEnd   = "-----END "
)

// privateKey hides what a private key block holds, its head and foot stay; a
// block without a foot is hidden to the end.
func (s *secretScan) privateKey(at int) {
	head := s.text[at+len(keyBegin):]
	head = head[:min(len(head), 64)]
	name, _, found := strings.Cut(head, "-----")
	if !found || !strings.HasSuffix(name, "PRIVATE KEY") && !strings.HasSuffix(name, "PRIVATE KEY BLOCK") {
		return
	}
	from := at + len(keyBegin) + len(name) + len("-----")
	to := len(s.text)
	if end := strings.Index(s.text[from:], keyEnd); end >= 0 {
		to = from + end
	}
	for from < to && strings.IndexByte(" \t\r\n", s.text[from]) >= 0 {
		from++
	}
	for from < to && strings.IndexByte(" \t\r\n", s.text[to-1]) >= 0 {
		to--
	}
	s.hide(from, to)
}

// isKeyBody reports whether a line is nothing but one full line of a key's base64:
// a log that has a private key has it line by line.
func isKeyBody(text string) bool {
	if len(text) < 60 || len(text) > 78 {
		return false
	}
	text = strings.TrimSpace(text)
	if len(text) < 60 {
		return false
	}
	var mix secretMix
	for i := range len(text) {
		if c := text[i]; !isSecretAlnum(c) && c != '+' && c != '/' && c != '=' {
			return false
		}
		mix.add(text[i])
	}
	return mix.all()
}

// secretMix tells which kinds of letters a text has: random text has them all.
type secretMix struct{ upper, lower, digit bool }

func (m *secretMix) add(c byte) {
	switch {
	case c >= 'A' && c <= 'Z':
		m.upper = true
	case c >= 'a' && c <= 'z':
		m.lower = true
	case c >= '0' && c <= '9':
		m.digit = true
	}
}

func (m *secretMix) all() bool { return m.upper && m.lower && m.digit }

func isSecretAlnum(c byte) bool {
	return c >= '0' && c <= '9' || c|0x20 >= 'a' && c|0x20 <= 'z'
}

// isSecretWord is the alphabet of names and of most tokens.
func isSecretWord(c byte) bool { return isSecretAlnum(c) || c == '_' || c == '-' || c == '.' }
