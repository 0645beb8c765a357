// Package fitness looks whether startupd can do its work on this host: rights,
// readers, the units' logs, journald's limits, the driver, its own files and
// addresses. Each look is a check of the table in table.go, with what to do.
//
// It reads and tries; it must not change the host, and not judge a start of an
// engine. What can't be told is not_known, never ok.
package fitness

import (
	"context"
	"fmt"
	"path"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/startupd/startupd/internal/app"
	"github.com/startupd/startupd/pkg/profile"
	"github.com/startupd/startupd/pkg/web/api"
)

// Schema names the version of Report's JSON form. Fields may be added to a
// version; none is removed or changes its meaning.
const Schema = "startupd.check/v1"

// Status is what a check came to.
type Status string

// The statuses. Warning: startupd works, and something may be missed. Fail: it
// does not start, or is blind to what it is for.
const (
	OK       Status = "ok"
	Warning  Status = "warning"
	Fail     Status = "fail"
	NotKnown Status = "not_known"
)

// Statuses returns all four, the best first.
func Statuses() []Status { return []Status{OK, Warning, Fail, NotKnown} }

// Result is one check's.
type Result struct {
	// Check is the check's stable name, Title its name for people.
	Check string `json:"check"`
	Title string `json:"title"`
	// Unit is the unit that it is about; absent for the host's.
	Unit   string `json:"unit,omitempty"`
	Status Status `json:"status"`
	// Detail is what was found, in one sentence or two.
	Detail string `json:"detail"`
	// Do says what to do; absent where there is nothing to be done.
	Do string `json:"do,omitempty"`
	// Write are files that would mend it.
	Write []File `json:"write,omitzero"`
}

// File is a file to be written, such as a drop-in of a unit.
type File struct {
	Path string `json:"path"`
	Text string `json:"text"`
}

// Report is all checks.
type Report struct {
	Schema  string    `json:"schema"`
	At      time.Time `json:"at"`
	Version string    `json:"version,omitempty"`
	// User is whose rights were tried, Daemon that it is the daemon's user.
	User   string `json:"user"`
	Daemon bool   `json:"daemon_user"`
	// Arguments says where the flags came from.
	Arguments string `json:"arguments"`
	// Units are those that were looked at; never null.
	Units []string `json:"units"`
	// Fit is false when a check failed, and absent when none could be told.
	Fit *bool `json:"fit,omitempty"`
	// Counts counts the checks by status.
	Counts map[Status]int `json:"counts"`
	Checks []Result       `json:"checks"`
}

// Options are what is checked.
type Options struct {
	// App are the daemon's options. Log and Notify are not used.
	App app.Options
	// User names whose rights are tried, Daemon says that it is the daemon's user.
	User   string
	Daemon bool
	// Arguments says where the flags came from, DaemonArgs are the flags.
	Arguments  string
	DaemonArgs []string
	// Root is prefixed to the paths of the system's files; "" is none.
	Root string
	// Dial connects to systemd; nil connects over the system bus.
	Dial func(context.Context) (Bus, error)
	// Deadline bounds each check; 0 is 15 s.
	Deadline time.Duration
	// Now is the present moment; nil is time.Now.
	Now func() time.Time
}

// parallel is how many checks run at once.
const parallel = 4

// Run runs all checks. One that does not come back is not_known, and is left
// behind. The order of the results is that of the table.
func Run(ctx context.Context, o Options) *Report {
	if o.Deadline <= 0 {
		o.Deadline = 15 * time.Second
	}
	if o.Now == nil {
		o.Now = time.Now
	}
	h := newHost(ctx, o)
	units := h.unitNames(ctx)
	var jobs []job
	for _, c := range table() {
		if c.unit == nil {
			jobs = append(jobs, job{check: c})
		}
	}
	for _, u := range units {
		for _, c := range table() {
			if c.unit != nil {
				jobs = append(jobs, job{check: c, name: u})
			}
		}
	}
	results := make([]Result, len(jobs))
	slots := make(chan struct{}, parallel)
	var wg sync.WaitGroup
	for i, j := range jobs {
		wg.Go(func() {
			slots <- struct{}{}
			defer func() { <-slots }()
			results[i] = j.result(ctx, h, o.Deadline)
		})
	}
	wg.Wait()
	r := &Report{
		Schema: Schema, At: o.Now().UTC(), Version: o.App.Version, User: o.User, Daemon: o.Daemon, Arguments: o.Arguments,
		Units: append([]string{}, units...), Counts: map[Status]int{}, Checks: []Result{},
	}
	r.add(results)
	return r
}

// add takes the results in; those of checks that do not apply are empty.
func (r *Report) add(results []Result) {
	for _, s := range Statuses() {
		r.Counts[s] = 0
	}
	for _, res := range results {
		if res.Status == "" {
			continue
		}
		r.Checks = append(r.Checks, res)
		r.Counts[res.Status]++
	}
	if r.Counts[OK]+r.Counts[Warning]+r.Counts[Fail] > 0 {
		fit := r.Counts[Fail] == 0
		r.Fit = &fit
	}
}

// job is a check to be run, of a unit where name is set.
type job struct {
	check check
	name  string
}

// result runs a check within its deadline.
func (j job) result(ctx context.Context, h *host, deadline time.Duration) Result {
	deadline = max(deadline, j.check.deadline)
	ctx, cancel := context.WithTimeout(ctx, deadline)
	defer cancel()
	done := make(chan outcome, 1)
	go func() {
		defer func() {
			if p := recover(); p != nil {
				done <- unknown(fmt.Sprintf("the check itself failed: %v", p), "report it as a bug")
			}
		}()
		done <- j.run(ctx, h)
	}()
	var out outcome
	select {
	case out = <-done:
	case <-ctx.Done():
		// It may have ended by the same deadline, with a better reason.
		select {
		case out = <-done:
		case <-time.After(grace):
			out = unknown(fmt.Sprintf("no answer within %s", deadline), "look at what hangs: a driver, a disk, the system bus")
		}
	}
	return Result{
		Check: j.check.code, Title: j.check.title, Unit: j.name,
		Status: out.status, Detail: out.detail, Do: out.do, Write: out.write,
	}
}

// grace is how long a check that ran out of time may take to say so.
const grace = 500 * time.Millisecond

func (j job) run(ctx context.Context, h *host) outcome {
	if j.check.unit != nil {
		return j.check.unit(ctx, h, j.name)
	}
	return j.check.host(ctx, h)
}

// outcome is what a check found; the zero value is that it does not apply.
type outcome struct {
	status     Status
	detail, do string
	write      []File
}

func ok(format string, args ...any) outcome {
	return outcome{status: OK, detail: fmt.Sprintf(format, args...)}
}

func warn(detail, do string) outcome    { return outcome{status: Warning, detail: detail, do: do} }
func fail(detail, do string) outcome    { return outcome{status: Fail, detail: detail, do: do} }
func unknown(detail, do string) outcome { return outcome{status: NotKnown, detail: detail, do: do} }

// dropIn is a drop-in file of a unit; each check has one of its own.
func dropIn(unit, name string, lines ...string) []File {
	return []File{{Path: "/etc/systemd/system/" + unit + ".d/startupd-" + name + ".conf", Text: strings.Join(lines, "\n") + "\n"}}
}

// host is what several checks ask for, each thing at most once.
type host struct {
	o        Options
	targets  func() ([]app.Target, error)
	profiles func() (*profile.Set, error)
	bus      func() (Bus, error)
	daemon   func() (*api.Status, error)
	journald func() (journald, error)

	mu sync.Mutex
	// props are the properties of units by name.
	props map[string]properties
}

func newHost(ctx context.Context, o Options) *host {
	h := &host{o: o, props: map[string]properties{}}
	h.profiles = sync.OnceValues(func() (*profile.Set, error) { return app.LoadProfiles(o.App.ProfileDir) })
	h.targets = sync.OnceValues(h.loadTargets)
	h.bus = sync.OnceValues(func() (Bus, error) {
		dial := o.Dial
		if dial == nil {
			dial = SystemBus
		}
		return dial(ctx)
	})
	h.daemon = sync.OnceValues(func() (*api.Status, error) { return h.askDaemon(ctx) })
	h.journald = sync.OnceValues(func() (journald, error) { return readJournald(o.Root) })
	return h
}

func (h *host) loadTargets() ([]app.Target, error) {
	set, err := h.profiles()
	if err != nil {
		return nil, err
	}
	var engines []string
	for _, p := range set.Profiles() {
		engines = append(engines, p.Engine)
	}
	return app.LoadTargets(h.o.App.Units, h.o.App.ConfigFile, engines)
}

// path is where a file of the system is.
func (h *host) path(p string) string { return h.o.Root + p }

// elsewhere says that the journal may be another host's: then this host's units
// and journald tell nothing of it.
func (h *host) elsewhere() bool { return h.o.App.Journal.Dir != "" }

// unitNames are the units to look at: those named in full, and what the globs
// match on the bus.
func (h *host) unitNames(ctx context.Context) []string {
	ts, err := h.targets()
	if err != nil {
		// What was named is looked at all the same.
		for _, u := range h.o.App.Units {
			if t := (app.Target{Unit: u}); !t.Glob() {
				ts = append(ts, app.Target{Unit: app.UnitName(u)})
			}
		}
	}
	var names, globs []string
	for _, t := range ts {
		if t.Glob() {
			globs = append(globs, t.Unit)
		} else {
			names = append(names, t.Unit)
		}
	}
	for _, u := range h.matching(ctx, globs) {
		if !slices.Contains(names, u) {
			names = append(names, u)
		}
	}
	return names
}

// maxFound bounds the units that globs bring.
const maxFound = 64

func (h *host) matching(ctx context.Context, globs []string) []string {
	if len(globs) == 0 || h.elsewhere() {
		return nil
	}
	bus, err := h.bus()
	if err != nil {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, h.o.Deadline)
	defer cancel()
	found, err := bus.List(ctx, globs)
	if err != nil {
		return nil
	}
	slices.Sort(found)
	return found[:min(len(found), maxFound)]
}

// target is a unit's target; the zero value when it has none.
func (h *host) target(unit string) app.Target {
	ts, _ := h.targets()
	for _, t := range ts {
		if ok, _ := path.Match(t.Unit, unit); ok || t.Unit == unit {
			return t
		}
	}
	return app.Target{}
}
