package board

import (
	"context"
	"fmt"
	"io"
	"strings"
	"time"

	v1 "github.com/prometheus/client_golang/api/prometheus/v1"
	"github.com/prometheus/common/model"
)

// Prometheus answers queries; v1.API is one.
type Prometheus interface {
	Query(ctx context.Context, query string, ts time.Time, opts ...v1.Option) (model.Value, v1.Warnings, v1.Infos, error)
	QueryRange(ctx context.Context, query string, r v1.Range, opts ...v1.Option) (model.Value, v1.Warnings, v1.Infos, error)
}

// Answer is what a Prometheus said to a query.
type Answer struct {
	Located
	// Expanded is the query with the variables' values.
	Expanded string
	// Series are the answer's; those of a range hold their last sample.
	Series []*model.Sample
}

// Ask runs every query of the dashboards: instant ones at the time at, the others
// over the v.Range before it.
func Ask(ctx context.Context, p Prometheus, at time.Time, v Variables) ([]Answer, error) {
	span, err := model.ParseDuration(v.Range)
	if err != nil {
		return nil, fmt.Errorf("range: %w", err)
	}
	var out []Answer
	for _, d := range All() {
		for _, q := range d.Queries() {
			vars := v
			if !d.Multi {
				vars = v.single()
			}
			expr, err := Expand(q.Expr, vars)
			if err != nil {
				return nil, err
			}
			series, err := ask(ctx, p, expr, q.Instant, at, time.Duration(span))
			if err != nil {
				return nil, fmt.Errorf("%s, panel %s, query %s: %w: %s", q.Dashboard, q.Panel, q.RefID, err, expr)
			}
			out = append(out, Answer{q, expr, series})
		}
	}
	return out, nil
}

func ask(ctx context.Context, p Prometheus, expr string, instant bool, at time.Time, span time.Duration) ([]*model.Sample, error) {
	var answer model.Value
	var err error
	if instant {
		answer, _, _, err = p.Query(ctx, expr, at)
	} else {
		// As many points as a panel has pixels do not make the answer any better.
		answer, _, _, err = p.QueryRange(ctx, expr, v1.Range{Start: at.Add(-span), End: at, Step: max(span/500, time.Second)})
	}
	if err != nil {
		return nil, err
	}
	switch a := answer.(type) {
	case model.Vector:
		return a, nil
	case model.Matrix:
		var out []*model.Sample
		for _, s := range a {
			last := s.Values[len(s.Values)-1]
			out = append(out, &model.Sample{Metric: s.Metric, Value: last.Value, Timestamp: last.Timestamp})
		}
		return out, nil
	}
	return nil, fmt.Errorf("an answer of type %s", answer.Type())
}

// WriteTable writes the answers as tables in Markdown, one for each dashboard.
func WriteTable(w io.Writer, answers []Answer) error {
	var b strings.Builder
	last := ""
	for _, a := range answers {
		if a.Dashboard != last {
			fmt.Fprintf(&b, "\n### %s\n\n| panel | query | series | for example |\n|---|---|---|---|\n", a.Dashboard)
			last = a.Dashboard
		}
		example := a.EmptyOnPurpose
		if example != "" {
			example = "empty: " + example
		}
		if len(a.Series) > 0 {
			s := a.Series[0]
			example = code(fmt.Sprintf("%s %s", legend(s.Metric), s.Value))
		}
		fmt.Fprintf(&b, "| %s | %s | %d | %s |\n", a.Panel, code(a.Expr), len(a.Series), example)
	}
	_, err := io.WriteString(w, b.String())
	return err
}

// Marks around the tables in docs/dashboards.md.
const (
	tablesBegin = "<!-- tables: begin -->\n"
	tablesEnd   = "<!-- tables: end -->\n"
)

// Into puts the tables of the answers between the marks of a document; an error
// says that it has none.
func Into(document string, answers []Answer) (string, error) {
	before, rest, ok := strings.Cut(document, tablesBegin)
	_, after, ok2 := strings.Cut(rest, tablesEnd)
	if !ok || !ok2 {
		return "", fmt.Errorf("the document lacks the lines %q and %q", tablesBegin, tablesEnd)
	}
	var b strings.Builder
	if err := WriteTable(&b, answers); err != nil {
		return "", err
	}
	return before + tablesBegin + b.String() + "\n" + tablesEnd + after, nil
}

// legend is a series without the labels that say where it was scraped.
func legend(m model.Metric) string {
	m = m.Clone()
	for _, l := range []model.LabelName{"job", "instance", "host"} {
		delete(m, l)
	}
	return m.String()
}

// code is text in a cell of a table.
func code(text string) string { return "`" + strings.ReplaceAll(text, "|", `\|`) + "`" }
