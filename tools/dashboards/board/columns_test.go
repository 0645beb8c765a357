package board

import (
	"regexp"
	"slices"
	"testing"
)

// TestTables: the columns of a table are labels or values of its queries, all its
// queries have rows of the same things, and what is shown is named once.
func TestTables(t *testing.T) {
	for _, d := range All() {
		for _, r := range d.Rows {
			for _, p := range r.Panels {
				if p.Kind.tabular() {
					checkColumns(t, d.UID+", "+p.Title, p)
				}
			}
		}
	}
}

func checkColumns(t *testing.T, where string, p Panel) {
	t.Helper()
	var names, common []string
	for i, q := range p.Queries {
		labels := grouped(q.Expr)
		if labels == nil {
			t.Errorf("%s: a table of labels that nobody chose: %s", where, q.Expr)
		}
		names = append(names, labels...)
		if q.Legend != "" {
			names = append(names, q.Legend)
			if !slices.Contains(p.Columns, q.Legend) {
				t.Errorf("%s: the values %q are no column", where, q.Legend)
			}
		}
		if i == 0 {
			common = labels
		}
		common = slices.DeleteFunc(slices.Clone(common), func(l string) bool { return !slices.Contains(labels, l) })
	}
	if len(common) == 0 {
		t.Errorf("%s: the queries have no label in common to be merged by", where)
	}
	if p.Kind == Parts && (len(p.Queries) != 1 || !slices.Contains(common, p.Row) || !slices.Contains(common, "phase")) {
		t.Errorf("%s: a matrix is of one query by phase and %s", where, p.Row)
	}
	columns := map[string]string{}
	for _, c := range p.Columns {
		claim(t, columns, c, where)
		if !slices.Contains(names, c) {
			t.Errorf("%s: no query gives the column %s", where, c)
		}
	}
	for _, l := range p.Links {
		if columns[l.Column] == "" {
			t.Errorf("%s: a link on %s, which is no column", where, l.Column)
		}
		for _, m := range regexp.MustCompile(`__data\.fields\.(\w+)`).FindAllStringSubmatch(l.URL, -1) {
			if columns[m[1]] == "" {
				t.Errorf("%s: a link needs %s, which is no column", where, m[1])
			}
		}
	}
}
