//go:build e2e

package scrape

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/startupd/startupd/test/nspawn"
)

// demo builds the program and plays its recording, fast. It returns the address of
// its pages.
func demo(t *testing.T, speed int) (base string) {
	t.Helper()
	program := filepath.Join(t.TempDir(), "startupd")
	build := exec.Command("go", "build", "-o", program, "./cmd/startupd")
	build.Dir = "../.."
	build.Env = append(os.Environ(), "CGO_CFLAGS="+strings.TrimSpace(os.Getenv("CGO_CFLAGS")+" -Wno-deprecated-declarations"))
	if b, err := build.CombinedOutput(); err != nil {
		t.Fatalf("go build: %v\n%s", err, b)
	}
	addr := freeAddress(t)
	start(t, program, "demo", fmt.Sprintf("--speed=%d", speed), "--web.listen-address="+addr, "--api.socket="+filepath.Join(t.TempDir(), "api.sock"))
	base = "http://" + addr
	nspawn.Poll(t, 20*time.Millisecond, 20*time.Second, func() error { _, err := fetch(base + "/-/healthy"); return err })
	return base
}

// start runs a program until the test ends, and shows what it said if that failed.
func start(t *testing.T, program string, args ...string) {
	t.Helper()
	var out nspawn.Output
	cmd := exec.Command(program, args...)
	cmd.Stdout, cmd.Stderr = &out, &out
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := cmd.Process.Signal(os.Interrupt); err != nil {
			t.Errorf("%s: %v", filepath.Base(program), err)
		}
		err := cmd.Wait()
		if t.Failed() || err != nil {
			t.Logf("%s (%v): %s", filepath.Base(program), err, &out)
		}
	})
}

// freeAddress returns a loopback address with a port that nobody has now.
func freeAddress(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	return l.Addr().String()
}

// fetch returns what a page answers with 200.
func fetch(url string) (string, error) {
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
		return "", fmt.Errorf("%s: %s: %.300s", url, resp.Status, body)
	}
	return string(body), nil
}

// read decodes a JSON page.
func read(url string, into any) error {
	body, err := fetch(url)
	if err != nil {
		return err
	}
	return json.Unmarshal([]byte(body), into)
}

// startups returns the invocations of the recording's two starts by their outcome,
// once both are over.
func startups(base string) (map[string]string, error) {
	var page struct {
		Startups []struct{ Unit, Invocation, Outcome string }
	}
	if err := read(base+"/api/v1/startups", &page); err != nil {
		return nil, err
	}
	out := map[string]string{}
	for _, s := range page.Startups {
		out[s.Outcome] = s.Invocation
	}
	if len(out["failed"]) != 32 || len(out["serving"]) != 32 {
		return nil, errors.New("the recording has not ended: " + fmt.Sprint(page))
	}
	return out, nil
}
