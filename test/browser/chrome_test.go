//go:build browser

package browser

import (
	"context"
	"flag"
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/chromedp/cdproto/cdp"
	"github.com/chromedp/cdproto/emulation"
	cdplog "github.com/chromedp/cdproto/log"
	"github.com/chromedp/cdproto/network"
	"github.com/chromedp/cdproto/runtime"
	"github.com/chromedp/chromedp"
)

// screenshots is a folder for pictures of the pages; "" takes none.
var screenshots = flag.String("screenshots", "", "save screenshots into `DIR`")

// patience bounds what a test waits for.
const patience = 90 * time.Second

// tab is one page in a browser of its own.
type tab struct {
	ctx context.Context
	mu  sync.Mutex
	// problems are errors of scripts and of the policy, hosts those asked.
	problems []string
	hosts    map[string]bool
	// bytes counts what was loaded from each path.
	bytes map[string]float64
	paths map[network.RequestID]string
	// offline allows that requests fail.
	offline bool
}

// browse starts a browser. It fails the test for each error of a script or of the
// policy, and for requests to any host but the daemon's.
func browse(t *testing.T) *tab {
	t.Helper()
	options := append(chromedp.DefaultExecAllocatorOptions[:], chromedp.NoSandbox, chromedp.WindowSize(1200, 900))
	b := &tab{hosts: map[string]bool{}, bytes: map[string]float64{}, paths: map[network.RequestID]string{}}
	ctx, endProcess := chromedp.NewExecAllocator(context.Background(), options...)
	ctx, endTab := chromedp.NewContext(ctx, chromedp.WithListener(b.listen))
	ctx, endTime := context.WithTimeout(ctx, patience)
	b.ctx = ctx
	call(t, b, network.Enable, network.EnableParams{})
	call(t, b, cdplog.Enable, cdp.Empty{})
	t.Cleanup(func() {
		endTime()
		endTab()
		endProcess()
		b.mu.Lock()
		defer b.mu.Unlock()
		for _, p := range b.problems {
			t.Error("the browser says: ", p)
		}
		if len(b.hosts) > 1 {
			t.Errorf("the page asks other hosts: %v", b.hosts)
		}
	})
	return b
}

func (b *tab) listen(e any) {
	b.mu.Lock()
	defer b.mu.Unlock()
	switch e := e.(type) {
	case *runtime.EventExceptionThrown:
		text := e.ExceptionDetails.Text
		if x := e.ExceptionDetails.Exception; x != nil {
			text += " " + x.Description
		}
		b.problems = append(b.problems, text)
	case *runtime.EventConsoleAPICalled:
		switch e.Type {
		case runtime.ConsoleAPICalledTypeError, runtime.ConsoleAPICalledTypeAssert, runtime.ConsoleAPICalledTypeWarning:
			b.problems = append(b.problems, "console."+string(e.Type))
		}
	case *cdplog.EventEntryAdded:
		lost := e.Entry.Source == cdplog.EntrySourceNetwork && b.offline
		if !lost && (e.Entry.Level == cdplog.EntryLevelError || e.Entry.Source == cdplog.EntrySourceSecurity) {
			b.problems = append(b.problems, fmt.Sprintf("%s: %s %s", e.Entry.Source, e.Entry.Text, e.Entry.URL))
		}
	case *network.EventRequestWillBeSent:
		if u, err := url.Parse(e.Request.URL); err == nil {
			b.hosts[u.Host] = true
			b.paths[e.RequestID] = u.Path
		}
	case *network.EventDataReceived:
		b.bytes[b.paths[e.RequestID]] += float64(e.DataLength)
	}
}

// call runs a command of the browser's protocol.
func call[P, R any](t *testing.T, b *tab, command cdp.Command[P, R], params P) {
	t.Helper()
	if _, err := chromedp.Call(b.ctx, command, params); err != nil {
		t.Fatalf("%s: %v", command.Method, err)
	}
}

func (b *tab) do(t *testing.T, actions ...chromedp.Action[chromedp.Void]) {
	t.Helper()
	if err := chromedp.Do(b.ctx, actions...); err != nil {
		t.Fatalf("%v\n%s", err, b.seen())
	}
}

// seen is what a person sees, for the report of a failure.
func (b *tab) seen() string {
	text, err := chromedp.Run(b.ctx, chromedp.Evaluate[string](`document.body ? document.body.innerText : ""`))
	if err != nil {
		return "the page can't be read: " + err.Error()
	}
	return fmt.Sprintf("The page:\n%.6000s", text)
}

// open loads the page.
func (b *tab) open(t *testing.T, url string) {
	t.Helper()
	b.do(t, chromedp.Navigate(url))
}

// until waits for an expression to be true.
func (b *tab) until(t *testing.T, expression string) {
	t.Helper()
	again := time.NewTicker(40 * time.Millisecond)
	defer again.Stop()
	limit := time.After(patience / 2)
	for {
		got, err := chromedp.Run(b.ctx, chromedp.Evaluate[string]("String("+expression+")"))
		switch {
		case err != nil:
			t.Fatalf("%s: %v\n%s", expression, err, b.seen())
		case got == "true":
			return
		}
		select {
		case <-again.C:
		case <-limit:
			t.Fatalf("%s is still %s\n%s", expression, got, b.seen())
		}
	}
}

// sees waits for a text on the page.
func (b *tab) sees(t *testing.T, text string) {
	t.Helper()
	b.until(t, fmt.Sprintf("document.body.innerText.includes(%q)", text))
}

// eval returns the value of an expression as a text.
func (b *tab) eval(t *testing.T, expression string) string {
	t.Helper()
	out, err := chromedp.Run(b.ctx, chromedp.Evaluate[string]("String("+expression+")"))
	if err != nil {
		t.Fatalf("%s: %v\n%s", expression, err, b.seen())
	}
	return out
}

// is fails the test unless the expression is true.
func (b *tab) is(t *testing.T, expression string) {
	t.Helper()
	if got := b.eval(t, expression); got != "true" {
		t.Errorf("%s is %s\n%s", expression, got, b.seen())
	}
}

// sized sets the size of the window, dark or light.
func (b *tab) sized(t *testing.T, width, height int64, scheme string) {
	t.Helper()
	call(t, b, emulation.SetDeviceMetricsOverride, emulation.SetDeviceMetricsOverrideParams{Width: width, Height: height, DeviceScaleFactor: 1, Mobile: width < 600})
	call(t, b, emulation.SetEmulatedMedia, emulation.SetEmulatedMediaParams{Features: []*emulation.MediaFeature{{Name: "prefers-color-scheme", Value: scheme}}})
}

// picture saves the whole page as NAME.png, if pictures are wanted.
func (b *tab) picture(t *testing.T, name string) {
	t.Helper()
	if *screenshots == "" {
		return
	}
	png, err := chromedp.Run(b.ctx, chromedp.FullScreenshot(100))
	if err != nil {
		t.Fatal(err)
	}
	if err := os.MkdirAll(*screenshots, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(*screenshots, name+".png"), png, 0o644); err != nil {
		t.Fatal(err)
	}
}

// pictures saves the page as it looks on a desk and on a phone, light and dark,
// and fails the test where it is wider than the window.
func (b *tab) pictures(t *testing.T, name string) {
	t.Helper()
	for _, w := range []struct {
		name          string
		width, height int64
	}{{"desk", 1200, 900}, {"phone", 360, 740}} {
		for _, scheme := range []string{"light", "dark"} {
			b.sized(t, w.width, w.height, scheme)
			b.until(t, "document.documentElement.clientWidth === "+fmt.Sprint(w.width))
			// The plots follow the window.
			b.until(t, `[...document.querySelectorAll(".plot .uplot")].every((p) => p.clientWidth === 0 || p.clientWidth <= p.parentElement.clientWidth)`)
			if wide := b.eval(t, `document.documentElement.scrollWidth`); wide != fmt.Sprint(w.width) {
				t.Errorf("%s: at %d px the page is %s px wide: %s", name, w.width, wide, b.eval(t, `[...document.querySelectorAll("main *")].filter((e) => e.getBoundingClientRect().right > innerWidth + 1).map((e) => e.outerHTML.slice(0, 120)).slice(0, 4).join(" | ")`))
			}
			b.picture(t, name+"-"+w.name+"-"+scheme)
		}
	}
	b.sized(t, 1200, 900, "light")
}

// loaded is how many bytes came, but for the stream of events.
func (b *tab) loaded() (sum float64, from string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	var parts []string
	for path, n := range b.bytes {
		if path != "/api/v1/events" {
			sum += n
			parts = append(parts, fmt.Sprintf("%s %.0f", path, n))
		}
	}
	slices.Sort(parts)
	return sum, strings.Join(parts, ", ")
}

func (b *tab) allowOffline(on bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.offline = on
}

// forget returns the problems so far, and forgives them.
func (b *tab) forget() []string {
	b.mu.Lock()
	defer b.mu.Unlock()
	told := b.problems
	b.problems, b.hosts = nil, map[string]bool{}
	return told
}
