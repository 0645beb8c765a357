package profile

import (
	"math"
	"regexp/syntax"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// TestGrammar reads lines of an engine that does not exist: nothing in the
// interpreter may depend on a real one.
func TestGrammar(t *testing.T) {
	p := acme(t).Profile("acme")
	for _, c := range []struct {
		line string
		want []wantRecord
	}{
		{"<acmed:12> I 10:00:00 Reading m1", []wantRecord{{Process: "acmed", PID: 12, Kind: "log", Level: "info", Known: true, Message: "Reading m1", Rule: "begin", Captures: map[string]string{"model": "m1"}}}},
		{"<acmed:12><acmew:13> x", []wantRecord{{Message: "<acmed:12>"}, {Process: "acmew", PID: 13, Known: true, Message: "x"}}},
		{"<acmed:12> <acmew:13> x", []wantRecord{{Process: "acmew", PID: 13, Known: true, Message: "x"}}},
		{"<acmed:12> ...|>E 10:00:00 disk full", []wantRecord{
			{Process: "acmed", PID: 12, Known: true, Message: "...|>"},
			{Kind: "log", Level: "error", Known: true, Message: "disk full", Rule: "full"},
		}},
		{"gluedE 10:00:00 disk full", []wantRecord{{Kind: "log", Level: "error", Known: true, Message: "disk full", Rule: "full"}}},
		{"I 10:00:00 disk full", []wantRecord{{Kind: "log", Level: "info", Known: true, Message: "disk full"}}},
		{"* disk full", []wantRecord{{Kind: "bare", Known: true, Message: "disk full", Rule: "full"}}},
		{"<acmed:12> [acme w2] x", []wantRecord{{Process: "acme w2", Kind: "tag", Known: true, Message: "x"}}},
		{"disk full", []wantRecord{{Message: "disk full", Rule: "full"}}},
		{"<acmed:99999999999> x", []wantRecord{{Message: "<acmed:99999999999> x"}}},
		{"I 10:00:00", []wantRecord{{Kind: "log", Level: "info", Known: true}}},
		{"I 10:00:0", []wantRecord{{Message: "I 10:00:0"}}},
		{"X 10:00:00 x", []wantRecord{{Message: "X 10:00:00 x"}}},
		{"", []wantRecord{{}}},
	} {
		var have []wantRecord
		for _, r := range p.Match(c.line) {
			have = append(have, got(&r))
		}
		if diff := cmp.Diff(c.want, have); diff != "" {
			t.Errorf("%q (-want +got)\n%s", c.line, diff)
		}
	}
}

func TestNumbers(t *testing.T) {
	p := acme(t).Profile("acme")
	for _, c := range []struct {
		line, name string
		want       float64
	}{
		{"I 10:00:00 Weights: 2 MiB", "weights", 2 << 20},
		{"I 10:00:00 Weights: 1.5 GB", "weights", 1.5e9},
		{"I 10:00:00 Weights: 3 parsecs", "weights", 3},
		{"I 10:00:00 Took 1500", "took_ms", 1.5},
		{"I 10:00:00 Up at 192.0.2.1:7000", "port", 7000},
		{"I 10:00:00 Took 1500", "weights", math.NaN()},
		{"I 10:00:00 nothing", "weights", math.NaN()},
	} {
		r := p.Match(c.line)[0]
		got, ok := r.Number(c.name)
		if want := !math.IsNaN(c.want); ok != want || ok && math.Abs(got-c.want) > 1e-9*c.want {
			t.Errorf("%q: %s = %v, %v; want %v", c.line, c.name, got, ok, c.want)
		}
	}
}

func TestWithoutCommas(t *testing.T) {
	for in, want := range map[string]string{"1,326,336": "1326336", "12": "12", "1,2": "1,2", "a,bcd": "a,bcd", ",123": ",123", "1234,567": "1234,567"} {
		if got := withoutCommas(in); got != want {
			t.Errorf("%q: got %q, want %q", in, got, want)
		}
	}
}

func TestSplitAddr(t *testing.T) {
	for addr, want := range map[string][2]string{
		"http://0.0.0.0:8000": {"0.0.0.0", "8000"}, "https://[::1]:1/x": {"::1", "1"}, "host:80": {"host", "80"},
		"unix:/run/x": {}, "host": {}, "host:": {}, "": {},
	} {
		host, port := splitAddr(addr)
		if got := [2]string{host, port}; got != want {
			t.Errorf("%q: got %q, want %q", addr, got, want)
		}
	}
}

func TestRequired(t *testing.T) {
	for _, c := range []struct {
		regex, want string
	}{
		{`^Hello (?P<x>\d+)`, "^Hello "},
		{`^(?:Hello|Good) day`, "^Good day|Hello day"},
		{`^Hell?o day`, "^Hello day|Helo day"},
		{`\d+ is not (?:un)?likely`, " is not likely| is not unlikely"},
		{`(?:foo|barbar) \d+ bazzz`, " bazzz"},
		{`foo|bar(?:x|y)`, "barx|bary|foo"},
		{`foo|\d+`, ""},
		{`(?i)hello`, ""},
		{`[ab]c+d`, ""},
		{`(?:abc){2}x*`, "abcabc"},
		{`^.*this is a rather long text`, "this is a rather"},
		{`x?`, ""},
	} {
		re, err := syntax.Parse(c.regex, syntax.Perl)
		if err != nil {
			t.Fatal(err)
		}
		lit := required(re)
		got := strings.Join(lit.set, "|")
		if lit.anchored {
			got = "^" + got
		}
		if got != c.want {
			t.Errorf("%s: got %q, want %q", c.regex, got, c.want)
		}
	}
}

func TestNeedle(t *testing.T) {
	for _, c := range []struct {
		text, s string
		want    int
	}{
		{" pid=", "a pid=1", 1}, {" pid=", "pid= =", -1}, {"/s]", "x]/s]", 2}, {"aa", "baa", 1}, {"aa", "", -1}, {"=x", "==x", 1},
	} {
		if got := newNeedle(c.text).index(c.s); got != c.want {
			t.Errorf("%q in %q: got %d, want %d", c.text, c.s, got, c.want)
		}
	}
}
