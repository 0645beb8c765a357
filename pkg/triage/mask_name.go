package triage

import "strings"

// secretKind is what a name says about the value beside it.
type secretKind int

const (
	notSecret secretKind = iota
	// secretValue is a secret whatever it looks like.
	secretValue
	// tokenValue is a credential, or one of the tokens that a model reads: told
	// apart by its looks.
	tokenValue
	// signatureValue is a secret when it looks random.
	signatureValue
	// authValue is the value of an Authorization header: the scheme stays.
	authValue
	// bearerValue is the word behind Bearer.
	bearerValue
)

// named hides the value of the name that begins at, if it is a secret's.
func (s *secretScan) named(at int) {
	end := bodyEnd(s.text, at, isSecretWord)
	first := at
	for first < end && !isSecretAlnum(s.text[first]) && s.text[first] != '_' {
		first++
	}
	name := s.text[max(first, end-secretLook):end]
	flag := first > at && s.text[first-1] == '-'
	if s.inQuery(at) && isQuerySecret(name) && end < len(s.text) && s.text[end] == '=' {
		s.hide(end+1, end+1+queryEnd(s.text[end+1:]))
		return
	}
	if !mayHoldSecret(name) {
		return
	}
	kind := s.kind(name, first)
	if kind == notSecret {
		return
	}
	value, assign := s.separator(end, flag, kind)
	if value < 0 || assign == ':' && first > 0 && s.text[first-1] == '/' { // /etc/passwd: No such file
		return
	}
	s.value(value, secretContext{kind: kind, name: name, prose: assign == ':' && s.text[end] == ':', flag: assign == ' '})
}

// inQuery reports whether a query parameter's name begins at.
func (s *secretScan) inQuery(at int) bool {
	before := s.text[max(0, at-5):at]
	return strings.HasSuffix(before, "?") || strings.HasSuffix(before, "&") || before == "&amp;"
}

func queryEnd(text string) int {
	if end := strings.IndexAny(text[:min(len(text), secretReach)], "&# \t\r\n\"'`<>"); end >= 0 {
		return end
	}
	return len(text)
}

func isQuerySecret(name string) bool {
	for _, word := range [...]string{"key", "sig", "pass", "pwd"} {
		if equalFold(name, word) {
			return true
		}
	}
	return hasSuffixName(name, "token") || hasSuffixName(name, "signature") || hasSuffixName(name, "credential") || isStrongName(name)
}

// kind says what the name that begins at tells about its value.
func (s *secretScan) kind(name string, at int) secretKind {
	switch {
	case equalFold(name, "bearer"):
		return bearerValue
	case hasSuffixName(name, "authorization"):
		return authValue
	case isStrongName(name) || isSpacedKey(s.text, at, name):
		return secretValue
	case hasSuffixName(name, "signature") || equalFold(name, "sig"):
		return signatureValue
	case hasSuffixName(name, "token"):
		return tokenKind(name[:len(name)-len("token")])
	}
	return notSecret
}

// isSpacedKey knows "API key: X" and "secret access key = X".
func isSpacedKey(text string, at int, name string) bool {
	if !equalFold(name, "key") || at == 0 || text[at-1] != ' ' {
		return false
	}
	before := text[max(0, at-16) : at-1]
	return hasSuffixName(before, "api") || hasSuffixName(before, "access") ||
		hasSuffixName(before, "secret") || hasSuffixName(before, "private")
}

// isStrongName knows the names whose value is always a secret. Files that hold one
// are none.
func isStrongName(name string) bool {
	for _, end := range [...]string{"file", "path", "dir", "url", ".py", ".txt", ".so", ".log"} {
		if hasSuffixName(name, end) {
			return false
		}
	}
	for _, word := range [...]string{"api_key", "apikey", "secret", "password", "passwd", "passphrase", "access_key",
		"accesskey", "private_key", "privatekey", "account_key", "accountkey", "signing_key", "encryption_key", "auth_key"} {
		if containsName(name, word) {
			return true
		}
	}
	return hasSuffixName(name, "_pwd") || strings.HasSuffix(name, "_PASS") || name == "PASS"
}

// tokenKind judges a name by what stands before its "token".
func tokenKind(owner string) secretKind {
	owner = strings.TrimRight(owner, "_-.")
	if owner == "" {
		return tokenValue
	}
	for _, word := range [...]string{"eos", "bos", "pad", "unk", "mask", "sep", "cls", "image", "video", "audio", "stop",
		"start", "end", "max", "min", "num", "per", "next", "special", "think", "prefix", "suffix", "first", "last"} {
		if hasSuffixName(owner, word) {
			return notSecret
		}
	}
	if !strings.ContainsAny(owner, "abcdefghijklmnopqrstuvwxyz") { // an environment variable
		return tokenValue
	}
	for _, word := range [...]string{"hf", "hub", "face", "auth", "access", "api", "refresh", "bearer", "session", "security",
		"github", "gh", "gitlab", "slack", "bot", "private", "personal", "oauth", "wandb", "service", "deploy", "login",
		"vault", "registry", "modelscope", "jwt", "app", "client", "admin", "webhook", "user", "git", "ngc", "account", "id"} {
		if hasSuffixName(owner, word) {
			return tokenValue
		}
	}
	return notSecret
}

// separator finds where the value begins whose name ends at, and what stands
// between: '=' or ':', ' ' for a flag's value or the word behind Bearer. It
// returns -1 when there is no value.
func (s *secretScan) separator(at int, flag bool, kind secretKind) (value int, assign byte) {
	text := s.text
	at = skipQuote(text, at)
	closed := at
	if at < len(text) && text[at] == ']' { // environ['HF_TOKEN'] = X
		at++
	}
	at = skipBlank(text, at)
	rest := text[at:]
	switch {
	case strings.HasPrefix(rest, "==") || strings.HasPrefix(rest, "::") || strings.HasPrefix(rest, "://"):
		return -1, 0
	case strings.HasPrefix(rest, "=>"), strings.HasPrefix(rest, ":="):
		return skipBlank(text, at+2), '='
	case strings.HasPrefix(rest, "="), strings.HasPrefix(rest, ":"):
		return skipBlank(text, at+1), rest[0]
	case len(rest) >= 3 && equalLower(rest[:3], "%3d"):
		return at + 3, '='
	case kind == bearerValue && at > closed, flag && at > closed && !strings.HasPrefix(rest, "-"):
		return at, ' '
	case flag && strings.HasPrefix(rest, ","): // ['--api-key', 'X']
		if at = skipBlank(text, at+1); skipQuote(text, at) > at && !strings.HasPrefix(text[skipQuote(text, at):], "-") {
			return at, ' '
		}
	}
	return -1, 0
}

func skipBlank(text string, at int) int {
	for at < len(text) && (text[at] == ' ' || text[at] == '\t') {
		at++
	}
	return at
}

// skipQuote returns what is behind a quote, with its backslashes, or at.
func skipQuote(text string, at int) int {
	to := at
	for to < len(text) && text[to] == '\\' {
		to++
	}
	if to < len(text) && (text[to] == '"' || text[to] == '\'' || text[to] == '`') {
		return to + 1
	}
	return at
}

// nameByte makes one of the spellings of a name: api-key, API_KEY, api.key.
func nameByte(c byte) byte {
	switch {
	case c >= 'A' && c <= 'Z':
		return c | 0x20
	case c == '-' || c == '.' || c == ' ':
		return '_'
	}
	return c
}

func equalFold(name, word string) bool {
	return len(name) == len(word) && hasSuffixName(name, word)
}

// hasSuffixName reports whether name ends with word, a lower-case one.
func hasSuffixName(name, word string) bool {
	if len(name) < len(word) {
		return false
	}
	for i, from := 0, len(name)-len(word); i < len(word); i++ {
		if nameByte(name[from+i]) != nameByte(word[i]) {
			return false
		}
	}
	return true
}

// containsName reports whether word is in name.
func containsName(name, word string) bool {
	for end := len(word); end <= len(name); end++ {
		if hasSuffixName(name[:end], word) {
			return true
		}
	}
	return false
}
