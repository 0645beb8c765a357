//go:build bench

package bench

import (
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/startupd/startupd/test/nspawn"
)

// BenchmarkScrape measures /metrics of a daemon that watches eight GPUs, while
// a start runs.
func BenchmarkScrape(b *testing.B) {
	addr := freeAddress(b)
	cmd := exec.Command(program(b), "demo", "--speed=20", "--web.listen-address="+addr)
	cmd.Stderr = os.Stderr
	if err := cmd.Start(); err != nil {
		b.Fatal(err)
	}
	defer func() {
		cmd.Process.Signal(os.Interrupt)
		cmd.Wait()
	}()
	url := "http://" + addr + "/metrics"
	const eighth = `startupd_gpu_memory_used_bytes{gpu="7"`
	nspawn.Eventually(b, time.Minute, func() error {
		body, err := scrape(url)
		if err == nil && !strings.Contains(body, eighth) {
			return errors.New("the eighth GPU is not there yet")
		}
		return err
	})
	var took []time.Duration
	for range sized(5000, 200) {
		began := time.Now()
		if _, err := scrape(url); err != nil {
			b.Fatal(err)
		}
		took = append(took, time.Since(began))
	}
	b.ReportMetric(0, "ns/op")
	atMost(b, "p50-ms", ms(quantile(took, 0.5)), 3)
	b.ReportMetric(ms(quantile(took, 0.99)), "p99-ms")
}

func ms(d time.Duration) float64 { return float64(d) / float64(time.Millisecond) }

// freeAddress returns a loopback address with a port that nobody has now.
func freeAddress(b *testing.B) string {
	b.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		b.Fatal(err)
	}
	defer l.Close()
	return l.Addr().String()
}

// scrape returns the body of a page that answers 200.
func scrape(url string) (string, error) {
	resp, err := http.Get(url)
	if err != nil {
		return "", err
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		return "", err
	}
	if resp.StatusCode != http.StatusOK {
		return "", fmt.Errorf("%s: %s", url, resp.Status)
	}
	return string(body), nil
}
