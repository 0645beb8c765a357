package page

import (
	"fmt"
	"strconv"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"
)

// maxText bounds a text of the log on the page, in runes.
const maxText = 600

// took formats a duration in seconds. The script formats alike.
func took(seconds float64) string {
	if seconds < 9.95 {
		return strconv.FormatFloat(max(seconds, 0), 'f', 1, 64) + "s"
	}
	s := int64(min(seconds, 1e12) + 0.5)
	switch h, m := s/3600, s/60%60; {
	case h > 0:
		return fmt.Sprintf("%dh %02dm", h, m)
	case m > 0:
		return fmt.Sprintf("%dm %02ds", m, s%60)
	}
	return fmt.Sprintf("%ds", s)
}

// tookOr is a duration that may not be known.
func tookOr(seconds *float64, unknown string) string {
	if seconds == nil {
		return unknown
	}
	return took(*seconds)
}

// bytesText formats a size.
func bytesText(n uint64) string {
	const units = "KMGTPE"
	if n < 1024 {
		return fmt.Sprintf("%d B", n)
	}
	v, i := float64(n)/1024, 0
	for v >= 1023.95 && i < len(units)-1 {
		v, i = v/1024, i+1
	}
	return fmt.Sprintf("%.1f %ciB", v, units[i])
}

// moment formats a time in zone, as journalctl does; "" when it is not known.
func moment(t time.Time, zone *time.Location) string {
	if t.IsZero() {
		return ""
	}
	return t.In(zone).Format("2006-01-02 15:04:05 MST")
}

// clockTime is a moment of the day at; the whole moment when t is another day's.
func clockTime(t, at time.Time, zone *time.Location) string {
	if t.IsZero() {
		return ""
	}
	if t, at = t.In(zone), at.In(zone); t.YearDay() == at.YearDay() && t.Year() == at.Year() {
		return t.Format("15:04:05 MST")
	}
	return moment(t, zone)
}

func counted(n int, one, many string) string {
	if n == 1 {
		return "1 " + one
	}
	return fmt.Sprintf("%d %s", n, many)
}

// visible makes text of the log fit to be read: what moves, hides or reorders
// text is written out as an escape, and a very long text is cut. Lines stay.
func visible(text string) string {
	var b strings.Builder
	runes := 0
	for i := 0; i < len(text); runes++ {
		if runes == maxText {
			fmt.Fprintf(&b, "… (%d bytes more)", len(text)-i)
			break
		}
		r, n := utf8.DecodeRuneInString(text[i:])
		switch {
		case r == utf8.RuneError && n == 1:
			fmt.Fprintf(&b, `\x%02x`, text[i])
		case r == '\n' || r == '\t' || unicode.IsPrint(r):
			b.WriteRune(r)
		case unicode.Is(unicode.Zs, r):
			b.WriteByte(' ')
		default:
			b.WriteString(strings.Trim(strconv.QuoteRuneToASCII(r), "'"))
		}
		i += n
	}
	return b.String()
}

// identifier makes a name fit for an element's id.
func identifier(name string) string {
	var b strings.Builder
	for i := range len(name) {
		switch c := name[i]; {
		case 'a' <= c && c <= 'z', 'A' <= c && c <= 'Z', '0' <= c && c <= '9', c == '-':
			b.WriteByte(c)
		default:
			fmt.Fprintf(&b, "_%02x", c)
		}
	}
	return "u-" + b.String()
}
