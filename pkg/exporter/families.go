package exporter

import (
	"strings"

	"github.com/prometheus/client_golang/prometheus"
)

// family is one metric family with constant metrics of one type.
type family struct {
	desc *prometheus.Desc
	kind prometheus.ValueType
}

// families holds every family that is exported. Names, labels and types are
// frozen: dashboards and alerts rely on them.
type families struct {
	all []*prometheus.Desc

	phase, phaseDuration, phaseEntered          family
	startupBegin, startupDuration               family
	startups, lastOutcome, servingEnded         family
	phaseSeconds                                *prometheus.Desc
	progress, expectedServing                   family
	stalled, slow, restartLoop                  family
	xidErrors, lastXid                          family
	startupErrorRecords, errors, newErrors      family
	rootCauseInfo, rootCauseMessage             family
	restarts, ready, engineInfo                 family
	gpuUsed, gpuTotal, gpuForeign, gpuUnknown   family
	gpuPlateau, unitGPU                         family
	sourceUp                                    family
	lines, stale, gaps, unmatched, readerStarts family
	lag                                         family
	buildInfo                                   family
}

func newFamilies() *families {
	f := new(families)
	f.addStartup()
	f.addVerdicts()
	f.addGPU()
	f.addEvidence()
	return f
}

func (f *families) addStartup() {
	f.phase = f.gauge("phase", "1 for the state that the unit is in, 0 for the other seven.", "unit", "phase")
	f.phaseDuration = f.gauge("phase_duration_seconds",
		"Time spent in each phase of the present or last startup, the running phase up to now.", "unit", "phase")
	f.phaseEntered = f.gauge("phase_entered_timestamp_seconds",
		"When each phase of the present or last startup was entered.", "unit", "phase")
	f.startupBegin = f.gauge("startup_begin_timestamp_seconds", "When the present or last startup began.", "unit")
	f.startupDuration = f.gauge("startup_duration_seconds",
		"Time from the startup's begin until it served, failed or was stopped, or up to now while it starts.", "unit")
	f.startups = f.counter("startups_total", "Finished startups by outcome.", "unit", "outcome")
	f.lastOutcome = f.gauge("last_startup_outcome",
		"1 for the outcome of the last finished startup, 0 for the others.", "unit", "outcome")
	f.servingEnded = f.counter("serving_ended_total",
		"How often an engine that had served was gone, by reason.", "unit", "reason")
	f.phaseSeconds = f.desc("startup_phase_seconds", "Durations of completed phases.", "unit", "phase")
	f.engineInfo = f.gauge("engine_info", "1, with what the engine's log tells of it.",
		"unit", "engine", "version", "model")
}

func (f *families) addVerdicts() {
	f.progress = f.gauge("progress_ratio", "Progress in the running phase, 0 to 1.", "unit", "phase")
	f.expectedServing = f.gauge("expected_serving_timestamp_seconds",
		"When the running startup is expected to serve.", "unit")
	f.stalled = f.gauge("stalled",
		"1 if the running step is past its budget and shows no sign of life, else 0.", "unit")
	f.slow = f.gauge("slow", "1 if the running startup's step is quiet for longer than its budget while its processes are busy, else 0.", "unit")
	f.startupErrorRecords = f.gauge("startup_errors",
		"Error records of the present or last startup by class and verdict.", "unit", "class", "verdict")
	f.errors = f.counter("errors_total", "Error records by class and verdict.", "unit", "class", "verdict")
	f.rootCauseInfo = f.gauge("root_cause_info",
		"1, with why the unit's last failed start failed, until a later start serves.", "unit", "class", "exception", "process")
	f.rootCauseMessage = f.gauge("root_cause_message_info",
		"1, with what the log said of the root cause, while startupd_root_cause_info is there.", "unit", "message")
	f.newErrors = f.gauge("new_errors",
		"Errors of the present or last startup that no good start before it had.", "unit")
	f.restartLoop = f.gauge("restart_loop",
		"1 if the unit's last three starts or more have all failed, else 0.", "unit")
	f.restarts = f.gauge("unit_restarts", "Automatic restarts of the unit as systemd counts them.", "unit")
	f.ready = f.gauge("ready", "1 if the source calls the engine ready, 0 if it does not.", "unit", "source")
}

func (f *families) addGPU() {
	f.gpuUsed = f.gauge("gpu_memory_used_bytes", "Used memory of the GPU.", "gpu", "uuid")
	f.gpuTotal = f.gauge("gpu_memory_total_bytes", "Total memory of the GPU.", "gpu", "uuid")
	f.gpuForeign = f.gauge("gpu_foreign_memory_bytes",
		"GPU memory held by processes of units that are not watched.", "gpu")
	f.gpuUnknown = f.gauge("gpu_unattributed_memory_bytes",
		"GPU memory held by processes whose owner could not be told.", "gpu")
	f.gpuPlateau = f.gauge("gpu_plateau",
		"1 once the unit's memory on the GPU has risen to its plateau, else 0.", "unit", "gpu")
	f.xidErrors = f.counter("gpu_xid_errors_total",
		"Error reports (Xid) of the NVIDIA driver in the kernel's log.", "gpu", "xid")
	f.lastXid = f.gauge("gpu_last_xid_timestamp_seconds", "When the GPU's last Xid was reported.", "gpu")
	f.unitGPU = f.gauge("unit_gpu_memory_bytes", "GPU memory held by the unit's processes.", "unit", "gpu")
}

func (f *families) addEvidence() {
	f.sourceUp = f.gauge("source_up",
		"1 if the source can see, 0 if not; the log and the page say why.", "source", "unit")
	f.lines = f.counter("journal_lines_total", "Log lines of the unit that were applied.", "unit")
	f.stale = f.counter("journal_stale_lines_total",
		"Log lines of an earlier startup that came late and had no effect.", "unit")
	f.gaps = f.counter("journal_gaps_total", "Holes in the evidence by kind.", "unit", "kind")
	f.unmatched = f.counter("journal_unmatched_lines_total",
		"Log lines that no rule of the profile matched.", "unit")
	f.readerStarts = f.counter("journal_reader_restarts_total",
		"How often the journal's reader process was restarted.", "unit")
	f.lag = f.gauge("journal_lag_seconds", "How far the journal's reader is behind.", "unit")
	f.buildInfo = f.gauge("build_info", "1, with the build of startupd.", "version", "revision", "goversion")
}

func (f *families) gauge(name, help string, labels ...string) family {
	return family{f.desc(name, help, labels...), prometheus.GaugeValue}
}

func (f *families) counter(name, help string, labels ...string) family {
	return family{f.desc(name, help, labels...), prometheus.CounterValue}
}

func (f *families) desc(name, help string, labels ...string) *prometheus.Desc {
	d := prometheus.V2.NewDesc("startupd_"+name, help, prometheus.UnconstrainedLabels(labels), nil, prometheus.WithUnit(unit(name)))
	f.all = append(f.all, d)
	return d
}

// unit is the base unit that a name ends in, as OpenMetrics wants it; "" for none.
func unit(name string) string {
	name = strings.TrimSuffix(name, "_total")
	for _, u := range []string{"seconds", "bytes", "ratio"} {
		if strings.HasSuffix(name, "_"+u) {
			return u
		}
	}
	return ""
}
