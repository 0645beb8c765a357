package board

// many selects the chosen units, hosts their hosts.
const (
	many  = `job=~"$job",instance=~"$instance",unit=~"$unit"`
	hosts = `job=~"$job",instance=~"$instance"`
)

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
			Title: "Units", Kind: Table, Unit: "none", Width: 24, Height: 9, NoValue: "not known",
			Description: "One row for each unit. What is not known is empty. The unit links to its own dashboard.",
			Links:       map[string]string{"unit": "/d/startupd-startup?var-datasource=${datasource}&var-job=${__data.fields.job}&var-instance=${__data.fields.instance}&var-unit=${__value.raw}", "class": failures + "${__value.raw}"},
			Queries: []Query{
				{Expr: `max by (job, instance, unit, phase) (startupd_phase{` + many + `} == 1)`},
				{Expr: `max by (job, instance, unit) (startupd_startup_duration_seconds{` + many + `})`, Legend: "elapsed", Unit: "s"},
				{Expr: `max by (job, instance, unit) (startupd_progress_ratio{` + many + `})`, Legend: "progress", Unit: "percentunit", EmptyOnPurpose: noStart},
				{Expr: `max by (job, instance, unit) (startupd_expected_serving_timestamp_seconds{` + many + `}) - time()`, Legend: "serves in", Unit: "s", EmptyOnPurpose: noStart},
				{Expr: `time() - max by (job, instance, unit) (startupd_phase_entered_timestamp_seconds{` + many + `})`, Legend: "in this phase for", Unit: "s"},
				{Expr: `max by (job, instance, unit, class) (startupd_root_cause_info{` + many + `})`, EmptyOnPurpose: noFailure},
				{Expr: `max by (job, instance, unit, version) (startupd_engine_info{` + many + `})`},
			},
		},
		{
			Title: "States over time", Kind: States, Unit: "none", Width: 16, Height: 9, Values: phases(),
			Description: "The states of each unit. One that lasts less than the scrape interval may be missing.",
			Queries:     []Query{{Expr: phaseNumber(many), Legend: "{{unit}} on {{instance}}"}},
		},
		{
			Title: "Units by state", Kind: Stack, Unit: "short", Width: 8, Height: 9,
			Description: "How many units are in each state.",
			Queries:     []Query{{Expr: `sum by (phase) (startupd_phase{` + many + `})`, Legend: "{{phase}}"}},
		},
	}
}

func durationPanels() []Panel {
	return []Panel{
		{
			Title: "Slowest phases", Kind: Bars, Unit: "s", Width: 8, Height: 9,
			Description: "The ten longest phases of the units' present or last starts.",
			Queries:     []Query{{Expr: `topk(10, max by (instance, unit, phase) (startupd_phase_duration_seconds{` + many + `,phase!="serving"}))`, Legend: "{{phase}}: {{unit}} on {{instance}}"}},
		},
		{
			Title: "Start duration by engine version", Kind: Lines, Unit: "s", Width: 8, Height: 9,
			Description: "How long the last good start of the units that serve now took, the longest by engine and version. A step up after an upgrade is a slower start.",
			Queries: []Query{{
				Expr: `max by (engine, version) (startupd_startup_duration_seconds{` + many + `}` +
					` * on (job, instance, unit) group_left (engine, version) startupd_engine_info{` + many + `}` +
					` and on (job, instance, unit) startupd_phase{` + many + `,phase="serving"} == 1)`,
				Legend: "{{engine}} {{version}}", EmptyOnPurpose: "no unit serves",
			}},
		},
		{
			Title: "Completed phases in this time range", Kind: Table, Unit: "s", Width: 8, Height: 9, NoValue: "none in this range",
			Description: "How many starts have completed each phase within the dashboard's time range, and how long half and nine tenths of them took.",
			Queries: []Query{
				{Expr: `sum by (phase) (increase(startupd_startup_phase_seconds_count{` + many + `}[$__range]))`, Legend: "starts", Unit: "short"},
				{Expr: `histogram_quantile(0.5, sum by (phase, le) (increase(startupd_startup_phase_seconds_bucket{` + many + `}[$__range]))) >= 0`, Legend: "half within", EmptyOnPurpose: noneCompleted},
				{Expr: `histogram_quantile(0.9, sum by (phase, le) (increase(startupd_startup_phase_seconds_bucket{` + many + `}[$__range]))) >= 0`, Legend: "nine tenths within", EmptyOnPurpose: noneCompleted},
			},
		},
	}
}

func failurePanels() []Panel {
	return []Panel{
		{
			Title: "Failed units by class", Kind: Stack, Unit: "short", Width: 8, Height: 8, NoValue: "none",
			Description: "Units whose last finished start failed, by the class of the root cause, until one serves.",
			Queries:     []Query{{Expr: `sum by (class) (startupd_root_cause_info{` + many + `})`, Legend: "{{class}}", EmptyOnPurpose: noFailure}},
		},
		{
			Title: "Finished starts in this time range", Kind: Bars, Unit: "short", Width: 5, Height: 8,
			Description: "Starts that ended within the dashboard's time range, by outcome (extrapolated to its ends).",
			Queries:     []Query{{Expr: `sum by (outcome) (increase(startupd_startups_total{` + many + `}[$__range]))`, Legend: "{{outcome}}"}},
		},
		{
			Title: "Restart loops", Kind: Table, Unit: "short", Width: 6, Height: 8, NoValue: "none",
			Description: "Units whose last three starts or more have failed.",
			Queries:     []Query{{Expr: `max by (instance, unit) (startupd_restart_loop{` + many + `} == 1)`, EmptyOnPurpose: "no unit is in a restart loop"}},
		},
		{
			Title: "Stalled or slow", Kind: Table, Unit: "none", Width: 5, Height: 8, NoValue: "none",
			Description: "Units whose running start is stalled or slow.",
			Queries: []Query{
				{Expr: `max by (instance, unit) (startupd_stalled{` + many + `} == 1)`, Legend: "stalled", EmptyOnPurpose: "no unit is stalled"},
				{Expr: `max by (instance, unit) (startupd_slow{` + many + `} == 1)`, Legend: "slow", EmptyOnPurpose: "no unit is slow"},
			},
		},
	}
}

func hostPanels() []Panel {
	return []Panel{
		{
			Title: "startupd", Kind: States, Unit: "none", Width: 8, Height: 8, Values: []Value{{0, "down", red}, {1, "up", green}},
			Description: "Whether each host's startupd can be scraped.",
			Queries:     []Query{{Expr: `max by (instance) (up{` + hosts + `})`, Legend: "{{instance}}"}},
		},
		{
			Title: "Journal", Kind: States, Unit: "none", Width: 8, Height: 8, Values: upDown(),
			Description: "Whether startupd sees the journal. While it does not, its verdicts can't be trusted. A startupd that reads no journal is missing.",
			Queries:     []Query{{Expr: `max by (instance) (startupd_source_up{` + hosts + `,source="journal"})`, Legend: "{{instance}}"}},
		},
		{
			Title: "GPU memory held by others", Kind: Bars, Unit: "bytes", Width: 4, Height: 8, NoValue: "none",
			Description: "GPUs of which processes of units that are not watched hold memory.",
			Queries:     []Query{{Expr: `max by (instance, gpu) (startupd_gpu_foreign_memory_bytes{` + hosts + `} > 0)`, Legend: "{{instance}} GPU {{gpu}}", EmptyOnPurpose: "nobody else holds memory"}},
		},
		{
			Title: "Xid errors", Kind: Table, Unit: "short", Width: 4, Height: 8, NoValue: "none",
			Description: "Errors that the NVIDIA driver has reported, by GPU and number.",
			Queries:     []Query{{Expr: `sum by (instance, gpu, xid) (startupd_gpu_xid_errors_total{` + hosts + `})`, Legend: "reports", EmptyOnPurpose: "the driver reported no error"}},
		},
	}
}
