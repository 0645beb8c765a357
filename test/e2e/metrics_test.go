//go:build e2e

package e2e

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
)

// metrics is a scrape: the value of each series, by its name and labels as the
// page shows them (sorted by label).
type metrics map[string]float64

// parse reads the text exposition format.
func parse(text string) (metrics, error) {
	m := metrics{}
	for line := range strings.Lines(text) {
		line = strings.TrimSpace(line)
		if line == "" || strings.HasPrefix(line, "#") {
			continue
		}
		series, value, ok := cutLast(line, " ")
		if !ok {
			return nil, fmt.Errorf("no value in %q", line)
		}
		v, err := strconv.ParseFloat(value, 64)
		if err != nil {
			return nil, fmt.Errorf("%q: %w", line, err)
		}
		m[series] = v
	}
	return m, nil
}

func cutLast(s, sep string) (before, after string, ok bool) {
	i := strings.LastIndex(s, sep)
	if i < 0 {
		return s, "", false
	}
	return s[:i], s[i+len(sep):], true
}

// key is a series' name as parse gives it: labels are name, value, name, ...
func key(family string, labels ...string) string {
	if len(labels) == 0 {
		return family
	}
	var pairs []string
	for i := 0; i < len(labels); i += 2 {
		pairs = append(pairs, fmt.Sprintf("%s=%q", labels[i], labels[i+1]))
	}
	slices.Sort(pairs)
	return family + "{" + strings.Join(pairs, ",") + "}"
}

// get is the value of one series; false if it is absent.
func (m metrics) get(family string, labels ...string) (float64, bool) {
	v, ok := m[key(family, labels...)]
	return v, ok
}

// sum adds up the series of a family that have all these labels, and counts
// them.
func (m metrics) sum(family string, labels ...string) (total float64, series int) {
	for k, v := range m {
		if !strings.HasPrefix(k, family+"{") && k != family {
			continue
		}
		match := true
		for i := 0; i < len(labels); i += 2 {
			match = match && strings.Contains(k, fmt.Sprintf("%s=%q", labels[i], labels[i+1]))
		}
		if match {
			total += v
			series++
		}
	}
	return total, series
}

// dump is every series that is not 0 and contains all of the words, sorted.
func (m metrics) dump(words ...string) string {
	var b strings.Builder
	for _, k := range slices.Sorted(maps.Keys(m)) {
		if m[k] != 0 && !slices.ContainsFunc(words, func(w string) bool { return !strings.Contains(k, w) }) {
			fmt.Fprintf(&b, "%s %v\n", k, m[k])
		}
	}
	return b.String()
}

// state is the phase of a unit; an error unless exactly one of the eight is 1.
func (m metrics) state(unit string) (string, error) {
	var on []string
	n := 0
	for k, v := range m {
		if strings.HasPrefix(k, "startupd_phase{") && strings.Contains(k, fmt.Sprintf("unit=%q", unit)) {
			n++
			if v == 1 {
				_, rest, _ := strings.Cut(k, `phase="`)
				name, _, _ := strings.Cut(rest, `"`)
				on = append(on, name)
			}
		}
	}
	if n != 8 || len(on) != 1 {
		return "", fmt.Errorf("%s: %d states, of which %v are 1", unit, n, on)
	}
	return on[0], nil
}
