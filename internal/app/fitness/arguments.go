package fitness

import (
	"errors"
	"fmt"
	"slices"
	"strings"
)

// Arguments returns the words of ARGS= in a file that systemd reads by
// EnvironmentFile=, split as systemd splits $ARGS: at blanks, where quotes hold
// together. It never returns nil; without ARGS= there are no words.
func Arguments(file string) ([]string, error) {
	value := ""
	file = strings.ReplaceAll(file, "\\\n", "")
	for line := range strings.Lines(file) {
		line = strings.TrimSpace(line)
		if rest, ok := strings.CutPrefix(line, "ARGS="); ok {
			value = rest // the last one counts
		}
	}
	// The quotes around the value are the file's, those within are for $ARGS.
	outer, err := words(value)
	if err != nil {
		return nil, fmt.Errorf("ARGS=: %w", err)
	}
	args, err := words(strings.Join(outer, " "))
	if err != nil {
		return nil, fmt.Errorf("ARGS=: %w", err)
	}
	return append([]string{}, args...), nil
}

var errQuote = errors.New("a quote is not closed")

// words splits text at blanks. Within quotes blanks are kept, and a backslash
// takes the next character as it is, but not within single quotes.
func words(text string) ([]string, error) {
	var out []string
	var word strings.Builder
	inWord := false
	var quote rune
	runes := []rune(text)
	for i := 0; i < len(runes); i++ {
		r := runes[i]
		switch {
		case r == '\\' && quote != '\'' && i+1 < len(runes):
			i++
			word.WriteRune(runes[i])
			inWord = true
		case quote != 0 && r == quote:
			quote = 0
		case quote == 0 && (r == '"' || r == '\''):
			quote, inWord = r, true
		case quote == 0 && (r == ' ' || r == '\t' || r == '\n'):
			if inWord {
				out = append(out, word.String())
				word.Reset()
			}
			inWord = false
		default:
			word.WriteRune(r)
			inWord = true
		}
	}
	if quote != 0 {
		return nil, errQuote
	}
	if inWord {
		out = append(out, word.String())
	}
	return out, nil
}

// BadConfig says that a check of flags, configuration, profiles or TLS failed:
// startupd would refuse to start.
func (r *Report) BadConfig() bool {
	return slices.ContainsFunc(r.Checks, func(c Result) bool {
		return c.Status == Fail && (c.Check == "config" || c.Check == "profiles" || c.Check == "web_config")
	})
}
