package phases

import (
	"fmt"
	"slices"
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
		{"NVRM: Xid (PCI:00000000:3b:00.0): 154, pid=1", "00000000:3b:00.0", 154},
		{"NVRM: Xid (PCI:0000:3b:00 GPU-I:05): 94, pid=7, name=python, Contained: HBM", "0000:3b:00", 94},
		{"NVRM: Xid (PCI:0000:3b:00 GPU-I:05 GPU-CI:01): 43, pid=7", "0000:3b:00", 43},
		{"NVRM: Xid (PCI:0000:3b:00 of another kind): 43, pid=7", "", 0},
		{"NVRM: Xid (PCI:0000:3b:00): 0", "0000:3b:00", OtherXid},
		{"NVRM: Xid (PCI:0000:3b:00): 1000", "0000:3b:00", OtherXid},
		{"NVRM: Xid (PCI:0000:3b:00): 99999999999999999999999", "0000:3b:00", OtherXid},
		{"NVRM: Xid (PCI:0000:3b:00): , pid", "", 0},
		{"NVRM: Xid (PCI:0000:3b:00): -5", "", 0},
		{"NVRM: Xid (PCI:my GPU): 79", "", 0},
		{"NVRM: Xid (PCI:3b:00): 79", "", 0},
		{"NVRM: Xid (PCI:000000000:3b:00.0): 79", "", 0},
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

// xidLine is the driver's report of a GPU whose bus has the number bus.
func (s *script) xidLine(sec float64, bus, xid int) {
	s.hostWide(sec, &event.Line{Text: fmt.Sprintf("NVRM: Xid (PCI:0000:%02x:00): %d, pid=1", bus, xid), Origin: event.OriginKernel})
}

// gpusAt samples GPUs that are numbered in the order of their buses.
func (s *script) gpusAt(sec float64, buses ...int) {
	sample := &event.GPUSample{}
	for i, bus := range buses {
		sample.GPUs = append(sample.GPUs, event.GPU{Index: i, PCI: fmt.Sprintf("0000:%02x:00", bus)})
	}
	s.hostWide(sec, sample)
}

func (s *script) wantXids(want ...string) {
	s.t.Helper()
	got := []string{}
	for _, x := range s.host.Snapshot().Xids {
		got = append(got, fmt.Sprintf("%s %d: %d", x.GPU, x.Xid, x.Count))
	}
	slices.Sort(got)
	if diff := cmp.Diff(want, got); diff != "" {
		s.t.Error(diff)
	}
}

// TestXidsOfAGPUThatIsGone keeps them: that it fell off the bus is one of them. No
// other GPU gets them when the driver numbers anew.
func TestXidsOfAGPUThatIsGone(t *testing.T) {
	s := newScript(t)
	s.gpusAt(0, 0x3a, 0x3b, 0x3c)
	s.xidLine(1, 0x3b, 79)
	s.xidLine(1, 0x3c, 31)
	s.wantXids("1 79: 1", "2 31: 1")
	s.gpusAt(2, 0x3a, 0x3b) // the last one is gone
	s.wantXids("1 79: 1", "2 31: 1")
	s.gpusAt(3, 0x3a, 0x3c) // numbered anew
	s.wantXids("0000:3b:00 79: 1", "1 31: 1")
	s.gpusAt(4, 0x3c, 0x3a, 0x3b) // all back, in another order
	s.wantXids("0 31: 1", "2 79: 1")
	s.gpusAt(5)
	s.wantXids("0 31: 1", "2 79: 1")

	again := newScript(t)
	again.host.Restore(throughJSON(t, s.host.Save()))
	again.wantXids("0 31: 1", "2 79: 1")
	again.host.Restore(Saved{GPUs: map[string]int{"0000:3a:00": 0, "0000:3b:00": 0}}) // of a version that kept both
	again.wantXids("0 79: 1", "0000:3c:00 31: 1")
}

// TestXidsAreBounded writes whatever a kernel's log could hold.
func TestXidsAreBounded(t *testing.T) {
	s := newScript(t)
	s.gpusAt(0, 1)
	s.xidLine(1, 1, 79)
	for xid := range 2000 {
		s.xidLine(2, 2, xid+1)
	}
	series := map[int]uint64{}
	for _, x := range s.host.Snapshot().Xids {
		if x.GPU == "0000:02:00" {
			series[x.Xid] = x.Count
		}
	}
	if len(series) != maxXids+1 || series[5] != 1 {
		t.Errorf("%d numbers of one GPU, want %d and the others: %v", len(series), maxXids, series)
	}
	sum := uint64(0)
	for _, n := range series {
		sum += n
	}
	if sum != 2000 || series[OtherXid] < 1900 {
		t.Errorf("%d reports are counted, of them %d as others; want all 2000", sum, series[OtherXid])
	}
	again := newScript(t)
	again.host.Restore(throughJSON(t, s.host.Save()))
	if diff := cmp.Diff(s.host.Snapshot().Xids, again.host.Snapshot().Xids); diff != "" {
		t.Errorf("after a restart others are told apart: %s", diff)
	}
	for bus := range 256 {
		s.xidLine(3+float64(bus), bus, 31)
	}
	saved := s.host.Save()
	gpus := map[string]bool{}
	for _, x := range saved.Xids {
		gpus[x.Address] = true
	}
	if len(gpus) != maxXidGPUs || !gpus["0000:01:00"] || !gpus["0000:ff:00"] {
		t.Errorf("%d GPUs, want %d with the one that NVML knows and the newest: %v", len(gpus), maxXidGPUs, gpus)
	}
	for bus := range 256 {
		saved.Xids = append(saved.Xids, SavedXid{Address: fmt.Sprintf("0001:%02x:00", bus), Xid: 5000 + bus, Count: 1, Last: at(500)})
	}
	again = newScript(t)
	again.host.Restore(saved)
	if got := again.host.Save().Xids; len(got) > maxXidGPUs*(maxXids+1) {
		t.Errorf("%d series come out of a state file, want at most %d", len(got), maxXidGPUs*(maxXids+1))
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
