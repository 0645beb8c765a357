//go:build e2e

package e2e

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/startupd/startupd/test/nspawn"
)

// notification is what Alertmanager posts to a webhook: a group of alerts.
type notification struct {
	Receiver, Status string
	GroupLabels      map[string]string
	Alerts           []notified
	// at is when it came, raw the whole of it.
	at  time.Time
	raw string
}

// notified is an alert of a notification.
type notified struct {
	Status, Fingerprint string
	Labels, Annotations map[string]string
	StartsAt, EndsAt    time.Time
}

// line names what an alert of a notification says, and to whom.
func (n *notification) line(a *notified) string { return saying(n.Receiver, a.Status, a.Labels) }

// saying is such a line: RECEIVER STATUS ALERT UNIT@HOST, or only the host.
func saying(receiver, status string, labels map[string]string) string {
	who := labels["host"]
	if unit := labels["unit"]; unit != "" {
		who = unit + "@" + who
	}
	return strings.Join([]string{receiver, status, labels["alertname"], who}, " ")
}

// message is one to a chat: what the templates make of a notification.
type message struct {
	Attachments []struct{ Title, Text, Fallback, Pretext string }
}

// texts are the title and the body for a chat, and those without its marks.
func (m *message) texts() []string {
	var all []string
	for _, a := range m.Attachments {
		all = append(all, a.Title+"\n"+a.Text, a.Fallback+"\n"+a.Pretext)
	}
	return all
}

// inbox is everybody whom Alertmanager notifies. The marker's metric is scraped
// here, too.
type inbox struct {
	marked atomic.Bool

	mu   sync.Mutex
	got  []*notification
	chat []message
	errs []string
}

// ServeHTTP takes /webhook/RECEIVER, /chat and /metrics.
func (b *inbox) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if r.URL.Path == "/metrics" {
		if b.marked.Load() {
			fmt.Fprintln(w, markerMetric, 1)
		}
		return
	}
	body, err := io.ReadAll(r.Body)
	b.mu.Lock()
	defer b.mu.Unlock()
	n, m := &notification{at: time.Now(), raw: string(body)}, message{}
	chat := r.URL.Path == "/chat"
	switch {
	case err != nil:
	case chat:
		err = json.Unmarshal(body, &m)
	default:
		err = json.Unmarshal(body, n)
	}
	switch {
	case err != nil:
		b.errs = append(b.errs, fmt.Sprintf("%s %s: %v: %s", r.Method, r.URL, err, body))
	case chat:
		b.chat = append(b.chat, m)
		fmt.Fprint(w, "ok")
	default:
		b.got = append(b.got, n)
	}
}

// notifications are all so far, in order.
func (b *inbox) notifications() []*notification {
	b.mu.Lock()
	defer b.mu.Unlock()
	return append([]*notification(nil), b.got...)
}

// chats are the messages to the chat so far, in order.
func (b *inbox) chats() []message {
	b.mu.Lock()
	defer b.mu.Unlock()
	return append([]message(nil), b.chat...)
}

// awaitText waits for a message of which both texts have all the words: the two
// messages of one notification come in any order.
func (b *inbox) awaitText(t *testing.T, words ...string) {
	t.Helper()
	nspawn.Eventually(t, 5*time.Second, func() error {
		for _, m := range b.chats() {
			texts := m.texts()
			if len(texts) > 0 && !slices.ContainsFunc(texts, func(s string) bool { return !containsAll(s, words) }) {
				return nil
			}
		}
		return fmt.Errorf("no message has all of %q in both texts", words)
	})
}

func containsAll(s string, words []string) bool {
	return !slices.ContainsFunc(words, func(w string) bool { return !strings.Contains(s, w) })
}

// find returns the first notification of an alert in that line's words.
func (b *inbox) find(line string) (*notification, *notified) {
	for _, n := range b.notifications() {
		for i := range n.Alerts {
			if n.line(&n.Alerts[i]) == line {
				return n, &n.Alerts[i]
			}
		}
	}
	return nil, nil
}

// await waits for the first of such a line.
func (b *inbox) await(t *testing.T, within time.Duration, line string) (n *notification, a *notified) {
	t.Helper()
	nspawn.Eventually(t, within, func() error {
		if n, a = b.find(line); n == nil {
			return fmt.Errorf("nobody was told %q; told were:\n%s", line, b.story())
		}
		return nil
	})
	return n, a
}

// lines are all that anybody was told, sorted.
func (b *inbox) lines() []string {
	var all []string
	for _, n := range b.notifications() {
		for i := range n.Alerts {
			all = append(all, n.line(&n.Alerts[i]))
		}
	}
	slices.Sort(all)
	return all
}

// story is a line for every alert of every notification.
func (b *inbox) story() string {
	var s strings.Builder
	for _, n := range b.notifications() {
		for i := range n.Alerts {
			a := &n.Alerts[i]
			fmt.Fprintf(&s, "%s %s (since %s)\n", n.at.Format("15:04:05.000"), n.line(a), a.StartsAt.Local().Format("15:04:05.000"))
		}
	}
	return s.String()
}

// report logs everything in full.
func (b *inbox) report(t *testing.T) {
	t.Logf("notifications:\n%s", b.story())
	for _, n := range b.notifications() {
		t.Logf("%s %s", n.at.Format("15:04:05.000"), n.raw)
	}
	for _, m := range b.chats() {
		t.Logf("chat:\n%s", strings.Join(m.texts(), "\n--\n"))
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, err := range b.errs {
		t.Error(err)
	}
}
