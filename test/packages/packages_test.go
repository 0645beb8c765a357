//go:build e2e

package packages

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/startupd/startupd/test/nspawn"
)

// manager is a package manager's commands.
type manager struct {
	name            string
	install, remove []string
	// purge removes what remove leaves; nil where there is no such thing.
	purge []string
	// old and new are the packages, inside the container.
	old, new string
	// kept is where an edited configuration is after a removal.
	kept string
}

func managers(old, new packed) []manager {
	inside := func(version, path string) string { return filepath.Join("/e2e", version, filepath.Base(path)) }
	return []manager{
		{
			name: "deb", install: []string{"dpkg", "--force-unsafe-io", "--install"}, remove: []string{"dpkg", "--remove", "startupd"},
			purge: []string{"dpkg", "--purge", "startupd"}, kept: "/etc/default/startupd",
			old: inside(oldVersion, old.deb), new: inside(newVersion, new.deb),
		},
		{
			// This machine's rpm has no database of what dpkg has installed.
			name: "rpm", install: []string{"rpm", "--upgrade", "--nodeps", "--force-debian"}, remove: []string{"rpm", "--erase", "--force-debian", "startupd"},
			kept: "/etc/default/startupd.rpmsave",
			old:  inside(oldVersion, old.rpm), new: inside(newVersion, new.rpm),
		},
	}
}

func TestPackages(t *testing.T) {
	if os.Getuid() != 0 {
		t.Fatal("these tests boot a container: run them as root")
	}
	share, root := t.TempDir(), t.TempDir()
	old := build(t, filepath.Join(share, oldVersion), oldVersion)
	again := build(t, filepath.Join(share, "again"), oldVersion)
	t.Run("reproducible", func(t *testing.T) { testReproducible(t, old, again) })
	t.Run("content", func(t *testing.T) { testContent(t, old) })
	t.Run("lintian", func(t *testing.T) { testLintian(t, old) })

	upgrade := build(t, filepath.Join(share, newVersion), newVersion)
	c := nspawn.Boot(t, root, share)
	c.Write(t, "/etc/systemd/system/llm.service", "[Service]\nExecStart=sh -c 'echo it begins; exit 3'\n")
	c.Run(t, "rm", "-f", "/var/lib/man-db/auto-update") // the index of all manuals is not at stake
	for _, m := range managers(old, upgrade) {
		t.Run(m.name, func(t *testing.T) { testLife(t, &host{c}, m) })
	}
}

// testLife follows a package from its installation to its end.
func testLife(t *testing.T, h *host, m manager) {
	out := h.Run(t, append(m.install, m.old)...)
	if !strings.Contains(out, "systemctl enable --now startupd") {
		t.Errorf("the installation says %q, not how to go on", out)
	}
	h.wantUnit(t, "disabled", "inactive")
	h.wantInstalled(t, oldVersion)
	h.wantExample(t)

	edited := "# edited by the administrator\nARGS=\"--unit llm.service --no-gpu --web.listen-address 127.0.0.1:10944\"\n"
	h.Write(t, "/etc/default/startupd", edited)
	h.Run(t, "systemctl", "enable", "--now", service)
	h.wantUnit(t, "enabled", "active")
	_, _ = h.Try("systemctl", "start", "llm.service")
	h.until(t, `startupd_startups_total{outcome="failed",unit="llm.service"} 1`)
	h.wantHistory(t, 1)

	before := h.Property(t, service, "MainPID")
	h.Run(t, append(m.install, m.new)...)
	h.wantUnit(t, "enabled", "active")
	if after := h.Property(t, service, "MainPID"); after == before || after == "0" {
		t.Errorf("main process %s before the upgrade, %s after it", before, after)
	}
	h.until(t, `version="`+newVersion+`"} 1`, `startupd_startups_total{outcome="failed",unit="llm.service"} 1`)
	h.wantFile(t, "/etc/default/startupd", edited)
	h.wantHistory(t, 1)

	h.Run(t, m.remove...)
	h.wantGone(t, "/usr/bin/startupd", "/usr/lib/systemd/system/startupd.service", "/usr/share/man/man1/startupd.1.gz",
		"/etc/systemd/system/multi-user.target.wants/startupd.service")
	if state := h.Property(t, service, "ActiveState"); state != "inactive" {
		t.Errorf("removed, the service is %s", state)
	}
	h.wantFile(t, m.kept, edited)
	h.Run(t, "test", "-s", "/var/lib/startupd/history.db")

	testSecondLife(t, h, m)
}

// testSecondLife installs and upgrades once more, this time without a running
// daemon, and removes everything.
func testSecondLife(t *testing.T, h *host, m manager) {
	h.Run(t, append(m.install, m.old)...)
	h.Run(t, append(m.install, m.new)...)
	h.wantUnit(t, "disabled", "inactive")
	h.wantInstalled(t, newVersion)
	h.wantHistory(t, 1)
	h.Run(t, m.remove...)
	if m.purge == nil {
		h.Run(t, "rm", "-rf", "/var/lib/startupd", m.kept)
	} else {
		h.Run(t, m.purge...)
	}
	h.wantGone(t, "/etc/default/startupd", "/etc/startupd", "/var/lib/startupd", "/usr/share/doc/startupd", "/run/startupd")
}

const service = "startupd.service"

// host is the container as the administrator sees it.
type host struct{ *nspawn.Container }

func (h *host) wantUnit(t *testing.T, enabled, active string) {
	t.Helper()
	for property, want := range map[string]string{"UnitFileState": enabled, "ActiveState": active} {
		if got := h.Property(t, service, property); got != want {
			t.Errorf("%s of %s is %s, want %s:\n%s", property, service, got, want, h.log())
		}
	}
}

func (h *host) log() string {
	out, _ := h.Try("journalctl", "--unit="+service, "--lines=30", "--no-pager", "--output=cat")
	return out
}

// wantInstalled uses what the package brings: program, user, manual, completion
// and the default configuration.
func (h *host) wantInstalled(t *testing.T, version string) {
	t.Helper()
	for _, tt := range []struct {
		want    string
		command []string
	}{
		{"startupd " + version + " ", []string{"startupd", "version"}},
		{"startupd", []string{"id", "--name", "--user", "startupd"}},
		{"/usr/share/man/man1/startupd-explain.1.gz", []string{"man", "--where", "startupd-explain"}},
		{"complete -F _startupd startupd", []string{"bash", "-c", "source /usr/share/bash-completion/bash_completion; _completion_loader startupd; complete -p startupd"}},
		{"list units under `targets:`", []string{"sh", "-c", "startupd serve --config.file /etc/startupd/startupd.yml --api.socket '' 2>&1; test $? = 2"}},
		{"OK", []string{"sh", "-c", "systemd-analyze verify startupd.service && echo OK"}},
	} {
		if got := h.Run(t, tt.command...); !strings.Contains(got, tt.want) {
			t.Errorf("%q says %q, want %q", tt.command, got, tt.want)
		}
	}
}

// wantExample turns the comments of the default configuration into lines: the
// daemon must take them, and run until it is told to end.
func (h *host) wantExample(t *testing.T) {
	t.Helper()
	const run = `sed '/^#targets:/,$ s/^#//' /etc/startupd/startupd.yml >/tmp/startupd.yml
timeout --preserve-status 2 startupd serve --config.file /tmp/startupd.yml --no-gpu --state.dir '' --api.socket '' --web.listen-address 127.0.0.1:0 2>&1`
	if out := h.Run(t, "sh", "-c", run); !strings.Contains(out, "startupd begins") {
		t.Errorf("with the example of the default configuration startupd says %q", out)
	}
}

// until waits until a scrape has each of the lines, or line ends.
func (h *host) until(t *testing.T, lines ...string) {
	t.Helper()
	nspawn.Eventually(t, 20*time.Second, func() error {
		text, err := h.Try("curl", "--silent", "--show-error", "--fail", "--max-time", "5", "http://127.0.0.1:10944/metrics")
		if err != nil {
			return fmt.Errorf("%w: %s\n%s", err, text, h.log())
		}
		for _, l := range lines {
			if !strings.Contains(text, l+"\n") {
				return fmt.Errorf("no %q in:\n%s", l, grep(text, "startupd_startups_total", "startupd_build_info", "startupd_phase{"))
			}
		}
		return nil
	})
}

func grep(text string, words ...string) string {
	var b strings.Builder
	for line := range strings.Lines(text) {
		for _, w := range words {
			if strings.HasPrefix(line, w) {
				b.WriteString(line)
			}
		}
	}
	return b.String()
}

// wantHistory counts the startups that the daemon has kept of llm.service.
func (h *host) wantHistory(t *testing.T, want int) {
	t.Helper()
	nspawn.Eventually(t, 10*time.Second, func() error {
		out, err := h.Try("startupd", "history", "--unit", "llm.service", "--format", "json")
		if got := strings.Count(out, `"began"`); err != nil || got != want {
			return fmt.Errorf("%d startups in the history, want %d: %w\n%s", got, want, err, out)
		}
		return nil
	})
}

func (h *host) wantFile(t *testing.T, path, want string) {
	t.Helper()
	if got := h.Run(t, "cat", path); got != strings.TrimSpace(want) {
		t.Errorf("%s is %q, want %q", path, got, want)
	}
}

func (h *host) wantGone(t *testing.T, paths ...string) {
	t.Helper()
	for _, p := range paths {
		if out, err := h.Try("test", "!", "-e", p, "-a", "!", "-L", p); err != nil {
			t.Errorf("%s is still there %s", p, out)
		}
	}
}
