package preflight

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/startupd/startupd/pkg/profile"
	"github.com/startupd/startupd/pkg/triage"
)

// Options are what a Run looks at, and how.
type Options struct {
	// Unit is looked up by Units; "" for a command without a unit.
	Unit string
	// Argv is the command that will be started; nil takes the unit's.
	Argv []string
	// Environ are the variables of a command without a unit, NAME=VALUE.
	Environ []string
	// Profiles are tried in order.
	Profiles []*profile.Profile
	System   System
	// Units tells of a unit; nil when there is no systemd.
	Units func(ctx context.Context, name string) (*Unit, error)
	// GPUs looks at the GPUs, each call anew; nil looks at none.
	GPUs func(context.Context) GPULook
	// KernelLog returns the recent lines of the kernel's log that the GPU's driver
	// wrote; nil looks at none.
	KernelLog func(context.Context) ([]string, error)
	// Dir is the working directory of a command without a unit; "" is /.
	Dir string
	// WeightBytes is the expected size of the weights on each GPU, and WeightsFrom
	// says for people who told it; nil when nobody did.
	WeightBytes *uint64
	WeightsFrom string
	// LastWeights is what an earlier start found, for when nobody told it; nil when
	// there was none.
	LastWeights *Weights
	// Wait is how long to wait for what passes by itself: GPU memory and the port;
	// 0 looks once.
	Wait time.Duration
	// Poll lies between two looks; 0 is 2 s.
	Poll time.Duration
	// Progress is told of a change while waiting; nil is silent.
	Progress func(text string)
}

// Weights is the size of a model's weights on each GPU, as an earlier start found
// it. From says for people which one.
type Weights struct {
	Bytes       uint64
	Model, From string
}

// look is one Run.
type look struct {
	o     Options
	sys   System
	unit  *Unit
	cmd   *command
	model model
}

// Run makes all checks. It has no error of its own: what it can't look at is
// Unknown in the report. Where ctx ends, the rest is not looked at.
//
// It returns at once when everything is fit, or when waiting can't help, else
// when Wait is over.
func Run(ctx context.Context, o Options) *Report {
	if o.Poll <= 0 {
		o.Poll = 2 * time.Second
	}
	l := &look{o: o, sys: o.System}
	began := time.Now()
	r := &Report{Schema: Schema, Unit: o.Unit}
	r.Checks = l.begin(ctx)
	if l.cmd == nil {
		r.judge(false)
		return r
	}
	once := l.once()
	waited := l.wait(ctx, began, r, once)
	for i := range r.Checks {
		l.soften(&r.Checks[i])
	}
	if p := l.cmd.profile; p != nil {
		r.Engine = p.Engine
	}
	r.EngineVersion, r.Model = l.cmd.version, l.model.name
	r.judge(waited)
	return r
}

// begin finds the command, and returns what there is to say of it.
func (l *look) begin(ctx context.Context) []Result {
	var out []Result
	if l.o.Unit != "" {
		u, r := l.lookUp(ctx)
		if l.unit = u; u == nil && l.o.Argv == nil {
			return []Result{r}
		}
		if r.What != "" {
			out = append(out, r)
		}
	}
	environ := map[string]string{}
	for _, v := range l.o.Environ {
		if name, value, ok := strings.Cut(v, "="); ok {
			environ[name] = value
		}
	}
	u := l.unit
	if l.o.Argv != nil && u != nil {
		with := *u
		with.Argv, with.Split = l.o.Argv, false
		u = &with
	}
	l.cmd = find(&l.sys, l.o.Profiles, u, l.o.Argv, environ, l.o.Dir)
	if l.known() {
		l.cmd.readConfig(&l.sys)
		if _, in, err := l.environment(); err == nil {
			l.cmd.version = in.dists[normal(l.cmd.profile.Preflight.Package)].version
		}
	}
	return append(out, l.command())
}

// known says that a profile tells what the command needs.
func (l *look) known() bool { return l.cmd.profile != nil && l.cmd.profile.Preflight != nil }

func (l *look) lookUp(ctx context.Context) (*Unit, Result) {
	r := Result{Check: CheckUnit, Status: Unknown, What: "there is no systemd to ask for " + l.o.Unit}
	if l.o.Units == nil {
		return nil, r
	}
	u, err := l.o.Units(ctx, l.o.Unit)
	switch {
	case err != nil:
		r.What = fmt.Sprintf("systemd can't be asked for %s: %v", l.o.Unit, err)
		return nil, r
	case !u.Loaded:
		r.Status, r.What = Fail, fmt.Sprintf("systemd knows no unit %s", l.o.Unit)
		r.Do = "Compare the name with systemctl list-unit-files."
		return nil, r
	case u.MainPID != 0:
		r.Status = Warning
		r.What = fmt.Sprintf("%s runs (main PID %d): what it holds counts as free, as a restart ends it first", u.Name, u.MainPID)
		return u, r
	case len(u.Argv) == 0:
		r.What = u.Name + " has no ExecStart= command"
		return nil, r
	}
	return u, Result{}
}

// command says which command was found, and what of it could not be read.
func (l *look) command() Result {
	c := l.cmd
	r := Result{Check: CheckCommand, Status: OK}
	switch {
	case c.profile == nil:
		r.Status = Unknown
		r.What = fmt.Sprintf("no profile knows the engine of %q", triage.Clip(strings.Join(c.argv, " "), maxCommand))
		r.Do = "Name the engine's command behind --, or add a profile with --profile.dir."
	case c.profile.Preflight == nil:
		r.Status = Unknown
		r.What = fmt.Sprintf("the profile of %s does not tell what a start needs (preflight:)", c.profile.Engine)
	default:
		r.What = c.profile.Engine
		if c.version != "" {
			r.What += " " + c.version
		}
		if m := c.setting(profile.SettingModel); m.value != "" {
			r.What += ", model " + m.value
		}
		if a := c.arguments(); len(a) > 0 {
			r.What += ", " + strings.Join(a, ", ")
		}
		if c.script != "" {
			r.What += " (from " + c.script + ")"
		}
		if c.container != nil {
			r.What += " (in a container of " + c.container.runtime + ")"
		}
	}
	if len(c.problems) > 0 {
		r.Status = Unknown
		r.What += "; " + strings.Join(c.problems, "; ")
	}
	return r
}

// once makes the checks that no waiting changes.
func (l *look) once() []Result {
	if !l.known() {
		return nil
	}
	var out []Result
	for _, r := range []*Result{l.findModel(), l.sharedMemory()} {
		if r != nil {
			out = append(out, *r)
		}
	}
	out = append(out, l.disks()...)
	for _, r := range []*Result{l.memory(), l.limits()} {
		if r != nil {
			out = append(out, *r)
		}
	}
	return append(out, l.packages()...)
}

// again makes the checks of what changes with the host's other processes.
func (l *look) again(ctx context.Context) []Result {
	if l.o.GPUs == nil && !l.known() {
		return nil
	}
	var out []Result
	if l.o.GPUs != nil {
		seen := l.o.GPUs(ctx)
		gpus, r := l.gpus(seen)
		out = append(out, r)
		if l.known() {
			out = append(out, l.xids(ctx, gpus)...)
			out = append(out, l.gpuMemory(gpus)...)
			if w := l.weights(gpus); w != nil {
				out = append(out, *w)
			}
		}
	}
	if l.known() {
		if r := l.port(); r != nil {
			out = append(out, *r)
		}
	}
	return out
}

// wait looks until all is fit, waiting can't help, or the time is over; waited
// says that the last is so.
func (l *look) wait(ctx context.Context, began time.Time, r *Report, once []Result) (waited bool) {
	head := r.Checks
	told := ""
	for {
		now := l.again(ctx)
		r.Checks = append(append(append([]Result(nil), head...), now...), once...)
		r.WaitedSeconds = 0
		if told != "" {
			r.WaitedSeconds = time.Since(began).Seconds()
		}
		text, hope := l.missing(r.Checks)
		left := l.o.Wait - time.Since(began)
		if text == "" || !hope || l.o.Wait <= 0 {
			return false
		}
		if text != told && l.o.Progress != nil {
			l.o.Progress(text)
		}
		told = text
		if left <= 0 {
			return true
		}
		timer := time.NewTimer(min(l.o.Poll, left))
		select {
		case <-timer.C:
		case <-ctx.Done():
			timer.Stop()
			r.WaitedSeconds = time.Since(began).Seconds()
			return true
		}
	}
}

// missing says what fails; hope is true where waiting alone can mend all of it.
func (l *look) missing(checks []Result) (text string, hope bool) {
	hope = true
	var parts []string
	for i := range checks {
		c := &checks[i]
		if c.Status != Fail || !c.passing && l.doubt(c.Check) != "" {
			continue
		}
		hope = hope && c.passing
		part := c.What
		if len(c.Holders) > 0 {
			part += ", held by " + c.Holders[0].short()
		}
		parts = append(parts, part)
	}
	return strings.Join(parts, "; "), hope
}

// doubt says why a failure of a check is not certain; "" when it is.
func (l *look) doubt(check string) string {
	switch check {
	case CheckGPUMemory, CheckPort:
		if l.running() && l.cmd.container != nil {
			return "the running unit's own container may hold it"
		}
	case CheckModel, CheckPackages, CheckDisk:
		if l.unit != nil && l.unit.OwnFiles != "" {
			return l.unit.OwnFiles
		}
	}
	return l.cmd.doubt
}

// soften makes a failure that is not certain a warning: it must not keep a start
// back that may well succeed.
func (l *look) soften(r *Result) {
	if r.Status != Fail {
		return
	}
	if why := l.doubt(r.Check); why != "" {
		r.Status = Warning
		r.What += "; it is not certain, as " + why
	}
}

// short names a holder in a few words.
func (h *Holder) short() string {
	switch {
	case h.PID == 0:
		return "processes that can't be seen"
	case h.Unit != "":
		return fmt.Sprintf("PID %d of %s", h.PID, h.Unit)
	case h.Command == "":
		return fmt.Sprintf("PID %d", h.PID)
	}
	return fmt.Sprintf("PID %d (%s)", h.PID, h.Command)
}
