package profile

import (
	"strconv"
	"strings"
)

// Number returns a capture as a number: in seconds or bytes where a unit is
// known, from a capture of the name with _unit behind it, or from the end of the
// name itself (took_s, size_gib; also the bare unit). It is false when there is
// no number.
func (r *Record) Number(name string) (float64, bool) {
	unit := r.Capture(name + "_unit")
	if unit == "" {
		unit = nameUnit(name)
	}
	return scaled(r.Capture(name), unit)
}

func nameUnit(name string) string {
	last := name[strings.LastIndexByte(name, '_')+1:]
	switch last {
	case "s", "ms", "us", "gib", "gb", "mib", "mb", "kib", "kb", "bytes":
		return last
	}
	return ""
}

// scaled reads a number as a log prints it: with commas, or with a decimal
// letter behind it as tqdm shortens it (1.2k), times its unit.
func scaled(value, unit string) (float64, bool) {
	factor := unitFactor(unit)
	value = strings.TrimSpace(value)
	if n := len(value); n > 1 {
		if f := letterFactor(value[n-1]); f != 0 {
			factor *= f
			value = value[:n-1]
		}
	}
	f, err := strconv.ParseFloat(withoutCommas(value), 64)
	if err != nil || f-f != 0 {
		return 0, false
	}
	return f * factor, true
}

// letterFactor is 0 for no such letter.
func letterFactor(c byte) float64 {
	switch c {
	case 'k':
		return 1e3
	case 'M':
		return 1e6
	case 'G':
		return 1e9
	case 'T':
		return 1e12
	}
	return 0
}

// unitFactor is 1 for a unit that is not known.
func unitFactor(unit string) float64 {
	switch strings.ToLower(unit) {
	case "gib":
		return 1 << 30
	case "mib":
		return 1 << 20
	case "kib":
		return 1 << 10
	case "gb":
		return 1e9
	case "mb":
		return 1e6
	case "kb":
		return 1e3
	case "ms":
		return 1e-3
	case "us", "µs":
		return 1e-6
	}
	return 1
}

// withoutCommas turns 1,326,336 into 1326336 and leaves any other text alone.
func withoutCommas(s string) string {
	if strings.IndexByte(s, ',') < 0 {
		return s
	}
	groups := strings.Split(s, ",")
	for i, g := range groups {
		whole := strings.Trim(g, "0123456789") == ""
		if !whole || i > 0 && len(g) != 3 || i == 0 && (g == "" || len(g) > 3) {
			return s
		}
	}
	return strings.Join(groups, "")
}
