// Package wait follows one start of a unit to its end: it serves, it failed, it
// stalls, or the time is over. It decides which invocation is meant, when the
// verdict is in, and how that is told.
//
// It must not judge a start itself: phases, stalls and root causes are the
// core's, as the daemon or a core in this process tells them.
package wait
