package deploy

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/prometheus/common/model"
	"go.yaml.in/yaml/v3"
)

// postedAlert is one as Prometheus posts it.
type postedAlert struct {
	Labels       map[string]string `json:"labels"`
	Annotations  map[string]string `json:"annotations,omitempty"`
	StartsAt     time.Time         `json:"startsAt,omitzero"`
	EndsAt       time.Time         `json:"endsAt,omitzero"`
	GeneratorURL string            `json:"generatorURL,omitempty"`
}

// label returns a copy with more labels: name, value...; an empty value takes one away.
func (a postedAlert) label(pairs ...string) postedAlert {
	labels := map[string]string{}
	for name, value := range a.Labels {
		labels[name] = value
	}
	for i := 0; i < len(pairs); i += 2 {
		labels[pairs[i]] = pairs[i+1]
		if pairs[i+1] == "" {
			delete(labels, pairs[i])
		}
	}
	a.Labels = labels
	return a
}

// over returns the alert as one that has ended.
func (a postedAlert) over() postedAlert {
	a.EndsAt = time.Now()
	return a
}

// notification is what Alertmanager posts to a webhook.
type notification struct {
	Receiver, Status string
	GroupLabels      map[string]string
	Alerts           []struct {
		Status              string
		Labels, Annotations map[string]string
	}
}

// line says who is told what: + fires, - is resolved.
func (n *notification) line() string {
	var all []string
	for _, a := range n.Alerts {
		sign := "+"
		if a.Status == "resolved" {
			sign = "-"
		}
		all = append(all, sign+a.Labels["alertname"])
	}
	slices.Sort(all)
	return n.Receiver + ": " + strings.Join(all, " ")
}

// inbox gets whatever a receiver is sent.
type inbox struct {
	mu  sync.Mutex
	got []*notification
	// came is closed and replaced when something has come.
	came chan struct{}
}

func (b *inbox) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	n := &notification{}
	if err := json.NewDecoder(r.Body).Decode(n); err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.got = append(b.got, n)
	close(b.came)
	b.came = make(chan struct{})
}

// lines are those of the notifications with an alert that has a label.
func (b *inbox) lines(label, value string) ([]string, <-chan struct{}) {
	b.mu.Lock()
	defer b.mu.Unlock()
	var lines []string
	for _, n := range b.got {
		for _, a := range n.Alerts {
			if a.Labels[label] == value {
				lines = append(lines, n.line())
				break
			}
		}
	}
	return lines, b.came
}

// await waits for that many of them.
func (b *inbox) await(t *testing.T, label, value string, count int) []string {
	t.Helper()
	timeout := time.After(20 * time.Second)
	for {
		lines, came := b.lines(label, value)
		if len(lines) >= count {
			return lines
		}
		select {
		case <-came:
		case <-timeout:
			t.Fatalf("%s=%s: %d messages are wanted, %d have come: %q", label, value, count, len(lines), lines)
		}
	}
}

// notifier is a running Alertmanager.
type notifier struct {
	url, config string
	inbox       *inbox
}

// hasten divides every duration of a configuration: what takes minutes takes
// seconds. The order of the durations stays.
func hasten(t *testing.T, doc map[string]any, by int) {
	t.Helper()
	for key, value := range doc {
		switch key {
		case "group_wait", "group_interval", "repeat_interval", "resolve_timeout":
			d, err := model.ParseDuration(fmt.Sprint(value))
			if err != nil {
				t.Fatal(err)
			}
			doc[key] = (d / model.Duration(by)).String()
		case "global", "route":
			hasten(t, value.(map[string]any), by)
		case "routes":
			for _, r := range mappings(value) {
				hasten(t, r, by)
			}
		}
	}
}

// write puts a configuration into place.
func (n *notifier) write(t *testing.T, doc map[string]any) {
	t.Helper()
	text, err := yaml.Marshal(doc)
	if err == nil {
		err = os.WriteFile(n.config, text, 0o600)
	}
	if err != nil {
		t.Fatal(err)
	}
}

// notify runs Alertmanager with the delivered configuration, hastened. Its
// receivers' webhooks lead to the inbox.
func notify(t *testing.T, by int) *notifier {
	t.Helper()
	doc := notifierSettings(t)
	hasten(t, doc, by)
	n := &notifier{inbox: &inbox{came: make(chan struct{})}}
	srv := httptest.NewServer(n.inbox)
	t.Cleanup(srv.Close)
	for _, r := range mappings(doc["receivers"]) {
		for _, hook := range mappings(r["webhook_configs"]) {
			hook["url"] = srv.URL
		}
	}
	n.run(t, doc)
	return n
}

// run starts the process and waits until it is ready.
func (n *notifier) run(t *testing.T, doc map[string]any) {
	t.Helper()
	dir := t.TempDir()
	n.config = filepath.Join(dir, "alertmanager.yml")
	n.write(t, doc)
	addr := freeAddress(t)
	n.url = "http://" + addr
	var log bytes.Buffer
	ctx, cancel := context.WithCancel(context.Background())
	cmd := exec.CommandContext(ctx, notifierProgram(t, "prometheus-alertmanager", "alertmanager"), "--config.file="+n.config,
		"--storage.path="+filepath.Join(dir, "data"), "--web.listen-address="+addr, "--cluster.listen-address=", "--log.level=warn")
	cmd.Stdout, cmd.Stderr = &log, &log
	cmd.Cancel = func() error { return cmd.Process.Signal(syscall.SIGTERM) }
	cmd.WaitDelay = 10 * time.Second
	if err := cmd.Start(); err != nil {
		cancel()
		t.Fatal(err)
	}
	t.Cleanup(func() {
		cancel()
		_ = cmd.Wait()
		if t.Failed() {
			t.Logf("Alertmanager said:\n%s", log.String())
		}
	})
	eventually(t, func() error {
		_, err := n.call(t, http.MethodGet, "/-/ready", nil)
		return err
	})
}

func freeAddress(t *testing.T) string {
	t.Helper()
	l, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	return l.Addr().String()
}

// eventually tries until there is no error.
func eventually(t *testing.T, try func() error) {
	t.Helper()
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	timeout := time.After(20 * time.Second)
	for {
		err := try()
		if err == nil {
			return
		}
		select {
		case <-tick.C:
		case <-timeout:
			t.Fatal(err)
		}
	}
}

func (n *notifier) call(t *testing.T, method, path string, body any) ([]byte, error) {
	t.Helper()
	text, err := json.Marshal(body)
	if err != nil {
		t.Fatal(err)
	}
	req, err := http.NewRequestWithContext(t.Context(), method, n.url+path, bytes.NewReader(text))
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Content-Type", "application/json")
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	got, err := io.ReadAll(resp.Body)
	if err == nil && resp.StatusCode != http.StatusOK {
		err = fmt.Errorf("%s %s: %s: %s", method, path, resp.Status, got)
	}
	return got, err
}

// post sends alerts, each in a request of its own as Prometheus' rules do. One
// without an end fires for an hour.
func (n *notifier) post(t *testing.T, alerts ...postedAlert) {
	t.Helper()
	for _, a := range alerts {
		n.postAll(t, []postedAlert{a})
	}
}

func (n *notifier) postAll(t *testing.T, alerts []postedAlert) {
	t.Helper()
	for i := range alerts {
		if alerts[i].EndsAt.IsZero() {
			alerts[i].StartsAt = time.Now()
			alerts[i].EndsAt = time.Now().Add(time.Hour)
		}
	}
	if _, err := n.call(t, http.MethodPost, "/api/v2/alerts", alerts); err != nil {
		t.Fatal(err)
	}
}
