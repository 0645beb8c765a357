package triage

import "strings"

// number masks the number whose digits begin at from, with the unit behind it.
func (s *messageScan) number(from int) {
	if word := bodyEnd(s.text, from, isSecretAlnum); isHash(s.text[from:word]) {
		s.put("<hex>", word)
		return
	}
	end, parts := numberEnd(s.text, from)
	if parts > 2 || parts == 2 && isVersionTail(s.text[end:]) {
		s.put("<version>", versionEnd(s.text, end))
		return
	}
	end = exponentEnd(s.text, end)
	unit := skipBlank(s.text, end)
	if to := unitEnd(s.text, unit, unit > end, sizeUnit); to > 0 {
		s.put("<size>", to)
	} else if to := durationEnd(s.text, end, unit); to > 0 {
		s.put("<duration>", to)
	} else {
		s.put("<num>", end)
	}
}

// numberEnd finds the end of digits with groups of thousands and dots; parts is how
// many of them the dots divide.
func numberEnd(text string, at int) (end, parts int) {
	end, parts = bodyEnd(text, at, isDigitByte), 1
	for {
		group := shapeEnd(text, end, ",ddd")
		if group == 0 || group < len(text) && isDigitByte(text[group]) {
			break
		}
		end = group
	}
	for end+1 < len(text) && text[end] == '.' && isDigitByte(text[end+1]) {
		end = bodyEnd(text, end+1, isDigitByte)
		parts++
	}
	return end, parts
}

func isVersionTail(tail string) bool {
	for _, mark := range [...]string{"rc", ".rc", "dev", ".dev", "post", ".post", "+cu", "+cpu", "+rocm", "+g"} {
		if strings.HasPrefix(tail, mark) {
			return true
		}
	}
	return false
}

// versionEnd finds the end of a version behind its numbers: rc2.dev313+g0a1b2c3.
func versionEnd(text string, at int) int {
	end := bodyEnd(text, at, func(c byte) bool { return isSecretAlnum(c) || c == '.' || c == '+' || c == '_' })
	return trimEnd(text, at, end, ".+_")
}

// exponentEnd finds e-05 behind a number, or returns at.
func exponentEnd(text string, at int) int {
	if at >= len(text) || text[at]|0x20 != 'e' {
		return at
	}
	from := at + 1
	if from < len(text) && (text[from] == '-' || text[from] == '+') {
		from++
	}
	if end := bodyEnd(text, from, isDigitByte); end > from && endsWord(text, end) {
		return end
	}
	return at
}

// unitEnd finds the unit at; apart says that a blank stands before it.
func unitEnd(text string, at int, apart bool, isUnit func(unit string, apart bool) bool) int {
	end := at
	for end < len(text) && (text[end] >= 0x80 || isSecretAlnum(text[end]) && !isDigitByte(text[end])) {
		end++
	}
	if end == at || !endsWord(text, end) || !isUnit(text[at:end], apart) {
		return 0
	}
	return end
}

// sizeUnit knows units of memory; a single letter needs to be glued to its number.
func sizeUnit(unit string, apart bool) bool {
	switch unit {
	case "GiB", "MiB", "KiB", "TiB", "GB", "MB", "KB", "kB", "TB", "bytes", "byte", "Bytes":
		return true
	case "B", "K", "M", "G", "T", "Gi", "Mi", "Ki", "Ti":
		return !apart
	}
	return false
}

func durationUnit(unit string, apart bool) bool {
	switch unit {
	case "s", "ms", "us", "µs", "μs", "ns", "sec", "secs", "second", "seconds", "min", "mins", "minute", "minutes",
		"hr", "hrs", "hour", "hours", "day", "days", "milliseconds", "microseconds":
		return true
	case "m", "h", "d":
		return !apart
	}
	return false
}

// durationEnd finds the unit of a number that ends at, and further numbers with
// units that are glued to it: 1h2m3s.
func durationEnd(text string, at, unit int) int {
	if to := unitEnd(text, unit, unit > at, durationUnit); to > 0 {
		return to
	}
	for at < len(text) {
		end := at
		for end < len(text) && isSecretAlnum(text[end]) && !isDigitByte(text[end]) {
			end++
		}
		if !durationUnit(text[at:end], false) {
			return 0
		}
		if endsWord(text, end) {
			return end
		}
		if !isDigitByte(text[end]) {
			return 0
		}
		at, _ = numberEnd(text, end)
	}
	return 0
}
