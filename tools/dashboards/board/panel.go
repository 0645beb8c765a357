package board

import (
	"fmt"
	"strconv"

	"github.com/grafana/grafana-foundation-sdk/go/bargauge"
	"github.com/grafana/grafana-foundation-sdk/go/cog"
	"github.com/grafana/grafana-foundation-sdk/go/common"
	"github.com/grafana/grafana-foundation-sdk/go/dashboard"
	"github.com/grafana/grafana-foundation-sdk/go/prometheus"
	"github.com/grafana/grafana-foundation-sdk/go/stat"
	"github.com/grafana/grafana-foundation-sdk/go/statetimeline"
	"github.com/grafana/grafana-foundation-sdk/go/table"
	"github.com/grafana/grafana-foundation-sdk/go/timeseries"
)

// build makes the panel with the number id.
func (p Panel) build(id uint32) (dashboard.Panel, error) {
	out, err := p.visualization().Build()
	if err != nil {
		return out, fmt.Errorf("panel %q: %w", p.Title, err)
	}
	ds := source()
	out.Id, out.Title, out.Description, out.Datasource = &id, &p.Title, &p.Description, &ds
	out.GridPos = &dashboard.GridPos{W: uint32(p.Width), H: uint32(p.Height)}
	for i, q := range p.Queries {
		target, err := p.target(q, refID(i)).Build()
		if err != nil {
			return out, fmt.Errorf("panel %q: %w", p.Title, err)
		}
		out.Targets = append(out.Targets, target)
	}
	if out.FieldConfig == nil {
		out.FieldConfig = dashboard.NewFieldConfigSource()
	}
	p.defaults(&out.FieldConfig.Defaults)
	out.FieldConfig.Overrides = p.overrides()
	if p.Kind == Table {
		out.Transformations = p.transformations()
	}
	return out, nil
}

func (p Panel) target(q Query, ref string) *prometheus.DataqueryBuilder {
	b := prometheus.NewDataqueryBuilder().RefId(ref).Expr(q.Expr).Datasource(source()).EditorMode(prometheus.QueryEditorModeCode)
	switch {
	case p.Kind == Table:
		return b.Instant().Format(prometheus.PromQueryFormatTable)
	case p.Kind.instant():
		return b.Instant().LegendFormat(q.Legend)
	}
	return b.Range().LegendFormat(q.Legend)
}

// visualization makes what a kind of panel has of its own.
func (p Panel) visualization() cog.Builder[dashboard.Panel] {
	last := common.NewReduceDataOptionsBuilder().Calcs([]string{"lastNotNull"})
	switch p.Kind {
	case Stat:
		mode := common.BigValueTextModeAuto
		if len(p.Queries) > 1 {
			mode = common.BigValueTextModeValueAndName
		}
		return stat.NewPanelBuilder().ReduceOptions(last).GraphMode(common.BigValueGraphModeNone).TextMode(mode)
	case Names:
		return stat.NewPanelBuilder().ReduceOptions(last).GraphMode(common.BigValueGraphModeNone).TextMode(common.BigValueTextModeName)
	case Bars:
		return bargauge.NewPanelBuilder().ReduceOptions(last).Orientation(common.VizOrientationHorizontal).DisplayMode(common.BarGaugeDisplayModeBasic)
	case States:
		return statetimeline.NewPanelBuilder().MergeValues(true).ShowValue(common.VisibilityModeAuto).FillOpacity(90).
			Legend(common.NewVizLegendOptionsBuilder().DisplayMode(common.LegendDisplayModeList).Placement(common.LegendPlacementBottom).ShowLegend(true))
	case Table:
		return table.NewPanelBuilder().Footer(common.NewTableFooterOptionsBuilder().Show(false).Reducer([]string{}))
	}
	b := timeseries.NewPanelBuilder().LineWidth(2).
		Legend(common.NewVizLegendOptionsBuilder().DisplayMode(common.LegendDisplayModeList).Placement(common.LegendPlacementBottom).ShowLegend(true)).
		Tooltip(common.NewVizTooltipOptionsBuilder().Mode(common.TooltipDisplayModeMulti).Sort(common.SortOrderDescending))
	if p.Kind == Stack {
		b.Stacking(common.NewStackingConfigBuilder().Mode(common.StackingModeNormal).Group("A")).FillOpacity(60).LineWidth(1)
	}
	return b
}

// defaults sets what all fields of the panel share.
func (p Panel) defaults(f *dashboard.FieldConfig) {
	f.Unit = &p.Unit
	f.NoValue = cog.ToPtr("not known")
	if p.NoValue != "" {
		f.NoValue = &p.NoValue
	}
	if p.Max != 0 {
		f.Max = &p.Max
	}
	if p.Kind == Lines || p.Kind == Stack || p.Kind == Bars {
		f.Min = cog.ToPtr(0.0)
	}
	f.Color = &dashboard.FieldColor{Mode: dashboard.FieldColorModeIdPaletteClassicByName}
	if p.Kind == Stat || p.Kind == States {
		f.Color.Mode = dashboard.FieldColorModeIdThresholds
	}
	steps := []dashboard.Threshold{{Color: blue}}
	if p.Alarm != 0 {
		steps = append(steps, dashboard.Threshold{Value: &p.Alarm, Color: red})
	}
	f.Thresholds = &dashboard.ThresholdsConfig{Mode: dashboard.ThresholdsModeAbsolute, Steps: steps}
	if len(p.Values) == 0 {
		return
	}
	options := map[string]dashboard.ValueMappingResult{}
	for i, v := range p.Values {
		options[strconv.Itoa(v.Number)] = dashboard.ValueMappingResult{Text: &v.Text, Color: &v.Color, Index: cog.ToPtr(int32(i))}
	}
	f.Mappings = []dashboard.ValueMapping{{ValueMap: &dashboard.ValueMap{Type: dashboard.MappingTypeValueToText, Options: options}}}
}

// overrides gives series that are named by a phase, an outcome or a verdict its
// colour, and columns their units and links.
func (p Panel) overrides() []dashboard.DashboardFieldConfigSourceOverrides {
	out := []dashboard.DashboardFieldConfigSourceOverrides{}
	byName := func(name, property string, value any) {
		out = append(out, dashboard.DashboardFieldConfigSourceOverrides{
			Matcher:    dashboard.MatcherConfig{Id: "byName", Options: name},
			Properties: []dashboard.DynamicConfigValue{{Id: property, Value: value}},
		})
	}
	if p.Kind != Table {
		for _, v := range p.Queries[0].colours() {
			byName(v.Text, "color", map[string]any{"mode": "fixed", "fixedColor": v.Color})
		}
		return out
	}
	for _, q := range p.Queries {
		if q.Legend != "" && q.Unit != "" {
			byName(q.Legend, "unit", q.Unit)
		}
	}
	for _, column := range []string{"unit", "class"} {
		if url := p.Links[column]; url != "" {
			byName(column, "links", []map[string]any{{"title": column, "url": url}})
		}
	}
	return out
}

// colours are those of the series that are named by one label alone.
func (q Query) colours() []Value {
	switch q.Legend {
	case "{{phase}}", "{{outcome}}":
		return phases()
	case "{{verdict}}":
		return []Value{{Text: "cause", Color: red}, {Text: "symptom", Color: orange}, {Text: "suspect", Color: pink}, {Text: "benign", Color: grey}}
	}
	return nil
}

// transformations make one table of the queries, whose rows have the same
// labels, and name its columns.
func (p Panel) transformations() []dashboard.DataTransformerConfig {
	hidden, names := map[string]bool{"Time": true}, map[string]string{}
	for _, label := range p.Hidden {
		hidden[label] = true
	}
	for i, q := range p.Queries {
		columns := []string{"Value #" + refID(i)}
		if len(p.Queries) == 1 {
			columns = append(columns, "Value") // how a table of one query is called
		}
		for _, c := range columns {
			if q.Legend == "" {
				hidden[c] = true
			} else {
				names[c] = q.Legend
			}
		}
	}
	return []dashboard.DataTransformerConfig{
		{Id: "merge", Options: map[string]any{}},
		{Id: "organize", Options: map[string]any{"excludeByName": hidden, "renameByName": names, "indexByName": map[string]int{}}},
	}
}
