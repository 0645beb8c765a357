package phases

import (
	"slices"
	"strconv"
	"strings"

	"github.com/startupd/startupd/pkg/profile"
)

// engine keeps what a line tells of the engine itself.
func (m *Machine) engine(r *profile.Record) {
	e := &m.cur.pub.Engine
	if m.profile != nil {
		e.Name = m.profile.Engine
	}
	if !slices.ContainsFunc(r.Rule.Captures, tellsEngine) {
		return
	}
	for _, name := range r.Rule.Captures {
		if pkg, ok := strings.CutSuffix(name, "_version"); ok {
			m.cur.version(pkg, r.Capture(name))
		}
	}
	if args := r.Capture("args"); args != "" && m.cur.pub.Arguments == nil {
		m.cur.pub.Arguments = parseArguments(args)
	}
	keep(&e.Version, r.Capture("version"))
	keep(&e.Model, r.Capture("model"))
	if port, err := strconv.ParseUint(r.Capture("port"), 10, 16); err == nil && port > 0 {
		e.Port = int(port)
	}
	if host := r.Capture("host"); host != "" {
		e.Host = clip(host)
	}
}

// tellsEngine says whether a capture of that name describes the engine. The
// others are not worth a second match of the line.
func tellsEngine(capture string) bool {
	switch capture {
	case "version", "model", "host", "port", "addr", "args":
		return true
	}
	return strings.HasSuffix(capture, "_version")
}

// version keeps the version of a package that a line tells; the first one, as
// processes repeat it.
func (s *startup) version(pkg, value string) {
	if value == "" || s.pub.Versions[pkg] != "" || len(s.pub.Versions) == maxVersions {
		return
	}
	if s.pub.Versions == nil {
		s.pub.Versions = map[string]string{}
	}
	s.pub.Versions[pkg] = clip(value)
}

// keep takes the first value told: a later line may speak of a draft model.
func keep(field *string, value string) {
	if *field == "" && value != "" {
		*field = strings.Clone(clip(value))
	}
}

// size keeps the weights' size on one GPU, the largest told.
func (m *Machine) size(r *profile.Record) {
	if r.Rule.Weights == "" {
		return
	}
	n, ok := r.Number(r.Rule.Weights)
	if !ok || n <= 0 {
		return
	}
	if b := uint64(n); m.cur.weights == nil || b > *m.cur.weights {
		m.cur.weights = &b
	}
}
