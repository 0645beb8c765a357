package history

import (
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

// upgrade is a good start, and one of a later version that failed.
func upgrade() (good, now Record) {
	phase := func(name string, seconds float64) Phase { return Phase{Phase: name, Seconds: &seconds} }
	good = record("a.service", "01", 0)
	good.Engine, good.Version, good.Model = "eng", "0.16.0rc2.dev313", "/models/m"
	good.Arguments = map[string]string{"tensor_parallel_size": "8", "max_model_len": "8192", "seed": "0"}
	good.Versions = map[string]string{"flashinfer": "0.6.3", "torch": "2.9.0"}
	good.WeightBytes = ptr(uint64(70 << 30))
	good.GPUPlateauBytes = map[int]uint64{0: 73 << 30, 1: 73 << 30, 2: 73 << 30}
	good.Phases = []Phase{phase("spawn", 21), phase("load", 500), phase("compile", 100), phase("cudagraph", 30)}

	now = bad(record("a.service", "02", 60))
	now.Engine, now.Version, now.Model = "eng", "0.16.0rc2.dev344", "/models/m"
	now.Arguments = map[string]string{"tensor_parallel_size": "8", "max_model_len": "16384", "enforce_eager": "True"}
	now.Versions = map[string]string{"flashinfer": "0.6.4", "torch": "2.9.0", "nccl": "2.27"}
	now.WeightBytes = ptr(uint64(73 << 30))
	now.GPUPlateauBytes = map[int]uint64{0: 76 << 30, 1: 76 << 30, 2: 74 << 30}
	now.Phases = []Phase{phase("spawn", 28), phase("load", 800), phase("compile", 20), phase("cudagraph", 2)}
	return good, now
}

func TestNewSince(t *testing.T) {
	good, now := upgrade()
	got := NewSince(&good, &now)
	want := Diff{
		Good:      &Ref{Invocation: "01", Began: day(0)},
		Errors:    []NewError{{Verdict: "cause", Class: "package_mismatch", Count: 8, Fingerprint: "v1:cause"}},
		Engine:    []Change{{"version", "0.16.0rc2.dev313", "0.16.0rc2.dev344"}},
		Packages:  []Change{{"flashinfer", "0.6.3", "0.6.4"}},
		Arguments: []ArgumentChange{{"enforce_eager", nil, ptr("True")}, {"max_model_len", ptr("8192"), ptr("16384")}, {"seed", ptr("0"), nil}},
		// GPU 2 changed by 1.4 %.
		WeightBytes:     &BytesChange{From: 70 << 30, To: 73 << 30},
		GPUPlateauBytes: []BytesChange{{ptr(0), 73 << 30, 76 << 30}, {ptr(1), 73 << 30, 76 << 30}},
		// Spawn took 7 s more, and cudagraph was cut short by the failure.
		Phases:      []PhaseChange{{"load", 500, 800}, {"compile", 100, 20}},
		NotCompared: []string{},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
	var b strings.Builder
	if err := got.WriteText(&b); err != nil {
		t.Fatal(err)
	}
	const text = `new since the last good start (2026-03-01 12:00:00 UTC):
  error     package_mismatch (8 times)
  version   0.16.0rc2.dev313 -> 0.16.0rc2.dev344
  package   flashinfer 0.6.3 -> 0.6.4
  argument  enforce_eager added: True
  argument  max_model_len 8192 -> 16384
  argument  seed removed, was 0
  weights   70.0 GiB -> 73.0 GiB on each GPU
  memory    73.0 GiB -> 76.0 GiB held once the weights were loaded, on GPU 0, 1
  load      8m20s -> 13m20s
  compile   1m40s -> 20.0s
`
	if diff := cmp.Diff(text, b.String()); diff != "" {
		t.Error(diff)
	}
}

func TestNothingNew(t *testing.T) {
	good, _ := upgrade()
	now := good
	now.Invocation = "02"
	d := NewSince(&good, &now)
	if !d.Empty() || len(d.NotCompared) != 0 || d.Incomplete {
		t.Errorf("%+v", d)
	}
	var b strings.Builder
	if err := d.WriteText(&b); err != nil || b.String() != "nothing new since the last good start (2026-03-01 12:00:00 UTC)\n" {
		t.Errorf("%q, %v", b.String(), err)
	}
	// Every list is there for programs, also an empty one.
	js, err := json.Marshal(NewSince(nil, &now))
	const want = `{"good":null,"errors":[],"engine":[],"packages":[],"arguments":[],"weight_bytes":null,"gpu_plateau_bytes":[],"phases":[],"not_compared":[],"incomplete":false}`
	if err != nil || string(js) != want {
		t.Errorf("%s, %v", js, err)
	}
	b.Reset()
	if err := NewSince(nil, &now).WriteText(&b); err != nil || !strings.Contains(b.String(), "no earlier good start is known") {
		t.Errorf("%q, %v", b.String(), err)
	}
}

// TestUnknownIsNoChange leaves out what one of the two starts did not tell.
func TestUnknownIsNoChange(t *testing.T) {
	good, now := upgrade()
	now.Engine, now.Version, now.Model = "", "", ""
	now.Arguments, now.Versions, now.WeightBytes, now.GPUPlateauBytes = nil, nil, nil, nil
	now.Phases, now.Findings, now.Gaps = nil, nil, 1
	for name, d := range map[string]Diff{"now": NewSince(&good, &now), "good": NewSince(&now, &good)} {
		d.Errors = nil
		if !d.Empty() {
			t.Errorf("%s lacks everything: %+v", name, d)
		}
		want := []string{"version", "model", "packages", "arguments", "weights", "gpu memory"}
		if diff := cmp.Diff(want, d.NotCompared); diff != "" {
			t.Errorf("%s lacks everything: %s", name, diff)
		}
		var b strings.Builder
		if err := d.WriteText(&b); err != nil {
			t.Fatal(err)
		}
		for _, want := range []string{"not compared", "version, model, packages", "has gaps"} {
			if !strings.Contains(b.String(), want) {
				t.Errorf("%s: the text lacks %q:\n%s", name, want, b.String())
			}
		}
	}
	// What neither tells is not worth a word.
	if d := NewSince(&now, &now); len(d.NotCompared) != 0 {
		t.Errorf("not compared: %v", d.NotCompared)
	}
	good, now = upgrade()
	now.AttachedLate = true
	if d := NewSince(&good, &now); len(d.Phases) != 0 || !cmp.Equal(d.NotCompared, []string{"phases"}) || !d.Incomplete {
		t.Errorf("attached late: %+v", d)
	}
}

func TestNewErrors(t *testing.T) {
	f := func(verdict, print string) Finding {
		return Finding{Verdict: verdict, Class: "unknown", Exception: "E", Message: " a\tb\x1b[0m\nc", Process: "P", Count: 1, Fingerprint: print}
	}
	good, now := upgrade()
	now.Findings = []Finding{
		f("benign", "v1:b"), f("symptom", "v1:s"), f("suspect", "v1:u"), f("cause", "v1:c"), f("suspect", "v1:noise"), f("suspect", ""),
	}
	var got []string
	for _, e := range NewSince(&good, &now).Errors {
		got = append(got, e.Verdict+" "+e.Fingerprint)
	}
	if diff := cmp.Diff([]string{"cause v1:c", "suspect v1:u", "symptom v1:s", "benign v1:b"}, got); diff != "" {
		t.Error(diff)
	}
	for range maxNewErrors {
		now.Findings = append(now.Findings, f("suspect", "v1:more"))
	}
	var b strings.Builder
	if err := NewSince(&good, &now).WriteText(&b); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{
		"  error     unknown in P: E: a b [0m\n", "  errors    and 2 more\n", "  symptoms  1 new, set off by a failure\n", "  benign    1 new, known to be harmless\n",
	} {
		if !strings.Contains(b.String(), want) {
			t.Errorf("the text lacks %q:\n%s", want, b.String())
		}
	}
	// A message as Python prints it names the exception already.
	if got := (&NewError{Class: "c", Exception: "E", Message: "E: m", Count: 1}).text(); got != "c: E: m" {
		t.Error(got)
	}
	// After an upgrade of startupd itself fingerprints may be of another kind.
	now.Findings = []Finding{f("cause", "v2:c")}
	if d := NewSince(&good, &now); len(d.Errors) != 0 || !cmp.Equal(d.NotCompared, []string{"errors"}) {
		t.Errorf("%+v", d)
	}
}

func TestSinceTakesTheLastGoodStart(t *testing.T) {
	oldest := record("a.service", "01", 0)
	oldest.Findings = []Finding{{Verdict: "suspect", Fingerprint: "v1:cause"}}
	lastGood := record("a.service", "02", 1)
	failed := bad(record("a.service", "03", 2))
	now := bad(record("a.service", "04", 3))
	itself := now
	itself.Outcome = "serving"
	later := record("a.service", "05", 9)
	d := Since([]Record{oldest, lastGood, failed, itself, later}, &now)
	if d.Good == nil || d.Good.Invocation != "02" {
		t.Fatalf("compared with %+v", d.Good)
	}
	// The oldest good start had the error: it is not new.
	if len(d.Errors) != 0 {
		t.Errorf("new: %+v", d.Errors)
	}
	if d := Since([]Record{failed}, &now); d.Good != nil {
		t.Errorf("compared with a failed start: %+v", d.Good)
	}
}

func TestListing(t *testing.T) {
	good, now := upgrade()
	skipped := record("a.service", "03", 120)
	skipped.Phases = []Phase{{Phase: "spawn", Seconds: ptr(30.0)}, {Phase: "compile", Skipped: true}, {Phase: "cudagraph"}}
	skipped.ServingEnded, skipped.ServingEndReason, skipped.Seconds = day(1), "killed", nil
	one := NewListing("a.service", []Record{good, now, skipped}, 2)
	l := Listing{Schema: Schema, Targets: []TargetListing{one, NewListing("b.service", []Record{good}, 0)}}
	var b strings.Builder
	if err := l.WriteText(&b); err != nil {
		t.Fatal(err)
	}
	const want = `a.service
  BEGAN (UTC)          OUTCOME          TOOK   SPAWN  LOAD    COMPILE  CUDAGRAPH  VERSION           ROOT CAUSE
  2026-03-01 13:00:00  failed           30.0s  28.0s  13m20s  20.0s    2.0s       0.16.0rc2.dev344  package_mismatch
      new since the last good start (2026-03-01 12:00:00 UTC):
        error     package_mismatch (8 times)
        version   0.16.0rc2.dev313 -> 0.16.0rc2.dev344
        package   flashinfer 0.6.3 -> 0.6.4
        argument  enforce_eager added: True
        argument  max_model_len 8192 -> 16384
        argument  seed removed, was 0
        weights   70.0 GiB -> 73.0 GiB on each GPU
        memory    73.0 GiB -> 76.0 GiB held once the weights were loaded, on GPU 0, 1
        load      8m20s -> 13m20s
        compile   1m40s -> 20.0s
  2026-03-01 14:00:00  serving, killed  -      30.0s  -       skipped  -          -                 -

b.service
  BEGAN (UTC)          OUTCOME  TOOK   SPAWN  LOAD   COMPILE  CUDAGRAPH  VERSION           ROOT CAUSE
  2026-03-01 12:00:00  serving  30.0s  21.0s  8m20s  1m40s    30.0s      0.16.0rc2.dev313  -
`
	if diff := cmp.Diff(want, b.String()); diff != "" {
		t.Error(diff)
	}
	js, err := json.Marshal(one.Startups[1])
	if err != nil || !strings.Contains(string(js), `"invocation":"03"`) || !strings.Contains(string(js), `"new":{"good":{"invocation":"01",`) {
		t.Errorf("%s, %v", js, err)
	}
}

func TestLongMessagesAreCut(t *testing.T) {
	if got := []rune(line(strings.Repeat("ü", 500))); len(got) != maxText || !strings.HasSuffix(string(got), "...") {
		t.Errorf("%d runes", len(got))
	}
	if got := took(ptr((90 * time.Minute).Seconds())); got != "1h30m0s" {
		t.Error(got)
	}
}
