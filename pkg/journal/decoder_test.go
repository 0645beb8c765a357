package journal

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"
	"testing/iotest"
)

func TestDecoder(t *testing.T) {
	long := strings.Repeat("y", 100<<10)
	for _, tc := range []struct {
		name, in string
		want     []string // MESSAGE of each entry
	}{
		{"text", "__REALTIME_TIMESTAMP=1\nMESSAGE=one\n\nMESSAGE=two\n_PID=3\n\n", []string{"one", "two"}},
		{"binary", "MESSAGE\n\x05\x00\x00\x00\x00\x00\x00\x00a\n\nb\r\n_PID=1\n\n", []string{"a\n\nb\r"}},
		{"empty lines between", "\n\nMESSAGE=a\n\n\n\nMESSAGE=b\n\n", []string{"a", "b"}},
		{"unused binary field", "COREDUMP\n\x04\x00\x00\x00\x00\x00\x00\x00\n\n\n\n\nMESSAGE=a\n\n", []string{"a"}},
		{"equals sign in the value", "MESSAGE=a=b=\n\n", []string{"a=b="}},
		{"empty value", "MESSAGE=\n_PID=1\n\n", []string{""}},
		{"first of two wins", "MESSAGE=a\nMESSAGE=b\n\n", []string{"a"}},
		{"long", "_PID=1\nMESSAGE=" + long + "\n_UID=0\n\nMESSAGE=after\n\n", []string{long, "after"}},
		{"nothing", "", nil},
	} {
		for _, size := range []string{"whole", "bytes"} {
			t.Run(tc.name+"/"+size, func(t *testing.T) {
				var r io.Reader = strings.NewReader(tc.in)
				if size == "bytes" {
					r = iotest.OneByteReader(r)
				}
				d := NewDecoder(r)
				var got []string
				for {
					e, err := d.Decode()
					if err == io.EOF {
						break
					}
					if err != nil {
						t.Fatal(err)
					}
					got = append(got, e.String(Message))
				}
				if fmt.Sprint(got) != fmt.Sprint(tc.want) {
					t.Errorf("got %.80q, want %.80q", got, tc.want)
				}
			})
		}
	}
}

// TestDecoderCutAnywhere cuts a stream at each byte: what was whole comes, the
// rest is one clear error.
func TestDecoderCutAnywhere(t *testing.T) {
	whole := export(t, line(1, unitA, invA, "one"), line(2, unitA, invA, "with\rreturn"))
	firstEnd := bytes.Index(whole, []byte("\n\n")) + 2
	for n := range whole {
		d := NewDecoder(bytes.NewReader(whole[:n]))
		entries := 0
		var err error
		for err == nil {
			var e *Entry
			if e, err = d.Decode(); err == nil {
				entries++
				if got := e.String(Message); got != "one" {
					t.Fatalf("cut at %d: message %q", n, got)
				}
			}
		}
		want := 0
		if n >= firstEnd {
			want = 1
		}
		if entries != want {
			t.Fatalf("cut at %d: %d entries, want %d", n, entries, want)
		}
		if e, again := d.Decode(); again != io.EOF {
			t.Fatalf("cut at %d: after the error come %v, %v; want EOF", n, e, again)
		}
		var trunc *TruncatedError
		switch {
		case n == 0 || n == firstEnd:
			if err != io.EOF {
				t.Errorf("cut at %d between entries: %v, want EOF", n, err)
			}
		case !errors.As(err, &trunc) || trunc.Offset != int64(n):
			t.Errorf("cut at %d: %v, want a TruncatedError there", n, err)
		}
	}
	_, err := NewDecoder(bytes.NewReader(whole[:len("__CURSOR=s=fe")])).Decode()
	if want := `journal export: stream ends at byte 13 inside field "__CURSOR"`; err.Error() != want {
		t.Errorf("error %q, want %q", err, want)
	}
}

func TestDecoderBadInput(t *testing.T) {
	const good = "\n\nMESSAGE=good\n\n"
	for _, tc := range []struct{ name, in, want string }{
		{"no field", "just a line of text" + good, "byte 0: 'j' in a field's name"},
		{"endless name", strings.Repeat("A", 3*readSize) + good, "a field's name of more than 256 bytes"},
		{"absurd length", "MESSAGE\n\xff\xff\xff\xff\xff\xff\xff\x7f" + good, "field MESSAGE claims"},
		{"no newline behind binary", "MESSAGE\n\x01\x00\x00\x00\x00\x00\x00\x00ab" + good, "no newline behind the binary field MESSAGE"},
		{"empty name", "=x" + good, "in a field's name"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			d := NewDecoder(strings.NewReader(tc.in))
			_, err := d.Decode()
			var format *FormatError
			if !errors.As(err, &format) || !strings.Contains(err.Error(), tc.want) {
				t.Fatalf("error %v, want a FormatError with %q", err, tc.want)
			}
			e, err := d.Decode()
			if err != nil || e.String(Message) != "good" {
				t.Errorf("did not go on with the next entry: %v", err)
			}
		})
	}
}

// TestDecoderHugeFields: memory stays bounded, and the cut is counted.
func TestDecoderHugeFields(t *testing.T) {
	size := 40 << 20
	huge := func(name string) io.Reader {
		head := []byte(name + "\n")
		for i := range 8 {
			head = append(head, byte(size>>(8*i)))
		}
		return io.MultiReader(bytes.NewReader(head), io.LimitReader(zeros{}, int64(size)), strings.NewReader("\n"))
	}
	text := func(name string) io.Reader {
		return io.MultiReader(strings.NewReader(name+"="), io.LimitReader(letters{}, int64(size)), strings.NewReader("\n"))
	}
	d := NewDecoder(io.MultiReader(huge("COREDUMP"), text("X"), strings.NewReader("_PID=1\n"), huge("MESSAGE"), text("COMMAND"), strings.NewReader("_UID=5\n\nMESSAGE=next\n\n")))
	e, err := d.Decode()
	if err != nil {
		t.Fatal(err)
	}
	if n := len(e.Bytes(Message)); n != fieldLimit || len(e.Bytes(Command)) != fieldLimit {
		t.Errorf("%d bytes of MESSAGE kept, want %d", n, fieldLimit)
	}
	if e.Cut != 2 || !e.Is(UID, "5") || !e.Is(PID, "1") {
		t.Errorf("cut %d, uid %q, pid %q; want 2, 5, 1", e.Cut, e.Bytes(UID), e.Bytes(PID))
	}
	if n := len(d.buf); n > 8*fieldLimit {
		t.Errorf("the decoder holds %d bytes", n)
	}
	if e, err := d.Decode(); err != nil || !e.Is(Message, "next") {
		t.Errorf("the entry behind: %v", err)
	}
}

type zeros struct{}

func (zeros) Read(p []byte) (int, error) { clear(p); return len(p), nil }

type letters struct{}

func (letters) Read(p []byte) (int, error) {
	for i := range p {
		p[i] = 'z'
	}
	return len(p), nil
}

func TestFieldNames(t *testing.T) {
	for f, name := range fieldNames() {
		if got := lookupField([]byte(name)); got != Field(f) || name == "" {
			t.Errorf("field %d is named %q, which is looked up as %d", f, name, got)
		}
	}
}

func FuzzDecoder(f *testing.F) {
	f.Add(export(f, sampleEntries()...))
	f.Add([]byte("MESSAGE\n\x05\x00\x00\x00\x00\x00\x00\x00a\n\nb\r\n_PID=1\n\n"))
	f.Add([]byte("MESSAGE=a\n\n=\n\nX\n\xff\xff\xff\xff\xff\xff\xff\x00"))
	f.Fuzz(func(t *testing.T, in []byte) {
		m, err := NewMapper([]TargetSpec{{Unit: unitA}})
		if err != nil {
			t.Fatal(err)
		}
		a, b := decodeAll(t, bytes.NewReader(in), m), decodeAll(t, iotest.HalfReader(iotest.OneByteReader(bytes.NewReader(in))), m)
		if a != b {
			t.Errorf("the result depends on how the input is cut:\n%s\n%s", a, b)
		}
	})
}

// decodeAll renders everything that a decoder says of an input.
func decodeAll(t *testing.T, r io.Reader, m *Mapper) string {
	var out strings.Builder
	d := NewDecoder(r)
	for n := 0; ; n++ {
		e, err := d.Decode()
		var format *FormatError
		switch {
		case errors.As(err, &format):
			fmt.Fprintln(&out, err)
			continue
		case err != nil:
			fmt.Fprintln(&out, err)
			return out.String()
		}
		if n > 1<<20 {
			t.Fatal("the decoder does not end")
		}
		for f := range numFields {
			if e.Has(f) {
				fmt.Fprintf(&out, "%v=%q ", f, e.Bytes(f))
			}
		}
		fmt.Fprintln(&out, texts(m.Map(nil, e)))
	}
}

// BenchmarkDecoder: the budget is 0.5 µs for an entry of five fields.
func BenchmarkDecoder(b *testing.B) {
	var buf bytes.Buffer
	enc := NewEncoder(&buf)
	const entries = 1000
	for i := range entries {
		enc.Field("__REALTIME_TIMESTAMP", fmt.Append(nil, baseReal+i))
		enc.Field("__MONOTONIC_TIMESTAMP", fmt.Append(nil, i))
		enc.Field("_BOOT_ID", []byte(testBoot))
		enc.Field("_PID", []byte("4711"))
		enc.Field("MESSAGE", []byte("(Worker_TP3 pid=4711) INFO 11-26 01:34:09 [runner.py:2602] Starting to do the work of an entry of ordinary length"))
		if err := enc.End(); err != nil {
			b.Fatal(err)
		}
	}
	b.ReportAllocs()
	for b.Loop() {
		d := NewDecoder(bytes.NewReader(buf.Bytes()))
		for {
			if _, err := d.Decode(); err == io.EOF {
				break
			} else if err != nil {
				b.Fatal(err)
			}
		}
	}
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N*entries), "ns/entry")
}
