package host

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/startupd/startupd/pkg/event"
)

const group = "/system.slice/llm.service"

// tree is a cgroup root and a procfs made by a test: path to content. A nil
// content removes what is there.
type tree map[string]*string

func ptr[T any](v T) *T { return &v }

func (tr tree) write(t testing.TB, root string) {
	t.Helper()
	for path, text := range tr {
		full := filepath.Join(root, path)
		if text == nil {
			if err := os.RemoveAll(full); err != nil {
				t.Fatal(err)
			}
			continue
		}
		if err := os.MkdirAll(filepath.Dir(full), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(full, []byte(*text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
}

// procStat is /proc/PID/stat of a process that used ticks of CPU time.
func procStat(pid int, comm string, parent, ticks, start int) *string {
	return ptr(fmt.Sprintf("%d (%s) S %d 1 1 0 -1 4194304 0 0 0 0 %d 0 0 0 20 0 1 0 %d 0 0\n", pid, comm, parent, ticks, start))
}

func procIO(read, write int) *string {
	return ptr(fmt.Sprintf("rchar: 0\nread_bytes: %d\nwrite_bytes: %d\n", read, write))
}

// processes is a main process, a worker with a compiler, and a stranger.
func processes() tree {
	return tree{
		"proc/1/stat":  procStat(1, "systemd", 0, 9999, 1),
		"proc/10/stat": procStat(10, "python3", 1, 100, 1000), "proc/10/io": procIO(10, 1),
		"proc/11/stat": procStat(11, "python3", 10, 200, 1001), "proc/11/io": procIO(20, 2),
		"proc/12/stat": procStat(12, "cc1plus", 11, 50, 1002), "proc/12/io": procIO(30, 3),
		"proc/99/stat": procStat(99, "gcc", 1, 7000, 900), "proc/99/io": procIO(5000, 500),
		"proc/self/stat": procStat(99, "gcc", 1, 7000, 900),
	}
}

func v2() tree {
	return tree{
		"cg/cgroup.procs":                       ptr("1\n99\n"),
		"cg" + group + "/cgroup.procs":          ptr("10\n"),
		"cg" + group + "/workers/cgroup.procs":  ptr("11\n12\n"),
		"cg" + group + "/.control/cgroup.procs": ptr("99\n"),
		"cg" + group + "/cpu.stat":              ptr("usage_usec 7500000\n"),
		"cg" + group + "/io.stat":               ptr("8:0 rbytes=4000 wbytes=300 rios=1 wios=1\n"),
	}
}

func v1() tree {
	return tree{
		"cg/systemd" + group + "/cgroup.procs":                  ptr("10\n11\n12\n"),
		"cg/cpu,cpuacct" + group + "/cpuacct.usage":             ptr("6000000000\n"),
		"cg/blkio" + group + "/blkio.throttle.io_service_bytes": ptr("8:0 Read 70\n8:0 Write 7\nTotal 77\n"),
		"cg/unified/system.slice/other.service/cgroup.procs":    ptr("99\n"),
	}
}

func with(trees ...tree) tree {
	all := tree{}
	for _, tr := range trees {
		maps.Copy(all, tr)
	}
	return all
}

func without(tr tree, paths ...string) tree {
	all := maps.Clone(tr)
	for _, p := range paths {
		delete(all, p)
	}
	return all
}

func TestVitals(t *testing.T) {
	full := event.HostSample{
		CPUSeconds: ptr(7.5), ReadBytes: ptr(uint64(4000)), WriteBytes: ptr(uint64(300)),
		Processes: ptr(3), Compilers: ptr(1),
	}
	byProc := event.HostSample{
		CPUSeconds: ptr(3.5), ReadBytes: ptr(uint64(60)), WriteBytes: ptr(uint64(6)),
		Processes: ptr(3), Compilers: ptr(1),
	}
	unit := Target{ControlGroup: group, MainPID: 10}
	for name, tc := range map[string]struct {
		files  tree
		target Target
		// want is nil where there is no sample.
		want  *event.HostSample
		state string
		up    bool
	}{
		"cgroup v2": {with(v2(), processes()), unit, &full, StateUp, true},
		"v2, no I/O accounting": {
			without(with(v2(), processes()), "cg"+group+"/io.stat", "proc/10/io", "proc/11/io", "proc/12/io"), unit,
			&event.HostSample{CPUSeconds: ptr(7.5), Processes: ptr(3), Compilers: ptr(1)}, StateNoIO, true,
		},
		"v2, I/O of the processes": {
			without(with(v2(), processes()), "cg"+group+"/io.stat"), unit,
			&event.HostSample{CPUSeconds: ptr(7.5), ReadBytes: ptr(uint64(60)), WriteBytes: ptr(uint64(6)), Processes: ptr(3), Compilers: ptr(1)}, StateUp, true,
		},
		"cgroup v1": {
			with(v1(), processes()), unit,
			&event.HostSample{CPUSeconds: ptr(6.0), ReadBytes: ptr(uint64(70)), WriteBytes: ptr(uint64(7)), Processes: ptr(3), Compilers: ptr(1)}, StateUp, true,
		},
		"hybrid": {
			with(v1(), processes(), tree{
				"cg/unified" + group + "/cgroup.procs": ptr("10\n"),
				"cg/unified" + group + "/cpu.stat":     ptr("usage_usec 6500000\n"),
			}), unit,
			&event.HostSample{CPUSeconds: ptr(6.5), ReadBytes: ptr(uint64(70)), WriteBytes: ptr(uint64(7)), Processes: ptr(3), Compilers: ptr(1)}, StateUp, true,
		},
		"v1 without controllers": {
			with(tree{"cg/systemd" + group + "/cgroup.procs": ptr("10\n11\n12\n")}, processes()), unit, &byProc, StateUp, true,
		},
		"no cgroup":         {processes(), unit, &byProc, StateNoCgroup, true},
		"main PID alone":    {with(v2(), processes()), Target{MainPID: 10}, &byProc, StateNoCgroup, true},
		"root group":        {with(v2(), processes()), Target{ControlGroup: "/", MainPID: 10}, &byProc, StateNoCgroup, true},
		"group out of tree": {with(v2(), processes()), Target{ControlGroup: "/x/../system.slice/llm.service", MainPID: 10}, &byProc, StateNoCgroup, true},
		"stopped":           {processes(), Target{}, nil, StateIdle, true},
		"main process gone": {processes(), Target{ControlGroup: group, MainPID: 4242}, nil, StateIdle, true},
		"empty cgroup":      {with(processes(), tree{"cg" + group + "/cgroup.procs": ptr("")}), unit, nil, StateIdle, true},
		"all just ended": {
			with(v2(), tree{"proc/1/stat": procStat(1, "systemd", 0, 1, 1)}), unit,
			&event.HostSample{CPUSeconds: ptr(7.5), ReadBytes: ptr(uint64(4000)), WriteBytes: ptr(uint64(300)), Processes: ptr(3), Compilers: ptr(0)}, StateUp, true,
		},
		"hidepid, cgroup": {
			v2(), unit,
			&event.HostSample{CPUSeconds: ptr(7.5), ReadBytes: ptr(uint64(4000)), WriteBytes: ptr(uint64(300)), Processes: ptr(3)}, StateNotPermitted, true,
		},
		"hidepid, no cgroup": {tree{}, unit, &event.HostSample{}, StateNotPermitted, false},
		"broken files": {
			with(processes(), v2(), tree{
				"cg" + group + "/cpu.stat": ptr("nonsense"), "cg" + group + "/io.stat": ptr("8:0 rbytes=x"),
				"cg" + group + "/workers/cgroup.procs": ptr("nonsense"), "proc/10/io": ptr("nonsense"),
			}), unit,
			&event.HostSample{CPUSeconds: ptr(1.0), Processes: ptr(1), Compilers: ptr(0)}, StateNoIO, true,
		},
	} {
		t.Run(name, func(t *testing.T) {
			root := t.TempDir()
			tc.files.write(t, root)
			v := files{cgroup: filepath.Join(root, "cg"), proc: filepath.Join(root, "proc")}.vitals(tc.target)
			st := v.state(tc.target)
			if st.State != tc.state || st.Up != tc.up || (st.Reason == "") != (tc.state == StateUp || tc.state == StateIdle) {
				t.Errorf("state %+v, want %s, up %v", st, tc.state, tc.up)
			}
			if v.alive != (tc.want != nil) {
				t.Fatalf("alive %v, want %v", v.alive, tc.want != nil)
			}
			if tc.want == nil {
				return
			}
			if d := cmp.Diff(tc.want, v.sample(nil)); d != "" {
				t.Errorf("(-want +got):\n%s", d)
			}
		})
	}
}

// bench is a source over a tree, in a bubble of synctest.
type bench struct {
	source *Source
	root   string
	got    chan event.Event
	cancel context.CancelFunc
	ended  chan error
}

func begin(t *testing.T, tr tree) *bench {
	t.Helper()
	begun := time.Now()
	b := &bench{root: t.TempDir(), got: make(chan event.Event, 100), ended: make(chan error, 1)}
	tr.write(t, b.root)
	b.source = New(Options{
		Clock:      func() event.Stamp { return event.Stamp{Boot: "b", Mono: time.Since(begun)} },
		Interval:   10 * time.Second,
		CgroupRoot: filepath.Join(b.root, "cg"), ProcRoot: filepath.Join(b.root, "proc"),
	})
	ctx, cancel := context.WithCancel(context.Background())
	b.cancel = cancel
	go func() {
		b.ended <- b.source.Run(ctx, func(_ context.Context, evs []event.Event) error {
			for _, ev := range evs {
				b.got <- ev
			}
			return nil
		})
	}()
	return b
}

// take returns what came within d of simulated time.
func (b *bench) take(d time.Duration) []event.Event {
	<-time.After(d)
	synctest.Wait()
	var evs []event.Event
	for len(b.got) > 0 {
		evs = append(evs, <-b.got)
	}
	return evs
}

func (b *bench) end(t *testing.T) {
	t.Helper()
	b.cancel()
	if err := <-b.ended; !errors.Is(err, context.Canceled) {
		t.Errorf("Run: %v, want the context's error", err)
	}
}

// words says in short what events are: target, kind or state, seconds.
func words(evs []event.Event) string {
	var s []string
	for _, ev := range evs {
		what := "sample"
		if st, ok := ev.Data.(*event.SourceState); ok {
			what = st.State
		}
		s = append(s, fmt.Sprintf("%s:%s@%d", ev.Target, what, int(ev.At.Mono.Seconds())))
	}
	return strings.Join(s, " ")
}

func TestRun(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := begin(t, with(v2(), processes()))
		defer b.end(t)
		if got := words(b.take(5 * time.Second)); got != "" {
			t.Errorf("without targets: %s", got)
		}
		b.source.SetTargets([]Target{{Name: "llm", ControlGroup: group, MainPID: 10}, {Name: "other"}})
		if got, want := words(b.take(16*time.Second)), "llm:up@5 llm:sample@5 other:idle@5 llm:sample@15"; got != want {
			t.Errorf("got %s, want %s", got, want)
		}
		b.source.SetInterval(time.Second)
		b.source.SetInterval(time.Second)
		if got, want := words(b.take(1500*time.Millisecond)), "llm:sample@21 llm:sample@22"; got != want {
			t.Errorf("got %s, want %s", got, want)
		}
		b.source.SetTargets([]Target{{Name: "other"}})
		if got := words(b.take(5 * time.Second)); got != "" {
			t.Errorf("a removed target: %s", got)
		}
		b.source.SetTargets([]Target{{Name: "llm", ControlGroup: group, MainPID: 10}})
		if got, want := words(b.take(time.Millisecond)), "llm:up@27 llm:sample@27"; got != want {
			t.Errorf("a target that comes again: got %s, want %s", got, want)
		}
	})
}

func TestCompilersBegun(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := begin(t, with(v2(), processes()))
		defer b.end(t)
		b.source.SetTargets([]Target{{Name: "llm", ControlGroup: group, MainPID: 10}})
		check := func(when string, d time.Duration, compilers int, begun *int) {
			t.Helper()
			evs := b.take(d)
			s, ok := evs[len(evs)-1].Data.(*event.HostSample)
			if !ok || *s.Compilers != compilers || !cmp.Equal(s.CompilersBegun, begun) {
				t.Errorf("%s: %+v, want %d compilers", when, s, compilers)
			}
		}
		check("first sample", time.Millisecond, 1, nil)
		check("nothing new", 10*time.Second, 1, ptr(0))
		tree{
			"proc/13/stat":                         procStat(13, "nvcc", 11, 0, 2000),
			"proc/14/stat":                         procStat(14, "cicc", 13, 0, 2001),
			"cg" + group + "/workers/cgroup.procs": ptr("11\n12\n13\n14\n"),
		}.write(t, b.root)
		check("two more", 10*time.Second, 3, ptr(2))
		// The PID is used again by another compiler.
		tree{"proc/13/stat": procStat(13, "nvcc", 11, 0, 3000)}.write(t, b.root)
		check("same PID", 10*time.Second, 3, ptr(1))
		b.source.SetTargets([]Target{{Name: "llm", ControlGroup: group, MainPID: 11}})
		check("a new main process", time.Millisecond, 3, nil)
	})
}

func TestUnitStopsAndStarts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := begin(t, with(v2(), processes()))
		defer b.end(t)
		b.source.SetTargets([]Target{{Name: "llm", ControlGroup: group, MainPID: 10}})
		b.take(time.Second)
		tree{"cg" + group: nil, "proc/10": nil}.write(t, b.root)
		if got, want := words(b.take(20*time.Second)), "llm:idle@10"; got != want {
			t.Errorf("got %s, want %s", got, want)
		}
		with(v2(), processes()).write(t, b.root)
		evs := b.take(10 * time.Second)
		if got, want := words(evs), "llm:up@30 llm:sample@30"; got != want {
			t.Errorf("got %s, want %s", got, want)
		}
	})
}

func TestEmitErrorEndsRun(t *testing.T) {
	full := errors.New("full")
	s := New(Options{Clock: func() event.Stamp { return event.Stamp{} }, ProcRoot: t.TempDir(), CgroupRoot: t.TempDir()})
	s.SetTargets([]Target{{Name: "llm"}})
	if err := s.Run(t.Context(), func(context.Context, []event.Event) error { return full }); !errors.Is(err, full) {
		t.Errorf("Run: %v, want emit's error", err)
	}
}

func TestTargetsAreCopied(t *testing.T) {
	s := New(Options{Clock: func() event.Stamp { return event.Stamp{} }})
	mine := []Target{{Name: "llm"}}
	s.SetTargets(mine)
	mine[0].Name = "other"
	if got, _ := s.settings(); !slices.Equal(got, []Target{{Name: "llm"}}) {
		t.Errorf("targets %v changed with the caller's slice", got)
	}
}

// TestOwnProcess reads the real /proc: this test has a parent and uses CPU.
func TestOwnProcess(t *testing.T) {
	f := files{cgroup: t.TempDir(), proc: "/proc"}
	v := f.vitals(Target{MainPID: os.Getpid()})
	if !v.alive || v.processes == nil || *v.processes < 1 || v.cpuSeconds == nil || v.io == nil {
		t.Errorf("vital signs of this process: %+v", v)
	}
}

func BenchmarkSample500Processes(b *testing.B) {
	root := b.TempDir()
	tr, pids := v2(), &strings.Builder{}
	for pid := 1000; pid < 1500; pid++ {
		tr[fmt.Sprintf("proc/%d/stat", pid)] = procStat(pid, "python3", 1, 100, pid)
		fmt.Fprintln(pids, pid)
	}
	tr["cg"+group+"/workers/cgroup.procs"] = ptr(pids.String())
	tr.write(b, root)
	f := files{cgroup: filepath.Join(root, "cg"), proc: filepath.Join(root, "proc")}
	for b.Loop() {
		if v := f.vitals(Target{ControlGroup: group}); *v.processes != 501 {
			b.Fatalf("%d processes", *v.processes)
		}
	}
}
