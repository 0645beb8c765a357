package phases

import (
	"cmp"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/startupd/startupd/pkg/event"
)

const (
	// maxXid is the highest number that is taken for one of the driver's: it knows
	// about 200.
	maxXid = 999
	// maxXids bounds the numbers that are told apart on one GPU, OtherXid apart;
	// maxXidGPUs bounds the GPUs.
	maxXids    = 16
	maxXidGPUs = 32
)

// OtherXid stands for a number that is none of the driver's, and for those that are
// too many on one GPU.
const OtherXid = 0

// xids counts the NVIDIA driver's error reports by GPU. What is counted stays when
// its GPU is gone: that it has fallen off the bus is such a report.
type xids struct {
	// byAddress holds counts by PCI address, as the kernel names the GPU.
	byAddress map[string]map[int]SavedXid
	// index is each address's GPU, as NVML numbers them. A GPU that is gone keeps its
	// number until another one has it.
	index map[string]int
}

func newXids() xids {
	return xids{byAddress: map[string]map[int]SavedXid{}, index: map[string]int{}}
}

// parseXid reads the driver's line in the kernel's log:
//
//	NVRM: Xid (PCI:0000:3b:00): 79, pid=2301, GPU has fallen off the bus.
//	NVRM: Xid (PCI:0000:3b:00 GPU-I:05 GPU-CI:00): 94, pid=2301, Contained: ...
//
// Of a part of a GPU (MIG) it counts for the GPU.
func parseXid(text string) (address string, xid int, ok bool) {
	_, rest, found := strings.Cut(text, "NVRM: Xid (PCI:")
	if !found {
		return "", 0, false
	}
	address, rest, found = strings.Cut(rest, "): ")
	address, _, _ = strings.Cut(address, " GPU-I:")
	digits := len(rest) - len(strings.TrimLeft(rest, "0123456789"))
	if !found || digits == 0 || !isPCI(address) {
		return "", 0, false
	}
	xid, err := strconv.Atoi(rest[:digits])
	if err != nil || xid < 1 || xid > maxXid {
		xid = OtherXid
	}
	return strings.ToLower(address), xid, true
}

// isPCI says that a text is a PCI address: domain, bus, device and perhaps a
// function in hex.
func isPCI(address string) bool {
	return len(address) <= len("00000000:00:00.0") && strings.Count(address, ":") == 2 &&
		strings.Trim(address, "0123456789abcdefABCDEF:.") == "" && !strings.HasPrefix(address, ":")
}

// take counts a line of the kernel, if it is one of the driver's reports.
func (x *xids) take(text string, at event.Stamp) {
	if address, xid, ok := parseXid(text); ok {
		x.add(SavedXid{Address: strings.Clone(address), Xid: xid, Count: 1, Last: at})
	}
}

// add adds reports of one GPU. Of too many GPUs, the one goes whose last report is
// the oldest; one that NVML knows goes last.
func (x *xids) add(s SavedXid) {
	counts := x.byAddress[s.Address]
	if counts == nil {
		if len(x.byAddress) >= maxXidGPUs {
			x.evict()
		}
		counts = map[int]SavedXid{}
		x.byAddress[s.Address] = counts
	}
	told := len(counts)
	if _, other := counts[OtherXid]; other {
		told--
	}
	if _, known := counts[s.Xid]; !known && told >= maxXids || s.Xid < 1 || s.Xid > maxXid {
		s.Xid = OtherXid
	}
	old := counts[s.Xid]
	s.Count += old.Count
	if old.Last.After(s.Last) {
		s.Last = old.Last
	}
	counts[s.Xid] = s
}

func (x *xids) evict() {
	out := ""
	for _, address := range slices.Sorted(maps.Keys(x.byAddress)) {
		if out == "" || x.sooner(address, out) {
			out = address
		}
	}
	delete(x.byAddress, out)
}

// sooner says that a's counts go before b's.
func (x *xids) sooner(a, b string) bool {
	_, knownA := x.index[a]
	_, knownB := x.index[b]
	if knownA != knownB {
		return knownB
	}
	return x.last(a).Before(x.last(b))
}

// last is when an address was last reported.
func (x *xids) last(address string) (at event.Stamp) {
	for _, s := range x.byAddress[address] {
		if at.IsZero() || s.Last.After(at) {
			at = s.Last
		}
	}
	return at
}

// learn takes the addresses of a sample. GPUs are numbered anew when one is gone:
// two of them must never have the same number.
func (x *xids) learn(gpus []event.GPU) {
	for _, g := range gpus {
		if g.PCI == "" {
			continue
		}
		if i, ok := x.index[g.PCI]; ok && i == g.Index {
			continue
		}
		maps.DeleteFunc(x.index, func(_ string, i int) bool { return i == g.Index })
		x.index[g.PCI] = g.Index
	}
}

// publish lists the counts by GPU.
func (x *xids) publish() []Xid {
	var out []Xid
	for _, s := range x.save() {
		gpu := s.Address
		if i, ok := x.index[s.Address]; ok {
			gpu = strconv.Itoa(i)
		}
		out = append(out, Xid{GPU: gpu, Xid: s.Xid, Count: s.Count, Last: s.Last})
	}
	return out
}

func (x *xids) save() []SavedXid {
	var out []SavedXid
	for _, counts := range x.byAddress {
		for _, s := range counts {
			out = append(out, s)
		}
	}
	slices.SortFunc(out, func(a, b SavedXid) int {
		return cmp.Or(strings.Compare(a.Address, b.Address), cmp.Compare(a.Xid, b.Xid))
	})
	return out
}

func (x *xids) restore(saved []SavedXid, index map[string]int) {
	// First the numbers: they decide which counts stay if there are too many.
	for _, address := range slices.Sorted(maps.Keys(index)) {
		x.learn([]event.GPU{{Index: index[address], PCI: address}})
	}
	for _, s := range saved {
		x.add(s)
	}
}
