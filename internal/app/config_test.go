package app

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
)

func writeConfig(t *testing.T, text string) string {
	t.Helper()
	file := filepath.Join(t.TempDir(), "startupd.yml")
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return file
}

func TestLoadTargets(t *testing.T) {
	file := writeConfig(t, `
targets:
  - unit: a
    profile: engine
    gpus: [0, 1]
    expected_weights: 1.5GiB
    health: {url: "https://127.0.0.1:8000/health", insecure: true}
  - unit: b.service
    health: none
    container: llm
  - unit: c-*.service
`)
	got, err := LoadTargets([]string{"x@1", "y.scope"}, file, []string{"engine"})
	if err != nil {
		t.Fatal(err)
	}
	weights := uint64(3 << 29)
	want := []Target{
		{Unit: "x@1.service"},
		{Unit: "y.scope"},
		{
			Unit: "a.service", Profile: "engine", GPUs: []int{0, 1}, WeightBytes: &weights,
			Health: Health{URL: "https://127.0.0.1:8000/health", Insecure: true},
		},
		{Unit: "b.service", Health: Health{None: true}, Container: "llm"},
		{Unit: "c-*.service"},
	}
	if diff := cmp.Diff(want, got, cmpopts.IgnoreUnexported(Target{})); diff != "" {
		t.Error(diff)
	}
}

func TestLoadTargetsRefuses(t *testing.T) {
	const known = "unit, profile, gpus, health, expected_weights, container, cgroup"
	tests := []struct {
		name, config, want string
		units              []string
	}{
		{name: "nothing", want: "no unit to watch: name one with --unit llm.service (repeatable, globs allowed), or list targets in --config.file"},
		{name: "empty", config: "# only a comment\n", want: "FILE: the file is empty; list units under `targets:`"},
		{name: "no targets", config: "targets: []\n", want: "no unit to watch: name one with --unit llm.service (repeatable, globs allowed), or list targets in --config.file"},
		{name: "no yaml", config: "targets:\n\t- unit: a\n", want: "FILE:2: found character that cannot start any token; docs/configuration.md describes the format"},
		{name: "top field", config: "target: []\n", want: `FILE:1: unknown field "target"; known here: targets`},
		{name: "field", config: "targets:\n  - unit: a\n    gpu: [0]\n", want: `FILE:3: unknown field "gpu"; known here: ` + known},
		{name: "health field", config: "targets:\n  - unit: a\n    health:\n      uri: x\n", want: `FILE:4: unknown field "uri"; known here: url, insecure`},
		{name: "health word", config: "targets:\n  - unit: a\n    health: off\n", want: "FILE:3: health is either `none`, or a mapping with url and insecure; docs/configuration.md describes the format"},
		{name: "no unit", config: "targets:\n  - profile: engine\n", want: "FILE:2: the target has no unit; add `unit: NAME.service`"},
		{
			name: "size", config: "targets:\n  - unit: a\n    expected_weights: 73.7\n",
			want: `FILE:3: expected_weights "73.7" is no size; write a number with KiB, MiB, GiB, TiB, KB, MB, GB, TB or B, such as 73.7GiB; docs/configuration.md describes the format`,
		},
		{name: "type", config: "targets:\n  - unit: a\n    gpus: two\n", want: "FILE:3: cannot unmarshal !!str `two` into []int; docs/configuration.md describes the format"},
		{name: "twice", config: "targets:\n  - unit: a\n  - unit: b\n  - unit: a.service\n", want: "FILE:4: unit a.service is already named by FILE:2; remove one of them"},
		{name: "flag and file", units: []string{"a"}, config: "targets:\n  - unit: a\n", want: "FILE:2: unit a.service is already named by --unit a; remove one of them"},
		{name: "glob", units: []string{"a[b"}, want: `--unit a[b: "a[b.service" is no valid glob: an opening [ needs its ]; * ? and [a-z] are understood`},
		{name: "path", units: []string{"/etc/a"}, want: "--unit /etc/a: \"/etc/a.service\" is no unit's name; `systemctl list-units` shows them"},
		{name: "bytes", units: []string{"a\xff"}, want: "--unit a\xff: \"a\\xff.service\" is no unit's name; `systemctl list-units` shows them"},
		{
			name: "profile", config: "targets:\n  - unit: a\n    profile: none\n",
			want: `FILE:2: no profile for engine "none"; known: engine; add one with --profile.dir`,
		},
		{name: "gpu index", config: "targets:\n  - unit: a\n    gpus: [-1]\n", want: "FILE:2: GPU index -1; count from 0 as nvidia-smi does"},
		{
			name: "glob with container", config: "targets:\n  - unit: a-*\n    container: b\n",
			want: "FILE:2: container, cgroup and health.url belong to one unit, and a-*.service is a glob; name the unit",
		},
		{name: "cgroup", config: "targets:\n  - unit: a\n    cgroup: system.slice\n", want: `FILE:2: cgroup "system.slice" must begin with /, as in /proc/PID/cgroup`},
		{
			name: "health url", config: "targets:\n  - unit: a\n    health: {url: localhost}\n",
			want: `FILE:2: health.url: scheme "" is not supported: write http://, https:// or unix:/path/to/socket:/health`,
		},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			var file string
			if tt.config != "" {
				file = writeConfig(t, tt.config)
			}
			_, err := LoadTargets(tt.units, file, []string{"engine"})
			if !errors.Is(err, ErrConfig) {
				t.Fatalf("error %v is no ErrConfig", err)
			}
			got := err.Error()
			if file != "" {
				got = strings.ReplaceAll(got, file, "FILE")
			}
			if got != tt.want {
				t.Errorf("error\n got %s\nwant %s", got, tt.want)
			}
		})
	}
}

func TestLoadTargetsMissingFile(t *testing.T) {
	_, err := LoadTargets(nil, filepath.Join(t.TempDir(), "none.yml"), nil)
	if !errors.Is(err, ErrConfig) || !strings.Contains(err.Error(), "no such file") || !strings.Contains(err.Error(), "--config.file") {
		t.Errorf("error %v", err)
	}
}

func TestParseSize(t *testing.T) {
	for text, want := range map[string]uint64{
		"1B": 1, "2 KB": 2000, "1KiB": 1024, "0.5MiB": 1 << 19, "3MB": 3e6, "1GB": 1e9, "73.5GiB": 147 << 29, "1TiB": 1 << 40, "2TB": 2e12,
	} {
		if got, err := parseSize(text); err != nil || got != want {
			t.Errorf("%q: got %d, %v, want %d", text, got, err, want)
		}
	}
	for _, text := range []string{"", "GiB", "-1GiB", "0B", "NaNGiB", "InfGiB", "1e30TiB", "73.7", "1 gib", "0x1pGiB"} {
		if got, err := parseSize(text); err == nil {
			t.Errorf("%q: got %d, want an error", text, got)
		}
	}
}
