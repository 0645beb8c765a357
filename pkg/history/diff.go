package history

import (
	"maps"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/startupd/startupd/pkg/phases"
	"github.com/startupd/startupd/pkg/triage"
)

// Below these a difference is the noise of two like starts.
const (
	// bytesRatio is the least relative change of a size.
	bytesRatio = 0.02
	// phaseRatio and phaseSeconds are the least change of a duration; both must be
	// met.
	phaseRatio   = 1.5
	phaseSeconds = 10.0
)

// What a Diff may not have compared.
const (
	ofErrors    = "errors"
	ofArguments = "arguments"
	ofPackages  = "packages"
	ofVersion   = "version"
	ofModel     = "model"
	ofWeights   = "weights"
	ofMemory    = "gpu memory"
	ofPhases    = "phases"
)

// Diff is what is new in a startup since the last good one.
type Diff struct {
	// Good is what it is compared with; nil when no good start is known. Then
	// everything else is empty.
	Good *Ref `json:"good"`
	// Errors are those that no good start had, causes first.
	Errors []NewError `json:"errors"`
	// Engine holds the changes of engine, version and model.
	Engine []Change `json:"engine"`
	// Packages and Arguments are sorted by name.
	Packages  []Change         `json:"packages"`
	Arguments []ArgumentChange `json:"arguments"`
	// WeightBytes is the change of the weights' size on one GPU, GPUPlateauBytes
	// that of the memory held once they were resident; nil and empty when it
	// changed by no more than 2 %.
	WeightBytes     *BytesChange  `json:"weight_bytes"`
	GPUPlateauBytes []BytesChange `json:"gpu_plateau_bytes"`
	// Phases are those that took at least 1.5 times as long or as short, and 10 s
	// more or less.
	Phases []PhaseChange `json:"phases"`
	// NotCompared names what one of the two did not tell, such as "arguments".
	NotCompared []string `json:"not_compared"`
	// Incomplete is true when the evidence of either has holes: what looks new may
	// have been lost before.
	Incomplete bool `json:"incomplete"`
}

// Ref names a startup.
type Ref struct {
	Invocation string `json:"invocation"`
	Generation int    `json:"generation"`
	// Began is zero when not known.
	Began time.Time `json:"began,omitzero"`
}

// NewError is an error that no good start had.
type NewError struct {
	// Verdict is cause, symptom, suspect or benign.
	Verdict     string `json:"verdict"`
	Class       string `json:"class"`
	Exception   string `json:"exception"`
	Message     string `json:"message"`
	Process     string `json:"process"`
	Count       int    `json:"count"`
	Fingerprint string `json:"fingerprint"`
}

// Change is another value of something that both startups tell.
type Change struct {
	Name string `json:"name"`
	From string `json:"from"`
	To   string `json:"to"`
}

// ArgumentChange is an argument given, left out or changed.
type ArgumentChange struct {
	Name string `json:"name"`
	// From and To are nil where the argument was not given.
	From *string `json:"from"`
	To   *string `json:"to"`
}

// BytesChange is another size.
type BytesChange struct {
	// GPU is the index; nil for the weights, which are alike on all.
	GPU  *int   `json:"gpu,omitempty"`
	From uint64 `json:"from"`
	To   uint64 `json:"to"`
}

// PhaseChange is another duration.
type PhaseChange struct {
	Phase       string  `json:"phase"`
	FromSeconds float64 `json:"from_seconds"`
	ToSeconds   float64 `json:"to_seconds"`
}

// NewSince returns what is new in now since good, the last good start; nil means
// that none is known.
func NewSince(good, now *Record) Diff {
	if good == nil {
		return newSince(nil, now)
	}
	return newSince([]*Record{good}, now)
}

// Since returns what is new in now since the last good one of earlier, which is
// in order. No error is new that any good one of them had. What is now itself,
// or began after it, is left out.
func Since(earlier []Record, now *Record) Diff {
	var good []*Record
	for i := range earlier {
		r := &earlier[i]
		later := !r.Began.IsZero() && !now.Began.IsZero() && r.Began.After(now.Began)
		if r.Good() && !later && (r.Target != now.Target || r.identity() != now.identity()) {
			good = append(good, r)
		}
	}
	return newSince(good, now)
}

// newSince compares with good starts, the last one at the end.
func newSince(good []*Record, now *Record) Diff {
	d := Diff{
		Errors: []NewError{}, Engine: []Change{}, Packages: []Change{}, Arguments: []ArgumentChange{},
		GPUPlateauBytes: []BytesChange{}, Phases: []PhaseChange{}, NotCompared: []string{},
	}
	if len(good) == 0 {
		return d
	}
	last := good[len(good)-1]
	d.Good = &Ref{Invocation: last.Invocation, Generation: last.Generation, Began: last.Began}
	d.Incomplete = last.Gaps > 0 || now.Gaps > 0 || last.AttachedLate || now.AttachedLate
	d.errors(good, now)
	d.engine(last, now)
	d.packages(last, now)
	d.arguments(last, now)
	d.memory(last, now)
	d.durations(last, now)
	return d
}

// Empty says that nothing new was found.
func (d *Diff) Empty() bool {
	return len(d.Errors)+len(d.Engine)+len(d.Packages)+len(d.Arguments)+len(d.GPUPlateauBytes)+len(d.Phases) == 0 && d.WeightBytes == nil
}

func (d *Diff) errors(good []*Record, now *Record) {
	// Without a fingerprint an error can't be known again, nor by one that was
	// made in another way.
	known, made := map[string]bool{"": true}, map[string]bool{}
	for _, r := range good {
		for _, f := range r.Findings {
			known[f.Fingerprint] = true
			made[fingerprintVersion(f.Fingerprint)] = true
		}
	}
	other := false
	for _, f := range now.Findings {
		switch {
		case known[f.Fingerprint]:
		case len(made) > 0 && !made[fingerprintVersion(f.Fingerprint)]:
			other = true
		default:
			d.Errors = append(d.Errors, NewError{
				Verdict: f.Verdict, Class: f.Class, Exception: f.Exception, Message: f.Message,
				Process: f.Process, Count: f.Count, Fingerprint: f.Fingerprint,
			})
		}
	}
	if other {
		d.skip(ofErrors, false)
	}
	slices.SortStableFunc(d.Errors, func(a, b NewError) int { return rank(a.Verdict) - rank(b.Verdict) })
}

// fingerprintVersion is the part before the colon; "" when there is none.
func fingerprintVersion(f string) string {
	v, _, ok := strings.Cut(f, ":")
	if !ok {
		return ""
	}
	return v
}

// rank puts what a reader wants to know first.
func rank(verdict string) int {
	order := []triage.Verdict{triage.Cause, triage.Suspect, triage.Symptom, triage.Benign}
	if i := slices.Index(order, triage.Verdict(verdict)); i >= 0 {
		return i
	}
	return len(order)
}

func (d *Diff) engine(good, now *Record) {
	for _, c := range []struct{ what, name, from, to string }{
		{"", "engine", good.Engine, now.Engine},
		{ofVersion, "version", good.Version, now.Version},
		{ofModel, "model", good.Model, now.Model},
	} {
		switch {
		case c.from == "" || c.to == "":
			d.skip(c.what, c.from == "" && c.to == "")
		case c.from != c.to:
			d.Engine = append(d.Engine, Change{Name: c.name, From: c.from, To: c.to})
		}
	}
}

// skip notes that something was not compared. What neither start tells is
// nothing that this engine tells at all.
func (d *Diff) skip(what string, neither bool) {
	if what != "" && !neither {
		d.NotCompared = append(d.NotCompared, what)
	}
}

// packages compares those that both starts tell: a log tells only of some, and
// of others when they fail.
func (d *Diff) packages(good, now *Record) {
	compared := false
	for _, name := range slices.Sorted(maps.Keys(now.Versions)) {
		from, ok := good.Versions[name]
		compared = compared || ok
		if to := now.Versions[name]; ok && from != to {
			d.Packages = append(d.Packages, Change{Name: name, From: from, To: to})
		}
	}
	if !compared {
		d.skip(ofPackages, len(good.Versions)+len(now.Versions) == 0)
	}
}

func (d *Diff) arguments(good, now *Record) {
	if good.Arguments == nil || now.Arguments == nil {
		d.skip(ofArguments, good.Arguments == nil && now.Arguments == nil)
		return
	}
	names := maps.Clone(good.Arguments)
	maps.Copy(names, now.Arguments)
	for _, name := range slices.Sorted(maps.Keys(names)) {
		from, to := given(good.Arguments, name), given(now.Arguments, name)
		if from == nil || to == nil || *from != *to {
			d.Arguments = append(d.Arguments, ArgumentChange{Name: name, From: from, To: to})
		}
	}
}

func given(args map[string]string, name string) *string {
	if v, ok := args[name]; ok {
		return &v
	}
	return nil
}

func (d *Diff) memory(good, now *Record) {
	switch from, to := good.WeightBytes, now.WeightBytes; {
	case from == nil || to == nil:
		d.skip(ofWeights, from == nil && to == nil)
	case resized(*from, *to):
		d.WeightBytes = &BytesChange{From: *from, To: *to}
	}
	if good.GPUPlateauBytes == nil || now.GPUPlateauBytes == nil {
		d.skip(ofMemory, good.GPUPlateauBytes == nil && now.GPUPlateauBytes == nil)
		return
	}
	for _, gpu := range slices.Sorted(maps.Keys(now.GPUPlateauBytes)) {
		from, ok := good.GPUPlateauBytes[gpu]
		if to := now.GPUPlateauBytes[gpu]; ok && resized(from, to) {
			d.GPUPlateauBytes = append(d.GPUPlateauBytes, BytesChange{GPU: &gpu, From: from, To: to})
		}
	}
}

func resized(from, to uint64) bool {
	return math.Abs(float64(to)-float64(from)) > bytesRatio*float64(from)
}

func (d *Diff) durations(good, now *Record) {
	if good.AttachedLate || now.AttachedLate {
		d.skip(ofPhases, false)
		return
	}
	for i, p := range now.Phases {
		from, to := good.seconds(p.Phase), now.seconds(p.Phase)
		if from == nil || to == nil {
			continue
		}
		// The phase that a start died in, or is still in, was cut short.
		cut := i == len(now.Phases)-1 && now.Outcome != string(phases.OutcomeServing)
		slower := *to-*from >= phaseSeconds && *to >= phaseRatio**from
		faster := *from-*to >= phaseSeconds && *from >= phaseRatio**to
		if slower || faster && !cut {
			d.Phases = append(d.Phases, PhaseChange{Phase: p.Phase, FromSeconds: *from, ToSeconds: *to})
		}
	}
}
