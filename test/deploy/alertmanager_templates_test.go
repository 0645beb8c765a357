package deploy

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"
	"unicode"

	"github.com/google/go-cmp/cmp"
)

const docsURL = "https://github.com/startupd/startupd/blob/main/docs/"

// told is an alert of a message, and message what the templates get.
type told struct {
	Status      string            `json:"status"`
	Labels      map[string]string `json:"labels"`
	Annotations map[string]string `json:"annotations"`
	StartsAt    time.Time         `json:"startsAt"`
	EndsAt      time.Time         `json:"endsAt"`
}

type message struct {
	Receiver     string            `json:"receiver"`
	Status       string            `json:"status"`
	Alerts       []told            `json:"alerts"`
	GroupLabels  map[string]string `json:"groupLabels"`
	CommonLabels map[string]string `json:"commonLabels"`
	ExternalURL  string            `json:"externalURL"`
}

// newMessage makes a message of alerts. What is grouped by, they have in common.
func newMessage(groupBy []string, alerts ...told) message {
	m := message{Receiver: "page", Status: "resolved", Alerts: alerts, ExternalURL: "http://monitoring.example:9093", GroupLabels: map[string]string{}, CommonLabels: map[string]string{}}
	for name, value := range alerts[0].Labels {
		common := true
		for _, a := range alerts {
			common = common && a.Labels[name] == value
		}
		if common {
			m.CommonLabels[name] = value
		}
	}
	for _, name := range groupBy {
		if value, ok := alerts[0].Labels[name]; ok {
			m.GroupLabels[name] = value
		}
	}
	for _, a := range alerts {
		if a.Status == "firing" {
			m.Status = "firing"
		}
	}
	return m
}

// say returns an alert of the tables that fires, with the annotations that all have.
func say(name, unit string) told {
	a := unitAlert(name, "gpu1.example", unit)
	return told{
		Status: "firing", Labels: a.Labels, StartsAt: time.Date(2026, 3, 1, 12, 2, 3, 0, time.UTC),
		Annotations: map[string]string{
			"summary": "Summary of " + name + ".", "description": "Description of " + name + ".", "runbook_url": docsURL + "runbooks/" + name + ".md",
		},
	}
}

// because adds the card of a root cause.
func (a told) because(class, exception, process, text string) told {
	for name, value := range map[string]string{"class": class, "exception": exception, "process": process, "message": text, "remediation": docsURL + "failures.md#" + class} {
		a.Annotations[name] = value
	}
	return a
}

func (a told) resolved() told {
	a.Status, a.EndsAt = "resolved", a.StartsAt.Add(12*time.Minute+1500*time.Millisecond)
	return a
}

const mismatch = "RuntimeError: flashinfer-cubin version (0.6.3) does not match flashinfer version (0.6.4). Please install the same version of both packages."

// outside is what a log, or whoever can post alerts, may say to do harm.
const outside = "<!channel> <https://evil.example|ok> & <script>alert(1)</script> \"'`code` *bold* _it_ ~no~ @here\r\nclass: fine\t\x1b[31m\u202eabc\u2028{{ .Labels }}"

// messages are what is rendered, by name.
func messages() map[string]message {
	unit := []string{"job", "instance", "host", "unit"}
	const name = "vllm-kimi-k25.service"
	crash := func() told {
		return say("LLMStartupFailed", name).because("package_mismatch", "RuntimeError", "EngineCore", mismatch)
	}
	loop := func() told {
		return say("LLMStartupRestartLoop", name).because("gpu_memory_occupied", "ValueError", "Worker_TP3", "ValueError: Free memory on device (31.0/79.2 GiB) is less than desired GPU memory utilization (0.9).")
	}
	missing := say("LLMStartupFailed", name)
	missing.Annotations = nil
	missing.Labels = map[string]string{"alertname": "LLMStartupFailed"}
	hostile := say("LLMStartupFailed", `vllm-\x2d"a" <b>&.service`).because(outside, outside, outside, outside)
	hostile.Annotations["remediation"], hostile.Annotations["runbook_url"] = "javascript:alert(1)", "https://x.example/|<!here>"
	hostile.Annotations["description"] = outside
	fleet := []told{}
	for i := range 23 {
		a := say("LLMStartupFailed", fmt.Sprintf("vllm-%d.service", i)).because("disk_full", "OSError", "APIServer", "OSError: [Errno 28] No space left on device")
		if i%4 == 0 {
			a = say("StartupdDown", "")
		}
		a.Labels["host"] = fmt.Sprintf("gpu%d.example", i)
		fleet = append(fleet, a)
	}
	all := say("StartupdDown", "")
	all.Labels = map[string]string{"alertname": "StartupdDown", "severity": "critical", "job": "startupd"}
	return map[string]message{
		"crash": newMessage(unit, crash()),
		"loop":  newMessage(unit, say("LLMServingProbeDisagrees", name), say("LLMStartupStalled", name).resolved(), crash(), loop()),
		"stall": newMessage(unit, say("LLMStartupStalled", name)),
		"gpus":  newMessage(unit, say("GPUXidDuringStartup", ""), say("LLMGPUForeignMemory", "")),
		"blind": newMessage([]string{"alertname", "job"}, say("StartupdBlind", "")),
		"all":   newMessage([]string{"alertname", "job"}, all),
		// A good start after a loop.
		"resolved": newMessage(unit, crash().resolved(), loop().resolved()),
		"missing":  newMessage(unit, missing),
		"hostile":  newMessage(unit, hostile),
		"fleet":    newMessage([]string{"severity"}, fleet...),
	}
}

// render has amtool fill a template with a message.
func render(t *testing.T, name, data string) string {
	t.Helper()
	kind := "text"
	if name == "startupd.html" {
		kind = "html"
	}
	out, err := amtool(t, "template", "render", "--template.glob="+notifierTemplates, "--template.type="+kind,
		`--template.text={{ template "`+name+`" . }}`, "--template.data="+data)
	if err != nil {
		t.Fatalf("%s: %v\n%s", name, err, out)
	}
	return out
}

// renderAll returns what each template that receivers call makes of a message.
func renderAll(t *testing.T, m message) map[string]string {
	t.Helper()
	text, err := json.Marshal(m)
	if err != nil {
		t.Fatal(err)
	}
	data := filepath.Join(t.TempDir(), "data.json")
	if err := os.WriteFile(data, text, 0o600); err != nil {
		t.Fatal(err)
	}
	out := map[string]string{}
	for _, name := range templateNames() {
		out[name] = render(t, name, data)
	}
	return out
}

func templateNames() []string {
	return []string{"startupd.title", "startupd.text", "startupd.slack.title", "startupd.slack.text", "startupd.link", "startupd.color", "startupd.html"}
}

// TestMessages compares the messages with testdata, which was read by people.
func TestMessages(t *testing.T) {
	for name, m := range messages() {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var s strings.Builder
			rendered := renderAll(t, m)
			for _, template := range templateNames() {
				got := rendered[template]
				if strings.Contains(got, "<no value>") || strings.TrimSpace(got) == "" {
					t.Errorf("%s: a hole in %q", template, got)
				}
				fmt.Fprintf(&s, "==== %s\n%s\n", template, strings.TrimRight(got, "\n"))
			}
			golden(t, "message_"+name+".golden", s.String())
		})
	}
}

// golden compares a text with a file of testdata, and writes it by -update.
func golden(t *testing.T, name, got string) {
	t.Helper()
	path := filepath.Join("testdata", name)
	if *update {
		if err := os.MkdirAll("testdata", 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(want), got); diff != "" {
		t.Errorf("%s differs (go test ./test/deploy -update rewrites it):\n%s", path, diff)
	}
}

// TestHostileTextDoesNoHarm looks for what must be in no message, whatever the
// golden file says.
func TestHostileTextDoesNoHarm(t *testing.T) {
	got := renderAll(t, messages()["hostile"])
	for name, text := range got {
		for _, r := range text {
			if r != '\n' && (unicode.Is(unicode.Cc, r) || unicode.In(r, unicode.Zl, unicode.Zp) || unicode.Is(unicode.Cf, r) && r != '\u200b') {
				t.Errorf("%s has %U", name, r)
			}
		}
		if strings.Contains(text, "\nclass: fine") {
			t.Errorf("%s: the message forges a line of its own: %s", name, text)
		}
	}
	for _, name := range []string{"startupd.title", "startupd.slack.title", "startupd.link", "startupd.color"} {
		if strings.Contains(got[name], "\n") {
			t.Errorf("%s has two lines: %q", name, got[name])
		}
	}
	own := regexp.MustCompile(`<http://monitoring\.example:9093/#/silences/new\?[^|<>\s]*\|Silence>`)
	code := regexp.MustCompile("`[^`\n]*`")
	for _, name := range []string{"startupd.slack.title", "startupd.slack.text"} {
		text := own.ReplaceAllString(got[name], "")
		if strings.ContainsAny(text, "<>") {
			t.Errorf("%s lets a mark of Slack's through: %s", name, got[name])
		}
		for _, bad := range []string{"`", "*bold", "_it", "~no", "@here"} {
			if name == "startupd.slack.text" && strings.Contains(code.ReplaceAllString(text, ""), bad) {
				t.Errorf("%s formats or names somebody by %q: %s", name, bad, got[name])
			}
		}
	}
	html := got["startupd.html"]
	for _, bad := range []string{"<script", "<!channel", "<!here", "javascript:", "<b>&amp;"} {
		if strings.Contains(strings.ToLower(html), bad) {
			t.Errorf("the HTML has %q:\n%s", bad, html)
		}
	}
	if m := regexp.MustCompile(`href="[^"]*"`).FindAllString(html, -1); len(m) != 1 || !strings.HasPrefix(m[0], `href="http://monitoring.example:9093/#/silences/new?filter=`) {
		t.Errorf("the HTML links to %q", m)
	}
}

// TestCardIsComplete proves that a message has what its reader needs.
func TestCardIsComplete(t *testing.T) {
	for name, text := range renderAll(t, messages()["crash"]) {
		var want []string
		switch name {
		case "startupd.text", "startupd.html", "startupd.slack.text":
			want = []string{"vllm-kimi-k25.service", "gpu1.example", "package_mismatch", "RuntimeError", "EngineCore", mismatch, docsURL + "failures.md#package_mismatch", docsURL + "runbooks/LLMStartupFailed.md"}
		case "startupd.title":
			want = []string{"[CRITICAL] LLMStartupFailed: vllm-kimi-k25.service on gpu1.example: package_mismatch"}
		}
		for _, w := range want {
			if !strings.Contains(text, w) {
				t.Errorf("%s lacks %q:\n%s", name, w, text)
			}
		}
	}
}
