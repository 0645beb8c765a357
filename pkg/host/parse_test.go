package host

import (
	"slices"
	"strings"
	"testing"
)

func TestParseCPU(t *testing.T) {
	for name, tc := range map[string]struct {
		parse func(string) (float64, error)
		text  string
		want  float64
		ok    bool
	}{
		"v2":            {parseCPUStat, "usage_usec 8172039\nuser_usec 6210000\nsystem_usec 1962039\n", 8.172039, true},
		"v2, no usage":  {parseCPUStat, "nr_periods 0\n", 0, false},
		"v2, no number": {parseCPUStat, "usage_usec x\n", 0, false},
		"v1":            {parseCPUAcct, "2500000000\n", 2.5, true},
		"v1, empty":     {parseCPUAcct, "", 0, false},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := tc.parse(tc.text)
			if (err == nil) != tc.ok || tc.ok && got != tc.want {
				t.Errorf("got %v, %v; want %v, ok %v", got, err, tc.want, tc.ok)
			}
		})
	}
}

func TestParseIO(t *testing.T) {
	for name, tc := range map[string]struct {
		parse func(string) (ioBytes, error)
		text  string
		want  ioBytes
		ok    bool
	}{
		"v2":                 {parseIOStat, "259:0 rbytes=100 wbytes=10 rios=3 wios=1 dbytes=0 dios=0\n8:0 rbytes=1 wbytes=2 rios=1 wios=1\n", ioBytes{101, 12}, true},
		"v2, nothing yet":    {parseIOStat, "", ioBytes{}, true},
		"v2, bare device":    {parseIOStat, "8:16 \n7:0 253:1 rbytes=1024 wbytes=0 rios=1\n", ioBytes{1024, 0}, true},
		"v2, no number":      {parseIOStat, "8:0 rbytes=x\n", ioBytes{}, false},
		"v1":                 {parseBlkio, "8:0 Read 100\n8:0 Write 10\n8:0 Sync 110\n8:0 Total 110\n8:16 Read 5\n8:16 Write 6\nTotal 121\n", ioBytes{105, 16}, true},
		"v1, nothing yet":    {parseBlkio, "Total 0\n", ioBytes{}, true},
		"v1, cut":            {parseBlkio, "8:0 Read 100\n", ioBytes{}, false},
		"v1, no number":      {parseBlkio, "8:0 Read x\nTotal 0\n", ioBytes{}, false},
		"process":            {parseProcIO, "rchar: 9\nwchar: 9\nread_bytes: 81920\nwrite_bytes: 4096\ncancelled_write_bytes: 7\n", ioBytes{81920, 4096}, true},
		"process, no number": {parseProcIO, "read_bytes: x\nwrite_bytes: 1\n", ioBytes{}, false},
		"process, empty":     {parseProcIO, "", ioBytes{}, false},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := tc.parse(tc.text)
			if (err == nil) != tc.ok || got != tc.want {
				t.Errorf("got %v, %v; want %v, ok %v", got, err, tc.want, tc.ok)
			}
		})
	}
}

func TestParseStat(t *testing.T) {
	const rest = " S 7 40 40 0 -1 4194304 1 2 3 4 100 20 3 4 20 0 1 0 5555 1000 200"
	for name, tc := range map[string]struct {
		text string
		want stat
		ok   bool
	}{
		"plain":          {"42 (cc1plus)" + rest, stat{"cc1plus", 7, 127, 5555}, true},
		"odd name":       {"42 (a) S 1 (b)" + rest, stat{"a) S 1 (b", 7, 127, 5555}, true},
		"negative times": {"42 (x) S 7 40 40 0 -1 4194304 1 2 3 4 100 20 -3 -4 20 0 1 0 5555", stat{"x", 7, 120, 5555}, true},
		"empty":          {"", stat{}, false},
		"no name":        {"42 cc1plus" + rest, stat{}, false},
		"brackets":       {"42 )(" + rest, stat{}, false},
		"cut":            {"42 (x) S 7 40", stat{}, false},
		"bad parent":     {"42 (x)" + strings.Replace(rest, "S 7", "S x", 1), stat{}, false},
		"bad time":       {"42 (x)" + strings.Replace(rest, "100 20", "x 20", 1), stat{}, false},
		"bad start":      {"42 (x)" + strings.Replace(rest, "5555", "x", 1), stat{}, false},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := parseStat(tc.text)
			if (err == nil) != tc.ok || tc.ok && got != tc.want {
				t.Errorf("got %+v, %v; want %+v, ok %v", got, err, tc.want, tc.ok)
			}
		})
	}
}

func TestParsePIDs(t *testing.T) {
	if got, err := parsePIDs("1\n0\n4242\n"); err != nil || !slices.Equal(got, []int{1, 4242}) {
		t.Errorf("got %v, %v", got, err)
	}
	for _, bad := range []string{"x\n", "-1\n", "99999999999\n"} {
		if got, err := parsePIDs(bad); err == nil {
			t.Errorf("%q: got %v, want an error", bad, got)
		}
	}
}

func TestIsCompiler(t *testing.T) {
	for _, yes := range []string{"nvcc", "cicc", "ptxas", "cudafe++", "fatbinary", "cc1plus", "gcc", "gcc-12", "g++-13", "clang++-18", "gcc-12.2", "ninja", "ld"} {
		if !isCompiler(yes) {
			t.Errorf("%s is no compiler", yes)
		}
	}
	for _, no := range []string{"", "-", "-12", "12", "python3", "python3.12", "sleep", "gccx", "gcc-", "gcc-12x", "ldconfig", "12-12"} {
		if isCompiler(no) {
			t.Errorf("%s is a compiler", no)
		}
	}
}
