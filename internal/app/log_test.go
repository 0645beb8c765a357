package app

import (
	"bytes"
	"errors"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
	"go.uber.org/zap/zaptest/observer"

	"github.com/startupd/startupd/pkg/event"
	"github.com/startupd/startupd/pkg/phases"
)

// TestJournalFormat: journald takes the level from the line's beginning, and
// shows neither it nor the time twice.
func TestJournalFormat(t *testing.T) {
	var b bytes.Buffer
	log, err := NewLogger(&b, "debug", "journal")
	if err != nil {
		t.Fatal(err)
	}
	log = log.With(zap.String("unit", "a.service"))
	log.Debug("one")
	log.Info("two")
	log.Warn("three", zap.Duration("after", time.Second))
	log.Error("four", zap.Error(errors.New("no\nroom")))
	want := `<7>one {"unit": "a.service"}
<6>two {"unit": "a.service"}
<4>three {"unit": "a.service", "after": "1s"}
<3>four {"unit": "a.service", "error": "no\nroom"}
`
	if got := b.String(); got != want {
		t.Errorf("got %s\nwant %s", got, want)
	}
}

func TestNewLoggerRefuses(t *testing.T) {
	for _, tt := range []struct{ level, format string }{{"loud", "console"}, {"info", "xml"}} {
		if _, err := NewLogger(&bytes.Buffer{}, tt.level, tt.format); !errors.Is(err, ErrConfig) {
			t.Errorf("%v: %v", tt, err)
		}
	}
}

// TestFlood: a text that repeats is logged some times in a while, the rest is
// counted, and another text is not held back by it.
func TestFlood(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		core, seen := observer.New(zapcore.InfoLevel)
		f := &flood{}
		said := zap.New(core)
		log := f.limit(said)
		const lines = 100000
		for i := range lines {
			log.Warn("It fails again", zap.Int("try", i))
		}
		log.Warn("Something else fails")
		f.report(said)
		f.report(said)
		if n := seen.FilterMessage("It fails again").Len(); n != floodLines {
			t.Errorf("%d lines of one text", n)
		}
		if seen.FilterMessage("Something else fails").Len() != 1 {
			t.Error("another text is left out")
		}
		reports := seen.FilterMessageSnippet("left out").All()
		if len(reports) != 1 || reports[0].ContextMap()["lines"] != int64(lines-floodLines) {
			t.Errorf("what was left out is told as %v", reports)
		}
		time.Sleep(floodWindow + time.Second)
		log.Warn("It fails again")
		f.report(said)
		if n := seen.FilterMessage("It fails again").Len(); n != floodLines+1 {
			t.Errorf("%d lines after the window", n)
		}
		if n := seen.FilterMessageSnippet("left out").Len(); n != 1 {
			t.Errorf("%d reports of nothing left out", n)
		}
	})
}

func TestHTTPErrors(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		core, seen := observer.New(zapcore.InfoLevel)
		log := httpErrors(zap.New(core))
		for range 5000 {
			log.Printf("http: TLS handshake error from 192.0.2.1:40000: client sent an HTTP request to an HTTPS server\n")
		}
		if n := seen.Len(); n != httpErrorLines {
			t.Errorf("%d lines", n)
		}
		time.Sleep(httpErrorEvery)
		log.Printf("http: TLS handshake error from 192.0.2.1:40000: EOF")
		last := seen.All()[seen.Len()-1]
		if got := last.ContextMap()["left_out"]; got != int64(5000-httpErrorLines) {
			t.Errorf("%v were left out: %v", got, last)
		}
		log.Printf("http: panic serving 192.0.2.1:40000: boom\ngoroutine 1 [running]:\nmain.main()\n")
		last = seen.All()[seen.Len()-1]
		if last.Level != zapcore.ErrorLevel || !strings.Contains(last.ContextMap()["stack"].(string), "main.main") {
			t.Errorf("a panic is logged as %v", last)
		}
	})
}

func TestQuietSlog(t *testing.T) {
	core, seen := observer.New(zapcore.DebugLevel)
	log := quietSlog(zap.New(core)).With("a", 1).WithGroup("g")
	log.Info("news")
	log.Warn("trouble", "b", 2)
	log.Error("worse")
	if log.Handler().Enabled(t.Context(), slog.LevelDebug) != true {
		t.Error("debug is off")
	}
	var got []string
	for _, e := range seen.All() {
		got = append(got, e.Level.String()+" "+e.Message)
	}
	if text := strings.Join(got, ", "); text != "debug news, warn trouble, error worse" {
		t.Error(text)
	}
}

// TestSourceFlaps: a source that goes up and down is logged some times, then once
// a minute, with what was left out, and in the end as it is.
func TestSourceFlaps(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		core, seen := observer.New(zapcore.InfoLevel)
		l := newSourceLog(zap.New(core))
		show := func(up bool) *phases.Snapshot {
			s := phases.Source{Source: event.SourceGPU, Up: up, State: "up"}
			if !up {
				s.State, s.Reason = "hung", "a call of the driver\nhas not returned"
			}
			return &phases.Snapshot{Sources: []phases.Source{s, {Source: event.SourceUnit, State: "no_bus"}, {Source: event.SourceJournal, Up: true, State: "up"}}}
		}
		const flaps = 6000 // ten minutes
		for i := range flaps {
			l.write(show(i%2 == 0))
			time.Sleep(100 * time.Millisecond)
		}
		if n := seen.FilterField(zap.String("source", event.SourceGPU)).Len(); n < 10 || n > fullChanges+11 {
			t.Errorf("%d lines in ten minutes", n)
		}
		time.Sleep(changeEvery)
		l.write(show(false))
		gpu := seen.FilterField(zap.String("source", event.SourceGPU)).All()
		last := gpu[len(gpu)-1]
		if last.Level != zapcore.WarnLevel || last.Message != "A source is down: a call of the driver has not returned" {
			t.Errorf("the last line is %v", last)
		}
		changes := int64(len(gpu))
		for _, e := range gpu {
			if n, ok := e.ContextMap()["changes_left_out"].(int64); ok {
				changes += n
			}
		}
		if changes != flaps {
			t.Errorf("%d of %d changes are told or counted", changes, flaps)
		}
		if n := seen.FilterField(zap.String("source", event.SourceJournal)).Len(); n != 1 {
			t.Errorf("%d lines of a source that is up all the time", n)
		}
		if n := seen.FilterField(zap.String("source", event.SourceUnit)).Len(); n != 0 {
			t.Errorf("the unit's source is logged twice")
		}
	})
}

// TestUnitSourceIsQuiet: that a unit has no process, and the same limits with each
// start, are no news; that its source is down, and up again, is.
func TestUnitSourceIsQuiet(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		core, seen := observer.New(zapcore.InfoLevel)
		l := newSourceLog(zap.New(core))
		show := func(up bool, state, reason string) {
			l.write(&phases.Snapshot{Sources: []phases.Source{{Source: event.SourceHost, Target: "a.service", Up: up, State: state, Reason: reason}}})
			time.Sleep(time.Minute)
		}
		for range 100 {
			show(true, "idle", "")
			show(true, "no_io", "not accounted")
			show(true, "up", "")
		}
		show(false, "not_permitted", "hidden")
		show(true, "up", "")
		show(true, "idle", "")
		var got []string
		for _, e := range seen.All() {
			got = append(got, e.Level.CapitalString()+" "+e.Message)
		}
		want := "INFO A source is up, with limits: not accounted\nWARN A source is down: hidden\nINFO A source is up"
		if text := strings.Join(got, "\n"); text != want {
			t.Errorf("got\n%s\nwant\n%s", text, want)
		}
	})
}
