package exporter

import (
	"strconv"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/startupd/startupd/pkg/event"
	"github.com/startupd/startupd/pkg/phases"
)

// maxLabel bounds a label value in bytes: a model's name comes out of a log.
// It leaves room for any unit name (255 bytes).
const maxLabel = 256

// scrape is one pass over one snapshot.
type scrape struct {
	*families
	ch  chan<- prometheus.Metric
	now event.Stamp
	// knows is Options.KnowsClass.
	knows func(class string) bool
	// created is when the present unit's counters were 0; zero when not known.
	created time.Time
}

// send emits one sample. Label values may be any bytes.
func (s *scrape) send(f family, v float64, labels ...string) {
	for i, l := range labels {
		labels[i] = label(l)
	}
	s.ch <- prometheus.MustNewConstMetric(f.desc, f.kind, v, labels...)
}

// sendTotal emits one of a unit's counters that are kept over restarts.
func (s *scrape) sendTotal(f family, v float64, labels ...string) { s.ch <- s.total(f, v, labels...) }

// total makes one of a unit's counters that are kept over restarts.
func (s *scrape) total(f family, v float64, labels ...string) prometheus.Metric {
	for i, l := range labels {
		labels[i] = label(l)
	}
	if s.created.IsZero() {
		return prometheus.MustNewConstMetric(f.desc, f.kind, v, labels...)
	}
	return prometheus.MustNewConstMetricWithCreatedTimestamp(f.desc, f.kind, v, s.created, labels...)
}

// sendTime emits a wall-clock time; a time that is not known is absent.
func (s *scrape) sendTime(f family, t event.Stamp, labels ...string) {
	if !t.Real.IsZero() {
		s.send(f, unixSeconds(t.Real), labels...)
	}
}

// sendBytes emits a size; nil is absent.
func (s *scrape) sendBytes(f family, v *uint64, labels ...string) {
	if v != nil {
		s.send(f, float64(*v), labels...)
	}
}

func (s *scrape) gpu(g *phases.GPU) {
	index := strconv.Itoa(g.Index)
	s.sendBytes(s.gpuUsed, g.UsedBytes, index, g.UUID)
	s.sendBytes(s.gpuTotal, g.TotalBytes, index, g.UUID)
	s.sendBytes(s.gpuForeign, g.ForeignBytes, index)
	s.sendBytes(s.gpuUnknown, g.UnattributedBytes, index)
}

// xids emits counts, and for each GPU the newest report's time.
func (s *scrape) xids(all []phases.Xid) {
	last := map[string]event.Stamp{}
	for _, x := range all {
		s.send(s.xidErrors, float64(x.Count), x.GPU, xid(x.Xid))
		if x.Last.Real.After(last[x.GPU].Real) {
			last[x.GPU] = x.Last
		}
	}
	for gpu, at := range last {
		s.sendTime(s.lastXid, at, gpu)
	}
}

func xid(n int) string {
	if n == phases.OtherXid {
		return "other"
	}
	return strconv.Itoa(n)
}

func (s *scrape) source(src phases.Source) {
	s.send(s.sourceUp, flag(src.Up), src.Source, src.Target)
	if src.Source == event.SourceJournal {
		s.send(s.readerStarts, float64(src.Restarts), src.Target)
	}
}

func unixSeconds(t time.Time) float64 {
	return float64(t.Unix()) + float64(t.Nanosecond())/1e9
}

func flag(b bool) float64 {
	if b {
		return 1
	}
	return 0
}

// label makes a valid label value of any bytes.
func label(v string) string {
	return strings.ToValidUTF8(cut(v, maxLabel), "\uFFFD")
}
