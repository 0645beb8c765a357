package journal

import (
	"bytes"
	"strconv"
	"strings"
	"time"
)

// textStamp is a stamp that may lack its year.
type textStamp struct {
	time time.Time // of the year 0 if noYear
	// noYear marks syslog's stamps.
	noYear bool
	digits int // of the fraction
}

func (s textStamp) isZero() bool { return s.time.IsZero() && !s.noYear }

// parseLeadingStamp reads one of the stamps that a journal line begins with.
// It returns its length, 0 when there is none, and whether it is syslog's.
func parseLeadingStamp(b []byte) (s textStamp, n int, syslog bool) {
	if s, n = parseSyslogStamp(b); n > 0 {
		return s, n, true
	}
	if s, n = parseISO(b); n > 0 {
		return s, n, false
	}
	if s, n = parseFullStamp(b); n > 0 {
		return s, n, false
	}
	if s, n = parseUnixStamp(b); n > 0 {
		return s, n, false
	}
	return textStamp{}, parseMonotonic(b), false
}

// parseSyslogStamp reads "Sep  3 07:51:19" with or without a fraction.
func parseSyslogStamp(b []byte) (textStamp, int) {
	const layout = "Jan _2 15:04:05"
	if len(b) < len(layout) || b[0] < 'A' || b[0] > 'Z' || b[3] != ' ' {
		return textStamp{}, 0
	}
	t, err := time.Parse(layout, string(b[:len(layout)]))
	if err != nil {
		return textStamp{}, 0
	}
	d, digits, n := parseFraction(b[len(layout):])
	return textStamp{time: t.Add(d), noYear: true, digits: digits}, len(layout) + n
}

// parseISO reads "2024-01-03T12:00:00", a fraction, and Z or an offset.
func parseISO(b []byte) (textStamp, int) {
	const layout = "2006-01-02T15:04:05"
	if len(b) <= len(layout) || b[4] != '-' || b[10] != 'T' {
		return textStamp{}, 0
	}
	t, err := time.Parse(layout, string(b[:len(layout)]))
	if err != nil {
		return textStamp{}, 0
	}
	d, digits, n := parseFraction(b[len(layout):])
	n += len(layout)
	offset, m := parseOffset(b[n:])
	if m == 0 {
		return textStamp{}, 0
	}
	return textStamp{time: t.Add(d - offset), digits: digits}, n + m
}

// parseFullStamp reads "Wed 2024-01-03 12:00:00 UTC" (short-full). Only UTC is
// known of the zones' abbreviations; the others are read as if they were.
func parseFullStamp(b []byte) (textStamp, int) {
	const layout = "Mon 2006-01-02 15:04:05"
	if len(b) <= len(layout) || b[3] != ' ' || b[8] != '-' {
		return textStamp{}, 0
	}
	t, err := time.Parse(layout, string(b[:len(layout)]))
	if err != nil {
		return textStamp{}, 0
	}
	d, digits, n := parseFraction(b[len(layout):])
	n += len(layout)
	if n == len(b) || b[n] != ' ' {
		return textStamp{}, 0
	}
	zone := bytes.IndexByte(b[n+1:], ' ')
	if zone < 1 || zone > 6 {
		return textStamp{}, 0
	}
	return textStamp{time: t.Add(d), digits: digits}, n + 1 + zone
}

// parseUnixStamp reads "1700000000.123456" (short-unix).
func parseUnixStamp(b []byte) (textStamp, int) {
	n := bytes.IndexByte(b, ' ')
	if n < 12 || n > 20 {
		return textStamp{}, 0
	}
	sec, ok := parseUint(b[:10])
	d, digits, m := parseFraction(b[10:n])
	if !ok || m != n-10 {
		return textStamp{}, 0
	}
	return textStamp{time: time.Unix(int64(sec), 0).UTC().Add(d), digits: digits}, n
}

// parseMonotonic returns the length of "[ 1234.567890]" (short-monotonic),
// which tells no time of day.
func parseMonotonic(b []byte) int {
	if len(b) < 5 || b[0] != '[' {
		return 0
	}
	end := bytes.IndexByte(b, ']')
	if end < 0 || end > 24 {
		return 0
	}
	if _, err := strconv.ParseFloat(strings.TrimSpace(string(b[1:end])), 64); err != nil {
		return 0
	}
	return end + 1
}

// parseFraction reads ".123" or ",123" of a second.
func parseFraction(b []byte) (d time.Duration, digits, n int) {
	if len(b) < 2 || b[0] != '.' && b[0] != ',' {
		return 0, 0, 0
	}
	unit := time.Second
	for n = 1; n < len(b) && b[n] >= '0' && b[n] <= '9'; n++ {
		unit /= 10
		d += time.Duration(b[n]-'0') * unit
	}
	if n == 1 {
		return 0, 0, 0
	}
	return d, n - 1, n
}

// parseOffset reads Z, +0100 or +01:00.
func parseOffset(b []byte) (time.Duration, int) {
	if len(b) == 0 {
		return 0, 0
	}
	if b[0] == 'Z' {
		return 0, 1
	}
	if b[0] != '+' && b[0] != '-' {
		return 0, 0
	}
	for _, layout := range []string{"-07:00", "-0700"} {
		if len(b) < len(layout) {
			continue
		}
		if t, err := time.Parse(layout, string(b[:len(layout)])); err == nil {
			_, sec := t.Zone()
			return time.Duration(sec) * time.Second, len(layout)
		}
	}
	return 0, 0
}

// yearGuess finds the year of stamps that have none, so that time does not go
// back.
type yearGuess struct {
	now  time.Time
	last time.Time
}

// date returns the stamp with a year: the latest one that is not in the future
// for the first line, from then on the one that goes on from the line before.
func (y *yearGuess) date(s textStamp) time.Time {
	if !s.noYear {
		y.last = s.time
		return s.time
	}
	t := s.time.AddDate(y.last.Year(), 0, 0)
	switch {
	case y.last.IsZero():
		t = s.time.AddDate(y.now.UTC().Year(), 0, 0)
		if t.After(y.now.Add(24 * time.Hour)) {
			t = s.time.AddDate(y.now.UTC().Year()-1, 0, 0)
		}
	case t.Before(y.last.AddDate(0, -6, 0)):
		t = s.time.AddDate(y.last.Year()+1, 0, 0)
	default:
		// Merged logs are not quite in order: December may follow on January.
		before := s.time.AddDate(y.last.Year()-1, 0, 0)
		if before.After(y.last.AddDate(0, -1, 0)) {
			t = before
		}
	}
	y.last = t
	return t
}
