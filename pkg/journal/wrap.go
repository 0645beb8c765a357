package journal

import (
	"bytes"
	"strings"
)

// wrapped is what a wrapper around a line tells.
type wrapped struct {
	stamp textStamp
	proc  string
	ident string
	pid   int
}

// wrapper takes one kind of prefix off a line.
type wrapper struct {
	// share is how much of an input's lines must have the prefix: it is low for
	// what can't be mistaken, and high for what the engine itself may print.
	share float64
	parse func([]byte) (rest []byte, w wrapped, ok bool)
}

func wrappers() []wrapper {
	return []wrapper{
		{0.1, parsePod},
		{0.6, parseCompose},
		{0.1, parseJournalLine},
		{0.1, parseRFC5424},
		{0.1, parseStamped},
		{0.6, parseCRI},
		{0.6, parseSrun},
	}
}

const (
	sampleLines = 200
	maxWrappers = 4
)

// findWrappers looks at an input's beginning for what the lines are wrapped
// in, the outermost first.
func findWrappers(head []byte) []wrapper {
	var sample [][]byte
	for line := range bytes.SplitSeq(head, []byte{'\n'}) {
		if line = appendClean(nil, line); len(bytes.TrimSpace(line)) > 0 && !isJournalctlNote(line) {
			sample = append(sample, line)
		}
		if len(sample) == sampleLines {
			break
		}
	}
	var found []wrapper
	left := wrappers()
	for len(found) < maxWrappers {
		i := matching(left, sample)
		if i < 0 {
			break
		}
		found = append(found, left[i])
		sample = strip(left[i], sample)
		left = append(left[:i:i], left[i+1:]...)
	}
	return found
}

// matching returns the first wrapper that enough of the lines have, or -1.
func matching(ws []wrapper, sample [][]byte) int {
	for i, w := range ws {
		n := 0
		for _, line := range sample {
			if _, _, ok := w.parse(line); ok {
				n++
			}
		}
		if n > 0 && float64(n) >= w.share*float64(len(sample)) {
			return i
		}
	}
	return -1
}

func strip(w wrapper, sample [][]byte) [][]byte {
	var rest [][]byte
	for _, line := range sample {
		if r, _, ok := w.parse(line); ok {
			rest = append(rest, r)
		}
	}
	return rest
}

// parsePod takes off what kubectl logs --prefix adds: "[pod/NAME/CONTAINER] ".
func parsePod(b []byte) ([]byte, wrapped, bool) {
	if !bytes.HasPrefix(b, []byte("[pod/")) {
		return nil, wrapped{}, false
	}
	name, rest, ok := bytes.Cut(b[len("[pod/"):], []byte("]"))
	if !ok || bytes.IndexByte(name, ' ') >= 0 {
		return nil, wrapped{}, false
	}
	return bytes.TrimPrefix(rest, []byte(" ")), wrapped{proc: string(name)}, true
}

// parseCompose takes off what docker compose logs adds: "NAME-1  | ".
func parseCompose(b []byte) ([]byte, wrapped, bool) {
	n := 0
	for n < len(b) && (isNameByte(b[n]) || b[n] == '[' || b[n] == ']') {
		n++
	}
	rest := bytes.TrimLeft(b[n:], " ")
	if n == 0 || len(rest) == len(b)-n || len(rest) == 0 || rest[0] != '|' || len(rest) > 1 && rest[1] != ' ' {
		return nil, wrapped{}, false
	}
	return bytes.TrimPrefix(rest[1:], []byte(" ")), wrapped{proc: strings.Trim(string(b[:n]), "[]")}, true
}

func isNameByte(c byte) bool {
	return c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9' || c == '_' || c == '-' || c == '.'
}

// parseSrun takes off what srun --label adds: "3: ", padded on the left.
func parseSrun(b []byte) ([]byte, wrapped, bool) {
	label, rest, ok := bytes.Cut(b, []byte(":"))
	label = bytes.TrimLeft(label, " ")
	if _, isNumber := parseUint(label); !ok || !isNumber || len(label) > 6 || len(rest) > 0 && rest[0] != ' ' {
		return nil, wrapped{}, false
	}
	return bytes.TrimPrefix(rest, []byte(" ")), wrapped{proc: string(label)}, true
}

// parseCRI takes off what a container runtime writes behind its stamp:
// "stdout F ".
func parseCRI(b []byte) ([]byte, wrapped, bool) {
	for _, p := range []string{"stdout F ", "stderr F ", "stdout P ", "stderr P "} {
		if bytes.HasPrefix(b, []byte(p)) {
			return b[len(p):], wrapped{}, true
		}
	}
	return nil, wrapped{}, false
}

// parseStamped takes off an RFC 3339 stamp (docker logs -t, kubectl logs
// --timestamps). A stamp that belongs to the program's own format stays: one
// before " - " (Python's logging), or of microseconds before a level (Rust's
// tracing).
func parseStamped(b []byte) ([]byte, wrapped, bool) {
	s, n := parseISO(b)
	if n == 0 || n == len(b) || b[n] != ' ' {
		return nil, wrapped{}, false
	}
	rest := b[n+1:]
	if bytes.HasPrefix(rest, []byte("- ")) {
		return nil, wrapped{}, false
	}
	if s.digits == 6 {
		word, _, _ := bytes.Cut(bytes.TrimLeft(rest, " "), []byte(" "))
		switch string(word) {
		case "TRACE", "DEBUG", "INFO", "WARN", "ERROR":
			return nil, wrapped{}, false
		}
	}
	return rest, wrapped{stamp: s}, true
}

// parseJournalLine takes off what journalctl's short formats and classic
// syslog put before a line: "STAMP HOST IDENT[PID]: ".
func parseJournalLine(b []byte) ([]byte, wrapped, bool) {
	s, n, syslog := parseLeadingStamp(b)
	if n == 0 || n >= len(b) || b[n] != ' ' {
		return nil, wrapped{}, false
	}
	rest := b[n+1:]
	for range 2 { // the host may be missing (--no-hostname)
		word, after, _ := bytes.Cut(rest, []byte(" "))
		if ident, pid, ok := parseIdent(word); ok {
			// Only in syslog's own form an identifier without a pid is no
			// accident.
			if pid == 0 && !syslog && ident != "kernel" {
				return nil, wrapped{}, false
			}
			return after, wrapped{stamp: s, ident: ident, pid: pid}, true
		}
		rest = after
	}
	return nil, wrapped{}, false
}

// parseIdent reads "IDENT[PID]:" or "IDENT:".
func parseIdent(word []byte) (ident string, pid int, ok bool) {
	name, ok := bytes.CutSuffix(word, []byte(":"))
	if !ok || len(name) == 0 {
		return "", 0, false
	}
	open := bytes.LastIndexByte(name, '[')
	if open < 0 {
		return string(name), 0, true
	}
	n, isNumber := parseUint(bytes.TrimSuffix(name[open+1:], []byte("]")))
	if !isNumber || open == 0 || n > 1<<31 {
		return "", 0, false
	}
	return string(name[:open]), int(n), true
}

// parseRFC5424 takes off a syslog header of RFC 5424:
// "<PRI>1 STAMP HOST APP PROCID MSGID SD ".
func parseRFC5424(b []byte) ([]byte, wrapped, bool) {
	_, rest, ok := bytes.Cut(b, []byte(">1 "))
	if !ok || b[0] != '<' {
		return nil, wrapped{}, false
	}
	s, n := parseISO(rest)
	f := bytes.SplitN(rest[n:], []byte(" "), 6)
	if n == 0 || len(f) < 6 || len(f[0]) != 0 {
		return nil, wrapped{}, false
	}
	w := wrapped{stamp: s, ident: string(f[2])}
	if pid, ok := parseUint(f[3]); ok && pid < 1<<31 {
		w.pid = int(pid)
	}
	text := bytes.TrimPrefix(f[5], []byte("- "))
	if bytes.HasPrefix(f[5], []byte("[")) {
		if i := bytes.Index(f[5], []byte("] ")); i >= 0 {
			text = f[5][i+2:]
		}
	}
	return bytes.TrimPrefix(text, []byte("\ufeff")), w, true
}
