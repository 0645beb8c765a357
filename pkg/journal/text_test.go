package journal

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/startupd/startupd/pkg/event"
)

func readString(t testing.TB, o FileOptions, in string) ([]event.Event, error) {
	t.Helper()
	var got []event.Event
	if o.Path == "" {
		o.Path = "x.log"
	}
	o.R = strings.NewReader(in)
	if o.Now.IsZero() {
		o.Now = time.Date(2025, 3, 1, 0, 0, 0, 0, time.UTC)
	}
	err := ReadFile(context.Background(), o, func(_ context.Context, ev []event.Event) error {
		got = append(got, ev...)
		return nil
	})
	return got, err
}

// render shows all that a text's line has.
func render(events []event.Event) []string {
	var out []string
	for _, ev := range events {
		at := "-"
		if !ev.At.Real.IsZero() {
			at = ev.At.Real.Format("2006-01-02T15:04:05.999999999")
		}
		switch d := ev.Data.(type) {
		case *event.Line:
			out = append(out, fmt.Sprintf("%d %s %s/%s/%d %q", d.No, at, d.Origin, d.Proc, d.PID, d.Text))
		case *event.UnitMessage:
			restarts := ""
			if d.Restarts != nil {
				restarts = fmt.Sprint(" n=", *d.Restarts)
			}
			out = append(out, fmt.Sprintf("%s <%s> %s %s %s %s%s", at, d.Message, d.Command, d.ExitCode, d.ExitStatus, d.Result, restarts))
		case *event.Gap:
			out = append(out, fmt.Sprintf("gap %s %d", d.Gap, d.Lines))
		}
	}
	return out
}

func TestTextPrefixes(t *testing.T) {
	const msg = "INFO 01-02 03:04:05 [a.py:1] hello: there"
	for _, tc := range []struct{ name, prefix, want string }{
		{"none", "", "- text//0"},
		{"short", "Jan  2 03:04:05 gpu-1 serve[4711]: ", "2025-01-02T03:04:05 text//4711"},
		{"short without host", "Jan 02 03:04:05 serve[4711]: ", "2025-01-02T03:04:05 text//4711"},
		{"short-precise", "Jan 02 03:04:05.123456 gpu-1 serve[4711]: ", "2025-01-02T03:04:05.123456 text//4711"},
		{"short-iso", "2025-01-02T03:04:05+0100 gpu-1 serve[4711]: ", "2025-01-02T02:04:05 text//4711"},
		{"short-iso-precise", "2025-01-02T03:04:05.123456+01:00 gpu-1 serve[4711]: ", "2025-01-02T02:04:05.123456 text//4711"},
		{"short-full", "Thu 2025-01-02 03:04:05 UTC gpu-1 serve[4711]: ", "2025-01-02T03:04:05 text//4711"},
		{"with-unit", "Thu 2025-01-02 03:04:05 CET gpu-1 llm.service[4711]: ", "2025-01-02T03:04:05 text//4711"},
		{"short-unix", "1735787045.250000 gpu-1 serve[4711]: ", "2025-01-02T03:04:05.25 text//4711"},
		{"short-monotonic", "[ 1234.567890] gpu-1 serve[4711]: ", "- text//4711"},
		{"syslog without pid", "Jan  2 03:04:05 gpu-1 serve: ", "2025-01-02T03:04:05 text//0"},
		{"syslog RFC 5424", "<30>1 2025-01-02T03:04:05.5Z gpu-1 serve 4711 - - ", "2025-01-02T03:04:05.5 text//4711"},
		{"syslog RFC 5424 with data", `<30>1 2025-01-02T03:04:05Z gpu-1 serve 4711 ID7 [a b="c"] `, "2025-01-02T03:04:05 text//4711"},
		{"docker compose", "llm-1  | ", "- text/llm-1/0"},
		{"docker compose in brackets", "[llm]        | ", "- text/llm/0"},
		{"docker compose in colour", "\x1b[36mllm-1  | \x1b[0m", "- text/llm-1/0"},
		{"docker compose -t", "llm-1  | 2025-01-02T03:04:05.123456789Z ", "2025-01-02T03:04:05.123456789 text/llm-1/0"},
		{"docker logs -t", "2025-01-02T03:04:05.123456789Z ", "2025-01-02T03:04:05.123456789 text//0"},
		{"kubectl --timestamps", "2025-01-02T03:04:05.1234567Z ", "2025-01-02T03:04:05.1234567 text//0"},
		{"kubectl --prefix", "[pod/llm-0/server] ", "- text/llm-0/server/0"},
		{"kubectl --prefix --timestamps", "[pod/llm-0/server] 2025-01-02T03:04:05Z ", "2025-01-02T03:04:05 text/llm-0/server/0"},
		{"container runtime", "2025-01-02T03:04:05.123456789+00:00 stdout F ", "2025-01-02T03:04:05.123456789 text//0"},
		{"srun -l", "3: ", "- text/3/0"},
		{"srun -l padded", " 3: ", "- text/3/0"},
		{"kernel", "Jan  2 03:04:05 gpu-1 kernel: ", "2025-01-02T03:04:05 kernel//0"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			got, err := readString(t, FileOptions{}, tc.prefix+msg+"\n"+tc.prefix+"    indented\n")
			if err != nil {
				t.Fatal(err)
			}
			want := []string{fmt.Sprintf("1 %s %q", tc.want, msg), fmt.Sprintf("2 %s %q", tc.want, "    indented")}
			if d := cmp.Diff(want, render(got)); d != "" {
				t.Errorf("(-want +got):\n%s", d)
			}
		})
	}
}

// TestTextOwnFormats: what the program itself puts before its lines stays.
func TestTextOwnFormats(t *testing.T) {
	for _, line := range []string{
		"2024-12-05T00:11:14+00:00 - stack.worker - INFO - Starting the server",
		"2024-05-01T12:00:00.123456Z  INFO launcher: Args { model: 1 }",
		"2024-05-01T12:00:00.123456Z ERROR launcher: no",
		"2025-04-30 21:42:16.102 1645354 serve INFO [storage.py:download():76] Copying",
		"[2026-09-01 07:08:29] node-a:563:779 [0] NCCL INFO NET/IB : none",
		"[rank0]: Traceback (most recent call last):",
		"node7:148:148 [0] NCCL INFO cudaDriverVersion 12040",
		"| GPU  Name | Memory |",
		"load:  10%|##  | 1/10 [00:01<00:09, 1.1it/s]",
		"(Worker pid=12) ERROR: x",
	} {
		got, err := readString(t, FileOptions{}, line+"\n"+line+"\n")
		if err != nil {
			t.Fatal(err)
		}
		want := []string{fmt.Sprintf("1 - text//0 %q", line), fmt.Sprintf("2 - text//0 %q", line)}
		if d := cmp.Diff(want, render(got)); d != "" {
			t.Errorf("(-want +got):\n%s", d)
		}
	}
}

// TestTextJournal is a pasted journal: the manager's lines become messages.
func TestTextJournal(t *testing.T) {
	in := `-- Journal begins at Mon 2024-01-01 00:00:00 UTC. --
Dec 31 23:59:58 gpu-1 systemd[1]: Starting llm.service - LLM server...
Dec 31 23:59:58 gpu-1 systemd[1]: Started Session 7 of User root.
Dec 31 23:59:59 gpu-1 systemd[1]: Started llm.service - LLM server.
Dec 31 23:59:59 gpu-1 serve[20]: Traceback (most recent call last):
                                   File "a.py", line 1
Jan 01 00:00:01 gpu-1 kernel: NVRM: Xid (PCI:0000:01:00): 79
Jan 01 00:00:02 gpu-1 systemd[1]: llm.service: Main process exited, code=exited, status=1/FAILURE
Jan 01 00:00:02 gpu-1 systemd[1]: llm.service: Failed with result 'exit-code'.
Jan 01 00:00:03 gpu-1 systemd[1]: web.service: Failed with result 'exit-code'.
Jan 01 00:00:03 gpu-1 systemd[1]: llm.service: Scheduled restart job, restart counter is at 7.
Jan 01 00:00:03 gpu-1 systemd[1]: llm.service: Consumed 3min CPU time.
Jan 01 00:00:03 gpu-1 systemd[1]: Stopped LLM server.
Jan 01 00:00:04 gpu-1 systemd[1]: Failed to start llm.service - LLM server.
Jan 01 00:00:05 gpu-1 systemd[1]: llm.service: A process of this unit has been killed by the OOM killer.
Jan 01 00:00:06 gpu-1 systemd[1]: llm.service: Main process exited, code=killed, status=9/KILL
Jan 01 00:00:07 gpu-1 systemd[1]: llm.service: Deactivated successfully.
Jan 01 00:00:08 gpu-1 systemd[1]: Stopping llm.service - LLM server...
Jan 01 00:00:09 gpu-1 systemd[1]: llm.service: start operation timed out. Terminating.
Jan 01 00:00:10 gpu-1 systemd[1]: llm.service: Watchdog timeout (limit 5s)!
Jan 01 00:00:11 gpu-1 systemd[1]: llm.service: start-post operation timed out. Stopping.
Jan 01 00:00:12 gpu-1 startupd[31]: llm.service failed in load after 9 s
Jan 01 00:00:12 gpu-1 llm[31]: startupd: RuntimeError: quoted
Jan 01 00:00:12 gpu-1 systemd[1]: llm.service: Control process exited, code=exited, status=4/NOPERMISSION
`
	want := []string{
		"2024-12-31T23:59:58 <starting>    ",
		"2024-12-31T23:59:59 <started>    ",
		`5 2024-12-31T23:59:59 text//20 "Traceback (most recent call last):"`,
		`6 2024-12-31T23:59:59 text//20 "  File \"a.py\", line 1"`,
		`7 2025-01-01T00:00:01 kernel//0 "NVRM: Xid (PCI:0000:01:00): 79"`,
		"2025-01-01T00:00:02 <process_exit> ExecStart exited 1 ",
		"2025-01-01T00:00:02 <failure_result>    exit-code",
		"2025-01-01T00:00:03 <restart_scheduled>     n=7",
		"2025-01-01T00:00:03 <stopped>    ",
		"2025-01-01T00:00:04 <start_failed>    ",
		"2025-01-01T00:00:05 <out_of_memory>    ",
		"2025-01-01T00:00:06 <process_exit> ExecStart killed KILL ",
		"2025-01-01T00:00:07 <succeeded>    ",
		"2025-01-01T00:00:08 <stopping>    ",
		"2025-01-01T00:00:09 <timed_out>    ",
		"2025-01-01T00:00:10 <timed_out>    ",
		"2025-01-01T00:00:11 <timed_out>    ",
		"2025-01-01T00:00:12 <process_exit> control exited 4 ",
	}
	got, err := readString(t, FileOptions{Target: "llm"}, in)
	if err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff(want, render(got)); d != "" {
		t.Errorf("(-want +got):\n%s", d)
	}
	if msg, ok := got[0].Data.(*event.UnitMessage); !ok || msg.No != 2 {
		t.Errorf("the first message is of line 2: %+v", got[0].Data)
	}
	for _, ev := range got {
		l, ok := ev.Data.(*event.Line)
		if kernel := ok && l.Origin == event.OriginKernel; !kernel && ev.Target != "llm" {
			t.Errorf("target %q of %v", ev.Target, ev.Data)
		}
	}
}

func TestTextDamage(t *testing.T) {
	bar := "(A pid=1) \r" + strings.Repeat("load:  10%|#  | 1/10 [00:01<00:09, 1.1it/s]\r", 20000) + "load: 100%|###| 10/10"
	for _, tc := range []struct {
		name, in string
		want     []string
	}{
		{"long line", "a\n" + strings.Repeat("x", 10<<20) + "\nb\n", []string{"1 1", "2 65536", "gap oversize 1", "3 1"}},
		{"long last line", strings.Repeat("x", 10<<20), []string{"1 65536", "gap oversize 1"}},
		{"NULs and bad UTF-8", "a\x00b\xff\nplain text follows it\n", []string{"1 5", "2 21"}},
		{"CRLF and no last newline", "one\r\ntwo", []string{"1 3", "2 3"}},
		{"byte order mark", "\ufeffone\n", []string{"1 3"}},
		{"blank lines count", "\n\na\n", []string{"3 1"}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			got, err := readString(t, FileOptions{}, tc.in)
			if err != nil {
				t.Fatal(err)
			}
			var sizes []string
			for _, ev := range got {
				switch d := ev.Data.(type) {
				case *event.Line:
					sizes = append(sizes, fmt.Sprint(d.No, " ", len(d.Text)))
				case *event.Gap:
					sizes = append(sizes, fmt.Sprintf("gap %s %d", d.Gap, d.Lines))
				}
			}
			if d := cmp.Diff(tc.want, sizes); d != "" {
				t.Errorf("number and size of the lines (-want +got):\n%s", d)
			}
		})
	}
	t.Run("a bar without newline", func(t *testing.T) {
		got, err := readString(t, FileOptions{}, bar+"\nnext\n")
		if err != nil {
			t.Fatal(err)
		}
		last := got[len(got)-2].Data.(*event.Line)
		if len(got) > 20 || last.Text != "load: 100%|###| 10/10" || !last.Bar || last.No != 1 {
			t.Errorf("%d events, the bar ends as %+v", len(got), last)
		}
		if next := got[len(got)-1].Data.(*event.Line); next.No != 2 {
			t.Errorf("the line behind it is number %d", next.No)
		}
	})
}

func TestReadFileRefuses(t *testing.T) {
	for _, tc := range []struct{ name, in, want string }{
		{"journal file", "LPKSHHRH\x00\x00", "x.log is a journal file: name its directory with --journal.dir"},
		{"gzip", "\x1f\x8b\x08", "zcat"},
		{"zstd", "\x28\xb5\x2f\xfd", "zstdcat"},
		{"UTF-16", "\xff\xfea\x00", "iconv"},
		{"binary", "\x7fELF\x02\x01\x01\x00\x00\x00\x00\x00\x00\x00\x00\x00", "is a binary file: give a log"},
		{"JSON", `{"__CURSOR":"s=1","__REALTIME_TIMESTAMP":"1","MESSAGE":"x"}`, "journalctl -o export"},
		{"empty", "", "x.log is empty"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			_, err := readString(t, FileOptions{}, tc.in)
			if err == nil || !strings.Contains(err.Error(), tc.want) {
				t.Errorf("error %v, want one with %q", err, tc.want)
			}
		})
	}
}

func TestReadFileExport(t *testing.T) {
	own := []rec{line(1, unitA, invA, "one"), manager(2, unitA, invA, idExit, "exit"), line(3, unitA, invA, "two")}
	whole := string(export(t, own...))
	mixed := string(export(t, sampleEntries()...))
	for _, tc := range []struct {
		name, in string
		o        FileOptions
		want     []string
		err      string
	}{
		{"sole unit", whole, FileOptions{}, []string{"llm.service one", "llm.service <process_exit>", "llm.service two"}, ""},
		{"named target", whole, FileOptions{Target: "kimi"}, []string{"kimi one", "kimi <process_exit>", "kimi two"}, ""},
		{"last empty line missing", whole[:len(whole)-1], FileOptions{}, []string{"llm.service one", "llm.service <process_exit>", " gap truncated 0", "llm.service two"}, ""},
		{"cut in a field", whole[:len(whole)-5], FileOptions{}, []string{"llm.service one", "llm.service <process_exit>", " gap truncated 0"}, ""},
		{"damage in the middle", string(export(t, own[0])) + "?\n\n" + string(export(t, own[2])), FileOptions{}, []string{"llm.service one", " gap corrupt 0", "llm.service two"}, ""},
		{"several units", mixed, FileOptions{}, nil, "several units (llm.service, other.service): name one with --unit"},
		{"one of several", mixed, FileOptions{Unit: "other.service"}, []string{"other.service not ours", " NVRM: Xid (PCI:0000:01:00): 79", " gap lost 12"}, ""},
		{"no such unit", whole, FileOptions{Unit: "no.service"}, nil, `none of its 3 entries belongs to unit "no.service"`},
	} {
		t.Run(tc.name, func(t *testing.T) {
			got, err := readString(t, tc.o, tc.in)
			if tc.err != "" {
				if err == nil || !strings.Contains(err.Error(), tc.err) {
					t.Errorf("error %v, want one with %q", err, tc.err)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			if d := cmp.Diff(tc.want, texts(got)); d != "" {
				t.Errorf("(-want +got):\n%s", d)
			}
		})
	}
}

// TestReadFileStops: an error of the receiver, of the input, and the context's
// end come through.
func TestReadFileStops(t *testing.T) {
	boom := errors.New("boom")
	fail := func(context.Context, []event.Event) error { return boom }
	if err := ReadFile(context.Background(), FileOptions{Path: "x", R: strings.NewReader("a\n")}, fail); !errors.Is(err, boom) {
		t.Errorf("receiver's error became %v", err)
	}
	broken := io.MultiReader(bytes.NewReader(make([]byte, 0)), failing{boom})
	if err := ReadFile(context.Background(), FileOptions{Path: "x", R: broken}, fail); !errors.Is(err, boom) {
		t.Errorf("input's error became %v", err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	if err := ReadFile(ctx, FileOptions{Path: "x", R: strings.NewReader("a\n")}, fail); !errors.Is(err, context.Canceled) {
		t.Errorf("end of the context became %v", err)
	}
}

type failing struct{ err error }

func (f failing) Read([]byte) (int, error) { return 0, f.err }

func FuzzText(f *testing.F) {
	for _, s := range []string{
		"Jan  2 03:04:05 gpu-1 serve[4711]: x\n", "llm-1  | 2025-01-02T03:04:05Z x\n", "[pod/a/b] x\n3: y\n", "<30>1 2025-01-02T03:04:05Z h a 1 - - x",
		"Jan 01 00:00:02 gpu-1 systemd[1]: llm.service: Main process exited, code=killed, status=9/KILL\n", "[ 1.5] h a[1]: x\n", "1735787045.250000 h s[1]: x\n",
		"Thu 2025-01-02 03:04:05 UTC h s[1]: x\n", "\xff\x00\r\n\r", "Feb 29 00:00:00 h s: x\nJan 01 00:00:00 h s: y\n", "MESSAGE=a\n__REALTIME_TIMESTAMP=1\n\n",
	} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, in []byte) {
		got, err := readString(t, FileOptions{}, string(in))
		if err != nil {
			return
		}
		lines := bytes.Count(in, []byte("\n")) + 1
		no := 0
		for _, ev := range got {
			if l, ok := ev.Data.(*event.Line); ok && l.No > 0 {
				if l.No < no || l.No > lines {
					t.Errorf("line number %d after %d, of %d lines", l.No, no, lines)
				}
				no = l.No
			}
		}
	})
}

func BenchmarkText(b *testing.B) {
	in := strings.Repeat("Jan  2 03:04:05 gpu-1 serve[4711]: (Worker_TP3 pid=4711) INFO 11-26 01:34:09 [runner.py:2602] Starting to do the work of a line\n", 10000)
	b.SetBytes(int64(len(in)))
	for b.Loop() {
		if _, err := readString(b, FileOptions{}, in); err != nil {
			b.Fatal(err)
		}
	}
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N*10000), "ns/line")
}

// TestExportCutShort: the end of a cut file is one gap, wherever it was cut.
func TestExportCutShort(t *testing.T) {
	whole := export(t, line(1, unitA, invA, "one"), line(2, unitA, invA, "TWO"))
	for n := bytes.Index(whole, []byte("\n\n")) + 3; n < len(whole); n++ {
		got, err := readString(t, FileOptions{}, string(whole[:n]))
		if err != nil {
			t.Fatalf("cut at %d: %v", n, err)
		}
		gaps := 0
		for _, l := range texts(got) {
			if strings.Contains(l, " gap ") {
				gaps++
			}
		}
		if gaps != 1 || texts(got)[0] != "llm.service one" {
			t.Fatalf("cut at %d: %q, want the first line and one gap", n, texts(got))
		}
	}
}

// TestExportWithoutUnits: a collector that drops the unit leaves lines of one
// target, whose name does not change when a unit is told later.
func TestExportWithoutUnits(t *testing.T) {
	bare := func(at int64, msg string) rec { return rec{at, []string{"_TRANSPORT=stdout", "MESSAGE=" + msg}} }
	for _, tc := range []struct {
		recs []rec
		want []string
	}{
		{[]rec{bare(1, "one"), bare(2, "two")}, []string{"x.log one", "x.log two"}},
		{[]rec{bare(1, "one"), line(2, unitA, invA, "two")}, []string{"x.log one", "x.log two"}},
		{[]rec{line(1, unitA, invA, "one"), bare(2, "two")}, []string{"llm.service one", "llm.service two"}},
	} {
		got, err := readString(t, FileOptions{}, string(export(t, tc.recs...)))
		if err != nil {
			t.Fatal(err)
		}
		if d := cmp.Diff(tc.want, texts(got)); d != "" {
			t.Errorf("(-want +got):\n%s", d)
		}
	}
}

// TestYearsOfMergedLogs: around New Year lines of two processes are not quite in
// order.
func TestYearsOfMergedLogs(t *testing.T) {
	y := yearGuess{now: time.Date(2026, 9, 1, 0, 0, 0, 0, time.UTC)}
	for _, tc := range []struct{ stamp, want string }{
		{"Dec 31 23:59:58", "2025-12-31 23:59:58"},
		{"Jan  1 00:00:01", "2026-01-01 00:00:01"},
		{"Dec 31 23:59:59", "2025-12-31 23:59:59"},
		{"Jan  1 00:00:02", "2026-01-01 00:00:02"},
		{"Aug  9 00:00:00", "2026-08-09 00:00:00"}, // a silent half-year
	} {
		s, n := parseSyslogStamp([]byte(tc.stamp))
		if n == 0 {
			t.Fatalf("%q is no stamp", tc.stamp)
		}
		if got := y.date(s).Format(time.DateTime); got != tc.want {
			t.Errorf("%s is %s, want %s", tc.stamp, got, tc.want)
		}
	}
}
