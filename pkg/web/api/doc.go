// Package api owns the documents that the daemon serves as JSON, and how they
// are made of a snapshot or of the history. The server, the page and the
// command line use the same ones.
//
// It must not serve, store or decide anything. Fields may be added to a
// document's version; none is removed or changes its meaning. What is absent
// is not known.
package api
