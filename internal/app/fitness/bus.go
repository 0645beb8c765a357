package fitness

import (
	"context"
	"math"
	"time"

	"github.com/startupd/startupd/pkg/unit"
)

// Bus is what is asked of systemd.
type Bus interface {
	// List returns the loaded units that match one of the globs.
	List(ctx context.Context, globs []string) ([]string, error)
	// Properties returns all D-Bus properties of a unit; of one that does not
	// exist, its LoadState is not-found.
	Properties(ctx context.Context, unit string) (map[string]any, error)
}

// SystemBus connects to systemd over the system bus.
func SystemBus(ctx context.Context) (Bus, error) {
	return unit.DialSystem(ctx, func(string) bool { return false })
}

// properties are a unit's, as D-Bus tells them. What is absent is not known.
type properties map[string]any

// properties returns a unit's, asked for once.
func (h *host) properties(ctx context.Context, name string) (properties, error) {
	h.mu.Lock()
	p, seen := h.props[name]
	h.mu.Unlock()
	if seen {
		return p, nil
	}
	bus, err := h.bus()
	if err != nil {
		return nil, err
	}
	p, err = bus.Properties(ctx, name)
	if err != nil {
		return nil, err
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	h.props[name] = p
	return p, nil
}

// loaded is properties of a unit that is there. Where it is not, another check has
// said so, and the outcome is not empty.
func (h *host) loaded(ctx context.Context, name string) (properties, outcome) {
	p, err := h.properties(ctx, name)
	if err != nil {
		return nil, unknown("systemd can't be asked", "see the check of the system bus")
	}
	if s := p.text("LoadState"); s != "loaded" && s != "masked" {
		return nil, unknown("the unit is not loaded", "see the check of the unit")
	}
	return p, outcome{}
}

func (p properties) text(name string) string {
	s, _ := p[name].(string)
	return s
}

func (p properties) texts(name string) []string {
	s, _ := p[name].([]string)
	return s
}

func (p properties) flag(name string) bool {
	b, _ := p[name].(bool)
	return b
}

// number is an unsigned property; ok is false where it is not told.
func (p properties) number(name string) (n uint64, ok bool) {
	switch v := p[name].(type) {
	case uint32:
		return uint64(v), true
	case uint64:
		return v, true
	case int32:
		return uint64(max(0, v)), true
	}
	return 0, false
}

// span is a time in microseconds; ok is false where it is not told.
func (p properties) span(name string) (d time.Duration, ok bool) {
	n, ok := p.number(name)
	if n > math.MaxInt64/1000 {
		return infinite, ok
	}
	return time.Duration(n) * time.Microsecond, ok
}

// commands says that a property such as ExecStartPost lists commands.
func (p properties) commands(name string) bool {
	c, _ := p[name].([][]any)
	return len(c) > 0
}
