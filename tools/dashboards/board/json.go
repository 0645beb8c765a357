package board

//lint:file-ignore SA1019 Grafana 10 and 11 take no dashboard of the schema v2.

import (
	"bytes"
	"encoding/json"
	"fmt"

	"github.com/grafana/grafana-foundation-sdk/go/cog"
	"github.com/grafana/grafana-foundation-sdk/go/common"
	"github.com/grafana/grafana-foundation-sdk/go/dashboard"
	"github.com/grafana/grafana-foundation-sdk/go/prometheus"
)

// JSON returns the dashboard as Grafana imports it, the same bytes every time.
func (d Dashboard) JSON() ([]byte, error) {
	built, err := d.build()
	if err != nil {
		return nil, err
	}
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	enc.SetIndent("", "  ")
	if err := enc.Encode(built); err != nil {
		return nil, fmt.Errorf("dashboard %s: %w", d.UID, err)
	}
	return b.Bytes(), nil
}

func (d Dashboard) build() (dashboard.Dashboard, error) {
	out, err := d.builder().Build()
	if err != nil {
		return out, fmt.Errorf("dashboard %s: %w", d.UID, err)
	}
	// Without a place, links and annotations stand above the panels; the SDK puts
	// them into a menu.
	for i := range out.Links {
		out.Links[i].Placement = nil
	}
	for i := range out.Annotations.List {
		out.Annotations.List[i].Placement = nil
	}
	return out, nil
}

func (d Dashboard) builder() *dashboard.DashboardBuilder {
	b := dashboard.NewDashboardBuilder(d.Title).
		Uid(d.UID).Description(d.Description).Tags([]string{"startupd"}).
		Time(d.From, "now").Refresh(d.Refresh).Timezone(common.TimeZoneBrowser).
		Tooltip(dashboard.DashboardCursorSyncCrosshair).Editable()
	for _, v := range d.variables() {
		b.WithVariable(v)
	}
	for _, e := range d.Events {
		b.Annotation(e.builder())
	}
	b.Link(dashboard.NewDashboardLinkBuilder("startupd").
		Type(dashboard.DashboardLinkTypeDashboards).Tags([]string{"startupd"}).KeepTime(true))
	id := uint32(1)
	for _, r := range d.Rows {
		b.WithRow(dashboard.NewRowBuilder(r.Title).Id(id))
		id++
		for _, p := range r.Panels {
			b.WithPanel(placed{p, id})
			id++
		}
	}
	return b
}

// placed is a panel with its number.
type placed struct {
	panel Panel
	id    uint32
}

// Build implements cog.Builder.
func (p placed) Build() (dashboard.Panel, error) { return p.panel.build(p.id) }

// source is the data source that the variable names.
func source() common.DataSourceRef {
	return common.DataSourceRef{Type: cog.ToPtr("prometheus"), Uid: cog.ToPtr("${datasource}")}
}

// variables are the choices at the top, each limited by those before it.
func (d Dashboard) variables() []cog.Builder[dashboard.VariableModel] {
	match := func(label string) string {
		if d.Multi {
			return label + `=~"$` + label + `"`
		}
		return label + `="$` + label + `"`
	}
	query := func(name, label, series string) cog.Builder[dashboard.VariableModel] {
		v := dashboard.NewQueryVariableBuilder(name).Label(label).Datasource(source()).Definition("label_values(" + series + ", " + name + ")").
			Query(dashboard.StringOrMap{String: cog.ToPtr("label_values(" + series + ", " + name + ")")}).
			Refresh(dashboard.VariableRefreshOnTimeRangeChanged).Sort(dashboard.VariableSortNaturalAsc).
			Multi(d.Multi).IncludeAll(d.Multi)
		if d.Multi && name != "job" { // all jobs are those of startupd: up has others
			v.AllValue(".+")
		}
		if d.Multi {
			v.Current(dashboard.VariableOption{
				Text:  dashboard.StringOrArrayOfString{String: cog.ToPtr("All")},
				Value: dashboard.StringOrArrayOfString{String: cog.ToPtr("$__all")},
			})
		}
		return v
	}
	return []cog.Builder[dashboard.VariableModel]{
		dashboard.NewDatasourceVariableBuilder("datasource").Label("Data source").Type("prometheus"),
		query("job", "Job", "startupd_build_info"),
		query("instance", "Host", "startupd_build_info{"+match("job")+"}"),
		query("unit", "Unit", "startupd_phase{"+match("job")+","+match("instance")+"}"),
	}
}

func (e Event) builder() cog.Builder[dashboard.AnnotationQuery] {
	return dashboard.NewAnnotationQueryBuilder().
		Name(e.Name).Datasource(source()).Enable(true).IconColor(e.Color).
		Expr(e.Expr).TitleFormat(e.Title).UseValueForTime(e.ValueIsTime).
		Target(prometheus.NewDataqueryBuilder().RefId("Anno").Expr(e.Expr).Range())
}
