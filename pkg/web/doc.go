// Package web answers HTTP requests about units: their status, their startups,
// a stream of what happens to them, and whether they serve. It owns the hub
// that tells events to any number of streams, and the series of GPU memory.
//
// It must not wait for a source or for the core, and no reader of a stream,
// however slow, may cost the daemon more than its connection. It must not
// decide anything about phases, listen, or check who asks: internal/app does.
package web
