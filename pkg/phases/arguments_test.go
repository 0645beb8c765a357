package phases

import (
	"fmt"
	"strings"
	"testing"
	"testing/fstest"

	"github.com/google/go-cmp/cmp"

	"github.com/startupd/startupd/pkg/profile"
)

func TestParseArguments(t *testing.T) {
	for _, c := range []struct {
		name, text string
		want       map[string]string
	}{
		{"a dict", `{'model': 'acme/tiny-1b', 'port': 8001, 'enforce_eager': True}`, map[string]string{"model": "acme/tiny-1b", "port": "8001", "enforce_eager": "True"}},
		{"a namespace", `Namespace(model='acme/tiny-1b', port=8001, host=None)`, map[string]string{"model": "acme/tiny-1b", "port": "8001", "host": "None"}},
		{"nested values keep their form", `{'a': [1, 2], 'b': {'x': 'y, z', 'n': (1, 2)}, 'c': 3}`, map[string]string{"a": "[1, 2]", "b": "{'x': 'y, z', 'n': (1, 2)}", "c": "3"}},
		{"commas and brackets in strings", `{'a': 'x, }y', 'b': "it's, (so"}`, map[string]string{"a": "x, }y", "b": "it's, (so"}},
		{"an escaped quote", `{'a': 'it\'s, so', 'b': 1}`, map[string]string{"a": `it\'s, so`, "b": "1"}},
		{"an equals sign in a value", `Namespace(a='x=y', b=Foo(c=1, d=2))`, map[string]string{"a": "x=y", "b": "Foo(c=1, d=2)"}},
		{"text after the end", `{'a': 1} and more, 'b': 2`, map[string]string{"a": "1"}},
		{"cut in the middle", `{'a': 1, 'b': 'un`, map[string]string{"a": "1", "b": "'un"}},
		{"an empty dict", `{}`, nil},
		{"an empty namespace", `Namespace()`, nil},
		{"neither", `--model acme/tiny-1b`, nil},
		{"nothing", ``, nil},
	} {
		if diff := cmp.Diff(c.want, parseArguments(c.text)); diff != "" {
			t.Errorf("%s: want (-), got (+):\n%s", c.name, diff)
		}
	}
}

func TestParseArgumentsMasksSecrets(t *testing.T) {
	secret := "hf_" + strings.Repeat("aB3d", 9)
	got := parseArguments(`{'api_key': ['` + secret + `'], 'hf_token': '` + secret + `', 'model': 'acme/tiny-1b'}`)
	if text := fmt.Sprint(got); strings.Contains(text, secret) || got["model"] != "acme/tiny-1b" {
		t.Errorf("arguments are %v", got)
	}
}

func TestParseArgumentsIsBounded(t *testing.T) {
	var b strings.Builder
	b.WriteString("{")
	for i := range 5 * maxArguments {
		fmt.Fprintf(&b, "'key%d%s': '%s', ", i, strings.Repeat("k", 1000), strings.Repeat("v", 1000))
	}
	got := parseArguments(b.String() + "}")
	if len(got) > maxArguments || len(got) < 1 {
		t.Errorf("%d arguments", len(got))
	}
	for k, v := range got {
		if len(k) > maxArgument || len(v) > maxArgument {
			t.Errorf("an argument of %d and %d bytes", len(k), len(v))
		}
	}
}

// FuzzParseArguments takes any text: no panic, and what comes back is bounded.
func FuzzParseArguments(f *testing.F) {
	for _, seed := range []string{`{'a': [1, 'x\', {'}]}`, `Namespace(a=")", b=(`, "{", "Namespace(", `{'a'}`, `{"\`} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, text string) {
		for k, v := range parseArguments(text) {
			if k == "" || len(k) > maxArgument || len(v) > maxArgument {
				t.Errorf("%q: %q", k, v)
			}
		}
	})
}

// argsProfile is an engine's whose log tells arguments and versions.
const argsProfile = `
schema: startupd-profile/v1
engine: acme
phases: [spawn, load, compile, cudagraph, serving]
line:
  headers: [{kind: log, shape: '{level} {msg}'}]
  levels: {INFO: info}
quiet: 100s
classes: {unknown: {meaning: nothing names a cause}}
rules:
  - {id: args, role: fact, kind: log, regex: '^arguments: (?P<args>.*)$', example: 'arguments: {}', captures: {args: '{}'}}
  - {id: versions, role: fact, kind: log, regex: '^torch (?P<torch_version>\S+), cuda (?P<cuda_version>\S+)$', example: 'torch 2.8, cuda 12.9', captures: {torch_version: '2.8', cuda_version: '12.9'}}
`

// The first line that tells a thing counts, of each startup its own.
func TestArgumentsAndVersionsOfAStartup(t *testing.T) {
	set, err := new(profile.Set).Extend(fstest.MapFS{"acme.yaml": {Data: []byte(argsProfile)}})
	if err != nil {
		t.Fatal(err)
	}
	s := newScript(t, func(c *Config) { c.Profiles = set.Profiles() })
	s.line(1, "INFO arguments: {'model': 'acme/tiny-1b', 'port': 8001}")
	s.line(2, "INFO torch 2.8.0, cuda 12.9")
	s.line(3, "INFO arguments: {'model': 'acme/draft'}")
	s.line(4, "INFO torch 2.7.1, cuda 12.8")
	if diff := cmp.Diff(map[string]string{"model": "acme/tiny-1b", "port": "8001"}, s.startup().Arguments); diff != "" {
		t.Error(diff)
	}
	if diff := cmp.Diff(map[string]string{"torch": "2.8.0", "cuda": "12.9"}, s.startup().Versions); diff != "" {
		t.Error(diff)
	}
	s.inv = other
	s.line(100, "INFO hello")
	if st := s.startup(); st.Arguments != nil || st.Versions != nil {
		t.Errorf("the next startup has %v and %v, want none", st.Arguments, st.Versions)
	}
}
