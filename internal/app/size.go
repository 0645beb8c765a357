package app

import (
	"fmt"
	"math"
	"strconv"
	"strings"

	"go.yaml.in/yaml/v3"
)

// byteSize is a size in the configuration; nil bytes means that none is given.
type byteSize struct{ bytes *uint64 }

// UnmarshalYAML reads a number with a unit, such as 73.7GiB.
func (s *byteSize) UnmarshalYAML(n *yaml.Node) error {
	b, err := parseSize(n.Value)
	if n.Kind != yaml.ScalarNode || err != nil {
		return fmt.Errorf("line %d: expected_weights %q is no size; write a number with KiB, MiB, GiB, TiB, KB, MB, GB, TB or B, such as 73.7GiB", n.Line, n.Value)
	}
	s.bytes = &b
	return nil
}

func parseSize(text string) (uint64, error) {
	units := []struct {
		suffix string
		factor float64
	}{
		{"KiB", 1 << 10}, {"MiB", 1 << 20}, {"GiB", 1 << 30}, {"TiB", 1 << 40},
		{"KB", 1e3}, {"MB", 1e6}, {"GB", 1e9}, {"TB", 1e12}, {"B", 1},
	}
	for _, u := range units {
		num, ok := strings.CutSuffix(text, u.suffix)
		if !ok {
			continue
		}
		v, err := strconv.ParseFloat(strings.TrimSpace(num), 64)
		if err != nil {
			return 0, fmt.Errorf("size %q: %w", text, err)
		}
		// Not (v > 0) is also true of NaN.
		if !(v > 0) || v*u.factor > math.MaxInt64 {
			return 0, fmt.Errorf("size %q: out of range", text)
		}
		return uint64(v * u.factor), nil
	}
	return 0, fmt.Errorf("size %q: no unit", text)
}
