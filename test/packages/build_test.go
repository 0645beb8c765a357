//go:build e2e

package packages

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

const (
	oldVersion = "0.1.0"
	newVersion = "0.1.1"
	// epoch is when the packages say that they were made.
	epoch = "1790000000"
)

// packed is what one `make package` has made.
type packed struct{ deb, rpm string }

// build runs `make package` into a folder of its own below dir.
func build(t *testing.T, dir, version string) packed {
	t.Helper()
	cmd := exec.Command("make", "package", "VERSION="+version, "DIST="+dir)
	cmd.Dir = "../.."
	// Not this test's own make: its variables would overrule.
	cmd.Env = append(os.Environ(), "SOURCE_DATE_EPOCH="+epoch, "MAKEFLAGS=", "GOARCH=")
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("make package: %v\n%s", err, out)
	}
	one := func(pattern string) string {
		found, err := filepath.Glob(filepath.Join(dir, pattern))
		if err != nil || len(found) != 1 {
			t.Fatalf("%s in %s: %q, %v", pattern, dir, found, err)
		}
		return found[0]
	}
	return packed{deb: one("startupd_" + version + "-1_*.deb"), rpm: one("startupd-" + version + "-1.*.rpm")}
}

// tell runs a command that must work, and returns what it prints.
func tell(t *testing.T, name string, args ...string) string {
	t.Helper()
	out, err := exec.Command(name, args...).CombinedOutput()
	if err != nil {
		t.Fatalf("%s %s: %v\n%s", name, strings.Join(args, " "), err, out)
	}
	return string(out)
}

// testContent looks into the packages.
func testContent(t *testing.T, p packed) {
	both := []string{
		"/usr/bin/startupd", "/usr/lib/systemd/system/startupd.service", "/usr/lib/sysusers.d/startupd.conf",
		"/etc/default/startupd", "/etc/startupd/startupd.yml",
		"/usr/share/man/man1/startupd.1.gz", "/usr/share/man/man1/startupd-explain.1.gz",
		"/usr/share/bash-completion/completions/startupd", "/usr/share/fish/vendor_completions.d/startupd.fish",
		"/usr/share/doc/startupd/changelog.gz", "/usr/share/doc/startupd/docs/configuration.md",
		"/usr/share/doc/startupd/docs/runbooks/LLMStartupFailed.md", "/usr/share/doc/startupd/prometheus/alerts.rules.yml",
		"/usr/share/doc/startupd/alertmanager/templates/startupd.tmpl", "/usr/share/doc/startupd/grafana/dashboards/fleet.json",
	}
	for _, tt := range []struct {
		name, files, config, depends string
		more                         []string
	}{
		{"deb", tell(t, "dpkg-deb", "--fsys-tarfile", p.deb), tell(t, "dpkg-deb", "--info", p.deb, "conffiles"), tell(t, "dpkg-deb", "--field", p.deb, "Depends"),
			[]string{"/usr/share/zsh/vendor-completions/_startupd", "/usr/share/doc/startupd/copyright"}},
		{"rpm", tell(t, "rpm", "-qlp", p.rpm), tell(t, "rpm", "-qcp", p.rpm), tell(t, "rpm", "-qRp", p.rpm),
			[]string{"/usr/share/zsh/site-functions/_startupd", "/usr/share/licenses/startupd/LICENSE"}},
	} {
		for _, f := range append(both, tt.more...) {
			if !strings.Contains(tt.files, f) {
				t.Errorf("%s lacks %s", tt.name, f)
			}
		}
		if want := "/etc/default/startupd\n/etc/startupd/startupd.yml"; strings.TrimSpace(tt.config) != want {
			t.Errorf("%s: configuration files are %q, want %q", tt.name, tt.config, want)
		}
		if strings.Contains(tt.depends, "-dev") || !strings.Contains(tt.depends, "systemd") {
			t.Errorf("%s depends on %s", tt.name, tt.depends)
		}
	}
}

// testLintian has Debian's own checker judge the package.
func testLintian(t *testing.T, p packed) {
	if out := tell(t, "lintian", "--allow-root", "--fail-on", "error,warning", p.deb); out != "" {
		t.Errorf("lintian:\n%s", out)
	}
}

// testReproducible compares a second build with the first, byte by byte.
func testReproducible(t *testing.T, first, second packed) {
	for _, pair := range [][2]string{{first.deb, second.deb}, {first.rpm, second.rpm}} {
		a, err := os.ReadFile(pair[0])
		if err != nil {
			t.Fatal(err)
		}
		b, err := os.ReadFile(pair[1])
		if err != nil {
			t.Fatal(err)
		}
		if !bytes.Equal(a, b) {
			t.Errorf("two builds of %s differ", filepath.Base(pair[0]))
		}
	}
}
