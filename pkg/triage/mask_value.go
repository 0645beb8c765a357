package triage

import "strings"

// secretContext is what is known of a value from what stands before it.
type secretContext struct {
	kind secretKind
	name string
	// prose says that the name stands bare before a colon, as it does in a sentence.
	prose bool
	// flag says that only a blank stands between.
	flag bool
}

// value hides the value that begins at.
func (s *secretScan) value(at int, ctx secretContext) {
	if at >= len(s.text) {
		return
	}
	if strings.IndexByte("bBrRfFuU", s.text[at]) >= 0 && at+1 < len(s.text) && strings.IndexByte("'\"", s.text[at+1]) >= 0 {
		at++ // b'...'
	}
	open := s.text[at]
	switch {
	case skipQuote(s.text, at) > at:
		s.quoted(at, ctx)
	case ctx.kind == secretValue && (open == '[' || open == '(' || open == '{'):
		s.list(at, ctx)
	case ctx.kind == authValue:
		s.authorization(at, s.text[at:])
	default:
		s.bare(at, ctx)
	}
}

// bare hides an unquoted value, and the further values of a flag that takes more.
func (s *secretScan) bare(at int, ctx secretContext) {
	if call := bodyEnd(s.text, at, isKeyByte); ctx.kind == secretValue && call > at && call < len(s.text) && s.text[call] == '(' {
		s.list(call, ctx) // SecretStr('X')
		return
	}
	end := bareEnd(s.text, at)
	if s.keeps(s.text[at:end], ctx) {
		return
	}
	s.hide(at, end)
	for ctx.flag && ctx.kind == secretValue && end < len(s.text) && s.text[end] == ' ' {
		from := end + 1
		if end = bareEnd(s.text, from); from == end || s.text[from] == '-' || !looksRandom(s.text[from:end]) {
			return
		}
		s.hide(from, end)
	}
}

// bareEnd returns the end of an unquoted value: the next blank, or a quote that
// closes what is around it; brackets and marks at the end are not the value's.
func bareEnd(text string, at int) int {
	end := at
	for end < len(text) && !isBlankByte(text[end]) {
		if end-at > secretReach {
			return len(text)
		}
		if c := text[end]; (c == '"' || c == '\'' || c == '`') &&
			(end+1 == len(text) || strings.IndexByte(" \t\r\n,;:)]}", text[end+1]) >= 0) {
			break
		}
		end++
	}
	for end > at && strings.IndexByte(",;)]}\"'`\\>", text[end-1]) >= 0 {
		end--
	}
	return end
}

// quoted hides what is in the quotes that open at; without a closing one, all that
// follows. It returns the end.
func (s *secretScan) quoted(at int, ctx secretContext) int {
	from := skipQuote(s.text, at)
	to, end := closingQuote(s.text, at, from)
	text := s.text[from:to]
	switch {
	case ctx.kind == authValue:
		s.authorization(from, text)
	case !s.keeps(text, ctx):
		s.hide(from, to)
	}
	return end
}

// closingQuote finds the quote like the one that text[open:from] is, with as many
// backslashes: to is where it begins and end where it ends.
func closingQuote(text string, open, from int) (to, end int) {
	slashes, quote := from-open-1, text[from-1]
	for i, run := from, 0; i < min(len(text), from+secretReach); i++ {
		switch {
		case text[i] == '\\':
			run++
			continue
		case text[i] != quote || !endsWord(text, i+1): // 'it's'
		case run == slashes || slashes == 0 && run%2 == 0:
			return i - slashes, i + 1
		case run < slashes: // what is around it ends here
			return i - run, i
		}
		run = 0
	}
	return len(text), len(text)
}

// list hides each value in the brackets that open at; the rest of the text when
// they are not closed.
func (s *secretScan) list(at int, ctx secretContext) {
	depth, begin := 0, at
	for at < len(s.text) {
		switch c := s.text[at]; {
		case at-begin > secretReach:
			s.hide(at, len(s.text))
			return
		case c == '[' || c == '(' || c == '{':
			depth++
			at++
		case c == ']' || c == ')' || c == '}':
			if depth--; depth == 0 {
				return
			}
			at++
		case skipQuote(s.text, at) > at:
			at = s.quoted(at, ctx)
		case strings.IndexByte(" \t\r\n,:\\", c) >= 0:
			at++
		default:
			end := at + bodyEnd(s.text[at:], 0, isItemByte)
			if !s.keeps(s.text[at:end], ctx) {
				s.hide(at, end)
			}
			at = end
		}
	}
}

func isItemByte(c byte) bool { return strings.IndexByte(" \t\r\n,:[](){}\"'`\\", c) < 0 }

// authorization hides the credentials of a header's value, which begins at; the
// scheme stays. Schemes of several parts are hidden to the end.
func (s *secretScan) authorization(at int, text string) {
	if line := strings.IndexAny(text[:min(len(text), secretReach)], "\r\n"); line >= 0 {
		text = text[:line]
	}
	scheme := bodyEnd(text, 0, isKeyByte)
	from := skipBlank(text, scheme)
	if from == scheme || from == len(text) {
		scheme, from = 0, 0
	}
	end := bareEnd(text, from)
	switch name := text[:scheme]; {
	case equalFold(name, "digest") || strings.HasPrefix(name, "AWS"):
		for end = len(text); end > from && strings.IndexByte(" \"'`)]}", text[end-1]) >= 0; {
			end--
		}
	case scheme > 0 && !isAuthScheme(name):
		from, end = 0, bareEnd(text, 0)
	}
	if !isNoValue(text[from:end]) {
		s.hide(at+from, at+end)
	}
}

func isAuthScheme(name string) bool {
	for _, scheme := range [...]string{"basic", "bearer", "token", "negotiate", "ntlm", "apikey", "key"} {
		if equalFold(name, scheme) {
			return true
		}
	}
	return false
}

// keeps reports whether a value is no secret.
func (s *secretScan) keeps(value string, ctx secretContext) bool {
	value = value[:min(len(value), secretLook)]
	if cut := strings.IndexAny(value, ",;)]}"); cut > 0 && isNoValue(value[:cut]) { // api_key=None,port=8000
		return true
	}
	if isNoValue(value) || equalFold(value, ctx.name) {
		return true
	}
	switch ctx.kind {
	case bearerValue:
		return len(value) < 3 || isProse(value)
	case signatureValue:
		return len(value) < 16 || !looksRandom(value)
	case tokenValue:
		return keepsToken(value, ctx)
	}
	return ctx.flag && isProse(value)
}

// keepsToken tells the tokens that a model reads, and their counts, from
// credentials.
func keepsToken(value string, ctx secretContext) bool {
	if value == "" || strings.IndexByte("<[({|", value[0]) >= 0 || strings.Trim(value, "0123456789.,") == "" {
		return true
	}
	bare := len(ctx.name) == len("token")
	if ctx.flag || !bare {
		return ctx.flag && isProse(value)
	}
	if len(value) < 8 || strings.ContainsAny(value, "<>| ") {
		return true
	}
	return ctx.prose && len(value) < 20 && !looksRandom(value)
}

// looksRandom reports whether a word is none of a language.
func looksRandom(value string) bool {
	var mix secretMix
	for i := range len(value) {
		mix.add(value[i])
	}
	return len(value) >= 20 || mix.digit && (mix.lower || mix.upper)
}

// isNoValue knows what is printed where there is no secret.
func isNoValue(value string) bool {
	if strings.Trim(value, "*") == "" || strings.HasPrefix(value, "Optional[") {
		return true
	}
	for _, word := range [...]string{"none", "null", "nil", "true", "false", "str", "bool", "unset", "redacted"} {
		if equalFold(value, word) {
			return true
		}
	}
	return false
}

// isProse knows the words that follow a flag, or Bearer, in a sentence.
func isProse(value string) bool {
	value = strings.TrimRight(value, ".,:;!?")
	for _, word := range [...]string{"", "or", "and", "is", "to", "was", "not", "must", "with", "in", "for", "if", "as", "flag", "option",
		"argument", "of", "token", "tokens", "auth", "authentication", "authorization", "scheme", "header", "credentials",
		"missing", "required", "invalid", "error", "realm", "format", "value", "has", "were", "are", "when", "from", "does"} {
		if equalFold(value, word) {
			return true
		}
	}
	return false
}
