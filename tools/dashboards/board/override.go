package board

import (
	"regexp"
	"slices"
	"strings"

	"github.com/grafana/grafana-foundation-sdk/go/dashboard"
)

type property = dashboard.DynamicConfigValue

func override(matcher, options string, properties ...property) dashboard.DashboardFieldConfigSourceOverrides {
	return dashboard.DashboardFieldConfigSourceOverrides{
		Matcher: dashboard.MatcherConfig{Id: matcher, Options: options}, Properties: properties,
	}
}

// overrides are what some series or columns of a panel have of their own: colours
// of phases, outcomes and verdicts, units, thresholds, links.
func (p Panel) overrides() []dashboard.DashboardFieldConfigSourceOverrides {
	out := []dashboard.DashboardFieldConfigSourceOverrides{}
	for i, q := range p.Queries {
		if own := q.properties(); len(own) > 0 {
			out = append(out, override("byName", q.Legend, own...))
		}
		if q.Wide {
			out = append(out, override("byFrameRefID", refID(i), property{Id: "custom.lineWidth", Value: 5}))
		}
	}
	switch p.Kind {
	case Table:
		for _, column := range p.Columns {
			if own := p.cell(column); len(own) > 0 {
				out = append(out, override("byName", column, own...))
			}
		}
	case Parts:
		out = append(out, coloured(colours("phase"))...)
	default:
		if label, ok := strings.CutPrefix(p.Queries[0].Legend, "{{"); ok {
			out = append(out, coloured(colours(strings.TrimSuffix(label, "}}")))...)
		}
	}
	return out
}

// coloured gives series that are named by the values their colours.
func coloured(values []Value) []dashboard.DashboardFieldConfigSourceOverrides {
	var out []dashboard.DashboardFieldConfigSourceOverrides
	for _, v := range values {
		out = append(out, override("byName", v.Text, fixed(v.Color)))
	}
	return out
}

func fixed(colour string) property {
	return property{Id: "color", Value: map[string]any{"mode": "fixed", "fixedColor": colour}}
}

// properties are what the query's series, which its Legend names, have of their own.
func (q Query) properties() []property {
	var out []property
	if q.Unit != "" {
		out = append(out, property{Id: "unit", Value: q.Unit})
	}
	if q.Alarm != 0 {
		out = append(out, property{Id: "thresholds", Value: thresholds(q.Alarm)})
	}
	if q.Limit {
		out = append(out, fixed(grey), property{Id: "custom.lineStyle", Value: map[string]any{"fill": "dash", "dash": []int{10, 10}}})
	}
	return out
}

// cell is how the cells of a column are shown that is a label.
func (p Panel) cell(column string) []property {
	var out []property
	if values := colours(column); values != nil {
		out = append(out,
			property{Id: "mappings", Value: mappings(values, func(v Value) string { return v.Text })},
			property{Id: "custom.cellOptions", Value: map[string]any{"type": "color-text"}})
	}
	var links []map[string]any
	for _, l := range p.Links {
		if l.Column == column {
			links = append(links, map[string]any{"title": l.Title, "url": l.URL, "targetBlank": strings.HasPrefix(l.URL, "https:")})
		}
	}
	if links != nil {
		out = append(out, property{Id: "links", Value: links})
	}
	return out
}

// columns make one table of the queries, whose rows have the same labels.
func (p Panel) columns() []dashboard.DataTransformerConfig {
	hidden, names, order := map[string]bool{"Time": true}, map[string]string{}, map[string]int{}
	for i, q := range p.Queries {
		for _, label := range grouped(q.Expr) {
			hidden[label] = !slices.Contains(p.Columns, label)
		}
		for _, field := range p.valueFields(i) {
			if q.Legend == "" {
				hidden[field] = true
				continue
			}
			names[field] = q.Legend
			order[field] = slices.Index(p.Columns, q.Legend)
		}
	}
	for i, column := range p.Columns {
		order[column] = i
	}
	return []dashboard.DataTransformerConfig{
		{Id: "merge", Options: map[string]any{}},
		{Id: "organize", Options: map[string]any{"excludeByName": hidden, "renameByName": names, "indexByName": order}},
	}
}

// valueFields are the names that Grafana may give the values of query i: of a lone
// answer "Value".
func (p Panel) valueFields(i int) []string {
	if i == 0 {
		return []string{"Value", "Value #A"}
	}
	return []string{"Value #" + refID(i)}
}

// parts make a row for each bar, with a column for each phase in order.
func (p Panel) parts() []dashboard.DataTransformerConfig {
	order := map[string]int{p.Row + `\phase`: 0}
	for _, v := range phases() {
		order[v.Text] = 1 + v.Number
	}
	return []dashboard.DataTransformerConfig{
		{Id: "groupingToMatrix", Options: map[string]any{"rowField": p.Row, "columnField": "phase", "valueField": "Value", "emptyValue": "null"}},
		{Id: "organize", Options: map[string]any{"excludeByName": map[string]bool{}, "renameByName": map[string]string{}, "indexByName": order}},
	}
}

// grouped are the labels that an expression keeps of its series.
func grouped(expr string) []string {
	m := regexp.MustCompile(`\bby \(([^)]*)\)`).FindStringSubmatch(expr)
	if m == nil {
		return nil
	}
	return strings.Split(m[1], ", ")
}
