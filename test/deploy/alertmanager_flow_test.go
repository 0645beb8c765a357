package deploy

import (
	"fmt"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// scene is a course of events around one unit, and who is told what.
type scene struct {
	name string
	// steps come one after the other: each is posted, then that many messages in all
	// are awaited. A step without alerts and a larger number waits for an update.
	steps []step
	want  []string
}

type step struct {
	alerts   []postedAlert
	messages int
}

// unitAlert returns one of the alerts of the tables, for a host and unit.
func unitAlert(name, host, unit string) postedAlert {
	for _, a := range append(ownAlerts(), otherAlerts()...) {
		if a.name == name {
			p := about(a, host)
			if _, ok := p.Labels["unit"]; ok {
				p = p.label("unit", unit)
			}
			return p
		}
	}
	panic("no alert " + name)
}

func scenes(host, unit string) []scene {
	at := func(name string) postedAlert { return unitAlert(name, host, unit) }
	failed, loop, stalled, slow := at("LLMStartupFailed"), at("LLMStartupRestartLoop"), at("LLMStartupStalled"), at("LLMStartupSlow")
	amended := failed
	amended.Annotations = map[string]string{"class": "host_oom"}
	list := func(a ...postedAlert) []postedAlert { return a }
	return []scene{
		{"one crash", []step{{list(failed), 1}, {list(failed.over()), 2}},
			[]string{"page: +LLMStartupFailed", "page: -LLMStartupFailed"}},
		{"an amended cause", []step{{list(failed, amended), 1}, {list(failed, amended), 1}, {list(amended.over()), 2}},
			[]string{"page: +LLMStartupFailed", "page: -LLMStartupFailed"}},
		{"a fast loop", []step{{list(failed, failed, loop, failed, loop), 1}, {list(failed.over(), loop.over()), 2}},
			[]string{"page: +LLMStartupRestartLoop", "page: -LLMStartupFailed -LLMStartupRestartLoop"}},
		// The same incident is updated.
		{"a slow loop", []step{{list(failed), 1}, {list(loop), 2}, {list(failed.over(), loop.over()), 3}},
			[]string{"page: +LLMStartupFailed", "page: +LLMStartupRestartLoop", "page: -LLMStartupFailed -LLMStartupRestartLoop"}},
		// The second stall is told, although the first was resolved while inhibited.
		{"stalled, failed, stalled", []step{{list(stalled), 1}, {list(failed, stalled.over()), 2}, {list(failed.over()), 3}, {list(stalled), 4}},
			[]string{"page: +LLMStartupStalled", "page: +LLMStartupFailed", "page: -LLMStartupFailed", "page: +LLMStartupStalled"}},
		{"slow, then stalled, then good", []step{{list(slow), 1}, {list(stalled, slow), 2}, {list(stalled.over()), 3}, {list(slow.over()), 4}},
			[]string{"chat: +LLMStartupSlow", "page: +LLMStartupStalled", "page: -LLMStartupStalled", "chat: -LLMStartupSlow"}},
		{"a start as it should be", []step{{list(at("LLMStartupInProgress"), at("VLLMDown")), 0}, {list(at("VLLMDown").over(), at("LLMStartupInProgress").over()), 0}},
			nil},
		{"down after all", []step{{list(at("LLMStartupInProgress"), at("VLLMDown")), 0}, {list(at("LLMStartupInProgress").over()), 1}},
			[]string{"page: +VLLMDown"}},
	}
}

// marked waits until messages of whatever was posted before must have come: a
// marker's group waits as long as the slowest of the others.
func (n *notifier) marked(t *testing.T, name string) {
	t.Helper()
	for i := range 2 {
		job := fmt.Sprintf("%s %d", name, i)
		n.post(t, postedAlert{Labels: map[string]string{"alertname": "StartupdDown", "severity": "critical", "job": job}})
		n.inbox.await(t, "job", job, 1)
	}
}

// TestScenes plays courses of events against a real Alertmanager, all side by
// side, 40 times as fast.
func TestScenes(t *testing.T) {
	t.Parallel()
	n := notify(t, 40)
	var all []scene
	host := func(i int) string { return fmt.Sprintf("gpu%d.example", i) }
	for i := range scenes("", "") {
		all = append(all, scenes(host(i), "vllm.service")[i])
	}
	for i := range 10 { // a rack that loses its power
		n.post(t, unitAlert("StartupdDown", fmt.Sprintf("rack%d.example", i), "").label("job", "rack"))
	}
	for i := range 8 { // something on every GPU of a host
		n.post(t, unitAlert("LLMGPUForeignMemory", "gpus.example", "").label("gpu", strconv.Itoa(i)))
	}
	for k := range 4 {
		for _, s := range all {
			if k < len(s.steps) {
				n.post(t, s.steps[k].alerts...)
			}
		}
		for i, s := range all {
			if k < len(s.steps) {
				n.inbox.await(t, "host", host(i), s.steps[k].messages)
			}
		}
	}
	n.marked(t, "the end")
	for i, s := range all {
		n.told(t, s.name, "host", host(i), s.want...)
	}
	n.told(t, "a rack", "job", "rack", "page:"+strings.Repeat(" +StartupdDown", 10))
	n.told(t, "the GPUs of a host", "host", "gpus.example", "chat:"+strings.Repeat(" +LLMGPUForeignMemory", 8))
}

// told wants exactly these messages about a label.
func (n *notifier) told(t *testing.T, what, label, value string, want ...string) {
	t.Helper()
	got, _ := n.inbox.lines(label, value)
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("%s: told (+), wanted (-):\n%s", what, diff)
	}
}

// TestSlowIsToldAgain proves that a warning that was resolved while a failure
// inhibited it is told anew after an hour at the latest. It runs 600 times as
// fast.
func TestSlowIsToldAgain(t *testing.T) {
	t.Parallel()
	n := notify(t, 600)
	const host = "again.example"
	failed, slow := unitAlert("LLMStartupFailed", host, "vllm.service"), unitAlert("LLMStartupSlow", host, "vllm.service")
	n.post(t, slow)
	n.inbox.await(t, "host", host, 1)
	n.post(t, failed, slow.over())
	n.inbox.await(t, "host", host, 2)
	n.marked(t, host)
	n.post(t, failed.over())
	n.inbox.await(t, "host", host, 3)
	n.post(t, slow)
	want := []string{"chat: +LLMStartupSlow", "page: +LLMStartupFailed", "page: -LLMStartupFailed", "chat: +LLMStartupSlow"}
	if diff := cmp.Diff(want, n.inbox.await(t, "host", host, 4)); diff != "" {
		t.Errorf("told (+), wanted (-):\n%s", diff)
	}
}
