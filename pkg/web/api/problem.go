package api

import "time"

// ProblemSchema names the version of Problem's JSON form.
const ProblemSchema = "startupd.error/v1"

// Problem is the body of an answer that is no success.
type Problem struct {
	Schema string `json:"schema"`
	// Error says what is wrong, Next what to do.
	Error string `json:"error"`
	Next  string `json:"next"`
	// Candidates are the startups that an ambiguous ID stands for.
	Candidates []Candidate `json:"candidates,omitzero"`
}

// Candidate names a startup.
type Candidate struct {
	Unit       string    `json:"unit"`
	Invocation string    `json:"invocation"`
	Generation int       `json:"generation"`
	Began      time.Time `json:"began,omitzero"`
}
