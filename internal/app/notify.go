package app

import (
	"context"
	"fmt"
	"strings"
	"time"

	"go.uber.org/zap"

	"github.com/startupd/startupd/pkg/phases"
)

// notifier speaks sd_notify(3). With a nil send it does nothing.
type notifier struct {
	send func(state string) error
	log  *zap.Logger
	// status is the last STATUS= sent.
	status string
}

func (n *notifier) say(state string) {
	if n.send == nil {
		return
	}
	if err := n.send(state); err != nil {
		n.log.Warn("The service manager was not reached; is NOTIFY_SOCKET a socket of its own?", zap.Error(err))
	}
}

// show sends what systemctl status prints, when that has changed.
func (n *notifier) show(text string) {
	if text == n.status {
		return
	}
	n.status = text
	n.say("STATUS=" + text)
}

// statusText is the present phases in one line.
func statusText(snap *phases.Snapshot) string {
	if len(snap.Targets) == 0 {
		return "No unit seen yet"
	}
	var parts []string
	for _, t := range snap.Targets {
		text := t.Name + ": " + string(t.State)
		if s := t.Startup; s != nil && t.State.Starting() {
			if s.Step != "" {
				text += "/" + s.Step
			}
			if s.Stalled {
				text += " (stalled)"
			}
		}
		parts = append(parts, text)
	}
	return strings.Join(parts, "; ")
}

// watchdog reports life at half the interval that the service manager asks
// for, and only while turn comes back: a loop that hangs lets the watchdog run
// out.
func watchdog(ctx context.Context, interval time.Duration, turn func(context.Context) error, n *notifier) error {
	tick := time.NewTicker(interval / 2)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
			if err := turn(ctx); err != nil {
				return fmt.Errorf("main loop: %w", err)
			}
			n.say("WATCHDOG=1")
		}
	}
}
