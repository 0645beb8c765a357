package triage

import "strings"

// token masks what begins at pos and is more than a word or a number; false when
// nothing of the kind does.
func (s *messageScan) token() bool {
	for _, kind := range [...]struct {
		mask string
		end  func(text string, at int) int
	}{
		{"<url>", urlEnd}, {"<path>", pathEnd}, {"<uuid>", uuidEnd}, {"<addr>", addressEnd}, {"<time>", timeEnd},
	} {
		if end := kind.end(s.text, s.pos); end > s.pos {
			s.put(kind.mask, end)
			return true
		}
	}
	return false
}

// endsWord reports whether no word goes on at, and no mask that was one.
func endsWord(text string, at int) bool {
	return at >= len(text) || !isNameByte(text[at]) && maskEnd(text, at) == 0
}

func urlEnd(text string, at int) int {
	if c := text[at] | 0x20; c < 'a' || c > 'z' {
		return 0
	}
	window := text[at:min(len(text), at+32)]
	scheme := bodyEnd(window, 0, isSecretWord)
	if !strings.HasPrefix(text[at+scheme:], "://") {
		return 0
	}
	from := at + scheme + len("://")
	end := from
	for end < len(text) && !isBlankByte(text[end]) && strings.IndexByte("\"'`<>|", text[end]) < 0 {
		end++
	}
	end = trimEnd(text, from, end, ".,;:!?)]}")
	if end == from {
		return 0
	}
	return end
}

func trimEnd(text string, from, end int, marks string) int {
	for end > from && strings.IndexByte(marks, text[end-1]) >= 0 {
		end--
	}
	return end
}

func isPathByte(c byte) bool {
	return isSecretWord(c) || strings.IndexByte("/~+@%", c) >= 0 || c >= 0x80
}

// pathReach and hostReach are the longest path and host name, in bytes: they keep
// the work on a hostile text in proportion to its length.
const (
	pathReach = 512
	hostReach = 128
)

// pathEnd finds a path: one that begins as one, or a word with slashes that is
// neither a choice (and/or) nor a rate (tokens/s).
func pathEnd(text string, at int) int {
	first := at // of the path behind what it is relative to
	for first < min(len(text), at+2) && (text[first] == '.' || text[first] == '~') {
		first++
	}
	switch {
	case first == len(text) || first > at && text[first] != '/':
		return 0
	case text[first] == '/' && (first+1 == len(text) || text[first+1] == '/'):
		return 0
	case text[first] != '/' && (!isNameByte(text[at]) || isDigitByte(text[at])):
		return 0
	}
	end := bodyEnd(text[:min(len(text), at+pathReach)], at, isPathByte)
	end = trimEnd(text, at, end, ".-+@%~")
	path := text[at:end]
	switch slashes := strings.Count(path, "/"); {
	case slashes == 0 || end < first+2:
		return 0
	case text[first] == '/' || slashes > 1 || strings.ContainsAny(path, ".0123456789"):
		return end
	}
	return 0
}

func uuidEnd(text string, at int) int {
	const size = 36
	if len(text)-at < size || !isHexByte(text[at]) || text[at+8] != '-' || !endsWord(text, at+size) {
		return 0
	}
	for i := range size {
		dash := i == 8 || i == 13 || i == 18 || i == 23
		if c := text[at+i]; dash != (c == '-') || !dash && !isHexByte(c) {
			return 0
		}
	}
	return at + size
}

func addressEnd(text string, at int) int {
	for _, end := range [...]func(string, int) int{pointerEnd, hostPortEnd, ipEnd, colonAddressEnd} {
		if end := end(text, at); end > 0 {
			return end
		}
	}
	return 0
}

func pointerEnd(text string, at int) int {
	if !strings.HasPrefix(text[at:], "0x") && !strings.HasPrefix(text[at:], "0X") {
		return 0
	}
	end := bodyEnd(text, at+2, isHexByte)
	if end == at+2 || !endsWord(text, end) {
		return 0
	}
	return end
}

// ipEnd finds an IPv4 address, with its port.
func ipEnd(text string, at int) int {
	end := at
	for part := range 4 {
		if part > 0 {
			if end >= len(text) || text[end] != '.' {
				return 0
			}
			end++
		}
		from := end
		for end < len(text) && isDigitByte(text[end]) {
			end++
		}
		if n := end - from; n < 1 || n > 3 || n == 3 && text[from:end] > "255" {
			return 0
		}
	}
	if !endsWord(text, end) || end+1 < len(text) && text[end] == '.' && isDigitByte(text[end+1]) {
		return 0
	}
	if port := portEnd(text, end); port > 0 {
		return port
	}
	return end
}

// portEnd finds :port.
func portEnd(text string, at int) int {
	if at >= len(text) || text[at] != ':' {
		return 0
	}
	end := bodyEnd(text, at+1, isDigitByte)
	if n := end - at - 1; n < 2 || n > 5 || !endsWord(text, end) || end+1 < len(text) && text[end] == ':' && isDigitByte(text[end+1]) {
		return 0
	}
	return end
}

// hostPortEnd finds host:port: a name with dots that is no source file, or one with
// a number or hyphen and a port that cannot be a line's number.
func hostPortEnd(text string, at int) int {
	if c := text[at] | 0x20; c < 'a' || c > 'z' {
		return 0
	}
	colon := bodyEnd(text[:min(len(text), at+hostReach)], at, func(c byte) bool { return isSecretAlnum(c) || c == '-' || c == '.' })
	end := portEnd(text, colon)
	if end == 0 {
		return 0
	}
	host, port := text[at:colon], end-colon-1
	dot := strings.LastIndexByte(host, '.')
	switch last := host[dot+1:]; {
	case host == "localhost":
		return end
	case dot > 0 && len(last) > 1 && strings.Trim(last, "abcdefghijklmnopqrstuvwxyz") == "" && !isSourceFile(last):
		return end
	case dot < 0 && port >= 4 && (strings.Contains(host, "-") || isDigitByte(host[len(host)-1])):
		return end
	}
	return 0
}

func isSourceFile(extension string) bool {
	switch extension {
	case "py", "pyx", "cpp", "cc", "cu", "cuh", "hpp", "so", "rs", "go", "js", "java", "json", "yaml", "yml", "txt", "log", "sh", "safetensors", "bin":
		return true
	}
	return false
}

// colonAddressEnd finds an IPv6, PCI or MAC address.
func colonAddressEnd(text string, at int) int {
	if !isHexByte(text[at]) && !strings.HasPrefix(text[at:], "::") {
		return 0
	}
	end := bodyEnd(text[:min(len(text), at+48)], at, func(c byte) bool { return isHexByte(c) || c == ':' })
	run := strings.TrimSuffix(text[at:end], ":")
	whole := endsWord(text, end)
	end = at + len(run)
	if !whole || !strings.ContainsAny(run, "0123456789") {
		return 0
	}
	if colon := strings.IndexByte(run, ':'); (colon == 4 || colon == 8) && len(run) == colon+6 && run[colon+3] == ':' {
		if end+1 < len(text) && text[end] == '.' && isHexByte(text[end+1]) && endsWord(text, end+2) {
			return end + 2 // 0000:3b:00.0
		}
		return end
	}
	colons := strings.Count(run, ":")
	if !strings.Contains(run, "::") && colons != 7 && (colons != 5 || len(run) != 17) {
		return 0
	}
	return end
}

// timeEnd finds a date, a clock's time, or both.
func timeEnd(text string, at int) int {
	if !isDigitByte(text[at]) {
		return 0
	}
	end := shapeEnd(text, at, "dddd-dd-dd")
	if end == 0 {
		end = shapeEnd(text, at, "dddd/dd/dd")
	}
	if end == 0 {
		return clockEnd(text, at)
	}
	if end < len(text) && (text[end] == 'T' || text[end] == ' ') {
		if clock := clockEnd(text, end+1); clock > 0 {
			return clock
		}
	}
	if !endsWord(text, end) {
		return 0
	}
	return end
}

// clockEnd finds 20:24:11, with a fraction and a zone.
func clockEnd(text string, at int) int {
	end := shapeEnd(text, at, "dd:dd:dd")
	if end == 0 {
		end = shapeEnd(text, at, "d:dd:dd")
	}
	if end == 0 {
		return 0
	}
	if end+1 < len(text) && (text[end] == '.' || text[end] == ',') && isDigitByte(text[end+1]) {
		end = bodyEnd(text, end+1, isDigitByte)
	}
	for _, zone := range [...]string{"Z", "+dd:dd", "-dd:dd", "+dddd", "-dddd"} {
		if to := shapeEnd(text, end, zone); to > 0 && endsWord(text, to) {
			return to
		}
	}
	if !endsWord(text, end) {
		return 0
	}
	return end
}

// shapeEnd matches a shape in which d stands for a digit; 0 when it does not fit.
func shapeEnd(text string, at int, shape string) int {
	if len(text)-at < len(shape) {
		return 0
	}
	for i := range len(shape) {
		c := text[at+i]
		if digit := shape[i] == 'd'; digit && !isDigitByte(c) || !digit && c != shape[i] {
			return 0
		}
	}
	return at + len(shape)
}
