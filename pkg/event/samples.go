package event

// UnitState is systemd's present view of a unit, over D-Bus.
type UnitState struct {
	// Loaded is false when systemd knows no such unit, or has unloaded one of a glob
	// as nothing needs it any more.
	Loaded bool `json:"loaded"`
	// ActiveState is active, reloading, inactive, failed, activating or
	// deactivating.
	ActiveState string `json:"active_state"`
	SubState    string `json:"sub_state"`
	// Invocation is the present invocation ID (32 hex digits); "" when none.
	Invocation string `json:"invocation,omitempty"`
	// MainPID is 0 when there is no main process.
	MainPID  int `json:"main_pid,omitempty"`
	Restarts int `json:"restarts"`
	// ControlGroup is the unit's path below the cgroup root; "" when none.
	ControlGroup string `json:"control_group,omitempty"`
	// Result is success, exit-code, signal, timeout, oom-kill, ...
	Result string `json:"result,omitempty"`
	// ExecStart is the main command's line, for the choice of a profile; "" when
	// not known.
	ExecStart string `json:"exec_start,omitempty"`
	// ActiveEnter is when the unit last became active; zero when never.
	ActiveEnter Stamp `json:"active_enter"`
	// InactiveExit is when the present start began; zero when never.
	InactiveExit Stamp `json:"inactive_exit"`
}

// GPUSample is one look at every GPU of the host.
type GPUSample struct {
	// GPUs is in the driver's order.
	GPUs []GPU `json:"gpus"`
}

// GPU is one device. A nil number could not be read; it is never 0 instead.
type GPU struct {
	Index int    `json:"index"`
	UUID  string `json:"uuid,omitempty"`
	Name  string `json:"name,omitempty"`
	// PCI is the device's address, domain:bus:device in hex ("0000:3b:00"), as
	// the kernel's Xid lines have it; "" when not known.
	PCI string `json:"pci,omitempty"`
	// UsedBytes and TotalBytes are of device memory; nil with unified memory.
	UsedBytes  *uint64 `json:"used_bytes,omitempty"`
	TotalBytes *uint64 `json:"total_bytes,omitempty"`
	// UtilizationRatio is 0 to 1.
	UtilizationRatio *float64 `json:"utilization_ratio,omitempty"`
	// Processes hold memory of the device; nil when they could not be listed,
	// empty when there are none.
	Processes []GPUProcess `json:"processes"`
	// Lost is the driver's reason why the device can't be read ("GPU is lost");
	// "" when it can.
	Lost string `json:"lost,omitempty"`
	// MIG is true where the device is partitioned: its memory is that of the
	// whole device and its utilisation is not known.
	MIG bool `json:"mig,omitempty"`
}

// GPUProcess is a process that holds a context on a GPU.
type GPUProcess struct {
	PID int `json:"pid"`
	// UsedBytes is nil where the driver does not tell it.
	UsedBytes *uint64 `json:"used_bytes,omitempty"`
	// Cgroup is the path in /proc/PID/cgroup; "" when it could not be read.
	Cgroup string `json:"cgroup,omitempty"`
	// Unit is the innermost systemd unit in Cgroup (vllm.service,
	// docker-<id>.scope); "" when there is none.
	Unit string `json:"unit,omitempty"`
	// Container is the container's full ID in Cgroup; "" when there is none.
	Container string `json:"container,omitempty"`
	// Title is the start of /proc/PID/cmdline; "" when it could not be read.
	Title string `json:"title,omitempty"`
}

// HealthStatus is what the probe of the served endpoint saw.
type HealthStatus string

// The answers of a readiness probe.
const (
	// HealthClosed: nothing listens.
	HealthClosed HealthStatus = "closed"
	// HealthNotReady: something answers, but not that it is ready.
	HealthNotReady HealthStatus = "not_ready"
	// HealthReady: the status that the profile calls ready.
	HealthReady HealthStatus = "ready"
	// HealthUnknown: no answer that tells anything (time-out, TLS error).
	HealthUnknown HealthStatus = "unknown"
)

// HealthSample is one probe.
type HealthSample struct {
	Status HealthStatus `json:"status"`
	URL    string       `json:"url"`
	// Code is the HTTP status; 0 when there was none.
	Code int `json:"code,omitempty"`
	// Detail is the error's text where there was no HTTP status.
	Detail string `json:"detail,omitempty"`
}

// HostSample holds the vital signs of a unit's processes. nil is not known.
type HostSample struct {
	// CPUSeconds is the cgroup's total CPU time so far.
	CPUSeconds *float64 `json:"cpu_seconds,omitempty"`
	// ReadBytes and WriteBytes are the cgroup's I/O so far.
	ReadBytes  *uint64 `json:"read_bytes,omitempty"`
	WriteBytes *uint64 `json:"write_bytes,omitempty"`
	// Processes is how many processes the unit has.
	Processes *int `json:"processes,omitempty"`
	// Compilers is how many of them are compilers (nvcc, ptxas, gcc, ninja...).
	Compilers *int `json:"compilers,omitempty"`
	// CompilersBegun is how many of those were not there at the last sample.
	CompilersBegun *int `json:"compilers_begun,omitempty"`
}

// Names of sources, as in startupd_source_up.
const (
	SourceJournal = "journal"
	SourceUnit    = "unit"
	SourceGPU     = "gpu"
	SourceHealth  = "health"
	SourceHost    = "host"
)

// SourceState says whether a source can see. It comes on change, and once when
// a source begins.
type SourceState struct {
	Source string `json:"source"`
	Up     bool   `json:"up"`
	// State is a short stable name of the condition (up, no_driver,
	// not_permitted, hung, ...).
	State string `json:"state"`
	// Reason says what is wrong or limited and what to do; "" when all is well.
	Reason string `json:"reason,omitempty"`
	// Restarts is how often the source's reader process was restarted since the
	// daemon began.
	Restarts int `json:"restarts,omitempty"`
}

// Kind implements Data.
func (*UnitState) Kind() Kind { return KindUnitState }

// Kind implements Data.
func (*GPUSample) Kind() Kind { return KindGPU }

// Kind implements Data.
func (*HealthSample) Kind() Kind { return KindHealth }

// Kind implements Data.
func (*HostSample) Kind() Kind { return KindHost }

// Kind implements Data.
func (*SourceState) Kind() Kind { return KindSource }
