package profile

import (
	"regexp"
	"slices"
	"strings"
	"testing"
	"testing/fstest"

	"github.com/google/go-cmp/cmp"
)

// What a file says takes the place of what its base says, setting by setting.
func TestPreflightExtends(t *testing.T) {
	set, err := acme(t).Extend(fstest.MapFS{
		"1.yaml": {Data: []byte(`
schema: startupd-profile/v1
extends: acme
preflight:
  package: acme-serve
  gpus: true
  memory_overhead: 512MiB
  visible_gpus: [ACME_GPUS]
  settings:
    port: {flags: [--port], defaults: [{value: '7000'}]}
    model: {flags: [--model], first: true}
  shared_memory: {least: 64MiB, good: 1GiB}
  directories:
    - {name: downloads, paths: ['${ACME_HOME}', /srv], room: 1GiB}
  model_cache: {directory: downloads, folder: '{model}', files: ['*.bin']}
  equal:
    - {packages: [a, b], exact: true, reason: it fails}
  pins: [a, b]
`)},
		"2.yaml": {Data: []byte(`
schema: startupd-profile/v1
extends: acme
preflight:
  gpus: false
  settings:
    port: {flags: [--listen]}
  pins: [c]
`)},
	})
	if err != nil {
		t.Fatal(err)
	}
	want := &Preflight{
		Package: "acme-serve", MemoryOverhead: 512 << 20, VisibleGPUs: []string{"ACME_GPUS"},
		Settings: map[string]Setting{
			SettingPort:  {Flags: []string{"--listen"}},
			SettingModel: {Flags: []string{"--model"}, First: true},
		},
		SharedMemory: &SharedMemory{Least: 64 << 20, Good: 1 << 30},
		Directories:  []Directory{{Name: "downloads", Paths: []string{"${ACME_HOME}", "/srv"}, Room: 1 << 30}},
		ModelCache:   &ModelCache{Directory: "downloads", Folder: "{model}", Files: []string{"*.bin"}},
		Equal:        []EqualPackages{{Packages: []string{"a", "b"}, Exact: true, Reason: "it fails"}},
		Pins:         []string{"c"},
	}
	if d := cmp.Diff(want, set.Profile("acme").Preflight); d != "" {
		t.Errorf("(-want +got)\n%s", d)
	}
	if p := acme(t).Profile("acme").Preflight; p != nil {
		t.Errorf("the base was changed: %+v", p)
	}
}

// The built-in data are whole: every reference is to something that is there.
func TestBuiltinPreflight(t *testing.T) {
	set, err := Builtin()
	if err != nil {
		t.Fatal(err)
	}
	reference := regexp.MustCompile(`(^|[^$])\{(\w+)\}`)
	for _, p := range set.Profiles() {
		pre := p.Preflight
		if pre == nil {
			t.Errorf("%s has no preflight section", p.Engine)
			continue
		}
		for _, name := range []string{SettingModel, SettingPort, SettingMemoryShare, SettingTensorParallel} {
			if _, ok := pre.Settings[name]; !ok {
				t.Errorf("%s: no setting %s", p.Engine, name)
			}
		}
		for _, d := range pre.Directories {
			for _, path := range d.Paths {
				for _, m := range reference.FindAllStringSubmatch(path, -1) {
					if _, ok := pre.Settings[m[2]]; !ok {
						t.Errorf("%s: %s: no setting %s", p.Engine, path, m[2])
					}
				}
			}
			if last := d.Paths[len(d.Paths)-1]; strings.Contains(last, "{") && len(d.Paths) > 1 {
				t.Errorf("%s: %s: the last path %s is not always there", p.Engine, d.Name, last)
			}
		}
		seen := map[string]string{}
		for name, s := range pre.Settings {
			for _, f := range s.Flags {
				if other := seen[f]; other != "" {
					t.Errorf("%s: flag %s is of %s and %s", p.Engine, f, name, other)
				}
				seen[f] = name
			}
		}
		if !slices.Contains(pre.Pins, pre.Package) {
			t.Errorf("%s: its own package %s is not among the pins", p.Engine, pre.Package)
		}
	}
}

func TestParseSize(t *testing.T) {
	for text, want := range map[string]uint64{"1KiB": 1 << 10, "160MiB": 160 << 20, "2 GiB": 2 << 30, "1TiB": 1 << 40, "0GiB": 0} {
		if got, err := parseSize(text); err != nil || got != want {
			t.Errorf("%s: %d, %v", text, got, err)
		}
	}
	for _, bad := range []string{"", "1", "GiB", "-1GiB", "1.5GiB", "1GB", "99999999999999TiB"} {
		if got, err := parseSize(bad); err == nil {
			t.Errorf("%q is read as %d", bad, got)
		}
	}
}
