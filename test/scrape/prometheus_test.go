//go:build e2e

package scrape

import (
	"errors"
	"fmt"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os/exec"
	"path/filepath"
	"strconv"
	"sync"
	"testing"
	"time"

	"net/http"

	"github.com/startupd/startupd/test/nspawn"
)

// prometheus is a running Prometheus that scrapes a target through a proxy of the
// test.
type prometheus struct {
	base string
	mu   sync.Mutex
	// formats counts the content types that the target has answered with.
	formats map[string]int
}

const scrapeEvery = "200ms"

// scraper starts Prometheus with feature flags, on loopback and with data of its
// own.
func scraper(t *testing.T, target, features string) *prometheus {
	t.Helper()
	program, err := exec.LookPath("prometheus")
	if err != nil {
		t.Fatal("no prometheus: run scripts/install-test-deps")
	}
	addr, dir := freeAddress(t), t.TempDir()
	p := &prometheus{base: "http://" + addr, formats: map[string]int{}}
	config := filepath.Join(dir, "prometheus.yml")
	nspawn.Put(t, config, fmt.Sprintf("scrape_configs:\n- job_name: startupd\n  scrape_interval: %s\n  scrape_timeout: %s\n  static_configs: [{targets: [%q]}]\n",
		scrapeEvery, scrapeEvery, p.proxy(t, target)))
	start(t, program, "--config.file="+config, "--storage.tsdb.path="+filepath.Join(dir, "data"), "--web.listen-address="+addr,
		"--enable-feature="+features, "--log.level=warn")
	nspawn.Eventually(t, 30*time.Second, func() error { _, err := fetch(p.base + "/-/ready"); return err })
	return p
}

// proxy hands on requests and notes the format of the answers.
func (p *prometheus) proxy(t *testing.T, target string) (hostport string) {
	t.Helper()
	to, err := url.Parse(target)
	if err != nil {
		t.Fatal(err)
	}
	proxy := httputil.NewSingleHostReverseProxy(to)
	proxy.ModifyResponse = func(r *http.Response) error {
		p.mu.Lock()
		defer p.mu.Unlock()
		p.formats[r.Header.Get("Content-Type")]++
		return nil
	}
	server := httptest.NewServer(proxy)
	t.Cleanup(server.Close)
	return server.Listener.Addr().String()
}

// wantFormat fails unless every scrape was answered in one format.
func (p *prometheus) wantFormat(t *testing.T, want string) {
	t.Helper()
	p.mu.Lock()
	defer p.mu.Unlock()
	if len(p.formats) != 1 || p.formats[want] == 0 {
		t.Errorf("scraped as %v, want %s", p.formats, want)
	}
}

// query returns the values of an instant query by a label of their series.
func (p *prometheus) query(expr, by string) (map[string]float64, error) {
	var answer struct {
		Data struct {
			Result []struct {
				Metric map[string]string
				Value  [2]any
			}
		}
	}
	if err := read(p.base+"/api/v1/query?query="+url.QueryEscape(expr), &answer); err != nil {
		return nil, err
	}
	out := map[string]float64{}
	for _, r := range answer.Data.Result {
		text, _ := r.Value[1].(string)
		v, err := strconv.ParseFloat(text, 64)
		if err != nil {
			return nil, fmt.Errorf("%s: %v: %w", expr, r, err)
		}
		out[r.Metric[by]] = v
	}
	return out, nil
}

// exemplar is one that Prometheus has stored.
type exemplar struct {
	series     map[string]string
	invocation string
	value      float64
	at         time.Time
}

// exemplars returns those of a selector's series.
func (p *prometheus) exemplars(selector string) ([]exemplar, error) {
	var answer struct {
		Data []struct {
			SeriesLabels map[string]string
			Exemplars    []struct {
				Labels    map[string]string
				Value     string
				Timestamp float64
			}
		}
	}
	now := time.Now()
	err := read(fmt.Sprintf("%s/api/v1/query_exemplars?query=%s&start=%d&end=%d", p.base, url.QueryEscape(selector), now.Add(-time.Hour).Unix(), now.Add(time.Minute).Unix()), &answer)
	if err != nil {
		return nil, err
	}
	var out []exemplar
	for _, s := range answer.Data {
		for _, e := range s.Exemplars {
			v, err := strconv.ParseFloat(e.Value, 64)
			if err != nil {
				return nil, err
			}
			if len(e.Labels) != 1 {
				return nil, fmt.Errorf("%v: labels %v", s.SeriesLabels, e.Labels)
			}
			out = append(out, exemplar{s.SeriesLabels, e.Labels["invocation"], v, time.UnixMilli(int64(e.Timestamp * 1000))})
		}
	}
	if len(out) == 0 {
		return nil, errors.New("no exemplar of " + selector)
	}
	return out, nil
}

// metadata is what Prometheus keeps of a family.
type metadata struct{ Type, Help, Unit string }

func (p *prometheus) metadata() (map[string]metadata, error) {
	var answer struct{ Data map[string][]metadata }
	if err := read(p.base+"/api/v1/metadata", &answer); err != nil {
		return nil, err
	}
	out := map[string]metadata{}
	for name, all := range answer.Data {
		if len(all) != 1 {
			return nil, fmt.Errorf("%s has %d descriptions: %v", name, len(all), all)
		}
		out[name] = all[0]
	}
	return out, nil
}
