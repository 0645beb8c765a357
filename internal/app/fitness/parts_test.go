package fitness

import (
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/exporter-toolkit/web"

	"github.com/startupd/startupd/pkg/event"
	"github.com/startupd/startupd/pkg/journal"
	"github.com/startupd/startupd/pkg/web/api"
)

func TestArguments(t *testing.T) {
	for _, tt := range []struct {
		file string
		want []string
		bad  bool
	}{
		{file: "", want: []string{}},
		{file: "# ARGS=\"--no\"\nOTHER=1\n", want: []string{}},
		{file: "ARGS=\"\"\n", want: []string{}},
		{file: "ARGS=\"--unit a.service --no-gpu\"\n", want: []string{"--unit", "a.service", "--no-gpu"}},
		{file: "  ARGS='--unit a'\nARGS=--unit=b\n", want: []string{"--unit=b"}},
		{file: "ARGS=\"--unit 'llm a.service'\"\n", want: []string{"--unit", "llm a.service"}},
		{file: "ARGS=\"--unit a \\\n  --unit b\"\n", want: []string{"--unit", "a", "--unit", "b"}},
		{file: "ARGS=\"--unit a\n", bad: true},
		{file: "ARGS=\"--unit 'a\"\n", bad: true},
	} {
		got, err := Arguments(tt.file)
		if (err != nil) != tt.bad || !tt.bad && !slices.Equal(got, tt.want) || !tt.bad && got == nil {
			t.Errorf("%q: %q, %v; want %q", tt.file, got, err, tt.want)
		}
	}
}

func TestParseSpan(t *testing.T) {
	for text, want := range map[string]time.Duration{
		"30": 30 * time.Second, "30s": 30 * time.Second, "1min 30s": 90 * time.Second, "1h20min": 80 * time.Minute, "500ms": 500 * time.Millisecond,
		"2 days": 48 * time.Hour, "0": 0, "infinity": infinite, "1.5s": 1500 * time.Millisecond, "99999999999999999999d": infinite,
	} {
		if got, err := parseSpan(text); err != nil || got != want {
			t.Errorf("%q: %v, %v; want %v", text, got, err, want)
		}
	}
	for _, text := range []string{"", " ", "soon", "3 parsecs", "s", "1..2s"} {
		if got, err := parseSpan(text); err == nil {
			t.Errorf("%q is %v", text, got)
		}
	}
}

func TestParseBytes(t *testing.T) {
	for text, want := range map[string]uint64{"48K": 48 << 10, "1G": 1 << 30, "512": 512, "1.5M": 3 << 19, "2T": 2 << 40} {
		if got, err := parseBytes(text); err != nil || got != want {
			t.Errorf("%q: %d, %v; want %d", text, got, err, want)
		}
	}
	for _, text := range []string{"", "lots", "-1", "K", "4KM"} {
		if got, err := parseBytes(text); err == nil {
			t.Errorf("%q is %d", text, got)
		}
	}
}

// put writes a file below root.
func put(t *testing.T, root, path, text string) {
	t.Helper()
	path = filepath.Join(root, path)
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

func TestJournaldConf(t *testing.T) {
	root := t.TempDir()
	conf, err := readJournald(root)
	if err != nil || len(conf) != 0 {
		t.Errorf("without a file: %v, %v", conf, err)
	}
	if r, err := conf.rate(); err != nil || r.String() != "10000 lines in 30s" {
		t.Errorf("default %v, %v", r, err)
	}
	put(t, root, "/usr/lib/systemd/journald.conf", "[Journal]\nStorage=none\n")
	put(t, root, "/etc/systemd/journald.conf", "[Journal]\n#Storage=auto\nStorage=volatile\nLineMax=1K\n[Other]\nLineMax=2K\n")
	put(t, root, "/usr/lib/systemd/journald.conf.d/20-b.conf", "[Journal]\nRateLimitIntervalSec=1min\nRateLimitBurst=5\n")
	put(t, root, "/etc/systemd/journald.conf.d/20-b.conf", "[Journal]\nRateLimitIntervalSec=10s\n")
	put(t, root, "/run/systemd/journald.conf.d/10-a.conf", "[Journal]\nRateLimitBurst=500\n")
	put(t, root, "/etc/systemd/journald.conf.d/30-c.conf", "[Journal]\nStorage=\n")
	conf, err = readJournald(root)
	want := journald{"LineMax": "1K", "RateLimitIntervalSec": "10s", "RateLimitBurst": "500"}
	if diff := cmp.Diff(want, conf); diff != "" || err != nil {
		t.Errorf("%v %s", err, diff)
	}
	if r, err := conf.rate(); err != nil || r.perSecond() != 50 {
		t.Errorf("%v, %v", r, err)
	}
	for _, bad := range []journald{{"RateLimitBurst": "many"}, {"RateLimitIntervalSec": "soon"}} {
		if _, err := bad.rate(); err == nil {
			t.Errorf("%v is taken", bad)
		}
	}
}

func TestJudgeRate(t *testing.T) {
	for _, tt := range []struct {
		limit rate
		sum   journal.Suppressed
		want  Status
		text  string
	}{
		{rate{30 * time.Second, 10000}, journal.Suppressed{}, OK, "nothing was dropped"},
		{rate{30 * time.Second, 1000}, journal.Suppressed{}, Warning, "lines would be lost"},
		{rate{}, journal.Suppressed{}, OK, "no limit"},
		{rate{30 * time.Second, 10000}, journal.Suppressed{Times: 2, Lines: 42, Last: event.Stamp{Real: time.Now()}}, Warning, "dropped 42 lines"},
	} {
		got := judgeRate("a.service", tt.limit, tt.limit.String(), tt.sum)
		if got.status != tt.want || !strings.Contains(got.detail, tt.text) || (tt.want == Warning) != (len(got.write) == 1) {
			t.Errorf("%v: %+v", tt, got)
		}
	}
}

func TestLineMax(t *testing.T) {
	o := newOptions(t, fakeBus{}, "a")
	put(t, o.Root, "/etc/systemd/journald.conf", "[Journal]\nLineMax=4K\n")
	if got := one(t, o, "journal_line", ""); got.Status != Warning || !strings.Contains(got.Detail, "4.0 KiB") {
		t.Errorf("%+v", got)
	}
	put(t, o.Root, "/etc/systemd/journald.conf", "[Journal]\nLineMax=long\n")
	if got := one(t, o, "journal_line", ""); got.Status != NotKnown {
		t.Errorf("%+v", got)
	}
}

func TestJudgeDaemon(t *testing.T) {
	source := func(name string, up bool) api.Source {
		return api.Source{Source: name, Up: up, State: "hung", Reason: "for a reason"}
	}
	for _, tt := range []struct {
		status api.Status
		want   Status
		text   string
	}{
		{api.Status{Version: "1", Sources: []api.Source{source("journal", true), source("gpu", true)}}, OK, "2 sources up"},
		{api.Status{Version: "1", Sources: []api.Source{source("journal", true), source("gpu", false)}}, Warning, "gpu is hung (for a reason)"},
		{api.Status{Version: "1", Sources: []api.Source{source("journal", false)}}, Fail, "journal is hung"},
		{api.Status{Version: "2"}, Warning, "version 2 runs, this program is 1"},
	} {
		if got := judgeDaemon(&tt.status, "1"); got.status != tt.want || !strings.Contains(got.detail, tt.text) {
			t.Errorf("%+v, want %s with %q", got, tt.want, tt.text)
		}
	}
}

func TestJudgeGPU(t *testing.T) {
	one := event.GPU{Name: "A", Processes: []event.GPUProcess{}}
	for _, tt := range []struct {
		state event.SourceState
		gpus  []event.GPU
		want  Status
		text  string
	}{
		{event.SourceState{Up: true, State: "up"}, []event.GPU{one, one, {Name: "B", Processes: []event.GPUProcess{}}}, OK, "2 x A, 1 x B, driver 580.1"},
		{event.SourceState{Up: true, State: "up"}, []event.GPU{{Name: "A"}}, Warning, "can't be listed"},
		{event.SourceState{Up: true, State: "gpu_lost", Reason: "GPU 1: lost"}, []event.GPU{one, {Name: "A", Lost: "lost"}}, Warning, "gpu_lost"},
		{event.SourceState{State: "no_driver", Reason: "no library"}, nil, Warning, "no library"},
		{event.SourceState{State: "hung", Reason: "does not return"}, nil, Fail, "hung"},
	} {
		if got := judgeGPU(tt.state, tt.gpus, "580.1"); got.status != tt.want || !strings.Contains(got.detail, tt.text) {
			t.Errorf("%+v, want %s with %q", got, tt.want, tt.text)
		}
	}
}

func TestRunningUser(t *testing.T) {
	id, err := runningUser("Name:\tstartupd\nUid:\t990\t991\t990\t990\nGid:\t988\t989\t988\t988\nGroups:\t101 988 \n", "startupd", 7)
	if err != nil || id.UID != 991 || id.GID != 989 || !slices.Equal(id.Groups, []uint32{101, 988}) || !strings.Contains(id.Name, "process 7") {
		t.Errorf("%+v, %v", id, err)
	}
	for _, bad := range []string{"", "Uid:\tx\n", "Uid:\t1\t1\t1\t1\n"} {
		if id, err := runningUser(bad, "", 7); err == nil {
			t.Errorf("%q: %+v", bad, id)
		}
	}
}

func TestDaemonUser(t *testing.T) {
	root := t.TempDir()
	if id, err := DaemonUser(t.Context(), fakeBus{}, root); id != nil || err != nil {
		t.Errorf("not installed: %+v, %v", id, err)
	}
	bus := fakeBus{Service: properties{"LoadState": "loaded", "User": "no-such-user-here"}}
	if id, err := DaemonUser(t.Context(), bus, root); err == nil || !strings.Contains(err.Error(), "systemd-sysusers") {
		t.Errorf("no such user: %+v, %v", id, err)
	}
	bus[Service] = properties{"LoadState": "loaded", "User": "root", "SupplementaryGroups": []string{"root"}, "Environment": []string{"A=b"}}
	if id, err := DaemonUser(t.Context(), bus, root); err != nil || id.UID != 0 || !slices.Contains(id.Groups, 0) || !slices.Equal(id.Env, []string{"A=b"}) {
		t.Errorf("%+v, %v", id, err)
	}
	put(t, root, "/proc/7/status", "Uid:\t990\t990\t990\t990\nGid:\t988\t988\t988\t988\nGroups:\t101\n")
	bus[Service]["MainPID"] = uint32(7)
	if id, err := DaemonUser(t.Context(), bus, root); err != nil || id.UID != 990 {
		t.Errorf("%+v, %v", id, err)
	}
}

func TestRunningArguments(t *testing.T) {
	o := newOptions(t, fakeBus{Service: properties{"LoadState": "loaded", "MainPID": uint32(7)}}, "a")
	put(t, o.Root, "/proc/7/cmdline", "/usr/bin/startupd\x00serve\x00--unit\x00a\x00")
	o.DaemonArgs = []string{"--unit", "a"}
	if got := one(t, o, "arguments", ""); got.Status != OK {
		t.Errorf("%+v", got)
	}
	o.DaemonArgs = []string{"--unit", "b"}
	if got := one(t, o, "arguments", ""); got.Status != Warning || !strings.Contains(got.Do, "restart") {
		t.Errorf("%+v", got)
	}
}

// TestListen tries addresses that are free, taken by startupd, by another server,
// by one that asks for a password, and ones that can't be.
func TestListen(t *testing.T) {
	serve := func(code int, body string) string {
		s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			w.WriteHeader(code)
			_, _ = w.Write([]byte(body))
		}))
		t.Cleanup(s.Close)
		return s.Listener.Addr().String()
	}
	secret := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte("startupd_build_info 1\n")) }))
	t.Cleanup(secret.Close)
	mute, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	mute.Close()
	for _, tt := range []struct {
		addr string
		want Status
		text string
	}{
		{"127.0.0.1:0", OK, "is free"},
		{serve(200, "startupd_build_info{version=\"1\"} 1\n"), OK, "running daemon's"},
		{secret.Listener.Addr().String(), OK, "running daemon's"},
		{serve(200, "node_uname_info 1\n"), Fail, "another process"},
		{serve(401, "no"), Warning, "password"},
		{"nonsense", Fail, "HOST:PORT"},
	} {
		none, file := false, ""
		o := newOptions(t, fakeBus{}, "a")
		o.App.Web = &web.FlagConfig{WebConfigFile: &file, WebListenAddresses: &[]string{tt.addr}, WebSystemdSocket: &none}
		if got := checkListen(t.Context(), newHost(t.Context(), o)); got.status != tt.want || !strings.Contains(got.detail+got.do, tt.text) {
			t.Errorf("%s: %+v, want %s with %q", tt.addr, got, tt.want, tt.text)
		}
	}
}

func TestState(t *testing.T) {
	bus := fakeBus{}
	o := newOptions(t, bus, "a")
	got := func() Result { return one(t, o, "state", "") }
	if r := got(); r.Status != Warning || !strings.Contains(r.Do, "--state.dir") {
		t.Errorf("none: %+v", r)
	}
	o.App.StateDir = "/var/lib/startupd"
	if r := got(); r.Status != Fail {
		t.Errorf("not there: %+v", r)
	}
	bus[Service] = properties{"LoadState": "loaded", "StateDirectory": []string{"startupd"}}
	if r := got(); r.Status != OK || !strings.Contains(r.Detail, "makes it") {
		t.Errorf("not there yet: %+v", r)
	}
	put(t, o.Root, "/var/lib/startupd/state.json", "{}")
	if r := got(); r.Status != OK && !strings.Contains(r.Detail, "are free") {
		t.Errorf("there: %+v", r)
	}
	o.App.History.MaxStartups = 10
	if r := one(t, o, "history", ""); r.Status != OK || !strings.Contains(r.Detail, "no startup") {
		t.Errorf("%+v", r)
	}
	put(t, o.Root, "/var/lib/startupd/history.db", strings.Repeat("nonsense", 10000))
	if r := one(t, o, "history", ""); r.Status != Warning {
		t.Errorf("%+v", r)
	}
}

// TestText: each line fits, commands are not broken, and nothing of a unit's name
// steers the terminal.
func TestText(t *testing.T) {
	no := false
	r := &Report{
		Version: "1.0.0", User: "user a\x1b[2J", Arguments: "the command line", Fit: &no, Counts: map[Status]int{OK: 1, Fail: 1},
		Checks: []Result{
			{Check: "bus", Title: "system bus", Status: OK, Detail: "systemd answers"},
			{
				Check: "unit_output", Title: "output", Unit: "a\x07.service", Status: Fail, Detail: strings.Repeat("word ", 40), Do: "systemctl restart\nnow",
				Write: dropIn("a.service", "output", "[Service]", "StandardOutput=journal"),
			},
		},
	}
	write := func(o TextOptions) string {
		var b strings.Builder
		if err := r.WriteText(&b, o); err != nil {
			t.Fatal(err)
		}
		return b.String()
	}
	text := write(TextOptions{Width: 80, All: true})
	for line := range strings.Lines(text) {
		if len(strings.TrimRight(line, "\n")) > 80 && !strings.Contains(line, "# /") {
			t.Errorf("%q is too wide", line)
		}
	}
	// Where the columns do not fit, the text stands below its title.
	if narrow := write(TextOptions{Width: 40, All: true}); !strings.Contains(narrow, "ok        system bus\n    systemd answers\n") || !strings.Contains(narrow, "\n    do: systemctl restart now\n") || strings.Contains(narrow, strings.Repeat("word ", 8)) {
		t.Errorf("at 40 columns\n%s", narrow)
	}
	if strings.ContainsAny(text, "\x1b\x07") {
		t.Errorf("control characters in %q", text)
	}
	for _, want := range []string{"systemd answers", "do: systemctl restart now", "# /etc/systemd/system/a.service.d/startupd-output.conf", "1 ok, 0 warnings, 1 failure, 0 not known: startupd is not fit"} {
		if !strings.Contains(text, want) {
			t.Errorf("no %q in\n%s", want, text)
		}
	}
	if brief := write(TextOptions{}); strings.Contains(brief, "systemd answers") || !strings.Contains(brief, "word word") {
		t.Errorf("brief is\n%s", brief)
	}
	if colored := write(TextOptions{Color: true}); !strings.Contains(colored, "\x1b[31;1mfail") {
		t.Errorf("no colour in %q", colored)
	}
}
