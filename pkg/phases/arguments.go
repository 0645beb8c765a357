package phases

import (
	"strings"

	"github.com/startupd/startupd/pkg/triage"
)

const (
	// maxArguments bounds the arguments that are kept, maxArgument each one's text.
	maxArguments = 100
	maxArgument  = 200
)

// parseArguments reads arguments as Python prints them, a dict
//
//	{'model': 'acme/tiny-1b', 'port': 8001}
//
// or a Namespace(model='acme/tiny-1b', port=8001). Values keep their form, but
// for the quotes of plain strings. nil when the text is neither, or holds none.
func parseArguments(text string) map[string]string {
	text = triage.MaskSecrets(text)
	body, dict := strings.CutPrefix(text, "{")
	separator := ":"
	if !dict {
		var ok bool
		if body, ok = strings.CutPrefix(text, "Namespace("); !ok {
			return nil
		}
		separator = "="
	}
	var out map[string]string
	for body != "" && len(out) < maxArguments {
		var item string
		item, body = nextArgument(body)
		key, value, ok := strings.Cut(item, separator)
		key = strings.Trim(strings.TrimSpace(key), "'\"")
		if !ok || key == "" || strings.ContainsAny(key, " {}()[]") {
			continue
		}
		if out == nil {
			out = map[string]string{}
		}
		out[triage.Clip(key, maxArgument)] = triage.Clip(unquote(strings.TrimSpace(value)), maxArgument)
	}
	return out
}

// nextArgument cuts a text at its first comma that stands in no bracket or
// string, or at the bracket that closes it all.
func nextArgument(s string) (item, rest string) {
	depth, quote := 0, byte(0)
	for i := 0; i < len(s); i++ {
		c := s[i]
		switch {
		case quote != 0:
			switch c {
			case '\\':
				i++
			case quote:
				quote = 0
			}
		case c == '\'' || c == '"':
			quote = c
		case c == '(' || c == '[' || c == '{':
			depth++
		case c == ')' || c == ']' || c == '}':
			if depth--; depth < 0 {
				return s[:i], ""
			}
		case c == ',' && depth == 0:
			return s[:i], s[i+1:]
		}
	}
	return s, ""
}

func unquote(s string) string {
	if len(s) >= 2 && (s[0] == '\'' || s[0] == '"') && s[len(s)-1] == s[0] {
		return s[1 : len(s)-1]
	}
	return s
}
