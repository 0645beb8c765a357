package triage

import "strings"

// MaskMessage returns a message with what varies between two reports of the same
// error replaced:
//
//	<url>       scheme://...
//	<path>      /a/b, ./a, ~/a, a/b/c, org/model-7b
//	<addr>      10.0.0.1:8000, fe80::1, node-7:29500, localhost:80, 0x7f01, a PCI address
//	<uuid>      8-4-4-4-12 hexadecimal digits
//	<time>      2025-11-30 20:24:11,123, 20:24:11
//	<hex>       7 hexadecimal digits or more, letters and digits among them
//	<size>      12.3 GiB, 16G, 5 bytes
//	<duration>  3.2 s, 5m, 1h2m3s, 10 seconds
//	<version>   0.6.13, 0.6.16.post3, v0.11.1rc2.dev3+gabcdef1, 2.9+cu128
//	<num>       every other number, a rank in a name too: Worker_TP3, layers.0
//	<quoted>    a quoted text with blanks, slashes or the like in it
//
// Class names, flags and identifiers stay (Qwen2ForCausalLM, fp8, H100, sm_90), in
// quotes too; and so does the text of an exception in a call, RuntimeError('...').
// Blanks become one. It is one pass from left to right, at each place the first of
// the list that fits; masking twice is masking once, and the result is at most
// five times as long. Fingerprints depend on it: see Fingerprint for what a change
// needs.
func MaskMessage(message string) string {
	s := messageScan{text: strings.TrimSpace(message)}
	s.out.Grow(len(s.text) + 16)
	for s.pos < len(s.text) {
		s.step()
	}
	return s.out.String()
}

// messageScan is the pass of MaskMessage.
type messageScan struct {
	text string
	pos  int
	out  strings.Builder
	// glued says that a word, number or mask ends at pos: nothing new begins there.
	glued bool
	// singleEnd and doubleEnd are where a quote ends that is being looked into; 0
	// when none is.
	singleEnd, doubleEnd int
}

// step replaces or copies what is at pos.
func (s *messageScan) step() {
	c := s.text[s.pos]
	switch {
	case isBlankByte(c):
		s.blank()
	case maskEnd(s.text, s.pos) > 0:
		s.copy(maskEnd(s.text, s.pos), true)
	case c == '\'' || c == '"':
		s.quote(c)
	case !s.glued && s.token():
	case isDigitByte(c):
		s.number(s.pos)
	case (c == '-' || c == '+') && !s.glued && s.pos+1 < len(s.text) && isDigitByte(s.text[s.pos+1]):
		s.number(s.pos + 1)
	case isNameByte(c):
		s.word()
	default:
		s.copy(s.pos+1, c >= 0x80)
	}
}

// put writes a mask for what ends at end.
func (s *messageScan) put(mask string, end int) {
	s.out.WriteString(mask)
	s.pos, s.glued = end, true
}

func (s *messageScan) copy(end int, glued bool) {
	s.out.WriteString(s.text[s.pos:end])
	s.pos, s.glued = end, glued
}

func (s *messageScan) blank() {
	end := s.pos
	mask := " "
	for ; end < len(s.text) && isBlankByte(s.text[end]); end++ {
		if s.text[end] == '\n' {
			mask = "\n"
		}
	}
	s.put(mask, end)
	s.glued = false
}

// maskEnd returns the end of the mask that begins at, 0 when there is none.
func maskEnd(text string, at int) int {
	if text[at] != '<' {
		return 0
	}
	for _, mask := range [...]string{"<url>", "<path>", "<addr>", "<uuid>", "<time>", "<hex>", "<size>",
		"<duration>", "<version>", "<num>", "<quoted>"} {
		if strings.HasPrefix(text[at:], mask) {
			return at + len(mask)
		}
	}
	return 0
}

// quote masks a quoted text, or goes on into it.
func (s *messageScan) quote(c byte) {
	end := &s.singleEnd
	if c == '"' {
		end = &s.doubleEnd
	}
	if s.glued || s.pos == *end { // an apostrophe, or the end of a quote
		s.copy(s.pos+1, true)
		return
	}
	if *end > s.pos {
		s.copy(s.pos+1, false)
		return
	}
	to := s.quoteEnd(c)
	switch {
	case to < 0:
		*end = len(s.text) + to // no more quotes on this line
		s.copy(s.pos+1, false)
	case s.isCall() || isPlainName(s.text[s.pos+1:to]):
		*end = to
		s.copy(s.pos+1, false)
	default:
		s.put("<quoted>", to+1)
	}
}

// quoteEnd finds the quote that ends the one at pos on its line. When there is none
// it returns how far the end of the line is from the end of the text, at most -1.
func (s *messageScan) quoteEnd(c byte) int {
	for i := s.pos + 1; i < len(s.text); i++ {
		switch {
		case s.text[i] == '\n':
			return i - len(s.text)
		case s.text[i] != c || s.text[i-1] == '\\':
		case i+1 == len(s.text) || !isNameByte(s.text[i+1]) && s.text[i+1] != '<':
			return i
		}
	}
	return -1
}

// isCall reports whether the quote at pos is a call's argument.
func (s *messageScan) isCall() bool {
	return s.pos >= 2 && s.text[s.pos-1] == '(' && (isNameByte(s.text[s.pos-2]) || s.text[s.pos-2] == '>')
}

// isPlainName reports whether a quoted text is an identifier, a flag, a number.
func isPlainName(text string) bool {
	for i := 0; i < len(text); i++ {
		if end := maskEnd(text, i); end > 0 {
			i = end - 1
		} else if c := text[i]; !isNameByte(c) && strings.IndexByte(".:-=", c) < 0 {
			return false
		}
	}
	return true
}

// word copies a word, with the numbers and hashes in it masked.
func (s *messageScan) word() {
	end := wordEnd(s.text, s.pos)
	if s.text[s.pos] == 'v' && allDigits(s.text[s.pos+1:end]) {
		if to, parts := numberEnd(s.text, s.pos+1); parts > 1 {
			s.put("<version>", versionEnd(s.text, to))
			return
		}
	}
	last := ""
	for s.pos < end {
		to := s.pos
		for to < end && s.text[to] != '_' {
			to++
		}
		part := s.text[s.pos:to]
		s.part(part, last, to)
		last = part
		if to < end {
			s.copy(to+1, true)
		}
	}
	s.glued = true
}

// part writes a part of a word; last is the one before it.
func (s *messageScan) part(part, last string, end int) {
	letters := strings.TrimRight(part, "0123456789")
	digits := len(part) - len(letters)
	switch {
	case isHash(part):
		s.put("<hex>", end)
	case digits == 0 || letters == "" && (last == "sm" || last == "compute"):
		s.copy(end, true)
	case letters == "" || digits >= 5 || isRankWord(letters):
		s.out.WriteString(letters)
		s.put("<num>", end)
	default:
		s.copy(end, true)
	}
}

// isRankWord knows the words that a number of one of many follows.
func isRankWord(word string) bool {
	for _, rank := range [...]string{"tp", "dp", "pp", "ep", "dcp", "pcp", "cp", "sp", "rank", "worker", "gpu", "node", "host",
		"engine", "enginecore", "core", "cpu", "layer", "layers", "shard", "expert", "experts", "process", "proc", "pid", "thread",
		"device", "stage", "replica", "actor", "instance", "server", "slot", "stream", "step", "pod", "job", "group", "client"} {
		if equalFold(word, rank) {
			return true
		}
	}
	return false
}

// isHash reports whether a word is 7 hexadecimal digits or more, with letters and
// digits.
func isHash(word string) bool {
	if len(word) < 7 {
		return false
	}
	var digit, letter bool
	for i := range len(word) {
		if !isHexByte(word[i]) {
			return false
		}
		digit = digit || isDigitByte(word[i])
		letter = letter || !isDigitByte(word[i])
	}
	return digit && letter
}

func isBlankByte(c byte) bool { return c == ' ' || c >= '\t' && c <= '\r' }

func isDigitByte(c byte) bool { return c >= '0' && c <= '9' }

func isHexByte(c byte) bool { return isDigitByte(c) || c|0x20 >= 'a' && c|0x20 <= 'f' }

func isNameByte(c byte) bool { return isSecretAlnum(c) || c == '_' }

func wordEnd(text string, at int) int { return bodyEnd(text, at, isNameByte) }

func allDigits(text string) bool { return text != "" && strings.Trim(text, "0123456789") == "" }
