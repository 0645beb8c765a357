package phases

import (
	"time"

	"github.com/startupd/startupd/pkg/event"
	"github.com/startupd/startupd/pkg/profile"
)

// textClock tells time in a text whose lines carry only the engine's own
// stamps: local time, often without a year. It never goes back, as ranks'
// lines interleave.
type textClock struct {
	year int
	now  event.Stamp
}

// stampWithin is how far into a record its stamp is looked for, in bytes.
const stampWithin = 96

// yearWrap is how far back a stamp without a year must lie to be of the next
// year.
const yearWrap = 180 * 24 * time.Hour

// read takes the record's stamp; ok is false when it has none and no earlier
// record had one.
func (c *textClock) read(r *profile.Record) (at event.Stamp, ok bool) {
	t, dated, found := findStamp(r.Text, c.year)
	if !found {
		return c.now, !c.now.IsZero()
	}
	if !dated && c.now.Real.Sub(t) > yearWrap {
		c.year = c.now.Real.Year() + 1
		t = t.AddDate(1, 0, 0)
	}
	if c.now.IsZero() || t.After(c.now.Real) {
		c.now = event.Stamp{Real: t}
	}
	return c.now, true
}

// findStamp looks for one of the forms
//
//	01-31 10:27:34           2026-07-04 17:55:05,895
//	2026-07-04T17:55:05.895  07/04/2026-17:55:05
//
// near the beginning of a text. dated says that it has a year.
func findStamp(text string, year int) (t time.Time, dated, found bool) {
	if len(text) > stampWithin {
		text = text[:stampWithin]
	}
	for i := 6; i+8 <= len(text); i++ {
		if !isClock(text[i:]) {
			continue
		}
		h, m, s := two(text[i:]), two(text[i+3:]), two(text[i+6:])
		y, mon, day, withYear, ok := dateBefore(text[:i])
		if !ok || h > 23 || m > 59 || s > 60 {
			continue
		}
		if !withYear {
			y = max(year, 1970)
		}
		return time.Date(y, time.Month(mon), day, h, m, s, fraction(text[i+8:]), time.UTC), withYear, true
	}
	return time.Time{}, false, false
}

func isClock(s string) bool {
	return s[2] == ':' && s[5] == ':' && digits(s[:2]) && digits(s[3:5]) && digits(s[6:8])
}

// dateBefore reads the date that ends right before a time of day, with the one
// byte that separates them.
func dateBefore(s string) (year, month, day int, withYear, ok bool) {
	s = s[:len(s)-1]
	n := len(s)
	switch {
	case n >= 10 && s[n-3] == '-' && s[n-6] == '-' && digits(s[n-10:n-6]) && digits(s[n-5:n-3]) && digits(s[n-2:]):
		return two(s[n-10:])*100 + two(s[n-8:]), two(s[n-5:]), two(s[n-2:]), true, valid(s[n-5:], s[n-2:])
	case n >= 10 && s[n-5] == '/' && s[n-8] == '/' && digits(s[n-4:]) && digits(s[n-7:n-5]) && digits(s[n-10:n-8]):
		return two(s[n-4:])*100 + two(s[n-2:]), two(s[n-10:]), two(s[n-7:]), true, valid(s[n-10:], s[n-7:])
	case n >= 5 && s[n-3] == '-' && digits(s[n-5:n-3]) && digits(s[n-2:]):
		return 0, two(s[n-5:]), two(s[n-2:]), false, valid(s[n-5:], s[n-2:])
	}
	return 0, 0, 0, false, false
}

func valid(month, day string) bool {
	m, d := two(month), two(day)
	return m >= 1 && m <= 12 && d >= 1 && d <= 31
}

// fraction reads ".895" or ",895" as nanoseconds; 0 when there is none.
func fraction(s string) int {
	if len(s) == 0 || s[0] != '.' && s[0] != ',' {
		return 0
	}
	n, unit := 0, int(time.Second)
	for _, c := range []byte(s[1:min(len(s), 10)]) {
		if c < '0' || c > '9' {
			break
		}
		unit /= 10
		n += int(c-'0') * unit
	}
	return n
}

func two(s string) int { return int(s[0]-'0')*10 + int(s[1]-'0') }

func digits(s string) bool {
	for i := range len(s) {
		if s[i] < '0' || s[i] > '9' {
			return false
		}
	}
	return true
}
