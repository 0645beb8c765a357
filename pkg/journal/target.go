package journal

import (
	"fmt"
	"path"
	"strings"
)

// TargetSpec says which journal entries belong to a target. Exactly one of
// Unit, Container and Cgroup is set; several specs may share a Name.
type TargetSpec struct {
	// Name is the target of the events; "" takes the unit's, the container's or
	// the control group's own name. With a glob each unit is a target of its
	// own name, and Name must be "".
	Name string
	// Unit is a systemd unit ("llm.service") or a glob as of path.Match
	// ("llm@*.service").
	Unit string
	// Container is the CONTAINER_NAME that the journald log driver of Docker or
	// Podman sets.
	Container string
	// Cgroup is a control group as in _SYSTEMD_CGROUP ("/kubepods.slice/..."),
	// with all below it.
	Cgroup string
}

// Validate says what is wrong with the spec; nil when nothing is.
func (t TargetSpec) Validate() error {
	set := 0
	for _, s := range []string{t.Unit, t.Container, t.Cgroup} {
		if s != "" {
			set++
		}
	}
	if set != 1 {
		return fmt.Errorf("target %q: set exactly one of unit, container and cgroup", t.Name)
	}
	if t.Unit == "" {
		return nil
	}
	if _, err := path.Match(strings.ReplaceAll(t.Unit, `\`, `\\`), ""); err != nil {
		return fmt.Errorf("unit %q is no valid glob: %w; close each [", t.Unit, err)
	}
	if t.isGlob() && t.Name != "" {
		return fmt.Errorf("unit %q is a glob: each unit is its own target, remove the name %q", t.Unit, t.Name)
	}
	if !strings.Contains(t.Unit, ".") && !t.isGlob() {
		return fmt.Errorf("unit %q has no suffix: write %s.service", t.Unit, t.Unit)
	}
	return nil
}

// matchUnit says that a glob matches the unit's name. A backslash is part of
// systemd's escaped names (llm\x2dbig.service) and stands for itself.
func matchUnit(glob, unit string) bool {
	ok, _ := path.Match(strings.ReplaceAll(glob, `\`, `\\`), unit) // Validate knows it is valid
	return ok
}

// isGlob says that Unit may stand for several units.
func (t TargetSpec) isGlob() bool { return strings.ContainsAny(t.Unit, "*?[") }

// target is the event.Target of a spec that is no glob.
func (t TargetSpec) target() string {
	for _, s := range []string{t.Name, t.Unit, t.Container} {
		if s != "" {
			return s
		}
	}
	return t.Cgroup
}
