package profile

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/fstest"
	"time"
)

// acme returns a set with testdata/base.yaml alone.
func acme(t testing.TB) *Set {
	t.Helper()
	data, err := os.ReadFile("testdata/base.yaml")
	if err != nil {
		t.Fatal(err)
	}
	set, err := new(Set).Extend(fstest.MapFS{"acme.yaml": {Data: data}})
	if err != nil {
		t.Fatal(err)
	}
	return set
}

func TestRefused(t *testing.T) {
	files, err := filepath.Glob("testdata/refused/*.yaml")
	if err != nil || len(files) == 0 {
		t.Fatal("no cases", err)
	}
	set := acme(t)
	for _, file := range files {
		data, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		first, _, _ := strings.Cut(string(data), "\n")
		want := "profile bad.yaml: " + strings.TrimPrefix(first, "# want: ")
		out, err := set.Extend(fstest.MapFS{"bad.yaml": {Data: data}})
		if err == nil || strings.Join(strings.Fields(err.Error()), " ") != want {
			t.Errorf("%s:\n got %v\nwant %s", file, err, want)
		}
		if out != nil {
			t.Errorf("%s: a set with a fault in it", file)
		}
	}
}

func TestExtend(t *testing.T) {
	old := acme(t)
	set, err := old.Extend(fstest.MapFS{
		"10-more.yaml": {Data: []byte(`
schema: startupd-profile/v1
extends: acme
detect: ['\bacme-next\b']
port: 7001
steps: {load/weights: {quiet: 10m}}
rules:
  - {id: early, role: fact, kind: log, regex: '^Reading it', example: Reading it all}
  - {id: took, role: end, kind: log, phase: load, step: weights, regex: '^Took (?P<took_s>\d+) s', example: Took 3 s, captures: {took_s: '3'}}
`)},
		"20-other.yml": {Data: []byte(`
schema: startupd-profile/v1
engine: bare
phases: [spawn, serving]
line: {}
rules:
  - {id: up, role: ready, phase: serving, regex: '^up$', example: up}
`)},
		"notes.txt":  {Data: []byte("not a profile")},
		"sub/x.yaml": {Data: []byte("not at the root")},
	})
	if err != nil {
		t.Fatal(err)
	}
	if n := len(set.Profiles()); n != 2 || len(old.Profiles()) != 1 {
		t.Fatalf("%d profiles, and %d in the old set", n, len(old.Profiles()))
	}
	p := set.Profile("acme")
	for line, want := range map[string]string{
		"I 10:00:00 Reading it": "early", "I 10:00:00 Reading m2": "begin", "I 10:00:00 Took 5 s": "took", "I 10:00:00 Took 5": "",
	} {
		if got := got(&p.Match(line)[0]).Rule; got != want {
			t.Errorf("%s: rule %q, want %q", line, got, want)
		}
	}
	if got := got(&old.Profile("acme").Match("I 10:00:00 Reading it")[0]).Rule; got != "begin" {
		t.Errorf("the old set changed: rule %q", got)
	}
	if !p.DetectCommand("acme-next") || !p.DetectCommand("acme serve") || p.DefaultPort != 7001 || p.Health.Path != "/healthz" {
		t.Errorf("detection, port or health: %d %+v", p.DefaultPort, p.Health)
	}
	if got := got(&set.Profile("bare").Match("up")[0]).Rule; got != "up" {
		t.Errorf("bare: rule %q", got)
	}
	if set.Profile("nobody") != nil {
		t.Error("a profile of an unknown engine")
	}
}

func TestReplace(t *testing.T) {
	set, err := acme(t).Extend(fstest.MapFS{"a.yaml": {Data: []byte("schema: startupd-profile/v1\nengine: acme\nphases: [serving]\nline: {}\n")}})
	if err != nil {
		t.Fatal(err)
	}
	if p := set.Profile("acme"); len(p.Rules) != 0 || p.HasPhase("load") {
		t.Errorf("not replaced: %d rules, phases %v", len(p.Rules), p.Phases)
	}
}

func TestSteps(t *testing.T) {
	p := acme(t).Profile("acme")
	for _, c := range []struct {
		phase, step string
		want        StepInfo
	}{
		{"load", "weights", StepInfo{300 * time.Second, true}},
		{"load", "other", StepInfo{200 * time.Second, false}},
		{"load", "", StepInfo{200 * time.Second, false}},
		{"spawn", "args", StepInfo{100 * time.Second, false}},
	} {
		if got := p.Step(c.phase, c.step); got != c.want {
			t.Errorf("Step(%q, %q) = %+v, want %+v", c.phase, c.step, got, c.want)
		}
	}
}

func TestOversize(t *testing.T) {
	big := fstest.MapFS{"big.yaml": {Data: make([]byte, maxFile+1)}}
	if _, err := acme(t).Extend(big); err == nil || !strings.Contains(err.Error(), "big.yaml: is 4194305 bytes long") {
		t.Errorf("got %v", err)
	}
	long := "schema: startupd-profile/v1\nextends: acme\nrules:\n  - {id: a, role: fact, regex: '" + strings.Repeat("a", maxRegex+1) + "', example: a}\n"
	if _, err := acme(t).Extend(fstest.MapFS{"l.yaml": {Data: []byte(long)}}); err == nil || !strings.Contains(err.Error(), `rule "a": regex of 1501 bytes; 1500 are the most`) {
		t.Errorf("got %v", err)
	}
}
