// Package scrape holds tests that scrape the built program over HTTP, by
// themselves and by a real Prometheus: what docs/METRICS.md promises is compared
// with what is served, in each format. They need Debian's prometheus and build
// tag e2e; they need no systemd and no root.
//
// It must not look into the program: whatever it knows comes off the wire.
package scrape
