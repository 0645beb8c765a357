// Package demo owns recorded starts and plays them as a source of events, as
// if they happened now.
//
// The pipeline behind it is the real one: the package only makes events. It
// must not know what they mean, and imports nothing of this module but
// pkg/event. The recordings are made by test/engine/record from the scenarios
// that the simulated engine of the end-to-end tests plays.
package demo

import (
	"bytes"
	"compress/gzip"
	"embed"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/startupd/startupd/pkg/event"
)

//go:generate go run ../../test/engine/record -scenario ../../test/engine/scenarios/reference.yaml -start 2026-01-31T23:36:34Z -o recordings/reference.jsonl.gz

//go:embed recordings/*.jsonl.gz
var recordings embed.FS

const (
	folder = "recordings/"
	suffix = ".jsonl.gz"
	// reference is a start that crashes, then a good one.
	reference = "reference"
)

// Info describes a recording.
type Info struct {
	Name string
	// Summary says in a sentence what happens.
	Summary string
	// Targets are the units it tells of, sorted.
	Targets []string
	// Duration is how long it takes at speed 1.
	Duration time.Duration
}

// names returns the names of the recordings, sorted.
func names() []string {
	entries, err := recordings.ReadDir(strings.TrimSuffix(folder, "/"))
	if err != nil {
		return nil
	}
	var out []string
	for _, e := range entries {
		out = append(out, strings.TrimSuffix(e.Name(), suffix))
	}
	return out
}

// load decodes a recording. Its summary is the comment of the gzip header.
func load(name string) ([]event.Event, Info, error) {
	b, err := recordings.ReadFile(folder + name + suffix)
	if err != nil {
		return nil, Info{}, fmt.Errorf("no recording %q: there are %s", name, strings.Join(names(), ", "))
	}
	z, err := gzip.NewReader(bytes.NewReader(b))
	if err != nil {
		return nil, Info{}, fmt.Errorf("recording %s: %w", name, err)
	}
	info := Info{Name: name, Summary: z.Comment}
	events, err := decode(z)
	if err != nil {
		return nil, Info{}, fmt.Errorf("recording %s: %w", name, err)
	}
	info.Targets = targets(events)
	info.Duration = events[len(events)-1].At.Sub(events[0].At)
	return events, info, nil
}

func decode(r io.Reader) ([]event.Event, error) {
	d := event.NewDecoder(r)
	var events []event.Event
	for {
		e, err := d.Decode()
		if errors.Is(err, io.EOF) {
			if len(events) == 0 {
				return nil, errors.New("it is empty")
			}
			return events, nil
		}
		if err != nil {
			return nil, err
		}
		events = append(events, e)
	}
}
