//go:build e2e

package e2e

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/api"
	v1 "github.com/prometheus/client_golang/api/prometheus/v1"
	"github.com/prometheus/common/model"

	"github.com/startupd/startupd/test/nspawn"
)

const (
	loopingUnit = "vllm-loop.service"
	fullUnit    = "vllm-full.service"
	plannedUnit = "vllm-planned.service"
	hostA       = "127.0.0.1"
	hostB       = "127.0.0.2"
	demoAddress = hostB + ":10944"
)

// TestAlerts goes the whole way from an engine's log to whoever is paged: the
// daemon in a container, Debian's Prometheus and Alertmanager with the rules,
// routes and templates of deploy/, and a receiver that keeps what it is told. The
// demo is a second host beside it.
//
// That nobody is paged is judged once, at the end: whatever anybody was told in
// the whole run must be on the list, as often as it stands there.
func TestAlerts(t *testing.T) {
	if os.Getuid() != 0 {
		t.Fatal("these tests boot a container: run them as root")
	}
	t.Parallel()
	root, share := stage(t)
	s := &alerting{Container: nspawn.Boot(t, root, share), top: t, dir: t.TempDir(), inbox: &inbox{}}
	s.Run(t, "systemd-sysusers", "/usr/lib/sysusers.d/startupd.conf")
	s.addUnits(t)
	s.daemon = install(t, s.Container, "--unit="+kimi, "--unit="+loopingUnit, "--unit="+fullUnit, "--unit="+plannedUnit)
	s.startChain(t, filepath.Join(root, "usr/bin/startupd"))
	s.daemon.until(t, 20*time.Second, sources)

	// All at once: what follows waits for what happens meanwhile.
	s.Run(t, "systemctl", "start", "--no-block", plannedUnit, kimi, loopingUnit, fullUnit)
	t.Run("a crash", s.testCrash)
	t.Run("a restart loop", s.testLoop)
	t.Run("another failure", s.testFull)
	t.Run("a planned restart", s.testPlanned)
	t.Run("a good start", s.testGood)
	t.Run("mended and restarted", s.testRest)
	t.Run("startupd killed", s.testKilled)
	t.Run("startupd blind", s.testBlind)
	t.Run("startupd restarted", s.testRestarted)
	t.Run("stopped", s.testStopped)
	t.Run("dashboards", s.testDashboards)
	t.Run("nobody else", s.testNobodyElse)
}

// alerting is the chain and what it watches.
type alerting struct {
	*nspawn.Container
	// top is the whole test: what must outlive a scene ends with it.
	top    *testing.T
	daemon *daemon
	inbox  *inbox
	net    network
	http   *http.Client
	// prometheus answers queries.
	prometheus v1.API
	config     *chainConfig
	at         addresses
	// dir has the configuration, and the targets that Prometheus reads again.
	dir string
	// engines are job vllm's targets.
	engines []any
	moments []moment
}

// addUnits writes the units: each fails or serves in its own way.
func (s *alerting) addUnits(t *testing.T) {
	for _, u := range []engineUnit{
		{name: kimi, scenario: "reference", speed: 60, port: 8000, restartSec: "1"},
		{name: loopingUnit, scenario: "gpu-occupied", speed: 10, port: 8601, restartSec: "100ms", dropIn: "[Unit]\nStartLimitIntervalSec=1h\nStartLimitBurst=5\n[Service]\nRestart=always\n"},
		{name: fullUnit, scenario: "gpu-oom", speed: 4, port: 8602, restartSec: "1", dropIn: once},
		{name: plannedUnit, scenario: "eager", speed: 0.5, port: 8603, restartSec: "1"},
	} {
		u.add(t, s.Container)
	}
}

// startChain starts Prometheus, Alertmanager, the receiver and the demo in the
// container's network, and returns once they know each other.
func (s *alerting) startChain(t *testing.T, startupd string) {
	s.net = network{s.Init}
	s.http = s.net.client()
	s.at = addresses{prometheus: hostA + ":9490", notifier: hostA + ":9493", inbox: hostA + ":9499", daemons: []string{address, demoAddress}}
	srv := &http.Server{Handler: s.inbox, ReadHeaderTimeout: 5 * time.Second}
	l := s.net.listen(t, s.at.inbox)
	go func() { _ = srv.Serve(l) }()
	t.Cleanup(func() { _ = srv.Close() })
	t.Cleanup(func() {
		if t.Failed() {
			s.inbox.report(t)
		}
	})
	s.config = configure(t, s.dir, s.at)
	s.write(t, "vllm.json", []any{})
	s.write(t, "e2e.json", []any{target(s.at.inbox)})
	// A target that is not there yet is down.
	s.net.start(t, startupd, "demo", "--speed=25", "--web.listen-address="+demoAddress, "--api.socket="+filepath.Join(s.dir, "demo.sock"))
	s.until(t, 20*time.Second, "http://"+demoAddress+"/-/ready", nil)
	// Alone: it would wait for others of its cluster.
	s.net.start(t, "prometheus-alertmanager", "--config.file="+s.config.notifier, "--storage.path="+filepath.Join(s.dir, "alertmanager"),
		"--web.listen-address="+s.at.notifier, "--cluster.listen-address=", "--log.level=warn")
	s.until(t, 20*time.Second, "http://"+s.at.notifier+"/-/ready", nil)
	s.net.start(t, "prometheus", "--config.file="+s.config.prometheus, "--storage.tsdb.path="+filepath.Join(s.dir, "prometheus"),
		"--web.listen-address="+s.at.prometheus, "--log.level=warn")
	// An alert that finds no Alertmanager is sent again a minute later.
	s.until(t, 20*time.Second, "http://"+s.at.prometheus+"/api/v1/alertmanagers", func(body []byte) error {
		if !strings.Contains(string(body), s.at.notifier) {
			return fmt.Errorf("Prometheus knows no Alertmanager: %s", body)
		}
		return nil
	})
	client, err := api.NewClient(api.Config{Address: "http://" + s.at.prometheus, Client: s.http})
	if err != nil {
		t.Fatal(err)
	}
	s.prometheus = v1.NewAPI(client)
	s.untilAnswer(t, 20*time.Second, `sum(up{job=~"startupd|e2e"}) == 3`)
}

// scrapeEngine adds an engine to the targets of job vllm, as another pack's
// configuration would name it.
func (s *alerting) scrapeEngine(t *testing.T, unit string, port int) {
	t.Helper()
	s.engines = append(s.engines, target(fmt.Sprintf("%s:%d", hostA, port), "unit", unit))
	s.write(t, "vllm.json", s.engines)
}

// target is an entry of a file of targets.
func target(addr string, labels ...string) map[string]any {
	m := map[string]string{}
	for i := 0; i < len(labels); i += 2 {
		m[labels[i]] = labels[i+1]
	}
	return map[string]any{"targets": []string{addr}, "labels": m}
}

// write replaces a file of targets at once: Prometheus reads it whenever it likes.
func (s *alerting) write(t *testing.T, name string, list []any) {
	t.Helper()
	text, err := json.Marshal(list)
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(s.dir, name)
	nspawn.Put(t, path+".new", string(text))
	if err := os.Rename(path+".new", path); err != nil {
		t.Fatal(err)
	}
}

// get asks what listens inside.
func (s *alerting) get(addr string) ([]byte, error) {
	resp, err := s.http.Get(addr)
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err == nil && resp.StatusCode != http.StatusOK {
		err = fmt.Errorf("%s: %s: %s", addr, resp.Status, body)
	}
	return body, err
}

// until asks until check is content; nil is content with any answer.
func (s *alerting) until(t *testing.T, within time.Duration, addr string, check func([]byte) error) {
	t.Helper()
	nspawn.Eventually(t, within, func() error {
		body, err := s.get(addr)
		if err != nil || check == nil {
			return err
		}
		return check(body)
	})
}

// untilAnswer waits until Prometheus has an answer to an expression.
func (s *alerting) untilAnswer(t *testing.T, within time.Duration, expr string) {
	t.Helper()
	nspawn.Eventually(t, within, func() error {
		answer, _, _, err := s.prometheus.Query(t.Context(), expr, time.Now())
		if v, ok := answer.(model.Vector); err == nil && (!ok || len(v) == 0) {
			err = fmt.Errorf("no answer to %s", expr)
		}
		return err
	})
}

// held is an alert as Alertmanager holds it.
type held struct {
	Labels, Annotations map[string]string
	Fingerprint         string
	StartsAt            time.Time
	Status              struct {
		State       string
		InhibitedBy []string
	}
}

// alerts are those of Alertmanager that have these labels: name, value...
func (s *alerting) alerts(labels ...string) ([]held, error) {
	q := url.Values{}
	for i := 0; i < len(labels); i += 2 {
		q.Add("filter", fmt.Sprintf("%s=%q", labels[i], labels[i+1]))
	}
	body, err := s.get("http://" + s.at.notifier + "/api/v2/alerts?" + q.Encode())
	if err != nil {
		return nil, err
	}
	var all []held
	return all, json.Unmarshal(body, &all)
}
