package main

import (
	"bytes"
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/startupd/startupd/pkg/event"
	"github.com/startupd/startupd/pkg/journal"
	"github.com/startupd/startupd/test/engine/scenario"
)

const (
	// The sources' rhythm while a unit starts and while it serves. A second, as
	// live, would make the recording five times as large and tell no more.
	sampleStarting = 5 * time.Second
	sampleServing  = 10 * time.Second
	watermarkEvery = 2 * time.Second
	// tail is how long the recording goes on after the last line.
	tail = 20 * time.Second

	bootUptime = 26 * time.Hour
	firstPID   = 214800
	port       = 8000
)

// recorder collects the events of one unit.
type recorder struct {
	file   *scenario.File
	boot   string
	began  time.Time
	events []event.Event
	// attempts is systemd's restart counter.
	attempts int
	cleaner  journal.Cleaner
}

// record returns the scenario's events in order of time.
func record(f *scenario.File, began time.Time) ([]event.Event, error) {
	r := &recorder{file: f, boot: id(f.Name, "boot"), began: began}
	r.add(0, "", &event.SourceState{Source: event.SourceJournal, Up: true, State: "up"})
	r.add(0, "", &event.SourceState{Source: event.SourceUnit, Up: true, State: "up"})
	r.add(0, "", &event.SourceState{Source: event.SourceGPU, Up: true, State: "up"})
	r.add(0, f.Unit, &event.SourceState{Source: event.SourceHealth, Up: true, State: "up"})
	r.add(0, f.Unit, &event.UnitState{Loaded: true, ActiveState: "inactive", SubState: "dead", Result: "success", ExecStart: f.Command})
	at := time.Second
	for i := range f.Starts {
		end, err := r.start(i, at)
		if err != nil {
			return nil, err
		}
		at = end
	}
	for t := time.Duration(0); t < at; t += watermarkEvery {
		r.add(t, "", &event.Watermark{})
	}
	r.add(at, "", &event.Watermark{})
	slices.SortStableFunc(r.events, func(a, b event.Event) int { return cmp.Compare(a.At.Mono, b.At.Mono) })
	return r.events, nil
}

// take is one start that is being recorded.
type take struct {
	*recorder
	plan       *scenario.Plan
	at         time.Duration
	invocation string
	pids       map[string]int
	// length is how long it lasts: to its exit, or to the recording's end.
	length time.Duration
}

// start records start i, which begins at, and returns when the next one may
// begin.
func (r *recorder) start(i int, at time.Duration) (time.Duration, error) {
	plan, err := r.file.Plan(i)
	if err != nil {
		return 0, err
	}
	t := &take{recorder: r, plan: plan, at: at, invocation: id(r.file.Name, fmt.Sprint(i)), pids: map[string]int{}}
	for n, a := range plan.Actors {
		t.pids[a.Name] = firstPID + 400*i + 7*n
		for _, w := range a.Writes {
			t.length = max(t.length, w.At+tail)
		}
	}
	exit := plan.Start.Exit
	if exit != nil {
		t.length = time.Duration(exit.At)
	}
	t.message(0, event.UnitMessage{Message: event.Started, Text: "Started " + r.file.Unit + "."})
	t.state("active", "running")
	for i := range plan.Actors {
		t.lines(&plan.Actors[i])
	}
	t.samples()
	if exit == nil {
		return at + t.length, nil
	}
	t.died(*exit)
	return at + t.length + time.Duration(r.file.RestartSec), nil
}

func (r *recorder) add(at time.Duration, target string, d event.Data) {
	r.events = append(r.events, event.Event{At: r.stamp(at), Target: target, Data: d})
}

func (r *recorder) stamp(at time.Duration) event.Stamp {
	return event.Stamp{Real: r.began.Add(at), Boot: r.boot, Mono: bootUptime + at}
}

// message records what systemd says, offset after the start's beginning.
func (t *take) message(offset time.Duration, m event.UnitMessage) {
	m.Invocation, m.PID = t.invocation, 1
	t.add(t.at+offset, t.file.Unit, &m)
}

func (t *take) state(active, sub string) {
	offset := time.Duration(0)
	s := event.UnitState{
		Loaded: true, ActiveState: active, SubState: sub, Invocation: t.invocation, Restarts: t.attempts,
		Result: "success", ExecStart: t.file.Command, ActiveEnter: t.stamp(t.at), InactiveExit: t.stamp(t.at),
	}
	if active == "active" {
		s.MainPID, s.ControlGroup = t.pids[t.plan.Actors[0].Name], t.cgroup()
	} else {
		offset, s.Result = t.length, "exit-code"
	}
	t.add(t.at+offset+time.Millisecond, t.file.Unit, &s)
}

func (t *take) cgroup() string { return "/system.slice/" + t.file.Unit }

// died records the end of the main process, and the restart that follows.
func (t *take) died(e scenario.Exit) {
	exit := event.UnitMessage{Message: event.ProcessExit, Command: "ExecStart", ExitCode: "exited", ExitStatus: fmt.Sprint(e.Code)}
	result := "exit-code"
	if e.Signal != "" {
		exit.ExitCode, exit.ExitStatus, result = "killed", e.Signal, "signal"
	}
	exit.Text = fmt.Sprintf("%s: Main process exited, code=%s, status=%s", t.file.Unit, exit.ExitCode, exit.ExitStatus)
	t.message(t.length, exit)
	t.message(t.length, event.UnitMessage{
		Message: event.FailureResult, Result: result, Text: fmt.Sprintf("%s: Failed with result '%s'.", t.file.Unit, result),
	})
	t.state("activating", "auto-restart")
	t.attempts++
	n := t.attempts
	next := t.length + time.Duration(t.file.RestartSec) - time.Millisecond
	t.message(next, event.UnitMessage{
		Message: event.RestartScheduled, Restarts: &n, Text: fmt.Sprintf("%s: Scheduled restart job, restart counter is at %d.", t.file.Unit, n),
	})
	t.message(next, event.UnitMessage{Message: event.Stopped, Text: "Stopped " + t.file.Unit + "."})
}

// lines records what a process prints, as the journal's reader gives it.
func (t *take) lines(a *scenario.Actor) {
	var rest []byte
	for _, w := range a.Writes {
		at := t.at + w.At
		rest = append(rest, t.plan.Bytes(w, scenario.Writer{PID: t.pids[a.Name], Port: port}, t.began.Add(at))...)
		for {
			line, more, ok := bytes.Cut(rest, []byte("\n"))
			if !ok {
				break
			}
			// journald strips the end of a line.
			for _, l := range t.cleaner.Lines([]byte(strings.TrimRight(string(line), " \t\r"))) {
				t.add(at, t.file.Unit, &event.Line{
					Text: l.Text, Bar: l.Bar, Invocation: t.invocation, PID: t.pids[a.Name], Origin: event.OriginUnit,
				})
			}
			rest = more
		}
	}
}

// samples records what GPUs and endpoint look like meanwhile.
func (t *take) samples() {
	ready := time.Duration(t.plan.Start.Ready)
	for at := time.Duration(0); at < t.length; {
		t.sample(at, ready > 0 && at >= ready)
		switch {
		case ready > 0 && at >= ready:
			at += sampleServing
		case ready > 0 && at+sampleStarting > ready:
			at = ready
		default:
			at += sampleStarting
		}
	}
}

func (t *take) sample(offset time.Duration, serving bool) {
	health := event.HealthSample{
		Status: event.HealthClosed, URL: fmt.Sprintf("http://127.0.0.1:%d/health", port),
		Detail: fmt.Sprintf("dial tcp 127.0.0.1:%d: connect: connection refused", port),
	}
	if serving {
		health.Status, health.Code, health.Detail = event.HealthReady, 200, ""
	}
	t.add(t.at+offset, t.file.Unit, &health)
	var s event.GPUSample
	for i := range t.file.GPUs.Count {
		s.GPUs = append(s.GPUs, t.gpu(i, offset))
	}
	t.add(t.at+offset, "", &s)
}

func (t *take) gpu(index int, offset time.Duration) event.GPU {
	used, total, busy := uint64(t.file.GPUs.Idle), uint64(t.file.GPUs.Total), 0.0
	g := event.GPU{Index: index, UUID: scenario.UUID(index), Name: t.file.GPUs.Name, Processes: []event.GPUProcess{}}
	for i := range t.plan.Actors {
		a := &t.plan.Actors[i]
		held := a.Held(offset)
		if a.GPU != index || held == 0 {
			continue
		}
		used, busy = used+held, float64(a.Busy(offset))/100
		g.Processes = append(g.Processes, event.GPUProcess{
			PID: t.pids[a.Name], UsedBytes: &held, Cgroup: t.cgroup(), Unit: t.file.Unit, Title: a.Title,
		})
	}
	g.UsedBytes, g.TotalBytes, g.UtilizationRatio = &used, &total, &busy
	return g
}

// id makes up 32 hex digits that stay the same.
func id(parts ...string) string {
	sum := sha256.Sum256([]byte(strings.Join(parts, "/")))
	return hex.EncodeToString(sum[:16])
}
