package app

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"os"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/startupd/startupd/pkg/history"
	webapi "github.com/startupd/startupd/pkg/web/api"
)

// stream opens a stream of events after last; "" is from now.
func stream(t *testing.T, d *daemon, last string) *bufio.Scanner {
	t.Helper()
	resp := answer(t, http.DefaultClient, d.base+"/api/v1/events?last_event_id="+last, "")
	if resp.StatusCode != http.StatusOK {
		t.Fatal(resp.Status)
	}
	return bufio.NewScanner(resp.Body)
}

// TestEventsOverARestart follows a unit through a failed start, and goes on with
// the next daemon.
func TestEventsOverARestart(t *testing.T) {
	dir := t.TempDir()
	keep := func(o *Options) { o.StateDir, o.History = dir, history.Limits{MaxStartups: 10} }
	first := begin(t, keep)
	in := stream(t, first, "")
	waitFor(t, in, "event: snapshot")
	first.script.play(t, up(), started("a.service", "01", 0), failed("a.service", "01", time.Second), started("a.service", "02", 2*time.Second))
	var id string
	var changes []string
	for len(changes) < 3 && in.Scan() {
		if text, ok := strings.CutPrefix(in.Text(), "id: "); ok {
			id = text
		}
		var tr webapi.Transition
		if data, ok := strings.CutPrefix(in.Text(), "data: "); ok && json.Unmarshal([]byte(data), &tr) == nil && tr.To != "" {
			changes = append(changes, tr.Invocation+" "+tr.From+">"+tr.To)
		}
	}
	if got := strings.Join(changes, ", "); got != "01 unknown>spawn, 01 spawn>failed, 02 failed>spawn" {
		t.Errorf("changes: %s", got)
	}
	if err := first.stop(); err != nil {
		t.Errorf("a stop with an open stream: %v", err)
	}
	second := begin(t, keep)
	in = stream(t, second, id)
	waitFor(t, in, "event: reset")
	waitFor(t, in, "event: snapshot")
	var list webapi.Startups
	if code, body := get(t, second.base+"/api/v1/startups?outcome=failed"); code != http.StatusOK || json.Unmarshal([]byte(body), &list) != nil || list.Incomplete != "" {
		t.Errorf("%d %s", code, body)
	}
	http.DefaultClient.CloseIdleConnections()
}

func TestNoHistoryIsSaid(t *testing.T) {
	d := begin(t, nil)
	if code, body := get(t, d.base+"/api/v1/startups"); code != http.StatusOK || !strings.Contains(body, "--state.dir") || !strings.Contains(body, `"startups":[]`) {
		t.Errorf("%d %s", code, body)
	}
}

// TestStreamsOverReloads has streams of a unit that is taken away and comes back,
// and of all, while others come and go: each ends only with its client, and
// nothing of it is left.
func TestStreamsOverReloads(t *testing.T) {
	file := writeConfig(t, "targets:\n  - unit: a\n  - unit: b\n")
	d := begin(t, func(o *Options) { o.Units, o.ConfigFile = nil, file })
	d.script.play(t, up(), started("a.service", "01", 0), started("b.service", "02", 0))
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	var clients sync.WaitGroup
	var seen atomic.Int64
	for i := range 20 {
		path := d.base + "/api/v1/events" + []string{"", "?unit=a", "?unit=b"}[i%3]
		brief := i%2 == 1
		clients.Go(func() {
			for tries := 0; ctx.Err() == nil && tries < 50; tries++ {
				n, err := follow(ctx, path, brief)
				if err != nil && ctx.Err() == nil {
					t.Error(err)
					return
				}
				seen.Add(int64(n))
			}
		})
	}
	for i := range 6 {
		text := "targets:\n  - unit: b\n"
		if i%2 == 1 {
			text += "  - unit: a\n"
		}
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if err := d.Reload(t.Context()); err != nil {
			t.Fatal(err)
		}
		d.script.play(t, failed("b.service", fmt.Sprintf("b%d", i), time.Duration(i)*time.Second), started("b.service", fmt.Sprintf("b%d", i+1), time.Duration(i)*time.Second))
	}
	cancel()
	clients.Wait()
	http.DefaultClient.CloseIdleConnections()
	const within = 100
	for i := 0; ; i++ {
		n := strings.Count(goroutines(), "(*stream).run(")
		if n == 0 {
			break
		}
		if i == within {
			t.Fatalf("%d streams are left", n)
		}
		_, _ = get(t, d.base+"/-/healthy") // takes its time
	}
	http.DefaultClient.CloseIdleConnections()
	if seen.Load() == 0 {
		t.Error("no event was seen")
	}
}

// goroutines is the stacks of all.
func goroutines() string {
	b := make([]byte, 4<<20)
	return string(b[:runtime.Stack(b, true)])
}

// follow counts the events of a stream until ctx ends, or at once after the
// first where it is to be brief. A unit that is not watched now is no error.
func follow(ctx context.Context, path string, brief bool) (int, error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, path, nil)
	if err != nil {
		return 0, err
	}
	resp, err := http.DefaultClient.Do(r)
	if err != nil {
		return 0, err
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		if resp.StatusCode != http.StatusNotFound {
			err = errors.New(resp.Status)
		}
		return 0, err
	}
	n := 0
	for in := bufio.NewScanner(resp.Body); in.Scan(); {
		if strings.HasPrefix(in.Text(), "event: ") {
			if n++; brief {
				return n, nil
			}
		}
	}
	return n, nil
}
