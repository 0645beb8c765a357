// Package board holds startupd's Grafana dashboards: their panels and queries as
// data, from which Grafana's own SDK makes the JSON in deploy/grafana. It knows no
// metric that docs/METRICS.md does not list. It must not ask a Prometheus or write
// a file: the command above it does.
package board

import (
	"fmt"
	"strings"
)

// Kind is the visualization of a panel.
type Kind int

// The kinds of panels in use.
const (
	// Stat shows the last value of each series.
	Stat Kind = iota
	// Names shows the legends of series in place of their values, which are all 1.
	Names
	// Lines shows series over time.
	Lines
	// Stack shows series over time, each on top of the one before.
	Stack
	// States shows each series as a bar whose colour is its value.
	States
	// Bars shows the last value of each series as a bar.
	Bars
	// Table shows one row for each set of labels; the queries are its columns.
	Table
)

// Query is one target of a panel.
type Query struct {
	// Expr is PromQL with the dashboard's variables in it.
	Expr string
	// Legend names the series, with labels as {{label}}; in a Table it names the
	// column of values, and "" leaves that out.
	Legend string
	// Unit is the column's unit in a Table, if it is not the panel's.
	Unit string
	// EmptyOnPurpose says when the answer is empty although all is well; "" for a
	// query that always has an answer.
	EmptyOnPurpose string
}

// Panel is one picture.
type Panel struct {
	Title, Description string
	Kind               Kind
	// Unit is a unit ID of Grafana.
	Unit string
	// Width and Height are in units of the grid, which is 24 wide.
	Width, Height int
	Queries       []Query
	// NoValue is shown where there is no answer; "not known" when empty.
	NoValue string
	// Values maps numbers to texts and colours.
	Values []Value
	// Alarm is the value from which on it is shown in the colour of a failure; 0
	// for none.
	Alarm float64
	// Max is the end of the scale; 0 leaves it to Grafana.
	Max float64
	// Hidden are labels that are no columns of a Table.
	Hidden []string
	// Links are URLs by the column of a Table that they hang on.
	Links map[string]string
}

// Value is how one number is shown.
type Value struct {
	Number      int
	Text, Color string
}

// Row is a heading with panels.
type Row struct {
	Title  string
	Panels []Panel
}

// Event marks moments on all panels over time.
type Event struct {
	Name, Expr, Title, Color string
	// ValueIsTime says that the series' value is the time in milliseconds.
	ValueIsTime    bool
	EmptyOnPurpose string
}

// Dashboard is one page.
type Dashboard struct {
	UID, Title, Description, From, Refresh string
	// Multi lets more than one job, instance and unit be chosen.
	Multi  bool
	Rows   []Row
	Events []Event
}

// All returns the dashboards.
func All() []Dashboard { return []Dashboard{startup(), fleet()} }

// Located is a query and where it stands.
type Located struct {
	Dashboard, Panel string
	// RefID is the letter by which Grafana names it in its panel; "" for an Event's.
	RefID string
	Query
	// Instant says that it is asked for one moment and not for a range.
	Instant bool
}

// Queries lists every query of the dashboard, those of its events too.
func (d Dashboard) Queries() []Located {
	var out []Located
	for _, r := range d.Rows {
		for _, p := range r.Panels {
			for i, q := range p.Queries {
				out = append(out, Located{d.UID, p.Title, refID(i), q, p.Kind.instant()})
			}
		}
	}
	for _, e := range d.Events {
		out = append(out, Located{d.UID, e.Name, "", Query{Expr: e.Expr, EmptyOnPurpose: e.EmptyOnPurpose}, false})
	}
	return out
}

func (k Kind) instant() bool { return k != Lines && k != Stack && k != States }

func refID(i int) string { return string(rune('A' + i)) }

// Variables are what Grafana puts into a query.
type Variables struct {
	Job, Instance, Unit string
	// Range and RateInterval are durations as PromQL writes them ("1h", "1m").
	Range, RateInterval string
	// One is what is chosen on a dashboard of one unit; nil for the same.
	One *Variables
}

// Everything chooses all jobs, instances and units on dashboards of many, and one
// unit on those of one.
func Everything(job, instance, unit, timeRange, rateInterval string) Variables {
	one := Variables{Job: job, Instance: instance, Unit: unit, Range: timeRange, RateInterval: rateInterval}
	return Variables{Job: ".+", Instance: ".+", Unit: ".+", Range: timeRange, RateInterval: rateInterval, One: &one}
}

// single is what a dashboard of one unit is asked with.
func (v Variables) single() Variables {
	if v.One != nil {
		return *v.One
	}
	return v
}

// Expand puts values into a query as Grafana does; an error names a variable that
// it does not know.
func Expand(expr string, v Variables) (string, error) {
	out := strings.NewReplacer(
		"$__rate_interval", v.RateInterval, "$__range", v.Range,
		"$job", v.Job, "$instance", v.Instance, "$unit", v.Unit,
	).Replace(expr)
	if i := strings.IndexByte(out, '$'); i >= 0 {
		return "", fmt.Errorf("unknown variable at %q in %s", out[i:], expr)
	}
	return out, nil
}
