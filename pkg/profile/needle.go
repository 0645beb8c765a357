package profile

import "strings"

// needle is a text that is looked for in every line. It is found by its rarest
// byte: such texts begin with a space or a letter, which lines are full of, and
// strings.Index would stop at each.
type needle struct {
	text string
	at   int
}

func newNeedle(text string) needle {
	n := needle{text: text}
	for i := range len(text) {
		if rarity(text[i]) > rarity(text[n.at]) {
			n.at = i
		}
	}
	return n
}

// rarity ranks bytes by how seldom a line of log holds them.
func rarity(c byte) int {
	switch {
	case c == ' ' || c >= 'a' && c <= 'z':
		return 0
	case c >= '0' && c <= '9' || c == '/' || c == '.' || c == ',' || c == ':' || c == '_':
		return 1
	case c >= 'A' && c <= 'Z' || c == '-' || c == '(' || c == ')':
		return 2
	}
	return 3
}

// index returns the needle's first place in s, -1 for none.
func (n needle) index(s string) int {
	for from := n.at; from < len(s); {
		i := strings.IndexByte(s[from:], n.text[n.at])
		if i < 0 {
			return -1
		}
		if begin := from + i - n.at; strings.HasPrefix(s[begin:], n.text) {
			return begin
		}
		from += i + 1
	}
	return -1
}
