package arch

import (
	"fmt"
	"slices"
	"strings"
	"testing"
)

// layer says what a package may import from this module, and why not more.
type layer struct {
	may []string
	why string
}

const (
	sourceWhy = "a source reports facts; what they mean is the core's business"
	coreWhy   = "the core must give the same verdict live, in a replay and in a test"
)

// layers is the module's map. A package that is not in it has no place yet.
func layers() map[string]layer {
	source := layer{may: []string{"pkg/event"}, why: sourceWhy}
	return map[string]layer{
		"pkg/event":     {why: "everything speaks this vocabulary, so it can depend on nothing"},
		"pkg/journal":   source,
		"pkg/unit":      source,
		"pkg/gpu":       source,
		"pkg/host":      source,
		"pkg/health":    source,
		"internal/demo": source,
		"pkg/profile":   {may: []string{"pkg/event"}, why: coreWhy},
		"pkg/triage":    {may: []string{"pkg/event", "pkg/profile"}, why: coreWhy},
		"pkg/phases":    {may: []string{"pkg/event", "pkg/profile", "pkg/triage"}, why: coreWhy},
		"pkg/preflight": {may: []string{"pkg/event", "pkg/profile", "pkg/triage"}, why: "it compares what a profile says with the host; systemd's and the GPUs' looks are handed in"},
		"pkg/monitor":   {may: []string{"pkg/event", "pkg/phases"}, why: "the loop orders events; it knows no source and no reader of snapshots"},
		"pkg/history":   {may: []string{"pkg/event", "pkg/phases", "pkg/triage"}, why: "it stores what the core has decided"},
		"pkg/exporter":  {may: []string{"pkg/event", "pkg/phases", "pkg/triage"}, why: "a scrape reads a snapshot; it never waits for a source or the loop"},
		"pkg/web":       {may: []string{"pkg/event", "pkg/phases", "pkg/triage", "pkg/history"}, why: "a page reads a snapshot; it never waits for a source or the loop"},

		"tools/dashboards": {why: "it makes files that are delivered beside startupd, and shares no code with it"},
	}
}

// wiring says that dir may import anything of the module but test code.
func wiring(dir string) bool {
	return dir == "internal/app" || strings.HasPrefix(dir, "internal/app/") || strings.HasPrefix(dir, "cmd/")
}

// owner returns the package of layers that dir is, or is below.
func owner(dir string) string {
	parts := strings.SplitN(dir, "/", 3)
	return strings.Join(parts[:min(2, len(parts))], "/")
}

func directions(files []*source) []string {
	var problems []string
	known := layers()
	for _, s := range files {
		own := owner(s.dir)
		l, ok := known[own]
		if !ok && !wiring(s.dir) {
			problems = append(problems, fmt.Sprintf("%s: %s has no place in layers(): say what it may import and why", s.path, s.dir))
			continue
		}
		for imp, node := range s.imports() {
			dir, inside := strings.CutPrefix(imp, module+"/")
			if !inside {
				continue
			}
			to := owner(dir)
			switch {
			case strings.HasPrefix(dir, "test/"):
				problems = append(problems, fmt.Sprintf("%s imports %s: the product must not depend on test code", s.at(node), dir))
			case wiring(s.dir) || to == own || slices.Contains(l.may, to):
			default:
				problems = append(problems, fmt.Sprintf("%s: %s must not import %s: %s", s.at(node), s.dir, dir, l.why))
			}
		}
	}
	return problems
}

func TestImportDirections(t *testing.T) { report(t, directions(product(tree(t)))) }

func TestImportDirectionsCanFail(t *testing.T) {
	for _, tt := range []struct{ path, text, want string }{
		{"pkg/gpu/a.go", `package gpu; import _ "github.com/startupd/startupd/pkg/phases"`, "pkg/gpu must not import pkg/phases"},
		{"pkg/exporter/a.go", `package exporter; import _ "github.com/startupd/startupd/pkg/monitor"`, "pkg/exporter must not import pkg/monitor"},
		{"pkg/phases/sub/a.go", `package sub; import _ "github.com/startupd/startupd/internal/app"`, "pkg/phases/sub must not import internal/app"},
		{"pkg/extra/a.go", `package extra`, "pkg/extra has no place"},
		{"cmd/startupd/a.go", `package main; import _ "github.com/startupd/startupd/test/engine"`, "must not depend on test code"},
	} {
		wantProblem(t, directions, tt.path, tt.text, tt.want)
	}
	wantNone(t, directions, "cmd/startupd/a.go", `package main; import _ "github.com/startupd/startupd/pkg/gpu"`)
	wantNone(t, directions, "pkg/gpu/a.go", `package gpu; import _ "github.com/startupd/startupd/pkg/event"`)
}
