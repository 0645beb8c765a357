package gpu

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
)

// ReaderOptions set up the reader process.
type ReaderOptions struct {
	// Library is the path or name of NVIDIA's library; "" is libnvidia-ml.so.1
	// where the dynamic loader finds it.
	Library string
	// ProcRoot is where procfs is mounted; "" is /proc.
	ProcRoot string
}

// sampleCommand asks the reader for one report.
const sampleCommand = "sample"

// errSpent ends a reader whose copy of the driver's library is of no use any
// more, so that its supervisor starts a new one.
var errSpent = errors.New("the NVIDIA library in this process is out of date")

// sampler is the driver: NVML, or nothing in a build without cgo. It may block
// for ever, and a fault in it ends the process.
type sampler interface {
	sample() report
	close()
}

// RunReader is the reader process: for each line "sample" on stdin it writes
// one line of JSON to stdout. It returns nil at the end of stdin, and an error
// for a command that it does not know, when stdout fails, and when only a new
// process can read the driver. The context is looked at between commands.
//
// It belongs into a process of its own: a call of the driver can hang, and
// nothing but the end of the process ends it.
func RunReader(ctx context.Context, o ReaderOptions, stdin io.Reader, stdout io.Writer) error {
	if o.ProcRoot == "" {
		o.ProcRoot = "/proc"
	}
	d := newSampler(o.Library)
	defer d.close()
	enc := json.NewEncoder(stdout)
	enc.SetEscapeHTML(false)
	in := bufio.NewScanner(stdin)
	for in.Scan() {
		if err := ctx.Err(); err != nil {
			return err
		}
		if in.Text() != sampleCommand {
			return fmt.Errorf("GPU reader: unknown command %q on standard input: send %q for each sample", in.Text(), sampleCommand)
		}
		r := d.sample()
		attribute(o.ProcRoot, r.GPUs)
		if err := enc.Encode(r); err != nil {
			return fmt.Errorf("GPU reader: write a report: %w", err)
		}
		if r.spent {
			return errSpent
		}
	}
	if err := in.Err(); err != nil {
		return fmt.Errorf("GPU reader: read a command: %w", err)
	}
	return nil
}
