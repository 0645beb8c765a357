//go:build e2e

package e2e

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/startupd/startupd/test/nspawn"
)

// testCrash is the first start of the reference run: it pages with its cause. What
// another pack says of the engine's port is held back while the next one goes on.
func (s *alerting) testCrash(t *testing.T) {
	s.untilAlert(t, "active", "LLMStartupInProgress", kimi)
	s.scrapeEngine(t, kimi, 8000)
	s.daemon.halfway(t, kimi, 0.1)
	s.look(t, "loading", kimi)
	n, a := s.inbox.await(t, 30*time.Second, saying("page", "firing", labels("LLMStartupFailed", kimi)))
	s.checkCard(t, n, a, "package_mismatch", "flashinfer-cubin version (0.6.3)", "flashinfer version (0.6.4)")
	if got := a.Annotations["exception"]; got != "RuntimeError" {
		t.Errorf("exception %q", got)
	}
	by := s.untilAlert(t, "suppressed", vllmDown, kimi)
	if !slices.ContainsFunc(by, func(name string) bool { return strings.HasPrefix(name, "LLMStartup") }) {
		t.Errorf("%s is held back by %v", vllmDown, by)
	}
}

// testLoop is five starts that fail in a row: they page once, as a loop. The engine
// is mended then.
func (s *alerting) testLoop(t *testing.T) {
	n, a := s.inbox.await(t, 30*time.Second, saying("page", "firing", labels("LLMStartupRestartLoop", loopingUnit)))
	s.checkCard(t, n, a, "gpu_memory_occupied", "Free memory on device")
	s.daemon.until(t, 10*time.Second, func(m metrics) error {
		return check(m, metrics{key("startupd_startups_total", "unit", loopingUnit, "outcome", "failed"): 5})
	})
	if by := s.untilAlert(t, "suppressed", "LLMStartupFailed", loopingUnit); !slices.Contains(by, "LLMStartupRestartLoop") {
		t.Errorf("the single failure is held back by %v", by)
	}
	engineUnit{name: loopingUnit, scenario: "eager", speed: 1, port: 8601, restartSec: "1"}.add(s.top, s.Container)
	s.Run(t, "systemctl", "reset-failed", loopingUnit)
	s.Run(t, "systemctl", "start", "--no-block", loopingUnit)
}

// testFull is a failure that nobody mends before testRestarted.
func (s *alerting) testFull(t *testing.T) {
	n, a := s.inbox.await(t, 30*time.Second, saying("page", "firing", labels("LLMStartupFailed", fullUnit)))
	s.checkCard(t, n, a, "gpu_oom_weights", "CUDA out of memory")
}

// testPlanned restarts an engine that serves.
func (s *alerting) testPlanned(t *testing.T) {
	s.daemon.reaches(t, 30*time.Second, plannedUnit, "serving")
	s.scrapeEngine(t, plannedUnit, 8603)
	s.untilAnswer(t, 10*time.Second, fmt.Sprintf(`up{job="vllm",unit=%q} == 1`, plannedUnit))
	s.Run(t, "systemctl", "restart", "--no-block", plannedUnit)
	// Now that a good start is known, the next one's end can be told.
	s.daemon.until(t, 20*time.Second, func(m metrics) error {
		if _, ok := m.get("startupd_expected_serving_timestamp_seconds", "unit", plannedUnit); !ok {
			return fmt.Errorf("when it serves is not told:\n%s", m.dump(plannedUnit))
		}
		return nil
	})
	s.look(t, "restarting", plannedUnit)
	if by := s.untilAlert(t, "suppressed", vllmDown, plannedUnit); !slices.Contains(by, "LLMStartupInProgress") {
		t.Errorf("%s is held back by %v", vllmDown, by)
	}
}

// testGood is the second start of the reference run, with all its harmless errors:
// it resolves what the first one has set off.
func (s *alerting) testGood(t *testing.T) {
	s.daemon.reaches(t, 60*time.Second, kimi, "serving")
	_, a := s.inbox.await(t, 20*time.Second, saying("page", "resolved", labels("LLMStartupFailed", kimi)))
	s.inbox.awaitText(t, "RESOLVED", "LLMStartupFailed", kimi)
	s.resolvedAfterServing(t, kimi, a)
	s.daemon.until(t, 10*time.Second, func(m metrics) error {
		if n, _ := m.sum("startupd_startup_errors", "unit", kimi, "verdict", "benign"); n < 10 {
			return fmt.Errorf("%v benign errors in the good start, want 10 or more", n)
		}
		return counted(m, 1, 1, 0)
	})
	s.look(t, "serving", kimi)
}

// testRest sees the mended engine serve, and the planned restart.
func (s *alerting) testRest(t *testing.T) {
	s.inbox.await(t, 30*time.Second, saying("page", "resolved", labels("LLMStartupRestartLoop", loopingUnit)))
	s.daemon.until(t, 30*time.Second, func(m metrics) error {
		return check(m, metrics{
			key("startupd_serving_ended_total", "unit", plannedUnit, "reason", "stopped"):   1,
			key("startupd_startups_total", "unit", plannedUnit, "outcome", "serving"):       2,
			key("startupd_startups_total", "unit", plannedUnit, "outcome", "failed"):        0,
			key("startupd_last_startup_outcome", "unit", plannedUnit, "outcome", "serving"): 1,
			key("startupd_phase", "unit", plannedUnit, "phase", "serving"):                  1,
			key("startupd_startups_total", "unit", loopingUnit, "outcome", "failed"):        5,
			key("startupd_startups_total", "unit", loopingUnit, "outcome", "serving"):       1,
		})
	})
}

// testKilled kills startupd, which systemd does not start again, while a unit's
// alert is active.
func (s *alerting) testKilled(t *testing.T) {
	since := s.since(t, "LLMStartupFailed", fullUnit)
	s.Write(t, "/etc/systemd/system/startupd.service.d/killed.conf", "[Service]\nRestart=no\n")
	s.Run(t, "systemctl", "daemon-reload")
	s.daemon.kill(t, "KILL", s.daemon.pid(t))
	s.inbox.await(t, 40*time.Second, saying("page", "firing", labels("StartupdDown", "")))
	s.Run(t, "rm", "/etc/systemd/system/startupd.service.d/killed.conf")
	s.Run(t, "systemctl", "daemon-reload")
	s.Run(t, "systemctl", "reset-failed", service)
	s.Run(t, "systemctl", "start", service)
	s.inbox.await(t, 20*time.Second, saying("page", "resolved", labels("StartupdDown", "")))
	if now := s.since(t, "LLMStartupFailed", fullUnit); !now.Equal(since) {
		t.Errorf("the unit's alert began at %s, and now at %s", since, now)
	}
}

// testBlind takes the right to read the journal away.
func (s *alerting) testBlind(t *testing.T) {
	since := s.since(t, "LLMStartupFailed", fullUnit)
	s.Write(t, "/etc/systemd/system/startupd.service.d/right.conf", "[Service]\nSupplementaryGroups=\n")
	s.Run(t, "systemctl", "daemon-reload")
	s.Run(t, "systemctl", "restart", service)
	_, a := s.inbox.await(t, 60*time.Second, saying("chat", "firing", labels("StartupdBlind", "")))
	if a.Labels["reason"] != "journal" || !strings.Contains(a.Annotations["description"], "can't read") {
		t.Errorf("reason %q, description %q", a.Labels["reason"], a.Annotations["description"])
	}
	s.Run(t, "rm", "/etc/systemd/system/startupd.service.d/right.conf")
	s.Run(t, "systemctl", "daemon-reload")
	s.Run(t, "systemctl", "restart", service)
	s.inbox.await(t, 20*time.Second, saying("chat", "resolved", labels("StartupdBlind", "")))
	if now := s.since(t, "LLMStartupFailed", fullUnit); !now.Equal(since) {
		t.Errorf("the unit's alert began at %s, and now at %s", since, now)
	}
}

// testRestarted restarts startupd in the middle of the good start of a unit whose
// failure is still known.
func (s *alerting) testRestarted(t *testing.T) {
	since := s.since(t, "LLMStartupFailed", fullUnit)
	engineUnit{name: fullUnit, scenario: "steady", speed: 1, port: 8602, restartSec: "1"}.add(s.top, s.Container)
	s.Run(t, "systemctl", "start", "--no-block", fullUnit)
	s.daemon.halfway(t, fullUnit, 0.3)
	s.Run(t, "systemctl", "restart", service)
	s.daemon.until(t, 20*time.Second, sources)
	if now := s.since(t, "LLMStartupFailed", fullUnit); !now.Equal(since) {
		t.Errorf("the unit's alert began at %s, and now at %s", since, now)
	}
	s.daemon.reaches(t, 30*time.Second, fullUnit, "serving")
	_, a := s.inbox.await(t, 20*time.Second, saying("page", "resolved", labels("LLMStartupFailed", fullUnit)))
	s.resolvedAfterServing(t, fullUnit, a)
}

// resolvedAfterServing wants an alert's end after its unit's good start.
func (s *alerting) resolvedAfterServing(t *testing.T, unit string, a *notified) {
	t.Helper()
	at, ok := s.daemon.metrics(t).get("startupd_phase_entered_timestamp_seconds", "unit", unit, "phase", "serving")
	if served := time.UnixMilli(int64(at * 1000)); !ok || a.EndsAt.Before(served) {
		t.Errorf("resolved at %s, before it served at %s (known: %v)", a.EndsAt, served, ok)
	}
}

// testStopped stops an engine: nothing is in progress, so that the other pack is
// right to page. Nothing happens after it but the marker.
func (s *alerting) testStopped(t *testing.T) {
	s.Run(t, "systemctl", "stop", kimi)
	s.inbox.marked.Store(true)
	s.inbox.await(t, 30*time.Second, saying("page", "firing", labels(vllmDown, kimi)))
	s.look(t, "stopped", kimi)
}

// testNobodyElse lists all that anybody was told once a marker has gone the whole
// way after it.
func (s *alerting) testNobodyElse(t *testing.T) {
	s.inbox.await(t, s.config.slowest*2+20*time.Second, saying("page", "firing", map[string]string{"alertname": marker}))
	demo := map[string]string{"alertname": "LLMStartupFailed", "unit": kimi, "host": hostB}
	want := []string{
		saying("page", "firing", labels("LLMStartupFailed", kimi)), saying("page", "resolved", labels("LLMStartupFailed", kimi)),
		saying("page", "firing", labels("LLMStartupRestartLoop", loopingUnit)), saying("page", "resolved", labels("LLMStartupRestartLoop", loopingUnit)),
		// In the same message: it had been held back.
		saying("page", "resolved", labels("LLMStartupFailed", loopingUnit)),
		saying("page", "firing", labels("LLMStartupFailed", fullUnit)), saying("page", "resolved", labels("LLMStartupFailed", fullUnit)),
		saying("page", "firing", labels("StartupdDown", "")), saying("page", "resolved", labels("StartupdDown", "")),
		saying("chat", "firing", labels("StartupdBlind", "")), saying("chat", "resolved", labels("StartupdBlind", "")),
		saying("page", "firing", demo), saying("page", "resolved", demo),
		saying("page", "firing", labels(vllmDown, kimi)),
		saying("page", "firing", map[string]string{"alertname": marker}),
	}
	slices.Sort(want)
	if diff := cmp.Diff(want, s.inbox.lines()); diff != "" {
		t.Errorf("told (+), not as wanted (-):\n%s", diff)
	}
	t.Logf("told was:\n%s", s.inbox.story())
}

// labels are those of an alert of the container's host by which it is known here.
func labels(alert, unit string) map[string]string {
	m := map[string]string{"alertname": alert, "host": hostA}
	if unit != "" {
		m["unit"] = unit
	}
	return m
}

// untilAlert waits until Alertmanager holds an alert in a state, and returns the
// names of those that hold it back.
func (s *alerting) untilAlert(t *testing.T, state, alert, unit string) (by []string) {
	t.Helper()
	nspawn.Eventually(t, 20*time.Second, func() error {
		all, err := s.alerts()
		if err != nil {
			return err
		}
		names := map[string]string{}
		for _, a := range all {
			names[a.Fingerprint] = a.Labels["alertname"]
		}
		for _, a := range all {
			if saying("", "", a.Labels) != saying("", "", labels(alert, unit)) || a.Status.State != state {
				continue
			}
			for _, f := range a.Status.InhibitedBy {
				by = append(by, names[f])
			}
			return nil
		}
		return fmt.Errorf("%s of %s is not %s; there are %+v", alert, unit, state, all)
	})
	return by
}

// since is when an active alert began.
func (s *alerting) since(t *testing.T, alert, unit string) time.Time {
	t.Helper()
	all, err := s.alerts("alertname", alert, "unit", unit, "host", hostA)
	if err != nil || len(all) != 1 || all[0].Status.State != "active" {
		t.Fatalf("%s of %s is not active: %+v, %v", alert, unit, all, err)
	}
	return all[0].StartsAt
}

// checkCard looks for the root cause in the data of a notification and in the text
// that people read.
func (s *alerting) checkCard(t *testing.T, n *notification, a *notified, class string, words ...string) {
	t.Helper()
	if len(n.Alerts) != 1 {
		t.Errorf("%d alerts in one message", len(n.Alerts))
	}
	if got := a.Annotations["class"]; got != class {
		t.Errorf("class %q, want %q", got, class)
	}
	for _, name := range []string{"summary", "description", "exception", "process"} {
		if a.Annotations[name] == "" {
			t.Errorf("no %s", name)
		}
	}
	const docs = "https://github.com/startupd/startupd/blob/main/docs/"
	for name, want := range map[string]string{
		"runbook_url": docs + "runbooks/" + a.Labels["alertname"] + ".md", "remediation": docs + "failures.md#" + class,
	} {
		if got := a.Annotations[name]; got != want {
			t.Errorf("%s %q, want %q", name, got, want)
		}
	}
	for _, w := range words {
		if !strings.Contains(a.Annotations["message"], w) {
			t.Errorf("message lacks %q: %q", w, a.Annotations["message"])
		}
	}
	for name := range a.Labels {
		if !slices.Contains([]string{"alertname", "severity", "job", "instance", "host", "unit"}, name) {
			t.Errorf("label %s may change while the alert goes on", name)
		}
	}
	s.inbox.awaitText(t, append(words, class, a.Labels["unit"], a.Labels["host"], a.Labels["alertname"], a.Annotations["runbook_url"], a.Annotations["remediation"])...)
}
