package parity

import (
	"encoding/json"
	"fmt"
	"reflect"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/startupd/startupd/pkg/phases"
)

// TestDaemonRestart ends the daemon after every entry. The next one knows what was
// saved and reads the entries again: it judges the last startup alike, and counts
// nothing twice.
func TestDaemonRestart(t *testing.T) {
	each(t, func(t *testing.T, c recorded) {
		events := onClock(journalled(t, c, 0))
		once := newPlayer(t, false)
		once.apply(events...)
		all := verdicts(once.end(t, c))
		want, counted := all[len(all)-1], totals(once.target(c.name))
		for i := 1; i < len(events); i++ {
			before := newPlayer(t, false)
			before.apply(events[:i]...)
			after := newPlayer(t, false)
			after.host.Restore(saved(t, before.host))
			for _, ev := range events[:i] {
				ev.Replayed = true
				after.apply(ev)
			}
			after.apply(events[i:]...)
			got := verdicts(after.end(t, c))
			if last := got[len(got)-1]; !reflect.DeepEqual(want, last) {
				t.Fatalf("ended before entry %d: at once (-), in two runs (+):\n%s", i, cmp.Diff(want, last))
			}
			if diff := cmp.Diff(counted, totals(after.target(c.name))); diff != "" {
				t.Fatalf("ended before entry %d: counted at once (-), in two runs (+):\n%s", i, diff)
			}
		}
	})
}

// saved is what a host saves, as it comes back from a file.
func saved(t testing.TB, h *phases.Host) phases.Saved {
	t.Helper()
	data, err := json.Marshal(h.Save())
	if err != nil {
		t.Fatal(err)
	}
	var out phases.Saved
	if err := json.Unmarshal(data, &out); err != nil {
		t.Fatal(err)
	}
	return out
}

// totals are the counters that a restart must not change.
func totals(t *phases.Target) map[string]uint64 {
	out := map[string]uint64{}
	for k, n := range t.Counters.Errors {
		out[fmt.Sprintf("errors %s %s", k.Class, k.Verdict)] = n
	}
	for k, n := range t.Counters.Startups {
		out["startups "+string(k)] = n
	}
	for k, n := range t.Counters.ServingEnded {
		out["ended "+k] = n
	}
	for k, n := range t.Counters.Gaps {
		out["gaps "+string(k)] = n
	}
	return out
}
