package scenario

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"
)

// Plan is one start, expanded: families are single processes, everything
// printed is a Write.
type Plan struct {
	Start *Start
	// Actors are the processes, the main one first.
	Actors []Actor
	layout string
}

// Actor is one process of a plan.
type Actor struct {
	Name, Title string
	Main        bool
	Begin       time.Duration
	// End is how it ends by itself; nil if it does not.
	End *Exit
	// GPU is the device that it holds memory of; -1 for none.
	GPU    int
	memory *Memory
	// Writes is in order of time.
	Writes []Write
	// Stop and StopServing are its part of the start's reactions to SIGTERM, Taken
	// that of an address that is taken.
	Stop, StopServing, Taken []Write
}

// Write is bytes that a process writes at once.
type Write struct {
	At   time.Duration
	text string
}

// Writer is what a text's placeholders tell of the process that prints it.
type Writer struct {
	PID, Port int
}

// Bytes returns what w writes at a moment of the wall clock.
func (p *Plan) Bytes(w Write, by Writer, at time.Time) []byte {
	return []byte(strings.NewReplacer(
		"{pid}", strconv.Itoa(by.PID), "{port}", strconv.Itoa(by.Port),
		"{time}", at.Format(p.layout), "{iso}", at.Format("2006-01-02 15:04:05,000"),
	).Replace(w.text))
}

// Plan expands start i; a start after the last one is the last one again.
func (f *File) Plan(i int) (*Plan, error) {
	s := &f.Starts[min(i, len(f.Starts)-1)]
	p := &Plan{Start: s, layout: f.Format.Time}
	if err := errors.Join(p.addActors(f), s.checkExits()); err != nil {
		return nil, fmt.Errorf("start %q: %w", s.Name, err)
	}
	for _, part := range p.parts() {
		for n, it := range part.items {
			if err := p.add(f, it, part.writes); err != nil {
				return nil, fmt.Errorf("start %q: %s item %d: %w", s.Name, part.name, n+1, err)
			}
		}
	}
	for i := range p.Actors {
		a := &p.Actors[i]
		for _, w := range []*[]Write{&a.Writes, &a.Stop, &a.StopServing, &a.Taken} {
			slices.SortStableFunc(*w, func(a, b Write) int { return cmp.Compare(a.At, b.At) })
		}
	}
	return p, nil
}

// checkExits refuses ends that could not be played.
func (s *Start) checkExits() error {
	exits := []*Exit{s.Exit}
	for i := range s.Processes {
		exits = append(exits, s.Processes[i].End)
	}
	for _, r := range []*Stop{s.Stop, s.StopServing, s.Taken} {
		if r != nil {
			exits = append(exits, &r.Exit)
		}
	}
	var errs []error
	for _, e := range exits {
		errs = append(errs, e.check())
	}
	return errors.Join(errs...)
}

type part struct {
	name   string
	items  []Item
	writes func(*Actor) *[]Write
}

func (p *Plan) parts() []part {
	parts := []part{{"script", p.Start.Script, func(a *Actor) *[]Write { return &a.Writes }}}
	if s := p.Start.Stop; s != nil {
		parts = append(parts, part{"stop", s.Script, func(a *Actor) *[]Write { return &a.Stop }})
	}
	if s := p.Start.StopServing; s != nil {
		parts = append(parts, part{"stop_serving", s.Script, func(a *Actor) *[]Write { return &a.StopServing }})
	}
	if s := p.Start.Taken; s != nil {
		parts = append(parts, part{"taken", s.Script, func(a *Actor) *[]Write { return &a.Taken }})
	}
	return parts
}

func (p *Plan) addActors(f *File) error {
	for _, d := range p.Start.Processes {
		for i := range max(d.Count, 1) {
			a := Actor{
				Name: indexed(d.Name, i), Title: indexed(d.Title, i), Main: d.Main,
				Begin: time.Duration(d.Begin), End: d.End, GPU: -1,
			}
			for m := range p.Start.Memory {
				if p.Start.Memory[m].By == d.Name {
					a.GPU, a.memory = i, &p.Start.Memory[m]
				}
			}
			if a.GPU >= f.GPUs.Count {
				return fmt.Errorf("process %s is on GPU %d of %d", a.Name, a.GPU, f.GPUs.Count)
			}
			p.Actors = append(p.Actors, a)
		}
	}
	slices.SortStableFunc(p.Actors, func(a, b Actor) int {
		if a.Main != b.Main && a.Main {
			return -1
		} else if a.Main != b.Main {
			return 1
		}
		return cmp.Compare(a.Begin, b.Begin)
	})
	mains := slices.IndexFunc(p.Actors, func(a Actor) bool { return !a.Main })
	if len(p.Actors) == 0 || !p.Actors[0].Main || p.Actors[0].Begin != 0 || mains > 1 || mains < 0 && len(p.Actors) > 1 {
		return fmt.Errorf("exactly one process is main and begins at 0")
	}
	p.Actors[0].End = p.Start.Exit
	return nil
}

// add expands an item for each of the processes that print it.
func (p *Plan) add(f *File, it Item, writes func(*Actor) *[]Write) error {
	count := 0
	for i := range p.Actors {
		a := &p.Actors[i]
		index, ok := member(it.By, a.Name)
		if !ok {
			continue
		}
		w, err := f.writes(it, a.Name)
		if err != nil {
			return err
		}
		delay := time.Duration(it.At) + time.Duration(index)*time.Duration(it.Stagger)
		for n := range w {
			w[n].At += delay
			w[n].text = indexed(w[n].text, index)
		}
		*writes(a) = append(*writes(a), w...)
		count++
	}
	if count == 0 {
		return fmt.Errorf("no process %q", it.By)
	}
	return nil
}

// member says that name is by, or one of the family by, and which one.
func member(by, name string) (int, bool) {
	head, tail, family := strings.Cut(by, "{i}")
	if !family {
		return 0, by == name
	}
	middle, ok := strings.CutPrefix(name, head)
	if !ok {
		return 0, false
	}
	middle, ok = strings.CutSuffix(middle, tail)
	i, err := strconv.Atoi(middle)
	return i, ok && err == nil
}

func indexed(s string, i int) string { return strings.ReplaceAll(s, "{i}", strconv.Itoa(i)) }

// Held is the device memory that the actor holds at a moment.
func (a *Actor) Held(at time.Duration) uint64 {
	if a.memory == nil || at < a.Begin {
		return 0
	}
	points := a.memory.Used
	i := slices.IndexFunc(points, func(p Point) bool { return time.Duration(p.At) > at })
	switch {
	case len(points) == 0 || i == 0:
		return 0
	case i < 0:
		return uint64(points[len(points)-1].Bytes)
	}
	from, to := points[i-1], points[i]
	share := float64(at-time.Duration(from.At)) / float64(to.At-from.At)
	return uint64(float64(from.Bytes) + share*(float64(to.Bytes)-float64(from.Bytes)))
}

// Busy is the GPU's utilisation in percent that the actor causes.
func (a *Actor) Busy(at time.Duration) int {
	if a.memory == nil {
		return 0
	}
	percent := 0
	for _, l := range a.memory.Utilization {
		if time.Duration(l.At) <= at {
			percent = l.Percent
		}
	}
	return percent
}
