package health

import (
	"context"
	"time"

	"go.uber.org/zap"

	"github.com/startupd/startupd/pkg/event"
)

// prober asks one target. Only its goroutine touches what is below target.
type prober struct {
	target  Target
	source  *Source
	answers chan<- answer
	wake    chan struct{}
	stop    context.CancelFunc

	last  event.HealthSample
	told  time.Time
	state event.SourceState
}

func (p *prober) run(ctx context.Context) {
	client := newClient(p.target, p.source.opts.Timeout)
	for {
		sample := client.probe(ctx)
		if ctx.Err() != nil {
			return
		}
		if events := p.news(sample); len(events) > 0 {
			select {
			case <-ctx.Done():
				return
			case p.answers <- answer{p, events}:
			}
		}
		if !p.pause(ctx) {
			return
		}
	}
}

// news returns what the consumer does not know yet.
func (p *prober) news(sample event.HealthSample) []event.Event {
	at := p.source.opts.Clock()
	var events []event.Event
	if st := sourceState(sample); st != p.state {
		if !st.Up && p.state.State != st.State {
			p.source.opts.Logger.Warn(st.Reason, zap.String("target", p.target.Name), zap.String("url", sample.URL))
		}
		p.state = st
		events = append(events, event.Event{At: at, Target: p.target.Name, Data: &st})
	}
	if sample != p.last || time.Since(p.told) >= p.source.opts.Repeat {
		p.last, p.told = sample, time.Now()
		events = append(events, event.Event{At: at, Target: p.target.Name, Data: &sample})
	}
	return events
}

// sourceState says whether the probe can see. A closed port is a plain answer.
func sourceState(sample event.HealthSample) event.SourceState {
	st := event.SourceState{Source: event.SourceHealth, Up: true, State: "up"}
	if sample.Status == event.HealthUnknown {
		st.Up, st.State = false, "no_answer"
		st.Reason = "the health probe tells nothing: " + sample.Detail
	}
	return st
}

// pause waits for the interval, which may change meanwhile. It is false when
// ctx is done.
func (p *prober) pause(ctx context.Context) bool {
	began := time.Now()
	for {
		t := time.NewTimer(p.source.interval(p.target.Name) - time.Since(began))
		select {
		case <-ctx.Done():
			t.Stop()
			return false
		case <-t.C:
			return true
		case <-p.wake:
			t.Stop()
		}
	}
}
