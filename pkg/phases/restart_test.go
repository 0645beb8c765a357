package phases

import (
	"testing"

	"github.com/startupd/startupd/pkg/event"
)

// In a container the main process is always 1.
func TestRestartWithTheSamePID(t *testing.T) {
	for _, text := range []bool{false, true} {
		s := newScript(t, func(c *Config) { c.Text = text })
		s.line(0, lineVersion)
		s.line(10, lineLoad)
		s.line(20, lineWrapper)
		s.line(60, lineVersion)
		if st := s.startup(); st.Generation != 1 || st.Began != at(60) || st.RootCause != nil {
			t.Errorf("text %v: generation %d, began %v, cause %v", text, st.Generation, st.Began, st.RootCause)
		}
		s.line(61, lineVersion)
		if st := s.startup(); st.Generation != 1 {
			t.Errorf("text %v: a banner that repeats itself begins a start", text)
		}
	}
}

// Watermarks are of this host's boot, the entries may be of another host's.
func TestForeignJournal(t *testing.T) {
	s := newScript(t).live()
	s.host.machines[unit].foreign = true
	s.goodStart(0)
	here := at(5000)
	here.Boot, here.Mono = "b1000000000000000000000000000000", 0
	s.host.Apply(event.Event{At: here, Data: &event.Watermark{}})
	s.wantState(Serving)
}

func TestLastLinesGoOnAfterTheFailure(t *testing.T) {
	s := newScript(t)
	s.line(0, lineVersion)
	s.line(20, "(EngineCore pid=5) ERROR 03-01 23:30:20 [core.py:1] EngineCore failed to start.")
	s.startup() // judges
	s.line(20, "(EngineCore pid=5) ERROR 03-01 23:30:20 [core.py:1] its last word")
	if got := s.startup().RootCause.LastLines["EngineCore"]; got != "its last word" {
		t.Errorf("last line %q", got)
	}
}

// Who begins to look in the middle knows of no start before.
func TestLateLineOfAnEarlierInvocation(t *testing.T) {
	for _, told := range []bool{false, true} {
		s := newScript(t).live()
		if told {
			s.host.Apply(event.Event{Target: unit, Replayed: true, Data: &event.Earlier{Invocation: "0e"}})
		}
		s.goodStart(0)
		s.host.Apply(event.Event{At: at(500), Target: unit, Data: &event.Line{Text: lineLoad, Invocation: "0e"}})
		if got := s.startup().Invocation == "0e"; got == told {
			t.Errorf("told %v: the line begins a start: %v", told, got)
		}
	}
}
