// Package phases owns the startup state machine: what a target's events say
// about the phase it is in, how far it is, how long each phase took, and
// whether it is stalled. Host holds one Machine for each target and what they
// share (GPUs, sources); Snapshot is their published state.
//
// The package is pure: no clock, I/O, goroutine or logger. Time comes with the
// events; deadlines are data. It knows no engine: wording comes from a
// profile.Profile.
package phases
