package watch

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	tea "charm.land/bubbletea/v2"
	"github.com/charmbracelet/x/ansi"

	"github.com/startupd/startupd/internal/app/observe"
	"github.com/startupd/startupd/pkg/web/api"
)

// live is a model with a clock that the test turns.
type live struct {
	*model
	t   *testing.T
	now time.Time
}

func newLive(t *testing.T, width, height int) *live {
	l := &live{t: t, now: after(252)}
	l.model = newModel(Options{Zone: time.UTC}, func() time.Time { return l.now })
	l.Update(tea.WindowSizeMsg{Width: width, Height: height})
	return l
}

func (l *live) show(s *api.Status) tea.Cmd {
	_, cmd := l.Update(updateMsg(observe.Update{Status: s, Daemon: true, Settled: true}))
	return cmd
}

// press presses keys by their names; a rune is itself.
func (l *live) press(names ...string) tea.Cmd {
	l.t.Helper()
	codes := map[string]tea.Key{
		"enter": {Code: tea.KeyEnter}, "tab": {Code: tea.KeyTab}, "shift+tab": {Code: tea.KeyTab, Mod: tea.ModShift}, "esc": {Code: tea.KeyEscape},
		"up": {Code: tea.KeyUp}, "down": {Code: tea.KeyDown}, "pgdown": {Code: tea.KeyPgDown}, "space": {Code: tea.KeySpace},
		"home": {Code: tea.KeyHome}, "end": {Code: tea.KeyEnd}, "ctrl+c": {Code: 'c', Mod: tea.ModCtrl}, "ctrl+z": {Code: 'z', Mod: tea.ModCtrl},
	}
	var cmd tea.Cmd
	for _, name := range names {
		k, ok := codes[name]
		if !ok {
			r := []rune(name)[0]
			k = tea.Key{Code: r, Text: name}
		}
		if got := tea.KeyPressMsg(k).String(); got != name {
			l.t.Fatalf("pressed %q, wanted %q", got, name)
		}
		_, cmd = l.Update(tea.KeyPressMsg(k))
	}
	return cmd
}

// quits says that a command ends the program.
func quits(cmd tea.Cmd) bool {
	if cmd == nil {
		return false
	}
	switch msg := cmd().(type) {
	case tea.QuitMsg:
		return true
	case tea.BatchMsg:
		for _, c := range msg {
			if quits(c) {
				return true
			}
		}
	}
	return false
}

func (l *live) wants(text string) {
	l.t.Helper()
	if !strings.Contains(l.frame(), text) {
		l.t.Errorf("the screen does not show %q:\n%s", text, l.frame())
	}
}

func (l *live) lacks(text string) {
	l.t.Helper()
	if strings.Contains(l.frame(), text) {
		l.t.Errorf("the screen shows %q:\n%s", text, l.frame())
	}
}

func TestKeysChooseUnits(t *testing.T) {
	l := newLive(t, 100, 40)
	l.show(many())
	// The first that does not serve.
	if l.chosen != "vllm-model-02.service" {
		t.Fatalf("chose %s", l.chosen)
	}
	for _, step := range []struct{ key, want string }{
		{"j", "vllm-model-03.service"}, {"down", "vllm-model-04.service"}, {"k", "vllm-model-03.service"}, {"up", "vllm-model-02.service"},
		{"tab", "vllm-model-03.service"}, {"shift+tab", "vllm-model-02.service"}, {"k", "vllm-model-01.service"}, {"k", "vllm-model-00.service"},
		{"k", "vllm-model-00.service"}, {"shift+tab", "vllm-stopped.service"}, {"j", "vllm-stopped.service"}, {"tab", "vllm-model-00.service"},
	} {
		l.press(step.key)
		if l.chosen != step.want {
			t.Fatalf("after %s: %s, want %s", step.key, l.chosen, step.want)
		}
		l.wants("> " + strings.TrimSuffix(step.want, ".service"))
	}
}

func TestChoiceStaysWithItsUnit(t *testing.T) {
	l := newLive(t, 100, 40)
	l.show(status(252, serving(), named(loading(), "zulu.service")))
	l.press("j")
	l.show(status(253, named(serving(), "alpha.service"), serving(), named(loading(), "zulu.service")))
	if l.chosen != "zulu.service" {
		t.Errorf("the choice went to %s", l.chosen)
	}
	l.show(status(254, named(serving(), "alpha.service")))
	if l.chosen != "alpha.service" {
		t.Errorf("a unit that is gone stays chosen: %s", l.chosen)
	}
	l.show(status(255))
	l.wants("No unit is watched")
}

func named(u api.Unit, name string) api.Unit {
	u.Unit = name
	return u
}

func TestEnterTogglesTheList(t *testing.T) {
	l := newLive(t, 100, 40)
	l.show(many())
	l.wants("vllm-model-03")
	l.press("enter")
	l.lacks("vllm-model-03")
	l.wants("vllm-model-02.service")
	l.press("tab")
	l.wants("vllm-model-03.service")
	l.press("esc")
	l.wants("> vllm-model-03")
}

func TestScrolling(t *testing.T) {
	l := newLive(t, 80, 15)
	l.show(scenes()["loading"])
	l.lacks("VITAL SIGNS")
	l.wants("below")
	l.press("end")
	l.wants("main process 4711")
	l.wants("above")
	l.press("home")
	l.lacks("above")
	l.press("j", "j")
	l.wants("2 above")
	l.press("space")
	l.lacks("2 above")
	l.Update(tea.WindowSizeMsg{Width: 80, Height: 60})
	l.wants("LOAD/weights")
	l.wants("main process 4711")
	l.lacks("above")
}

func TestBenignIsFolded(t *testing.T) {
	l := newLive(t, 100, 40)
	l.show(scenes()["loading"])
	l.wants("16 harmless error lines of 2 kinds")
	l.lacks("Reducing parallelism")
	l.press("f")
	l.wants("Reducing parallelism")
	l.press("f")
	l.lacks("Reducing parallelism")
}

func TestHelp(t *testing.T) {
	l := newLive(t, 100, 60)
	l.show(scenes()["loading"])
	l.press("?")
	for _, group := range l.keys.all() {
		for _, b := range group {
			l.wants(b.Help().Desc)
		}
	}
	if quits(l.press("esc")) {
		t.Error("esc quits instead of closing the help")
	}
	l.wants("LOAD/weights")
}

func TestQuit(t *testing.T) {
	for _, key := range []string{"q", "ctrl+c", "esc"} {
		l := newLive(t, 80, 24)
		l.show(scenes()["serving"])
		l.ticks = true
		if !quits(l.press(key)) {
			t.Errorf("%s does not quit", key)
		}
	}
}

func TestTimeRunsOn(t *testing.T) {
	l := newLive(t, 100, 40)
	l.show(scenes()["loading"])
	l.wants("4m12s since the start began")
	l.wants("(9m08s)")
	l.now = after(262)
	l.wantsAfterTick("4m22s since the start began", "weights 4m00s", "(8m58s)")
}

func (l *live) wantsAfterTick(texts ...string) {
	l.t.Helper()
	l.Update(tickMsg{})
	for _, text := range texts {
		l.wants(text)
	}
}

func TestPauseHolds(t *testing.T) {
	l := newLive(t, 100, 40)
	l.show(scenes()["loading"])
	l.press("p")
	l.wants("PAUSED")
	l.now = after(300)
	l.show(gpus(status(300, failed()), 4, 0, 0))
	l.wantsAfterTick("4m12s since the start began")
	if l.status().Units[0].State != "failed" {
		t.Error("what is left on the screen is not the newest")
	}
	l.press("p")
	l.wants("FAILED")
	l.lacks("PAUSED")
}

func TestStaleViewSaysSinceWhen(t *testing.T) {
	l := newLive(t, 100, 40)
	l.show(scenes()["loading"])
	l.now = after(260)
	l.Update(endMsg{fmt.Errorf("%w: the daemon is gone", observe.ErrBlind)})
	l.now = after(300)
	l.wantsAfterTick("STALE since 23:41:43", "the daemon is gone; trying again", "4m12s since the start began")
	l.show(gpus(status(300, loading()), 4, 0, 0))
	l.lacks("STALE")
	l.lacks("trying again")
}

func TestSilentDaemonIsNoticed(t *testing.T) {
	l := newLive(t, 100, 40)
	l.show(scenes()["serving"])
	l.now = l.now.Add(silent)
	l.wantsAfterTick("SERVING")
	l.lacks("STALE")
	l.now = l.now.Add(time.Second)
	l.wantsAfterTick("STALE since 23:41:43", "the daemon tells nothing")
}

func TestNoteIsShownForAWhile(t *testing.T) {
	l := newLive(t, 100, 40)
	l.Update(noteMsg("no daemon runs here; the journal is followed here instead\x1b[2J"))
	l.wants(`followed here instead\x1b[2J`)
	l.show(scenes()["serving"])
	l.wants("followed here instead")
	l.now = l.now.Add(noteFor + time.Second)
	l.show(scenes()["serving"])
	l.lacks("followed here instead")
}

func TestNothingToSeeEnds(t *testing.T) {
	l := newLive(t, 100, 40)
	l.ticks = true
	_, cmd := l.Update(endMsg{observe.ErrBlind})
	if !quits(cmd) || !errors.Is(l.ended, observe.ErrBlind) {
		t.Errorf("it goes on without anything to see: %v", l.ended)
	}
}

// TestTicks: time goes on by itself, and only one tick is under way.
func TestTicks(t *testing.T) {
	l := newLive(t, 100, 40)
	l.ticks = false
	if l.Init() == nil {
		t.Fatal("there is no first tick")
	}
	if cmd := l.show(scenes()["loading"]); cmd != nil {
		t.Error("a second tick was started")
	}
	if _, cmd := l.Update(tickMsg{}); cmd == nil {
		t.Error("no tick follows")
	}
	l.Update(tickMsg{})
	l.ticks = false
	if cmd := l.press("p"); cmd != nil {
		t.Error("time goes on while paused")
	}
}

func TestTicksAreQuickWhileAStartRuns(t *testing.T) {
	for name, want := range map[string]time.Duration{"loading": quickly, "stalled": quickly, "serving": slowly, "failed": slowly, "unknown": slowly} {
		synctest.Test(t, func(t *testing.T) {
			l := newLive(t, 100, 40)
			l.ticks = true
			l.show(scenes()[name])
			l.ticks = false
			begin := time.Now()
			l.tick()()
			if got := time.Since(begin); got != want {
				t.Errorf("%s: a tick after %s, want %s", name, got, want)
			}
		})
	}
}

// collector is a view of which only the messages matter.
type collector struct{ got []tea.Msg }

func (c *collector) Send(m tea.Msg) { c.got = append(c.got, m) }

func TestObservingGoesOnWhenTheDaemonIsBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, stop := context.WithCancel(t.Context())
		view, calls := &collector{}, 0
		observeAgain(ctx, func(ctx context.Context, see func(observe.Update) error, note func(string)) error {
			calls++
			if calls == 2 {
				return observe.ErrBlind
			}
			note("a word")
			if err := see(observe.Update{Status: status(1)}); err != nil {
				t.Error(err)
			}
			if calls == 3 {
				stop()
				return see(observe.Update{Status: status(2)})
			}
			return observe.ErrBlind
		}, view)
		var kinds []string
		for _, m := range view.got {
			kinds = append(kinds, strings.TrimPrefix(fmt.Sprintf("%T", m), "watch."))
		}
		want := "noteMsg updateMsg endMsg endMsg noteMsg updateMsg updateMsg"
		if got := strings.Join(kinds, " "); got != want {
			t.Errorf("got %s, want %s", got, want)
		}
	})
}

func TestObservingEndsWithoutAnyView(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		view := &collector{}
		observeAgain(t.Context(), func(context.Context, func(observe.Update) error, func(string)) error { return observe.ErrBlind }, view)
		if len(view.got) != 1 {
			t.Errorf("got %v", view.got)
		}
	})
}

// TestLines is what a terminal sees whose cursor can't be moved.
func TestLines(t *testing.T) {
	var b bytes.Buffer
	compiled := compiling()
	err := lines(t.Context(), &b, Options{ASCII: true, Zone: time.UTC}, func(_ context.Context, see func(observe.Update) error, note func(string)) error {
		note("no daemon\x1b[2J")
		for _, u := range []api.Unit{loading(), loading(), compiled, failed()} {
			if err := see(observe.Update{Status: status(300, u)}); err != nil {
				return err
			}
		}
		return observe.ErrBlind
	})
	if !errors.Is(err, observe.ErrBlind) {
		t.Errorf("the error is lost: %v", err)
	}
	got := strings.Split(strings.TrimSuffix(b.String(), "\n"), "\n")
	want := []string{`no daemon\x1b[2J`, "load/weights", "compile/inductor", "failed"}
	if len(got) != len(want) {
		t.Fatalf("%d lines, want %d:\n%s", len(got), len(want), b.String())
	}
	for i := range want {
		if !strings.Contains(got[i], want[i]) || ansi.StringWidth(got[i]) > defaultWidth {
			t.Errorf("line %d is %q, want %q", i, got[i], want[i])
		}
	}
}

func TestWorst(t *testing.T) {
	stopped := api.Unit{Unit: "a", State: "stopped"}
	for _, tt := range []struct {
		units []api.Unit
		want  Health
	}{
		{nil, Unsure},
		{[]api.Unit{serving(), serving()}, Serving},
		{[]api.Unit{serving(), loading()}, Unsure},
		{[]api.Unit{serving(), {Unit: "b", State: "unknown"}}, Unsure},
		{[]api.Unit{loading(), stalled()}, Stalled},
		{[]api.Unit{stalled(), failed()}, Failed},
		{[]api.Unit{stopped, serving()}, Failed},
	} {
		if got := Worst(status(1, tt.units...)); got != tt.want {
			t.Errorf("%d units: %d, want %d", len(tt.units), got, tt.want)
		}
	}
}

func TestUTF8(t *testing.T) {
	for _, tt := range []struct {
		env  string
		want bool
	}{
		{"", false}, {"LANG=C", false}, {"LANG=en_US.UTF-8", true}, {"LANG=de_DE.utf8", true}, {"LC_ALL=C LANG=en_US.UTF-8", false},
		{"LC_ALL= LANG=en_US.UTF-8", true}, {"LANG=C LC_CTYPE=C.UTF-8", true},
	} {
		if got := UTF8(strings.Fields(tt.env)); got != tt.want {
			t.Errorf("%s: %t", tt.env, got)
		}
	}
}

func TestBrief(t *testing.T) {
	for s, want := range map[float64]string{-1: "0.0s", 0.04: "0.0s", 9.94: "9.9s", 9.96: "10s", 59.6: "1m00s", 231: "3m51s", 3600: "1h00m", 86399: "23h59m", 90000: "1d01h"} {
		if got := brief(s); got != want {
			t.Errorf("%v: %s, want %s", s, got, want)
		}
	}
}
