package explain

import (
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"

	"golang.org/x/text/width"
)

// Visible makes text of unknown origin fit for one line of a terminal. What can
// move the cursor, change colours, reorder or hide text (control characters,
// bidirectional and invisible marks, broken UTF-8) is written out as an escape;
// every kind of space becomes a space.
func Visible(text string) string {
	if isVisible(text) {
		return text
	}
	var b strings.Builder
	for i := 0; i < len(text); {
		r, n := utf8.DecodeRuneInString(text[i:])
		switch {
		case r == utf8.RuneError && n == 1:
			b.WriteString(`\x` + strconv.FormatUint(uint64(text[i])|0x100, 16)[1:])
		case unicode.IsPrint(r):
			b.WriteRune(r)
		case r == '\n' || r == '\t' || unicode.Is(unicode.Zs, r):
			b.WriteByte(' ')
		default:
			b.WriteString(strings.Trim(strconv.QuoteRuneToASCII(r), "'"))
		}
		i += n
	}
	return b.String()
}

// isVisible says that text is printable ASCII.
func isVisible(text string) bool {
	for i := range len(text) {
		if text[i] < ' ' || text[i] > '~' {
			return false
		}
	}
	return true
}

// columns is how many columns of a terminal visible text takes.
func columns(text string) int {
	n := 0
	for _, r := range text {
		n += runeColumns(r)
	}
	return n
}

func runeColumns(r rune) int {
	if r < 0x300 {
		return 1
	}
	switch width.LookupRune(r).Kind() {
	case width.EastAsianWide, width.EastAsianFullwidth:
		return 2
	}
	if unicode.In(r, unicode.Mn, unicode.Me) {
		return 0
	}
	return 1
}

// cut shortens visible text to at most n columns and marks that it did.
func cut(text string, n int) string {
	if columns(text) <= n {
		return text
	}
	const mark = "..."
	head, _ := splitAt(text, max(n-len(mark), 0))
	return head + mark
}

// splitAt splits text behind the last rune that ends within n columns.
func splitAt(text string, n int) (head, rest string) {
	used := 0
	for i, r := range text {
		if used += runeColumns(r); used > n {
			return text[:i], text[i:]
		}
	}
	return text, ""
}

// wrap breaks visible text at spaces into lines of at most n columns. A word
// that is longer is broken where the line ends.
func wrap(text string, n int) []string {
	n = max(n, 2)
	var lines []string
	line, used := "", 0
	for word := range strings.FieldsSeq(text) {
		size := columns(word)
		if line != "" && used+1+size <= n {
			line, used = line+" "+word, used+1+size
			continue
		}
		if line != "" {
			lines = append(lines, line)
		}
		for size > n {
			head, rest := splitAt(word, n)
			lines = append(lines, head)
			word, size = rest, columns(rest)
		}
		line, used = word, size
	}
	if line != "" || len(lines) == 0 {
		lines = append(lines, line)
	}
	return lines
}
