package exporter

import (
	"regexp"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/startupd/startupd/pkg/phases"
	"github.com/startupd/startupd/pkg/triage"
)

// maxName bounds the names in a root cause's labels, in bytes.
const maxName = 64

var (
	// dotted is what Python prints of an exception's type.
	dotted = regexp.MustCompile(`^[A-Za-z_]\w*(\.[A-Za-z_]\w*)*$`)
	// pid is how a process's number stands after its name.
	pid = regexp.MustCompile(`[ ,(\[]*\bpid ?[=:] ?\d+[)\]]*`)
)

// startupErrors emits the error records of one startup.
func (s *scrape) startupErrors(unit string, errors map[phases.ErrorKey]int) {
	for k, n := range closed(s, errors) {
		s.send(s.startupErrorRecords, float64(n), unit, k.Class, string(k.Verdict))
	}
}

// errorTotals emits the error records of all startups.
func (s *scrape) errorTotals(unit string, errors map[phases.ErrorKey]uint64) {
	for k, n := range closed(s, errors) {
		s.sendTotal(s.errors, float64(n), unit, k.Class, string(k.Verdict))
	}
}

// rootCause emits why the last start failed; nil emits nothing. There is one
// series a unit, whatever the log says: the next cause takes its place.
func (s *scrape) rootCause(unit string, c *triage.RootCause) {
	if c != nil {
		s.send(s.rootCauseInfo, 1, unit, s.class(c.Class), exception(c.Exception), process(c.Process))
	}
}

// message emits what the log said of that cause; none where it said nothing. There
// is one series a unit, which stays while its starts fail of the same error.
func (s *scrape) message(t *phases.Target) {
	if t.Failure != nil && t.FailureMessage != "" {
		s.send(s.rootCauseMessage, 1, t.Name, t.FailureMessage)
	}
}

// class returns a class of the catalogue. A name that comes from elsewhere, as
// from the saved counts of a catalogue that is gone, could make any number of
// series.
func (s *scrape) class(name string) string {
	if s.knows(name) {
		return name
	}
	return triage.ClassUnknown
}

// closed returns counts by labels of the closed sets. What falls on the same
// labels is added up.
func closed[N int | uint64](s *scrape, counts map[phases.ErrorKey]N) map[phases.ErrorKey]N {
	out := make(map[phases.ErrorKey]N, len(counts))
	for k, n := range counts {
		out[phases.ErrorKey{Class: s.class(k.Class), Verdict: verdict(k.Verdict)}] += n
	}
	return out
}

// verdict returns one of the four. Of an error with another nothing is known,
// which is what a suspect is.
func verdict(v triage.Verdict) triage.Verdict {
	switch v {
	case triage.Cause, triage.Symptom, triage.Benign:
		return v
	}
	return triage.Suspect
}

// exception returns the type of an exception, without its modules where it is
// long, or "" for what is none.
func exception(name string) string {
	if len(name) > maxName {
		name = name[strings.LastIndexByte(name, '.')+1:]
	}
	name = cut(name, maxName)
	if !dotted.MatchString(name) {
		return ""
	}
	return name
}

// process returns a process's name without its pid and without what no name
// has in it.
func process(name string) string {
	name = pid.ReplaceAllString(name, "")
	name = strings.Map(func(r rune) rune {
		if unicode.IsLetter(r) || unicode.IsDigit(r) || strings.ContainsRune("_-.:/@+", r) {
			return r
		}
		return ' '
	}, strings.ToValidUTF8(name, " "))
	return strings.TrimSpace(cut(strings.Join(strings.Fields(name), " "), maxName))
}

// cut returns v, or its beginning of at most n bytes of whole runes.
func cut(v string, n int) string {
	if len(v) <= n {
		return v
	}
	for n > 0 && !utf8.RuneStart(v[n]) {
		n--
	}
	return v[:n]
}
