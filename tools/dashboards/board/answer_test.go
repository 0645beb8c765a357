package board

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	v1 "github.com/prometheus/client_golang/api/prometheus/v1"
	"github.com/prometheus/common/model"
)

// fake answers every query with one series of the query's kind, and refuses one.
type fake struct {
	refuse string
	asked  map[bool]int
	span   time.Duration
}

func (f *fake) Query(_ context.Context, query string, at time.Time, _ ...v1.Option) (model.Value, v1.Warnings, v1.Infos, error) {
	f.asked[true]++
	if f.refuse != "" && strings.Contains(query, f.refuse) {
		return nil, nil, nil, errors.New("bad_data")
	}
	return model.Vector{{Metric: model.Metric{"unit": "a|b", "instance": "h"}, Value: 1, Timestamp: model.TimeFromUnix(at.Unix())}}, nil, nil, nil
}

func (f *fake) QueryRange(_ context.Context, _ string, r v1.Range, _ ...v1.Option) (model.Value, v1.Warnings, v1.Infos, error) {
	f.asked[false]++
	f.span = r.End.Sub(r.Start)
	return model.Matrix{{Metric: model.Metric{"unit": "a"}, Values: []model.SamplePair{{Value: 2}, {Value: 3}}}}, nil, nil, nil
}

func TestAsk(t *testing.T) {
	f := &fake{asked: map[bool]int{}}
	answers, err := Ask(t.Context(), f, time.Unix(1000, 0), Everything("startupd", "h", "u", "1h", "1m"))
	if err != nil {
		t.Fatal(err)
	}
	want := map[bool]int{}
	for _, d := range All() {
		for _, q := range d.Queries() {
			want[q.Instant]++
		}
	}
	if f.asked[true] != want[true] || f.asked[false] != want[false] || f.span != time.Hour {
		t.Errorf("asked %v over %s, want %v over 1h", f.asked, f.span, want)
	}
	for _, a := range answers {
		if value := map[bool]model.SampleValue{true: 1, false: 3}[a.Instant]; a.Series[0].Value != value {
			t.Errorf("%s: %v, want %v", a.Expr, a.Series[0].Value, value)
		}
		if strings.Contains(a.Expanded, "$") || a.Dashboard == "startupd-startup" && strings.Contains(a.Expanded, `=~".+"`) {
			t.Errorf("asked %s", a.Expanded)
		}
	}
}

func TestAskTellsWhere(t *testing.T) {
	f := &fake{asked: map[bool]int{}, refuse: "startupd_new_errors"}
	_, err := Ask(t.Context(), f, time.Unix(1000, 0), Everything("startupd", "h", "u", "1h", "1m"))
	if err == nil || !strings.Contains(err.Error(), "panel New errors, query A: bad_data: startupd_new_errors{") {
		t.Errorf("the error does not say where: %v", err)
	}
	if _, err := Ask(t.Context(), f, time.Time{}, Variables{Range: "hour"}); err == nil {
		t.Error("a range that is no duration passes")
	}
}

func TestInto(t *testing.T) {
	answers := []Answer{
		{Located: Located{Dashboard: "d", Panel: "p", Query: Query{Expr: `x{a=~"b|c"}`}}, Series: []*model.Sample{{Metric: model.Metric{"job": "j", "gpu": "0"}, Value: 1.5}}},
		{Located: Located{Dashboard: "d", Panel: "q", Query: Query{Expr: "y", EmptyOnPurpose: "none"}}},
	}
	got, err := Into("above\n"+tablesBegin+"old\n"+tablesEnd+"below\n", answers)
	want := "above\n" + tablesBegin + "\n### d\n\n| panel | query | series | for example |\n|---|---|---|---|\n" +
		"| p | `x{a=~\"b\\|c\"}` | 1 | `{gpu=\"0\"} 1.5` |\n| q | `y` | 0 | empty: none |\n\n" + tablesEnd + "below\n"
	if err != nil || got != want {
		t.Errorf("%v\n%s\nwant\n%s", err, got, want)
	}
	if _, err := Into("no marks", answers); err == nil {
		t.Error("a document without marks passes")
	}
}
