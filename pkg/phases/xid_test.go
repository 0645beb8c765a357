package phases

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/startupd/startupd/pkg/event"
)

func TestParseXid(t *testing.T) {
	for _, c := range []struct {
		text, address string
		xid           int
	}{
		{"NVRM: Xid (PCI:0000:3b:00): 79, pid=2301, GPU has fallen off the bus.", "0000:3b:00", 79},
		{"NVRM: Xid (PCI:0000:3B:00): 31, pid='<unknown>', name=<unknown>, Ch 00000008", "0000:3b:00", 31},
		{"NVRM: Xid (PCI:0000:3b:00): , pid", "", 0},
		{"NVRM: Xid (PCI:0000:3b:00", "", 0},
		{"NVRM: Xid (PCI:): 79", "", 0},
		{"Out of memory: Killed process 1", "", 0},
		{"", "", 0},
	} {
		address, xid, ok := parseXid(c.text)
		if address != c.address || xid != c.xid || ok != (c.address != "") {
			t.Errorf("%q: %q, %d, %v", c.text, address, xid, ok)
		}
	}
}

func TestXidsAreCountedOnce(t *testing.T) {
	s := newScript(t)
	kernel := func(sec float64, text string, replayed bool) {
		s.host.Apply(event.Event{At: at(sec), Replayed: replayed, Data: &event.Line{Text: text, Origin: event.OriginKernel}})
	}
	const xid = "NVRM: Xid (PCI:0000:3b:00): 79, pid=2301, GPU has fallen off the bus."
	kernel(1, xid, true)
	kernel(2, xid, false)
	kernel(3, xid, false)
	if diff := cmp.Diff([]Xid{{GPU: "0000:3b:00", Xid: 79, Count: 2, Last: at(3)}}, s.host.Snapshot().Xids); diff != "" {
		t.Errorf("before NVML has told addresses: %s", diff)
	}
	s.hostWide(4, &event.GPUSample{GPUs: []event.GPU{{Index: 5, PCI: "0000:3b:00"}}})
	want := []Xid{{GPU: "5", Xid: 79, Count: 2, Last: at(3)}}
	if diff := cmp.Diff(want, s.host.Snapshot().Xids); diff != "" {
		t.Error(diff)
	}
	again := newScript(t)
	again.host.Restore(s.host.Save())
	if diff := cmp.Diff(want, again.host.Snapshot().Xids); diff != "" {
		t.Errorf("after a restart: %s", diff)
	}
}

func TestRestartLoop(t *testing.T) {
	s := newScript(t)
	ids := []string{first, other, "33333333333333333333333333333333", "44444444444444444444444444444444"}
	for i, id := range ids[:3] {
		s.inv = id
		s.line(float64(10*i), lineVersion)
		s.exit(float64(10*i+5), "exited", "1")
		if got := s.target().RestartLoop; got != (i == 2) {
			t.Errorf("after %d failed starts a loop is %v", i+1, got)
		}
	}
	saved := s.host.Save()
	s = newScript(t)
	s.host.Restore(saved)
	if !s.target().RestartLoop {
		t.Error("a restart of the daemon forgets the loop")
	}
	s.inv = ids[3]
	s.goodStart(100)
	s.tick(1000)
	if s.target().RestartLoop {
		t.Error("a start that served leaves a loop")
	}
}
