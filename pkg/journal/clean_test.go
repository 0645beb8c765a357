package journal

import (
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"
)

func TestCleaner(t *testing.T) {
	long := strings.Repeat("é", LineLimit/2) // exactly the limit
	for _, tc := range []struct {
		name, in string
		want     []CleanLine
	}{
		{"plain", "INFO all is well", []CleanLine{{Text: "INFO all is well"}}},
		{"tab and indent stay", "\t  at frame", []CleanLine{{Text: "\t  at frame"}}},
		{"trailing space goes", "x  \t", []CleanLine{{Text: "x"}}},
		{"blank", "  ", nil},
		{"empty", "", nil},
		{"utf-8", "▄▄ █ version 1", []CleanLine{{Text: "▄▄ █ version 1"}}},
		{"newlines", "a\n\nb\r\nc\n", []CleanLine{{Text: "a"}, {Text: "b"}, {Text: "c"}}},
		{"colours", "\x1b[0;36m(Api pid=1)\x1b[0;0m INFO \x1b[1mok\x1b[m", []CleanLine{{Text: "(Api pid=1) INFO ok"}}},
		{"no escaped colours", "see issue #0331 and #033x", []CleanLine{{Text: "see issue #0331 and #033x"}}},
		{"escaped colours", "#033[31mred#033[0m and #tag", []CleanLine{{Text: "red and #tag"}}},
		{"window title and cursor moves", "\x1b]0;title\x07a\x1b[2Kb\x1b(Bc\x1bM", []CleanLine{{Text: "abc"}}},
		{"unfinished sequences", "a\x1b", []CleanLine{{Text: "a"}}},
		{"unfinished CSI", "a\x1b[31", []CleanLine{{Text: "a31"}}},
		{"NUL, DEL, C1", "a\x00b\x7fc\u0085d", []CleanLine{{Text: "abcd"}}},
		{"invalid UTF-8", "caf\xe9 \xff\xfe", []CleanLine{{Text: "caf\ufffd \ufffd\ufffd"}}},
		{"bar", "load:   0%|   | 0/4\rload:  50%|## | 2/4 [00:01<00:01, 2it/s]\rload: 100%|####| 4/4", []CleanLine{{Text: "load: 100%|####| 4/4", Bar: true}}},
		{"prefix before a bar", "(Worker_TP0 pid=12) \rshards:   0% Completed | 0/2\rshards:  50% Completed | 1/2\r", []CleanLine{{Text: "(Worker_TP0 pid=12) shards:  50% Completed | 1/2", Bar: true}}},
		{"two prefixes", "(Map pid=1, ip=10.0.0.9) (Worker rank=1 pid=2) \rx:  1%|", []CleanLine{{Text: "(Map pid=1, ip=10.0.0.9) (Worker rank=1 pid=2) x:  1%|", Bar: true}}},
		{"prefix stays its own", "(A pid=1) x:  1%| |\r(B pid=2) y:  2%| |", []CleanLine{{Text: "(A pid=1) x:  1%| |", Bar: true}, {Text: "(B pid=2) y:  2%| |", Bar: true}}},
		{"no bar is kept", "(A pid=1) \rWARNING first\rload: 10%|#|\rload: 20%|##|\rERROR last", []CleanLine{
			{Text: "(A pid=1) WARNING first"}, {Text: "(A pid=1) load: 20%|##|", Bar: true}, {Text: "(A pid=1) ERROR last"}}},
		{"other bar begins", "a: 99%|#|\rb:  0%| |", []CleanLine{{Text: "a: 99%|#|", Bar: true}, {Text: "b:  0%| |", Bar: true}}},
		{"count with a rate", "Fetching: 3it [00:01, 2.1it/s]\rFetching: 4it [00:01, 2.2it/s]", []CleanLine{{Text: "Fetching: 4it [00:01, 2.2it/s]", Bar: true}}},
		{"percent in prose", "used 90% of it\rthen more", []CleanLine{{Text: "used 90% of it"}, {Text: "then more"}}},
		{"only a prefix", "(A pid=1) \r", []CleanLine{{Text: "(A pid=1)"}}},
		{"at the limit", long, []CleanLine{{Text: long}}},
		{"over the limit", "a" + long, []CleanLine{{Text: "a" + long[:LineLimit-2], Cut: true}}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			var c Cleaner
			if d := cmp.Diff(tc.want, append([]CleanLine(nil), c.Lines([]byte(tc.in))...)); d != "" {
				t.Errorf("(-want +got):\n%s", d)
			}
		})
	}
}

func FuzzSplit(f *testing.F) {
	for _, s := range []string{"plain", "(A pid=1) \rx: 10%|#|\rx: 20%|##|\nnext", "\x1b[31mred\x1b[0m\xff", "#033[1mx", "a\x1b]0;t\x07b\x1b[", "\u0085\u2028▄"} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, in []byte) {
		keep := append([]byte(nil), in...)
		var c, again Cleaner
		for _, l := range c.Lines(in) {
			switch {
			case !utf8.ValidString(l.Text):
				t.Errorf("%q is no UTF-8", l.Text)
			case l.Text == "" || len(l.Text) > LineLimit:
				t.Errorf("a line of %d bytes", len(l.Text))
			case strings.ContainsFunc(l.Text, func(r rune) bool { return r < ' ' && r != '\t' || r >= 0x7f && r < 0xa0 }):
				t.Errorf("%q has control characters", l.Text)
			}
			// What was cleaned is clean, unless a sequence in its escaped form
			// comes to be by the removal of another.
			if got := again.Lines([]byte(l.Text)); !strings.Contains(l.Text, "#033") && (len(got) != 1 || got[0].Text != l.Text) {
				t.Errorf("%q cleaned again gives %v", l.Text, got)
			}
		}
		if string(keep) != string(in) {
			t.Error("the input was changed")
		}
	})
}

func BenchmarkCleaner(b *testing.B) {
	for name, msg := range map[string]string{
		"plain": "(Worker_TP3 pid=4711) INFO 11-26 01:34:09 [runner.py:2602] Starting to do the work of an entry of ordinary length",
		"bar":   "(Worker_TP3 pid=4711) \rshards:  10% Completed | 1/10 [00:01<00:09,  1.2s/it]\rshards:  20% Completed | 2/10 [00:02<00:08,  1.2s/it]",
	} {
		b.Run(name, func(b *testing.B) {
			var c Cleaner
			in := []byte(msg)
			b.ReportAllocs()
			for b.Loop() {
				c.Lines(in)
			}
		})
	}
}
