package history

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

// grown is a store with a file of many pages: branches, free pages, records that
// overflow a page, small buckets that lie in their parent's page.
func grown(t testing.TB) (Store, []byte) {
	t.Helper()
	s := In(t.TempDir(), Limits{MaxStartups: 60})
	for i := range 90 {
		r := record("a.service", fmt.Sprintf("%032d", i), i)
		if i%9 == 0 {
			r.Reason = strings.Repeat("x", 9000)
		}
		if i%30 == 0 {
			r.Target = fmt.Sprintf("%d.service", i)
		}
		if _, err := s.Put(t.Context(), day(0), r); err != nil {
			t.Fatal(err)
		}
	}
	b, err := os.ReadFile(s.Path)
	if err != nil {
		t.Fatal(err)
	}
	return s, b
}

// use does everything that can be done with a file. It fails with nothing but
// ErrDamaged, and never panics.
func use(t testing.TB, s Store) error {
	t.Helper()
	// A lock that was not given back must not be waited for.
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	names, err := s.Targets(ctx)
	for _, name := range names {
		_, again := s.List(ctx, name, 0)
		err = errors.Join(err, again)
	}
	_, again := s.Put(ctx, day(0), record("a.service", "new", 1000))
	err = errors.Join(err, again)
	if err != nil && !errors.Is(err, ErrDamaged) && !errors.Is(err, ErrNewer) {
		t.Fatalf("an error of another kind: %v", err)
	}
	return err
}

func TestAWholeFilePasses(t *testing.T) {
	s, b := grown(t)
	if len(b) < 40*4096 {
		t.Fatalf("the file has only %d bytes", len(b))
	}
	if err := use(t, s); err != nil {
		t.Error(err)
	}
}

func TestTruncatedFile(t *testing.T) {
	s, b := grown(t)
	high := int64(0)
	if m, err := findMeta(bytes.NewReader(b), int64(len(b))); err == nil {
		high = int64(m.high * m.pageSize)
	}
	lengths := []int64{0, 1, 15, 16, 79, 80, 81, 1024, 4095, 4096, 4097, 8191, 8192, high - 4096, high - 1}
	for n := int64(0); n < high; n += 7013 {
		lengths = append(lengths, n)
	}
	for _, n := range lengths {
		overwrite(t, s, b[:n])
		_, err := s.List(t.Context(), "a.service", 0)
		wantErr(t, err, ErrDamaged)
		_, err = s.Put(t.Context(), day(0), record("a.service", "new", 1000))
		wantErr(t, err, ErrDamaged)
		if got := content(t, s); !bytes.Equal(got, b[:n]) {
			t.Fatalf("cut at %d, it was written to", n)
		}
	}
	// The space behind the last page may go.
	overwrite(t, s, b[:high])
	if err := use(t, s); err != nil {
		t.Error(err)
	}
}

// TestGarbagePages overwrites page after page: with noise, with zeros, and with
// another page, as a disk does that mixes up its blocks.
func TestGarbagePages(t *testing.T) {
	s, b := grown(t)
	const size = 4096
	noise := rand.NewChaCha8([32]byte{1})
	damagedPages := 0
	for at := 0; at+size <= len(b); at += size {
		garbage := make([]byte, size)
		_, _ = noise.Read(garbage)
		other := b[(at*7+3*size)%(len(b)-size)/size*size:][:size]
		misplaced := slices.Concat(b[at:at+8], other[8:])
		for _, page := range [][]byte{garbage, make([]byte, size), other, misplaced} {
			overwrite(t, s, slices.Concat(b[:at], page, b[at+size:]))
			if use(t, s) != nil {
				damagedPages++
			}
		}
	}
	if damagedPages < len(b)/size {
		t.Errorf("only %d of %d changes were noticed", damagedPages, 4*len(b)/size)
	}
}

func TestFlippedBytes(t *testing.T) {
	s, b := grown(t)
	noise := rand.New(rand.NewPCG(1, 2))
	noticed := 0
	for range 120 {
		c := bytes.Clone(b)
		for range 1 + noise.IntN(3) {
			// Headers and tables are where it hurts.
			at := noise.IntN(len(c)/4096)*4096 + noise.IntN(200)
			c[at] ^= 1 << noise.IntN(8)
		}
		overwrite(t, s, c)
		if use(t, s) != nil {
			noticed++
		}
	}
	if noticed < 20 {
		t.Errorf("only %d of 120 were noticed", noticed)
	}
}

func TestNoHistoryAtAll(t *testing.T) {
	for name, b := range map[string][]byte{"empty": {}, "zeros": make([]byte, 1<<16), "text": []byte(strings.Repeat("hello world\n", 5000))} {
		s := newStore(t)
		overwrite(t, s, b)
		_, err := s.Put(t.Context(), day(0), record("a", "1", 0))
		wantErr(t, err, ErrDamaged)
		if err == nil || !strings.Contains(err.Error(), s.Path) {
			t.Errorf("%s: %v", name, err)
		}
	}
	s := newStore(t)
	if err := os.Mkdir(s.Path, 0o700); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Put(t.Context(), day(0), record("a", "1", 0)); err == nil || errors.Is(err, ErrDamaged) {
		t.Errorf("a directory: %v", err)
	}
}

func TestDamagedRecord(t *testing.T) {
	s := newStore(t)
	put(t, s, record("a.service", "01", 0))
	b := content(t, s)
	at := bytes.LastIndex(b, []byte(`{"schema"`))
	c := bytes.Clone(b)
	c[at] = '['
	overwrite(t, s, c)
	_, err := s.List(t.Context(), "a.service", 0)
	wantErr(t, err, ErrDamaged)
	_, err = s.Baseline(t.Context(), "a.service")
	wantErr(t, err, ErrDamaged)
	_, err = s.Put(t.Context(), day(0), record("a.service", "01", 0))
	wantErr(t, err, ErrDamaged)
}

func TestSetAside(t *testing.T) {
	s := newStore(t)
	want := []string{}
	for i := range 5 {
		overwrite(t, s, []byte("junk"))
		kept, err := s.SetAside(day(i))
		if err != nil {
			t.Fatal(err)
		}
		if b, err := os.ReadFile(kept); err != nil || string(b) != "junk" {
			t.Errorf("%s holds %q, %v", kept, b, err)
		}
		want = append(want, fmt.Sprintf("history.db.damaged-2026030%dT120000Z", i+1))
	}
	put(t, s, record("a.service", "01", 0))
	if diff := cmp.Diff(append([]string{FileName}, want[2:]...), files(t, s)); diff != "" {
		t.Error(diff)
	}
	if _, err := In(t.TempDir(), Limits{}).SetAside(day(0)); err == nil {
		t.Error("what is not there was set aside")
	}
}

// TestPanicsAreDamage covers what verify can't see: a disk that fails later.
func TestPanicsAreDamage(t *testing.T) {
	s, b := grown(t)
	d, err := open(t.Context(), s.Path, false, false)
	if err != nil {
		t.Fatal(err)
	}
	// The pages vanish under the map: the next access faults.
	if err := os.Truncate(s.Path, 0); err != nil {
		t.Fatal(err)
	}
	_, _, err = d.find("a.service", "x")
	wantErr(t, err, ErrDamaged)
	if err := d.close(); err != nil {
		t.Error(err)
	}
	// Its lock is gone with it.
	overwrite(t, s, b)
	if err := use(t, s); err != nil {
		t.Error(err)
	}
}

func FuzzDecode(f *testing.F) {
	for _, r := range []Record{record("a", "1", 0), bad(record("a", "2", 1)), FromStartup("a", startup())} {
		b, err := encode(r)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(b)
	}
	f.Add([]byte(`{"schema":"startupd.history/v2"}`))
	// Told to be none is not the same as not told.
	f.Add([]byte(`{"schema":"startupd.history/v1","arguments":{},"findings":[]}`))
	f.Add([]byte(`{"schema":"startupd.history/v1","gpu_plateau_bytes":{"x":1}}`))
	f.Fuzz(func(t *testing.T, b []byte) {
		r, err := decode(b)
		if err != nil {
			if !errors.Is(err, ErrDamaged) && !errors.Is(err, ErrNewer) {
				t.Fatal(err)
			}
			return
		}
		again, err := encode(r)
		if err != nil {
			t.Fatalf("what was decoded can't be encoded: %v", err)
		}
		back, err := decode(again)
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(r, back); diff != "" {
			t.Fatal(diff)
		}
		// Whatever it holds can be compared and shown.
		l := Listing{Targets: []TargetListing{NewListing("a", []Record{record("a", "1", 0), r}, 0)}}
		if err := l.WriteText(&strings.Builder{}); err != nil {
			t.Fatal(err)
		}
		_ = merge(r, back)
	})
}

// FuzzFile changes a file at three places.
func FuzzFile(f *testing.F) {
	s, b := grown(f)
	f.Add(uint32(8), uint64(1), uint32(4096), uint64(2), uint32(8192), uint64(3))
	f.Fuzz(func(t *testing.T, at1 uint32, v1 uint64, at2 uint32, v2 uint64, at3 uint32, v3 uint64) {
		c := bytes.Clone(b)
		for at, v := range map[uint32]uint64{at1: v1, at2: v2, at3: v3} {
			for i := range 8 {
				c[(int(at)+i)%len(c)] = byte(v >> (8 * i))
			}
		}
		if err := os.WriteFile(s.Path, c, 0o600); err != nil {
			t.Fatal(err)
		}
		_ = use(t, s)
	})
}
