package api

import (
	"github.com/startupd/startupd/pkg/phases"
	"github.com/startupd/startupd/pkg/triage"
)

// NewTransition returns the document of a change of state.
func NewTransition(t *phases.Transition) Transition {
	return Transition{
		Unit: t.Target, Invocation: t.Invocation, Generation: t.Generation, From: string(t.From), To: string(t.To),
		At: wall(t.At), Seconds: between(t.Began, t.At), Replayed: t.Replayed,
	}
}

// NewFinding returns the document of a finding. It shares the finding's slices.
func NewFinding(f *triage.Finding) *Finding {
	out := newFinding(f)
	return &out
}

// NewRootCause returns the document of a root cause; nil for nil. It shares the
// root cause's maps and slices.
func NewRootCause(c *triage.RootCause) *RootCause { return newRootCause(c) }
