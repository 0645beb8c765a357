package app

import (
	"fmt"
	"os"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/startupd/startupd/pkg/event"
)

// SystemClock returns a clock on both of this machine's clocks. An error means
// that the boot ID can't be read.
func SystemClock() (event.Clock, error) {
	const file = "/proc/sys/kernel/random/boot_id"
	b, err := os.ReadFile(file)
	if err != nil {
		return nil, fmt.Errorf("boot ID: %w; is /proc mounted?", err)
	}
	boot := strings.ReplaceAll(strings.TrimSpace(string(b)), "-", "")
	if len(boot) != 32 {
		return nil, fmt.Errorf("boot ID: %s holds %q, not a UUID", file, boot)
	}
	return func() event.Stamp {
		var ts unix.Timespec
		s := event.Stamp{Real: time.Now()}
		// CLOCK_MONOTONIC, not BOOTTIME: journald stamps its entries with it.
		if unix.ClockGettime(unix.CLOCK_MONOTONIC, &ts) == nil {
			s.Boot, s.Mono = boot, time.Duration(ts.Nano())
		}
		return s
	}, nil
}
