package explain

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/startupd/startupd/pkg/event"
	"github.com/startupd/startupd/pkg/phases"
	"github.com/startupd/startupd/pkg/triage"
	"github.com/startupd/startupd/pkg/web/api"
)

// TestOf: by way of the daemon's document a startup is told of as it is from the
// core itself.
func TestOf(t *testing.T) {
	no, one := false, 1
	s := unknown()
	s.Engine = phases.Engine{Name: "e", Version: "1", Model: "m"}
	s.RootCause.Retry, s.RootCause.NotArrived, s.RootCause.Provisional, s.RootCause.Cursor = &no, []string{"a", "b"}, true, "s=1"
	s.RootCause.At = at(time.Second)
	s.Findings = []triage.Finding{{Verdict: triage.Suspect, Message: "m", Process: "p", Processes: []string{"p", "q"}, Count: 3, At: at(time.Second), New: true, Good: &one, Bad: &one}}
	s.Gaps = []phases.Gap{{Kind: event.GapLost, Lines: 2, Detail: "d", At: at(time.Second)}}
	s.NewErrors = &one
	s.ServingEnded, s.ServingEndReason = at(time.Minute), "killed"
	s.Phases[0].Evidence = phases.Evidence{Source: "log", Rule: "r", Text: "t", Cursor: "s=2", LineNo: 7}
	want := newReport(target, []*phases.Startup{s}, span{0, 1})
	got := Of(api.NewStartup(target, s, s.Ended))
	same := cmp.Options{
		cmpopts.IgnoreUnexported(Startup{}), cmpopts.EquateEmpty(),
		// Equal instants may have been told by two clocks.
		cmp.Comparer(func(a, b time.Time) bool { return a.Equal(b) }),
	}
	if diff := cmp.Diff(want, got, same); diff != "" {
		t.Error(diff)
	}
	if title := got.Startups[0].title(); title[:8] != "startup," {
		t.Errorf("title %q", title)
	}
	bare := Of(&api.Startup{Unit: target, RootCause: &api.RootCause{}, Findings: []api.Finding{{}}})
	if b := bare.Startups[0]; b.Began != nil || b.RootCause.Class != triage.ClassUnknown || b.RootCause.At != nil || b.Findings[0].Class != triage.ClassUnknown || b.Findings[0].New != nil {
		t.Errorf("what is not known is told: %+v", b)
	}
}
