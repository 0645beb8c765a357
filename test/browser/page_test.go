//go:build browser

package browser

import (
	"context"
	"fmt"
	"net"
	"strings"
	"sync"
	"testing"

	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"

	"github.com/startupd/startupd/internal/app"
	"github.com/startupd/startupd/pkg/event"
)

// mostBytes is what the page of one unit may need, uncompressed.
const mostBytes = 150_000

// The log of a start that dies of two packages that don't match.
func crash() []string {
	return []string{
		"(APIServer pid=100) INFO 01-31 23:36:37 [utils.py:233] non-default args: {'model': '/models/acme-1t', 'tensor_parallel_size': 8}",
		"(EngineCore pid=101) INFO 01-31 23:36:40 [core.py:97] Initializing a V1 LLM engine (v0.16.0) with config: model='/models/acme-1t', tensor_parallel_size=8",
		"(EngineCore pid=101) ERROR 01-31 23:36:50 [core.py:1330] EngineCore failed to start.",
		"(EngineCore pid=101) ERROR 01-31 23:36:50 [core.py:1330] RuntimeError: flashinfer-cubin version (0.6.3) does not match flashinfer version (0.6.4). Please install the same version of all flashinfer packages.",
		"(APIServer pid=100) RuntimeError: Engine core initialization failed. See root cause above. Failed core proc(s): {}",
	}
}

func loading() []string {
	return append(crash()[:2],
		"(EngineCore pid=101) INFO 01-31 23:37:52 [gpu_model_runner.py:4021] Starting to load model /models/acme-1t...",
		"(EngineCore pid=101) Loading safetensors checkpoint shards:  44% Completed | 28/64 [03:59<05:08,  8.57s/it]")
}

func ready() []string {
	return []string{"(APIServer pid=100) INFO:     Application startup complete."}
}

// section is the element of a unit.
func section(unit string) string {
	return fmt.Sprintf("document.querySelector('[data-unit=%q]')", unit)
}

func badge(unit, text string) string {
	return section(unit) + "?.querySelector('.badge').textContent.trim().endsWith(" + fmt.Sprintf("%q", text) + ")"
}

// TestStartToServing sees the recorded restart through: a crash, then a good
// start, in one page that is never loaded again.
func TestStartToServing(t *testing.T) {
	d := beginDemo(t, 40, nil)
	b := browse(t)
	// An anchor that is nothing of the page's is no reason to stand still.
	b.open(t, d.base+"/#%")
	const unit = "vllm-kimi-k25.service"
	b.eval(t, "window.first = true")
	b.until(t, `document.getElementById("link").dataset.state === "live"`)
	b.sees(t, "Why the last failed start failed: package_mismatch")
	b.until(t, badge(unit, "load"))
	b.until(t, `document.querySelector("#units progress")?.value > 0.3`)
	b.until(t, `document.querySelector(".plot .uplot canvas") !== null`)
	b.pictures(t, "loading-after-a-failure")
	b.until(t, badge(unit, "compile"))
	b.sees(t, "weights resident at")
	b.until(t, badge(unit, "serving"))
	b.is(t, "window.first === true")
	b.is(t, `document.querySelectorAll(".phases .is-done, .phases .is-running").length === 5`)
	b.is(t, `!document.body.innerText.includes("Why the last failed start failed")`)
	b.sees(t, "start-up took")
	b.is(t, `document.querySelectorAll(".starts > li").length === 2`)
	b.is(t, `document.title.startsWith("serving")`)
	b.is(t, `document.getElementById("tell").textContent.endsWith("now serving")`)
	b.is(t, `document.querySelector(".plot").getAttribute("aria-label").includes("weights resident: 73.7 GiB")`)
	b.pictures(t, "serving")
	// A duration goes on between updates.
	before := b.eval(t, `document.querySelector(".lead .n").textContent`)
	b.until(t, fmt.Sprintf(`document.querySelector(".lead .n").textContent !== %q`, before))
}

// TestFailedStart: the card is what is seen first, and reading it is not
// disturbed by what comes meanwhile.
func TestFailedStart(t *testing.T) {
	const unit = "model.service"
	d := begin(t, "127.0.0.1:0", unit)
	b := browse(t)
	b.open(t, d.base)
	b.until(t, `document.getElementById("link").dataset.state === "live"`)
	d.start(t, unit, 1)
	d.say(t, unit, 1, crash()...)
	d.fail(t, unit, 1)
	b.until(t, badge(unit, "failed"))
	b.sees(t, "Why the start failed: package_mismatch")
	b.sees(t, "flashinfer-cubin version (0.6.3) does not match")
	b.sees(t, "journalctl --cursor='s=5eed")
	b.sees(t, "To do:")
	b.is(t, `document.querySelector(".cause").getBoundingClientRect().bottom < innerHeight`)
	b.pictures(t, "failed")

	// Unfold by the keyboard, select, and let a new start come.
	fold := `document.querySelector("details.verdict")`
	b.eval(t, fold+`.querySelector("summary").focus()`)
	b.do(t, chromedp.KeyEvent(kb.Enter))
	b.until(t, fold+".open")
	b.eval(t, `getSelection().selectAllChildren(document.querySelector(".cause .log"))`)
	selected := b.eval(t, "getSelection().toString()")
	b.eval(t, "scrollTo(0, 60)")
	b.eval(t, fold+".marked = true")
	d.start(t, unit, 2)
	d.say(t, unit, 2, loading()...)
	b.until(t, badge(unit, "load"))
	b.sees(t, "Why the last failed start failed")
	d.say(t, unit, 2, "(EngineCore pid=101) ERROR 01-31 23:38:00 [loader.py:10] ValueError: an error that nobody knows")
	b.until(t, `document.querySelector("main").textContent.includes("an error that nobody knows")`)
	b.is(t, `scrollY === 60`)
	b.is(t, `document.querySelectorAll("details.verdict[open]").length === 1`)
	b.is(t, `document.activeElement.tagName === "SUMMARY"`)
	b.is(t, fmt.Sprintf("getSelection().toString().includes(%q) || %q === ''", selected[:20], selected))
	b.sees(t, "44 %")
	d.say(t, unit, 2, ready()...)
	b.until(t, badge(unit, "serving"))
}

// TestTwentyUnits: what needs attention comes first, what serves is folded.
func TestTwentyUnits(t *testing.T) {
	var units []string
	for i := range 20 {
		units = append(units, fmt.Sprintf("model-%02d.service", i))
	}
	d := begin(t, "127.0.0.1:0", units...)
	for i, unit := range units {
		if i%5 == 4 {
			continue // nothing is known of it
		}
		d.start(t, unit, 1)
		switch {
		case i == 13:
			d.say(t, unit, 1, crash()...)
			d.fail(t, unit, 1)
		case i%5 == 1:
			d.say(t, unit, 1, loading()...)
		default:
			d.say(t, unit, 1, append(loading(), ready()...)...)
		}
	}
	b := browse(t)
	b.open(t, d.base)
	b.until(t, `document.getElementById("link").dataset.state === "live"`)
	b.sees(t, "20 units")
	b.is(t, `document.querySelectorAll("section.unit").length === 20`)
	b.is(t, `document.querySelector("section.unit").dataset.unit === "model-13.service"`)
	b.is(t, `document.title.startsWith("1 failed · 4 starting")`)
	b.is(t, `document.querySelectorAll("section.edge-serving details.fold[open]").length === 0`)
	b.pictures(t, "twenty-units")
	// An anchor leads to a unit and unfolds it.
	b.do(t, chromedp.Click(chromedp.CSS(`#overview a[href="#u-model-00_2eservice"]`)))
	b.until(t, section("model-00.service")+".querySelector('details.fold').open")
	// Another one fails: it moves up, and what was unfolded stays so.
	d.fail(t, "model-01.service", 1)
	b.until(t, badge("model-01.service", "failed"))
	b.until(t, `document.querySelectorAll("section.unit")[0].dataset.unit === "model-01.service"`)
	b.is(t, section("model-00.service")+".querySelector('details.fold').open")
}

// TestHostileLine: text of the log is shown and does nothing.
func TestHostileLine(t *testing.T) {
	d := begin(t, "127.0.0.1:0", "a.service", "b.service")
	hostile := `ValueError: <script>window.hit=1</script><img src=http://192.0.2.1/x onerror="window.hit=2"> </details></main> "'` + "`" +
		" \u202eevil \u2066 مرحبا \x1b[31mred\x1b[0m \u0000 javascript:alert(1) " + strings.Repeat("W", 5000)
	for _, u := range []string{"a.service", "b.service"} {
		d.start(t, u, 1)
		d.say(t, u, 1, append(crash()[:2], "(EngineCore pid=101) ERROR 01-31 23:36:50 [core.py:1330] EngineCore failed to start.",
			"(EngineCore pid=101) ERROR 01-31 23:36:50 [core.py:1330] "+hostile)...)
		d.fail(t, u, 1)
	}
	b := browse(t)
	b.open(t, d.base)
	b.until(t, badge("a.service", "failed"))
	b.eval(t, `document.querySelectorAll("details").forEach((d) => { d.open = true })`)
	b.sees(t, `<script>window.hit=1</script>`)
	b.sees(t, `\u202eevil`)
	b.is(t, "window.hit === undefined")
	b.is(t, `document.querySelectorAll("main script, main img, main iframe, [onerror]").length === 0`)
	b.is(t, `document.querySelectorAll("main").length === 1`)
	b.is(t, `!/[\u0000-\u0008\u000b-\u001f\u202a-\u202e\u2066-\u2069]/.test(document.body.textContent)`)
	b.pictures(t, "hostile")
}

// TestServerGoesAway: old data are never shown as live, and the page recovers.
func TestServerGoesAway(t *testing.T) {
	const unit = "model.service"
	d := begin(t, "127.0.0.1:0", unit)
	d.start(t, unit, 1)
	d.say(t, unit, 1, loading()...)
	b := browse(t)
	b.open(t, d.base)
	b.until(t, badge(unit, "load"))
	b.until(t, `document.getElementById("link").dataset.state === "live"`)
	b.eval(t, "window.first = true")
	b.allowOffline(true)
	d.stop()
	b.sees(t, "connection lost, retrying; data of ")
	b.is(t, `document.body.classList.contains("lost")`)
	// What is old does not go on.
	stands := b.eval(t, `document.querySelector(".lead .n").textContent`)
	b.eval(t, `window.later = 0, setTimeout(() => { window.later = 1 }, 1500)`)
	b.until(t, "window.later === 1")
	b.is(t, fmt.Sprintf(`document.querySelector(".lead .n").textContent === %q`, stands))
	b.pictures(t, "lost")

	_, port, err := net.SplitHostPort(strings.TrimPrefix(d.base, "http://"))
	if err != nil {
		t.Fatal(err)
	}
	again := begin(t, "127.0.0.1:"+port, unit)
	again.start(t, unit, 1)
	again.say(t, unit, 1, append(loading(), ready()...)...)
	b.until(t, badge(unit, "serving"))
	b.until(t, `document.getElementById("link").dataset.state === "live"`)
	b.is(t, "window.first === true")
	b.is(t, `!document.body.classList.contains("lost")`)
	b.allowOffline(false)
}

// TestWithoutScript: the essentials need none.
func TestWithoutScript(t *testing.T) {
	const unit = "model.service"
	d := begin(t, "127.0.0.1:0", unit)
	d.start(t, unit, 1)
	d.say(t, unit, 1, crash()...)
	d.fail(t, unit, 1)
	b := browse(t)
	call(t, b, emulation.SetScriptExecutionDisabled, emulation.SetScriptExecutionDisabledParams{Value: true})
	b.open(t, d.base+"/?refresh=off")
	b.sees(t, "Why the start failed: package_mismatch")
	b.sees(t, "This page is held")
	b.sees(t, "As of 20")
	b.pictures(t, "no-script")
}

// TestWeight: the page of one unit, with everything that it loads.
func TestWeight(t *testing.T) {
	hold := newHold(func(e event.Event) bool {
		line, ok := e.Data.(*event.Line)
		return ok && strings.Contains(line.Text, "Starting to load model")
	})
	d := beginDemo(t, 200, hold.through)
	t.Cleanup(hold.release)
	<-hold.reached
	b := browse(t)
	b.open(t, d.base)
	b.sees(t, "Why the last failed start failed")
	b.until(t, `document.querySelector(".plot").childElementCount > 0`)
	sum, from := b.loaded()
	t.Logf("%.0f bytes: %s", sum, from)
	if sum == 0 || sum > mostBytes {
		t.Errorf("the page of one unit needs %.0f bytes, more than %d: %s", sum, mostBytes, from)
	}
}

// hold stops a source at an event until it is released.
type hold struct {
	at      func(event.Event) bool
	reached chan struct{}
	open    chan struct{}
	once    sync.Once
}

func newHold(at func(event.Event) bool) *hold {
	return &hold{at: at, reached: make(chan struct{}), open: make(chan struct{})}
}

func (h *hold) release() { h.once.Do(func() { close(h.open) }) }

func (h *hold) through(emit app.Emit) app.Emit {
	held := false
	return func(ctx context.Context, events []event.Event) error {
		if err := emit(ctx, events); err != nil {
			return err
		}
		for _, e := range events {
			if held || !h.at(e) {
				continue
			}
			held = true
			close(h.reached)
			select {
			case <-h.open:
			case <-ctx.Done():
				return ctx.Err()
			}
		}
		return nil
	}
}

// TestTheBrowserWouldTell: markup that came from the log could load nothing, and
// the other tests would hear of it.
func TestTheBrowserWouldTell(t *testing.T) {
	d := begin(t, "127.0.0.1:0", "model.service")
	b := browse(t)
	b.open(t, d.base)
	b.eval(t, `document.body.insertAdjacentHTML("beforeend", "<img src='http://192.0.2.1/x' onerror='window.hit = 1'><p style='color:red'>")`)
	b.eval(t, `document.body.appendChild(Object.assign(document.createElement("script"), { textContent: "window.hit = 2" }))`)
	b.is(t, "window.hit === undefined")
	told := strings.Join(b.forget(), "\n")
	for _, want := range []string{"img-src", "style-src", "script-src"} {
		if !strings.Contains(told, want) {
			t.Errorf("nothing is told of %s:\n%s", want, told)
		}
	}
}
