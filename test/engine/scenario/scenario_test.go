package scenario

import (
	"path/filepath"
	"strings"
	"testing"
	"time"
)

func TestFiles(t *testing.T) {
	paths, err := filepath.Glob("../scenarios/*.yaml")
	if err != nil || len(paths) == 0 {
		t.Fatalf("no scenarios: %v", err)
	}
	for _, path := range paths {
		f, err := Load(path)
		if err != nil {
			t.Error(err)
			continue
		}
		if want := strings.TrimSuffix(filepath.Base(path), ".yaml"); f.Name != want {
			t.Errorf("%s: name is %q", path, f.Name)
		}
	}
}

const small = `
name: small
format: {prefix: "({name} pid={pid}) ", log: "{level} {time} [{src}] {text}", time: "15:04:05"}
gpus: {count: 2, total: 10GiB, idle: 1MiB}
starts:
  - name: only
    processes:
      - {name: "W{i}", count: 2, title: "T{i}", begin: 2s}
      - {name: M, main: true}
    memory:
      - {by: "W{i}", used: [{at: 2s, bytes: 0}, {at: 4s, bytes: 1GiB}], utilization: [{at: 3s, percent: 50}]}
    script:
      - {at: 3s, stagger: 1s, by: "W{i}", log: {level: INFO, src: a.py, text: "one {i}\ntwo"}}
      - {at: 1s, by: M, say: "port {port}"}
      - {at: 4s, by: M, bare: true, say: "bare {iso}"}
      - {at: 5s, by: M, bar: {until: 7s, total: 2, text: "B {pct}% {n}/{total} [{elapsed}<{remaining}, {rate}]"}}
      - {at: 8s, by: M, bar: {until: 9s, total: 2, redraw: true, text: "R {n}"}}
`

func plan(t *testing.T, text string) *Plan {
	t.Helper()
	f, err := Parse([]byte(text))
	if err != nil {
		t.Fatal(err)
	}
	p, err := f.Plan(0)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

func TestWrites(t *testing.T) {
	p := plan(t, small)
	at := time.Date(2026, 1, 31, 23, 37, 31, 5e6, time.UTC)
	written := func(a Actor) string {
		var b strings.Builder
		for _, w := range a.Writes {
			b.Write(p.Bytes(w, Writer{PID: 7, Port: 80}, at))
		}
		return b.String()
	}
	if len(p.Actors) != 3 || p.Actors[0].Name != "M" || p.Actors[2].Title != "T1" {
		t.Fatalf("actors %+v", p.Actors)
	}
	if got, want := written(p.Actors[2]), "(W1 pid=7) INFO 23:37:31 [a.py] one 1\r\n(W1 pid=7) INFO 23:37:31 [a.py] two\n"; got != want {
		t.Errorf("W1 writes %q, want %q", got, want)
	}
	want := "(M pid=7) port 80\n" +
		"bare 2026-01-31 23:37:31,005\n" +
		"(M pid=7) \rB   0% 0/2 [00:00<?, ?it/s]\n" +
		"(M pid=7) \rB  50% 1/2 [00:01<00:01,  1.00it/s]\n" +
		"(M pid=7) \rB 100% 2/2 [00:02<00:00,  1.00it/s]\n" +
		"(M pid=7) \rB 100% 2/2 [00:02<00:00,  1.00it/s]\n(M pid=7) \n" +
		"(M pid=7) \rR 0\rR 1\rR 2\n"
	if got := written(p.Actors[0]); got != want {
		t.Errorf("M writes\n%q, want\n%q", got, want)
	}
	if a, b := p.Actors[1].Writes[0].At, p.Actors[2].Writes[0].At; a != 3*time.Second || b != 4*time.Second {
		t.Errorf("staggered to %v and %v", a, b)
	}
}

func TestMemory(t *testing.T) {
	p := plan(t, small)
	w := p.Actors[2]
	if w.GPU != 1 || p.Actors[0].GPU != -1 {
		t.Errorf("W1 on GPU %d, M on %d", w.GPU, p.Actors[0].GPU)
	}
	for _, c := range []struct {
		at   time.Duration
		held uint64
		busy int
	}{{0, 0, 0}, {2 * time.Second, 0, 0}, {3 * time.Second, 1 << 29, 50}, {time.Hour, 1 << 30, 50}} {
		if got := w.Held(c.at); got != c.held {
			t.Errorf("held at %v: %d, want %d", c.at, got, c.held)
		}
		if got := w.Busy(c.at); got != c.busy {
			t.Errorf("busy at %v: %d, want %d", c.at, got, c.busy)
		}
	}
}

func TestRefused(t *testing.T) {
	for name, c := range map[string]struct{ old, new, want string }{
		"unknown field":   {"name: small", "nmae: small", "nmae"},
		"no starts":       {small[strings.Index(small, "starts:"):], "", "no starts"},
		"no main":         {", main: true", "", "exactly one process is main"},
		"unknown process": {"by: M, say", "by: X, say", `script item 2: no process "X"`},
		"two kinds":       {"by: M, say", "by: M, log: {text: x}, say", "exactly one of say, log and bar"},
		"bad bar":         {"until: 7s", "until: 5s", "until after its at"},
		"bad size":        {"10GiB", "10GB", "write it like 73.7GiB"},
		"too few GPUs":    {"count: 2, total", "count: 1, total", "on GPU 1 of 1"},
		"fault by KILL":   {"begin: 2s}", "begin: 2s, end: {at: 3s, signal: KILL, fault: true}}", "give signal: BUS"},
		"exit by kernel":  {"begin: 2s}", "begin: 2s, end: {at: 3s, code: 1, allocate: 1GiB}}", "give signal: KILL"},
	} {
		text := strings.Replace(small, c.old, c.new, 1)
		if _, err := Parse([]byte(text)); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: error %v, want %q", name, err, c.want)
		}
	}
}
