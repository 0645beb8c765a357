package journal

import (
	"os"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/startupd/startupd/pkg/event"
)

// HostClock returns the host's clock. Where the boot ID can't be read only the
// wall clock is known.
func HostClock() event.Clock {
	id, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	boot := ""
	if err == nil {
		boot = strings.ReplaceAll(strings.TrimSpace(string(id)), "-", "")
	}
	return func() event.Stamp {
		s := event.Stamp{Real: time.Now().UTC()}
		var ts unix.Timespec
		if boot != "" && unix.ClockGettime(unix.CLOCK_MONOTONIC, &ts) == nil {
			s.Boot, s.Mono = boot, time.Duration(ts.Nano())
		}
		return s
	}
}
