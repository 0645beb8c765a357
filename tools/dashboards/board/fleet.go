package board

// many selects the chosen units, hosts their hosts.
const (
	many  = `job=~"$job",instance=~"$instance",unit=~"$unit"`
	hosts = `job=~"$job",instance=~"$instance"`
)

// stateAge is for how long each unit is in its state, in seconds: since the phase
// was entered, or since the start or the serving engine ended.
const stateAge = `max by (job, instance, unit) (` +
	`time() - startupd_phase_entered_timestamp_seconds{` + many + `} and on (job, instance, unit, phase) startupd_phase{` + many + `} == 1` +
	` or time() - (startupd_startup_begin_timestamp_seconds{` + many + `} + startupd_startup_duration_seconds{` + many + `}` +
	` + on (job, instance, unit) startupd_phase_duration_seconds{` + many + `,phase="serving"})` +
	` and on (job, instance, unit) startupd_phase{` + many + `,phase=~"stopped|failed"} == 1)`

func fleet() Dashboard {
	return Dashboard{
		UID: "startupd-fleet", Title: "startupd / Fleet", From: "now-24h", Refresh: "30s", Multi: true,
		Description: "All hosts and units: who is where, which phase is slowest, what starts fail of, and which startupd can't see.",
		Rows: []Row{
			{"Who is where", wherePanels()},
			{"Durations", durationPanels()},
			{"Failures", failurePanels()},
			{"Hosts", hostPanels()},
		},
		Events: []Event{{
			Name: "Failures", Expr: `increase(startupd_startups_total{` + many + `,outcome="failed"}[$__rate_interval]) > 0`,
			Title: "{{unit}} on {{instance}} failed", Color: red, EmptyOnPurpose: "no start failed",
		}},
	}
}

func wherePanels() []Panel {
	return []Panel{
		{
			Title: "Units", Kind: Table, Unit: "none", Width: 24, Height: 9, NoValue: "–",
			Description: "One row for each unit: the state that it is in and for how long, how long its present or last start took (until it served, failed or was stopped), how that one ended, and what the last failed start failed of, until one serves. – is what is not known, or does not apply. The unit links to its own dashboard, the class to what can be done.",
			Columns:     []string{"unit", "instance", "phase", "for", "start took", "progress", "serves in", "outcome", "class", "version", "job"},
			Links: []Link{
				{"unit", "this unit's starts", "/d/startupd-startup?${__url_time_range}&var-datasource=${datasource}&var-job=${__data.fields.job}&var-instance=${__data.fields.instance}&var-unit=${__value.raw}"},
				{"class", "what to do", failures + "${__value.raw}"},
			},
			Queries: []Query{
				{Expr: `max by (job, instance, unit, phase) (startupd_phase{` + many + `} == 1)`},
				{Expr: stateAge, Legend: "for", Unit: "s", EmptyOnPurpose: "no start was seen"},
				{Expr: `max by (job, instance, unit) (startupd_startup_duration_seconds{` + many + `})`, Legend: "start took", Unit: "s", EmptyOnPurpose: "no start was seen"},
				{Expr: `max by (job, instance, unit) (startupd_progress_ratio{` + many + `})`, Legend: "progress", Unit: "percentunit", EmptyOnPurpose: noStart},
				{Expr: `max by (job, instance, unit) (startupd_expected_serving_timestamp_seconds{` + many + `}) - time()`, Legend: "serves in", Unit: "s", EmptyOnPurpose: noStart},
				{Expr: `max by (job, instance, unit, outcome) (startupd_last_startup_outcome{` + many + `} == 1)`, EmptyOnPurpose: "no start has finished yet"},
				{Expr: `max by (job, instance, unit, class) (startupd_root_cause_info{` + many + `})`, EmptyOnPurpose: noFailure},
				{Expr: `max by (job, instance, unit, version) (startupd_engine_info{` + many + `})`, EmptyOnPurpose: "the log told nothing yet"},
			},
		},
		alertsPanel(24, 6, "alertname, severity, unit, instance, gpu, reason", `job=~"$job",instance=~"$instance|",unit=~"$unit|"`),
		{
			Title: "States over time", Kind: States, Unit: "none", Width: 16, Height: 9, Values: phases(),
			Description: "The states of each unit. One that lasts less than the scrape interval may be missing. A gap is a time in which startupd was not scraped.",
			Queries:     []Query{{Expr: phaseNumber(many), Legend: "{{unit}} on {{instance}}"}},
		},
		{
			Title: "Units by state", Kind: Stack, Unit: "short", Whole: true, Width: 8, Height: 9,
			Description: "How many units are in each state. Units of a host that can't be scraped are not counted.",
			Queries:     []Query{{Expr: `sum by (phase) (startupd_phase{` + many + `})`, Legend: "{{phase}}"}},
		},
	}
}

func durationPanels() []Panel {
	return []Panel{
		{
			Title: "Where the time of each unit's start went", Kind: Parts, Unit: "s", Width: 12, Height: 9, Row: "start",
			Description: "Seconds in each phase of the units' present or last starts. A phase that was over before startupd could see it is missing.",
			Queries:     []Query{{Expr: `max by (start, phase) (label_join(startupd_phase_duration_seconds{` + many + `,phase!="serving"}, "start", " on ", "unit", "instance"))`, EmptyOnPurpose: "no start was seen"}},
		},
		{
			Title: "Slowest phases", Kind: Bars, Unit: "s", Width: 12, Height: 9,
			Description: "The ten longest phases of the units' present or last starts.",
			Queries:     []Query{{Expr: `topk(10, max by (instance, unit, phase) (startupd_phase_duration_seconds{` + many + `,phase!="serving"}))`, Legend: "{{phase}}: {{unit}} on {{instance}}", EmptyOnPurpose: "no start was seen"}},
		},
		{
			Title: "Longest of each phase", Kind: Lines, Unit: "s", Width: 8, Height: 9,
			Description: "The longest that a unit's present or last start was in each phase, over time: the highest line is the slowest phase.",
			Queries:     []Query{{Expr: `max by (phase) (startupd_phase_duration_seconds{` + many + `,phase!="serving"})`, Legend: "{{phase}}", EmptyOnPurpose: "no start was seen"}},
		},
		{
			Title: "Start duration by engine version", Kind: Lines, Unit: "s", Width: 8, Height: 9,
			Description: "How long the last good start of the units that serve now took, the longest by engine and version. A step up after an upgrade is a slower start. Nothing while none serves, or where the log did not tell the version.",
			Queries: []Query{{
				Expr: `max by (engine, version) (startupd_startup_duration_seconds{` + many + `}` +
					` * on (job, instance, unit) group_left (engine, version) startupd_engine_info{` + many + `}` +
					` and on (job, instance, unit) startupd_phase{` + many + `,phase="serving"} == 1)`,
				Legend: "{{engine}} {{version}}", EmptyOnPurpose: "no unit serves",
			}},
		},
		{
			Title: "Completed phases in this time range", Kind: Table, Unit: "s", Width: 8, Height: 9, NoValue: "none in this range",
			Description: "How many starts have completed each phase within the dashboard's time range, and within which time half and nine tenths of them did. The times are estimates, as good as the histogram's buckets.",
			Columns:     []string{"phase", "starts", "half within", "nine tenths within"},
			Queries: []Query{
				{Expr: `round(sum by (phase) (increase(startupd_startup_phase_seconds_count{` + many + `}[$__range])))`, Legend: "starts", Unit: "short"},
				{Expr: `histogram_quantile(0.5, sum by (phase, le) (increase(startupd_startup_phase_seconds_bucket{` + many + `}[$__range]))) >= 0`, Legend: "half within", EmptyOnPurpose: noneCompleted},
				{Expr: `histogram_quantile(0.9, sum by (phase, le) (increase(startupd_startup_phase_seconds_bucket{` + many + `}[$__range]))) >= 0`, Legend: "nine tenths within", EmptyOnPurpose: noneCompleted},
			},
		},
	}
}

func failurePanels() []Panel {
	return []Panel{
		{
			Title: "Failed units by class", Kind: Stack, Unit: "short", Whole: true, Width: 8, Height: 8, NoValue: "none",
			Description: "Units whose last failed start was not followed by one that served, by the class of the root cause.",
			Runbooks:    []string{"LLMStartupFailed"},
			Queries:     []Query{{Expr: `sum by (class) (startupd_root_cause_info{` + many + `})`, Legend: "{{class}}", EmptyOnPurpose: noFailure}},
		},
		{
			Title: "Finished starts in this time range", Kind: Bars, Unit: "short", Whole: true, Width: 4, Height: 8,
			Description: "Starts that ended within the dashboard's time range, by outcome.",
			Queries:     []Query{{Expr: `sum by (outcome) (increase(startupd_startups_total{` + many + `}[$__range]))`, Legend: "{{outcome}}"}},
		},
		{
			Title: "Failed share", Kind: Stat, Unit: "percentunit", Whole: true, Width: 3, Height: 8, NoValue: "no start ended",
			Description: "Share of the starts that ended within the dashboard's time range that failed. No start ended: there is no share.",
			Queries: []Query{{
				Expr: `sum(increase(startupd_startups_total{` + many + `,outcome="failed"}[$__range]))` +
					` / (sum(increase(startupd_startups_total{` + many + `}[$__range])) > 0)`,
				Legend: "failed", EmptyOnPurpose: "no start ended in this range",
			}},
		},
		{
			Title: "Engines that died while they served", Kind: Table, Unit: "short", Width: 9, Height: 8, NoValue: "none",
			Description: "Engines that had served and exited or were killed within the dashboard's time range. No start failed, so no alert of startupd tells of them.",
			Columns:     []string{"unit", "instance", "reason", "ends"},
			Queries: []Query{{
				Expr:   `round(sum by (instance, unit, reason) (increase(startupd_serving_ended_total{` + many + `,reason!="stopped"}[$__range]))) > 0`,
				Legend: "ends", EmptyOnPurpose: "no engine died while it served",
			}},
		},
		{
			Title: "Restart loops", Kind: Table, Unit: "none", Width: 12, Height: 7, NoValue: "none",
			Description: "Units whose last three starts or more have failed.",
			Columns:     []string{"unit", "instance"},
			Runbooks:    []string{"LLMStartupRestartLoop"},
			Queries:     []Query{{Expr: `max by (instance, unit) (startupd_restart_loop{` + many + `} == 1)`, EmptyOnPurpose: "no unit is in a restart loop"}},
		},
		{
			Title: "Stalled or slow", Kind: Table, Unit: "none", Width: 12, Height: 7, NoValue: "none",
			Description: "Units whose running start is stalled: past its budget, without a sign of life; or slow: quiet for too long, while its processes are busy.",
			Columns:     []string{"unit", "instance", "start"},
			Runbooks:    []string{"LLMStartupStalled", "LLMStartupSlow"},
			Queries: []Query{{
				Expr: `max by (instance, unit, start) (label_replace(startupd_stalled{` + many + `} == 1, "start", "stalled", "", "")` +
					` or label_replace(startupd_slow{` + many + `} == 1, "start", "slow", "", ""))`,
				EmptyOnPurpose: "no unit is stalled or slow",
			}},
		},
	}
}

func hostPanels() []Panel {
	return []Panel{
		{
			Title: "startupd", Kind: States, Unit: "none", Width: 8, Height: 8, Values: []Value{{0, "down", red}, {1, "up", green}},
			Description: "Whether each host's startupd can be scraped. A host that Prometheus has no target for is missing.",
			Runbooks:    []string{"StartupdDown"},
			Queries:     []Query{{Expr: `max by (instance) (up{` + hosts + `})`, Legend: "{{instance}}"}},
		},
		{
			Title: "Journal", Kind: States, Unit: "none", Width: 8, Height: 8, Values: upDown(),
			Description: "Whether startupd sees the journal. While it does not, its verdicts can't be trusted. A startupd that reads no journal, or is down, is missing.",
			Runbooks:    []string{"StartupdBlind"},
			Queries:     []Query{{Expr: `min by (instance) (startupd_source_up{` + hosts + `,source="journal"})`, Legend: "{{instance}}"}},
		},
		{
			Title: "Evidence", Kind: Table, Unit: "short", Width: 8, Height: 8,
			Description: "Holes in the journal within the dashboard's time range, how often its reader was restarted, and how far it is behind. – is what is not known.",
			NoValue:     "–",
			Columns:     []string{"instance", "gaps", "reader restarts", "behind"},
			Runbooks:    []string{"StartupdBlind"},
			Queries: []Query{
				{Expr: `round(sum by (instance) (increase(startupd_journal_gaps_total{` + many + `}[$__range])))`, Legend: "gaps"},
				{Expr: `round(sum by (instance) (increase(startupd_journal_reader_restarts_total{` + hosts + `}[$__range])))`, Legend: "reader restarts"},
				{Expr: `max by (instance) (startupd_journal_lag_seconds{` + many + `})`, Legend: "behind", Unit: "s", EmptyOnPurpose: "it is not known how far the reader is behind"},
			},
		},
		{
			Title: "GPU memory held by others", Kind: Bars, Unit: "bytes", Width: 12, Height: 8, NoValue: "none",
			Description: "GPUs of which processes of units that are not watched hold memory. A GPU whose processes can't be listed is missing.",
			Runbooks:    []string{"LLMGPUForeignMemory"},
			Queries:     []Query{{Expr: `max by (instance, gpu) (startupd_gpu_foreign_memory_bytes{` + hosts + `} > 0)`, Legend: "{{instance}} GPU {{gpu}}", EmptyOnPurpose: "nobody else holds memory"}},
		},
		xidPanel(hosts, 12, 8, "instance, gpu"),
	}
}
