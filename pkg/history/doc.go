// Package history owns what outlives a startup: one record of each finished
// one, in a bbolt file of the state directory, and what can be told from the
// records: how often good and failed starts had an error (Baseline), and what
// is new since the last good start (Diff).
//
// The file is opened, used and closed at each call, because bbolt's lock would
// keep other processes out. Records are bounded by number and age. The package
// must not read a clock, write a log, or decide about a running startup.
package history
