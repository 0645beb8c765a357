// Package bench measures the whole program: its run time beside a grep and
// beside mtail on the same lines, its memory, the time from a log line to its
// metric, and a scrape. docs/benchmarks.md says how to run it.
//
// It runs the built binary only. It must not import the program's packages, so
// that nothing is measured which a user does not get.
package bench
