package profile

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
)

// A record that is remembered is the one that was read, whoever says it.
func TestMemoChangesNothing(t *testing.T) {
	p := builtinSet(t).Profile("vllm")
	lines := benchLines(t)
	for _, process := range []string{"", "(Worker_TP0 pid=7) ", "(APIServer pid=9) "} {
		for _, level := range []string{"", "INFO 01-02 10:00:00 [a.py:1] ", "ERROR 01-02 10:00:00 [a.py:1] "} {
			lines = append(lines, process+level+"RuntimeError: CUDA error: out of memory", process+level+"Loading safetensors checkpoint shards:  25% Completed | 1/4 [00:01<00:03,  1.10s/it]")
		}
	}
	read := func(s *Scanner, line string) (out []Record) {
		s.Scan(line, func(r *Record) {
			if r.Rule != nil {
				r.Capture("version")
			}
			out = append(out, *r)
		})
		return out
	}
	warm := p.NewScanner()
	for range 4 {
		for _, line := range lines {
			cold := p.NewScanner()
			cold.memo.entries = nil
			got, want := read(warm, line), read(cold, line)
			if d := cmp.Diff(want, got, cmpopts.IgnoreUnexported(Record{}), cmp.Comparer(func(a, b *Rule) bool { return a == b })); d != "" {
				t.Fatalf("%q (-first +again): %s", line, d)
			}
		}
	}
	kept := 0
	for _, e := range warm.memo.entries {
		if e.kept {
			kept++
		}
	}
	if kept == 0 {
		t.Error("nothing is remembered")
	}
}
