// Command record writes a scenario down as a recording: the events that
// startupd's sources would make of it, as JSON lines (pkg/event), gzipped, with
// the scenario's summary as the gzip header's comment. internal/demo embeds
// what it writes.
//
//	go run ./test/engine/record -scenario test/engine/scenarios/reference.yaml \
//	    -start 2026-01-31T23:36:34Z -o internal/demo/recordings/reference.jsonl.gz
//
// The same arguments give the same bytes.
package main

import (
	"bytes"
	"compress/gzip"
	"flag"
	"fmt"
	"os"
	"time"

	"github.com/startupd/startupd/pkg/event"
	"github.com/startupd/startupd/test/engine/scenario"
)

func main() {
	path := flag.String("scenario", "", "scenario file")
	start := flag.String("start", "", "RFC 3339 time at which the first start begins")
	out := flag.String("o", "", "recording to write (.jsonl.gz)")
	flag.Parse()
	if err := run(*path, *start, *out); err != nil {
		fmt.Fprintln(os.Stderr, "record:", err)
		os.Exit(1)
	}
}

func run(path, start, out string) error {
	f, err := scenario.Load(path)
	if err != nil {
		return err
	}
	began, err := time.Parse(time.RFC3339, start)
	if err != nil {
		return fmt.Errorf("-start: %w", err)
	}
	b, err := recording(f, began)
	if err != nil {
		return err
	}
	return os.WriteFile(out, b, 0o644)
}

// recording is the scenario as the bytes of a recording.
func recording(f *scenario.File, began time.Time) ([]byte, error) {
	events, err := record(f, began)
	if err != nil {
		return nil, err
	}
	var b bytes.Buffer
	z, err := gzip.NewWriterLevel(&b, gzip.BestCompression)
	if err != nil {
		return nil, err
	}
	z.Comment = f.Summary
	enc := event.NewEncoder(z)
	for _, e := range events {
		if err := enc.Encode(e); err != nil {
			return nil, err
		}
	}
	if err := z.Close(); err != nil {
		return nil, err
	}
	return b.Bytes(), nil
}
