package phases

import (
	"cmp"
	"slices"
	"strconv"
	"strings"

	"github.com/startupd/startupd/pkg/event"
)

// xids counts the NVIDIA driver's error reports by GPU.
type xids struct {
	// byAddress holds counts by PCI address, as the kernel names the GPU.
	byAddress map[string]map[int]SavedXid
	// index is each address's GPU, as NVML numbers them.
	index map[string]int
}

func newXids() xids {
	return xids{byAddress: map[string]map[int]SavedXid{}, index: map[string]int{}}
}

// parseXid reads the driver's line in the kernel's log:
//
//	NVRM: Xid (PCI:0000:3b:00): 79, pid=2301, GPU has fallen off the bus.
func parseXid(text string) (address string, xid int, ok bool) {
	_, rest, found := strings.Cut(text, "NVRM: Xid (PCI:")
	if !found {
		return "", 0, false
	}
	address, rest, found = strings.Cut(rest, "): ")
	digits := len(rest) - len(strings.TrimLeft(rest, "0123456789"))
	xid, err := strconv.Atoi(rest[:digits])
	if !found || err != nil || address == "" || len(address) > len("00000000:00:00.0") {
		return "", 0, false
	}
	return strings.ToLower(address), xid, true
}

// take counts a line of the kernel, if it is one of the driver's reports.
func (x *xids) take(text string, at event.Stamp) {
	address, xid, ok := parseXid(text)
	if !ok {
		return
	}
	counts := x.byAddress[address]
	if counts == nil {
		counts = map[int]SavedXid{}
		x.byAddress[strings.Clone(address)] = counts
	}
	counts[xid] = SavedXid{Address: address, Xid: xid, Count: counts[xid].Count + 1, Last: at}
}

// learn takes the addresses of a sample.
func (x *xids) learn(gpus []event.GPU) {
	for _, g := range gpus {
		if g.PCI != "" {
			x.index[g.PCI] = g.Index
		}
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
	for _, s := range saved {
		if x.byAddress[s.Address] == nil {
			x.byAddress[s.Address] = map[int]SavedXid{}
		}
		x.byAddress[s.Address][s.Xid] = s
	}
	for address, i := range index {
		x.index[address] = i
	}
}
