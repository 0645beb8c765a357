// Package board holds startupd's Grafana dashboards: their panels and queries as
// data, from which Grafana's own SDK makes the JSON in deploy/grafana. It knows no
// metric that docs/METRICS.md does not list. It must not ask a Prometheus or write
// a file: the command above it does.
package board

import (
	"fmt"
	"regexp"
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
	// Parts shows a bar for each Panel.Row, of one part for each phase.
	Parts
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
	// Unit is that of the series, which the Legend names without labels, or of the
	// column; "" for the panel's.
	Unit string
	// Alarm is as in Panel, for these series alone.
	Alarm float64
	// Limit draws these Lines dashed and grey, Wide draws them broad.
	Limit, Wide bool
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
	// Whole shows no decimals: what is counted, or extrapolated from a count.
	Whole bool
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
	// Columns are the columns of a Table in their order: labels, and legends of
	// queries. Other labels are not shown.
	Columns []string
	// Row is the label that names a bar of Parts.
	Row string
	// Links are what the cells of a Table's column link to.
	Links []Link
	// Runbooks are the alerts whose runbooks the panel links to.
	Runbooks []string
}

// Link leads from a cell of a Table to another page.
type Link struct {
	// Column is a label; in URL, ${__value.raw} is the cell's value.
	Column, Title, URL string
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

// tabular kinds are of labels as well as values.
func (k Kind) tabular() bool { return k == Table || k == Parts }

func refID(i int) string { return string(rune('A' + i)) }

// Variables are what Grafana puts into a query.
type Variables struct {
	// Job, Instance and Unit are regular expressions, or the chosen values where
	// the dashboard is of one unit.
	Job, Instance, Unit string
	// Range and RateInterval are durations as PromQL writes them ("1h", "1m").
	Range, RateInterval string
	// One is what is chosen on a dashboard of one unit; nil for the same.
	One *Variables
}

// Everything chooses all instances and units of a job on dashboards of many, and
// one unit on those of one.
func Everything(job, instance, unit, timeRange, rateInterval string) Variables {
	one := Variables{Job: job, Instance: instance, Unit: unit, Range: timeRange, RateInterval: rateInterval}
	return Variables{Job: regexp.QuoteMeta(job), Instance: ".+", Unit: ".+", Range: timeRange, RateInterval: rateInterval, One: &one}
}

// single is what a dashboard of one unit is asked with. Grafana escapes the value
// of a choice of one for a string of PromQL: the unit "vllm-\x2da.service" has a
// backslash.
func (v Variables) single() Variables {
	if v.One != nil {
		v = *v.One
	}
	escape := strings.NewReplacer(`\`, `\\`, `"`, `\"`)
	v.Job, v.Instance, v.Unit = escape.Replace(v.Job), escape.Replace(v.Instance), escape.Replace(v.Unit)
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
