package board

import "strings"

// one selects one unit on one host, host the host alone.
const (
	one  = `job="$job",instance="$instance",unit="$unit"`
	host = `job="$job",instance="$instance"`
)

const (
	failures = "https://github.com/startupd/startupd/blob/main/docs/failures.md#"
	runbooks = "https://github.com/startupd/startupd/blob/main/docs/runbooks/"
)

func startup() Dashboard {
	return Dashboard{
		UID: "startupd-startup", Title: "startupd / Startup", From: "now-1h", Refresh: "10s",
		Description: "One unit: where its start is, how long each phase takes, what it failed of, and how complete the evidence is.",
		Rows: []Row{
			{"Now", nowPanels()},
			{"Phases", phasePanels()},
			{"GPUs", gpuPanels()},
			{"Errors", errorPanels()},
			{"Evidence", evidencePanels()},
		},
		Events: []Event{
			{
				Name: "Phases", Expr: `startupd_phase_entered_timestamp_seconds{` + one + `} * 1000`, Title: "{{phase}}", Color: blue, ValueIsTime: true,
			},
			{
				Name: "Failures", Expr: `increase(startupd_startups_total{` + one + `,outcome="failed"}[$__rate_interval]) > 0`, Title: "failed", Color: red,
				EmptyOnPurpose: "no start failed",
			},
		},
	}
}

const (
	noStart   = "no start runs, or its length is not known"
	noFailure = "no start failed since the last one that served"
	noXid     = "the driver reported no error"
	// A quantile of nothing is NaN, which is no answer.
	noneCompleted = "no start completed a phase in this range"
)

func nowPanels() []Panel {
	return []Panel{
		{
			Title: "Phase", Kind: Stat, Unit: "none", Width: 4, Height: 4, Values: phases(),
			Description: "The state that the unit is in. Unknown until the journal has told one.",
			Queries:     []Query{{Expr: phaseNumber(one), Legend: "{{unit}}"}},
		},
		{
			Title: "Elapsed", Kind: Stat, Unit: "s", Width: 3, Height: 4,
			Description: "From the begin of the present or last start until it served, failed or was stopped, or up to now.",
			Queries:     []Query{{Expr: `startupd_startup_duration_seconds{` + one + `}`, Legend: "elapsed"}},
		},
		{
			Title: "Serves in", Kind: Stat, Unit: "s", Width: 3, Height: 4, NoValue: "no estimate",
			Description: "When the running start is expected to serve, by the phases of the unit's last good start. No estimate when nothing starts, when the start hangs, or when no good start is known. About 0 where each phase has taken its time: it may serve at any moment.",
			Queries:     []Query{{Expr: `startupd_expected_serving_timestamp_seconds{` + one + `} - time()`, Legend: "serves in", EmptyOnPurpose: noStart}},
		},
		{
			Title: "Progress", Kind: Stat, Unit: "percentunit", Whole: true, Width: 3, Height: 4, NoValue: "not known",
			Description: "Progress in the running phase, where the log or the GPU's memory tells it. Not known also when nothing starts.",
			Queries:     []Query{{Expr: `startupd_progress_ratio{` + one + `}`, Legend: "{{phase}}", EmptyOnPurpose: "nothing starts, or nothing tells the progress"}},
		},
		{
			Title: "Last outcome", Kind: Names, Unit: "none", Width: 3, Height: 4, NoValue: "none yet",
			Description: "How the last finished start ended: serving, failed or stopped.",
			Queries:     []Query{{Expr: `startupd_last_startup_outcome{` + one + `} == 1`, Legend: "{{outcome}}"}},
		},
		{
			Title: "Verdicts", Kind: Stat, Unit: "none", Width: 4, Height: 4, Values: yesNo(),
			Description: "Stalled: the step is past its budget and shows no sign of life. Slow: it is quiet for longer than it should be while its processes are busy. Restart loop: the last three starts or more have failed.",
			Runbooks:    []string{"LLMStartupStalled", "LLMStartupSlow", "LLMStartupRestartLoop"},
			Queries: []Query{
				{Expr: `startupd_stalled{` + one + `}`, Legend: "stalled"},
				{Expr: `startupd_slow{` + one + `}`, Legend: "slow"},
				{Expr: `startupd_restart_loop{` + one + `}`, Legend: "restart loop"},
			},
		},
		{
			Title: "Engine", Kind: Names, Unit: "none", Width: 4, Height: 4,
			Description: "Engine, version and model as the engine's log tells them; not known until it does.",
			Queries:     []Query{{Expr: `startupd_engine_info{` + one + `}`, Legend: "{{engine}} {{version}} {{model}}", EmptyOnPurpose: "the log told nothing yet"}},
		},
		alertsPanel(24, 5, "alertname, severity, gpu, reason", host+`,unit="$unit"`, host+`,unit=""`),
	}
}

func phasePanels() []Panel {
	return []Panel{
		{
			Title: "States over time", Kind: States, Unit: "none", Width: 24, Height: 5, Values: phases(),
			Description: "The unit's states. One that lasts less than the scrape interval, such as failed with RestartSec=100ms, may be missing here: see Finished starts.",
			Queries:     []Query{{Expr: phaseNumber(one), Legend: "{{unit}}"}},
		},
		{
			Title: "Where the time of this start went", Kind: Parts, Unit: "s", Width: 8, Height: 8, Row: "unit",
			Description: "Seconds in each phase of the present or last start. They add up to its duration. A phase that was over before startupd could see it is missing.",
			Queries:     []Query{{Expr: `max by (unit, phase) (startupd_phase_duration_seconds{` + one + `,phase!="serving"})`}},
		},
		{
			Title: "Duration by phase, start after start", Kind: Stack, Unit: "s", Width: 8, Height: 8,
			Description: "The same over time: it grows while a start runs, and stays level afterwards. A gap is a time in which startupd was not scraped.",
			Queries:     []Query{{Expr: `startupd_phase_duration_seconds{` + one + `,phase!="serving"}`, Legend: "{{phase}}"}},
		},
		{
			Title: "Progress over time", Kind: Lines, Unit: "percentunit", Width: 8, Height: 8, Max: 1,
			Description: "Progress in the running phase. A line that stays level while the phase goes on is a start that hangs, or a step that prints nothing.",
			Queries:     []Query{{Expr: `startupd_progress_ratio{` + one + `}`, Legend: "{{phase}}", EmptyOnPurpose: "nothing starts, or nothing tells the progress"}},
		},
		{
			Title: "Completed phases in this time range", Kind: Table, Unit: "s", Width: 10, Height: 7, NoValue: "none in this range",
			Description: "How many starts have completed each phase within the dashboard's time range, and within which time half and nine tenths of them did. The times are estimates, as good as the histogram's buckets.",
			Columns:     []string{"phase", "starts", "half within", "nine tenths within"},
			Queries: []Query{
				{Expr: `round(sum by (phase) (increase(startupd_startup_phase_seconds_count{` + one + `}[$__range])))`, Legend: "starts", Unit: "short"},
				{Expr: `histogram_quantile(0.5, sum by (phase, le) (increase(startupd_startup_phase_seconds_bucket{` + one + `}[$__range]))) >= 0`, Legend: "half within", EmptyOnPurpose: noneCompleted},
				{Expr: `histogram_quantile(0.9, sum by (phase, le) (increase(startupd_startup_phase_seconds_bucket{` + one + `}[$__range]))) >= 0`, Legend: "nine tenths within", EmptyOnPurpose: noneCompleted},
			},
		},
		{
			Title: "Finished starts", Kind: Stack, Unit: "short", Whole: true, Width: 8, Height: 7,
			Description: "Starts that ended since startupd was first run, by outcome. A step up is a start: also one that failed faster than it could be scraped.",
			Queries:     []Query{{Expr: `startupd_startups_total{` + one + `}`, Legend: "{{outcome}}"}},
		},
		{
			Title: "Ends of serving", Kind: Stack, Unit: "short", Whole: true, Width: 6, Height: 7,
			Description: "How often an engine that had served was gone since startupd was first run: stopped by somebody, exited or killed. An engine that dies after a good start is no failed start, and no alert of startupd tells of it.",
			Queries:     []Query{{Expr: `startupd_serving_ended_total{` + one + `}`, Legend: "{{reason}}"}},
		},
	}
}

func gpuPanels() []Panel {
	return []Panel{
		{
			Title: "Held by the unit", Kind: Lines, Unit: "bytes", Width: 10, Height: 9,
			Description: "Memory of each GPU that the unit's processes hold. A line is broad from where it has risen to its plateau: the weights are resident. The dashed line is the size of the largest GPU. Nothing is shown where it can't be told.",
			Queries: []Query{
				{Expr: `startupd_unit_gpu_memory_bytes{` + one + `}`, Legend: "GPU {{gpu}}", EmptyOnPurpose: "the unit has not used a GPU yet"},
				{
					Expr: `startupd_unit_gpu_memory_bytes{` + one + `} and on (job, instance, unit, gpu) startupd_gpu_plateau{` + one + `} == 1`, Legend: "GPU {{gpu}}, plateau", Wide: true,
					EmptyOnPurpose: "the memory has not risen to its plateau",
				},
				{Expr: `max(startupd_gpu_memory_total_bytes{` + host + `})`, Legend: "size of a GPU", Limit: true},
			},
		},
		{
			Title: "Held by others", Kind: Lines, Unit: "bytes", Width: 5, Height: 9,
			Description: "Memory that processes of units which are not watched hold on each GPU, and memory whose owner could not be told. Nothing is shown where the processes can't be listed.",
			Runbooks:    []string{"LLMGPUForeignMemory"},
			Queries: []Query{
				{Expr: `startupd_gpu_foreign_memory_bytes{` + host + `}`, Legend: "GPU {{gpu}}, other units"},
				{Expr: `startupd_gpu_unattributed_memory_bytes{` + host + `}`, Legend: "GPU {{gpu}}, owner not known"},
			},
		},
		{
			Title: "Used of total", Kind: Bars, Unit: "percentunit", Whole: true, Width: 4, Height: 9, Max: 1,
			Description: "Used share of each GPU's memory, whoever holds it. A GPU whose memory can't be read is missing.",
			Queries:     []Query{{Expr: `startupd_gpu_memory_used_bytes{` + host + `} / startupd_gpu_memory_total_bytes{` + host + `}`, Legend: "GPU {{gpu}}"}},
		},
		xidPanel(host, 5, 9, "gpu"),
	}
}

func errorPanels() []Panel {
	return []Panel{
		{
			Title: "Root cause of the last failed start", Kind: Table, Unit: "none", Width: 24, Height: 4, NoValue: "no start has failed since one served",
			Description: "What the last failed start failed of, until a later one serves. The class links to what can be done. No message where the log has none, or where startupd keeps messages out of its metrics.",
			Columns:     []string{"class", "exception", "process", "message"},
			Links:       []Link{{"class", "what to do", failures + "${__value.raw}"}},
			Runbooks:    []string{"LLMStartupFailed", "LLMStartupRestartLoop"},
			Queries: []Query{
				{Expr: `max by (instance, unit, class, exception, process) (startupd_root_cause_info{` + one + `})`, EmptyOnPurpose: noFailure},
				{Expr: `max by (instance, unit, message) (startupd_root_cause_message_info{` + one + `})`, EmptyOnPurpose: noFailure},
			},
		},
		{
			Title: "Error records of this start", Kind: Table, Unit: "short", Width: 10, Height: 8, NoValue: "none",
			Columns:     []string{"verdict", "class", "records"},
			Links:       []Link{{"class", "what to do", failures + "${__value.raw}"}},
			Description: "Error records of the present or last start. A cause is what it failed of, a symptom followed from it, a suspect looks like an error and no more is known, benign harms nothing.",
			Queries:     []Query{{Expr: `sum by (verdict, class) (startupd_startup_errors{` + one + `})`, Legend: "records", EmptyOnPurpose: "the start has no error record"}},
		},
		{
			Title: "Error records over time", Kind: Lines, Unit: "short", Whole: true, Width: 10, Height: 8, NoValue: "none",
			Description: "Error records of all starts by verdict, counted when a start's verdict is final. A verdict that none has had is missing.",
			Queries:     []Query{{Expr: `sum by (verdict) (startupd_errors_total{` + one + `})`, Legend: "{{verdict}}", EmptyOnPurpose: "no start had an error record yet"}},
		},
		{
			Title: "New errors", Kind: Stat, Unit: "short", Width: 4, Height: 8, Alarm: 1, NoValue: "no good start to compare with",
			Runbooks:    []string{"LLMStartupNewError"},
			Description: "Error records of the present or last start that no good start before it had; benign ones are not counted.",
			Queries:     []Query{{Expr: `startupd_new_errors{` + one + `}`, Legend: "new", EmptyOnPurpose: "no good start is known"}},
		},
	}
}

func evidencePanels() []Panel {
	return []Panel{
		{
			Title: "Sources", Kind: Stat, Unit: "none", Width: 8, Height: 6, Values: upDown(),
			Description: "Whether each source of evidence sees. While the journal is blind, no verdict can be trusted. startupd's log and page say why. A source that is not used is missing.",
			Runbooks:    []string{"StartupdBlind"},
			Queries:     []Query{{Expr: `min by (source) (startupd_source_up{` + one + `} or startupd_source_up{` + host + `,unit=""})`, Legend: "{{source}}"}},
		},
		{
			Title: "Readiness by source", Kind: Stat, Unit: "none", Width: 4, Height: 6, Values: []Value{{0, "not ready", grey}, {1, "ready", green}},
			Description: "Who calls the engine ready: its log, its port, its health endpoint. A source that nobody looked at is missing.",
			Runbooks:    []string{"LLMServingProbeDisagrees"},
			Queries:     []Query{{Expr: `startupd_ready{` + one + `}`, Legend: "{{source}}"}},
		},
		{
			Title: "Gaps in the journal", Kind: Table, Unit: "short", Width: 6, Height: 6,
			Columns:     []string{"kind", "gaps"},
			Description: "Holes in the evidence by kind; the kinds are explained in docs/METRICS.md.",
			Queries:     []Query{{Expr: `sum by (kind) (startupd_journal_gaps_total{` + one + `})`, Legend: "gaps"}},
		},
		{
			Title: "Reader", Kind: Stat, Unit: "short", Width: 6, Height: 6,
			Description: "How often the process that reads the journal was restarted since startupd began, and how far it is behind. Nothing where no journal is read.",
			Queries: []Query{
				{Expr: `sum(startupd_journal_reader_restarts_total{` + one + `} or startupd_journal_reader_restarts_total{` + host + `,unit=""})`, Legend: "restarts"},
				{Expr: `max(startupd_journal_lag_seconds{` + one + `})`, Legend: "behind", Unit: "s", Alarm: 2},
			},
		},
		{
			Title: "Lines", Kind: Lines, Unit: "short", Width: 12, Height: 7,
			Description: "Lines of the unit's log that were applied, and lines of an earlier start that came late and had no effect, in each step of the graph.",
			Queries: []Query{
				{Expr: `increase(startupd_journal_lines_total{` + one + `}[$__rate_interval])`, Legend: "applied"},
				{Expr: `increase(startupd_journal_stale_lines_total{` + one + `}[$__rate_interval])`, Legend: "stale"},
			},
		},
		{
			Title: "Unmatched lines", Kind: Lines, Unit: "percentunit", Whole: true, Width: 12, Height: 7, Max: 1, NoValue: "no line came yet",
			Description: "Share of the lines that no rule of the engine's profile knows. A share that grows after an upgrade of the engine means that its wordings have changed.",
			Queries: []Query{{
				Expr:   `startupd_journal_unmatched_lines_total{` + one + `} / (startupd_journal_lines_total{` + one + `} > 0)`,
				Legend: "of all lines", EmptyOnPurpose: "no line came yet",
			}},
		},
	}
}

// xidPanel is a table of the driver's error reports on the selected hosts, by labels.
func xidPanel(selector string, width, height int, labels string) Panel {
	return Panel{
		Title: "Xid errors", Kind: Table, Unit: "short", Width: width, Height: height, NoValue: "none",
		Description: "Errors that the NVIDIA driver has reported since startupd was first run, by GPU and number, and when the GPU's last one was.",
		Columns:     append(strings.Split(labels, ", "), "xid", "reports", "last"),
		Runbooks:    []string{"GPUXidDuringStartup"},
		Queries: []Query{
			{Expr: `sum by (` + labels + `, xid) (startupd_gpu_xid_errors_total{` + selector + `})`, Legend: "reports", EmptyOnPurpose: noXid},
			{Expr: `max by (` + labels + `) (startupd_gpu_last_xid_timestamp_seconds{` + selector + `}) * 1000`, Legend: "last", Unit: "dateTimeFromNow", EmptyOnPurpose: noXid},
		},
	}
}

// ours are the alerts of deploy/prometheus that tell somebody.
const ours = `severity!="none",alertname=~"LLMStartup.+|LLMGPU.+|LLMServing.+|GPUXid.+|Startupd.+"`

// alertsPanel is a table of startupd's alerts that fire on any of the selectors.
func alertsPanel(width, height int, labels string, selectors ...string) Panel {
	var active, firing []string
	for _, s := range selectors {
		active = append(active, `ALERTS_FOR_STATE{`+ours+`,`+s+`}`)
		firing = append(firing, `ALERTS{alertstate="firing",`+ours+`,`+s+`}`)
	}
	return Panel{
		Title: "Firing alerts", Kind: Table, Unit: "none", Width: width, Height: height, NoValue: "none",
		Description: "Alerts of startupd that fire, those that Alertmanager keeps back too, and since when their condition holds. Nothing where this data source does not hold the series ALERTS of the Prometheus that has the rules. The name links to the alert's runbook.",
		Columns:     append(strings.Split(labels, ", "), "since"),
		Links:       []Link{{"alertname", "runbook", runbooks + "${__value.raw}.md"}},
		Queries: []Query{{
			Expr: `max by (` + labels + `) ((` + strings.Join(active, " or ") + `) and ignoring (alertstate) (` +
				strings.Join(firing, " or ") + `)) * 1000`,
			Legend: "since", Unit: "dateTimeFromNow", EmptyOnPurpose: "no alert fires",
		}},
	}
}
