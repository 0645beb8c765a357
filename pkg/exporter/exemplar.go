package exporter

import (
	"strings"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/startupd/startupd/pkg/phases"
)

// invocationLabel is the label of an exemplar: what /api/v1/startups/{invocation}
// takes.
const invocationLabel = "invocation"

// An ID of an invocation has maxID digits, the shortest one of a container minID.
const minID, maxID = 12, 32

// withExemplars returns a counter or a histogram with the exemplars that lead to a
// startup. Only OpenMetrics and protobuf show them.
func withExemplars(m prometheus.Metric, all ...phases.Exemplar) prometheus.Metric {
	var kept []prometheus.Exemplar
	for _, e := range all {
		if id := invocation(e.Invocation); id != "" && !e.At.IsZero() {
			kept = append(kept, prometheus.Exemplar{Labels: prometheus.Labels{invocationLabel: id}, Value: e.Value, Timestamp: e.At})
		}
	}
	if len(kept) == 0 {
		return m
	}
	with, err := prometheus.NewMetricWithExemplars(m, kept...)
	if err != nil {
		// A time that no protobuf can hold; the numbers stand without it.
		return m
	}
	return with
}

// invocation returns the ID of an invocation, or the first digits of a container's
// longer one, which name it as well; "" for what is no ID.
func invocation(id string) string {
	id = id[:min(len(id), maxID)]
	if len(id) < minID || strings.Trim(id, "0123456789abcdef") != "" {
		return ""
	}
	return id
}
