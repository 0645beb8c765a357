package exporter

import (
	"cmp"
	"maps"
	"slices"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/startupd/startupd/pkg/phases"
)

// histogram is a metric with classic and native buckets at once, which
// client_golang offers only for histograms that it observes itself.
type histogram struct {
	desc   *prometheus.Desc
	labels []*dto.LabelPair
	value  phases.Histogram
	// created is when it was empty; zero when that is not known.
	created time.Time
}

func (s *scrape) sendHistogram(h phases.Histogram, unit, phase string) {
	labels := prometheus.MakeLabelPairs(s.phaseSeconds, []string{label(unit), label(phase)})
	// The oldest first, as native histograms want them.
	last := slices.SortedFunc(maps.Values(h.Exemplars), func(a, b phases.Exemplar) int {
		return cmp.Or(a.At.Compare(b.At), cmp.Compare(a.Value, b.Value))
	})
	s.ch <- withExemplars(histogram{s.phaseSeconds, labels, h, s.created}, last...)
}

// Desc implements prometheus.Metric.
func (h histogram) Desc() *prometheus.Desc { return h.desc }

// Write implements prometheus.Metric.
func (h histogram) Write(out *dto.Metric) error {
	out.Label = h.labels
	out.Histogram = &dto.Histogram{
		SampleCount: proto.Uint64(h.value.Count),
		SampleSum:   proto.Float64(h.value.Sum),
		Bucket:      classicBuckets(h.value),
	}
	if !h.created.IsZero() {
		out.Histogram.CreatedTimestamp = timestamppb.New(h.created)
	}
	addNative(out.Histogram, h.value)
	return nil
}

// classicBuckets returns cumulative buckets; +Inf is implied by the count.
func classicBuckets(h phases.Histogram) []*dto.Bucket {
	bounds := phases.PhaseBuckets()
	buckets := make([]*dto.Bucket, len(bounds))
	for i, bound := range bounds {
		var n uint64
		if i < len(h.Buckets) {
			n = h.Buckets[i]
		}
		buckets[i] = &dto.Bucket{UpperBound: proto.Float64(bound), CumulativeCount: proto.Uint64(n)}
	}
	return buckets
}

// addNative adds the native buckets: spans of consecutive indices, each
// bucket's count as the difference to the bucket before.
func addNative(out *dto.Histogram, h phases.Histogram) {
	total := h.Zero
	for _, n := range h.Native {
		total += n
	}
	if total != h.Count {
		// Prometheus refuses a native histogram that does not add up (a state file
		// may be older than its native part); the classic one stands by itself.
		return
	}
	out.Schema = proto.Int32(phases.NativeSchema)
	out.ZeroThreshold = proto.Float64(prometheus.DefNativeHistogramZeroThreshold)
	out.ZeroCount = proto.Uint64(h.Zero)
	var end int
	var last int64
	indices := make([]int, 0, len(h.Native))
	for i := range h.Native {
		indices = append(indices, i)
	}
	slices.Sort(indices)
	for n, i := range indices {
		if n == 0 || i != end {
			out.PositiveSpan = append(out.PositiveSpan, &dto.BucketSpan{Offset: proto.Int32(int32(i - end)), Length: proto.Uint32(0)})
		}
		span := out.PositiveSpan[len(out.PositiveSpan)-1]
		*span.Length++
		count := int64(h.Native[i])
		out.PositiveDelta = append(out.PositiveDelta, count-last)
		last, end = count, i+1
	}
}
