package gpu

import (
	"strings"
)

// cgroup is what /proc/PID/cgroup tells of a process.
type cgroup struct {
	// path is the one that says most; "" when the file tells none.
	path string
	// unit is the innermost systemd unit, container the innermost container's
	// full ID; "" when there is none.
	unit, container string
}

// parseCgroup reads the content of /proc/PID/cgroup:
//
//	12:memory:/docker/3f2a...
//	1:name=systemd:/system.slice/llm.service
//	0::/system.slice/llm.service
//
// The unified hierarchy (0::) comes first, then systemd's own of a hybrid
// host, then the others: the first that names a unit or a container counts.
func parseCgroup(text string) cgroup {
	var unified, systemd string
	var others []string
	for line := range strings.Lines(text) {
		_, rest, ok := strings.Cut(strings.TrimSuffix(line, "\n"), ":")
		controllers, path, ok2 := strings.Cut(rest, ":")
		switch {
		case !ok || !ok2:
		case controllers == "":
			unified = path
		case controllers == "name=systemd":
			systemd = path
		default:
			others = append(others, path)
		}
	}
	best := cgroup{}
	for _, path := range append([]string{unified, systemd}, others...) {
		c := cgroup{path: path, unit: unitOf(path), container: containerOf(path)}
		if c.unit != "" || c.container != "" {
			return c
		}
		if len(best.path) <= 1 && path != "" {
			best = c
		}
	}
	return best
}

// unitOf returns the innermost unit in a cgroup path. Slices group units and
// are none themselves. A leading _ is systemd's escape (cg_escape).
func unitOf(path string) string {
	segments := strings.Split(path, "/")
	for i := len(segments) - 1; i >= 0; i-- {
		s := strings.TrimPrefix(segments[i], "_")
		for _, suffix := range [...]string{".service", ".scope", ".socket", ".mount", ".swap"} {
			if len(s) > len(suffix) && strings.HasSuffix(s, suffix) {
				return s
			}
		}
	}
	return ""
}

// containerOf returns the innermost container ID in a cgroup path, in all the
// forms that the runtimes write:
//
//	docker-<id>.scope  cri-containerd-<id>.scope  crio-<id>.scope  libpod-<id>.scope
//	/docker/<id>  /kubepods/burstable/pod<uid>/<id>  libpod-payload-<id>
//	kubepods-pod<uid>.slice:cri-containerd:<id>
//
// A container's monitor (crio-conmon-<id>, libpod-conmon-<id>) is not in it.
func containerOf(path string) string {
	segments := strings.Split(path, "/")
	for i := len(segments) - 1; i >= 0; i-- {
		s := strings.TrimSuffix(segments[i], ".scope")
		cut := strings.LastIndexAny(s, "-:")
		if id := s[cut+1:]; isContainerID(id) && !strings.HasSuffix(s[:cut+1], "conmon-") {
			return id
		}
	}
	return ""
}

// isContainerID says that s is 64 lower-case hex digits, as all the runtimes
// name containers.
func isContainerID(s string) bool {
	return len(s) == 64 && strings.Trim(s, "0123456789abcdef") == ""
}
