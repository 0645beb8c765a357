// Package client reads the daemon's HTTP API over its unix socket. It owns the
// requests and the reading of the event stream, and knows the documents of
// pkg/web/api.
//
// It must not judge what it reads, keep it, or try again by itself: its callers
// do.
package client
