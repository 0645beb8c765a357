package phases

import (
	"testing"

	"github.com/startupd/startupd/pkg/event"
)

// What one line costs the core, from scan to state, in the two states that see
// many of them.
func BenchmarkLine(b *testing.B) {
	set, err := builtin()
	if err != nil {
		b.Fatal(err)
	}
	for _, c := range []struct{ name, text string }{
		{"request while serving", `(APIServer pid=100) INFO:     10.0.0.7:51422 - "POST /v1/chat/completions HTTP/1.1" 200 OK`},
		{"stats while serving", "(APIServer pid=100) INFO 03-01 23:59:10 [loggers.py:257] Engine 000: Avg prompt throughput: 1204.1 tokens/s, Avg generation throughput: 386.2 tokens/s, Running: 12 reqs, Waiting: 0 reqs, GPU KV cache usage: 8.1%, Prefix cache hit rate: 41.0%"},
		{"bar while loading", lineBar25},
		{"unknown while loading", "(Worker_TP0 pid=300) INFO 03-01 23:30:21 [some_file.py:12] a line that no rule knows of"},
	} {
		b.Run(c.name, func(b *testing.B) {
			host := NewHost(HostOptions{}, Config{Name: unit, Profiles: set.Profiles()})
			before := lineReady
			if c.text == lineBar25 || c.name == "unknown while loading" {
				before = lineLoad
			}
			host.Apply(event.Event{At: at(0), Target: unit, Data: &event.Line{Text: before, Invocation: first}})
			ev := event.Event{At: at(1), Target: unit, Data: &event.Line{Text: c.text, Invocation: first}}
			b.ReportAllocs()
			for b.Loop() {
				host.Apply(ev)
			}
		})
	}
}

func BenchmarkSnapshot(b *testing.B) {
	set, err := builtin()
	if err != nil {
		b.Fatal(err)
	}
	host := NewHost(HostOptions{}, Config{Name: unit, Profiles: set.Profiles()})
	host.Apply(event.Event{At: at(0), Target: unit, Data: &event.Line{Text: lineReady, Invocation: first}})
	b.ReportAllocs()
	for b.Loop() {
		host.Snapshot()
	}
}
