// Package triage owns the question why a start fails: it joins the lines of a
// log to records (by process, with their tracebacks), weighs each by the
// catalogue (cause, consequence, harmless), and picks of all of them the one
// root cause. It also owns fingerprints, by which history knows an error again,
// and the masking of secrets.
//
// The package is pure: no clock, I/O, goroutine or logger, one pass over the
// lines, and memory that is bounded whatever the log holds. It knows no engine:
// wording comes from a profile.Profile. What a startup is, and when one has
// failed, is the business of package phases.
package triage
