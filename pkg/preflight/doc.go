// Package preflight tells whether a host is fit for an engine's start: its
// GPUs and who holds their memory, the port, disks and memory, and the packages
// of the engine's Python environment.
//
// It only looks: it must not run the engine, Python or anything of the unit's,
// and change nothing. What it can't see is not known, never good. What an engine
// needs is data of its profile; the looks at systemd and at the GPUs are handed
// in by the caller.
package preflight
