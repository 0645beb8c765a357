//go:build cgo

package gpu

import (
	"fmt"

	"github.com/NVIDIA/go-nvml/pkg/dl"
	"github.com/NVIDIA/go-nvml/pkg/nvml"
)

// driver speaks NVML. go-nvml binds its calls lazily, so a call whose symbol
// the library lacks ends the process: each is looked up before its first use.
type driver struct {
	path string
	lib  nvml.Interface
	// handle is only used to look symbols up; nil until the library is loaded.
	handle *dl.DynamicLibrary
	// symbols remembers what was looked up.
	symbols map[string]bool
	// ready is true once nvmlInit has succeeded.
	ready bool
}

// newSampler returns a sampler on the library at path; "" is NVML's usual name.
func newSampler(path string) sampler {
	if path == "" {
		path = "libnvidia-ml.so.1"
	}
	return &driver{path: path, lib: nvml.New(nvml.WithLibraryPath(path)), symbols: map[string]bool{}}
}

// sample looks at every GPU. It initialises the driver where that is not done,
// so a driver that comes later is found.
func (d *driver) sample() report {
	if !d.ready {
		if r, ok := d.open(); !ok {
			return r
		}
	}
	n, ret := d.lib.DeviceGetCount()
	if ret != nvml.SUCCESS {
		d.close()
		return d.refusal("nvmlDeviceGetCount", ret)
	}
	looks := make([]look, n)
	for i := range looks {
		looks[i] = d.look(i)
	}
	return sum(looks)
}

// open loads the library and initialises it; ok is false when it can't, and
// the report then says why.
func (d *driver) open() (r report, ok bool) {
	if d.handle == nil {
		h := dl.New(d.path, dl.RTLD_LAZY|dl.RTLD_GLOBAL)
		if err := h.Open(); err != nil {
			return report{State: StateNoDriver, Reason: fmt.Sprintf(
				"can't load %s (%v): install the NVIDIA driver, or name the library by --gpu.nvml-library", d.path, err)}, false
		}
		d.handle = h
	}
	for _, s := range [...][]string{
		{"nvmlInit_v2", "nvmlInit"},
		{"nvmlShutdown"},
		{"nvmlErrorString"},
		{"nvmlDeviceGetCount_v2", "nvmlDeviceGetCount"},
		{"nvmlDeviceGetHandleByIndex_v2", "nvmlDeviceGetHandleByIndex"},
	} {
		if !d.has(s...) {
			return report{State: StateDriverError, Reason: fmt.Sprintf(
				"%s has no %s, so it is not NVIDIA's NVML library: look at --gpu.nvml-library", d.path, s[0])}, false
		}
	}
	if ret := d.lib.Init(); ret != nvml.SUCCESS {
		return d.refusal("nvmlInit", ret), false
	}
	d.ready = true
	return report{}, true
}

// has says that the library has one of these symbols.
func (d *driver) has(names ...string) bool {
	for _, name := range names {
		ok, seen := d.symbols[name]
		if !seen {
			ok = d.handle.Lookup(name) == nil
			d.symbols[name] = ok
		}
		if ok {
			return true
		}
	}
	return false
}

// refusal reports that the driver as a whole does not answer.
func (d *driver) refusal(call string, ret nvml.Return) report {
	r := report{State: StateDriverError}
	hint := "look at nvidia-smi and at the kernel's log"
	switch ret {
	case nvml.ERROR_DRIVER_NOT_LOADED:
		hint = "load the kernel module (modprobe nvidia) and see that this user may open /dev/nvidiactl"
	case nvml.ERROR_NO_PERMISSION, nvml.ERROR_OPERATING_SYSTEM:
		hint = "give this user access to /dev/nvidiactl and /dev/nvidia* (DeviceAllow= in the unit)"
	case nvml.ERROR_LIB_RM_VERSION_MISMATCH:
		// The old library stays mapped in this process.
		r.spent = true
		hint = "the driver was updated while its kernel module was in use: reload the module or reboot"
	}
	r.Reason = fmt.Sprintf("%s: %s: %s", call, ret.Error(), hint)
	return r
}

// close lets go of the driver; the next sample initialises it again.
func (d *driver) close() {
	if d.ready {
		_ = d.lib.Shutdown()
		d.ready = false
	}
}
