package profile

import "strings"

// exceptionType reads the type of an exception from the last line of a
// traceback ("pkg.mod.Type: text", or the type alone); "" for other lines.
func exceptionType(message string) string {
	end := 0
	for end < len(message) && isWord(message[end]) {
		end++
	}
	if end == 0 || end < len(message) && !strings.HasPrefix(message[end:], ": ") && message[end:] != ":" {
		return ""
	}
	dot := strings.LastIndexByte(message[:end], '.')
	name := message[dot+1 : end]
	if name == "" || message[0] == '.' || message[0] >= '0' && message[0] <= '9' {
		return ""
	}
	for _, suffix := range exceptionSuffixes() {
		if strings.HasSuffix(name, suffix) && (len(name) > len(suffix) || dot > 0 || suffix == "Exception") {
			return message[:end]
		}
	}
	return ""
}

// exceptionSuffixes are how the names of exceptions end, as far as Python's own
// and those of well-known packages go.
func exceptionSuffixes() []string {
	return []string{
		"Error", "Exception", "Interrupt", "SystemExit", "ExceptionGroup", "Timeout", "TimeoutExpired", "Empty", "Full",
		"StopIteration", "gaierror", "herror", "timeout", "NotFound", "OutOfResources", "Failed", "Failure", "Unsupported", "IsEnabled",
	}
}

func isWord(c byte) bool {
	return c == '_' || c == '.' || c >= '0' && c <= '9' || c >= 'A' && c <= 'Z' || c >= 'a' && c <= 'z'
}

// names says whether an exception's type is one of a list, where a name without
// modules stands for any.
func names(list []string, exception string) bool {
	if exception == "" {
		return false
	}
	last := exception[strings.LastIndexByte(exception, '.')+1:]
	for _, name := range list {
		if name == exception || name == last {
			return true
		}
	}
	return false
}

// ungroup takes away the margin that Python draws around the members of an
// exception group: "  | ", and the rules between them.
func ungroup(message string) string {
	rest := strings.TrimLeft(message, " ")
	if len(rest) == len(message) {
		return message
	}
	for {
		switch {
		case strings.HasPrefix(rest, "| "), strings.HasPrefix(rest, "+ "):
			message = rest[2:]
		case rest == "|":
			return ""
		default:
			return message
		}
		if rest = strings.TrimLeft(message, " "); len(rest) == len(message) {
			return message
		}
	}
}
