package web

import (
	"hash/maphash"
	"strconv"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/startupd/startupd/pkg/event"
	"github.com/startupd/startupd/pkg/phases"
	"github.com/startupd/startupd/pkg/triage"
	"github.com/startupd/startupd/pkg/web/api"
)

func ended(invocation string, o phases.Outcome) *phases.Startup {
	s := try(invocation)
	s.Ended, s.Outcome, s.Reason = at(4*time.Second), o, "exit-code"
	return s
}

// heard returns the events that looking at targets gives, in words.
func heard(w *world, targets ...phases.Target) []string {
	w.Helper()
	before := w.hub.ring.next
	w.publish(targets...)
	w.look()
	var out []string
	for n := before; n < w.hub.ring.next; n++ {
		m := parse(w.T, w.hub.ring.at(n).text)
		var told api.Told
		m.into(w.T, &told)
		text := m.kind + " " + told.Invocation
		switch m.kind {
		case api.EventFinding:
			text += " " + told.Finding.Verdict + " " + told.Finding.Message
		case api.EventRootCause:
			text += " " + told.RootCause.Class
			if told.RootCause.Provisional {
				text += " provisional"
			}
		case api.EventOutcome:
			text += " " + told.Outcome
		case api.EventStall:
			if *told.Stalled {
				text += " begins"
			}
		}
		out = append(out, text)
	}
	return out
}

func parse(t *testing.T, frame []byte) message {
	t.Helper()
	here, there := newPair()
	go func() {
		_, _ = there.Write(frame)
		_ = there.Close()
	}()
	m, ok := (&client{t: t, in: here}).next()
	if !ok {
		t.Fatalf("no event: %q", frame)
	}
	return m
}

func TestNewsOfAStartup(t *testing.T) {
	w := newWorld(t, nil)
	s := try("01")
	present := func(state phases.State) phases.Target {
		c := *s
		return phases.Target{Name: "a.service", State: state, Startup: &c}
	}
	expect := func(what string, got []string, want ...string) {
		t.Helper()
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%s: %s", what, diff)
		}
	}
	expect("nothing", heard(w, present(phases.Spawn)))
	s.Findings = []triage.Finding{
		{Verdict: triage.Benign, Message: "harmless", Fingerprint: "v1:1", Count: 1},
		{Verdict: triage.Suspect, Message: "odd", Fingerprint: "v1:2", Count: 1},
	}
	expect("findings", heard(w, present(phases.Spawn)), "finding 01 benign harmless", "finding 01 suspect odd")
	s.Findings[0].Count = 9
	expect("another record of one", heard(w, present(phases.Spawn)))
	s.Findings = append([]triage.Finding{}, s.Findings...)
	s.Findings[1].Verdict = triage.Cause
	s.Outcome, s.Ended = phases.OutcomeFailed, at(time.Second)
	s.RootCause = &triage.RootCause{Class: "oom", Provisional: true}
	expect("the failure", heard(w, present(phases.Failed)), "finding 01 cause odd", "root_cause 01 oom provisional", "outcome 01 failed")
	s.Outcome, s.Ended, s.RootCause = phases.OutcomeNone, at(0), nil
	expect("taken back", heard(w, present(phases.Load)), "outcome 01 starting")
	s.Stalled, s.StalledReason = true, "silent"
	expect("a stall", heard(w, present(phases.Load)), "stall 01 begins")
	s.Stalled = false
	expect("no stall", heard(w, present(phases.Load)), "stall 01")
}

// TestStartupThatEndedUnseen compares also those that are no longer the present.
func TestStartupThatEndedUnseen(t *testing.T) {
	w := newWorld(t, nil)
	heard(w, phases.Target{Name: "a.service", Startup: try("01")})
	last := ended("01", phases.OutcomeFailed)
	last.RootCause = &triage.RootCause{Class: "oom", Provisional: true}
	got := heard(w, phases.Target{Name: "a.service", Startup: try("02"), Last: last})
	if diff := cmp.Diff([]string{"root_cause 01 oom provisional", "outcome 01 failed"}, got); diff != "" {
		t.Error(diff)
	}
	// Final, after a snapshot that is read too late: told once.
	final := *last
	final.Final, final.RootCause = true, &triage.RootCause{Class: "killed"}
	before := w.hub.ring.next
	w.hub.Finished("a.service", &final)
	w.hub.Turned()
	if got := w.hub.ring.next - before; got != 1 {
		t.Errorf("%d events of the final cause", got)
	}
	if got := heard(w, phases.Target{Name: "a.service", Startup: try("02"), Last: last}); len(got) != 0 {
		t.Errorf("an older view tells %q", got)
	}
	// One that nobody has seen.
	unseen := ended("03", phases.OutcomeStopped)
	unseen.Final = true
	before = w.hub.ring.next
	w.hub.Finished("a.service", unseen)
	if m := parse(t, w.hub.ring.at(before).text); m.kind != api.EventOutcome {
		t.Errorf("%+v", m)
	}
}

func TestLedgersAreBounded(t *testing.T) {
	w := newWorld(t, nil)
	for i := range 50 {
		s := ended(string(rune('a'+i)), phases.OutcomeFailed)
		w.hub.Finished("a.service", s)
	}
	w.publish(phases.Target{Name: "a.service", Startup: try("x")})
	w.look()
	if n := len(w.hub.ledgers["a.service"].accounts); n != maxAccounts {
		t.Errorf("%d startups are remembered", n)
	}
	w.publish(phases.Target{Name: "b.service"})
	w.look()
	if n := len(w.hub.ledgers); n != 0 {
		t.Errorf("%d units are remembered that nobody watches", n)
	}
}

// A finding that grows is told anew each time, and does not fill the memory.
func TestFindingsAreForgotten(t *testing.T) {
	l := &ledger{seed: maphash.MakeSeed()}
	s := try("x")
	lasting := triage.Finding{Class: "gpu_oom", Message: "lasting"}
	for i := range 5 * maxJudged {
		s.Findings = []triage.Finding{lasting, {Class: "unknown", Message: strconv.Itoa(i)}}
		if n := len(l.compare("a.service", s, event.Stamp{})); n != 1 && i > 0 {
			t.Fatalf("look %d: %d events, want that of the new finding", i, n)
		}
	}
	if n := len(l.accounts[0].findings); n > maxJudged+1 {
		t.Errorf("%d findings are remembered", n)
	}
}

func TestUpdatesAreFew(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, nil)
		dial, stop := w.serve()
		defer stop()
		var hub = make(chan error, 1)
		ctx, cancel := contextOf(t)
		go func() { hub <- w.hub.Run(ctx, w.snaps) }()
		c := connect(t, dial(), "", "")
		defer c.close()
		c.want(api.EventSnapshot)
		updates := make(chan message, 1000)
		go func() {
			for {
				m, ok := c.next()
				if !ok {
					close(updates)
					return
				}
				if m.kind == api.EventUpdate {
					updates <- m
				}
			}
		}()
		// A start whose step changes fifty times a second, for ten seconds.
		flood := func(change func(i int, s *phases.Startup, t *phases.Target)) int {
			for i := range 500 {
				w.set(at(time.Duration(i) * 20 * time.Millisecond))
				s := try("01")
				target := phases.Target{Name: "a.service", Startup: s}
				change(i, s, &target)
				w.snap.Store(&phases.Snapshot{At: w.time(), Targets: []phases.Target{target}})
				w.snaps <- w.snap.Load()
				time.Sleep(20 * time.Millisecond)
			}
			synctest.Wait()
			n := len(updates)
			for range n {
				<-updates
			}
			return n
		}
		if n := flood(func(i int, s *phases.Startup, _ *phases.Target) { s.Step = string(rune('a' + i)) }); n < 35 || n > 41 {
			t.Errorf("%d updates in 10 s", n)
		}
		// A server that writes lines: only counters change.
		n := flood(func(i int, s *phases.Startup, t *phases.Target) {
			s.Outcome, s.Ended, t.Counters.Lines = phases.OutcomeServing, at(0), uint64(i)
			s.LastLine = map[string]string{"api": string(rune('a' + i))}
		})
		if n < 2 || n > 4 {
			t.Errorf("%d updates in 10 s of a server that only writes lines", n)
		}
		cancel()
		if err := <-hub; err != nil {
			t.Error(err)
		}
		if _, ok := <-updates; ok {
			t.Error("the stream goes on after the hub's end")
		}
	})
}

func TestUpdateHasNoFindings(t *testing.T) {
	w := newWorld(t, nil)
	s := try("01")
	s.Findings = []triage.Finding{{Verdict: triage.Suspect, Message: "odd", Count: 3}}
	s.Errors = map[phases.ErrorKey]int{{Class: "unknown", Verdict: triage.Suspect}: 3}
	w.publish(phases.Target{Name: "a.service", Startup: s})
	text, _, err := w.hub.newUpdate(nil)
	if err != nil {
		t.Fatal(err)
	}
	var st api.Status
	message{data: string(text)}.into(t, &st)
	if u := st.Find("a.service"); u == nil || u.Startup.Findings != nil || u.Startup.Errors["suspect"] != 3 {
		t.Errorf("%s", text)
	}
}
