package main

// manText is what the manual says of a command beyond its own help.
type manText struct {
	about                       []string
	signals, files, environment []manItem
	// examples are command lines that work; a test parses each.
	examples []manExample
}

// exitStatuses are those of every command.
func exitStatuses() []manItem {
	return []manItem{
		{"0", "Serving, or the command did what it should."},
		{"1", "The start failed or was stopped, or the command failed."},
		{"2", "A flag, an argument or the configuration is wrong."},
		{"3", "Time ran out."},
		{"4", "The start is stalled."},
		{"5", "The start still runs, or nothing can be told: unreadable input, no right to read, no daemon."},
	}
}

// manTextOf is what the manual says of a command; the program's own is "".
func manTextOf(path string) manText {
	switch path {
	case "":
		return manProgram()
	case "serve":
		return manServe()
	case "explain":
		return manExplain()
	case "history":
		return manHistory()
	case "demo":
		return manDemo()
	case "rules":
		return manRules()
	case "completion":
		return manCompletion()
	case "version":
		return manText{examples: []manExample{{"What to name in a report:", []string{"startupd version"}}}}
	case "wait":
		return manWait()
	case "watch":
		return manWatch()
	case "status":
		return manStatus()
	case "preflight":
		return manPreflight()
	case "check":
		return manCheck()
	}
	return manText{}
}

func manProgram() manText {
	return manText{
		about: []string{
			"startupd is a daemon for a host with GPUs. It follows the systemd journal of the units that run an LLM server, and tells which phase a start is in, how far, how long, how much longer, and, when it fails, the one line that it failed of.",
			"The phases are spawn, load, compile, cudagraph and serving. The daemon, `startupd serve`, exports them to Prometheus. The other commands ask the daemon, or read the journal, a log or the daemon's history themselves.",
			"It asks nothing of the server and needs no root: membership in group systemd-journal is enough.",
		},
		files: manAllFiles(),
		environment: []manItem{
			{"STATE_DIRECTORY", "The state directory, where `--state.dir` names none; systemd sets it."},
			{"RUNTIME_DIRECTORY", "The directory of the API socket, where `--api.socket` names none; systemd sets it."},
			{"GOGC", "How much the heap grows, in percent, before garbage is collected. The daemon's own default is 25."},
		},
		examples: []manExample{
			{"Watch a unit, and see its metrics:", []string{"startupd serve --unit llm.service", "curl -s localhost:10944/metrics | grep startupd_phase"}},
			{"Why did the last start fail?", []string{"startupd explain --unit llm.service --invocation 0"}},
		},
	}
}

func manAllFiles() []manItem {
	return []manItem{
		{"/etc/default/startupd", "Arguments of the daemon when systemd runs it."},
		{"/etc/startupd/startupd.yml", "Targets in detail; read only where `--config.file` names it."},
		{"/var/lib/startupd/state.json", "Counters, and the journal's last entry that is in them."},
		{"/var/lib/startupd/history.db", "Finished startups of each unit."},
		{"/run/startupd/api.sock", "Socket for the command line on this host, open to group startupd."},
		{"/usr/share/doc/startupd/", "Documentation, and examples of drop-ins for a server's unit."},
	}
}

func manServe() manText {
	return manText{
		about: []string{
			"Watches units until it is ended, and serves metrics and probes over HTTP. It is what startupd does when no command is named.",
			"As a service its arguments stand in /etc/default/startupd. Without `--web.config.file` only /metrics, /startupz, /-/healthy and /-/ready answer other hosts: the rest shows text of the log. Of that, /metrics has the message of a root cause, unless `--no-metrics.root-cause-message` is given.",
		},
		signals: []manItem{
			{"SIGHUP", "Reads the configuration and the profiles again. What is wrong is refused, and the old configuration stays."},
			{"SIGTERM, SIGINT", "Saves the state and ends. A second one ends at once."},
		},
		files: manAllFiles(),
		environment: []manItem{
			{"STATE_DIRECTORY, RUNTIME_DIRECTORY", "Where state and socket are, unless a flag says so; systemd sets them."},
			{"NOTIFY_SOCKET, WATCHDOG_USEC, LISTEN_FDS", "systemd's protocols for readiness, watchdog and sockets."},
			{"GOGC", "How much the heap grows, in percent, before garbage is collected; 25 where it is not set."},
		},
		examples: []manExample{
			{"Every unit that matches, on one address only:", []string{"startupd serve --unit 'llm-*.service' --web.listen-address 127.0.0.1:10944"}},
			{"With targets from a file, and TLS:", []string{"startupd serve --config.file /etc/startupd/startupd.yml --web.config.file /etc/startupd/web.yml"}},
			{"Another host's journal, without that host's GPUs:", []string{"startupd serve --unit llm.service --journal.dir /srv/journal/host1 --no-gpu --state.dir ''"}},
		},
	}
}

func manExplain() manText {
	return manText{
		about: []string{
			"Reads a log from its beginning, or a unit's journal, and tells of each start in it which phases it went through, how it ended, and of what it failed. Errors that only followed from the cause are folded, those that harm nothing are named so.",
			"The exit status is that of the last start's outcome.",
		},
		examples: []manExample{
			{"A log at hand, or one that is piped in:", []string{"startupd explain server.log", "journalctl -u llm -o export | startupd explain -"}},
			{"The newest start of a unit; -1 is the one before it:", []string{"startupd explain --unit llm.service --invocation 0"}},
			{"What is new since the last good start:", []string{"startupd explain --unit llm.service --diff"}},
			{"For a bug report, and for a program:", []string{"startupd explain --unit llm.service --format markdown", "startupd explain server.log --format json"}},
		},
	}
}

func manHistory() manText {
	return manText{
		about: []string{"Lists the finished startups that the daemon has kept, with what was new in each since the last good start before it. It reads the daemon's state directory, also while the daemon runs; members of group startupd may."},
		files: []manItem{{"/var/lib/startupd/history.db", "The finished startups."}},
		environment: []manItem{
			{"STATE_DIRECTORY", "The state directory, where `--state.dir` names none."},
		},
		examples: []manExample{
			{"Every unit, and all that is known of one:", []string{"startupd history", "startupd history --unit llm --limit 0"}},
			{"For a program:", []string{"startupd history --unit llm --format json"}},
		},
	}
}

func manDemo() manText {
	return manText{
		about:    []string{"Plays a recorded crash and the restart after it, on eight simulated GPUs, through everything that the daemon does: metrics, page and probes are real."},
		examples: []manExample{{"The whole recording in about a minute, on this host only:", []string{"startupd demo --speed 20 --web.listen-address 127.0.0.1:10944"}}},
	}
}

func manRules() manText {
	return manText{
		about: []string{"Lists what startupd knows of failures, and tries rules of your own on a log before the daemon sees them. Rules are data: YAML files in the directory that `--profile.dir` names add to the built-in ones."},
		examples: []manExample{
			{"What is known of one class of failure:", []string{"startupd rules list --class gpu_oom"}},
			{"Which lines of a log would a file of rules take?", []string{"startupd rules test my-rules.yaml server.log"}},
		},
	}
}

func manCompletion() manText {
	return manText{
		about: []string{"Prints a script that completes commands, flags, their values and the names of units. Packages install it; units are asked of systemd at each completion."},
		examples: []manExample{
			{"For the present shell, bash and fish:", []string{"source <(startupd completion bash)", "startupd completion fish | source"}},
			{"For zsh, in a directory of $fpath:", []string{"startupd completion zsh >~/.zfunc/_startupd"}},
		},
	}
}

func manWait() manText {
	return manText{
		about: []string{
			"Returns when the unit's present start serves, fails or stalls, with the exit status that says which; at the end it prints the root cause. It asks the daemon, or follows the journal itself where none runs.",
			"As `ExecStartPost=+/usr/bin/startupd wait %n` of the server's unit it makes `systemctl start` return only when the server serves, and fail with the cause. Set `TimeoutStartSec` above the time that a start may take.",
		},
		environment: []manItem{{"INVOCATION_ID", "The start to wait for; systemd sets it for ExecStartPost."}},
		examples: []manExample{
			{"Restart a server, and return when it serves:", []string{"systemctl restart llm.service && startupd wait llm.service"}},
			{"Give up after 20 minutes:", []string{"startupd wait llm.service --timeout 20m"}},
		},
	}
}

func manWatch() manText {
	return manText{
		about:       []string{"Shows on a terminal, live, the phases of each unit as a timeline, the present step and how far it is, when it is expected to serve, memory of the GPUs, and errors as they come."},
		environment: []manItem{{"NO_COLOR", "Set, it switches colours off; so does `TERM=dumb`."}},
		examples:    []manExample{{"Everything that the daemon watches, and one unit:", []string{"startupd watch", "startupd watch llm.service"}}},
	}
}

func manStatus() manText {
	return manText{
		about:       []string{"Prints once where each unit's start is."},
		environment: []manItem{{"NO_COLOR", "Set, it switches colours off; so does `TERM=dumb`."}},
		examples:    []manExample{{"For people, and for a program:", []string{"startupd status llm.service", "startupd status --format json"}}},
	}
}

func manPreflight() manText {
	return manText{
		about: []string{
			"Looks, before a start, at what it will need: GPUs and their free memory, who holds the rest, the port, shared memory, disk room, and packages whose versions must match.",
			"As `ExecStartPre=` of the server's unit it stops a restart loop that could not succeed.",
		},
		examples: []manExample{
			{"Can this unit start?", []string{"startupd preflight llm.service"}},
			{"Wait until the memory of the process before has drained:", []string{"startupd preflight llm.service --wait 60s"}},
		},
	}
}

func manCheck() manText {
	return manText{
		about:    []string{"Tells whether startupd itself is fit: its right to read the journal, NVML, the bus, configuration and profiles, one line each with what to do."},
		examples: []manExample{{"On a new host:", []string{"startupd check"}}},
	}
}
