package app

import (
	"bufio"
	"encoding/json"
	"net/http"
	"strings"
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
