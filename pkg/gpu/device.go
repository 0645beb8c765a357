//go:build cgo

package gpu

import (
	"cmp"
	"fmt"
	"math"
	"slices"

	"github.com/NVIDIA/go-nvml/pkg/nvml"

	"github.com/startupd/startupd/pkg/event"
)

// look reads one GPU. No call's failure keeps the others from being made,
// unless the GPU is gone.
func (d *driver) look(index int) look {
	l := look{gpu: event.GPU{Index: index}}
	dev, ret := d.lib.DeviceGetHandleByIndex(index)
	if ret != nvml.SUCCESS {
		l.gpu.Lost = ret.Error()
		return l
	}
	if d.has("nvmlDeviceGetUUID") {
		if s, ret := dev.GetUUID(); l.ok("nvmlDeviceGetUUID", ret) {
			l.gpu.UUID = s
		}
	}
	if d.has("nvmlDeviceGetName") {
		if s, ret := dev.GetName(); l.ok("nvmlDeviceGetName", ret) {
			l.gpu.Name = s
		}
	}
	if d.has("nvmlDeviceGetPciInfo_v3", "nvmlDeviceGetPciInfo_v2", "nvmlDeviceGetPciInfo") {
		if p, ret := dev.GetPciInfo(); l.ok("nvmlDeviceGetPciInfo", ret) {
			l.gpu.PCI = fmt.Sprintf("%04x:%02x:%02x", p.Domain, p.Bus, p.Device)
		}
	}
	if d.has("nvmlDeviceGetMigMode") {
		if current, _, ret := dev.GetMigMode(); l.ok("nvmlDeviceGetMigMode", ret) {
			l.gpu.MIG = current == nvml.DEVICE_MIG_ENABLE
		}
	}
	d.memory(&l, dev)
	d.utilization(&l, dev)
	l.gpu.Processes = d.processes(&l, dev)
	if l.gpu.Lost != "" {
		// What was read before the GPU went says nothing of now.
		l.gpu = event.GPU{Index: index, UUID: l.gpu.UUID, Name: l.gpu.Name, PCI: l.gpu.PCI, MIG: l.gpu.MIG, Lost: l.gpu.Lost}
	}
	return l
}

// ok says that a call succeeded, and else keeps what its failure means.
func (l *look) ok(call string, ret nvml.Return) bool {
	switch ret {
	case nvml.SUCCESS:
		return true
	case nvml.ERROR_NOT_SUPPORTED, nvml.ERROR_FUNCTION_NOT_FOUND:
	case nvml.ERROR_GPU_IS_LOST, nvml.ERROR_RESET_REQUIRED:
		l.gpu.Lost = ret.Error()
	default:
		l.problems = append(l.problems, call+": "+ret.Error())
	}
	return false
}

// memory prefers version 2, whose "used" leaves out what the driver reserves
// for itself; version 1 counts that in.
func (d *driver) memory(l *look, dev nvml.Device) {
	if d.has("nvmlDeviceGetMemoryInfo_v2") {
		m, ret := dev.GetMemoryInfo_v2()
		if ret != nvml.ERROR_FUNCTION_NOT_FOUND && ret != nvml.ERROR_ARGUMENT_VERSION_MISMATCH {
			if l.ok("nvmlDeviceGetMemoryInfo_v2", ret) {
				l.gpu.UsedBytes, l.gpu.TotalBytes = &m.Used, &m.Total
			}
			return
		}
	}
	if !d.has("nvmlDeviceGetMemoryInfo") {
		return
	}
	if m, ret := dev.GetMemoryInfo(); l.ok("nvmlDeviceGetMemoryInfo", ret) {
		l.gpu.UsedBytes, l.gpu.TotalBytes = &m.Used, &m.Total
	}
}

func (d *driver) utilization(l *look, dev nvml.Device) {
	if l.gpu.MIG || !d.has("nvmlDeviceGetUtilizationRates") {
		return
	}
	if u, ret := dev.GetUtilizationRates(); l.ok("nvmlDeviceGetUtilizationRates", ret) {
		ratio := float64(u.Gpu) / 100
		l.gpu.UtilizationRatio = &ratio
	}
}

// holders maps a PID to the bytes that it holds; nil is not told.
type holders map[int]*uint64

// processes returns who holds the GPU, by PID; nil when no list can be read.
func (d *driver) processes(l *look, dev nvml.Device) []event.GPUProcess {
	list := d.holders
	if l.gpu.MIG {
		list = d.migHolders
	}
	found := list(l, dev)
	if found == nil {
		return nil
	}
	procs := make([]event.GPUProcess, 0, len(found))
	for pid, used := range found {
		procs = append(procs, event.GPUProcess{PID: pid, UsedBytes: used})
	}
	slices.SortFunc(procs, func(a, b event.GPUProcess) int { return cmp.Compare(a.PID, b.PID) })
	return procs
}

// holders merges the lists of one device. A process that computes and draws is
// in two of them with the same memory. It is nil when no list can be read.
func (d *driver) holders(l *look, dev nvml.Device) holders {
	var found holders
	for _, list := range [...]struct {
		symbol string
		get    func() ([]nvml.ProcessInfo, nvml.Return)
	}{
		{"nvmlDeviceGetComputeRunningProcesses", dev.GetComputeRunningProcesses},
		{"nvmlDeviceGetGraphicsRunningProcesses", dev.GetGraphicsRunningProcesses},
		{"nvmlDeviceGetMPSComputeRunningProcesses", dev.GetMPSComputeRunningProcesses},
	} {
		if !d.has(list.symbol+"_v3", list.symbol+"_v2", list.symbol) {
			continue
		}
		infos, ret := list.get()
		if !l.ok(list.symbol, ret) {
			continue
		}
		if found == nil {
			found = holders{}
		}
		for _, p := range infos {
			found.merge(int(p.Pid), p.UsedGpuMemory)
		}
	}
	return found
}

// merge adds one entry of a list.
func (h holders) merge(pid int, used uint64) {
	switch known := h[pid]; {
	case used == math.MaxUint64: // NVML_VALUE_NOT_AVAILABLE
		h[pid] = known
	case known == nil || *known < used:
		h[pid] = &used
	}
}

// migHolders adds up what each process holds on the MIG devices of a GPU. The
// GPU's own list has these processes only for a privileged caller. It is nil
// when no list can be read.
func (d *driver) migHolders(l *look, dev nvml.Device) holders {
	if !d.has("nvmlDeviceGetMaxMigDeviceCount") || !d.has("nvmlDeviceGetMigDeviceHandleByIndex") {
		return nil
	}
	n, ret := dev.GetMaxMigDeviceCount()
	if !l.ok("nvmlDeviceGetMaxMigDeviceCount", ret) {
		return nil
	}
	var total holders
	for i := range n {
		mig, ret := dev.GetMigDeviceHandleByIndex(i)
		if ret == nvml.ERROR_NOT_FOUND || !l.ok("nvmlDeviceGetMigDeviceHandleByIndex", ret) {
			continue
		}
		found := d.holders(l, mig)
		if found != nil && total == nil {
			total = holders{}
		}
		for pid, used := range found {
			total.add(pid, used)
		}
	}
	return total
}

// add counts what a process holds on one more device; a sum with an unknown
// part is unknown.
func (h holders) add(pid int, used *uint64) {
	known, ok := h[pid]
	switch {
	case !ok:
		h[pid] = used
	case known == nil || used == nil:
		h[pid] = nil
	default:
		both := *known + *used
		h[pid] = &both
	}
}
