package app

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
	"go.uber.org/zap/zaptest/observer"

	"github.com/startupd/startupd/pkg/event"
	"github.com/startupd/startupd/pkg/exporter"
	"github.com/startupd/startupd/pkg/phases"
)

// TestCrashLoopIsBounded plays a restart loop through the core, each start of
// which dies of another exception of another process: what startupd logs of a
// restart is a few lines, and what it exports does not grow.
func TestCrashLoopIsBounded(t *testing.T) {
	const starts = 2000
	set, err := LoadProfiles("")
	if err != nil {
		t.Fatal(err)
	}
	s := &settings{targets: []Target{{Unit: "a.service"}}, profiles: set}
	host := phases.NewHost(phases.HostOptions{Journal: true}, s.configs(event.Stamp{})...)
	core, seen := observer.New(zapcore.InfoLevel)
	diary := newDiary(zap.New(core))
	reg := prometheus.NewRegistry()
	reg.MustRegister(exporter.New(exporter.Options{
		Snapshot: host.Snapshot, KnowsClass: s.knowsClass, Clock: func() event.Stamp { return host.Snapshot().At },
	}))
	apply := func(e event.Event) {
		host.Apply(e)
		diary.write(host.Snapshot())
	}
	apply(up())
	banner := bannerOf(t, s)
	var after20 int
	for i := range starts {
		began, id := time.Duration(i)*time.Second, fmt.Sprintf("%032d", i)
		apply(started("a.service", id, began))
		for _, text := range []string{
			banner, "Traceback (most recent call last):", fmt.Sprintf(`  File "/opt/app/m%d.py", line 1, in main`, i), "    run()",
			fmt.Sprintf("Evil%d: the reason is %x", i, i),
		} {
			apply(event.Event{At: at(began + 500*time.Millisecond), Target: "a.service", Data: &event.Line{
				Text: text, Invocation: id, Origin: event.OriginUnit, PID: 100 + i,
			}})
		}
		apply(failed("a.service", id, began+900*time.Millisecond))
		if i != 20 && i != starts-1 {
			continue
		}
		causes, all := seriesIn(t, reg)
		if causes != 1 {
			t.Errorf("start %d: %d root causes of one unit", i, causes)
		}
		if i == 20 {
			after20 = all
		}
		if all != after20 {
			t.Errorf("%d series after %d starts, %d after 20", all, i+1, after20)
		}
	}
	counts := map[string]int{}
	for _, e := range seen.All() {
		counts[e.Message]++
	}
	if n := seen.Len(); n > 4*starts {
		t.Errorf("%d lines of log for %d starts: %v", n, starts, counts)
	}
	const cause = "Root cause of the failed start"
	if n := counts[cause]; n != starts-1 { // of the last one, evidence may still come
		t.Errorf("%d root causes logged of %d starts: %v", n, starts, counts)
	}
	if last := seen.FilterMessage(cause).All()[starts-2].ContextMap(); !strings.Contains(fmt.Sprint(last), fmt.Sprintf("Evil%d", starts-2)) {
		t.Errorf("the last but one start's cause is %v", last)
	}
}

// bannerOf is the first line of an engine that has a built-in profile.
func bannerOf(t *testing.T, s *settings) string {
	t.Helper()
	for _, r := range engineOf(t, s.profiles).Rules {
		if r.Banner {
			return r.Example
		}
	}
	t.Fatal("no rule is a banner")
	return ""
}

// seriesIn counts the root causes and all series of a registry.
func seriesIn(t *testing.T, reg *prometheus.Registry) (causes, all int) {
	t.Helper()
	families, err := reg.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range families {
		if f.GetName() == "startupd_root_cause_info" {
			causes = len(f.GetMetric())
		}
		all += len(f.GetMetric())
	}
	return causes, all
}
