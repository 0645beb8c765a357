package event

// KindBaseline is a Baseline's name in a recording.
const KindBaseline Kind = "baseline"

// Baseline is what history knows of a target's earlier startups.
type Baseline struct {
	// Good and Bad are how many startups served and failed.
	Good int `json:"good"`
	Bad  int `json:"bad"`
	// Errors holds, by fingerprint, how many of them had the error.
	Errors map[string]Seen `json:"errors,omitempty"`
	// Newest is the newest of them; nil when there is none.
	Newest *Known `json:"newest,omitempty"`
}

// Known is one startup of a Baseline.
type Known struct {
	// Key is "INVOCATION/GENERATION".
	Key  string `json:"key"`
	Good bool   `json:"good,omitempty"`
	// Errors are its fingerprints.
	Errors []string `json:"errors,omitempty"`
}

// Seen counts the startups that had an error.
type Seen struct {
	Good int `json:"good,omitempty"`
	Bad  int `json:"bad,omitempty"`
}

// Kind implements Data.
func (*Baseline) Kind() Kind { return KindBaseline }
