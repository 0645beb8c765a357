package board

import (
	"fmt"
	"strconv"

	"github.com/grafana/grafana-foundation-sdk/go/barchart"
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
	switch p.Kind {
	case Table:
		out.Transformations = p.columns()
	case Parts:
		out.Transformations = p.parts()
	}
	for _, alert := range p.Runbooks {
		link, err := dashboard.NewDashboardLinkBuilder("Runbook of " + alert).Type(dashboard.DashboardLinkTypeLink).
			Url(runbooks + alert + ".md").TargetBlank(true).Build()
		if err != nil {
			return out, fmt.Errorf("panel %q: %w", p.Title, err)
		}
		link.Placement = nil // as for all links: see Dashboard.build
		out.Links = append(out.Links, link)
	}
	return out, nil
}

func (p Panel) target(q Query, ref string) *prometheus.DataqueryBuilder {
	b := prometheus.NewDataqueryBuilder().RefId(ref).Expr(q.Expr).Datasource(source()).EditorMode(prometheus.QueryEditorModeCode)
	switch {
	case p.Kind.tabular():
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
		return stat.NewPanelBuilder().Orientation(common.VizOrientationAuto).ReduceOptions(last).GraphMode(common.BigValueGraphModeNone).TextMode(mode)
	case Names:
		return stat.NewPanelBuilder().Orientation(common.VizOrientationAuto).ReduceOptions(last).GraphMode(common.BigValueGraphModeNone).TextMode(common.BigValueTextModeName)
	case Bars:
		return bargauge.NewPanelBuilder().ReduceOptions(last).Orientation(common.VizOrientationHorizontal).DisplayMode(common.BarGaugeDisplayModeBasic)
	case States:
		return statetimeline.NewPanelBuilder().MergeValues(true).ShowValue(common.VisibilityModeAuto).FillOpacity(90).
			Tooltip(common.NewVizTooltipOptionsBuilder().Mode(common.TooltipDisplayModeSingle).Sort(common.SortOrderNone)).
			Legend(common.NewVizLegendOptionsBuilder().DisplayMode(common.LegendDisplayModeList).Placement(common.LegendPlacementBottom).ShowLegend(true))
	case Parts:
		return barchart.NewPanelBuilder().Orientation(common.VizOrientationHorizontal).Stacking(common.StackingModeNormal).
			ShowValue(common.VisibilityModeAuto).FillOpacity(90).XTickLabelMaxLength(64). // 0 would leave nothing of them
			Legend(common.NewVizLegendOptionsBuilder().DisplayMode(common.LegendDisplayModeList).Placement(common.LegendPlacementBottom).ShowLegend(true)).
			Tooltip(common.NewVizTooltipOptionsBuilder().Mode(common.TooltipDisplayModeMulti).Sort(common.SortOrderNone))
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
	if p.Whole {
		f.Decimals = cog.ToPtr(0.0)
	}
	if p.Max != 0 {
		f.Max = &p.Max
	}
	if p.Kind != Stat && p.Kind != Names && p.Kind != States && p.Kind != Table {
		f.Min = cog.ToPtr(0.0)
	}
	f.Color = &dashboard.FieldColor{Mode: dashboard.FieldColorModeIdPaletteClassicByName}
	if p.Kind == Stat || p.Kind == States {
		f.Color.Mode = dashboard.FieldColorModeIdThresholds
	}
	f.Thresholds = thresholds(p.Alarm)
	if len(p.Values) > 0 {
		f.Mappings = mappings(p.Values, func(v Value) string { return strconv.Itoa(v.Number) })
	}
}

// thresholds has one at alarm; 0 for none.
func thresholds(alarm float64) *dashboard.ThresholdsConfig {
	steps := []dashboard.Threshold{{Color: blue}}
	if alarm != 0 {
		steps = append(steps, dashboard.Threshold{Value: &alarm, Color: red})
	}
	return &dashboard.ThresholdsConfig{Mode: dashboard.ThresholdsModeAbsolute, Steps: steps}
}

// mappings show each value, which key writes as Grafana does, by its text and colour.
func mappings(values []Value, key func(Value) string) []dashboard.ValueMapping {
	options := map[string]dashboard.ValueMappingResult{}
	for i, v := range values {
		options[key(v)] = dashboard.ValueMappingResult{Text: &v.Text, Color: &v.Color, Index: cog.ToPtr(int32(i))}
	}
	return []dashboard.ValueMapping{{ValueMap: &dashboard.ValueMap{Type: dashboard.MappingTypeValueToText, Options: options}}}
}
